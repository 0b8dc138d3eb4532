//! Micro-batches: dealt out to the ranks, made ready, and what is logged of them collected.

use std::collections::BTreeMap;
use std::sync::Arc;

use compiler::session::DeviceTensor;
use reference::graph::interpret::Values;
use reference::graph::{Array, Symbol};
use reference::llama::train::LOSS_SCALE;
use reference::llama::{DROPOUT_KEY, rope};

use super::Rank;
use super::flight::Flight;
use crate::engine::{Logged, Microbatch};
use crate::shard::Error;

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
        let shapes: Vec<[usize; 2]> = all.map(|batch| batch.shape).collect();
        let sizes = shapes.iter().map(|shape| self.rounded(*shape)).collect::<Result<Vec<_>, _>>()?;
        let compiled = |number: &usize| sizes[*number].values().product::<i64>();
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(compiled(number)));
        self.work.sizes = sizes.iter().cloned().collect();
        self.work
            .pool
            .fit(sizes.iter().map(|sizes| ["B", "T"].map(|symbol| sizes[symbol] as usize)).collect());
        let round = |all: &[usize]| {
            let own = all.get(self.place.at.shard).copied();
            Round { all: all.to_vec(), own, shape: shapes[*all.last().expect("a chunk has one")] }
        };
        Ok(order.chunks(self.layout.ranks()).map(round).collect())
    }

    /// What every rank logged, in the order of the micro-batches.
    pub(super) fn in_turn(&self, own: &[Flight], deal: &[Round], count: usize) -> Result<Vec<Logged>, Error> {
        let text: Vec<String> = own.iter().map(|flight| flight.logged.bits_text()).collect();
        let texts = self.place.world.exchange(&text.join("\n"))?;
        let last = self.stages.home(self.stages.stages() - 1).0;
        let of_lane = |lane: usize| {
            let rank = self.place.rank(lane, 0, last);
            texts[rank].lines().filter_map(Logged::from_bits_text).collect()
        };
        let lanes: Vec<Vec<Logged>> = (0..self.layout.ranks()).map(of_lane).collect();
        let mut all = vec![Logged::default(); count];
        for (number, round) in deal.iter().enumerate() {
            round.all.iter().zip(&lanes).for_each(|(batch, lane)| all[*batch] = lane[number]);
        }
        Ok(all)
    }

    /// A micro-batch before it is computed.
    pub(super) fn flight(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<Flight, Error> {
        let (sizes, compiled) = (sizes_of(batch.shape), self.rounded(batch.shape)?);
        let batch = batch.padded(["B", "T"].map(|symbol| compiled[symbol] as usize));
        self.fit(&batch)?;
        Ok(Flight {
            own: self.own_inputs(&batch, items, key)?,
            tables: Arc::clone(&self.tables),
            sizes,
            compiled,
            xs: BTreeMap::new(),
            gradient: None,
            kept: BTreeMap::new(),
            y_grads: BTreeMap::new(),
            on_host: BTreeMap::new(),
            logged: Logged::default(),
        })
    }

    /// The sizes that are compiled for rows and tokens.
    fn rounded(&mut self, shape: [usize; 2]) -> Result<BTreeMap<Symbol, i64>, Error> {
        let program = self.work.any_program(1)?; // a layer has both
        Ok(self.work.session.rounded(program, &sizes_of(shape))?)
    }

    /// The rotary tables of a batch.
    pub(super) fn fit(&mut self, batch: &Microbatch) -> Result<(), Error> {
        let length = if self.spec.rows.positions { self.spec.config.positions } else { batch.shape[1] };
        if self.tables.values().all(|table| table.shape[0] != length) {
            let tables: Values<f32> = rope::values(&self.spec.config, length);
            let tables =
                tables.into_iter().map(|(name, table)| Ok((name.clone(), self.upload(&name, &table)?)));
            self.tables = Arc::new(tables.collect::<Result<_, Error>>()?);
        }
        Ok(())
    }

    /// What changes from micro-batch to micro-batch. A graph takes of it what it has.
    fn own_inputs(
        &self,
        batch: &Microbatch,
        items: u64,
        key: [i32; 2],
    ) -> Result<Vec<(&'static str, DeviceTensor)>, Error> {
        let factor = self.scale.map_or(1.0, |scale| scale.factor);
        let rows = |values: &Vec<i32>| Array::integers(&batch.shape, values.clone());
        let all = [
            ("ids", rows(&batch.ids)),
            ("labels", rows(&batch.labels)),
            ("positions", rows(&batch.positions)),
            ("documents", rows(&batch.documents)),
            (DROPOUT_KEY, Array::integers(&[2], key.to_vec())),
            ("items", Array::scalar(items as f64)),
            (LOSS_SCALE, Array::scalar(factor)),
        ];
        all.into_iter().map(|(name, value)| Ok((name, self.upload(name, &value)?))).collect()
    }
}

/// The sizes of rows and tokens.
fn sizes_of([rows, tokens]: [usize; 2]) -> BTreeMap<Symbol, i64> {
    BTreeMap::from([("B".into(), rows as i64), ("T".into(), tokens as i64)])
}
