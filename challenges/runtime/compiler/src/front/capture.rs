//! Records a program as a graph, and names what cannot be recorded.
//!
//! A program over handles ([`Tape`]) is an ordinary function. What it asks of the handles becomes nodes. What no node
//! says is a *break*: it looks at a value that does not exist yet, asks for an address, calls into a library, asks the
//! host, overwrites a tensor. Capture goes on after a break, so that one run names them all: what a library would have
//! given is a fresh input `break.N`, where N counts the breaks from 0; what the host answers is taken as it is, and so
//! baked into the graph; what is overwritten is from then on the new value.
//!
//! These are the breaks of this recorder. Another front end has others: one that interprets the program, as Dynamo
//! does, records writes and sets fields after the graph (`tests/peers/graph_breaks.py` lists what it does).
//!
//! With examples, a read is answered by interpreting what is recorded so far; without, it gives nothing. The graph is
//! the program as it went this time. Only where there are no breaks is that how it goes every time.
//!
//! [`explain`](crate::front::explain) says what a break is and how it is cured, [`change`](crate::front::change) why
//! the same program gave another graph.
//!
//! Sources: Ansel et al., "`PyTorch` 2" (2024), section 3, for capture with breaks and guards.

use std::panic::Location;

use reference::graph::Graph;

use crate::front::explain::Break;

/// A recorded program.
#[derive(Clone, Debug)]
pub struct Capture {
    /// What it computes.
    pub graph: Graph,
    /// What it does beside that, in the order in which it does it.
    pub breaks: Vec<Break>,
    /// The line that asked for each node.
    pub lines: Vec<&'static Location<'static>>,
}
