//! The text of a graph, read.
//!
//! ```text
//! graph     = "graph" string [ "(" fact { "," fact } ")" ] "{" { node } [ "return" output { "," output } ] "}"
//! fact      = name "in" number "..=" number [ "by" number ]
//! output    = string reference
//! node      = reference "=" operation { reference } { setting } ":" type [ "@" ( path | string ) ]
//! reference = "%" number
//! setting   = string                                                  of input, its name
//!           | float                                                   of constant
//!           | "dim" number                                            of iota, sum, reduce_max, concat, slice,
//!                                                                     all_gather, reduce_scatter
//!           | "by" [ "-" ] number                                     of send, receive
//!           | "over" string "size" size                               of collectives, after the former
//!           | "probability" float "stream" number                     of random_mask
//!           | "from" size "to" size                                   of slice
//!           | "order" { number }                                      of transpose
//!           | "block" number [ "nested" number ]                      of dequantize
//!           | "wrt" number                                            of attention_grad, attention_lse_grad
//!           | "scale" float [ "score" graph ] [ "mask" graph ]        of attention, .. attention_lse_grad
//! type      = ( "f32" | "f16" | "bf16" | "u8" | "i32" ) "[" [ size { "," size } ] "]"
//! size      = [ "-" ] term { ( "+" | "-" ) term }
//! term      = ( number | name ) { "*" name }
//! name      = letters, digits and "_", the first no digit | string
//! path      = letters, digits, "_" and "."
//! string    = '"' { any character | "\" ( '"' | "\" | "n" | "u{" hexadecimal "}" ) } '"'
//! float     = as Rust writes it | "nan" | "nan(0x" the bits ")"
//! ```
//!
//! Nodes are numbered from 0. Space and ends of lines only separate. Every node is typed as it is read, so that an
//! error names the line on which something does not fit; programs of attention stand at most [`DEEPEST`] in each other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::str::FromStr;

use super::infer::LONGEST;
use super::print::{in_path, in_word};
use super::{
    Attention, Binary, Collective, Compare, Dim, Dtype, Error, Facts, Fault, Graph, Group, Id, Op, Reduce,
    Type, Unary,
};

/// How many programs may stand in each other.
const DEEPEST: usize = 8;

impl Graph {
    /// Reads a graph's text, such as [`to_string`](ToString::to_string) gives.
    ///
    /// Fails where the text does not follow the grammar at the top of `graph/parse.rs`, and where a node does not fit
    /// its inputs; the error begins with the line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_placed(text).map_err(|(error, _)| error)
    }

    /// The same; an error comes with the byte of the text that it is about, if it is about one place.
    pub fn parse_placed(text: &str) -> Result<Self, (Error, Option<usize>)> {
        let mut parser = Parser { text, at: 0, depth: 0, fault: Cell::new(None) };
        let graph = parser.graph().and_then(|graph| {
            parser.end()?;
            graph.check()?;
            Ok(graph)
        });
        graph.map_err(|error| (error, parser.fault.get()))
    }
}

impl FromStr for Graph {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// A text and how far it is read.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Where the error is.
    fault: Cell<Option<usize>>,
}

