//! What a break is, read like a compiler's error: the line, what it does, the fact that failed, the cure.
//!
//! The fact is stated with the types and values at hand. The cure follows from them too: it is the one change of the
//! program that leaves its meaning and takes the break away, and [`zoo`](crate::zoo) shows each one made.

use std::fmt;
use std::fs;
use std::panic::Location;
use std::path::Path;

use reference::graph::{Array, Dim, Dtype, Foreign, Graph, Host, Id, Op, Type};

/// Something that a program does and no node says.
#[derive(Clone, Debug, PartialEq)]
pub struct Break {
    /// The line that does it.
    pub at: &'static Location<'static>,
    /// Of which kind it is.
    pub kind: Kind,
    /// What is done, to what.
    pub what: String,
    /// Why that cannot be recorded, with the types and values at hand.
    pub fact: String,
    /// What to write instead.
    pub cure: &'static str,
}

/// The kinds of breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Values are read on the host.
    Read,
    /// An address is asked for.
    Pointer,
    /// A function is called that the graph has no operation for.
    Foreign,
    /// The host is asked, or told.
    Host(Host),
    /// A tensor is overwritten.
    Write,
}

impl Break {
    /// The values of a node are read; `value` is what the examples make of it.
    pub fn read(graph: &Graph, id: Id, value: Option<&Array<f32>>, at: &'static Location<'static>) -> Self {
        let ty = graph.ty(id);
        let now = value.map_or("there are no examples to answer with".to_owned(), seen);
        Self {
            at,
            kind: Kind::Read,
            what: format!("the values of {} are read", named(graph, id)),
            fact: format!("{ty} is there when the graph runs, not while it is recorded; {now}"),
            cure: cure_of_read(ty),
        }
    }

    /// The address of a node is asked for.
    pub fn pointer(graph: &Graph, id: Id, at: &'static Location<'static>) -> Self {
        let ty = graph.ty(id);
        Self {
            at,
            kind: Kind::Pointer,
            what: format!("the address of {} is asked for", named(graph, id)),
            fact: format!("{ty} gets its place when the whole graph is known; until then it has no address"),
            cure: match ty.dtype {
                Dtype::U8 => "give the tensor itself to an operation: `dequantize` reads packed weights",
                _ => {
                    "give the tensor itself to an operation; an alignment is a fact of a size (`multiple_of`)"
                }
            },
        }
    }

    /// A function is called on inputs of these types.
    pub fn foreign(call: &Foreign, inputs: &[&Type], at: &'static Location<'static>) -> Self {
        let types: Vec<String> = inputs.iter().map(ToString::to_string).collect();
        let signature = format!("({}) -> {}", types.join(", "), call.ty);
        Self {
            at,
            kind: Kind::Foreign,
            what: format!("`{}` is called", call.name),
            fact: format!("no operation of the graph is this one: {signature}"),
            cure: cure_of_call(inputs, call.ty),
        }
    }

    /// The host is asked or told something, and answers.
    pub fn host(host: Host, name: &str, answer: f64, at: &'static Location<'static>) -> Self {
        let fact = match host {
            Host::Clock | Host::Random | Host::Environment => {
                format!("it answered {answer} while the graph was recorded, and no later step asks again")
            }
            _ => "it happens once, while the graph is recorded, and in no later step".to_owned(),
        };
        let what = format!("the host {}: `{name}`", host.does());
        Self { at, kind: Kind::Host(host), what, fact, cure: cure_of_host(host) }
    }

    /// A node is overwritten.
    pub fn write(graph: &Graph, id: Id, at: &'static Location<'static>) -> Self {
        let is_input = matches!(graph.node(id).op, Op::Input { .. });
        let owner = if is_input { "an input stays the caller's" } else { "a node keeps its value" };
        Self {
            at,
            kind: Kind::Write,
            what: format!("the elements of {} are overwritten", named(graph, id)),
            fact: format!("{owner}: {} is there, and may be read, until the step ends", graph.ty(id)),
            cure: if is_input {
                "name the new value an output, and hand it in as the input of the next step"
            } else {
                "go on with the handle of the new value: `select` changes some elements and keeps the others"
            },
        }
    }
}

/// A node, and where in the model it is.
pub(super) fn named(graph: &Graph, id: Id) -> String {
    let scope = &graph.node(id).scope;
    let within = if scope.is_empty() { String::new() } else { format!(" in {scope}") };
    format!("`{}`{within}", graph.site(id))
}

