//! Micro-batches: dealt out to the ranks, made ready, and what is logged of them collected.

use std::collections::BTreeMap;
use std::sync::Arc;

use compiler::session::DeviceTensor;
use reference::graph::Symbol;

use super::Rank;
use super::flight::{Flight, HeadLoss};
use crate::shard::Error;
use crate::step::{Evaluated, Microbatch};

/// The micro-batches that ranks work on at the same time.
pub(super) struct Round {
    pub(super) all: Vec<usize>, // by the number of the shard; of the last round some may be missing
    pub(super) own: Option<usize>, // this rank's; else it runs one of padding
    pub(super) shape: [usize; 2], // of that
}

impl Rank<'_> {
    /// Deals micro-batches out to the ranks along the axis of shards: those of a round are as large as each other as
    /// can be, since ranks wait for each other at every gather. Where all are equally large that is in turn.
    pub(super) fn deal<'b>(
        &mut self,
        all: impl Iterator<Item = &'b Microbatch>,
    ) -> Result<Vec<Round>, Error> {
        let (mut shapes, mut sizes) = (Vec::new(), Vec::new());
        for batch in all {
            let slots =
                batch.images.as_ref().map(|images| images.slots.iter().max().map_or(1, |last| last + 1));
            let mut rounded = self.rounded(batch.shape)?;
            rounded.extend(slots.map(|features| ("N".into(), i64::from(features))));
            shapes.push(batch.shape);
            sizes.push(rounded);
        }
        let compiled =
            |number: &usize| ["B", "T"].map(|symbol| sizes[*number][symbol]).iter().product::<i64>();
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(compiled(number)));
        self.work.sizes = sizes.iter().cloned().collect();
        let rest = order.len() % self.layout.ranks();
        if let Some(last) = order.last().filter(|_| rest > 0) {
            let mut padding = sizes[*last].clone(); // of the ranks that have none of the last round
            padding.entry("N".into()).and_modify(|features| *features = 1);
            self.work.sizes.insert(padding);
        }
        self.work
            .pool
            .fit(sizes.iter().map(|sizes| ["B", "T"].map(|symbol| sizes[symbol] as usize)).collect());
        let round = |all: &[usize]| {
            let own = all.get(self.place.at.shard).copied();
            Round { all: all.to_vec(), own, shape: shapes[*all.last().expect("a chunk has one")] }
        };
        Ok(order.chunks(self.layout.ranks()).map(round).collect())
    }

    /// Returns which of some micro-batches of a step this rank will compute.
    ///
    /// # Errors
    /// If a micro-batch is larger than the model allows.
    pub fn own_batches(&mut self, all: &[&Microbatch]) -> Result<Vec<bool>, Error> {
        let deal = self.deal(all.iter().copied())?;
        Ok((0..all.len()).map(|number| deal.iter().any(|round| round.own == Some(number))).collect())
    }

    /// Everyone's results, in the order of the micro-batches.
    pub(super) fn in_turn(
        &self,
        own: &[Flight],
        deal: &[Round],
        count: usize,
    ) -> Result<Vec<Evaluated>, Error> {
        let text: Vec<String> = own.iter().map(|flight| flight.result.bits_text()).collect();
        let texts = self.place.world.exchange(&text.join("\n"))?;
        let last = self.stages.home(self.stages.stages() - 1).0;
        let of_lane = |lane: usize| {
            let rank = self.place.rank(lane, 0, last);
            texts[rank].lines().filter_map(Evaluated::from_bits_text).collect()
        };
        let lanes: Vec<Vec<Evaluated>> = (0..self.layout.ranks()).map(of_lane).collect();
        let mut all = vec![Evaluated::default(); count];
        for (number, round) in deal.iter().enumerate() {
            round.all.iter().zip(&lanes).for_each(|(batch, lane)| all[*batch] = lane[number].clone());
        }
        Ok(all)
    }

    /// A micro-batch before it is computed.
    pub(super) fn flight(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<Flight, Error> {
        let (sizes, compiled) = (sizes_of(batch.shape), self.rounded(batch.shape)?);
        let padded = batch.padded(["B", "T"].map(|symbol| compiled[symbol] as usize));
        self.fit(&padded)?;
        Ok(Flight {
            batch: batch.clone(),
            loss: HeadLoss::Tokens(items),
            scored: None,
            own: self.own_inputs(&padded, items, key)?,
            tables: Arc::clone(&self.tables),
            sizes,
            compiled,
            xs: BTreeMap::new(),
            gradient: None,
            kept: BTreeMap::new(),
            y_grads: BTreeMap::new(),
            on_host: BTreeMap::new(),
            result: Evaluated::default(),
        })
    }

    /// The sizes that are compiled for rows and tokens.
    pub(super) fn rounded(&mut self, shape: [usize; 2]) -> Result<BTreeMap<Symbol, i64>, Error> {
        let program = self.work.any_program(1)?; // a layer has both
        Ok(self.work.session.rounded(program, &sizes_of(shape))?)
    }

    /// Uploads the rotary tables of a micro-batch, if they are not those of the last one.
    pub(super) fn fit(&mut self, batch: &Microbatch) -> Result<(), Error> {
        let rows = self.tables.values().next().map(|table| table.shape[0]);
        let Some(tables) = batch.new_tables(&self.spec, rows) else { return Ok(()) };
        let tables = tables.into_iter().map(|(name, table)| Ok((name.clone(), self.upload(&name, &table)?)));
        self.tables = Arc::new(tables.collect::<Result<_, Error>>()?);
        Ok(())
    }

    /// Uploads the inputs that differ from micro-batch to micro-batch.
    fn own_inputs(
        &self,
        batch: &Microbatch,
        items: u64,
        key: [i32; 2],
    ) -> Result<Vec<(&'static str, DeviceTensor)>, Error> {
        let all = batch.inputs(self.spec.config.hidden, items, key, self.changes.factor());
        all.into_iter().map(|(name, value)| Ok((name, self.upload(name, &value)?))).collect()
    }
}

/// The sizes of rows and tokens.
fn sizes_of([rows, tokens]: [usize; 2]) -> BTreeMap<Symbol, i64> {
    BTreeMap::from([("B".into(), rows as i64), ("T".into(), tokens as i64)])
}