/// The structure: graphs, nodes, settings.
impl Parser<'_> {
    fn graph(&mut self) -> Result<Graph, Error> {
        self.keyword("graph")?;
        let mut graph = Graph::new(self.string()?);
        if self.eat("(") {
            self.facts(&mut graph)?;
        }
        self.expect("{")?;
        let mut names = BTreeSet::new();
        while self.peek() == Some('%') {
            self.node(&mut graph, &mut names)?;
        }
        if self.eat_word("return") {
            self.outputs(&mut graph)?;
        }
        self.expect("}")?;
        Ok(graph)
    }

    fn facts(&mut self, graph: &mut Graph) -> Result<(), Error> {
        loop {
            let start = self.next();
            let symbol = self.name()?;
            self.keyword("in")?;
            let min = self.number("a number")?;
            self.expect("..=")?;
            let facts = Facts::range(min, self.number("a number")?);
            let by = if self.eat_word("by") { self.number("a number")? } else { 1 };
            let facts = facts.multiple_of(by);
            if !facts.make_sense() {
                return Err(self.fault_at(start, Fault::Facts { facts }.of(&symbol)));
            }
            if graph.known().contains_key(symbol.as_str()) {
                return Err(self.fault_at(start, Fault::Twice.of(&symbol)));
            }
            graph.know(&symbol, facts);
            if !self.eat(",") {
                return self.expect(")");
            }
        }
    }

    fn outputs(&mut self, graph: &mut Graph) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        loop {
            let start = self.next();
            let name = self.string()?;
            let id = self.reference()?;
            if id.0 as usize >= graph.nodes().len() {
                return Err(self.fault_at(start, Fault::NoSuchNode { id }.of(&name)));
            }
            if !names.insert(name.clone()) {
                return Err(self.fault_at(start, Fault::Twice.of(&name)));
            }
            graph.output(name, id);
            if !self.eat(",") {
                return Ok(());
            }
        }
    }

    fn node(&mut self, graph: &mut Graph, names: &mut BTreeSet<String>) -> Result<(), Error> {
        let start = self.next();
        let id = self.reference()?;
        if id.0 as usize != graph.nodes().len() {
            return Err(self.wrong_at(start, &format!("%{}", graph.nodes().len())));
        }
        self.expect("=")?;
        let (op, inputs) = self.operation()?;
        self.expect(":")?;
        let ty = self.ty()?;
        let scope = if self.eat("@") { self.path()? } else { String::new() };
        if let Op::Input { name } = &op
            && !names.insert(name.clone())
        {
            return Err(self.fault_at(start, Fault::Twice.of(name)));
        }
        graph.add(op, &inputs, Some(ty), &scope).map_err(|error| self.fault_at(start, error))?;
        Ok(())
    }

    fn operation(&mut self) -> Result<(Op, Vec<Id>), Error> {
        let start = self.next();
        let name = self.word();
        let mut inputs = Vec::new();
        while self.peek() == Some('%') {
            inputs.push(self.reference()?);
        }
        let op = self.settings(name)?.ok_or_else(|| self.wrong_at(start, "an operation"))?;
        Ok((op, inputs))
    }

    /// The operation of a name, with all that is not a tensor about it; nothing if there is none of that name.
    fn settings(&mut self, name: &str) -> Result<Option<Op>, Error> {
        Ok(Some(match name {
            "input" => Op::Input { name: self.string()? },
            "constant" => Op::Constant { value: self.float()? },
            "iota" => Op::Iota { dim: self.dim()? },
            "transpose" => Op::Transpose { order: self.order()? },
            "slice" => self.slice()?,
            "concat" => Op::Concat { dim: self.dim()? },
            "dequantize" => self.dequantize()?,
            "attention" => Op::Attention(Box::new(self.attention()?)),
            "attention_grad" => {
                let wrt = self.setting("wrt")?;
                Op::AttentionGrad { attention: Box::new(self.attention()?), wrt }
            }
            "attention_lse" => Op::AttentionLse(Box::new(self.attention()?)),
            "attention_lse_grad" => {
                let wrt = self.setting("wrt")?;
                Op::AttentionLseGrad { attention: Box::new(self.attention()?), wrt }
            }
            "random_mask" => self.random_mask()?,
            "all_gather" => self.collective(|this| Ok(Collective::AllGather { dim: this.dim()? }))?,
            "reduce_scatter" => self.collective(|this| Ok(Collective::ReduceScatter { dim: this.dim()? }))?,
            "all_reduce" => self.collective(|_| Ok(Collective::AllReduce))?,
            "send" => self.collective(|this| Ok(Collective::Send { by: this.by()? }))?,
            "receive" => self.collective(|this| Ok(Collective::Receive { by: this.by()? }))?,
            name => match called(&Reduce::NAMES, name) {
                Some(reduce) => Op::Reduce(reduce, self.dim()?),
                None => return Ok(plain(name)),
            },
        }))
    }

    /// A word and the count that it announces.
    fn setting(&mut self, word: &str) -> Result<usize, Error> {
        self.keyword(word)?;
        self.count()
    }

    fn dim(&mut self) -> Result<usize, Error> {
        self.setting("dim")
    }

    fn order(&mut self) -> Result<Vec<usize>, Error> {
        self.keyword("order")?;
        let mut order = Vec::new();
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            order.push(self.count()?);
        }
        Ok(order)
    }

    fn slice(&mut self) -> Result<Op, Error> {
        let dim = self.dim()?;
        self.keyword("from")?;
        let start = self.size()?;
        self.keyword("to")?;
        Ok(Op::Slice { dim, start, end: self.size()? })
    }

    fn dequantize(&mut self) -> Result<Op, Error> {
        let block_size = self.setting("block")?;
        let nested = if self.eat_word("nested") { Some(self.count()?) } else { None };
        Ok(Op::Dequantize { block_size, nested })
    }

    fn random_mask(&mut self) -> Result<Op, Error> {
        self.keyword("probability")?;
        let probability = self.float()?;
        self.keyword("stream")?;
        let start = self.next();
        let stream = u32::try_from(self.count()?);
        let stream = stream.map_err(|_| self.wrong_at(start, "a number below 2^32"))?;
        Ok(Op::RandomMask { probability, stream })
    }

    /// A collective whose own settings `kind` reads.
    fn collective(&mut self, kind: fn(&mut Self) -> Result<Collective, Error>) -> Result<Op, Error> {
        let kind = kind(self)?;
        self.keyword("over")?;
        let axis = self.string()?;
        self.keyword("size")?;
        Ok(Op::Collective { kind, group: Group { axis, size: self.size()? } })
    }

    fn by(&mut self) -> Result<i64, Error> {
        self.keyword("by")?;
        self.number("a number of ranks")
    }

    fn attention(&mut self) -> Result<Attention, Error> {
        self.keyword("scale")?;
        let scale = self.float()?;
        Ok(Attention { scale, score: self.program("score")?, mask: self.program("mask")? })
    }

    fn program(&mut self, word: &str) -> Result<Option<Graph>, Error> {
        if !self.eat_word(word) {
            return Ok(None);
        }
        if self.depth == DEEPEST {
            return Err(self.wrong(&format!("at most {DEEPEST} programs in each other")));
        }
        self.depth += 1;
        let graph = self.graph()?;
        self.depth -= 1;
        Ok(Some(graph))
    }

    fn ty(&mut self) -> Result<Type, Error> {
        let start = self.next();
        let dtype = called(&Dtype::NAMES, self.word());
        let dtype = dtype.ok_or_else(|| self.wrong_at(start, "f32, f16, bf16, u8 or i32"))?;
        self.expect("[")?;
        let mut shape = Vec::new();
        if self.eat("]") {
            return Ok(Type { dtype, shape });
        }
        loop {
            shape.push(self.size()?);
            if !self.eat(",") {
                self.expect("]")?;
                return Ok(Type { dtype, shape });
            }
        }
    }

    fn size(&mut self) -> Result<Dim, Error> {
        let mut negative = self.eat("-");
        let mut size = Dim::default();
        for _ in 0..LONGEST {
            size = &size + &self.term(negative)?;
            negative = self.peek() == Some('-');
            if !self.eat("-") && !self.eat("+") {
                return Ok(size);
            }
        }
        Err(self.wrong(&format!("at most {LONGEST} terms")))
    }

    fn term(&mut self, negative: bool) -> Result<Dim, Error> {
        let sign = if negative { -1 } else { 1 };
        let mut term = match self.peek() {
            Some(c) if c.is_ascii_digit() => Dim::fixed(self.signed(negative, "a size")?),
            _ => &Dim::fixed(sign) * &Dim::symbol(&self.name()?),
        };
        for _ in 0..LONGEST {
            if !self.eat("*") {
                return Ok(term);
            }
            term = &term * &Dim::symbol(&self.name()?);
        }
        Err(self.wrong(&format!("at most {LONGEST} factors")))
    }
}

