//! Where variables are while a template runs.

use std::cell::OnceCell;
use std::rc::Rc;

use super::super::python::functions::{Builtin, Macro};
use super::super::python::value::Value;
use super::super::render::Variables;
use super::program::{Expr, ExprKind, Program, VarRef};
use super::run::ROOT_FRAME;

/// The variables of a template or a macro that runs.
#[derive(Default)]
pub(super) struct Frame {
    pub(super) slots: Vec<Value>,
    /// The place on the stack of the frame that the macro was defined in.
    pub(super) up: usize,
    pub(super) number: u64,
}

/// All variables.
pub(super) struct Names<'t> {
    pub(super) program: &'t Program,
    pub(super) variables: &'t Variables,
    /// What was given under the program's names, as far as they were asked for.
    pub(super) globals: Vec<OnceCell<Value>>,
    pub(super) frame: Frame,
    /// The frames that wait for the one that runs.
    pub(super) stack: Vec<Frame>,
}

impl Names<'_> {
    /// Where a variable is.
    #[inline]
    pub(super) fn at(&self, var: VarRef) -> &Value {
        let found = match var {
            VarRef::Local(slot) => self.frame.slots.get(slot),
            VarRef::Global(at) => self.globals.get(at).map(|known| known.get_or_init(|| self.given(at))),
            VarRef::Root(slot) => self.stack.first().and_then(|frame| frame.slots.get(slot)),
            VarRef::Up(levels, slot) => {
                let up = |at: usize| self.stack.get(at).map(|frame| frame.up);
                let frame = (1..levels).try_fold(self.frame.up, |at, _| up(at));
                frame.and_then(|at| self.stack.get(at)).and_then(|frame| frame.slots.get(slot))
            }
        };
        found.unwrap_or(&Value::Unset)
    }

    /// The variable or function of a name, from without.
    pub(super) fn given(&self, at: usize) -> Value {
        let Some(name) = self.program.globals.get(at) else { return Value::Undefined };
        if name == "self" {
            return self.template();
        }
        let variable = self.variables.get(name);
        variable.or_else(|| Builtin::named(name).map(Value::Builtin)).unwrap_or_default()
    }

    /// The template itself, whose attributes are its blocks.
    fn template(&self) -> Value {
        let block = |(name, at): &(String, Option<usize>)| {
            let code = at.and_then(|at| Some((at, self.program.macros.get(at)?)));
            let of = code.map(|(at, code)| Macro { head: code.head.clone(), at, frame: ROOT_FRAME });
            (name.clone(), of.map(Rc::new))
        };
        Value::Template(Rc::new(self.program.blocks.iter().map(block).collect()))
    }

    pub(super) fn first(&self, vars: &[VarRef]) -> &Value {
        let mut all = vars.iter().map(|var| self.at(*var));
        all.find(|value| !matches!(value, Value::Unset)).unwrap_or(&Value::Undefined)
    }

    /// A look at a value that is kept somewhere, if it takes nothing to find it.
    #[inline]
    pub(super) fn peek(&self, expr: &Expr) -> Option<&Value> {
        match &expr.kind {
            ExprKind::Name(var) => Some(self.set(*var)),
            ExprKind::Names(_) | ExprKind::Field(..) | ExprKind::Item(..) => self.found(expr),
            _ => None,
        }
    }

    /// What a variable holds, if only undefined.
    #[inline]
    pub(super) fn set(&self, var: VarRef) -> &Value {
        match self.at(var) {
            Value::Unset => &Value::Undefined,
            value => value,
        }
    }

    pub(super) fn found(&self, expr: &Expr) -> Option<&Value> {
        match &expr.kind {
            ExprKind::Names(vars) => Some(self.first(vars)),
            ExprKind::Field(of, name) => match self.peek(of)? {
                Value::Dict(dict) => Some(dict.get_str(name).unwrap_or(&Value::Undefined)),
                _ => None,
            },
            ExprKind::Item(of, key) => match (self.peek(of)?, &key.kind) {
                (Value::Seq(seq), ExprKind::Int(at)) => {
                    let at = if *at < 0 { at + seq.items.len() as i128 } else { *at };
                    Some(
                        usize::try_from(at)
                            .ok()
                            .and_then(|at| seq.items.get(at))
                            .unwrap_or(&Value::Undefined),
                    )
                }
                _ => None,
            },
            _ => None,
        }
    }
}
