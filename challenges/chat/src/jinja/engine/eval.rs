//! The values of expressions.
//!
//! A value is owned; but where only a look at it is needed and it is kept somewhere already - a variable, an item of
//! one - the look is all that is taken ([`Run::peek`]).

use std::rc::Rc;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::super::python::compare::{contains, equal, ordered};
use super::super::python::value::{Answer, Args, Value, dict, int, list, raise, text, tuple};
use super::super::python::{filters, json, methods, operators, text};
use super::program::{CallArgs, Expr, ExprKind, Relation};
use super::run::Run;

impl<'t> Run<'t> {
    #[inline]
    pub(super) fn peek(&self, expr: &Expr) -> Option<&Value> {
        self.names.peek(expr)
    }

    /// The value of an expression.
    pub(super) fn eval(&mut self, expr: &'t Expr) -> Answer {
        if let Some(value) = self.peek(expr) {
            return Ok(value.clone());
        }
        match self.computed(expr) {
            Err(error) => Err(error.at(expr.span)),
            done => done,
        }
    }

    fn computed(&mut self, expr: &'t Expr) -> Answer {
        self.step()?;
        match &expr.kind {
            ExprKind::None => Ok(Value::None),
            ExprKind::Bool(bool) => Ok(Value::Bool(*bool)),
            ExprKind::Int(value) => Ok(int(*value)),
            ExprKind::Huge(value) => {
                self.cx.charge(value.bits() as usize / 8)?;
                Ok(Value::Huge(Rc::new((**value).clone())))
            }
            ExprKind::Float(value) => Ok(Value::Float(*value)),
            ExprKind::Text(text) => Ok(Value::Lit(text.clone())),
            ExprKind::Field(of, name) => {
                if let Some(base) = self.peek(of) {
                    let found = methods::item_of_name(self.cx, base, name);
                    return found.map_err(|error| self.blamed(error, expr, &[(of, base)]));
                }
                let base = self.eval(of)?;
                methods::item_of_name(self.cx, &base, name)
                    .map_err(|error| self.blamed(error, expr, &[(of, &base)]))
            }
            ExprKind::Item(of, key) => {
                let base = self.eval(of)?;
                let at = self.eval(key)?;
                methods::item(self.cx, &base, &at)
                    .map_err(|error| self.blamed(error, expr, &[(of, &base), (key, &at)]))
            }
            ExprKind::Call(of, given) => self.call_code(expr, of, given),
            ExprKind::Method(of, name, given) => {
                let base = self.eval(of)?;
                let done = self.with_args(given, None, |run, args| run.method(&base, name, args));
                done.map_err(|error| self.blamed(error, expr, &[(of, &base)]))
            }
            ExprKind::Filter(of, filter, given) => {
                let value = self.eval(of)?;
                let done = self.with_args(given, None, |_, args| filtered(self.cx, *filter, &value, args));
                done.map_err(|error| self.blamed(error, expr, &[(of, &value)]))
            }
            ExprKind::Trim(of) => {
                let value = self.eval(of)?;
                let done = filters::trim(self.cx, &value, &Args::places(&[]));
                done.map_err(|error| self.blamed(error, expr, &[(of, &value)]))
            }
            ExprKind::Sum(items) => self.sum(items),
            ExprKind::Concat(items) => self.concat(items),
            ExprKind::And(items) => self.until(items, false),
            ExprKind::Or(items) => self.until(items, true),
            ExprKind::Cond(test, yes, no) => match (self.truth(test)?, no) {
                (true, _) => self.eval(yes),
                (false, Some(no)) => self.eval(no),
                (false, None) => Ok(Value::Undefined),
            },
            ExprKind::Test(..) | ExprKind::Not(_) | ExprKind::IsText(..) | ExprKind::Compare(..) => {
                self.truth(expr).map(Value::Bool)
            }
            _ => self.eval_cold(expr),
        }
    }

