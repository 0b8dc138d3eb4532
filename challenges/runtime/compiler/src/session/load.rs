//! Loading graphs: their padded forms, and the buckets of their symbols.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reference::graph::{Dim, Facts, Graph, Symbol};

use super::{Error, Loaded, Program, Session, Sizes};
use crate::compile::Compiled;
use crate::groups::{Collectives, sizes_of_groups};
use crate::rewrite::pad;

impl Session<'_> {
    /// Takes a graph to be run later. Nothing is compiled yet.
    ///
    /// # Errors
    /// Where a symbol cannot be padded, or its buckets are not what they have to be.
    pub fn load(&mut self, graph: &Graph) -> Result<Program, Error> {
        let symbols: Vec<Symbol> = if self.settings.exact { Vec::new() } else { symbols(graph) };
        let collectives = Collectives::of(graph, &symbols);
        let padded = Arc::new(pad::pad(graph, &symbols).map_err(Error::Pad)?.graph);
        let buckets = symbols.into_iter().map(|symbol| self.chosen(graph, symbol));
        let buckets = buckets.collect::<Result<_, _>>()?;
        let (ready, staged) = (BTreeMap::new(), BTreeMap::new());
        let fixed = Sizes::new();
        let graph = graph.clone();
        self.loaded.push(Loaded { graph, padded, buckets, collectives, fixed, ready, staged, last: None });
        Ok(Program(self.loaded.len() - 1))
    }

    /// Takes what is compiled already, to be run at the sizes that it was compiled for.
    ///
    /// # Errors
    /// What the device says of the plan.
    pub fn load_compiled(&mut self, compiled: Compiled) -> Result<Program, Error> {
        let graph = compiled.graph.clone();
        let fixed = compiled.sizes().clone();
        let (key, ready) = (fixed.values().copied().collect(), self.ready(Arc::new(compiled))?);
        let (buckets, staged) = (BTreeMap::new(), BTreeMap::new());
        let padded = Arc::new(graph.clone());
        let ready = BTreeMap::from([(key, ready)]);
        let collectives = Collectives::of(&graph, &[]);
        self.loaded.push(Loaded { graph, padded, buckets, collectives, fixed, ready, staged, last: None });
        Ok(Program(self.loaded.len() - 1))
    }

    /// The sizes that a symbol is rounded up to.
    fn chosen(&self, graph: &Graph, symbol: Symbol) -> Result<(Symbol, Vec<i64>), Error> {
        let facts = graph.known().get(&symbol).copied();
        if let Some(buckets) = self.settings.buckets.get(&symbol) {
            return Ok((symbol, buckets.clone()));
        }
        let chosen = facts.map_or_else(Vec::new, |facts| self.passes.buckets(facts));
        check(&symbol, facts, &chosen)?;
        Ok((symbol, chosen))
    }
}

/// The symbols that some input has as a dimension, but for sizes of groups, which are what they are.
fn symbols(graph: &Graph) -> Vec<Symbol> {
    let dims = graph.inputs().flat_map(|(_, id)| &graph.ty(id).shape);
    let symbols: BTreeSet<&Symbol> = dims.filter_map(Dim::as_symbol).collect();
    symbols.difference(&sizes_of_groups(graph)).copied().cloned().collect()
}

/// That buckets grow, keep to the facts, and leave nothing out.
fn check(symbol: &Symbol, facts: Option<Facts>, buckets: &[i64]) -> Result<(), Error> {
    let Some(facts) = facts else { return Ok(()) };
    let wrong = |size: i64| Error::Buckets { symbol: symbol.clone(), size, buckets: buckets.to_vec() };
    if let Some(size) = buckets.iter().find(|size| !facts.hold(**size)) {
        return Err(wrong(*size));
    }
    if let Some(pair) = buckets.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(wrong(pair[1]));
    }
    let largest = facts.max / facts.multiple.max(1) * facts.multiple.max(1);
    if buckets.last() == Some(&largest) { Ok(()) } else { Err(wrong(largest)) }
}
