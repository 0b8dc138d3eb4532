//! A rank among the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use compiler::groups::Groups;
use kernels::comm::Comm;
use reference::graph::ranks::Mesh;

use crate::shard::load::Coordinates;
use crate::shard::{Error, FSDP, PP, TP};

/// A rank's coordinates, and the ranks that it does things with.
pub(super) struct Place {
    /// All ranks.
    pub world: Arc<dyn Comm>,
    /// How they lie.
    pub mesh: Mesh,
    /// Where this one is.
    pub at: Coordinates,
    /// The stages of its pipeline, this rank among them; `None` if there is one.
    pub stages: Option<Arc<dyn Comm>>,
}

impl Place {
    /// Every rank of the world calls this.
    pub fn new(world: Arc<dyn Comm>, mesh: &Mesh) -> Result<Self, Error> {
        if let Some(axis) = mesh.axes().find(|axis| ![FSDP, TP, PP].contains(axis)) {
            return Err(Error::Axis { found: axis.to_owned() });
        }
        let (own, size) = (world.rank(), |axis: &str| mesh.size(axis).unwrap_or(1));
        let along = |axis: &str| {
            let group = mesh.group(own, axis).unwrap_or_default();
            group.iter().position(|rank| *rank == own).unwrap_or(0)
        };
        let at = Coordinates {
            shard: along(FSDP),
            part: along(TP),
            sharing: size(TP),
            stage: along(PP),
            stages: size(PP),
        };
        let stages = mesh.group(own, PP).filter(|group| group.len() > 1);
        let stages = stages.map(|group| world.group(&group)).transpose()?;
        Ok(Self { mesh: mesh.clone(), at, stages, world })
    }

    /// The groups of the ranks that have the same stage: they compile and run the same programs at the same time.
    pub fn groups(&self) -> Result<Groups, Error> {
        if self.stages.is_none() {
            return Groups::mesh(&self.mesh, Arc::clone(&self.world)).map_err(Error::from);
        }
        let of_stage: Vec<usize> = (0..self.mesh.ranks()).filter(|rank| self.is_of_stage(*rank)).collect();
        let mut axes = BTreeMap::new();
        for axis in [FSDP, TP] {
            let group = self.mesh.group(self.world.rank(), axis);
            if let Some(group) = group.filter(|group| group.len() > 1) {
                axes.insert(axis.to_owned(), self.world.group(&group)?);
            }
        }
        Groups::new(self.world.group(&of_stage)?, axes).map_err(Error::from)
    }

    fn is_of_stage(&self, rank: usize) -> bool {
        let group = self.mesh.group(rank, PP).unwrap_or_default();
        group.get(self.at.stage) == Some(&rank)
    }

    /// The rank with the given coordinates.
    pub fn rank(&self, shard: usize, part: usize, stage: usize) -> usize {
        let step = |rank: usize, axis: &str, to: usize| match self.mesh.group(rank, axis) {
            Some(group) => group[to],
            None => rank,
        };
        step(step(step(0, FSDP, shard), TP, part), PP, stage)
    }
}