    /// The expressions that are rarer or build something.
    #[inline(never)]
    pub(super) fn eval_cold(&mut self, expr: &'t Expr) -> Answer {
        match &expr.kind {
            ExprKind::List(exprs) => list(self.cx, self.every(exprs)?),
            ExprKind::Tuple(exprs) => tuple(self.cx, self.every(exprs)?),
            ExprKind::Dict(pairs) => {
                let mut entries = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    entries.push((self.eval(key)?, self.eval(value)?));
                }
                dict(self.cx, entries)
            }
            ExprKind::Attribute(of, name) => {
                let base = self.eval(of)?;
                methods::attribute(self.cx, &base, name)
                    .map_err(|error| self.blamed(error, expr, &[(of, &base)]))
            }
            ExprKind::Slice(of, parts, literal) => {
                let base = self.eval(of)?;
                let [start, stop, step] = &**parts;
                let places = [self.eval(start)?, self.eval(stop)?, self.eval(step)?];
                match operators::slice(self.cx, &base, &places[0], &places[1], &places[2]) {
                    // Jinja computes a slice of literals while it compiles, and takes what fails for undefined.
                    Err(error) if *literal && error.kind == Kind::Type => Ok(Value::Undefined),
                    done => {
                        let operands =
                            [(&**of, &base), (start, &places[0]), (stop, &places[1]), (step, &places[2])];
                        done.map_err(|error| self.blamed(error, expr, &operands))
                    }
                }
            }
            ExprKind::Json(of, given) => {
                let value = self.eval(of)?;
                let layout = self.with_args(given, None, |_, args| filters::layout(self.cx, args))?;
                let done = json::dumps(self.cx, &value, &layout).map(Value::from);
                done.map_err(|error| self.blamed(error, expr, &[(of, &value)]))
            }
            ExprKind::Missing(of, what, name, given) => {
                self.eval(of)?;
                self.with_args(given, None, |_, _| Ok(()))?;
                Err(raise(Kind::Runtime, format!("no {} named '{name}'", what.word())))
            }
            ExprKind::LoopRecurse(at, of) => self.loop_recurse(*at, of),
            ExprKind::Signed(minus, of) => {
                let value = self.eval(of)?;
                operators::signed(&value, *minus).map_err(|error| self.blamed(error, expr, &[(of, &value)]))
            }
            ExprKind::Binary(operator, left, right) => {
                let a = self.eval(left)?;
                let b = self.eval(right)?;
                operator(self.cx, &a, &b)
                    .map_err(|error| self.blamed(error, expr, &[(left, &a), (right, &b)]))
            }
            _ => Ok(Value::Undefined),
        }
    }

    pub(super) fn every(&mut self, exprs: &'t [Expr]) -> Result<Vec<Value>, Error> {
        exprs.iter().map(|expr| self.eval(expr)).collect()
    }

    fn call_code(&mut self, expr: &'t Expr, of: &'t Expr, given: &'t CallArgs) -> Answer {
        let callee = self.eval(of)?;
        let done = self.with_args(given, None, |run, args| run.call(&callee, args));
        done.map_err(|error| self.blamed(error, expr, &[(of, &callee)]))
    }

    /// The first item that is as true as `wanted`, else the last.
    pub(super) fn until(&mut self, items: &'t [Expr], wanted: bool) -> Answer {
        let Some((last, rest)) = items.split_last() else { return Ok(Value::Undefined) };
        for item in rest {
            let value = self.eval(item)?;
            if value.is_true() == wanted {
                return Ok(value);
            }
        }
        self.eval(last)
    }

    /// Appends to `out` what an expression is, if that is a plain text; else answers it.
    pub(super) fn piece(&mut self, expr: &'t Expr, out: &mut String) -> Result<Option<Value>, Error> {
        let mut add = |text: &str| {
            self.cx.grow(out, text.len())?;
            out.push_str(text);
            Ok(None)
        };
        if let ExprKind::Text(text) = &expr.kind {
            return add(text);
        }
        if let Some(text) = self.peek(expr).and_then(Value::as_plain) {
            return add(text);
        }
        let value = self.eval(expr)?;
        match value.as_plain() {
            Some(text) => add(text),
            None => Ok(Some(value)),
        }
    }

    /// `first + second + ...`, from the left.
    pub(super) fn sum(&mut self, items: &'t [Expr]) -> Answer {
        let mut joined = String::new();
        let mut rest = items.iter();
        let mut any = false;
        while let Some(expr) = rest.next() {
            if let Some(other) = self.piece(expr, &mut joined)? {
                let before = any.then(|| Value::from(joined));
                return self.sum_from(before, expr, other, rest.as_slice());
            }
            any = true;
        }
        text(self.cx, joined)
    }

    /// What is left of a sum from `first` on, which is no plain text.
    pub(super) fn sum_from(
        &mut self,
        before: Option<Value>,
        expr: &'t Expr,
        first: Value,
        rest: &'t [Expr],
    ) -> Answer {
        let mut total = match before {
            Some(before) => self.added(expr, &before, expr, &first)?,
            None => first,
        };
        let mut last = expr;
        for expr in rest {
            let next = self.eval(expr)?;
            total = self.added(last, &total, expr, &next)?;
            last = expr;
        }
        Ok(total)
    }

    fn added(&self, left: &Expr, a: &Value, right: &Expr, b: &Value) -> Answer {
        operators::add_two(self.cx, a, b).map_err(|error| self.blamed(error, right, &[(left, a), (right, b)]))
    }

    /// `first ~ second ~ ...`: all as text; markup stays markup where there is escaping.
    pub(super) fn concat(&mut self, items: &'t [Expr]) -> Answer {
        if self.escapes {
            return operators::concat(self.cx, &self.every(items)?, self.escapes);
        }
        let mut joined = String::new();
        for expr in items {
            if let Some(other) = self.piece(expr, &mut joined)? {
                text::write_str(self.cx, &other, &mut joined)?;
            }
        }
        text(self.cx, joined)
    }

    /// Whether an expression is true.
    pub(super) fn truth(&mut self, expr: &'t Expr) -> Result<bool, Error> {
        if let Some(value) = self.peek(expr) {
            return Ok(value.is_true());
        }
        match self.judged(expr) {
            Err(error) => Err(error.at(expr.span)),
            done => done,
        }
    }

    fn judged(&mut self, expr: &'t Expr) -> Result<bool, Error> {
        match &expr.kind {
            ExprKind::Not(of) => Ok(!self.truth(of)?),
            ExprKind::And(items) => self.any(items, false),
            ExprKind::Or(items) => self.any(items, true),
            ExprKind::IsText(of, text, wanted) => {
                self.step()?;
                if let Some(value) = self.peek(of) {
                    return Ok((value.as_str() == Some(text)) == *wanted);
                }
                Ok((self.eval(of)?.as_str() == Some(text)) == *wanted)
            }
            ExprKind::Test(of, test, given) => {
                self.step()?;
                if given.is_empty()
                    && let Some(value) = self.peek(of)
                {
                    self.cx.charge(8 + value.text_bytes())?;
                    let done = test(self.cx, value, &Args::places(&[]));
                    return done.map_err(|error| self.blamed(error, expr, &[(of, value)]));
                }
                let value = self.eval(of)?;
                self.cx.charge(8 + value.text_bytes())?;
                let done = self.with_args(given, None, |_, args| test(self.cx, &value, args));
                done.map_err(|error| self.blamed(error, expr, &[(of, &value)]))
            }
            ExprKind::Compare(first, rest) => self.compare(expr, first, rest),
            _ => Ok(self.eval(expr)?.is_true()),
        }
    }

    pub(super) fn any(&mut self, items: &'t [Expr], wanted: bool) -> Result<bool, Error> {
        for item in items {
            if self.truth(item)? == wanted {
                return Ok(wanted);
            }
        }
        Ok(!wanted)
    }

    /// `a < b <= c`: each pair in turn, up to the first that fails.
    pub(super) fn compare(
        &mut self,
        whole: &'t Expr,
        first: &'t Expr,
        rest: &'t [(Relation, Expr)],
    ) -> Result<bool, Error> {
        if let [(relation, second)] = rest {
            return self.compare_two(whole, *relation, first, second);
        }
        let (mut left, mut last) = (self.eval(first)?, first);
        for (relation, expr) in rest {
            let right = self.eval(expr)?;
            let done = holds(self.cx, *relation, &left, &right);
            if !done.map_err(|error| self.blamed(error, expr, &[(last, &left), (expr, &right)]))? {
                return Ok(false);
            }
            (left, last) = (right, expr);
        }
        Ok(true)
    }

    pub(super) fn compare_two(
        &mut self,
        whole: &'t Expr,
        relation: Relation,
        first: &'t Expr,
        second: &'t Expr,
    ) -> Result<bool, Error> {
        self.step()?;
        if let (Relation::In | Relation::NotIn, ExprKind::Text(text)) = (relation, &first.kind)
            && let Some(Value::Dict(dict)) = self.peek(second)
        {
            self.cx.charge(8 + text.len())?;
            return Ok(dict.get_str(text).is_some() == matches!(relation, Relation::In));
        }
        let held = |run: &Self, left: &Value, right: &Value| {
            let blame = |error| run.blamed(error, whole, &[(first, left), (second, right)]);
            holds(self.cx, relation, left, right).map_err(blame)
        };
        if let (Some(left), Some(right)) = (self.peek(first), self.peek(second)) {
            return held(self, left, right);
        }
        let left = self.eval(first)?;
        if let Some(right) = self.peek(second) {
            return held(self, &left, right);
        }
        if let (Some(wanted), Relation::In | Relation::NotIn, ExprKind::List(items) | ExprKind::Tuple(items)) =
            (left.as_str(), relation, &second.kind)
            && items.iter().all(|item| matches!(item.kind, ExprKind::Text(_)))
        {
            self.cx.charge(items.len().saturating_mul(1 + wanted.len() / 16))?;
            let found =
                items.iter().any(|item| matches!(&item.kind, ExprKind::Text(text) if **text == *wanted));
            return Ok(found == matches!(relation, Relation::In));
        }
        let right = self.eval(second)?;
        held(self, &left, &right)
    }
}

pub(super) fn filtered(cx: &Context, filter: filters::Filter, value: &Value, args: &Args) -> Answer {
    cx.charge(8 + value.text_bytes())?;
    filter(cx, value, args)
}

pub(super) fn holds(cx: &Context, relation: Relation, left: &Value, right: &Value) -> Result<bool, Error> {
    cx.charge(8)?;
    match relation {
        Relation::Equal => Ok(equal(cx, left, right)),
        Relation::Unequal => Ok(!equal(cx, left, right)),
        Relation::In => contains(cx, right, left),
        Relation::NotIn => contains(cx, right, left).map(|found| !found),
        Relation::Order(op) => ordered(cx, op, left, right),
    }
}
