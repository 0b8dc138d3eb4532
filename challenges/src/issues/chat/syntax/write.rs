//! A tree to the engine's own language.

use std::fmt::Write;

use super::super::error::{Error, Kind};
use super::super::python::methods;
use super::parser::{mentions, names};
use super::tree::*;

/// What the engine compiles, and which line of the template each of its lines comes from.
pub(crate) struct Written {
    pub(crate) source: String,
    pub(crate) lines: Vec<u32>,
}

/// Text between tags of at least so many bytes is counted as built where it can be written many times.
const LONG_TEXT: usize = 64;
/// Texts of up to so many bytes are compared and looked up by the engine, which does not pay for it.
const SHORT_TEXT: usize = 256;

/// Writes a template.
pub(crate) fn write(body: &[Stmt], markup: bool) -> Result<Written, Error> {
    let mut writer = Writer {
        out: String::new(),
        lines: vec![1],
        temporaries: 0,
        repeated: 0,
        recursive: Vec::new(),
        data: String::new(),
        data_line: 1,
        markup,
    };
    writer.body(body)?;
    writer.flush();
    Ok(Written { source: writer.out, lines: writer.lines })
}

/// The engine's name for a variable of the template.
pub(crate) fn mangled(name: &str) -> String {
    if name.is_ascii() && !name.starts_with('_') && !matches!(name, "self" | "super") {
        return name.to_string();
    }
    let mut out = String::from("_w_");
    for c in name.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            let _ = write!(out, "_u{:x}_", c as u32);
        }
    }
    out
}

struct Writer {
    out: String,
    lines: Vec<u32>,
    temporaries: usize,
    /// How many loops and macros are around.
    repeated: usize,
    /// Of each loop that may be entered again: how many names an item is unpacked to.
    recursive: Vec<usize>,
    /// Text that is not yet written, and its line: pieces that follow each other are written as one.
    data: String,
    data_line: u32,
    /// Whether there may be markup, which escapes what it is joined with.
    markup: bool,
}

