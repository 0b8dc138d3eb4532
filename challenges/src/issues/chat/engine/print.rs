//! What is written: pieces of a text go out one by one, without being joined first.

use super::super::error::Error;
use super::super::limits::charge;
use super::super::python::value::Value;
use super::super::python::{filters, json, operators, strings, text};
use super::program::Code;
use super::run::Run;

impl<'t> Run<'t> {
    pub(super) fn print(&mut self, code: &'t Code) -> Result<(), Error> {
        if let Some(text) = self.names.peek(code).and_then(Value::as_plain)
            && !self.escapes
        {
            return self.out.write(text);
        }
        match code {
            Code::Text(text) if !self.escapes => return self.out.write(text),
            Code::Cond(test, yes, no) => {
                return match (self.truth(test)?, no) {
                    (true, _) => self.print(yes),
                    (false, Some(no)) => self.print(no),
                    (false, None) => Ok(()),
                };
            }
            Code::Sum(items)
                if !self.program.markup && items.iter().any(|item| matches!(item, Code::Text(_))) =>
            {
                return self.together(|run| items.iter().try_for_each(|item| run.print_text(item)));
            }
            Code::Concat(items) if !self.escapes => {
                return self.together(|run| items.iter().try_for_each(|item| run.print(item)));
            }
            Code::Call(of, given) if !self.escapes => {
                let of = self.eval(of)?;
                if let Value::Macro(of) = &of {
                    return self
                        .together(|run| run.with_args(given, None, |run, args| run.call_macro(of, args)));
                }
                let value = self.with_args(given, None, |run, args| run.call(&of, args))?;
                return self.write(&value);
            }
            Code::Json(of, given) if !self.escapes => {
                let of = self.eval(of)?;
                let layout = self.with_args(given, None, |_, args| filters::layout(args))?;
                return self.out.append(|out| json::write(&of, &layout, out));
            }
            Code::Trim(of) if !self.escapes => {
                if let Some(text) = self.names.peek(of).and_then(Value::as_str) {
                    charge(text.len())?;
                    return self.out.write(strings::trimmed(text, None, true, true));
                }
            }
            _ => (),
        }
        let value = self.eval(code)?;
        self.write(&value)
    }

    /// Prints what is one text in Python: the assistant's text within it counts from where the whole begins.
    fn together(&mut self, print: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let part = self.out.begin();
        print(self)?;
        self.out.keep(&part);
        Ok(())
    }

    /// Prints a piece of a sum, which must be a text.
    pub(super) fn print_text(&mut self, code: &'t Code) -> Result<(), Error> {
        let plain = self.names.peek(code).is_some_and(|value| value.as_plain().is_some());
        if plain || matches!(code, Code::Text(_) | Code::Concat(_) | Code::Json(..)) {
            return self.print(code);
        }
        let value = self.eval(code)?;
        if let Some(text) = value.as_plain() {
            self.out.write(text)
        } else {
            let value = operators::add_two(&Value::from(""), &value)?;
            self.write(&value)
        }
    }

    pub(super) fn write(&mut self, value: &Value) -> Result<(), Error> {
        if self.escapes && !value.is_safe() {
            let text = text::escaped(&text::str_of(value)?)?;
            return self.out.write(&text);
        }
        match value.as_str() {
            Some(text) => self.out.write(text),
            None => self.out.append(|out| text::write_str(value, out)),
        }
    }
}
