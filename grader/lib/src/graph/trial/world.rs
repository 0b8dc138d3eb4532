//! The ranks of a graph: as many as its groups have, on threads of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use compiler::groups::Groups;
use kernels::comm::Comm;
use kernels::threads::{self, Threads};
use reference::graph::ranks::Mesh;
use reference::graph::{Dim, Graph, Op, Symbol};

/// Ranks at most: each has an arena and a thread of its own.
const MOST_RANKS: usize = 64;

/// Seconds that a rank waits for the others.
const LIMIT: Duration = Duration::from_mins(1);

/// The sizes of a graph's groups, by the axes that they lie along.
fn axes(graph: &Graph) -> Result<BTreeMap<&str, &Dim>, String> {
    let mut axes: BTreeMap<&str, &Dim> = BTreeMap::new();
    for id in graph.ids() {
        let Op::Collective { group, .. } = &graph.node(id).op else { continue };
        let known = axes.insert(&group.axis, &group.size);
        if let Some(other) = known.filter(|other| **other != group.size) {
            let (axis, size) = (&group.axis, &group.size);
            return Err(format!("{}: expected {other} ranks along {axis:?}, found {size}", graph.site(id)));
        }
    }
    Ok(axes)
}

/// The size that `--ranks` asks for: that of the one symbol that a graph's only group has for its size, if it has one.
pub fn asked(graph: &Graph, ranks: Option<usize>) -> Result<Option<(String, i64)>, String> {
    let axes = axes(graph)?;
    let mut sizes = axes.values();
    let (Some(ranks), Some(size), None) = (ranks, sizes.next(), sizes.next()) else { return Ok(None) };
    Ok(size.as_symbol().map(|symbol| (symbol.to_string(), ranks as i64)))
}

/// The mesh of a graph at given sizes, of the number of ranks that is asked for. Without groups ranks have nothing to
/// do with each other.
pub fn mesh(graph: &Graph, sizes: &BTreeMap<Symbol, i64>, ranks: Option<usize>) -> Result<Mesh, String> {
    let mut line = Vec::new();
    for (axis, size) in axes(graph)? {
        let found = size.value(sizes).map_err(|symbol| format!("no size is given for {symbol}"))?;
        let size = usize::try_from(found).ok().filter(|size| (1..=MOST_RANKS).contains(size));
        let size =
            size.ok_or_else(|| format!("expected 1 to {MOST_RANKS} ranks along {axis:?}, found {found}"))?;
        line.push((axis.to_owned(), size));
    }
    if line.is_empty() {
        line.push(("alone".to_owned(), ranks.unwrap_or(1)));
    }
    let named =
        line.iter().map(|(axis, size)| format!("{size} along {axis:?}")).collect::<Vec<_>>().join(", ");
    let mesh = Mesh::new(line).map_err(|error| error.to_string())?;
    let (all, asked) = (mesh.ranks(), ranks.unwrap_or(mesh.ranks()));
    if all != asked {
        return Err(format!("--ranks: expected {all}, as the graph has ranks {named}; found {asked}"));
    }
    if all > MOST_RANKS {
        return Err(format!("expected at most {MOST_RANKS} ranks, found {all}: {named}"));
    }
    Ok(mesh)
}

/// The groups of the one rank of a mesh, on this thread: what runs here alone is looked into by what watches the
/// thread.
pub fn alone(mesh: &Mesh) -> Result<Groups, String> {
    let comm = threads::world(1, LIMIT).into_iter().next().ok_or("there is no rank")?;
    Groups::mesh(mesh, Arc::new(comm)).map_err(|error| error.to_string())
}

/// What each rank of a mesh makes of its number and its groups, in their order. Where ranks fail, it is the panic of one
/// if there is any, else the error that was first: what the others then say of it is not why.
pub fn launch<T: Send>(
    mesh: &Mesh,
    work: impl Fn(usize, Groups) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let first: Mutex<Option<String>> = Mutex::new(None);
    let one = |rank: usize, comm: Threads| {
        let comm: Arc<dyn Comm> = Arc::new(comm);
        let groups = Groups::mesh(mesh, comm).map_err(|error| error.to_string());
        let done = groups.clone().and_then(|groups| work(rank, groups));
        if let Err(error) = &done {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| of_rank(mesh, rank, error));
        }
        drop(groups); // only now do the others learn that this rank has left
        done.ok()
    };
    let one = &one;
    let ended: Vec<_> = std::thread::scope(|scope| {
        let ranks = threads::world(mesh.ranks(), LIMIT).into_iter().enumerate();
        let threads: Vec<_> = ranks.map(|(rank, comm)| scope.spawn(move || one(rank, comm))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut results = Vec::new();
    for ended in ended {
        results.push(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    }
    let failed = || "a rank gave no result".to_owned();
    let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
    first.map_or_else(|| results.into_iter().collect::<Option<_>>().ok_or_else(failed), Err)
}

/// A message with the rank that it is of, where there are several.
pub fn of_rank(mesh: &Mesh, rank: usize, message: &str) -> String {
    if mesh.ranks() == 1 { message.to_owned() } else { format!("rank {rank}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two(work: impl Fn(usize, Groups) -> Result<usize, String> + Sync) -> Result<Vec<usize>, String> {
        launch(&Mesh::line("dp", 2).expect("a mesh"), work)
    }

    #[test]
    fn the_cause_is_handed_on_and_not_what_the_others_make_of_it() {
        assert_eq!(of_two(|rank, _| Ok(rank)), Ok(vec![0, 1]));
        let later = of_two(|rank, _| if rank == 1 { Err("no sum".to_owned()) } else { Ok(rank) });
        assert_eq!(later, Err("rank 1: no sum".to_owned()));
        let lost =
            |rank: usize, _| if rank == 1 { panic!("a hole") } else { Err("rank 1 has left".to_owned()) };
        let unwound = std::panic::catch_unwind(|| of_two(lost)).expect_err("a panic goes through");
        assert_eq!(unwound.downcast_ref(), Some(&"a hole"));
    }
}
