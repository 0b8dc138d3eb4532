//! Tokens to a tree, by Jinja's grammar.

use std::cell::Cell;

use super::super::error::{Error, Kind, Span};
use super::lexer::{Lexeme, Tag, Token};
use super::tree::*;

/// How deep statements and expressions may be nested together.
const MAX_DEPTH: usize = 64;
/// How many items a list, a call or a chain of conditions may have.
const MAX_ITEMS: usize = 4096;
/// How many expressions a template may have, parts of others included.
const MAX_EXPRESSIONS: usize = 250_000;
/// How many `elif` one `if` may have.
const MAX_BRANCHES: usize = 200;

type Parsed<T> = Result<T, Error>;

/// Parses all of `tokens`.
pub(crate) fn parse(tokens: &[Token]) -> Parsed<Vec<Stmt>> {
    let mut parser = Parser { tokens, at: 0, depth: 0, loops: 0, expressions: Cell::new(0) };
    let (body, _) = parser.body(&[])?;
    Ok(body)
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    /// How many loops are around, up to the next macro or block.
    loops: usize,
    expressions: Cell<usize>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Lexeme> {
        self.tokens.get(self.at).map(|token| &token.what)
    }

    fn peek_second(&self) -> Option<&Lexeme> {
        self.tokens.get(self.at + 1).map(|token| &token.what)
    }

    /// Where the next token stands; after the last one that is the template's end.
    fn here(&self) -> Span {
        let end =
            || self.tokens.last().map_or(Span::default(), |last| Span { start: last.span.end, ..last.span });
        self.tokens.get(self.at).map_or_else(end, |token| token.span)
    }

    /// From `start` to the end of what was read last.
    fn since(&self, start: Span) -> Span {
        let last = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        last.map_or(start, |last| start.to(last.span))
    }

    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(Error::new(Kind::Syntax, message).at(self.here()))
    }

    fn limit<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(Error::new(Kind::Limit, message).at(self.here()))
    }

    fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        match self.peek() {
            Some(what) => self.fail(format!("expected {wanted}, got {}", describe(what))),
            None => self.fail(format!("expected {wanted}, got end of template")),
        }
    }

    fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Some(Lexeme::Op(found)) if *found == op)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Lexeme::Name(found)) if found == name)
    }

    fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        self.at += usize::from(found);
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    fn expect_op(&mut self, op: &str) -> Parsed<()> {
        if self.skip_op(op) { Ok(()) } else { self.unexpected(&format!("token '{op}'")) }
    }

    fn expect_end(&mut self, tag: Tag) -> Parsed<()> {
        if self.peek() != Some(&Lexeme::End(tag)) {
            return self.unexpected(if tag == Tag::Block {
                "end of statement block"
            } else {
                "end of print statement"
            });
        }
        self.at += 1;
        Ok(())
    }

    fn name(&mut self) -> Parsed<String> {
        let Some(Lexeme::Name(name)) = self.peek() else { return self.unexpected("a name") };
        let name = name.clone();
        if name.starts_with(|c: char| c.is_numeric()) {
            return self.fail(format!("invalid name {name:?}"));
        }
        self.at += 1;
        Ok(name)
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.limit(format!("the template is nested deeper than {MAX_DEPTH}"));
        }
        let done = work(self);
        self.depth -= 1;
        done
    }

    fn expr_of(&self, start: Span, node: Node) -> Parsed<Expr> {
        self.expressions.set(self.expressions.get() + 1);
        if self.expressions.get() > MAX_EXPRESSIONS {
            return self.limit(format!("the template has more than {MAX_EXPRESSIONS} expressions"));
        }
        let depth = 1 + deepest(&node);
        if depth > MAX_DEPTH {
            return self.limit(format!("an expression is nested deeper than {MAX_DEPTH}"));
        }
        if widest(&node) > MAX_ITEMS {
            return self.limit(format!("an expression has more than {MAX_ITEMS} items"));
        }
        Ok(Expr { node, span: self.since(start), depth })
    }

    // Statements.

    /// Statements up to one of the tags `until`, whose name is consumed and returned; without `until` up to the end.
    fn body(&mut self, until: &[&str]) -> Parsed<(Vec<Stmt>, String)> {
        self.deeper(|parser| parser.statements(until))
    }

    fn statements(&mut self, until: &[&str]) -> Parsed<(Vec<Stmt>, String)> {
        let mut out = Vec::new();
        while let Some(token) = self.tokens.get(self.at) {
            let span = token.span;
            self.at += 1;
            match &token.what {
                Lexeme::Data(text) => out.push(Stmt { kind: StmtKind::Data(text.clone()), span }),
                Lexeme::Begin(Tag::Variable) => {
                    let printed = self.tuple(true, &[])?;
                    self.expect_end(Tag::Variable)?;
                    out.push(Stmt { kind: StmtKind::Print(printed), span });
                }
                Lexeme::Begin(Tag::Block) => {
                    let Some(Lexeme::Name(name)) = self.peek() else { return self.unexpected("a tag name") };
                    let name = name.clone();
                    self.at += 1;
                    if until.contains(&name.as_str()) {
                        return Ok((out, name));
                    }
                    let span = span.to(self.tokens[self.at - 1].span);
                    let what = self.statement(&name)?;
                    self.expect_end(Tag::Block)?;
                    out.push(Stmt { kind: what, span });
                }
                _ => return self.fail("text where a tag was expected"),
            }
        }
        match until {
            [] => Ok((out, String::new())),
            _ => self.fail(format!("unexpected end of template, expected one of {}", until.join(", "))),
        }
    }

    /// The rest of an opening tag, then a body up to one of `until`.
    fn block(&mut self, until: &[&str]) -> Parsed<(Vec<Stmt>, String)> {
        self.skip_op(":");
        self.expect_end(Tag::Block)?;
        self.body(until)
    }

    /// A body that no `break` leaves.
    fn closed(&mut self, until: &[&str]) -> Parsed<Vec<Stmt>> {
        let loops = std::mem::take(&mut self.loops);
        let body = self.block(until);
        self.loops = loops;
        Ok(body?.0)
    }

    fn statement(&mut self, name: &str) -> Parsed<StmtKind> {
        match name {
            "if" => self.if_statement(),
            "for" => self.for_statement(),
            "set" => self.set_statement(),
            "with" => self.with_statement(),
            "macro" => self.macro_statement(),
            "call" => self.call_statement(),
            "filter" => {
                let filters = self.filter_names(true)?;
                Ok(StmtKind::FilterBlock { filters, body: self.closed(&["endfilter"])? })
            }
            "autoescape" => {
                let test = self.expression()?;
                Ok(StmtKind::Autoescape(test, self.closed(&["endautoescape"])?))
            }
            "generation" => Ok(StmtKind::Generation(self.closed(&["endgeneration"])?)),
            "print" => Ok(StmtKind::Print(self.tuple(true, &[])?)),
            "block" => self.block_statement(),
            "include" | "import" | "from" | "extends" => self.foreign_statement(),
            "break" | "continue" if self.loops == 0 => self.fail(format!("'{name}' outside loop")),
            "break" => Ok(StmtKind::Break),
            "continue" => Ok(StmtKind::Continue),
            _ => self.fail(format!("encountered unknown tag '{name}'")),
        }
    }

    fn if_statement(&mut self) -> Parsed<StmtKind> {
        let mut branches = Vec::new();
        loop {
            if branches.len() > MAX_BRANCHES {
                return self.limit(format!("an if with more than {MAX_BRANCHES} branches"));
            }
            let test = self.tuple(false, &[])?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            match end.as_str() {
                "elif" => (),
                "else" => return Ok(StmtKind::If { branches, otherwise: self.block(&["endif"])?.0 }),
                _ => return Ok(StmtKind::If { branches, otherwise: Vec::new() }),
            }
        }
    }

    fn for_statement(&mut self) -> Parsed<StmtKind> {
        let target = self.target(false, true)?;
        if names(&target).contains(&"loop") {
            let message = "can't assign to special loop variable in for-loop target";
            return Err(Error::new(Kind::Assertion, message).at(self.here()));
        }
        if !self.skip_name("in") {
            return self.unexpected("'in'");
        }
        let of = self.tuple(false, &["recursive"])?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        self.loops += 1;
        let (body, end) = self.block(&["endfor", "else"])?;
        self.loops -= 1;
        let otherwise = match end.as_str() {
            "else" if recursive => self.closed(&["endfor"])?, // Jinja makes a function of the loop
            "else" => self.block(&["endfor"])?.0,
            _ => Vec::new(),
        };
        Ok(StmtKind::For { target, of, test, recursive, body, otherwise })
    }

    fn set_statement(&mut self) -> Parsed<StmtKind> {
        let target = self.target(true, true)?;
        if self.skip_op("=") {
            return Ok(StmtKind::Set(target, self.tuple(true, &[])?));
        }
        let filters = self.filter_names(false)?;
        Ok(StmtKind::SetBlock { target, filters, body: self.closed(&["endset"])? })
    }

    fn with_statement(&mut self) -> Parsed<StmtKind> {
        let mut bindings = Vec::new();
        while self.peek() != Some(&Lexeme::End(Tag::Block)) && self.peek().is_some() {
            if !bindings.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.target(false, true)?;
            self.expect_op("=")?;
            bindings.push((target, self.expression()?));
        }
        Ok(StmtKind::With(bindings, self.closed(&["endwith"])?))
    }

    fn macro_statement(&mut self) -> Parsed<StmtKind> {
        let name = self.assignable()?;
        let signature = self.signature()?;
        Ok(StmtKind::Macro { name, signature, body: self.closed(&["endmacro"])? })
    }

    fn call_statement(&mut self) -> Parsed<StmtKind> {
        let signature = if self.is_op("(") { self.signature()? } else { Signature::default() };
        let call = self.expression()?;
        if !matches!(call.node, Node::Call(..)) {
            return self.fail("expected call");
        }
        Ok(StmtKind::CallBlock { signature, call, body: self.closed(&["endcall"])? })
    }

    fn block_statement(&mut self) -> Parsed<StmtKind> {
        let name = self.name()?;
        let scoped = self.skip_name("scoped");
        let required = self.skip_name("required");
        let body = self.closed(&["endblock"])?;
        self.skip_name(&name);
        Ok(StmtKind::Block { name, scoped, required, body })
    }

    fn foreign_statement(&mut self) -> Parsed<StmtKind> {
        let template = self.expression()?;
        while self.peek() != Some(&Lexeme::End(Tag::Block)) && self.peek().is_some() {
            self.at += 1;
        }
        Ok(StmtKind::Import(template))
    }

    fn signature(&mut self) -> Parsed<Signature> {
        let mut signature = Signature::default();
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !signature.names.is_empty() {
                self.expect_op(",")?;
            }
            signature.names.push(self.assignable()?);
            if self.skip_op("=") {
                signature.defaults.push(self.expression()?);
            } else if !signature.defaults.is_empty() {
                return self.fail("non-default argument follows default argument");
            }
        }
        self.expect_op(")")?;
        if signature.names.len() > MAX_ITEMS {
            return self.limit(format!("a macro with more than {MAX_ITEMS} arguments"));
        }
        Ok(signature)
    }

    fn assignable(&mut self) -> Parsed<String> {
        let name = self.name()?;
        if matches!(name.as_str(), "true" | "false" | "none" | "True" | "False" | "None") {
            return self.fail(format!("can't assign to '{name}'"));
        }
        Ok(name)
    }

    fn target(&mut self, fields: bool, tuples: bool) -> Parsed<Target> {
        let first = self.target_item(fields)?;
        if !tuples || !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip_op(",") {
            if !matches!(self.peek(), Some(Lexeme::Name(name)) if name != "in") && !self.is_op("(") {
                break;
            }
            items.push(self.target_item(fields)?);
        }
        if items.len() > MAX_ITEMS {
            return self.limit(format!("an assignment to more than {MAX_ITEMS} names"));
        }
        Ok(Target::Tuple(items))
    }

    fn target_item(&mut self, fields: bool) -> Parsed<Target> {
        if self.skip_op("(") {
            let inner = self.deeper(|parser| parser.target(fields, true))?;
            self.expect_op(")")?;
            return Ok(inner);
        }
        let start = self.here();
        let name = self.assignable()?;
        if fields && self.skip_op(".") {
            return Ok(Target::Field(name, self.name()?, self.since(start)));
        }
        Ok(Target::Name(name))
    }

    // Expressions, loosest first.

    fn expression(&mut self) -> Parsed<Expr> {
        self.deeper(Self::conditional)
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let mut expr = self.or()?;
        while self.skip_name("if") {
            let test = Box::new(self.or()?);
            let no = if self.skip_name("else") { Some(Box::new(self.expression()?)) } else { None };
            expr = self.expr_of(start, Node::Cond { test, yes: Box::new(expr), no })?;
        }
        Ok(expr)
    }

    fn or(&mut self) -> Parsed<Expr> {
        self.chain("or", Self::and, Node::Or)
    }

    fn and(&mut self) -> Parsed<Expr> {
        self.chain("and", Self::not, Node::And)
    }

    fn chain(
        &mut self,
        word: &str,
        next: fn(&mut Self) -> Parsed<Expr>,
        make: fn(Vec<Expr>) -> Node,
    ) -> Parsed<Expr> {
        let start = self.here();
        let first = next(self)?;
        if !self.is_name(word) {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip_name(word) {
            items.push(next(self)?);
        }
        if items.len() > MAX_DEPTH {
            return self.limit(format!("more than {MAX_DEPTH} conditions joined by '{word}'"));
        }
        self.expr_of(start, make(items))
    }

    fn not(&mut self) -> Parsed<Expr> {
        let start = self.here();
        if !self.skip_name("not") {
            return self.compare();
        }
        let operand = self.deeper(Self::not)?;
        self.expr_of(start, Node::Not(Box::new(operand)))
    }

    fn compare(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(op) = self.comparison() {
            rest.push((op, self.sum()?));
        }
        if rest.is_empty() { Ok(first) } else { self.expr_of(start, Node::Compare(Box::new(first), rest)) }
    }

    fn comparison(&mut self) -> Option<&'static str> {
        let op = match self.peek()? {
            Lexeme::Op(op) if matches!(*op, "==" | "!=" | "<" | "<=" | ">" | ">=") => *op,
            Lexeme::Name(name) if name == "in" => "in",
            Lexeme::Name(name) if name == "not" => {
                let follows = matches!(self.peek_second(), Some(Lexeme::Name(name)) if name == "in");
                self.at += usize::from(follows);
                if !follows {
                    return None;
                }
                "not in"
            }
            _ => return None,
        };
        self.at += 1;
        Some(op)
    }

    fn binary(&mut self, ops: &[&'static str], next: fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let start = self.here();
        let mut left = next(self)?;
        while let Some(op) = ops.iter().copied().find(|op| self.is_op(op)) {
            self.at += 1;
            let right = next(self)?;
            left = self.expr_of(start, joined(op, left, right))?;
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.binary(&["+", "-"], Self::concat)
    }

    fn concat(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.skip_op("~") {
            items.push(self.product()?);
        }
        self.expr_of(start, Node::Concat(items))
    }

    fn product(&mut self) -> Parsed<Expr> {
        self.binary(&["*", "/", "//", "%"], Self::power)
    }

    fn power(&mut self) -> Parsed<Expr> {
        self.binary(&["**"], |parser| parser.unary(true))
    }

    fn unary(&mut self, filters: bool) -> Parsed<Expr> {
        let start = self.here();
        let minus = self.is_op("-");
        let expr = if minus || self.is_op("+") {
            self.at += 1;
            let operand = Box::new(self.deeper(|parser| parser.unary(false))?);
            self.expr_of(start, if minus { Node::Minus(operand) } else { Node::Plus(operand) })?
        } else {
            self.primary()?
        };
        let expr = self.postfix(expr)?;
        if filters { self.filtered(expr) } else { Ok(expr) }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let start = self.here();
        let Some(what) = self.peek() else { return self.unexpected("an expression") };
        let node = match what.clone() {
            Lexeme::Name(name) => {
                let node = match name.as_str() {
                    "true" | "True" => Node::Bool(true),
                    "false" | "False" => Node::Bool(false),
                    "none" | "None" => Node::None,
                    _ => Node::Name(self.name()?),
                };
                if !matches!(node, Node::Name(_)) {
                    self.at += 1;
                }
                node
            }
            Lexeme::Text(_) => self.adjacent(),
            Lexeme::Int(value) => self.taken(Node::Int(value)),
            Lexeme::Huge(value) => self.taken(Node::Huge(value)),
            Lexeme::Float(value) => self.taken(Node::Float(value)),
            Lexeme::Op("(") => {
                self.at += 1;
                let inner = self.deeper(Self::tuple_in_parentheses)?;
                self.expect_op(")")?;
                return Ok(Expr { span: self.since(start), ..inner });
            }
            Lexeme::Op("[") => self.list()?,
            Lexeme::Op("{") => self.dict()?,
            _ => return self.unexpected("an expression"),
        };
        self.expr_of(start, node)
    }

    fn taken(&mut self, node: Node) -> Node {
        self.at += 1;
        node
    }

    fn adjacent(&mut self) -> Node {
        let mut text = String::new();
        while let Some(Lexeme::Text(part)) = self.peek() {
            text.push_str(part);
            self.at += 1;
        }
        Node::Text(text)
    }

    fn list(&mut self) -> Parsed<Node> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.is_op("]") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("]") {
                break;
            }
            items.push(self.expression()?);
        }
        self.expect_op("]")?;
        Ok(Node::List(items))
    }

    fn dict(&mut self) -> Parsed<Node> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.is_op("}") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("}") {
                break;
            }
            let key = self.expression()?;
            self.expect_op(":")?;
            items.push((key, self.expression()?));
        }
        self.expect_op("}")?;
        Ok(Node::Dict(items))
    }

    /// Expressions with commas between them are a tuple; `words` end one.
    fn tuple(&mut self, conditionals: bool, words: &[&str]) -> Parsed<Expr> {
        self.deeper(|parser| parser.tuple_items(conditionals, words, false))
    }

    fn tuple_in_parentheses(&mut self) -> Parsed<Expr> {
        self.tuple_items(true, &[], true)
    }

    fn tuple_items(&mut self, conditionals: bool, words: &[&str], parentheses: bool) -> Parsed<Expr> {
        let start = self.here();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.tuple_ends(words) {
                break;
            }
            items.push(if conditionals { self.conditional()? } else { self.or()? });
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        if !is_tuple && let Some(only) = items.pop() {
            return Ok(only);
        }
        if !is_tuple && !parentheses {
            return self.unexpected("an expression");
        }
        self.expr_of(start, Node::Tuple(items))
    }

    fn tuple_ends(&self, words: &[&str]) -> bool {
        match self.peek() {
            Some(Lexeme::End(_) | Lexeme::Op(")")) | None => true,
            Some(Lexeme::Name(name)) => words.contains(&name.as_str()),
            _ => false,
        }
    }

    fn postfix(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            expr = match self.peek() {
                Some(Lexeme::Op("." | "[")) => self.subscript(expr)?,
                Some(Lexeme::Op("(")) => self.call(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    fn call(&mut self, expr: Expr) -> Parsed<Expr> {
        let start = expr.span;
        let args = self.args()?;
        self.expr_of(start, Node::Call(Box::new(expr), args))
    }

    fn subscript(&mut self, expr: Expr) -> Parsed<Expr> {
        let start = expr.span;
        let of = Box::new(expr);
        if self.skip_op(".") {
            return match self.peek() {
                Some(Lexeme::Name(_)) => {
                    let name = self.name()?;
                    self.expr_of(start, Node::Attribute(of, name))
                }
                Some(Lexeme::Int(index)) => {
                    let index = *index;
                    self.at += 1;
                    let index = Box::new(self.expr_of(self.tokens[self.at - 1].span, Node::Int(index))?);
                    self.expr_of(start, Node::Item(of, index))
                }
                _ => self.unexpected("name or number"),
            };
        }
        self.at += 1;
        let node = self.deeper(|parser| parser.subscribed(of))?;
        self.expect_op("]")?;
        self.expr_of(start, node)
    }

    fn subscribed(&mut self, of: Box<Expr>) -> Parsed<Node> {
        let start = self.here();
        if self.is_op("]") {
            return Ok(Node::Item(of, Box::new(self.expr_of(start, Node::Tuple(Vec::new()))?)));
        }
        let first = if self.is_op(":") { None } else { Some(self.expression()?) };
        if !self.skip_op(":") {
            let Some(first) = first else { return self.unexpected("an expression") };
            if !self.is_op(",") {
                return Ok(Node::Item(of, Box::new(first)));
            }
            let mut items = vec![first];
            while self.skip_op(",") {
                items.push(self.expression()?);
            }
            return Ok(Node::Item(of, Box::new(self.expr_of(start, Node::Tuple(items))?)));
        }
        let ends = |parser: &Self| parser.is_op("]") || parser.is_op(":") || parser.is_op(",");
        let stop = if ends(self) { None } else { Some(self.expression()?) };
        let step = if self.skip_op(":") && !ends(self) { Some(self.expression()?) } else { None };
        Ok(Node::Slice(of, Box::new([first, stop, step])))
    }

    fn args(&mut self) -> Parsed<Args> {
        self.expect_op("(")?;
        let mut args = Args::default();
        let mut any = false;
        while !self.is_op(")") {
            if any {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            any = true;
            self.arg(&mut args)?;
        }
        self.expect_op(")")?;
        Ok(args)
    }

    fn arg(&mut self, args: &mut Args) -> Parsed<()> {
        if self.skip_op("*") {
            if args.args_splat.is_some() || args.kwargs_splat.is_some() {
                return self.fail("invalid syntax for function call expression");
            }
            args.args_splat = Some(Box::new(self.expression()?));
        } else if self.skip_op("**") {
            if args.kwargs_splat.is_some() {
                return self.fail("invalid syntax for function call expression");
            }
            args.kwargs_splat = Some(Box::new(self.expression()?));
        } else if matches!(self.peek(), Some(Lexeme::Name(_))) && self.peek_second() == Some(&Lexeme::Op("="))
        {
            if args.kwargs_splat.is_some() {
                return self.fail("invalid syntax for function call expression");
            }
            let name = self.name()?;
            self.at += 1;
            args.named.push((name, self.expression()?));
        } else {
            if args.args_splat.is_some() || args.kwargs_splat.is_some() || !args.named.is_empty() {
                return self.fail("invalid syntax for function call expression");
            }
            args.positional.push(self.expression()?);
        }
        Ok(())
    }

    fn filtered(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            let start = expr.span;
            expr = match self.peek() {
                Some(Lexeme::Op("|")) => {
                    self.at += 1;
                    let (name, args) = self.filter()?;
                    self.expr_of(start, Node::Filter(Box::new(expr), name, args))?
                }
                Some(Lexeme::Name(name)) if name == "is" => self.test(expr)?,
                Some(Lexeme::Op("(")) => self.call(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    /// The filters of a block: `| a | b(c)`, without the first bar if `inline`.
    fn filter_names(&mut self, inline: bool) -> Parsed<Vec<(String, Args)>> {
        let mut filters = Vec::new();
        while (inline && filters.is_empty()) || self.skip_op("|") {
            filters.push(self.filter()?);
            if filters.len() > MAX_DEPTH {
                return self.limit(format!("more than {MAX_DEPTH} filters"));
            }
        }
        Ok(filters)
    }

    fn filter(&mut self) -> Parsed<(String, Args)> {
        let name = self.dotted()?;
        let args = if self.is_op("(") { self.args()? } else { Args::default() };
        Ok((name, args))
    }

    fn dotted(&mut self) -> Parsed<String> {
        let mut name = self.name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    fn test(&mut self, expr: Expr) -> Parsed<Expr> {
        let start = expr.span;
        self.at += 1;
        let negated = self.skip_name("not");
        let name = self.dotted()?;
        let args = self.test_args()?;
        let test = self.expr_of(start, Node::Test(Box::new(expr), name, args))?;
        if negated { self.expr_of(start, Node::Not(Box::new(test))) } else { Ok(test) }
    }

    fn test_args(&mut self) -> Parsed<Args> {
        let follows = match self.peek() {
            Some(Lexeme::Op("(")) => return self.args(),
            Some(Lexeme::Name(name)) if name == "is" => {
                return self.fail("you cannot chain multiple tests with is");
            }
            Some(Lexeme::Name(name)) => !matches!(name.as_str(), "else" | "or" | "and"),
            Some(
                Lexeme::Text(_) | Lexeme::Int(_) | Lexeme::Huge(_) | Lexeme::Float(_) | Lexeme::Op("[" | "{"),
            ) => true,
            _ => false,
        };
        if !follows {
            return Ok(Args::default());
        }
        let primary = self.deeper(Self::primary)?;
        let positional = vec![self.postfix(primary)?];
        Ok(Args { positional, ..Args::default() })
    }
}

/// `a + b + c` is one sum; everything else is a pair.
fn joined(op: &'static str, left: Expr, right: Expr) -> Node {
    match (op, left) {
        ("+", Expr { node: Node::Sum(mut items), .. }) => {
            items.push(right);
            Node::Sum(items)
        }
        ("+", left) => Node::Sum(vec![left, right]),
        (op, left) => Node::Binary(op, Box::new(left), Box::new(right)),
    }
}

pub(crate) fn names(target: &Target) -> Vec<&str> {
    match target {
        Target::Name(name) => vec![name],
        Target::Field(..) => Vec::new(),
        Target::Tuple(items) => items.iter().flat_map(names).collect(),
    }
}

fn describe(what: &Lexeme) -> String {
    match what {
        Lexeme::Data(_) => "template data".into(),
        Lexeme::Begin(_) => "begin of a tag".into(),
        Lexeme::End(Tag::Block) => "end of statement block".into(),
        Lexeme::End(Tag::Variable) => "end of print statement".into(),
        Lexeme::Name(name) => format!("'{name}'"),
        Lexeme::Text(text) => format!("{text:?}"),
        Lexeme::Int(value) => format!("'{value}'"),
        Lexeme::Huge(value) => format!("'{value}'"),
        Lexeme::Float(value) => format!("'{value}'"),
        Lexeme::Op(op) => format!("'{op}'"),
    }
}

/// The children of a node.
fn children(node: &Node) -> Vec<&Expr> {
    match node {
        Node::List(items)
        | Node::Tuple(items)
        | Node::Concat(items)
        | Node::Sum(items)
        | Node::And(items)
        | Node::Or(items) => items.iter().collect(),
        Node::Dict(items) => items.iter().flat_map(|(key, value)| [key, value]).collect(),
        Node::Attribute(of, _) | Node::Not(of) | Node::Minus(of) | Node::Plus(of) => vec![of],
        Node::Item(left, right) | Node::Binary(_, left, right) => vec![left, right],
        Node::Slice(of, parts) => std::iter::once(&**of).chain(parts.iter().flatten()).collect(),
        Node::Call(of, args) | Node::Filter(of, _, args) | Node::Test(of, _, args) => {
            std::iter::once(&**of).chain(args.all()).collect()
        }
        Node::Compare(first, rest) => std::iter::once(&**first).chain(rest.iter().map(|(_, e)| e)).collect(),
        Node::Cond { test, yes, no } => [&**test, &**yes].into_iter().chain(no.as_deref()).collect(),
        _ => Vec::new(),
    }
}

fn deepest(node: &Node) -> usize {
    children(node).into_iter().map(|child| child.depth).max().unwrap_or(0)
}

fn widest(node: &Node) -> usize {
    children(node).len()
}

/// Whether `name` occurs anywhere in `body`.
pub(crate) fn mentions(body: &[Stmt], name: &str) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Data(_) | StmtKind::Break | StmtKind::Continue => false,
        StmtKind::Print(e) | StmtKind::Set(_, e) | StmtKind::Import(e) => in_expr(e, name),
        StmtKind::If { branches, otherwise } => {
            branches.iter().any(|(test, body)| in_expr(test, name) || mentions(body, name))
                || mentions(otherwise, name)
        }
        StmtKind::For { of, test, body, otherwise, .. } => {
            in_expr(of, name)
                || test.as_ref().is_some_and(|test| in_expr(test, name))
                || mentions(body, name)
                || mentions(otherwise, name)
        }
        StmtKind::SetBlock { filters, body, .. } | StmtKind::FilterBlock { filters, body } => {
            filters.iter().any(|(_, args)| args.all().any(|arg| in_expr(arg, name))) || mentions(body, name)
        }
        StmtKind::With(bindings, body) => {
            bindings.iter().any(|(_, e)| in_expr(e, name)) || mentions(body, name)
        }
        StmtKind::Macro { signature, body, .. } => {
            signature.defaults.iter().any(|e| in_expr(e, name)) || mentions(body, name)
        }
        StmtKind::CallBlock { signature, call, body } => {
            signature.defaults.iter().any(|e| in_expr(e, name)) || in_expr(call, name) || mentions(body, name)
        }
        StmtKind::Autoescape(e, body) => in_expr(e, name) || mentions(body, name),
        StmtKind::Generation(body) => mentions(body, name),
        StmtKind::Block { .. } => false, // Jinja makes a separate function of it
    })
}

fn in_expr(expr: &Expr, name: &str) -> bool {
    matches!(&expr.node, Node::Name(found) if found == name)
        || children(&expr.node).into_iter().any(|child| in_expr(child, name))
}
