//! Everything that a run resumes from, from the shards of all ranks.

use kernels::comm::Collective;
use kernels::tile::Element;
use reference::fsdp::Cut;
use reference::graph::Array;
use reference::graph::interpret::Values;
use reference::llama::train;

use super::{Rank, own_pieces};
use crate::shard::Error;
use crate::shard::programs::Placed;

impl Rank<'_> {
    /// This rank's shard of what a run goes on from: A, B or a moment.
    pub(super) fn shard(&self, name: &str, bytes: usize) -> Result<Vec<u8>, Error> {
        let Some(tensor) = self.work.trained.get(name) else { return Ok(vec![0; bytes]) }; // another stage's
        let mut bytes = vec![0; tensor.buffer.bytes()];
        let done = self.work.session.device().download(&tensor.buffer, &mut bytes);
        done.map_err(|source| Error::Device { input: name.to_owned(), source })?;
        Ok(bytes)
    }

    /// Everything that a run goes on from, A, B and the moments, whole. Every rank calls this.
    ///
    /// # Errors
    /// If a device cannot copy them, and what another rank says.
    pub fn state(&self) -> Result<Values<f32>, Error> {
        let mut state = Values::new();
        for (name, _) in self.layout.trained() {
            let [first, second] = train::moments(&name);
            for kept in [&name, &first, &second] {
                state.insert(kept.clone(), self.whole(&name, kept)?);
            }
        }
        Ok(state)
    }

    /// A trained parameter, or one of its moments, from everyone's shards.
    pub(super) fn whole(&self, name: &str, kept: &str) -> Result<Array<f32>, Error> {
        let (part, shards) = self.layout.part(name).expect("what is trained is a parameter");
        let Placed { shared, .. } = self.layout.placed(name).expect("as well");
        let own = self.shard(kept, shards.len * part.dtype.bytes())?;
        let mut all = vec![0; own.len() * self.place.world.world()];
        let gather = Collective::all_gather(Element::U8, own.len());
        self.place.world.run(&gather, own[..].into(), (&mut all[..]).into())?;
        let element = part.dtype.bytes();
        let stage = self.stage_of(name);
        let part_of = |part: usize| {
            let rank = |shard: usize| self.place.rank(shard, part, stage);
            let shards_of = (0..shards.ranks()).map(|shard| &all[rank(shard) * own.len()..][..own.len()]);
            shards.whole(&shards_of.collect::<Vec<_>>(), element)
        };
        let parts: Vec<Vec<u8>> = (0..self.place.at.sharing).map(part_of).collect();
        let parts = if shared.cut == Cut::Whole { &parts[..1] } else { &parts[..] };
        Ok(Array::from_memory(part.dtype, &shared.whole, &shared.together(parts, element)))
    }

    /// The rank of the pipeline that trains a parameter.
    fn stage_of(&self, name: &str) -> usize {
        let reads = |rank: &usize| {
            let own = own_pieces(self.stages, *rank, &self.spec);
            own.into_iter().flatten().any(|number| self.work.pieces[number].reads(name))
        };
        (0..self.stages.ranks()).find(reads).unwrap_or(0)
    }
}
