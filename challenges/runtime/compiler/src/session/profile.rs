//! What a run takes: the times of its steps and the bytes that it needs.

use std::collections::BTreeMap;
use std::time::Duration;

use reference::graph::Symbol;

use super::{Error, Io, Program, Session};
use crate::memory::profile::MemoryProfile;

impl Session<'_> {
    /// Bytes beside the arena and its tensors that runs with these sizes need of the device.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn scratch_bytes(&mut self, program: Program, io: &Io<'_>) -> Result<usize, Error> {
        let resolved = self.sized(program, io)?;
        Ok(self.loaded[program.0].ready[&resolved.key].executable.scratch_bytes())
    }

    /// The bytes alive during each step of a program, at any size: read from whatever is compiled of it. If nothing
    /// is, it is compiled for `sizes`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn memory_profile(
        &mut self,
        program: Program,
        sizes: &BTreeMap<Symbol, i64>,
    ) -> Result<MemoryProfile, Error> {
        if self.loaded[program.0].ready.is_empty() {
            let rounded = self.rounded(program, sizes)?;
            self.ensure_ready(program, &rounded)?;
        }
        let compiled = self.all_compiled(program).next();
        Ok(compiled.map(|compiled| compiled.memory_profile()).unwrap_or_default())
    }

    /// How long each step of a run took.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn profile<'r>(
        &'r mut self,
        program: Program,
        io: impl Into<Io<'r>>,
    ) -> Result<Vec<Duration>, Error> {
        let (mut before, mut times) = (self.device.clock(), Vec::new());
        let mut watch = |_: usize, now: Duration| {
            times.push(now.saturating_sub(before));
            before = now;
        };
        self.watched(program, io, Some(&mut watch))?;
        Ok(times)
    }
}
