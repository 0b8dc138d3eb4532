//! From a tree to a program.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::super::error::{Error, Kind, Span};
use super::super::python::functions::Head;
use super::super::python::{filters, methods, operators, predicates};
use super::super::syntax::parser::{mentions, names};
use super::super::syntax::tree::{self, Node, Signature, Stmt, StmtKind};
use super::program::{
    Applied, Block, CallArgs, Expr, ExprKind, Iterable, LoopCode, MacroCode, Named, Op, Program, Relation,
    Scoped, Target, VarRef,
};

/// Texts of up to so many bytes are compared without being paid for.
const SHORT_TEXT: usize = 256;

type Compiled<T> = Result<T, Error>;

/// Compiles a template; `source` is what its errors show.
pub(crate) fn compile(body: &[Stmt], source: &str) -> Compiled<Program> {
    let program = Program { escapes: escapes(body), source: source.into(), ..Program::default() };
    let mut compiler =
        Compiler { program, globals: HashMap::new(), frames: vec![Frame::default()], lenient: false };
    compiler.open(assigned(body), false);
    let body = compiler.block(body)?;
    let slots = compiler.frame().slots;
    Ok(Program { body, slots, ..compiler.program })
}

/// Where a name is kept; whether it is always assigned to before it can be read.
#[derive(Clone, Copy)]
struct Known {
    slot: usize,
    definite: bool,
}

#[derive(Default)]
struct Scope {
    known: HashMap<String, Known>,
    /// Which loop's body this is, and whether it may be entered again.
    repeats: Option<(usize, bool)>,
}

/// What a macro, or the whole template, keeps.
#[derive(Default)]
struct Frame {
    scopes: Vec<Scope>,
    slots: usize,
    nested: usize,
    height: usize,
}

struct Compiler {
    program: Program,
    globals: HashMap<String, usize>,
    frames: Vec<Frame>,
    /// Whether this is part of an `if` or of a conditional expression, and of no scope within it: here a filter or a
    /// test that there is not is an error only once it is reached. (Jinja: `Frame.soft_frame`.)
    lenient: bool,
}

impl Compiler {
    fn frame(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    // Names.

    fn slot(&mut self) -> usize {
        let frame = self.frame();
        frame.slots += 1;
        frame.slots - 1
    }

    /// Begins a scope; answers the places of its names.
    fn open(&mut self, names: Vec<String>, definite: bool) -> Range<usize> {
        let frame = self.frame();
        let first = frame.slots;
        frame.slots += names.len();
        let known = names.into_iter().zip(first..).map(|(name, slot)| (name, Known { slot, definite }));
        frame.scopes.push(Scope { known: known.collect(), repeats: None });
        first..frame.slots
    }

    fn close(&mut self) {
        self.frame().scopes.pop();
    }

    /// Makes `name` known in the innermost scope.
    fn know(&mut self, name: &str, definite: bool) -> usize {
        let slot = self.slot();
        if let Some(scope) = self.frame().scopes.last_mut() {
            scope.known.insert(name.into(), Known { slot, definite });
        }
        slot
    }

    /// Where `name` of the innermost scope is kept.
    fn own(&mut self, name: &str) -> usize {
        let found = self.frame().scopes.last().and_then(|scope| scope.known.get(name));
        match found.map(|known| known.slot) {
            Some(slot) => slot,
            None => self.know(name, false),
        }
    }

    fn global(&mut self, name: &str) -> VarRef {
        if let Some(at) = self.globals.get(name) {
            return VarRef::Global(*at);
        }
        let at = self.program.globals.len();
        self.program.globals.push(name.into());
        self.globals.insert(name.into(), at);
        VarRef::Global(at)
    }

    fn name(&mut self, name: &str) -> ExprKind {
        let (mut vars, mut definite) = (Vec::new(), false);
        let outermost = self.frames.len() - 1;
        'found: for (up, frame) in self.frames.iter().rev().enumerate() {
            for known in frame.scopes.iter().rev().filter_map(|scope| scope.known.get(name)) {
                vars.push(match up {
                    0 => VarRef::Local(known.slot),
                    up if up == outermost => VarRef::Root(known.slot),
                    up => VarRef::Up(up, known.slot),
                });
                if known.definite {
                    definite = true;
                    break 'found;
                }
            }
        }
        if !definite {
            vars.push(self.global(name));
        }
        match vars.as_slice() {
            [only] => ExprKind::Name(*only),
            _ => ExprKind::Names(vars.into()),
        }
    }

