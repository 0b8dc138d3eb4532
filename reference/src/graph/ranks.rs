//! The meaning of graphs on several ranks, without a thread.
//!
//! Ranks take turns: each computes until it has to wait, and a collective is done when the last rank of its group comes
//! to it. So a world's result is one value for each output of each rank, the same in whatever order the ranks ran, and
//! everything that would hang a real world - ranks that do different things, a message that nobody sends or nobody
//! fetches, ranks that wait for each other in a circle - is an error that names a rank and its node.
//!
//! What is computed is what a rank's outputs need, as ever: a collective that no output needs is not done, on any rank
//! whose graph is the same text.

use std::collections::{BTreeMap, VecDeque};

use super::interpret::{Bound, Run, Values, bind_one, collected, reduced, shard};
use super::{Array, Collective, Error, Fault, Graph, Group, Id, Op, Real};

/// How a world's ranks lie: axes with a name and a number of ranks each. Rank numbers count along the last axis first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    axes: Vec<(String, usize)>,
}

impl Mesh {
    /// A mesh of these axes, from the slowest to the fastest.
    ///
    /// Fails where an axis has no rank, a name is used twice, or there are more ranks than numbers.
    pub fn new(axes: impl IntoIterator<Item = (impl Into<String>, usize)>) -> Result<Self, Error> {
        let axes: Vec<(String, usize)> = axes.into_iter().map(|(axis, size)| (axis.into(), size)).collect();
        for (i, (axis, size)) in axes.iter().enumerate() {
            if *size == 0 {
                let (got, need) = ("none".to_owned(), "at least one rank".to_owned());
                return Err(Fault::Ranks { got, need }.of(axis));
            }
            if axes[..i].iter().any(|(other, _)| other == axis) {
                return Err(Fault::Twice.of(axis));
            }
        }
        let ranks = axes.iter().try_fold(1_usize, |ranks, (_, size)| ranks.checked_mul(*size));
        let shape = || axes.iter().map(|(_, size)| *size as i64).collect();
        ranks.ok_or_else(|| Fault::TooLarge { shape: shape() }.of("mesh"))?;
        Ok(Self { axes })
    }

    /// So many ranks along one axis.
    ///
    /// Fails if there are none.
    pub fn line(axis: &str, ranks: usize) -> Result<Self, Error> {
        Self::new([(axis, ranks)])
    }

    /// The axes, from the slowest to the fastest.
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|(name, _)| name.as_str())
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// Number of ranks along an axis; `None` if there is no such axis.
    pub fn size(&self, axis: &str) -> Option<usize> {
        self.axes.iter().find(|(name, _)| name == axis).map(|(_, size)| *size)
    }

    /// The ranks that differ from one along an axis alone, itself among them, in their order along it; `None` if there
    /// is no such axis.
    pub fn group(&self, rank: usize, axis: &str) -> Option<Vec<usize>> {
        let at = self.axes.iter().position(|(name, _)| name == axis)?;
        let stride: usize = self.axes[at + 1..].iter().map(|(_, size)| size).product();
        let size = self.axes[at].1;
        let first = rank - rank / stride % size * stride;
        Some((0..size).map(|i| first + i * stride).collect())
    }
}

/// Computes the outputs of every rank: for each rank its graph's, in their order. `graphs` is one for all ranks, or one
/// a rank; `values` are each rank's own.
///
/// Fails as [`interpret`](super::interpret()) does on any rank, where there are not as many values as ranks, where a
/// mesh is not what a collective says, and where ranks do not do together what they have to.
pub fn interpret_ranks<R: Real>(
    graphs: &[&Graph],
    mesh: &Mesh,
    values: &[Values<R>],
) -> Result<Vec<Vec<Array<R>>>, Error> {
    let mut world = World::new(graphs, mesh, values)?;
    loop {
        let mut moved = false;
        for rank in 0..mesh.ranks() {
            moved |= world.advance(rank)?;
            moved |= world.meet(rank)?;
        }
        if !moved {
            world.finish()?;
            return Ok(world.runs.iter().map(Run::outputs).collect());
        }
    }
}

/// Ranks on their way.
struct World<'a, R: Real> {
    mesh: &'a Mesh,
    runs: Vec<Run<'a, R>>,
    posts: BTreeMap<Route, VecDeque<(Id, Array<R>)>>, // sent and not yet received, with the node that sent
}

/// From a rank to a rank, along an axis.
type Route = (usize, usize, String);

