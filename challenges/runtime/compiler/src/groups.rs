//! The ranks that a session works with, by the axes of their mesh.
//!
//! A graph names the axis along which its ranks gather, reduce and send; a plan names groups by number. Between the two
//! stand these: the group of all ranks, and for each axis the group that this rank is a member of.
//!
//! ```text
//! mesh dp 2 x fsdp 2        rank 0        rank 1        rank 2        rank 3
//! group along "dp"          0, 2          1, 3          0, 2          1, 3
//! group along "fsdp"        0, 1          0, 1          2, 3          2, 3
//! ```
//!
//! **Ranks move together.** All of them load the same programs - or such as fit together, the stages of a pipeline -
//! and run them in the same order. A program with collectives is prepared by all ranks at the same time: when a size is
//! met for the first time, it is so on every rank. Warm up with each, and seal. What goes wrong on one rank is told to
//! all: nobody waits for it.
//!
//! **Padded lengths.** Where a padded size is one of a tensor that ranks give each other, its real length has to be the
//! same on all ranks of the group, since each takes its own length for the others'. They are compared before each run.

use std::collections::{BTreeMap, BTreeSet};
use std::error;
use std::fmt;
use std::sync::Arc;

use kernels::comm::{Comm, CommError};
use reference::graph::ranks::Mesh;
use reference::graph::{Dim, Graph, Group, Symbol};

use crate::compile::Axis;
use crate::rewrite::collective;

/// This rank's groups; by default it is alone.
#[derive(Clone, Default)]
pub struct Groups(Option<Arc<Linked>>);

struct Linked {
    world: Arc<dyn Comm>,
    axes: BTreeMap<String, Arc<dyn Comm>>,
}

/// Why ranks cannot do what a graph says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A collective names an axis of which there is no group.
    Missing {
        /// The axis.
        axis: String,
        /// How many ranks the graph says it has.
        size: String,
        /// The groups that there are, by axis, each with its number of ranks.
        found: Vec<(String, usize)>,
    },
    /// A group has another number of ranks than the graph says.
    Size {
        /// The axis.
        axis: String,
        /// What the graph says.
        expected: String,
        /// How many there are.
        found: usize,
    },
    /// Two axes have one group, in which their messages would be confused.
    Shared {
        /// The axes.
        axes: [String; 2],
    },
    /// A mesh has another number of ranks than the world.
    World {
        /// Ranks of the mesh.
        expected: usize,
        /// Ranks of the world.
        found: usize,
    },
    /// Communication has failed.
    Comm(CommError),
}

impl Groups {
    /// All ranks along one axis.
    pub fn line(axis: &str, world: Arc<dyn Comm>) -> Self {
        let axes = BTreeMap::from([(axis.to_owned(), Arc::clone(&world))]);
        Self(Some(Arc::new(Linked { world, axes })))
    }

    /// The groups along each axis of a mesh. Every rank of the world calls this; nobody waits.
    ///
    /// # Errors
    /// If the mesh has another number of ranks than the world, or communication has ended.
    pub fn mesh(mesh: &Mesh, world: Arc<dyn Comm>) -> Result<Self, Error> {
        if mesh.ranks() != world.world() {
            return Err(Error::World { expected: mesh.ranks(), found: world.world() });
        }
        let (mut axes, mut whole) = (BTreeMap::new(), Some(&world));
        for axis in mesh.axes() {
            let members = mesh.group(world.rank(), axis).unwrap_or_default();
            let is_whole = members.len() == world.world();
            let own = match whole.take_if(|_| is_whole) {
                Some(world) => Arc::clone(world),
                None => world.group(&members).map_err(Error::Comm)?,
            };
            axes.insert(axis.to_owned(), own);
        }
        Ok(Self(Some(Arc::new(Linked { world, axes }))))
    }

    /// Groups that were made elsewhere, of ranks that `world` has.
    ///
    /// # Errors
    /// If two axes have one group.
    pub fn new(world: Arc<dyn Comm>, axes: BTreeMap<String, Arc<dyn Comm>>) -> Result<Self, Error> {
        let mut open: Vec<(&String, &Arc<dyn Comm>)> = axes.iter().collect();
        while let Some((axis, comm)) = open.pop() {
            if let Some((other, _)) = open.iter().find(|(_, other)| Arc::ptr_eq(other, comm)) {
                return Err(Error::Shared { axes: [(*other).clone(), axis.clone()] });
            }
        }
        Ok(Self(Some(Arc::new(Linked { world, axes }))))
    }

    /// This rank's group along an axis.
    fn along(&self, axis: &str, size: &dyn fmt::Display) -> Result<&Arc<dyn Comm>, Error> {
        let all = || self.0.iter().flat_map(|linked| &linked.axes);
        let found = all().find(|(name, _)| *name == axis).map(|(_, comm)| comm);
        found.ok_or_else(|| Error::Missing {
            axis: axis.to_owned(),
            size: size.to_string(),
            found: all().map(|(name, comm)| (name.clone(), comm.world())).collect(),
        })
    }