impl Writer {
    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("_t{}", self.temporaries)
    }

    fn body(&mut self, body: &[Stmt]) -> Result<(), Error> {
        body.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn begin(&mut self, open: &str, line: u32) {
        self.flush();
        self.out.push_str(open);
        self.out.push('\n');
        self.lines.push(line);
    }

    fn tag(&mut self, line: u32, text: &str) {
        self.begin("{%", line);
        self.out.push_str(text);
        self.out.push_str(" %}");
    }

    /// A tag with an expression: `{% before EXPR after %}`.
    fn tag_with(&mut self, line: u32, before: &str, expr: &Expr, after: &str) -> Result<(), Error> {
        self.begin("{%", line);
        self.out.push_str(before);
        self.expr(expr)?;
        self.out.push_str(after);
        self.out.push_str(" %}");
        Ok(())
    }

    fn data(&mut self, text: &str, line: u32) {
        if self.data.is_empty() {
            self.data_line = line;
        }
        self.data.push_str(text);
    }

    fn flush(&mut self) {
        let (text, line) = (std::mem::take(&mut self.data), self.data_line);
        if text.is_empty() {
            return;
        }
        if text.contains('{') || (self.repeated > 0 && text.len() >= LONG_TEXT) {
            self.out.push_str("{{\n");
            self.lines.push(line);
            self.text(&text);
            self.out.push_str(" }}");
            return;
        }
        self.out.push_str(&text);
        self.lines.extend((1..=text.matches('\n').count() as u32).map(|count| line + count));
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), Error> {
        let line = stmt.line;
        match &stmt.what {
            What::Data(text) => self.data(text, line),
            What::Print(expr) => self.print(expr, line)?,
            What::If { branches, otherwise } => self.if_else(branches, otherwise, line)?,
            What::For { .. } => self.for_loop(&stmt.what, line)?,
            What::Set(target, value) => {
                self.flush();
                let before = std::mem::take(&mut self.out);
                self.expr(value)?;
                let value = std::mem::replace(&mut self.out, before);
                self.assign(target, &value, line)?;
            }
            What::SetBlock { target, filters, body } => {
                let name = self.captured(body, line)?;
                let value = self.applied(&name, filters)?;
                self.assign(target, &value, line)?;
            }
            What::With(bindings, body) => self.with(bindings, body, line)?,
            What::Macro { name, signature, body } => {
                let inner = mangled(name);
                self.define(&inner, name, signature, body, line)?;
            }
            What::CallBlock { signature, call, body } => {
                let caller = self.temporary();
                self.define(&caller, "caller", signature, body, line)?;
                self.begin("{{", line);
                self.call_with(call, Some(&caller))?;
                self.out.push_str(" }}");
            }
            What::FilterBlock { filters, body } => {
                let name = self.captured(body, line)?;
                let value = self.applied(&name, filters)?;
                self.begin("{{", line);
                let _ = write!(self.out, "{value} }}}}");
            }
            What::Autoescape(test, body) => {
                self.tag_with(line, "autoescape (", test, "|__bool)")?;
                self.scoped(body, line)?;
                self.tag(line, "endautoescape");
            }
            What::Generation(body) => {
                let name = self.captured(body, line)?;
                self.begin("{{", line);
                let _ = write!(self.out, "{name}|__generation }}}}");
            }
            What::Block(body) => self.scoped(body, line)?,
            What::Foreign(name) => {
                self.begin("{{", line);
                self.expr(name)?;
                self.out.push_str("|__foreign }}");
            }
            What::Break => self.tag(line, "break"),
            What::Continue => self.tag(line, "continue"),
        }
        Ok(())
    }

    /// A text that is joined of pieces is written piece by piece, without joining them first.
    fn print(&mut self, expr: &Expr, line: u32) -> Result<(), Error> {
        match &expr.node {
            Node::Text(text) if !self.markup => {
                self.data(text, line);
                return Ok(());
            }
            Node::Concat(items) if !self.markup => {
                return items.iter().try_for_each(|item| self.print(item, line));
            }
            Node::Sum(items)
                if !self.markup && items.iter().any(|item| matches!(item.node, Node::Text(_))) =>
            {
                return items.iter().try_for_each(|item| self.print_text(item, line));
            }
            _ => (),
        }
        self.begin("{{", line);
        self.expr(expr)?;
        self.out.push_str(" }}");
        Ok(())
    }

    /// A piece that must be a text, as it is added to one.
    fn print_text(&mut self, expr: &Expr, line: u32) -> Result<(), Error> {
        match &expr.node {
            Node::Text(_) | Node::Concat(_) => self.print(expr, line), // both are texts
            _ => {
                self.begin("{{", line);
                self.expr(expr)?;
                self.out.push_str("|__text }}");
                Ok(())
            }
        }
    }

    fn if_else(
        &mut self,
        branches: &[(Expr, Vec<Stmt>)],
        otherwise: &[Stmt],
        line: u32,
    ) -> Result<(), Error> {
        for (at, (test, body)) in branches.iter().enumerate() {
            self.tag_with(test.line, if at == 0 { "if " } else { "elif " }, test, "")?;
            self.body(body)?;
        }
        if !otherwise.is_empty() {
            self.tag(line, "else");
            self.body(otherwise)?;
        }
        self.tag(line, "endif");
        Ok(())
    }

    fn for_loop(&mut self, what: &What, line: u32) -> Result<(), Error> {
        let What::For { target, of, test, recursive, body, otherwise } = what else { return Ok(()) };
        let (plain, arity) = plain(target);
        let item = if plain { String::new() } else { self.temporary() };
        if !plain && test.is_some() {
            return Err(Error::new(Kind::Unsupported, "a filtered loop over nested tuples").at(line));
        }
        self.begin("{%", line);
        let named = if plain { list(target) } else { item.clone() };
        let _ = write!(self.out, "for {named} in (");
        self.expr(of)?;
        let arity = if plain { arity } else { 0 };
        let _ = if arity == 0 { write!(self.out, "|__iter)") } else { write!(self.out, "|__iter({arity}))") };
        if let Some(test) = test {
            self.out.push_str(" if ");
            self.expr(test)?;
        }
        self.out.push_str(if *recursive { " recursive %}" } else { " %}" });
        self.flush();
        self.repeated += 1;
        self.recursive.push(arity);
        if !plain {
            self.assign(target, &item, line)?;
        }
        self.body(body)?;
        self.recursive.pop();
        self.flush();
        self.repeated -= 1;
        if !otherwise.is_empty() {
            self.tag(line, "else");
            self.body(otherwise)?;
        }
        self.tag(line, "endfor");
        Ok(())
    }

    /// Assigns what `value` computes.
    fn assign(&mut self, target: &Target, value: &str, line: u32) -> Result<(), Error> {
        if names(target).contains(&"loop") {
            return Err(Error::new(Kind::Unsupported, "an assignment to 'loop'").at(line));
        }
        match target {
            Target::Name(name) => self.tag(line, &format!("set {} = {value}", mangled(name))),
            Target::Field(space, field) => {
                let text = format!("set _t0 = ({}|__setattr(\"{field}\", {value}))", mangled(space));
                self.tag(line, &text);
            }
            Target::Tuple(items) => {
                let all = self.temporary();
                self.tag(line, &format!("set {all} = ({value}|__unpack({}))", items.len()));
                for (at, item) in items.iter().enumerate() {
                    self.assign(item, &format!("{all}[{at}]"), line)?;
                }
            }
        }
        Ok(())
    }

    fn scoped(&mut self, body: &[Stmt], line: u32) -> Result<(), Error> {
        self.tag(line, "with");
        self.body(body)?;
        self.tag(line, "endwith");
        Ok(())
    }

    /// The text that `body` writes, in a variable of its own.
    fn captured(&mut self, body: &[Stmt], line: u32) -> Result<String, Error> {
        let name = self.temporary();
        self.tag(line, &format!("set {name}"));
        self.scoped(body, line)?;
        self.tag(line, "endset");
        Ok(name)
    }

    fn applied(&mut self, value: &str, filters: &[(String, Args)]) -> Result<String, Error> {
        self.flush();
        let before = std::mem::replace(&mut self.out, value.to_string());
        for (name, args) in filters {
            let _ = write!(self.out, "|{}", filter_name(name, args));
            self.args("", args, None)?;
        }
        Ok(std::mem::replace(&mut self.out, before))
    }

    /// All values are computed before any name is bound.
    fn with(&mut self, bindings: &[(Target, Expr)], body: &[Stmt], line: u32) -> Result<(), Error> {
        let mut values = Vec::new();
        for (_, value) in bindings {
            let name = self.temporary();
            self.tag_with(line, &format!("set {name} = "), value, "")?;
            values.push(name);
        }
        self.tag(line, "with");
        for ((target, _), value) in bindings.iter().zip(&values) {
            self.assign(target, value, line)?;
        }
        self.body(body)?;
        self.tag(line, "endwith");
        Ok(())
    }

    /// A macro of the engine, wrapped into one that binds its arguments as Python does.
    fn define(
        &mut self,
        inner: &str,
        name: &str,
        signature: &Signature,
        body: &[Stmt],
        line: u32,
    ) -> Result<(), Error> {
        let mut takes: Vec<String> = signature.names.iter().map(|name| mangled(name)).collect();
        let mut extras = String::new();
        for (extra, letter) in [("varargs", 'v'), ("kwargs", 'k'), ("caller", 'c')] {
            if mentions(body, extra) && !signature.names.iter().any(|name| name == extra) {
                takes.push(extra.to_string());
                extras.push(letter);
            }
        }
        self.tag(line, &format!("macro {inner}({})", takes.join(", ")));
        self.repeated += 1;
        let first = signature.names.len().saturating_sub(signature.defaults.len());
        for (name, default) in signature.names[first..].iter().zip(&signature.defaults) {
            let name = mangled(name);
            self.tag(line, &format!("if {name} is __missing"));
            self.tag_with(line, &format!("set {name} = "), default, "")?;
            self.tag(line, "endif");
        }
        self.body(body)?;
        self.flush();
        self.repeated -= 1;
        self.tag(line, "endmacro");
        self.begin("{%", line);
        let _ = write!(self.out, "set {inner} = ({inner}|__macro(");
        self.text(name);
        let _ = write!(self.out, ", \"{extras}\", {}", signature.defaults.len());
        for name in &signature.names {
            self.out.push_str(", ");
            self.text(name);
        }
        self.out.push_str(")) %}");
        Ok(())
    }

    // Expressions: each is written so that anything may follow it.

    fn expr(&mut self, expr: &Expr) -> Result<(), Error> {
        match &expr.node {
            Node::None => self.out.push_str("none"),
            Node::Bool(value) => self.out.push_str(if *value { "true" } else { "false" }),
            Node::Int(value) => {
                let _ = write!(self.out, "{value}");
            }
            Node::Float(value) => {
                let _ = write!(self.out, "(\"{value:?}\"|__float)");
            }
            Node::Text(text) => self.text(text),
            Node::Name(name) => self.out.push_str(&mangled(name)),
            Node::List(items) => self.built(items, "__list")?,
            Node::Tuple(items) => self.built(items, "__tuple")?,
            Node::Dict(items) => {
                let items: Vec<&Expr> = items.iter().flat_map(|(key, value)| [key, value]).collect();
                self.built(items, "__dict")?;
            }
            Node::Attribute(of, name) => self.attribute(of, name)?,
            Node::Item(of, key) => self.item(of, key)?,
            Node::Slice(of, parts) => self.slice(of, parts)?,
            Node::Call(..) => self.call_with(expr, None)?,
            Node::Filter(of, name, args) => self.filter(of, name, args)?,
            Node::Test(of, name, args) => {
                self.out.push('(');
                self.expr(of)?;
                let _ = write!(self.out, " is {}", filter_name(&format!("t_{name}"), args));
                self.args("", args, None)?;
                self.out.push(')');
            }
            Node::Not(of) => self.wrapped("(not ", of, ")")?,
            Node::Minus(of) => self.wrapped("(", of, "|__neg)")?,
            Node::Plus(of) => self.wrapped("(", of, "|__pos)")?,
            Node::Sum(items) => self.folded(items, "__add")?,
            Node::Concat(items) => self.folded(items, "__concat")?,
            Node::Binary(op, left, right) => self.binary(op, left, right)?,
            Node::And(items) => self.joined(items, " and ")?,
            Node::Or(items) => self.joined(items, " or ")?,
            Node::Compare(first, rest) => self.compare(first, rest)?,
            Node::Cond { test, yes, no } => {
                self.wrapped("(", yes, " if ")?;
                self.expr(test)?;
                if let Some(no) = no {
                    self.out.push_str(" else ");
                    self.expr(no)?;
                }
                self.out.push(')');
            }
        }
        Ok(())
    }

    fn wrapped(&mut self, before: &str, expr: &Expr, after: &str) -> Result<(), Error> {
        self.out.push_str(before);
        self.expr(expr)?;
        self.out.push_str(after);
        Ok(())
    }

    fn separated<'a>(&mut self, items: impl IntoIterator<Item = &'a Expr>, by: &str) -> Result<(), Error> {
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.out.push_str(by);
            }
            self.expr(item)?;
        }
        Ok(())
    }

    fn joined(&mut self, items: &[Expr], by: &str) -> Result<(), Error> {
        self.out.push('(');
        self.separated(items, by)?;
        self.out.push(')');
        Ok(())
    }

    fn built<'a>(&mut self, items: impl IntoIterator<Item = &'a Expr>, filter: &str) -> Result<(), Error> {
        self.out.push_str("([");
        self.separated(items, ", ")?;
        let _ = write!(self.out, "]|{filter})");
        Ok(())
    }

    fn folded(&mut self, items: &[Expr], filter: &str) -> Result<(), Error> {
        self.wrapped("(", &items[0], "|")?;
        self.out.push_str(filter);
        self.out.push('(');
        self.separated(&items[1..], ", ")?;
        self.out.push_str("))");
        Ok(())
    }

    fn attribute(&mut self, of: &Expr, name: &str) -> Result<(), Error> {
        if plain_key(name) {
            self.expr(of)?;
            let _ = write!(self.out, ".{name}");
            return Ok(());
        }
        self.wrapped("(", of, "|__attr(")?;
        self.text(name);
        self.out.push_str("))");
        Ok(())
    }

    fn item(&mut self, of: &Expr, key: &Expr) -> Result<(), Error> {
        let native = match &key.node {
            Node::Text(name) => plain_key(name),
            _ => false, // a place in a text is counted from its start: that is paid for
        };
        if !native {
            self.wrapped("(", of, "|__item(")?;
            return self.wrapped("", key, "))");
        }
        self.wrapped("", of, "[")?;
        self.wrapped("", key, "]")
    }

    fn slice(&mut self, of: &Expr, parts: &[Option<Expr>; 3]) -> Result<(), Error> {
        let literal = literal(of) && parts.iter().flatten().all(literal);
        self.wrapped("(", of, if literal { "|__slice_literal(" } else { "|__slice(" })?;
        for (at, part) in parts.iter().enumerate() {
            self.out.push_str(if at == 0 { "" } else { ", " });
            match part {
                Some(part) => self.expr(part)?,
                None => self.out.push_str("none"),
            }
        }
        self.out.push_str("))");
        Ok(())
    }

    fn filter(&mut self, of: &Expr, name: &str, args: &Args) -> Result<(), Error> {
        self.wrapped("(", of, "|")?;
        self.out.push_str(&filter_name(name, args));
        self.args("", args, None)?;
        self.out.push(')');
        Ok(())
    }

    fn binary(&mut self, op: &str, left: &Expr, right: &Expr) -> Result<(), Error> {
        let name = match op {
            "-" => "__sub",
            "*" => "__mul",
            "/" => "__div",
            "//" => "__floordiv",
            "%" => "__mod",
            _ => "__pow",
        };
        self.wrapped("(", left, "|")?;
        self.out.push_str(name);
        self.wrapped("(", right, "))")
    }

    fn compare(&mut self, first: &Expr, rest: &[(&'static str, Expr)]) -> Result<(), Error> {
        let [(op, second)] = rest else { return self.chained(first, rest) };
        let short = |expr: &Expr| matches!(&expr.node, Node::Text(text) if text.len() <= SHORT_TEXT);
        let text = short(first) || short(second);
        let (before, test, after) = match *op {
            "==" if text => ("(", " == ", ")"),
            "!=" if text => ("(", " != ", ")"),
            "==" => ("(", " is __eq(", "))"),
            "!=" => ("(not (", " is __eq(", ")))"),
            "in" => ("(", " is __in(", "))"),
            "not in" => ("(not (", " is __in(", ")))"),
            "<" => ("(", " is __lt(", "))"),
            "<=" => ("(", " is __le(", "))"),
            ">" => ("(", " is __gt(", "))"),
            _ => ("(", " is __ge(", "))"),
        };
        self.wrapped(before, first, test)?;
        self.wrapped("", second, after)
    }

    fn chained(&mut self, first: &Expr, rest: &[(&'static str, Expr)]) -> Result<(), Error> {
        self.wrapped("(", first, "|__chain(")?;
        for (at, (op, operand)) in rest.iter().enumerate() {
            let _ = write!(self.out, "{}\"{op}\", ", if at == 0 { "" } else { ", " });
            self.expr(operand)?;
        }
        self.out.push_str("))");
        Ok(())
    }

    fn call_with(&mut self, call: &Expr, caller: Option<&str>) -> Result<(), Error> {
        let Node::Call(of, args) = &call.node else { return self.expr(call) };
        match &of.node {
            Node::Name(name) if name == "loop" && caller.is_none() => self.again(args, call.line),
            Node::Name(name) => {
                self.out.push_str(&mangled(name));
                self.args_always("", args, caller)
            }
            Node::Attribute(base, name) if plain_method(name) => {
                self.expr(base)?;
                let _ = write!(self.out, ".{name}");
                self.args_always("", args, caller)
            }
            Node::Attribute(base, name) => {
                self.wrapped("(", base, "|__method")?;
                let mut first = String::new();
                std::mem::swap(&mut first, &mut self.out);
                self.text(name);
                std::mem::swap(&mut first, &mut self.out);
                self.args_always(&first, args, caller)?;
                self.out.push(')');
                Ok(())
            }
            _ => {
                self.wrapped("(", of, "|__call")?;
                self.args_always("", args, caller)?;
                self.out.push(')');
                Ok(())
            }
        }
    }

    /// `loop(items)`: enters the loop again.
    fn again(&mut self, args: &Args, line: u32) -> Result<(), Error> {
        let [only] = args.positional.as_slice() else {
            return Err(Error::new(Kind::Unsupported, "loop() with other than one argument").at(line));
        };
        let arity = self.recursive.last().copied().unwrap_or(0);
        self.wrapped("loop((", only, "|__iter(")?;
        let _ = write!(self.out, "{arity})))");
        Ok(())
    }

    fn args(&mut self, first: &str, args: &Args, caller: Option<&str>) -> Result<(), Error> {
        if first.is_empty() && args.is_empty() && caller.is_none() {
            return Ok(());
        }
        self.args_always(first, args, caller)
    }

    fn args_always(&mut self, first: &str, args: &Args, caller: Option<&str>) -> Result<(), Error> {
        self.out.push('(');
        self.out.push_str(first);
        let mut between = if first.is_empty() { "" } else { ", " };
        for arg in &args.positional {
            self.wrapped(std::mem::replace(&mut between, ", "), arg, "")?;
        }
        if let Some(star) = &args.star {
            self.out.push_str(std::mem::replace(&mut between, ", "));
            self.wrapped("*(", star, "|__iter(0))")?;
        }
        for (name, value) in &args.named {
            if !name.is_ascii() {
                return Err(Error::new(Kind::Unsupported, format!("the argument {name:?}")).at(value.line));
            }
            self.out.push_str(std::mem::replace(&mut between, ", "));
            let _ = write!(self.out, "{name}=");
            self.expr(value)?;
        }
        if let Some(stars) = &args.stars {
            self.out.push_str(std::mem::replace(&mut between, ", "));
            self.wrapped("**(", stars, "|__mapping)")?;
        }
        if let Some(caller) = caller {
            let _ = write!(self.out, "{between}caller={caller}");
        }
        self.out.push(')');
        Ok(())
    }
}

/// Which of a filter's two forms is called: the one that takes arguments by name costs more.
fn filter_name(name: &str, args: &Args) -> String {
    let by_name = !args.named.is_empty() || args.stars.is_some();
    if by_name { format!("{name}__named") } else { name.to_string() }
}

/// Whether the engine can unpack an item to `target` by itself, and to how many names (0: it is not unpacked).
fn plain(target: &Target) -> (bool, usize) {
    match target {
        Target::Name(_) => (true, 0),
        Target::Tuple(items) if items.len() > 1 => {
            (items.iter().all(|item| matches!(item, Target::Name(_))), items.len())
        }
        _ => (false, 0),
    }
}

fn list(target: &Target) -> String {
    names(target).into_iter().map(mangled).collect::<Vec<_>>().join(", ")
}

fn literal(expr: &Expr) -> bool {
    match &expr.node {
        Node::None | Node::Bool(_) | Node::Int(_) | Node::Float(_) | Node::Text(_) => true,
        Node::List(items) | Node::Tuple(items) => items.iter().all(literal),
        Node::Dict(items) => items.iter().all(|(key, value)| literal(key) && literal(value)),
        Node::Minus(of) | Node::Plus(of) => literal(of),
        _ => false,
    }
}

/// Whether looking up `name` in a value can find nothing but an item.
fn plain_key(name: &str) -> bool {
    let first = name.chars().next();
    let identifier = first.is_some_and(|c| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    identifier && name.len() <= SHORT_TEXT && !methods::is_attribute(name)
}

/// Whether the engine may call the method `name` itself.
fn plain_method(name: &str) -> bool {
    name.is_ascii() && !name.starts_with('_') && !matches!(name, "cycle" | "changed")
}