/// The operations of which nothing but a name is to be said.
fn plain(name: &str) -> Option<Op> {
    let unary = called(&Unary::NAMES, name).map(Op::Unary);
    let binary = called(&Binary::NAMES, name).map(Op::Binary);
    let compare = called(&Compare::NAMES, name).map(Op::Compare);
    let others = [Op::Cast, Op::Detach, Op::Select, Op::Matmul, Op::Gather, Op::ScatterAdd];
    let mut others = others.into_iter().chain([Op::Reshape, Op::Broadcast]);
    unary.or(binary).or(compare).or_else(|| others.find(|op| op.name() == name))
}

/// What a table has under a name.
fn called<T: Copy>(names: &[(T, &str)], name: &str) -> Option<T> {
    names.iter().find(|(_, one)| *one == name).map(|(one, _)| *one)
}

/// The words.
impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Where the next word begins.
    fn next(&mut self) -> usize {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.at
    }

    fn peek(&mut self) -> Option<char> {
        self.next();
        self.rest().chars().next()
    }

    /// The longest run of characters of a kind.
    fn run(&mut self, kind: impl Fn(char) -> bool) -> &'a str {
        self.next();
        let rest = self.rest();
        let run = &rest[..rest.find(|c| !kind(c)).unwrap_or(rest.len())];
        self.at += run.len();
        run
    }

    fn word(&mut self) -> &'a str {
        self.run(in_word)
    }

    fn eat(&mut self, sign: &str) -> bool {
        self.next();
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let start = self.next();
        let found = self.word() == word;
        self.at = if found { self.at } else { start };
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Error> {
        if self.eat(sign) { Ok(()) } else { Err(self.wrong(&format!("`{sign}`"))) }
    }

    fn keyword(&mut self, word: &str) -> Result<(), Error> {
        if self.eat_word(word) { Ok(()) } else { Err(self.wrong(&format!("`{word}`"))) }
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.peek().is_none() { Ok(()) } else { Err(self.wrong("nothing more")) }
    }

    fn reference(&mut self) -> Result<Id, Error> {
        let start = self.next();
        self.expect("%")?;
        let number = self.word().parse();
        number.map(Id).map_err(|_| self.wrong_at(start, "a node such as %0"))
    }

    fn count(&mut self) -> Result<usize, Error> {
        let start = self.next();
        let number = self.word().parse();
        number.map_err(|_| self.wrong_at(start, "a number from 0 on"))
    }

    fn number(&mut self, need: &str) -> Result<i64, Error> {
        let negative = self.eat("-");
        self.signed(negative, need)
    }

    /// A number after its sign.
    fn signed(&mut self, negative: bool, need: &str) -> Result<i64, Error> {
        let start = self.next();
        let digits = self.run(|c| c.is_ascii_digit());
        let number = digits.parse().ok().and_then(|number: u64| {
            let number = i128::from(number);
            i64::try_from(if negative { -number } else { number }).ok()
        });
        number.ok_or_else(|| self.wrong_at(start, &format!("{need} of 64 bits")))
    }

    fn float(&mut self) -> Result<f64, Error> {
        let start = self.next();
        if self.eat("nan(0x") {
            let bits = u64::from_str_radix(self.word(), 16).map(f64::from_bits);
            let value = bits.ok().filter(|value| value.is_nan());
            self.expect(")")?;
            return value.ok_or_else(|| self.wrong_at(start, "the bits of a NaN"));
        }
        let value = self.run(|c| in_path(c) || c == '-' || c == '+').parse();
        value.map_err(|_| self.wrong_at(start, "a number such as 0.5, inf or nan"))
    }

    /// A symbol.
    fn name(&mut self) -> Result<String, Error> {
        match self.peek() {
            Some('"') => self.string(),
            Some(c) if in_word(c) && !c.is_ascii_digit() => Ok(self.word().to_owned()),
            _ => Err(self.wrong("a symbol")),
        }
    }

    /// The part of a model.
    fn path(&mut self) -> Result<String, Error> {
        match self.peek() {
            Some('"') => self.string(),
            Some(c) if in_path(c) => Ok(self.run(in_path).to_owned()),
            _ => Err(self.wrong("a part of the model")),
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        let start = self.next();
        if !self.eat("\"") {
            return Err(self.wrong("a name in quotes"));
        }
        let mut string = String::new();
        loop {
            let plain =
                self.rest().find(['"', '\\']).ok_or_else(|| self.wrong_at(start, "a closing quote"))?;
            string.push_str(&self.rest()[..plain]);
            self.at += plain;
            if self.eat("\"") {
                return Ok(string);
            }
            string.push(self.escaped()?);
        }
    }

    /// The character that a backslash and what follows it stand for.
    fn escaped(&mut self) -> Result<char, Error> {
        let (start, rest) = (self.at, &self.rest()[1..]);
        let (c, len) = match rest.chars().next() {
            Some('n') => (Some('\n'), 1),
            Some(c @ ('"' | '\\')) => (Some(c), 1),
            _ => match rest.strip_prefix("u{").and_then(|rest| rest.split_once('}')) {
                Some((code, _)) => (code_point(code), code.len() + 3),
                None => (None, 0),
            },
        };
        self.at += 1 + len;
        c.ok_or_else(|| self.wrong_at(start, "\\\", \\\\, \\n or \\u{..}"))
    }

    /// The error that something else is needed here.
    fn wrong(&mut self, need: &str) -> Error {
        let at = self.next();
        self.wrong_at(at, need)
    }

    fn wrong_at(&self, at: usize, need: &str) -> Error {
        self.fault.set(Some(at));
        let fault = Fault::Text { got: shown(&self.text[at..]), need: need.to_owned() };
        Error { at: self.line(at), fault, source: None }
    }

    /// An error of what begins there, with its line.
    fn fault_at(&self, at: usize, error: Error) -> Error {
        self.fault.set(Some(at));
        Error { at: format!("{}: {}", self.line(at), error.at), ..error }
    }

    fn line(&self, at: usize) -> String {
        format!("line {}", self.text[..at].matches('\n').count() + 1)
    }
}

/// The character of a hexadecimal number.
fn code_point(code: &str) -> Option<char> {
    u32::from_str_radix(code, 16).ok().and_then(char::from_u32)
}

/// What stands there, as an error shows it.
fn shown(text: &str) -> String {
    let kind = text.chars().next().map(in_word);
    let len =
        |(i, c): (usize, char)| (i > 0 && (Some(in_word(c)) != kind || kind == Some(false))).then_some(i);
    let end = text.char_indices().find_map(len).unwrap_or(text.len());
    match text[..end].char_indices().nth(32) {
        _ if text.is_empty() => "the end of the text".to_owned(),
        Some((cut, _)) => format!("`{}..`", text[..cut].escape_debug()),
        None => format!("`{}`", text[..end].escape_debug()),
    }
}