impl<'a, R: Real> World<'a, R> {
    fn new(graphs: &[&'a Graph], mesh: &'a Mesh, values: &'a [Values<R>]) -> Result<Self, Error> {
        let ranks = mesh.ranks();
        let count =
            |what: &str, got: usize| Fault::Ranks { got: got.to_string(), need: what.to_owned() }.of("mesh");
        if graphs.len() != 1 && graphs.len() != ranks {
            return Err(count(&format!("one graph, or one for each of {ranks} ranks"), graphs.len()));
        }
        if values.len() != ranks {
            return Err(count(&format!("the values of {ranks} ranks"), values.len()));
        }
        let run = |(rank, values): (usize, &'a Values<R>)| {
            let graph = graphs[if graphs.len() == 1 { 0 } else { rank }];
            let run = world_sizes(graph, mesh).and_then(|bound| Run::new(graph, values, bound));
            let checked = run.and_then(|run| same_sizes(graph, mesh, &run.bound).map(|()| run));
            checked.map_err(|error| error.on(rank))
        };
        let runs = values.iter().enumerate().map(run).collect::<Result<_, Error>>()?;
        Ok(Self { mesh, runs, posts: BTreeMap::new() })
    }

    /// The collective at which a rank waits; `None` if it is at its end.
    fn waits(&mut self, rank: usize) -> Option<(Id, Collective, &'a Group)> {
        let run = &mut self.runs[rank];
        let id = run.next()?;
        let Op::Collective { kind, group } = &run.graph.node(id).op else { return None };
        Some((id, *kind, group))
    }

    /// The rank `by` further along an axis.
    fn peer(&self, rank: usize, by: i64, axis: &str) -> usize {
        let group = self.mesh.group(rank, axis).unwrap_or_default();
        let own = group.iter().position(|one| *one == rank).unwrap_or(0) as i64;
        group[own.wrapping_add(by).rem_euclid(group.len() as i64) as usize]
    }

    fn fault(&self, rank: usize, id: Id, fault: Fault) -> Error {
        fault.at(id.0 as usize, &self.runs[rank].graph.node(id).op).on(rank)
    }

    /// Computes on one rank until it has to wait for another one; whether it computed anything.
    fn advance(&mut self, rank: usize) -> Result<bool, Error> {
        let mut moved = false;
        while let Some(id) = self.runs[rank].next() {
            let result = match self.waits(rank) {
                None => self.runs[rank].compute(id).map_err(|error| error.on(rank))?,
                Some((_, Collective::Send { by }, group)) => self.send(rank, id, by, group)?,
                Some((_, Collective::Receive { by }, group)) => match self.receive(rank, id, by, group)? {
                    Some(received) => received,
                    None => return Ok(moved),
                },
                Some((_, Collective::AllGather { .. } | Collective::ReduceScatter { .. }, _)) => {
                    return Ok(moved);
                }
                Some((_, Collective::AllReduce, _)) => return Ok(moved),
            };
            self.runs[rank].keep(id, result);
            moved = true;
        }
        Ok(moved)
    }

    /// Posts a message; what was sent.
    fn send(&mut self, rank: usize, id: Id, by: i64, group: &Group) -> Result<Array<R>, Error> {
        let sent = self.input(rank, id)?;
        let route = (rank, self.peer(rank, by, &group.axis), group.axis.clone());
        self.posts.entry(route).or_default().push_back((id, sent.clone()));
        Ok(sent)
    }

    /// The next message, if it is there.
    fn receive(&mut self, rank: usize, id: Id, by: i64, group: &Group) -> Result<Option<Array<R>>, Error> {
        let from = self.peer(rank, by, &group.axis);
        let posts = self.posts.get_mut(&(from, rank, group.axis.clone()));
        let Some((sender, got)) = posts.and_then(VecDeque::pop_front) else { return Ok(None) };
        let need = self.input(rank, id)?;
        if (got.dtype, &got.shape) == (need.dtype, &need.shape) {
            return Ok(Some(got));
        }
        let site = self.runs[from].graph.site(sender);
        let got = format!("{} from rank {from}: {site}", described(&got));
        Err(self.fault(rank, id, Fault::Ranks { got, need: described(&need) }))
    }

    fn input(&self, rank: usize, id: Id) -> Result<Array<R>, Error> {
        let missing = || self.fault(rank, id, Fault::Arity { got: 0, need: "1" });
        self.runs[rank].first_input(id).cloned().ok_or_else(missing)
    }

    /// Does what a group does together, if all its ranks are there and this one is the first; whether it did.
    fn meet(&mut self, rank: usize) -> Result<bool, Error> {
        let Some((id, kind, group)) = self.waits(rank).filter(|(_, kind, _)| kind.is_joint()) else {
            return Ok(false);
        };
        let members = self.mesh.group(rank, &group.axis).unwrap_or_default();
        if members[0] != rank {
            return Ok(false);
        }
        let mut inputs = Vec::new();
        for member in &members {
            let waits =
                self.waits(*member).filter(|(_, kind, other)| kind.is_joint() && other.axis == group.axis);
            let Some((other, ..)) = waits else { return Ok(false) };
            inputs.push((*member, other, self.input(*member, other)?));
        }
        let first = self.what(rank, id, &inputs[0].2);
        for (member, other, input) in &inputs[1..] {
            let got = self.what(*member, *other, input);
            if got != first {
                let need = format!("{first}, as rank {rank} does");
                return Err(self.fault(*member, *other, Fault::Ranks { got, need }));
            }
        }
        self.join(kind, &inputs);
        Ok(true)
    }

    /// What a rank is about to do, as far as its group has to agree on it.
    fn what(&self, rank: usize, id: Id, input: &Array<R>) -> String {
        let Op::Collective { kind, .. } = &self.runs[rank].graph.node(id).op else { return String::new() };
        let along = match kind {
            Collective::AllGather { dim } | Collective::ReduceScatter { dim } => {
                format!(" along dimension {dim}")
            }
            Collective::AllReduce | Collective::Send { .. } | Collective::Receive { .. } => String::new(),
        };
        format!("{} of {}{along}", kind.name(), described(input))
    }

    /// Hands every rank of a group its result.
    fn join(&mut self, kind: Collective, inputs: &[(usize, Id, Array<R>)]) {
        let all: Vec<&Array<R>> = inputs.iter().map(|(.., input)| input).collect();
        let whole = match kind {
            Collective::AllGather { dim } => collected(dim, &all),
            Collective::ReduceScatter { .. } | Collective::AllReduce => reduced(&all),
            Collective::Send { .. } | Collective::Receive { .. } => return, // between two ranks
        };
        for (i, (rank, id, _)) in inputs.iter().enumerate() {
            let own = match kind {
                Collective::ReduceScatter { dim } => shard(&whole, dim, i, inputs.len()),
                Collective::AllGather { .. } | Collective::AllReduce => whole.clone(),
                Collective::Send { .. } | Collective::Receive { .. } => return,
            };
            self.runs[*rank].keep(*id, own);
        }
    }

    /// That every rank is at its end, and no message is left.
    fn finish(&mut self) -> Result<(), Error> {
        for rank in 0..self.runs.len() {
            if let Some((id, kind, group)) = self.waits(rank) {
                let fault = self.stuck(rank, kind, group);
                return Err(self.fault(rank, id, fault));
            }
        }
        let left = self.posts.iter().find_map(|(route, posts)| Some((route, posts.front()?.0)));
        let Some(((from, to, _), id)) = left else { return Ok(()) };
        let need = format!("a receive on rank {to}");
        Err(self.fault(*from, id, Fault::Ranks { got: "none".to_owned(), need }))
    }

    /// Why a rank does not go on: what the first rank that it waits for does instead.
    fn stuck(&mut self, rank: usize, kind: Collective, group: &Group) -> Fault {
        let (other, need) = if let Collective::Receive { by } = kind {
            let peer = self.peer(rank, by, &group.axis);
            (peer, format!("a send from rank {peer}"))
        } else {
            let members = self.mesh.group(rank, &group.axis).unwrap_or_default();
            let mut absent = members.into_iter().filter(|member| {
                let waits = self.waits(*member);
                !waits.is_some_and(|(_, kind, other)| kind.is_joint() && other.axis == group.axis)
            });
            let absent = absent.next().unwrap_or(rank);
            (absent, format!("rank {absent} at a collective along {:?}", group.axis))
        };
        let got = match self.waits(other) {
            Some((id, ..)) => format!("rank {other} at {}", self.runs[other].graph.site(id)),
            None => format!("rank {other} at its end"),
        };
        Fault::Ranks { got, need }
    }
}

/// The sizes of groups that are symbols.
fn world_sizes(graph: &Graph, mesh: &Mesh) -> Result<Bound, Error> {
    let mut bound = Bound::new();
    for (id, group) in groups(graph) {
        let size = mesh.size(&group.axis).ok_or_else(|| {
            let axes: Vec<&str> = mesh.axes.iter().map(|(name, _)| name.as_str()).collect();
            let need = format!("an axis {:?} of the mesh", group.axis);
            Fault::Ranks { got: axes.join(", "), need }.at(id.0 as usize, &graph.node(id).op)
        })?;
        if let Some(symbol) = group.size.as_symbol() {
            bind_one(graph, symbol, size as i64, &mut bound)?;
        }
    }
    Ok(bound)
}

/// That the mesh has as many ranks along each axis as the collectives say.
fn same_sizes(graph: &Graph, mesh: &Mesh, bound: &Bound) -> Result<(), Error> {
    for (id, group) in groups(graph) {
        let fail = |fault: Fault| Err(fault.at(id.0 as usize, &graph.node(id).op));
        let got = mesh.size(&group.axis).unwrap_or(0);
        match group.size.value(bound) {
            Ok(need) if need == got as i64 => {}
            Ok(need) => {
                let need = format!("{need} ranks along {:?}", group.axis);
                return fail(Fault::Ranks { got: got.to_string(), need });
            }
            Err(symbol) => return fail(Fault::Unbound { symbol }),
        }
    }
    Ok(())
}

fn groups(graph: &Graph) -> impl Iterator<Item = (Id, &Group)> {
    graph.ids().filter_map(|id| {
        let Op::Collective { group, .. } = &graph.node(id).op else { return None };
        Some((id, group))
    })
}

fn described<R: Real>(value: &Array<R>) -> String {
    format!("{}{:?}", value.dtype.name(), value.shape)
}
