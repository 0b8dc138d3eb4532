//! Records a program as a graph, and names what cannot be recorded.
//!
//! A program over handles ([`Tape`]) is an ordinary function. What it asks of the handles becomes nodes. What no node
//! says is a *break*: it looks at a value that does not exist yet, asks for an address, calls into a library, asks the
//! host, overwrites a tensor. Capture goes on behind a break, so that one run names them all: what a library would have
//! given is a fresh input `break.N`, where N counts the breaks from 0; what the host answers is taken as it is, and so
//! baked into the graph; what is overwritten is from then on the new value.
//!
//! With examples, a read is answered by interpreting what is recorded so far; without, it gives nothing. The graph is the
//! program as it went this time. Only where there are no breaks is that how it goes every time.
//!
//! [`explain`](super::explain) says what a break is and how it is cured, [`change`](super::change) why the same program
//! gave another graph.
//!
//! Sources: Ansel et al., "`PyTorch` 2" (2024), section 3, for capture with breaks and guards.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

use reference::graph::interpret::Values;
use reference::graph::{
    Array, Error, Facts, Fault, Foreign, Graph, Host, Id, Op, Record, Tape, Type, interpret,
};

use super::explain::Break;

/// A recorded program.
#[derive(Clone, Debug)]
pub struct Capture {
    /// What it computes.
    pub graph: Graph,
    /// What it does beside that, in the order in which it does it.
    pub breaks: Vec<Break>,
    /// The line that asked for each node.
    pub lines: Vec<&'static Location<'static>>,
}

/// Records a program. `examples` are values for its inputs, as far as there are some.
///
/// Fails where shapes or types do not fit, in the program or in an example; the error names the line.
pub fn capture(name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
    let recorder = Recorder { graph: Graph::new(name), values: examples.clone(), ..Recorder::default() };
    let recorder = Rc::new(RefCell::new(recorder));
    program(&Tape::new(recorder.clone()));
    let Recorder { graph, breaks, lines, error, .. } = recorder.take();
    error.map_or(Ok(()), Err)?;
    graph.check()?;
    Ok(Capture { graph, breaks, lines })
}

/// A program under record.
#[derive(Default)]
struct Recorder {
    graph: Graph,
    lines: Vec<&'static Location<'static>>,
    handles: Vec<Id>, // which node the handles of a place mean: another one after a write
    scope: Vec<String>,
    values: Values<f32>, // of inputs, those of foreign calls among them
    breaks: Vec<Break>,
    error: Option<Error>,
}

impl Record for Recorder {
    // An operation that fits is a node. Whoever asks gets a place: the handles of a place can come to mean another node.
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        let inputs: Vec<Id> = inputs.iter().map(|place| self.handles[*place]).collect();
        match self.graph.add(op, &inputs, ty, &self.scope.join(".")) {
            Ok(id) => {
                self.lines.push(at);
                self.handles.push(id);
                Some((self.handles.len() - 1, self.graph.ty(id).clone()))
            }
            Err(error) => self.fail(error, at),
        }
    }

    // The values decide what the program does next, so the graph holds for batches that decide alike.
    fn read(&mut self, place: usize, at: &'static Location<'static>) -> Option<Vec<f64>> {
        let value = self.value(place, at);
        self.breaks.push(Break::read(&self.graph, self.handles[place], value.as_ref(), at));
        value.map(|value| value.wide())
    }

    // There is no buffer before there is a plan.
    fn pointer(&mut self, place: usize, at: &'static Location<'static>) -> Option<usize> {
        self.breaks.push(Break::pointer(&self.graph, self.handles[place], at));
        None
    }

    // The graph ends before the call and another one begins behind it, with the result as an input.
    fn foreign(
        &mut self,
        call: &Foreign,
        inputs: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        let name = format!("break.{}", self.breaks.len());
        let values: Option<Vec<Array<f32>>> = inputs.iter().map(|place| self.value(*place, at)).collect();
        let types: Vec<&Type> = inputs.iter().map(|place| self.graph.ty(self.handles[*place])).collect();
        self.breaks.push(Break::foreign(call, &types, at));
        self.values.extend(values.map(|values| (name.clone(), (call.run)(&values))));
        self.apply(Op::Input { name }, &[], Some(call.ty.clone()), at)
    }

    // The host is here, so it answers; but it answers once, and not each time that the graph runs.
    fn host(
        &mut self,
        host: Host,
        name: &str,
        run: &dyn Fn() -> f64,
        at: &'static Location<'static>,
    ) -> Option<f64> {
        let answer = run();
        self.breaks.push(Break::host(host, name, answer, at));
        Some(answer)
    }

    // A node keeps its value. The handles of the place mean another node from here on.
    fn write(&mut self, place: usize, value: usize, at: &'static Location<'static>) {
        let [old, new] = [place, value].map(|place| self.handles[place]);
        let (need, got) = (self.graph.ty(old).clone(), self.graph.ty(new).clone());
        if need != got {
            let wrong = Error { at: self.graph.site(old), fault: Fault::Type { got, need }, source: None };
            self.fail::<()>(wrong, at);
            return;
        }
        self.breaks.push(Break::write(&self.graph, old, at));
        self.handles[place] = new;
    }

    fn know(&mut self, symbol: &str, facts: Facts) {
        self.graph.know(symbol, facts);
    }

    fn output(&mut self, name: &str, place: usize) {
        self.graph.output(name, self.handles[place]);
    }

    fn enter(&mut self, part: &str) {
        self.scope.push(part.to_owned());
    }

    fn leave(&mut self) {
        self.scope.pop();
    }
}

impl Recorder {
    /// What the examples make of a result; nothing where one is missing. An example that does not fit is a mistake.
    fn value(&mut self, place: usize, at: &'static Location<'static>) -> Option<Array<f32>> {
        let mut prefix = self.graph.clone();
        prefix.clear_outputs();
        prefix.output("value", self.handles[place]);
        match interpret(&prefix, &self.values) {
            Ok(values) => values.into_iter().next(),
            Err(Error { fault: Fault::NotGiven { .. }, .. }) => None,
            Err(error) => self.fail(error, at),
        }
    }

    /// Keeps the first mistake, with the line that made it.
    fn fail<T>(&mut self, error: Error, at: &'static Location<'static>) -> Option<T> {
        self.error.get_or_insert(Error { source: Some(at), ..error });
        None
    }
}