    // Statements.

    fn block(&mut self, body: &[Stmt]) -> Compiled<Block> {
        self.frame().nested += 1;
        let mut out = Vec::with_capacity(body.len());
        for stmt in body {
            self.stmt(stmt, &mut out)?;
        }
        self.frame().nested -= 1;
        Ok(out)
    }

    /// Does `work` as leniently as said.
    fn with_lenience<T>(&mut self, lenient: bool, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.lenient, lenient);
        let done = work(self);
        self.lenient = before;
        done
    }

    fn scoped(&mut self, body: &[Stmt]) -> Compiled<Scoped> {
        self.with_lenience(false, |compiler| compiler.scope_of(body))
    }

    fn scope_of(&mut self, body: &[Stmt]) -> Compiled<Scoped> {
        let names = self.open(assigned(body), false);
        let body = self.block(body)?;
        self.close();
        Ok(Scoped { names, body })
    }

    fn stmt(&mut self, stmt: &Stmt, out: &mut Block) -> Compiled<()> {
        let span = stmt.span;
        let op = match &stmt.kind {
            StmtKind::Data(text) => {
                data(text, span, out);
                return Ok(());
            }
            StmtKind::Print(expr) => return self.print(expr, out),
            StmtKind::If { branches, otherwise } => {
                self.with_lenience(true, |compiler| compiler.branches(branches, otherwise))?
            }
            StmtKind::For { .. } => self.for_loop(&stmt.kind, span)?,
            StmtKind::Set(target, value) => {
                let value = self.expr(value)?;
                Op::Set(self.target(target, span)?, value)
            }
            StmtKind::SetBlock { target, filters, body } => {
                let body = self.scoped(body)?;
                let filters = self.applied(filters, span)?;
                Op::SetBlock(self.target(target, span)?, filters, body)
            }
            StmtKind::With(bindings, body) => self.with(bindings, body, span)?,
            StmtKind::Macro { name, signature, body } => {
                let at = self.define(name, signature, body, true)?;
                let slot = self.own(name);
                Op::Macro(at, VarRef::Local(slot))
            }
            StmtKind::CallBlock { signature, call, body } => {
                let at = self.define("caller", signature, body, true)?;
                Op::CallBlock(at, self.expr(call)?)
            }
            StmtKind::FilterBlock { filters, body } => {
                let body = self.scoped(body)?;
                Op::FilterBlock(self.applied(filters, span)?, body)
            }
            StmtKind::Autoescape(test, body) => {
                let test = self.with_lenience(false, |compiler| compiler.expr(test))?;
                Op::Autoescape(test, self.scoped(body)?)
            }
            StmtKind::Generation(body) => Op::Generation(self.scoped(body)?),
            StmtKind::Block { name, required: true, .. } => Op::Required(name.clone()),
            StmtKind::Block { name, scoped, body, .. } => self.named_block(name, *scoped, body, span)?,
            StmtKind::Import(name) => Op::Import(self.expr(name)?),
            StmtKind::Break => Op::Break,
            StmtKind::Continue => Op::Continue,
        };
        out.push((op, span));
        Ok(())
    }

    /// A block. Jinja makes a function of it that sees the template's own variables; those of loops, macros and `with`
    /// around it only if it is `scoped`.
    fn named_block(&mut self, name: &str, scoped: bool, body: &[Stmt], span: Span) -> Compiled<Op> {
        if self.program.blocks.iter().any(|(known, _)| known == name) {
            return Err(Error::new(Kind::Assertion, format!("block '{name}' defined twice")).at(span));
        }
        let at = self.program.blocks.len();
        self.program.blocks.push((name.into(), None));
        if scoped {
            return Ok(Op::Scope(self.scoped(body)?));
        }
        let outer: Vec<Scope> = self.frames[0].scopes.drain(1..).collect();
        let frames = self.frames.split_off(1);
        let code = self.define(name, &Signature::default(), body, false);
        self.frames.extend(frames);
        self.frames[0].scopes.extend(outer);
        let code = code?;
        self.program.blocks[at].1 = Some(code);
        Ok(Op::OwnBlock(code))
    }

    fn branches(&mut self, branches: &[(tree::Expr, Vec<Stmt>)], otherwise: &[Stmt]) -> Compiled<Op> {
        let mut all = Vec::with_capacity(branches.len());
        for (test, body) in branches {
            all.push((self.expr(test)?, self.block(body)?));
        }
        Ok(Op::If(all, self.block(otherwise)?))
    }

    /// A text that stands in the template is written as what stands between tags.
    fn print(&mut self, expr: &tree::Expr, out: &mut Block) -> Compiled<()> {
        match &expr.node {
            Node::Text(text) if !self.program.escapes => data(text, expr.span, out),
            Node::Concat(items) if !self.program.escapes && items.iter().all(is_kept) => {
                for item in items {
                    self.print(item, out)?;
                }
            }
            _ => {
                let code = self.expr(expr)?;
                out.push((Op::Print(code), expr.span));
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, kind: &StmtKind, span: Span) -> Compiled<Op> {
        let StmtKind::For { target, of, test, recursive, body, otherwise } = kind else {
            return Ok(Op::Break);
        };
        let of = self.of(of)?;
        let at = self.program.loops.len();
        self.program.loops.push(LoopCode {
            of,
            target: Target::Tuple(Vec::new()),
            test: None,
            state: 0,
            names: 0..0,
            all: 0..0,
            body: Vec::new(),
            otherwise: Vec::new(),
            height: 0,
        });
        let (nested, height) = (self.frame().nested, std::mem::take(&mut self.frame().height));
        let targets = names(target).into_iter().map(str::to_string).collect();
        let first = self.open(targets, true).start;
        let target = self.target(target, span)?;
        let test = test.as_ref().map(|test| self.with_lenience(false, |compiler| compiler.expr(test)));
        let test = test.transpose()?;
        let state = self.know("loop", true);
        if let Some(scope) = self.frame().scopes.last_mut() {
            scope.repeats = Some((at, *recursive));
        }
        let inner = self.open(assigned(body), false);
        let body = self.with_lenience(false, |compiler| compiler.block(body))?;
        self.close();
        self.close();
        let all = first..self.frame().slots;
        let otherwise = self.scoped_else(otherwise)?;
        let own = self.frame().height.saturating_sub(nested);
        let code = &mut self.program.loops[at];
        (code.target, code.test, code.state, code.names, code.all) = (target, test, state, inner, all);
        (code.body, code.otherwise, code.height) = (body, otherwise, own);
        let frame = self.frame();
        frame.height = frame.height.max(height);
        Ok(Op::For(at))
    }

    fn scoped_else(&mut self, body: &[Stmt]) -> Compiled<Block> {
        if body.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![(Op::Scope(self.scoped(body)?), body[0].span)])
    }

    fn of(&mut self, of: &tree::Expr) -> Compiled<Iterable> {
        Ok(match &of.node {
            Node::Call(method, args) if args.is_empty() => match &method.node {
                Node::Attribute(base, name) if name == "items" => Iterable::Method(self.expr(base)?),
                _ => Iterable::Value(self.expr(of)?),
            },
            Node::Filter(base, name, args) if name == "items" && args.is_empty() => {
                Iterable::Filter(self.expr(base)?)
            }
            _ => Iterable::Value(self.expr(of)?),
        })
    }

    fn target(&mut self, target: &tree::Target, span: Span) -> Compiled<Target> {
        Ok(match target {
            tree::Target::Name(name) if name == "loop" => {
                return Err(Error::new(Kind::Unsupported, "an assignment to 'loop'").at(span));
            }
            tree::Target::Name(name) => Target::Slot(self.own(name)),
            tree::Target::Field(space, field, span) => {
                Target::Field(Expr { kind: self.name(space), span: *span }, field.clone())
            }
            tree::Target::Tuple(items) => {
                Target::Tuple(items.iter().map(|item| self.target(item, span)).collect::<Result<_, _>>()?)
            }
        })
    }

    fn applied(&mut self, of: &[(String, tree::Args)], span: Span) -> Compiled<Vec<Applied>> {
        let known = |name: &str| filters::find(name).ok_or_else(|| unknown(Named::Filter, name, span));
        self.with_lenience(false, |compiler| {
            of.iter().map(|(name, args)| Ok((known(name)?, compiler.given(args)?))).collect()
        })
    }

    /// All values are computed before any name is bound.
    fn with(&mut self, bindings: &[(tree::Target, tree::Expr)], body: &[Stmt], span: Span) -> Compiled<Op> {
        let values = bindings.iter().map(|(_, value)| self.expr(value)).collect::<Result<Vec<_>, _>>()?;
        let bound = bindings.iter().flat_map(|(target, _)| names(target)).map(str::to_string).collect();
        self.open(bound, true);
        let targets =
            bindings.iter().map(|(target, _)| self.target(target, span)).collect::<Result<Vec<_>, _>>()?;
        let body = self.scoped(body)?;
        self.close();
        Ok(Op::With(targets.into_iter().zip(values).collect(), body))
    }

    /// A macro; `takes_extras` if it may have the names `varargs`, `kwargs` and `caller`.
    fn define(
        &mut self,
        name: &str,
        signature: &Signature,
        body: &[Stmt],
        takes_extras: bool,
    ) -> Compiled<usize> {
        self.with_lenience(false, |compiler| compiler.macro_of(name, signature, body, takes_extras))
    }

    fn macro_of(
        &mut self,
        name: &str,
        signature: &Signature,
        body: &[Stmt],
        takes_extras: bool,
    ) -> Compiled<usize> {
        self.frames.push(Frame::default());
        self.open(signature.names.clone(), true);
        let extras = ["varargs", "kwargs", "caller"].map(|extra| {
            let asked =
                takes_extras && mentions(body, extra) && !signature.names.iter().any(|name| name == extra);
            asked.then(|| self.know(extra, true))
        });
        let defaults = signature.defaults.iter().map(|value| self.expr(value)).collect::<Result<_, _>>()?;
        self.open(assigned(body), false);
        let body = self.block(body)?;
        let frame = self.frames.pop().unwrap_or_default();
        let head = Head { name: name.into(), names: signature.names.clone(), extras };
        self.program.macros.push(MacroCode {
            head: Arc::new(head),
            defaults,
            slots: frame.slots,
            body,
            height: frame.height,
        });
        Ok(self.program.macros.len() - 1)
    }

    // Expressions.

    fn boxed(&mut self, expr: &tree::Expr) -> Compiled<Box<Expr>> {
        Ok(Box::new(self.expr(expr)?))
    }

    fn all(&mut self, items: &[tree::Expr]) -> Compiled<Vec<Expr>> {
        items.iter().map(|item| self.expr(item)).collect()
    }

    fn expr(&mut self, expr: &tree::Expr) -> Compiled<Expr> {
        let frame = self.frame();
        frame.height = frame.height.max(frame.nested + expr.depth);
        Ok(Expr { kind: self.kind(expr)?, span: expr.span })
    }

    fn kind(&mut self, expr: &tree::Expr) -> Compiled<ExprKind> {
        Ok(match &expr.node {
            Node::None => ExprKind::None,
            Node::Bool(value) => ExprKind::Bool(*value),
            Node::Int(value) => ExprKind::Int(*value),
            Node::Huge(value) => ExprKind::Huge(value.clone()),
            Node::Float(value) => ExprKind::Float(*value),
            Node::Text(text) => ExprKind::Text(text.as_str().into()),
            Node::Name(name) => self.name(name),
            Node::List(items) => ExprKind::List(self.all(items)?),
            Node::Tuple(items) => ExprKind::Tuple(self.all(items)?),
            Node::Dict(items) => {
                let pair = |(key, value): &(tree::Expr, tree::Expr)| Ok((self.expr(key)?, self.expr(value)?));
                ExprKind::Dict(items.iter().map(pair).collect::<Compiled<_>>()?)
            }
            Node::Attribute(of, name) if plain_key(name) => {
                ExprKind::Field(self.boxed(of)?, name.as_str().into())
            }
            Node::Attribute(of, name) => ExprKind::Attribute(self.boxed(of)?, name.as_str().into()),
            Node::Item(of, key) => match &key.node {
                Node::Text(name) if plain_key(name) => ExprKind::Field(self.boxed(of)?, name.as_str().into()),
                _ => ExprKind::Item(self.boxed(of)?, self.boxed(key)?),
            },
            Node::Slice(of, parts) => self.slice(of, parts)?,
            Node::Call(of, args) => self.call(of, args, expr.span)?,
            Node::Filter(of, name, args) if name == "trim" && args.is_empty() => {
                ExprKind::Trim(self.boxed(of)?)
            }
            Node::Filter(of, name, args) if name == "tojson" => {
                ExprKind::Json(self.boxed(of)?, self.given(args)?)
            }
            Node::Filter(of, name, args) => match filters::find(name) {
                Some(filter) => ExprKind::Filter(self.boxed(of)?, filter, self.given(args)?),
                None => self.missing(of, Named::Filter, name, args, expr.span)?,
            },
            Node::Test(of, name, args) => match predicates::find(name) {
                Some(test) => ExprKind::Test(self.boxed(of)?, test, self.given(args)?),
                None => self.missing(of, Named::Test, name, args, expr.span)?,
            },
            Node::Not(of) => ExprKind::Not(self.boxed(of)?),
            Node::Minus(of) => ExprKind::Signed(true, self.boxed(of)?),
            Node::Plus(of) => ExprKind::Signed(false, self.boxed(of)?),
            Node::Sum(items) => ExprKind::Sum(self.all(items)?),
            Node::Concat(items) => ExprKind::Concat(self.all(items)?),
            Node::Binary(op, left, right) => {
                ExprKind::Binary(operator(op), self.boxed(left)?, self.boxed(right)?)
            }
            Node::And(items) => ExprKind::And(self.all(reached(items, false))?),
            Node::Or(items) => ExprKind::Or(self.all(reached(items, true))?),
            Node::Compare(first, rest) => self.compare(first, rest)?,
            Node::Cond { test, yes, no } => self.with_lenience(true, |compiler| {
                let (yes, test) = (compiler.boxed(yes)?, compiler.boxed(test)?);
                let no = no.as_ref().map(|no| compiler.boxed(no)).transpose()?;
                Ok(ExprKind::Cond(test, yes, no))
            })?,
        })
    }

    /// A filter or a test that there is not.
    fn missing(
        &mut self,
        of: &tree::Expr,
        what: Named,
        name: &str,
        args: &tree::Args,
        span: Span,
    ) -> Compiled<ExprKind> {
        if !self.lenient {
            return Err(unknown(what, name, span));
        }
        Ok(ExprKind::Missing(self.boxed(of)?, what, name.into(), self.given(args)?))
    }

    fn slice(&mut self, of: &tree::Expr, parts: &[Option<tree::Expr>; 3]) -> Compiled<ExprKind> {
        let literal = literal(of) && parts.iter().flatten().all(literal);
        let mut codes = [(); 3].map(|()| Expr { kind: ExprKind::None, span: of.span });
        for (code, part) in codes.iter_mut().zip(parts) {
            if let Some(part) = part {
                *code = self.expr(part)?;
            }
        }
        Ok(ExprKind::Slice(self.boxed(of)?, Box::new(codes), literal))
    }

    fn call(&mut self, of: &tree::Expr, args: &tree::Args, span: Span) -> Compiled<ExprKind> {
        match &of.node {
            Node::Name(name) if name == "loop" => {
                let scopes = &self.frame().scopes;
                if let Some((at, true)) = scopes.iter().rev().find_map(|scope| scope.repeats) {
                    let [only] = args.positional.as_slice() else {
                        let message = "loop() with other than one argument";
                        return Err(Error::new(Kind::Unsupported, message).at(span));
                    };
                    return Ok(ExprKind::LoopRecurse(at, self.boxed(only)?));
                }
                Ok(ExprKind::Call(self.boxed(of)?, self.given(args)?))
            }
            Node::Attribute(base, name) => {
                Ok(ExprKind::Method(self.boxed(base)?, name.as_str().into(), self.given(args)?))
            }
            _ => Ok(ExprKind::Call(self.boxed(of)?, self.given(args)?)),
        }
    }

    fn compare(&mut self, first: &tree::Expr, rest: &[(&'static str, tree::Expr)]) -> Compiled<ExprKind> {
        if let [(op @ ("==" | "!="), second)] = rest {
            match (&first.node, &second.node) {
                (_, Node::Text(text)) if text.len() <= SHORT_TEXT => {
                    return Ok(ExprKind::IsText(self.boxed(first)?, text.as_str().into(), *op == "=="));
                }
                (Node::Text(text), _) if text.len() <= SHORT_TEXT => {
                    return Ok(ExprKind::IsText(self.boxed(second)?, text.as_str().into(), *op == "=="));
                }
                _ => (),
            }
        }
        let first = self.boxed(first)?;
        let pair = |(op, expr): &(&'static str, tree::Expr)| Ok((relation(op), self.expr(expr)?));
        Ok(ExprKind::Compare(first, rest.iter().map(pair).collect::<Compiled<_>>()?))
    }

    fn given(&mut self, args: &tree::Args) -> Compiled<CallArgs> {
        let named = args.named.iter().map(|(name, value)| Ok((name.clone(), self.expr(value)?)));
        let named = named.collect::<Compiled<_>>()?;
        Ok(CallArgs {
            positional: self.all(&args.positional)?,
            named,
            args_splat: args.args_splat.as_ref().map(|args_splat| self.boxed(args_splat)).transpose()?,
            kwargs_splat: args
                .kwargs_splat
                .as_ref()
                .map(|kwargs_splat| self.boxed(kwargs_splat))
                .transpose()?,
        })
    }
}

fn data(text: &str, span: Span, out: &mut Block) {
    if let Some((Op::Data(before), _)) = out.last_mut() {
        before.push_str(text);
    } else if !text.is_empty() {
        out.push((Op::Data(text.into()), span));
    }
}

fn unknown(what: Named, name: &str, span: Span) -> Error {
    Error::new(Kind::Assertion, format!("no {} named '{name}'", what.word())).at(span)
}

/// The items of `and` or `or` up to the first literal that decides, if only literals stand before it: Jinja computes
/// that while it compiles, and never looks at what follows.
fn reached(items: &[tree::Expr], deciding: bool) -> &[tree::Expr] {
    let mut literals = items.iter().map_while(literal_truth);
    match literals.position(|truth| truth == deciding) {
        Some(at) => &items[..=at],
        None => items,
    }
}

fn literal_truth(expr: &tree::Expr) -> Option<bool> {
    Some(match &expr.node {
        Node::None => false,
        Node::Bool(value) => *value,
        Node::Int(value) => *value != 0,
        Node::Huge(_) => true,
        Node::Float(value) => *value != 0.0,
        Node::Text(text) => !text.is_empty(),
        Node::Not(of) => !literal_truth(of)?,
        _ => return None,
    })
}

/// Whether there is an `autoescape` block anywhere in `body`.
fn escapes(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| matches!(stmt.kind, StmtKind::Autoescape(..)) || stmt.kind.bodies().any(escapes))
}

fn operator(op: &str) -> operators::Operator {
    match op {
        "-" => operators::sub,
        "*" => operators::mul,
        "/" => operators::div,
        "//" => operators::floor_div,
        "%" => operators::modulo,
        _ => operators::pow,
    }
}

fn relation(op: &'static str) -> Relation {
    match op {
        "==" => Relation::Equal,
        "!=" => Relation::Unequal,
        "in" => Relation::In,
        "not in" => Relation::NotIn,
        op => Relation::Order(op),
    }
}

/// The names that `body` assigns to in its own scope.
fn assigned(body: &[Stmt]) -> Vec<String> {
    let mut out = BTreeSet::new();
    collect(body, &mut out);
    out.into_iter().collect()
}

fn collect(body: &[Stmt], out: &mut BTreeSet<String>) {
    let mut add = |name: &str| {
        out.insert(name.to_string());
    };
    for stmt in body {
        match &stmt.kind {
            StmtKind::Set(target, _) | StmtKind::SetBlock { target, .. } => {
                names(target).into_iter().for_each(&mut add);
            }
            StmtKind::Macro { name, .. } => add(name),
            _ => (),
        }
    }
    for stmt in body {
        if let StmtKind::If { branches, otherwise } = &stmt.kind {
            for (_, body) in branches {
                collect(body, out);
            }
            collect(otherwise, out);
        }
    }
}

fn literal(expr: &tree::Expr) -> bool {
    match &expr.node {
        Node::None | Node::Bool(_) | Node::Int(_) | Node::Huge(_) | Node::Float(_) | Node::Text(_) => true,
        Node::List(items) | Node::Tuple(items) => items.iter().all(literal),
        Node::Dict(items) => items.iter().all(|(key, value)| literal(key) && literal(value)),
        Node::Minus(of) | Node::Plus(of) => literal(of),
        _ => false,
    }
}

/// Whether looking up `name` in a value can find nothing but an item or a field.
fn plain_key(name: &str) -> bool {
    !name.starts_with('_') && name.len() <= SHORT_TEXT && !methods::is_attribute(name)
}

/// Whether an expression is of texts and variables alone, so that nothing within it can write.
fn is_kept(expr: &tree::Expr) -> bool {
    match &expr.node {
        Node::Text(_) | Node::Int(_) | Node::Huge(_) | Node::Name(_) => true,
        Node::Attribute(of, _) => is_kept(of),
        Node::Item(of, key) => is_kept(of) && is_kept(key),
        Node::Filter(of, _, args) => is_kept(of) && args.all().all(is_kept),
        Node::Concat(items) => items.iter().all(is_kept),
        _ => false,
    }
}
