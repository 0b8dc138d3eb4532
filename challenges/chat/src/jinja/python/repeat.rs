//! What a loop goes over, and what its body knows as `loop`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::compare::equal;
use super::containers::{Dict, Seq};
use super::value::{Answer, Args, Value, items, raise, tuple};

/// Items to loop over.
pub(crate) enum Items {
    Seq(Rc<Seq>),
    /// The keys of a dict.
    Keys(Rc<Dict>),
    /// The pairs of a dict.
    Pairs(Rc<Dict>),
    Own(Vec<Value>),
}

impl Items {
    /// The items of `value`.
    pub(crate) fn of(cx: &Context, value: &Value) -> Result<Items, Error> {
        match value {
            Value::Seq(seq) => Ok(Items::Seq(seq.clone())),
            Value::Dict(dict) => Ok(Items::Keys(dict.clone())),
            Value::Undefined => Ok(Items::Own(Vec::new())),
            _ => Ok(Items::Own(items(cx, value)?)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Items::Seq(seq) => seq.items.len(),
            Items::Keys(dict) | Items::Pairs(dict) => dict.entries.len(),
            Items::Own(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, cx: &Context, at: usize) -> Answer {
        match self {
            Items::Seq(seq) => Ok(seq.items.get(at).cloned().unwrap_or_default()),
            Items::Keys(dict) => Ok(dict.entries.get(at).map(|(key, _)| key.clone()).unwrap_or_default()),
            Items::Pairs(dict) => match dict.entries.get(at) {
                Some((key, value)) => tuple(cx, vec![key.clone(), value.clone()]),
                None => Ok(Value::Undefined),
            },
            Items::Own(items) => Ok(items.get(at).cloned().unwrap_or_default()),
        }
    }
}

/// A loop on its way.
pub(crate) struct Loop {
    pub(crate) items: Items,
    pub(crate) at: Cell<usize>,
    /// How many loops of the same body are around it.
    pub(crate) depth: usize,
    changed: RefCell<Option<Vec<Value>>>,
}

impl fmt::Debug for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<LoopContext {}/{}>", self.at.get() + 1, self.items.len())
    }
}

impl Loop {
    pub(crate) fn new(items: Items, depth: usize) -> Loop {
        Loop { items, at: Cell::new(0), depth, changed: RefCell::new(None) }
    }

    /// `loop.name`.
    pub(crate) fn attribute(&self, cx: &Context, name: &str) -> Result<Option<Value>, Error> {
        let (at, len) = (self.at.get(), self.items.len());
        Ok(Some(match name {
            "index0" => Value::from(at),
            "index" => Value::from(at + 1),
            "first" => Value::Bool(at == 0),
            "last" => Value::Bool(at + 1 >= len),
            "length" => Value::from(len),
            "revindex" => Value::from(len.saturating_sub(at)),
            "revindex0" => Value::from(len.saturating_sub(at + 1)),
            "depth" => Value::from(self.depth + 1),
            "depth0" => Value::from(self.depth),
            "previtem" if at > 0 => self.items.get(cx, at - 1)?,
            "nextitem" => self.items.get(cx, at + 1)?,
            _ => return Ok(None),
        }))
    }

    /// `loop.name(args)`.
    pub(crate) fn call(&self, cx: &Context, name: &str, args: &Args) -> Option<Answer> {
        match name {
            "cycle" => Some(self.cycle(args)),
            "changed" => Some(self.changed(cx, args).map(Value::Bool)),
            _ => None,
        }
    }

    fn cycle(&self, args: &Args) -> Answer {
        let count = args.positional.len();
        let picked = self.at.get().checked_rem(count).and_then(|at| args.positional.get(at));
        picked.cloned().ok_or_else(|| raise(Kind::Type, "no items for cycling given"))
    }

    /// Whether the arguments are others than at the last call. Only texts and numbers are kept.
    fn changed(&self, cx: &Context, args: &Args) -> Result<bool, Error> {
        let kept = |value: &Value| int_or_text(value);
        if !args.positional.iter().all(kept) {
            return Err(raise(Kind::Unsupported, "loop.changed() of other than texts and numbers"));
        }
        cx.charge(size_of_val(args.positional))?;
        let mut last = self.changed.borrow_mut();
        let same = last.as_ref().is_some_and(|last| {
            last.len() == args.positional.len()
                && last.iter().zip(args.positional).all(|(a, b)| equal(cx, a, b))
        });
        if !same {
            *last = Some(args.positional.to_vec());
        }
        Ok(!same)
    }
}

fn int_or_text(value: &Value) -> bool {
    use Value::{Big, Bool, Float, Huge, Int, None, Undefined};
    value.as_str().is_some()
        || matches!(value, Undefined | None | Bool(_) | Int(_) | Big(_) | Huge(_) | Float(_))
}
