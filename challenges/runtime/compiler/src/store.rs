//! What is compiled once for several sessions, the ranks of a process.
//!
//! ```text
//! rank 0   layer, 4 x 128 -> compiles        layer, 4 x 64  -> waits, and has it
//! rank 1   layer, 4 x 128 -> waits, has it   layer, 4 x 64  -> compiles
//! ```
//!
//! Ranks that compute alike load equal graphs, and a plan is the same on all of them but for the peers of its messages,
//! which a session fills in. Whoever asks first compiles, and whoever asks meanwhile waits for that one program alone.
//! A compilation that fails leaves nothing behind: the next to ask tries by itself, and has the error itself.
//!
//! A prepared plan belongs to a device and to the ranks it is linked with, so each session prepares its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use reference::graph::{Graph, Symbol};

use crate::compile::{Compiled, Error, Options};

/// What is compiled already. Clones are one store. Sessions that share one have the same passes.
#[derive(Clone, Default)]
pub struct Store(Arc<Mutex<Vec<Entry>>>);

struct Entry {
    graph: Arc<Graph>,
    sizes: BTreeMap<Symbol, i64>,
    options: Options,
    slot: Slot,
}

/// Empty until somebody has compiled it; locked while somebody does.
type Slot = Arc<Mutex<Option<Arc<Compiled>>>>;

/// A program of a store, and whether it was there.
pub(crate) struct Found {
    pub compiled: Arc<Compiled>,
    pub was_there: bool,
}

impl Store {
    /// How many programs are compiled.
    pub fn len(&self) -> usize {
        let slots: Vec<Slot> =
            self.entries(|entries| entries.iter().map(|entry| entry.slot.clone()).collect());
        slots.iter().filter(|slot| locked(slot, |compiled| compiled.is_some())).count()
    }

    /// Whether nothing is compiled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is compiled of a graph for some sizes; `compile` makes it, if nobody has.
    pub(crate) fn get(
        &self,
        graph: &Arc<Graph>,
        sizes: &BTreeMap<Symbol, i64>,
        options: Options,
        compile: impl FnOnce() -> Result<Compiled, Error>,
    ) -> Result<Found, Error> {
        let slot = self.slot(graph, sizes, options);
        locked(&slot, |compiled| {
            if let Some(compiled) = compiled {
                return Ok(Found { compiled: compiled.clone(), was_there: true });
            }
            let new = Arc::new(compile()?);
            *compiled = Some(new.clone());
            Ok(Found { compiled: new, was_there: false })
        })
    }

    fn slot(&self, graph: &Arc<Graph>, sizes: &BTreeMap<Symbol, i64>, options: Options) -> Slot {
        self.entries(|entries| {
            let is_it =
                |entry: &&Entry| entry.options == options && entry.sizes == *sizes && entry.graph == *graph;
            if let Some(entry) = entries.iter().find(is_it) {
                return entry.slot.clone();
            }
            let slot = Slot::default();
            let (graph, sizes) = (graph.clone(), sizes.clone());
            entries.push(Entry { graph, sizes, options, slot: slot.clone() });
            slot
        })
    }

    fn entries<T>(&self, act: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        locked(&self.0, act)
    }
}

/// What a panic of another session has left is as good as before: an empty slot, or a program.
fn locked<V, T>(mutex: &Mutex<V>, act: impl FnOnce(&mut V) -> T) -> T {
    act(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner))
}
