//! What is written: pieces of a text go out one by one, without being joined first.

use super::super::error::Error;
use super::super::python::value::Value;
use super::super::python::{filters, json, strings, text};
use super::program::{Expr, ExprKind};
use super::run::Run;

impl<'t> Run<'t> {
    pub(super) fn print(&mut self, expr: &'t Expr) -> Result<(), Error> {
        match self.printed(expr) {
            Err(error) => Err(error.at(expr.span)),
            done => done,
        }
    }

    fn printed(&mut self, expr: &'t Expr) -> Result<(), Error> {
        if let Some(text) = self.names.peek(expr).and_then(Value::as_plain)
            && !self.escapes
        {
            return self.out.write(text);
        }
        match &expr.kind {
            ExprKind::Text(text) if !self.escapes => return self.out.write(text),
            ExprKind::Cond(test, yes, no) => {
                return match (self.truth(test)?, no) {
                    (true, _) => self.print(yes),
                    (false, Some(no)) => self.print(no),
                    (false, None) => Ok(()),
                };
            }
            ExprKind::Sum(items) if !self.escapes => return self.print_sum(items),
            ExprKind::Concat(items) if !self.escapes => {
                return self.together(|run| items.iter().try_for_each(|item| run.print(item)));
            }
            ExprKind::Call(of, given) if !self.escapes => {
                let callee = self.eval(of)?;
                if let Value::Macro(of) = &callee {
                    return self
                        .together(|run| run.with_args(given, None, |run, args| run.call_macro(of, args)));
                }
                let done = self.with_args(given, None, |run, args| run.call(&callee, args));
                let value = done.map_err(|error| self.blamed(error, expr, &[(of, &callee)]))?;
                return self.write(&value);
            }
            ExprKind::Json(of, given) if !self.escapes => {
                let value = self.eval(of)?;
                let layout = self.with_args(given, None, |_, args| filters::layout(self.cx, args))?;
                let done = self.out.append(|out| json::write(self.cx, &value, &layout, out));
                return done.map_err(|error| self.blamed(error, expr, &[(of, &value)]));
            }
            ExprKind::Trim(of) if !self.escapes => {
                if let Some(text) = self.names.peek(of).and_then(Value::as_str) {
                    self.cx.charge(text.len())?;
                    return self.out.write(strings::trimmed(text, None, true, true));
                }
            }
            _ => (),
        }
        let value = self.eval(expr)?;
        self.write(&value)
    }

    /// Prints what is one text in Python: the assistant's text within it counts from where the whole begins.
    fn together(&mut self, print: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let part = self.out.begin();
        print(self)?;
        self.out.keep(&part);
        Ok(())
    }

    /// Prints `first + second + ...`: plain texts one by one, up to what is none. Only that decides what the sum is:
    /// markup escapes what stands before it.
    fn print_sum(&mut self, items: &'t [Expr]) -> Result<(), Error> {
        let part = self.out.begin();
        let mut rest = items.iter();
        while let Some(expr) = rest.next() {
            if let Some(other) = self.print_plain(expr)? {
                let before = (rest.len() + 1 < items.len()).then(|| self.out.take(&part)).transpose()?;
                let total = self.sum_from(before.map(Value::Str), expr, other, rest.as_slice())?;
                self.out.keep(&part);
                return self.write(&total);
            }
        }
        self.out.keep(&part);
        Ok(())
    }

    /// Prints what is a plain text; else answers it.
    fn print_plain(&mut self, expr: &'t Expr) -> Result<Option<Value>, Error> {
        let plain = self.names.peek(expr).is_some_and(|value| value.as_plain().is_some());
        if plain || matches!(expr.kind, ExprKind::Text(_) | ExprKind::Concat(_) | ExprKind::Json(..)) {
            return self.print(expr).map(|()| None);
        }
        let value = self.eval(expr)?;
        match value.as_plain() {
            Some(text) => self.out.write(text).map(|()| None),
            None => Ok(Some(value)),
        }
    }

    pub(super) fn write(&mut self, value: &Value) -> Result<(), Error> {
        if self.escapes && !value.is_safe() {
            let text = text::escaped(self.cx, &text::str_of(self.cx, value)?)?;
            return self.out.write(&text);
        }
        match value.as_str() {
            Some(text) => self.out.write(text),
            None => self.out.append(|out| text::write_str(self.cx, value, out)),
        }
    }
}
