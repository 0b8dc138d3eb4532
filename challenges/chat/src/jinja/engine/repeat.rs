//! Loops, carried out.

use std::ops::Range;
use std::rc::Rc;

use super::super::error::Error;
use super::super::python::filters;
use super::super::python::repeat::{Items, Loop};
use super::super::python::value::{Answer, Args, Value};
use super::program::{Expr, Iterable, LoopCode, Target};
use super::run::{Flow, Run};

impl<'t> Run<'t> {
    pub(super) fn for_loop(&mut self, at: usize) -> Result<Flow, Error> {
        let Some(code) = self.program.loops.get(at) else { return Ok(Flow::Next) };
        let items = match &code.of {
            Iterable::Value(of) => self.items(of)?,
            Iterable::Method(of) | Iterable::Filter(of) => match self.eval(of)? {
                Value::Dict(dict) => Items::Pairs(dict),
                value => {
                    let pairs = match code.of {
                        Iterable::Method(_) => self.method(&value, "items", &Args::places(&[])),
                        _ => filters::item_pairs(self.cx, &value),
                    };
                    let items = pairs.and_then(|pairs| Items::of(self.cx, &pairs));
                    items.map_err(|error| self.blamed(error, of, &[(of, &value)]))?
                }
            },
        };
        self.repeat(code, items, 0)
    }

    pub(super) fn items(&mut self, of: &'t Expr) -> Result<Items, Error> {
        if let Some(value) = self.peek(of) {
            return Items::of(self.cx, value).map_err(|error| self.blamed(error, of, &[(of, value)]));
        }
        let value = self.eval(of)?;
        Items::of(self.cx, &value).map_err(|error| self.blamed(error, of, &[(of, &value)]))
    }

    /// Runs a loop. As in Jinja's compiled code, `else` runs unless the body of at least one pass reached its end: a pass
    /// that `continue` or `break` leaves does not count.
    pub(super) fn repeat(&mut self, code: &'t LoopCode, items: Items, depth: usize) -> Result<Flow, Error> {
        let items = match &code.test {
            Some(test) => self.filtered_items(code, test, &items)?,
            None => items,
        };
        let count = items.len();
        if count == 0 {
            return self.block(&code.otherwise);
        }
        let state = Rc::new(Loop::new(items, depth));
        self.put(code.state, Value::Loop(state.clone()));
        let mut completed = false;
        for at in 0..count {
            self.step()?;
            state.at.set(at);
            self.clear(&code.names);
            self.bind(&code.target, &state.items, at)?;
            match self.block(&code.body)? {
                Flow::Next => completed = true,
                Flow::Continue => (),
                Flow::Break => break,
            }
        }
        if completed { Ok(Flow::Next) } else { self.block(&code.otherwise) }
    }

    pub(super) fn bind(&mut self, target: &'t Target, items: &Items, at: usize) -> Result<(), Error> {
        if let (Items::Pairs(dict), Target::Tuple(targets)) = (items, target)
            && let ([first, second], Some((key, value))) = (targets.as_slice(), dict.entries.get(at))
        {
            self.assign(first, key.clone())?;
            return self.assign(second, value.clone());
        }
        self.assign(target, items.get(self.cx, at)?)
    }

    pub(super) fn filtered_items(
        &mut self,
        code: &'t LoopCode,
        test: &'t Expr,
        items: &Items,
    ) -> Result<Items, Error> {
        let mut kept = Vec::new();
        for at in 0..items.len() {
            self.step()?;
            self.bind(&code.target, items, at)?;
            if self.truth(test)? {
                self.cx.charge(size_of::<Value>())?;
                kept.push(items.get(self.cx, at)?);
            }
        }
        Ok(Items::Own(kept))
    }

    /// Enters a loop from within: what it keeps is put aside meanwhile.
    #[inline(never)]
    pub(super) fn loop_recurse(&mut self, at: usize, of: &'t Expr) -> Answer {
        let Some(code) = self.program.loops.get(at) else { return Ok(Value::Undefined) };
        let items = self.items(of)?;
        let depth = match self.names.frame.slots.get(code.state) {
            Some(Value::Loop(state)) => state.depth + 1,
            _ => 0,
        };
        self.cx.charge(256 + code.all.len() * size_of::<Value>())?;
        let empty = vec![Value::Unset; code.all.len()];
        let kept = self.swapped(&code.all, empty);
        let done = self.deeper(code.height, |run| {
            let part = run.out.begin();
            run.repeat(code, items, depth)?;
            run.out.take(&part)
        });
        self.swapped(&code.all, kept);
        let text = done?;
        Ok(self.captive(text))
    }

    /// Exchanges what some places keep.
    pub(super) fn swapped(&mut self, slots: &Range<usize>, mut values: Vec<Value>) -> Vec<Value> {
        if let Some(slots) = self.names.frame.slots.get_mut(slots.clone()) {
            slots.swap_with_slice(&mut values);
        }
        values
    }
}
