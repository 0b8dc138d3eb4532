//! A program, carried out: statements.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::super::limits::{Limit, Limits};
use super::super::python::filters;
use super::super::python::functions::{Macro, private};
use super::super::python::value::{Answer, Args, Space, UNDEFINED, Value, raise};
use super::super::render::Variables;
use super::eval::filtered;
use super::names::{Frame, Names};
use super::output::Output;
use super::program::{Applied, Block, Expr, ExprKind, Op, Program, Scoped, Target, VarRef};

/// The place and the number of the frame of the template itself.
pub(super) const ROOT_FRAME: (usize, u64) = (0, 0);

/// How often the clock is read: once in so many steps.
const STEPS_A_LOOK: u64 = 256;

/// What happens after a statement.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Flow {
    Next,
    Break,
    Continue,
}

/// A render on its way.
pub(crate) struct Run<'t> {
    pub(super) program: &'t Program,
    pub(super) cx: &'t Context<'t>,
    pub(crate) out: Output<'t>,
    pub(super) names: Names<'t>,
    pub(super) frames: u64,
    /// Room of frames that are gone.
    pub(super) spare: Vec<Vec<Value>>,
    pub(super) levels: usize,
    pub(super) steps: u64,
    pub(super) escapes: bool,
}

impl<'t> Run<'t> {
    /// A run with these variables.
    pub(crate) fn new(
        program: &'t Program,
        limits: &Limits,
        cx: &'t Context<'t>,
        variables: &'t Variables,
    ) -> Run<'t> {
        Run {
            program,
            cx,
            out: Output::new(cx, limits.output_bytes),
            names: Names {
                program,
                variables,
                globals: vec![OnceCell::new(); program.globals.len()],
                frame: Frame { slots: vec![Value::Unset; program.slots], up: 0, number: 0 },
                stack: Vec::new(),
            },
            frames: 0,
            spare: Vec::new(),
            levels: 0,
            steps: limits.steps,
            escapes: false,
        }
    }

    /// Runs all of it.
    pub(crate) fn all(&mut self) -> Result<(), Error> {
        self.block(&self.program.body).map(|_| ())
    }

    #[inline]
    pub(super) fn step(&mut self) -> Result<(), Error> {
        let Some(left) = self.steps.checked_sub(1) else {
            return Err(self.cx.exceeded(Limit::Steps));
        };
        self.steps = left;
        if left % STEPS_A_LOOK == 0 { self.cx.in_time() } else { Ok(()) }
    }

    // Statements.

    pub(super) fn block(&mut self, block: &'t Block) -> Result<Flow, Error> {
        for (op, span) in block {
            match self.op(op) {
                Ok(Flow::Next) => (),
                Ok(flow) => return Ok(flow),
                Err(error) => return Err(error.at(*span)),
            }
        }
        Ok(Flow::Next)
    }

    pub(super) fn op(&mut self, op: &'t Op) -> Result<Flow, Error> {
        self.step()?;
        match op {
            Op::Data(text) => self.out.write(text)?,
            Op::Print(expr) => self.print(expr)?,
            Op::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.truth(test)? {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            Op::For(at) => return self.for_loop(*at),
            Op::Set(target, expr) => self.set(target, expr)?,
            Op::Macro(at, var) => {
                let value = self.macro_value(*at);
                if let VarRef::Local(slot) = var {
                    self.put(*slot, value);
                }
            }
            Op::Break => return Ok(Flow::Break),
            Op::Continue => return Ok(Flow::Continue),
            Op::Scope(scoped) => return self.scoped(scoped),
            _ => self.exec_cold(op)?,
        }
        Ok(Flow::Next)
    }

    /// The statements that few templates have.
    #[inline(never)]
    pub(super) fn exec_cold(&mut self, op: &'t Op) -> Result<(), Error> {
        match op {
            Op::SetBlock(target, filters, scoped) => {
                let value = self.captured(scoped)?;
                let value = self.applied(value, filters)?;
                self.assign(target, value)?;
            }
            Op::FilterBlock(filters, scoped) => {
                let value = self.captured(scoped)?;
                let value = self.applied(value, filters)?;
                self.write(&value)?;
            }
            Op::With(bindings, scoped) => {
                let values =
                    bindings.iter().map(|(_, expr)| self.eval(expr)).collect::<Result<Vec<_>, _>>()?;
                for ((target, _), value) in bindings.iter().zip(values) {
                    self.assign(target, value)?;
                }
                self.scoped(scoped)?;
            }
            Op::Autoescape(test, scoped) => {
                let escapes = self.truth(test)?;
                let before = std::mem::replace(&mut self.escapes, escapes);
                let done = self.scoped(scoped);
                self.escapes = before;
                done?;
            }
            Op::Required(name) => {
                return Err(raise(Kind::Runtime, format!("Required block '{name}' not found")));
            }
            Op::OwnBlock(at) => {
                if let Some(code) = self.program.macros.get(*at) {
                    let of = Macro { head: code.head.clone(), at: *at, frame: ROOT_FRAME };
                    self.call_macro(&of, &Args::places(&[]))?;
                }
            }
            Op::Generation(scoped) => {
                let part = self.out.begin();
                self.scoped(scoped)?;
                self.out.mark(&part);
                self.out.keep(&part);
            }
            Op::CallBlock(at, call) => {
                let caller = self.macro_value(*at);
                let value = match &call.kind {
                    ExprKind::Call(of, given) => {
                        let callee = self.eval(of)?;
                        let done = self.with_args(given, Some(caller), |run, args| run.call(&callee, args));
                        done.map_err(|error| self.blamed(error, call, &[(of, &callee)]))?
                    }
                    ExprKind::Method(of, name, given) => {
                        let base = self.eval(of)?;
                        let done =
                            self.with_args(given, Some(caller), |run, args| run.method(&base, name, args));
                        done.map_err(|error| self.blamed(error, call, &[(of, &base)]))?
                    }
                    _ => self.eval(call)?,
                };
                self.write(&value)?;
            }
            Op::Import(expr) => {
                self.eval(expr)?;
                return Err(raise(Kind::Type, "no loader for this environment specified"));
            }
            _ => (),
        }
        Ok(())
    }

    pub(super) fn clear(&mut self, slots: &Range<usize>) {
        if let Some(slots) = self.names.frame.slots.get_mut(slots.clone()) {
            slots.fill(Value::Unset);
        }
    }

    pub(super) fn scoped(&mut self, scoped: &'t Scoped) -> Result<Flow, Error> {
        self.clear(&scoped.names);
        self.block(&scoped.body)
    }

    /// The text that a body writes.
    pub(super) fn captured(&mut self, scoped: &'t Scoped) -> Answer {
        let part = self.out.begin();
        self.scoped(scoped)?;
        let text = self.out.take(&part)?;
        Ok(self.captive(text))
    }

    pub(super) fn captive(&self, text: Rc<str>) -> Value {
        if self.escapes { Value::Markup(text) } else { Value::Str(text) }
    }

    pub(super) fn applied(&mut self, mut value: Value, filters: &'t [Applied]) -> Answer {
        for (filter, given) in filters {
            value = self.with_args(given, None, |_, args| filtered(self.cx, *filter, &value, args))?;
        }
        Ok(value)
    }

    #[inline]
    pub(super) fn put(&mut self, slot: usize, value: Value) {
        if let Some(kept) = self.names.frame.slots.get_mut(slot) {
            *kept = value;
        }
    }

    pub(super) fn set(&mut self, target: &'t Target, expr: &'t Expr) -> Result<(), Error> {
        if let Target::Field(space, name) = target {
            self.space(space, name)?;
        }
        let value = self.eval(expr)?;
        self.assign(target, value)
    }

    /// The namespace of which the field `name` is set.
    pub(super) fn space(&self, space: &'t Expr, name: &str) -> Result<Rc<Space>, Error> {
        let Some(Value::Space(found)) = self.peek(space) else {
            let message = "cannot assign attribute on non-namespace object";
            return Err(raise(Kind::Runtime, message).at(space.span));
        };
        private(name)?;
        Ok(found.clone())
    }

    /// The error of `expr`, at the one of its `operands` that was undefined if that is what was wrong.
    #[cold]
    pub(super) fn blamed(&self, error: Error, expr: &Expr, operands: &[(&Expr, &Value)]) -> Error {
        if error.is_placed() || error.kind != Kind::Undefined || error.message != UNDEFINED {
            return error.at(expr.span);
        }
        let undefined = operands.iter().find(|(_, value)| value.is_undefined());
        let Some((operand, _)) = undefined else { return error.at(expr.span) };
        let called = shortened(operand.span.of(&self.program.source));
        raise(Kind::Undefined, format!("`{called}` is undefined")).at(operand.span)
    }

    pub(super) fn assign(&mut self, target: &'t Target, value: Value) -> Result<(), Error> {
        match target {
            Target::Slot(slot) => self.put(*slot, value),
            Target::Field(space, name) => self.space(space, name)?.set(self.cx, name, value)?,
            Target::Tuple(targets) => match &value {
                Value::Seq(seq) if seq.items.len() == targets.len() => {
                    for (target, item) in targets.iter().zip(&seq.items) {
                        self.assign(target, item.clone())?;
                    }
                }
                _ => {
                    for (target, item) in
                        targets.iter().zip(filters::unpacked(self.cx, &value, targets.len())?)
                    {
                        self.assign(target, item)?;
                    }
                }
            },
        }
        Ok(())
    }
}

/// How many characters of an expression a message shows.
const SHOWN: usize = 60;

/// An expression on one line, cut where it is long.
fn shortened(expression: &str) -> String {
    let words: Vec<&str> = expression.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
