//! The values of expressions.
//!
//! A value is owned; but where only a look at it is needed and it is kept somewhere already - a variable, an item of one -
//! the look is all that is taken ([`Run::peek`]).

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::super::python::compare::{contains, equal, ordered};
use super::super::python::value::{Answer, Args, Value, dict, int, list, raise, text, tuple};
use super::super::python::{filters, json, methods, operators, text};
use super::program::{Code, CodeKind, Given, Relation};
use super::run::Run;

impl<'t> Run<'t> {
    #[inline]
    pub(super) fn peek(&self, code: &Code) -> Option<&Value> {
        self.names.peek(code)
    }

    /// The value of an expression.
    pub(super) fn eval(&mut self, code: &'t Code) -> Answer {
        if let Some(value) = self.peek(code) {
            return Ok(value.clone());
        }
        match self.computed(code) {
            Err(error) => Err(error.at(code.span)),
            done => done,
        }
    }

    fn computed(&mut self, code: &'t Code) -> Answer {
        self.step()?;
        match &code.kind {
            CodeKind::None => Ok(Value::None),
            CodeKind::Bool(bool) => Ok(Value::Bool(*bool)),
            CodeKind::Int(value) => Ok(int(*value)),
            CodeKind::Float(value) => Ok(Value::Float(*value)),
            CodeKind::Text(text) => Ok(Value::Lit(text.clone())),
            CodeKind::Field(of, name) => {
                if let Some(base) = self.peek(of) {
                    let found = methods::item_of_name(self.cx, base, name);
                    return found.map_err(|error| self.blamed(error, code, &[(of, base)]));
                }
                let base = self.eval(of)?;
                methods::item_of_name(self.cx, &base, name)
                    .map_err(|error| self.blamed(error, code, &[(of, &base)]))
            }
            CodeKind::Item(of, key) => {
                let base = self.eval(of)?;
                let at = self.eval(key)?;
                methods::item(self.cx, &base, &at)
                    .map_err(|error| self.blamed(error, code, &[(of, &base), (key, &at)]))
            }
            CodeKind::Call(of, given) => self.call_code(code, of, given),
            CodeKind::Method(of, name, given) => {
                let base = self.eval(of)?;
                let done = self.with_args(given, None, |run, args| run.method(&base, name, args));
                done.map_err(|error| self.blamed(error, code, &[(of, &base)]))
            }
            CodeKind::Filter(of, filter, given) => {
                let value = self.eval(of)?;
                let done = self.with_args(given, None, |_, args| filtered(self.cx, *filter, &value, args));
                done.map_err(|error| self.blamed(error, code, &[(of, &value)]))
            }
            CodeKind::Trim(of) => {
                let value = self.eval(of)?;
                let done = filters::trim(self.cx, &value, &Args::places(&[]));
                done.map_err(|error| self.blamed(error, code, &[(of, &value)]))
            }
            CodeKind::Sum(items) => self.sum(items),
            CodeKind::Concat(items) => self.concat(items),
            CodeKind::And(items) => self.until(items, false),
            CodeKind::Or(items) => self.until(items, true),
            CodeKind::Cond(test, yes, no) => match (self.truth(test)?, no) {
                (true, _) => self.eval(yes),
                (false, Some(no)) => self.eval(no),
                (false, None) => Ok(Value::Undefined),
            },
            CodeKind::Test(..) | CodeKind::Not(_) | CodeKind::IsText(..) | CodeKind::Compare(..) => {
                self.truth(code).map(Value::Bool)
            }
            _ => self.other(code),
        }
    }

