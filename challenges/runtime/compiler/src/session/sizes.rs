//! The sizes of a run: those of its inputs, and the buckets that they are rounded up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use reference::graph::{Graph, Id, Symbol};

use super::{DeviceTensor, Error, InputShape, Io, Loaded, Program, Resolved, Session, Sizes};
use crate::compile;
use crate::ir::sized;

impl Session<'_> {
    /// The size of each symbol, the size that is compiled, and what is. A rank that has none tells the others.
    pub(super) fn sized(&mut self, program: Program, io: &Io<'_>) -> Result<Arc<Resolved>, Error> {
        let message = self.others(program);
        let sized = self.as_before(program, io).map_or_else(|| self.resolve(program, io).map(Arc::new), Ok);
        let sized = sized.and_then(|resolved| {
            let collectives = &self.loaded[program.0].collectives;
            collectives.agree(&self.groups, &resolved.sizes).map_err(Error::Groups)?;
            self.counters.hits += usize::from(self.ensure_ready(program, &resolved.rounded)?);
            Ok(resolved)
        });
        sized.inspect_err(|error| message.abort(&error.to_string()))
    }

    /// What follows from the sizes of the run before, if this one has the same.
    fn as_before(&self, program: Program, io: &Io<'_>) -> Option<Arc<Resolved>> {
        let last = self.loaded[program.0].last.as_ref()?;
        let is_same = |given: &InputShape| {
            let found = self.input(&given.name, io);
            found.is_ok_and(|found| found.shape == given.shape && found.buffer.bytes() == given.bytes)
        };
        (last.given == io.sizes && last.inputs.iter().all(is_same)).then(|| Arc::clone(last))
    }

    /// The size of each symbol, and the size that is compiled: its bucket. Every input fits one of both.
    fn resolve(&self, program: Program, io: &Io<'_>) -> Result<Resolved, Error> {
        let sizes = self.sizes(program, io)?;
        let rounded = self.rounded(program, &sizes)?;
        let graph = &self.loaded[program.0].graph;
        let mut inputs = Vec::new();
        for (name, id) in graph.inputs() {
            let given = self.input(name, io)?;
            let is_compiled = shape(graph, id, &rounded).is_ok_and(|padded| padded == given.shape);
            let has_bucket = is_compiled && !io.sizes.is_empty();
            fits(graph, name, id, given, if has_bucket { &rounded } else { &sizes })?;
            let (name, shape, bytes) = (name.to_owned(), given.shape.clone(), given.buffer.bytes());
            inputs.push(InputShape { name, shape, bytes, is_padded: !is_compiled });
        }
        let outputs = graph.outputs().iter().map(|(name, id)| Ok((name.clone(), shape(graph, *id, &sizes)?)));
        let outputs = outputs.collect::<Result<_, Error>>()?;
        let key = rounded.values().copied().collect();
        Ok(Resolved { given: io.sizes.clone(), inputs, sizes, rounded, key, outputs })
    }

    /// The size of each symbol: as it is given, or else as the groups and the inputs have it.
    pub(super) fn sizes(&self, program: Program, io: &Io<'_>) -> Result<Sizes, Error> {
        let Loaded { graph, collectives, fixed, .. } = &self.loaded[program.0];
        let mut sizes = fixed.clone();
        sizes.extend(io.sizes.clone());
        collectives.bind(&self.groups, &mut sizes).map_err(Error::Groups)?;
        for (name, id) in graph.inputs() {
            for (dim, size) in graph.ty(id).shape.iter().zip(&self.input(name, io)?.shape) {
                if let Some(symbol) = dim.as_symbol() {
                    sizes.entry(symbol.clone()).or_insert(*size as i64);
                }
            }
        }
        for (symbol, size) in &sizes {
            let facts = graph.known().get(symbol);
            if let Some(facts) = facts.filter(|facts| !facts.hold(*size)) {
                return Err(Error::Size { symbol: symbol.clone(), got: *size, need: facts.to_string() });
            }
        }
        Ok(sizes)
    }

    /// An input of a run, wherever it comes from.
    pub(super) fn input<'b>(&'b self, name: &str, io: &'b Io<'_>) -> Result<&'b DeviceTensor, Error> {
        let donated = || io.donated.get(name).map(|tensor| &**tensor);
        let found = io.inputs.get(name).copied().or_else(donated).or_else(|| self.kept.get(name));
        found.ok_or_else(|| Error::Missing { name: name.to_owned() })
    }

    /// The sizes that a program is compiled for when its symbols have these, all of them: each rounded up to its
    /// bucket, or, once sealed, to what is compiled, if anything holds them.
    ///
    /// # Errors
    /// If a size is larger than every bucket.
    pub fn rounded(
        &self,
        program: Program,
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<BTreeMap<Symbol, i64>, Error> {
        let round = |(symbol, size): (&Symbol, &i64)| {
            let Some(buckets) = self.loaded[program.0].buckets.get(symbol) else {
                return Ok((symbol.clone(), *size));
            };
            let (bucket, symbol) = (buckets.iter().find(|bucket| *bucket >= size), symbol.clone());
            match bucket {
                Some(bucket) => Ok((symbol, *bucket)),
                None => Err(Error::Buckets { symbol, size: *size, buckets: buckets.clone() }),
            }
        };
        let rounded: Sizes = sizes.iter().map(round).collect::<Result<_, _>>()?;
        let compiled = if self.sealed { self.compiled_for(program, &rounded) } else { None };
        Ok(compiled.unwrap_or(rounded))
    }

    /// The smallest sizes that are compiled and hold these: a symbol without buckets has to have its own size. `None`
    /// if none do.
    fn compiled_for(&self, program: Program, sizes: &Sizes) -> Option<Sizes> {
        let Loaded { ready, buckets, .. } = &self.loaded[program.0];
        let holds =
            |key: &&Vec<i64>| {
                let mut pairs = sizes.iter().zip(key.iter());
                key.len() == sizes.len()
                    && pairs.all(|((symbol, size), compiled)| {
                        if buckets.contains_key(symbol) { compiled >= size } else { compiled == size }
                    })
            };
        let waste = |key: &&Vec<i64>| key.iter().fold(1_i64, |all, size| all.saturating_mul(*size));
        let key = ready.keys().filter(holds).min_by_key(waste)?;
        Some(sizes.keys().cloned().zip(key.iter().copied()).collect())
    }
}

impl Resolved {
    /// Whether every input has the size that is compiled: nothing of it is copied.
    pub(super) fn is_given_as_compiled(&self) -> bool {
        self.inputs.iter().all(|input| !input.is_padded)
    }
}

/// Whether an input has the dimensions and the bytes of its type.
fn fits(graph: &Graph, name: &str, id: Id, given: &DeviceTensor, sizes: &Sizes) -> Result<(), Error> {
    let ty = graph.ty(id);
    let bytes = given.shape.iter().product::<usize>() * ty.dtype.bytes();
    let is_shaped = ty.shape.len() == given.shape.len() && shape(graph, id, sizes)? == given.shape;
    if is_shaped && given.buffer.bytes() == bytes {
        return Ok(());
    }
    Err(Error::Shape { name: name.to_owned(), got: given.shape.clone(), need: ty.to_string() })
}

/// A node's dimensions in numbers.
pub(super) fn shape(graph: &Graph, id: Id, sizes: &Sizes) -> Result<Vec<usize>, Error> {
    sized::shape(graph, id, sizes).map_err(|error| Error::Compile(compile::Error::Graph(error)))
}
