//! A step: its micro-batches by a schedule, and its update.

use std::collections::BTreeMap;
use std::time::Instant;

use compiler::session::{DeviceTensor, Io};
use reference::schedule::{self, Operation, Schedule, Shape, one_f_one_b};

use super::flight::Flight;
use super::pipeline::{Line, one_by_one, read_only};
use super::{EventKind, Rank, Trace, recomputed};
use crate::shard::Error;
use crate::step::{Evaluated, Logged, Microbatch};

impl Rank<'_> {
    /// Adds the micro-batches of a step, those of all ranks, each with what the masks of its dropout are drawn from;
    /// `items` are the tokens that count in all of them. They are dealt out, and this rank computes its own.
    /// What is logged of each, on every rank.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn accumulate(&mut self, all: &[(Microbatch, [i32; 2])], items: u64) -> Result<Vec<Logged>, Error> {
        let done = self.add(all, items);
        self.tell(done)
    }

    fn add(&mut self, all: &[(Microbatch, [i32; 2])], items: u64) -> Result<Vec<Logged>, Error> {
        let deal = self.deal(all.iter().map(|(batch, _)| batch))?;
        if self.stages.stages() == 1 && self.room.activation_bytes > 0 {
            self.choose_activations()?;
        }
        self.work.factor = self.changes.factor() / self.place.at.sharing as f64; // each of them computes the loss
        let mut flights = Vec::new();
        for round in &deal {
            let flight = match round.own {
                Some(number) => self.flight(&all[number].0, items, all[number].1)?,
                None => self.flight(&Microbatch::padding(round.shape, &self.spec), items, [0; 2])?,
            };
            flights.push(flight);
        }
        match self.schedule(flights.len())? {
            Some(schedule) => {
                let operations = &schedule.ranks()[self.place.at.stage];
                self.run(operations, schedule.shape(), false, &mut flights)?;
            }
            None => self.run(&one_by_one(flights.len()), self.stages, false, &mut flights)?,
        }
        let results = self.in_turn(&flights, &deal, all.len())?;
        Ok(results.into_iter().map(|result| result.logged).collect())
    }

    /// The results of micro-batches that are only read, each with the tokens that count in it; on every rank. A and B
    /// are as they are now.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn evaluate(&mut self, all: &[(Microbatch, u64)]) -> Result<Vec<Evaluated>, Error> {
        let done = self.read(all);
        self.tell(done)
    }

    pub(super) fn read(&mut self, all: &[(Microbatch, u64)]) -> Result<Vec<Evaluated>, Error> {
        let deal = self.deal(all.iter().map(|(batch, _)| batch))?;
        let mut flights = Vec::new();
        for round in &deal {
            let flight = match round.own {
                Some(number) => self.flight(&all[number].0, all[number].1, [0; 2])?, // nothing is dropped
                None => self.flight(&Microbatch::padding(round.shape, &self.spec), 1, [0; 2])?,
            };
            flights.push(flight);
        }
        let (stages, count) = (self.stages, flights.len().max(1));
        let shape = Shape::new(stages.ranks(), stages.chunks(), count, stages.placement())?;
        self.run(&read_only(shape, self.place.at.stage, flights.len()), shape, true, &mut flights)?;
        self.in_turn(&flights, &deal, all.len())
    }

    /// The schedule of a step of so many micro-batches a lane, checked; `None` if there is one stage.
    pub(super) fn schedule(&self, micro_batches: usize) -> Result<Option<Schedule>, Error> {
        let shape =
            Shape::new(self.stages.ranks(), self.stages.chunks(), micro_batches, self.stages.placement())?;
        if shape.stages() == 1 {
            return Ok(None);
        }
        let (schedule, workload) = match self.pipeline {
            Some(pipeline) => ((pipeline.schedule)(shape, &pipeline.workload)?, pipeline.workload.clone()),
            None => (one_f_one_b(shape, &recomputed())?, recomputed()),
        };
        if schedule.shape() != shape {
            let (found, expected) = (schedule.shape().to_string(), shape.to_string());
            return Err(Error::Pipeline { found, expected });
        }
        schedule::check(&schedule, &workload)?;
        Ok(Some(schedule))
    }

    pub(super) fn run(
        &mut self,
        operations: &[Operation],
        shape: Shape,
        is_evaluation: bool,
        flights: &mut [Flight],
    ) -> Result<(), Error> {
        let (hidden, element) = (self.spec.config.hidden, self.spec.compute.bytes());
        let stream = |flight: &Flight| {
            let size = |symbol: &str| flight.compiled[symbol] as usize;
            (vec![size("B"), size("T"), hidden], element)
        };
        let line = Line {
            operations,
            shape,
            rank: self.place.at.stage,
            stages: self.place.stages.as_deref(),
            is_evaluation,
            buffered: self.pipeline.and_then(|it| it.workload.buffer).map_or(1, |buffer| buffer.chunks),
            stream: &stream,
            slots: self.pipeline.and_then(|it| it.slots),
        };
        self.work.trace = Trace::default();
        self.work.trace.operations = line.run(&mut self.work, flights)?;
        Ok(())
    }

    /// Ends a step; `step` counts the updates that were made, this one among them. The norm of its gradient before the
    /// bound, the same on every rank: where it is not finite, A, B and the moments are what they were, and the update
    /// is not to be counted.
    ///
    /// # Errors
    /// What the session says, or another rank.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let done = self.change(step, rate);
        self.tell(done)
    }

    fn change(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let rates = self.changes.rates(step, rate);
        let rates = rates.iter().map(|(name, value)| Ok((name.clone(), self.upload(name, value)?)));
        let rates: BTreeMap<String, DeviceTensor> = rates.collect::<Result<_, Error>>()?;
        let mut io = Io::from(&rates);
        io.donated = self.work.trained.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let begin = Instant::now();
        let outputs = self.updates.run(self.update, io)?;
        self.work.trace.record(0, EventKind::Update, begin);
        let norm = outputs.array("grad_norm")?;
        let norm = norm.wide().first().copied().unwrap_or(f64::NAN);
        self.changes.after(norm);
        Ok(norm)
    }

    /// The share of a step of so many micro-batches a lane in which ranks of the pipeline wait, as it is simulated;
    /// `None` if there is one stage.
    ///
    /// # Errors
    /// If there is no such schedule.
    pub fn bubble(&self, micro_batches: usize) -> Result<Option<f64>, Error> {
        let Some(schedule) = self.schedule(micro_batches)? else { return Ok(None) };
        let workload = self.pipeline.map_or_else(recomputed, |it| it.workload.clone());
        Ok(Some(schedule::check(&schedule, &workload)?.simulate().bubble()))
    }
}
