//! A program run at once: every operation is computed when a handle asks for it.
//!
//! This is the run without a compiler. It means what the interpreter says, and does everything that a graph cannot say:
//! a read has values, a pointer is an address, a foreign function is called, a write overwrites.

use std::borrow::Cow;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;

use super::interpret::{self, Bound, Values};
use super::{Array, Error, Facts, Fault, Foreign, Graph, Host, Id, Op, Record, Tape, Type};

/// Runs a program on given values.
pub struct Eager {
    run: Rc<RefCell<Run>>,
    tape: Tape,
}

/// A program under way. Its graph is kept for the types alone.
struct Run {
    given: Values<f32>,
    graph: Graph,
    bound: Bound,
    results: Vec<Option<Cow<'static, Array<f32>>>>, // of every node
    outputs: Values<f32>,
    error: Option<Error>,
}

impl Eager {
    /// Values by the names of the program's inputs; those that it does not ask for are left alone.
    pub fn new(given: Values<f32>) -> Self {
        let run = Run {
            given,
            graph: Graph::new("eager"),
            bound: Bound::new(),
            results: Vec::new(),
            outputs: Values::new(),
            error: None,
        };
        let run = Rc::new(RefCell::new(run));
        Self { tape: Tape::new(run.clone()), run }
    }

    /// The tape that it runs.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The outputs by name, or the first mistake and the line that made it.
    pub fn finish(self) -> Result<Values<f32>, Error> {
        let mut run = self.run.borrow_mut();
        match run.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut run.outputs)),
        }
    }
}

impl Run {
    /// Adds a node and computes it.
    fn step(&mut self, op: Op, inputs: &[usize], ty: Option<Type>) -> Result<Id, Error> {
        if let Op::Input { name } = op {
            let value = self.given.get(&name).cloned();
            let value = value.ok_or_else(|| Fault::NotGiven { name: name.clone() }.of(&name))?;
            return self.give(&name, value, ty);
        }
        let inputs: Vec<Id> = inputs.iter().map(|place| Id(*place as u32)).collect();
        let id = self.graph.add(op, &inputs, ty, "")?;
        let node = self.graph.node(id);
        let value = interpret::at_node(node, &self.results, &self.bound)
            .map_err(|fault| fault.at(id.0 as usize, &node.op))?;
        self.results.push(Some(Cow::Owned(value)));
        Ok(id)
    }

    /// Adds a node for a value from outside; its shape says what symbols stand for.
    fn give(&mut self, name: &str, value: Array<f32>, ty: Option<Type>) -> Result<Id, Error> {
        let id = self.graph.add(Op::Input { name: name.to_owned() }, &[], ty, "")?;
        interpret::bind_input(&self.graph, name, id, &value, &mut self.bound)?;
        interpret::fits(&self.graph, name, id, &value, &self.bound)?;
        self.results.push(Some(Cow::Owned(value)));
        Ok(id)
    }

    /// Where a node's value is; nothing after a mistake, which is kept.
    fn done(&mut self, done: Result<Id, Error>, at: &'static Location<'static>) -> Option<(usize, Type)> {
        match done {
            Ok(id) => Some((id.0 as usize, self.graph.ty(id).clone())),
            Err(error) => {
                self.error.get_or_insert(Error { source: Some(at), ..error });
                None
            }
        }
    }

    fn value(&self, place: usize) -> Option<&Array<f32>> {
        self.results.get(place)?.as_deref()
    }
}

impl Record for Run {
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        if self.error.is_some() {
            return None; // a node without a value has no successors
        }
        let done = self.step(op, inputs, ty);
        self.done(done, at)
    }

    fn read(&mut self, place: usize, _: &'static Location<'static>) -> Option<Vec<f64>> {
        Some(self.value(place)?.wide())
    }

    fn pointer(&mut self, place: usize, _: &'static Location<'static>) -> Option<usize> {
        Some(self.value(place)?.address())
    }

    fn foreign(
        &mut self,
        call: &Foreign,
        inputs: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)> {
        if self.error.is_some() {
            return None;
        }
        let inputs: Option<Vec<Array<f32>>> =
            inputs.iter().map(|place| self.value(*place).cloned()).collect();
        let done = self.give(call.name, (call.run)(&inputs?), Some(call.ty.clone()));
        self.done(done, at)
    }

    fn host(
        &mut self,
        _: Host,
        _: &str,
        run: &dyn Fn() -> f64,
        _: &'static Location<'static>,
    ) -> Option<f64> {
        Some(run())
    }

    fn write(&mut self, place: usize, value: usize, at: &'static Location<'static>) {
        let [old, new] = [place, value].map(|place| Id(place as u32));
        let (need, got) = (self.graph.ty(old).clone(), self.graph.ty(new).clone());
        if need == got {
            let value = self.results[value].clone();
            self.results[place] = value;
        } else {
            let error = Fault::Type { got, need }.at(place, &self.graph.node(old).op);
            self.done(Err(error), at);
        }
    }

    fn know(&mut self, symbol: &str, facts: Facts) {
        self.graph.know(symbol, facts);
    }

    fn output(&mut self, name: &str, place: usize) {
        if let Some(value) = self.value(place).cloned() {
            self.outputs.insert(name.to_owned(), value);
        }
    }

    fn enter(&mut self, _: &str) {}

    fn leave(&mut self) {}
}
