//! Compiling, tuning and preparing a program for the sizes of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use kernels::Links;
use kernels::plan::Step;
use reference::graph::Symbol;

use super::{Error, Io, Launches, Program, Ready, Session, Sizes};
use crate::compile::{Compiled, compile};
use crate::store::Found;

impl<'a> Session<'a> {
    /// A plan with its callee and its groups, on the device.
    pub(super) fn ready(&self, compiled: Arc<Compiled>) -> Result<Ready<'a>, Error> {
        let groups = self.groups.links(compiled.axes()).map_err(Error::Groups)?;
        let ranks: Vec<usize> = groups.iter().skip(1).map(|group| group.rank()).collect();
        let links = Links { callees: &[self.dequantizer], groups: &groups };
        let executable = self.device.prepare(compiled.plan_on_rank(&ranks), &links).map_err(Error::Device)?;
        let launches = Launches::of(&compiled);
        Ok(Ready { compiled, executable, launches })
    }

    /// What is compiled for the sizes of some inputs; compiles it, if need be.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn compiled(&mut self, program: Program, io: &Io<'_>) -> Result<Arc<Compiled>, Error> {
        let resolved = self.sized(program, io)?;
        Ok(self.loaded[program.0].ready[&resolved.key].compiled.clone())
    }

    /// Compiles and prepares a program for the sizes of some symbols, if need be, before a run has them. Ranks prepare
    /// what they do together at the same time: one that will not run these sizes calls this where another one does.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn prepare_for(&mut self, program: Program, sizes: &BTreeMap<Symbol, i64>) -> Result<(), Error> {
        let mut all = self.loaded[program.0].fixed.clone();
        all.extend(sizes.clone());
        self.loaded[program.0].collectives.bind(&self.groups, &mut all).map_err(Error::Groups)?;
        let rounded = self.rounded(program, &all)?;
        let message = self.others(program);
        self.ensure_ready(program, &rounded)
            .map(|_| ())
            .inspect_err(|error| message.abort(&error.to_string()))
    }

    /// What is compiled of a program so far, by the sizes of its symbols.
    pub fn all_compiled(&self, program: Program) -> impl Iterator<Item = &Arc<Compiled>> {
        self.loaded[program.0].ready.values().map(|ready| &ready.compiled)
    }

    /// Compiles for these sizes, which are buckets, if need be; whether that was done already.
    pub(super) fn ensure_ready(&mut self, program: Program, rounded: &Sizes) -> Result<bool, Error> {
        let key: Vec<i64> = rounded.values().copied().collect();
        let is_there = self.loaded[program.0].ready.contains_key(&key);
        if !is_there {
            let ready = self.prepare(program, rounded)?;
            self.loaded[program.0].ready.insert(key, ready);
        }
        Ok(is_there)
    }

    /// Compiles, tunes and prepares a program for some sizes.
    fn prepare(&mut self, program: Program, sizes: &Sizes) -> Result<Ready<'a>, Error> {
        if self.sealed {
            let names: Vec<&Symbol> = sizes.keys().collect();
            let compiled = self.loaded[program.0].ready.keys().map(|key| listed(&names, key)).collect();
            let key: Vec<i64> = sizes.values().copied().collect();
            return Err(Error::Sealed { sizes: listed(&names, &key), compiled });
        }
        let start = Instant::now();
        let (padded, options) = (&self.loaded[program.0].padded, self.settings.passes(self.device));
        let found = self.store.get(padded, sizes, options, || compile(self.passes, padded, sizes, options));
        let Found { mut compiled, was_there } = found.map_err(Error::Compile)?;
        if self.settings.level.tunes() {
            let tuned = Arc::make_mut(&mut compiled);
            tuned.tune(self.passes, self.device, &mut self.tuned).map_err(Error::Device)?;
        }
        if let Some(path) = &self.settings.tuned {
            self.tuned.write(path).map_err(Error::Tuned)?;
        }
        let ready = self.ready(compiled)?;
        self.counters.compilations += usize::from(!was_there);
        self.counters.compiling += start.elapsed();
        (self.counters.trials, self.counters.tuning) = (self.tuned.trials, self.tuned.time);
        Ok(ready)
    }
}

impl Launches {
    pub(super) fn of(compiled: &Compiled) -> Self {
        let steps = &compiled.plan().steps;
        let program = |step: &Step| match step {
            Step::Pass { program, .. } => Some(Arc::as_ptr(program) as usize),
            _ => None,
        };
        let programs: BTreeSet<usize> = steps.iter().filter_map(program).collect();
        let dequantized = steps.iter().filter(|step| matches!(step, Step::Call { .. })).count();
        Self { all: steps.len(), programs: programs.len(), dequantized }
    }
}

fn listed(names: &[&Symbol], sizes: &[i64]) -> String {
    let one = |(name, size): (&&Symbol, &i64)| format!("{name} = {size}");
    names.iter().zip(sizes).map(one).collect::<Vec<_>>().join(", ")
}