    /// The groups of a plan, in its order; none, if the plan needs none.
    pub(crate) fn links(&self, axes: &[Axis]) -> Result<Vec<Arc<dyn Comm>>, Error> {
        let mut links: Vec<Arc<dyn Comm>> = Vec::new();
        for Axis { name, size } in axes {
            let comm = self.along(name, size)?;
            if comm.world() != *size {
                let (axis, expected, found) = (name.clone(), size.to_string(), comm.world());
                return Err(Error::Size { axis, expected, found });
            }
            links.push(Arc::clone(comm));
        }
        if let Some(linked) = self.0.as_ref().filter(|_| !links.is_empty()) {
            links.insert(0, Arc::clone(&linked.world)); // `compile::WORLD`
        }
        Ok(links)
    }

    /// Ends the communication of all ranks.
    pub(crate) fn abort(&self, why: &str) {
        if let Some(linked) = &self.0 {
            linked.world.abort(why);
        }
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = self.0.iter().flat_map(|linked| &linked.axes);
        f.debug_map().entries(axes.map(|(axis, comm)| (axis, comm.ranks()))).finish()
    }
}

/// What the collectives of a graph ask of ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collectives {
    groups: Vec<Group>,                 // one for each axis
    lengths: Vec<(Group, Vec<Symbol>)>, // padded sizes of what is exchanged
}

impl Collectives {
    /// Those of a graph some of whose symbols are padded.
    pub fn of(graph: &Graph, padded: &[Symbol]) -> Self {
        let mut found = Self::default();
        for (_, kind, group) in collective::all(graph) {
            let is_alone = kind.is_joint() && group.size.is_one();
            if is_alone || found.groups.iter().any(|known| known.axis == group.axis) {
                continue;
            }
            found.groups.push(group.clone());
            let symbols = lengths(graph, &group.axis, padded);
            if !symbols.is_empty() {
                found.lengths.push((group.clone(), symbols));
            }
        }
        found
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Gives the symbols that are sizes of groups their numbers.
    ///
    /// # Errors
    /// If a group is missing, or has another size than the graph says.
    pub fn bind(&self, groups: &Groups, sizes: &mut BTreeMap<Symbol, i64>) -> Result<(), Error> {
        for Group { axis, size } in &self.groups {
            let found = groups.along(axis, size)?.world();
            let known = match size.as_symbol() {
                Some(symbol) => Some(*sizes.entry(symbol.clone()).or_insert(found as i64)),
                None => size.as_fixed(),
            };
            if let Some(expected) = known.filter(|known| *known != found as i64) {
                return Err(Error::Size { axis: axis.clone(), expected: expected.to_string(), found });
            }
        }
        Ok(())
    }

    /// Refuses ranks whose padded sizes have other lengths.
    ///
    /// # Errors
    /// The first length that differs, with the ranks; the same on every rank.
    pub fn agree(&self, groups: &Groups, sizes: &BTreeMap<Symbol, i64>) -> Result<(), Error> {
        for (group, symbols) in &self.lengths {
            let length = |symbol: &Symbol| Some(format!("{symbol} = {}", sizes.get(symbol)?));
            let text: Vec<String> = symbols.iter().filter_map(length).collect();
            groups.along(&group.axis, &group.size)?.agree(&text.join("\n")).map_err(Error::Comm)?;
        }
        Ok(())
    }
}

/// The symbols that are the size of a group.
pub(crate) fn sizes_of_groups(graph: &Graph) -> BTreeSet<&Symbol> {
    collective::all(graph).flat_map(|(.., group)| group.size.symbols()).collect()
}

/// The padded symbols in the sizes of what is exchanged along an axis.
fn lengths(graph: &Graph, axis: &str, padded: &[Symbol]) -> Vec<Symbol> {
    let along = collective::all(graph).filter(|(.., group)| group.axis == axis);
    let nodes = along.flat_map(|(id, ..)| [id, graph.node(id).inputs[0]]);
    let used: BTreeSet<&Symbol> = nodes.flat_map(|id| &graph.ty(id).shape).flat_map(Dim::symbols).collect();
    padded.iter().filter(|symbol| used.contains(symbol)).cloned().collect()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { axis, size, found } if found.is_empty() => {
                write!(f, "expected a group of {size} ranks along {axis:?}, found a session without groups")
            }
            Self::Missing { axis, size, found } => {
                let found = found.iter().map(|(axis, size)| format!("{axis:?} ({size})"));
                let found = found.collect::<Vec<_>>().join(", ");
                write!(f, "expected a group of {size} ranks along {axis:?}, found groups along {found}")
            }
            Self::Size { axis, expected, found } => {
                write!(f, "expected {expected} ranks along {axis:?}, found {found}")
            }
            Self::Shared { axes: [a, b] } => {
                write!(f, "expected a group for each axis, found one for both {a:?} and {b:?}")
            }
            Self::World { expected, found } => {
                write!(f, "expected a world of the mesh's {expected} ranks, found one of {found}")
            }
            Self::Comm(error) => error.fmt(f),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Comm(error) => Some(error),
            Self::Missing { .. } | Self::Size { .. } | Self::Shared { .. } | Self::World { .. } => None,
        }
    }
}
