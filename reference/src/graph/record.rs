//! What stands behind the handles.
//!
//! A program over handles is an ordinary function, so it can do more than a graph says: look at a value, ask for an
//! address, call into a library, ask the host, overwrite a tensor. A recorder hears of each of these; what it makes of
//! them is its own matter. One that only notes down ([`Builder`](super::Builder)) answers with an error, one that runs
//! everything at once ([`Eager`](super::Eager)) does them.

use std::panic::Location;

use super::{Array, Facts, Op, Type};

/// Who does what the handles ask for. `at` is always the line that asks.
pub trait Record {
    /// Does an operation on earlier results and says where the result is and of which type; nothing, if it cannot: the
    /// reason is the recorder's to keep.
    fn apply(
        &mut self,
        op: Op,
        inputs: &[usize],
        ty: Option<Type>,
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)>;

    /// The values of a result, for the program to look at; nothing, if there are none yet.
    fn read(&mut self, place: usize, at: &'static Location<'static>) -> Option<Vec<f64>>;

    /// The address of a result; nothing, if it has none yet.
    fn pointer(&mut self, place: usize, at: &'static Location<'static>) -> Option<usize>;

    /// Calls a function that a graph has no operation for, and says where its result is and of which type.
    fn foreign(
        &mut self,
        call: &Foreign,
        inputs: &[usize],
        at: &'static Location<'static>,
    ) -> Option<(usize, Type)>;

    /// Whether it does what a graph cannot say, instead of refusing it.
    fn does(&self) -> bool {
        true
    }

    /// Does something on the host: `run` does it, and gives the number that comes of it.
    fn host(
        &mut self,
        host: Host,
        name: &str,
        run: &dyn Fn() -> f64,
        at: &'static Location<'static>,
    ) -> Option<f64>;

    /// Overwrites a result with another of the same type.
    fn write(&mut self, place: usize, value: usize, at: &'static Location<'static>);

    /// Declares what is known of a symbol.
    fn know(&mut self, symbol: &str, facts: Facts);

    /// Names a result.
    fn output(&mut self, name: &str, place: usize);

    /// Begins a part of the model.
    fn enter(&mut self, part: &str);

    /// Ends the part begun last.
    fn leave(&mut self);
}

/// A function that a graph has no operation for.
pub struct Foreign<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What it gives.
    pub ty: &'a Type,
    /// What it does, on values: one for each input.
    pub run: &'a dyn Fn(&[Array<f32>]) -> Array<f32>,
}

/// What a program can do on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Host {
    /// Reads a clock.
    Clock,
    /// Draws from a random generator, or keeps its state.
    Random,
    /// Reads the environment or a file.
    Environment,
    /// Writes to a log or a terminal.
    Print,
    /// Asks or sets the device, its stream, its memory.
    Device,
    /// Makes an object of another library.
    Object,
    /// Sets a field that outlives the step.
    State,
}

impl Host {
    /// What it does, as a sentence goes on after "the host".
    pub fn does(self) -> &'static str {
        match self {
            Host::Clock => "reads a clock",
            Host::Random => "uses a random generator",
            Host::Environment => "reads its environment",
            Host::Print => "writes to a log",
            Host::Device => "asks or sets its device",
            Host::Object => "makes an object of another library",
            Host::State => "sets a field that outlives the step",
        }
    }
}