    /// The expressions that are rarer or build something.
    #[inline(never)]
    pub(super) fn other(&mut self, code: &'t Code) -> Answer {
        match &code.kind {
            CodeKind::List(codes) => list(self.cx, self.every(codes)?),
            CodeKind::Tuple(codes) => tuple(self.cx, self.every(codes)?),
            CodeKind::Dict(pairs) => {
                let mut entries = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    entries.push((self.eval(key)?, self.eval(value)?));
                }
                dict(self.cx, entries)
            }
            CodeKind::Attribute(of, name) => {
                let base = self.eval(of)?;
                methods::attribute(self.cx, &base, name)
                    .map_err(|error| self.blamed(error, code, &[(of, &base)]))
            }
            CodeKind::Slice(of, parts, literal) => {
                let base = self.eval(of)?;
                let [start, stop, step] = &**parts;
                let places = [self.eval(start)?, self.eval(stop)?, self.eval(step)?];
                match operators::slice(self.cx, &base, &places[0], &places[1], &places[2]) {
                    // Jinja computes a slice of literals while it compiles, and takes what fails for undefined.
                    Err(error) if *literal && error.kind == Kind::Type => Ok(Value::Undefined),
                    done => {
                        let operands =
                            [(&**of, &base), (start, &places[0]), (stop, &places[1]), (step, &places[2])];
                        done.map_err(|error| self.blamed(error, code, &operands))
                    }
                }
            }
            CodeKind::Json(of, given) => {
                let value = self.eval(of)?;
                let layout = self.with_args(given, None, |_, args| filters::layout(self.cx, args))?;
                let done = json::dumps(self.cx, &value, &layout).map(Value::from);
                done.map_err(|error| self.blamed(error, code, &[(of, &value)]))
            }
            CodeKind::Missing(of, what, name, given) => {
                self.eval(of)?;
                self.with_args(given, None, |_, _| Ok(()))?;
                Err(raise(Kind::Runtime, format!("no {} named '{name}'", what.word())))
            }
            CodeKind::Again(at, of) => self.again(*at, of),
            CodeKind::Signed(minus, of) => {
                let value = self.eval(of)?;
                operators::signed(&value, *minus).map_err(|error| self.blamed(error, code, &[(of, &value)]))
            }
            CodeKind::Binary(operator, left, right) => {
                let a = self.eval(left)?;
                let b = self.eval(right)?;
                operator(self.cx, &a, &b)
                    .map_err(|error| self.blamed(error, code, &[(left, &a), (right, &b)]))
            }
            _ => Ok(Value::Undefined),
        }
    }

    pub(super) fn every(&mut self, codes: &'t [Code]) -> Result<Vec<Value>, Error> {
        codes.iter().map(|code| self.eval(code)).collect()
    }

    fn call_code(&mut self, code: &'t Code, of: &'t Code, given: &'t Given) -> Answer {
        let callee = self.eval(of)?;
        let done = self.with_args(given, None, |run, args| run.call(&callee, args));
        done.map_err(|error| self.blamed(error, code, &[(of, &callee)]))
    }

    /// The first item that is as true as `wanted`, else the last.
    pub(super) fn until(&mut self, items: &'t [Code], wanted: bool) -> Answer {
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
    pub(super) fn piece(&mut self, code: &'t Code, out: &mut String) -> Result<Option<Value>, Error> {
        let mut add = |text: &str| {
            self.cx.grow(out, text.len())?;
            out.push_str(text);
            Ok(None)
        };
        if let CodeKind::Text(text) = &code.kind {
            return add(text);
        }
        if let Some(text) = self.peek(code).and_then(Value::as_plain) {
            return add(text);
        }
        let value = self.eval(code)?;
        match value.as_plain() {
            Some(text) => add(text),
            None => Ok(Some(value)),
        }
    }

    /// `first + second + ...`, from the left.
    pub(super) fn sum(&mut self, items: &'t [Code]) -> Answer {
        let mut joined = String::new();
        let mut rest = items.iter();
        let mut any = false;
        while let Some(code) = rest.next() {
            if let Some(other) = self.piece(code, &mut joined)? {
                let before = any.then(|| Value::from(joined));
                return self.sum_from(before, code, other, rest.as_slice());
            }
            any = true;
        }
        text(self.cx, joined)
    }

    /// What is left of a sum from `first` on, which is no plain text.
    pub(super) fn sum_from(
        &mut self,
        before: Option<Value>,
        code: &'t Code,
        first: Value,
        rest: &'t [Code],
    ) -> Answer {
        let mut total = match before {
            Some(before) => self.added(code, &before, code, &first)?,
            None => first,
        };
        let mut last = code;
        for code in rest {
            let next = self.eval(code)?;
            total = self.added(last, &total, code, &next)?;
            last = code;
        }
        Ok(total)
    }

    fn added(&self, left: &Code, a: &Value, right: &Code, b: &Value) -> Answer {
        operators::add_two(self.cx, a, b).map_err(|error| self.blamed(error, right, &[(left, a), (right, b)]))
    }

    /// `first ~ second ~ ...`: all as text; markup stays markup where there is escaping.
    pub(super) fn concat(&mut self, items: &'t [Code]) -> Answer {
        if self.escapes {
            return operators::concat(self.cx, &self.every(items)?, self.escapes);
        }
        let mut joined = String::new();
        for code in items {
            if let Some(other) = self.piece(code, &mut joined)? {
                text::write_str(self.cx, &other, &mut joined)?;
            }
        }
        text(self.cx, joined)
    }

    /// Whether an expression is true.
    pub(super) fn truth(&mut self, code: &'t Code) -> Result<bool, Error> {
        if let Some(value) = self.peek(code) {
            return Ok(value.is_true());
        }
        match self.judged(code) {
            Err(error) => Err(error.at(code.span)),
            done => done,
        }
    }

    fn judged(&mut self, code: &'t Code) -> Result<bool, Error> {
        match &code.kind {
            CodeKind::Not(of) => Ok(!self.truth(of)?),
            CodeKind::And(items) => self.any(items, false),
            CodeKind::Or(items) => self.any(items, true),
            CodeKind::IsText(of, text, wanted) => {
                self.step()?;
                if let Some(value) = self.peek(of) {
                    return Ok((value.as_str() == Some(text)) == *wanted);
                }
                Ok((self.eval(of)?.as_str() == Some(text)) == *wanted)
            }
            CodeKind::Test(of, test, given) => {
                self.step()?;
                if given.is_empty()
                    && let Some(value) = self.peek(of)
                {
                    self.cx.charge(8 + value.text_bytes())?;
                    let done = test(self.cx, value, &Args::places(&[]));
                    return done.map_err(|error| self.blamed(error, code, &[(of, value)]));
                }
                let value = self.eval(of)?;
                self.cx.charge(8 + value.text_bytes())?;
                let done = self.with_args(given, None, |_, args| test(self.cx, &value, args));
                done.map_err(|error| self.blamed(error, code, &[(of, &value)]))
            }
            CodeKind::Compare(first, rest) => self.compare(code, first, rest),
            _ => Ok(self.eval(code)?.is_true()),
        }
    }

    pub(super) fn any(&mut self, items: &'t [Code], wanted: bool) -> Result<bool, Error> {
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
        whole: &'t Code,
        first: &'t Code,
        rest: &'t [(Relation, Code)],
    ) -> Result<bool, Error> {
        if let [(relation, second)] = rest {
            return self.compare_two(whole, *relation, first, second);
        }
        let (mut left, mut last) = (self.eval(first)?, first);
        for (relation, code) in rest {
            let right = self.eval(code)?;
            let done = holds(self.cx, *relation, &left, &right);
            if !done.map_err(|error| self.blamed(error, code, &[(last, &left), (code, &right)]))? {
                return Ok(false);
            }
            (left, last) = (right, code);
        }
        Ok(true)
    }

    pub(super) fn compare_two(
        &mut self,
        whole: &'t Code,
        relation: Relation,
        first: &'t Code,
        second: &'t Code,
    ) -> Result<bool, Error> {
        self.step()?;
        if let (Relation::In | Relation::NotIn, CodeKind::Text(text)) = (relation, &first.kind)
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
        if let (Some(wanted), Relation::In | Relation::NotIn, CodeKind::List(items) | CodeKind::Tuple(items)) =
            (left.as_str(), relation, &second.kind)
            && items.iter().all(|item| matches!(item.kind, CodeKind::Text(_)))
        {
            self.cx.charge(items.len().saturating_mul(1 + wanted.len() / 16))?;
            let found =
                items.iter().any(|item| matches!(&item.kind, CodeKind::Text(text) if **text == *wanted));
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