/// What the examples make of a node: a number as it is, of more the first three.
fn seen(value: &Array<f32>) -> String {
    let values = value.wide();
    let first: Vec<String> = values.iter().take(3).map(|value| rounded(*value)).collect();
    let more = if values.len() > first.len() { ", .." } else { "" };
    format!("from the examples it is {}{more}", first.join(", "))
}

/// A number in four digits.
fn rounded(value: f64) -> String {
    format!("{value:.3e}").parse::<f64>().unwrap_or(value).to_string()
}

/// A condition is computed, a number stays a tensor, and what is only looked at is looked at afterwards.
fn cure_of_read(ty: &Type) -> &'static str {
    let single = ty.shape.iter().all(Dim::is_one);
    match ty.dtype {
        Dtype::U8 => "compute both sides, and let `select` take one by this condition",
        Dtype::I32 => {
            "keep the index a tensor: `gather`, `equal` and `less` take it; a size that depends on data becomes the \
             largest size and a mask"
        }
        _ if single => {
            "keep the number a tensor: `select`, `min` or `max` in place of `if`; to look at it, name it an output"
        }
        _ => "name it an output, and look at it after the step",
    }
}

/// What a call stands for shows in its types.
fn cure_of_call(inputs: &[&Type], output: &Type) -> &'static str {
    let of_bytes = inputs.iter().any(|ty| ty.dtype == Dtype::U8);
    let symbols = |ty: &Type| ty.shape.iter().flat_map(Dim::symbols).cloned().collect::<Vec<_>>();
    let known: Vec<_> = inputs.iter().flat_map(|ty| symbols(ty)).collect();
    if symbols(output).iter().any(|symbol| !known.contains(symbol)) {
        return "keep every row, and let a mask `select` which of them count: then the size does not depend on data";
    }
    match output.dtype {
        Dtype::U8 if of_bytes => {
            "bytes of two codes are no matrix: `dequantize` first, then transpose what comes of it (`t`)"
        }
        Dtype::U8 => "a mask is a program of (query, key): give it to the attention (`programs::mask`)",
        _ if of_bytes => {
            "use the operation `dequantize`, which has the bits of the format, and what follows it as operations"
        }
        _ if inputs.len() >= 3 && inputs[..3].iter().all(|ty| ty.rank() == 4) => {
            "use the operation `attention`; masks and changes of scores are its programs"
        }
        _ if inputs == [output] => "leave it out, or name the tensor an output and call it after the step",
        _ => {
            "write it with the graph's operations, which have derivatives; what needs no gradient may be done before \
             the step and handed in"
        }
    }
}

fn cure_of_host(host: Host) -> &'static str {
    match host {
        Host::Clock => "take the time before and after the step, not within",
        Host::Random => "draw before the step, and hand in what was drawn",
        Host::Environment => "read it once, before recording, and make it a setting of the program",
        Host::Print => "print before or after the step; what is to be shown is named an output",
        Host::Device => "the plan chooses device, stream and memory: ask before or after the step",
        Host::Object => "state the number itself: a setting of an operation is part of the graph",
        Host::State => "settle it before recording; what a later step needs is an output",
        _ => "do it before or after the step",
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "break: {}", self.what)?;
        line(f, self.at)?;
        writeln!(f, "fact: {}", self.fact)?;
        write!(f, "cure: {}", self.cure)
    }
}

/// A line of a program: where it is and, where its file can be read, what it says.
pub(super) fn line(f: &mut fmt::Formatter<'_>, at: &Location) -> fmt::Result {
    writeln!(f, "  --> {}:{}:{}", at.file().replace('\\', "/"), at.line(), at.column())?;
    let Some(text) = text(at) else { return Ok(()) };
    let number = at.line().to_string();
    let margin = " ".repeat(number.len());
    let before = " ".repeat(at.column() as usize - 1);
    writeln!(f, "{number} | {text}\n{margin} | {before}^")
}

/// The text of a line. The compiler notes a file by its path from the workspace, so it is looked for from here upwards.
fn text(at: &Location) -> Option<String> {
    let here = std::env::current_dir().ok()?;
    let file =
        here.ancestors().map(|folder| folder.join(Path::new(at.file()))).find(|file| file.is_file())?;
    let text = fs::read_to_string(file).ok()?;
    text.lines().nth(at.line() as usize - 1).map(str::to_owned)
}
