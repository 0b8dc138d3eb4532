//! The values of expressions.
//!
//! A value is owned; but where only a look at it is needed and it is kept somewhere already - a variable, an item of one -
//! the look is all that is taken ([`Run::peek`]).

use super::super::error::{Error, Kind};
use super::super::limits::charge;
use super::super::python::compare::{contains, equal, ordered};
use super::super::python::value::{Answer, Args, Value, dict, int, list, text, tuple};
use super::super::python::{filters, json, methods, operators, text};
use super::program::{Code, Given, Relation};
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
        self.step()?;
        match code {
            Code::None => Ok(Value::None),
            Code::Bool(bool) => Ok(Value::Bool(*bool)),
            Code::Int(value) => Ok(int(*value)),
            Code::Float(value) => Ok(Value::Float(*value)),
            Code::Text(text) => Ok(Value::Lit(text.clone())),
            Code::Field(of, name) => {
                if let Some(of) = self.peek(of) {
                    return methods::item_of_name(of, name);
                }
                methods::item_of_name(&self.eval(of)?, name)
            }
            Code::Item(of, key) => {
                let of = self.eval(of)?;
                methods::item(&of, &self.eval(key)?)
            }
            Code::Call(of, given) => self.call_code(of, given),
            Code::Method(of, name, given) => {
                let of = self.eval(of)?;
                self.with_args(given, None, |run, args| run.method(&of, name, args))
            }
            Code::Filter(of, filter, given) => {
                let of = self.eval(of)?;
                self.with_args(given, None, |_, args| filtered(*filter, &of, args))
            }
            Code::Trim(of) => {
                let of = self.eval(of)?;
                filters::trim(&of, &Args::places(&[]))
            }
            Code::Sum(items) => self.sum(items),
            Code::Concat(items) => self.concat(items),
            Code::And(items) => self.until(items, false),
            Code::Or(items) => self.until(items, true),
            Code::Cond(test, yes, no) => match (self.truth(test)?, no) {
                (true, _) => self.eval(yes),
                (false, Some(no)) => self.eval(no),
                (false, None) => Ok(Value::Undefined),
            },
            Code::Test(..) | Code::Not(_) | Code::IsText(..) | Code::Compare(..) => {
                self.truth(code).map(Value::Bool)
            }
            _ => self.other(code),
        }
    }

    /// The expressions that are rarer or build something.
    #[inline(never)]
    pub(super) fn other(&mut self, code: &'t Code) -> Answer {
        match code {
            Code::List(codes) => list(self.every(codes)?),
            Code::Tuple(codes) => tuple(self.every(codes)?),
            Code::Dict(pairs) => {
                let mut entries = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    entries.push((self.eval(key)?, self.eval(value)?));
                }
                dict(entries)
            }
            Code::Attribute(of, name) => methods::attribute(&self.eval(of)?, name),
            Code::Slice(of, parts, literal) => {
                let of = self.eval(of)?;
                let [start, stop, step] = &**parts;
                let (start, stop, step) = (self.eval(start)?, self.eval(stop)?, self.eval(step)?);
                match operators::slice(&of, &start, &stop, &step) {
                    // Jinja computes a slice of literals while it compiles, and takes what fails for undefined.
                    Err(error) if *literal && error.kind == Kind::Type => Ok(Value::Undefined),
                    done => done,
                }
            }
            Code::Json(of, given) => {
                let of = self.eval(of)?;
                let layout = self.with_args(given, None, |_, args| filters::layout(args))?;
                Ok(Value::from(json::dumps(&of, &layout)?))
            }
            Code::Again(at, of) => self.again(*at, of),
            Code::Signed(minus, of) => operators::signed(&self.eval(of)?, *minus),
            Code::Binary(operator, left, right) => {
                let left = self.eval(left)?;
                operator(&left, &self.eval(right)?)
            }
            _ => Ok(Value::Undefined),
        }
    }

    pub(super) fn every(&mut self, codes: &'t [Code]) -> Result<Vec<Value>, Error> {
        codes.iter().map(|code| self.eval(code)).collect()
    }

    pub(super) fn call_code(&mut self, of: &'t Code, given: &'t Given) -> Answer {
        let of = self.eval(of)?;
        self.with_args(given, None, |run, args| run.call(&of, args))
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
            charge(text.len())?;
            out.push_str(text);
            Ok(None)
        };
        if let Code::Text(text) = code {
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
                let mut total = if any { operators::add_two(&Value::from(joined), &other)? } else { other };
                for code in rest {
                    total = operators::add_two(&total, &self.eval(code)?)?;
                }
                return Ok(total);
            }
            any = true;
        }
        text(joined)
    }

    /// `first ~ second ~ ...`: all as text; markup stays markup where there is escaping.
    pub(super) fn concat(&mut self, items: &'t [Code]) -> Answer {
        if self.escapes {
            return operators::concat(&self.every(items)?, self.escapes);
        }
        let mut joined = String::new();
        for code in items {
            if let Some(other) = self.piece(code, &mut joined)? {
                text::write_str(&other, &mut joined)?;
            }
        }
        text(joined)
    }

    /// Whether an expression is true.
    pub(super) fn truth(&mut self, code: &'t Code) -> Result<bool, Error> {
        if let Some(value) = self.peek(code) {
            return Ok(value.is_true());
        }
        match code {
            Code::Not(of) => Ok(!self.truth(of)?),
            Code::And(items) => self.any(items, false),
            Code::Or(items) => self.any(items, true),
            Code::IsText(of, text, wanted) => {
                self.step()?;
                if let Some(value) = self.peek(of) {
                    return Ok((value.as_str() == Some(text)) == *wanted);
                }
                Ok((self.eval(of)?.as_str() == Some(text)) == *wanted)
            }
            Code::Test(of, test, given) => {
                self.step()?;
                if given.is_empty()
                    && let Some(value) = self.peek(of)
                {
                    charge(8 + value.text_bytes())?;
                    return test(value, &Args::places(&[]));
                }
                let value = self.eval(of)?;
                charge(8 + value.text_bytes())?;
                self.with_args(given, None, |_, args| test(&value, args))
            }
            Code::Compare(first, rest) => self.compare(first, rest),
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
    pub(super) fn compare(&mut self, first: &'t Code, rest: &'t [(Relation, Code)]) -> Result<bool, Error> {
        if let [(relation, second)] = rest {
            return self.compare_two(*relation, first, second);
        }
        let mut left = self.eval(first)?;
        for (relation, code) in rest {
            let right = self.eval(code)?;
            if !holds(*relation, &left, &right)? {
                return Ok(false);
            }
            left = right;
        }
        Ok(true)
    }

    pub(super) fn compare_two(
        &mut self,
        relation: Relation,
        first: &'t Code,
        second: &'t Code,
    ) -> Result<bool, Error> {
        self.step()?;
        if let (Relation::In | Relation::NotIn, Code::Text(text)) = (relation, first)
            && let Some(Value::Dict(dict)) = self.peek(second)
        {
            charge(8 + text.len())?;
            return Ok(dict.get_str(text).is_some() == matches!(relation, Relation::In));
        }
        if let (Some(left), Some(right)) = (self.peek(first), self.peek(second)) {
            return holds(relation, left, right);
        }
        let left = self.eval(first)?;
        if let Some(right) = self.peek(second) {
            return holds(relation, &left, right);
        }
        if let (Some(wanted), Relation::In | Relation::NotIn, Code::List(items) | Code::Tuple(items)) =
            (left.as_str(), relation, second)
            && items.iter().all(|item| matches!(item, Code::Text(_)))
        {
            charge(items.len().saturating_mul(1 + wanted.len() / 16))?;
            let found = items.iter().any(|item| matches!(item, Code::Text(text) if **text == *wanted));
            return Ok(found == matches!(relation, Relation::In));
        }
        let right = self.eval(second)?;
        holds(relation, &left, &right)
    }
}

pub(super) fn filtered(filter: filters::Filter, value: &Value, args: &Args) -> Answer {
    charge(8 + value.text_bytes())?;
    filter(value, args)
}

pub(super) fn holds(relation: Relation, left: &Value, right: &Value) -> Result<bool, Error> {
    charge(8)?;
    match relation {
        Relation::Equal => Ok(equal(left, right)),
        Relation::Unequal => Ok(!equal(left, right)),
        Relation::In => contains(right, left),
        Relation::NotIn => contains(right, left).map(|found| !found),
        Relation::Order(op) => ordered(op, left, right),
    }
}
