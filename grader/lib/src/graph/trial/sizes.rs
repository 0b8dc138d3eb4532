//! Sizes for the symbols of a graph: what was asked for, else drawn within the facts - the least one, a prime, the
//! largest that is cheap - and small enough that the interpreter is done soon.

use std::collections::{BTreeMap, BTreeSet};

use reference::graph::{Dim, Facts, Graph, Id, Op, Symbol};

use super::cost::Cost;
use crate::random::Random;

/// The sizes that lengths break at: 1, primes, one beside a power of two.
const AWKWARD: [i64; 13] = [1, 2, 3, 5, 7, 11, 13, 17, 31, 33, 37, 61, 67];

/// The largest size that is drawn, unless the facts ask for more.
const LARGEST: i64 = 96;

/// A size for every symbol.
///
/// # Errors
/// If a size is asked for that the facts exclude, or for a symbol that is not there; if no input says how large a
/// symbol is; if even the least sizes cost too much.
pub fn sizes(
    graph: &Graph,
    asked: &BTreeMap<String, i64>,
    seed: u64,
) -> Result<BTreeMap<Symbol, i64>, String> {
    let symbols = bound(graph)?;
    if let Some(name) = asked.keys().find(|name| !symbols.contains(name.as_str())) {
        let there: Vec<&str> = symbols.iter().map(AsRef::as_ref).collect();
        let there = if there.is_empty() { "none".into() } else { there.join(", ") };
        return Err(format!("--size {name}: expected a symbol of the graph ({there})"));
    }
    let mut sizes = BTreeMap::new();
    for symbol in symbols {
        let facts = facts(graph, &symbol);
        let size = match asked.get(&*symbol) {
            Some(size) if facts.hold(*size) => *size,
            Some(size) => return Err(format!("--size {symbol}={size}: expected {facts}, found {size}")),
            None => drawn(facts, &mut Random::named(seed, &symbol)),
        };
        sizes.insert(symbol, size);
    }
    shrink(graph, asked, &mut sizes);
    Cost::of(graph, &sizes)?.allowed()?;
    Ok(sizes)
}

/// What is known of a symbol: without facts anything from 0 on.
fn facts(graph: &Graph, symbol: &Symbol) -> Facts {
    graph.known().get(symbol).copied().unwrap_or(Facts::range(0, i64::MAX))
}

/// Every symbol that is used, each of which an input says the size of.
fn bound(graph: &Graph) -> Result<BTreeSet<Symbol>, String> {
    let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
    let lone = |id: Id| graph.ty(id).shape.iter().filter_map(Dim::as_symbol).cloned();
    let all: BTreeSet<Symbol> = graph.inputs().flat_map(|(_, id)| lone(id)).collect();
    let by_needed: BTreeSet<Symbol> =
        graph.inputs().filter(|(_, id)| needed.contains(id)).flat_map(|(_, id)| lone(id)).collect();
    for id in graph.ids() {
        let known = if needed.contains(&id) { &by_needed } else { &all };
        if let Some(symbol) = used(graph, id).into_iter().find(|symbol| !known.contains(symbol)) {
            let site = graph.site(id);
            return Err(format!("{site}: expected an input with the dimension {symbol}, found none"));
        }
    }
    Ok(all)
}

/// The symbols of a node's type and settings.
fn used(graph: &Graph, id: Id) -> BTreeSet<Symbol> {
    let node = graph.node(id);
    let ends = if let Op::Slice { start, end, .. } = &node.op { vec![start, end] } else { vec![] };
    node.ty.shape.iter().chain(ends).flat_map(Dim::symbols).cloned().collect()
}

/// The least size within the facts that is not below another.
fn at_least(facts: Facts, size: i64) -> i64 {
    let times = facts.min.max(size).checked_add(facts.multiple - 1).unwrap_or(i64::MAX) / facts.multiple;
    let size = times.saturating_mul(facts.multiple);
    if size > facts.max { facts.max / facts.multiple * facts.multiple } else { size }
}

/// The largest size within the facts that is not above another, if there is one; else the least.
fn at_most(facts: Facts, size: i64) -> i64 {
    let size = facts.max.min(size) / facts.multiple * facts.multiple;
    if size < facts.min { at_least(facts, 0) } else { size }
}

fn drawn(facts: Facts, random: &mut Random) -> i64 {
    let least = at_least(facts, 0);
    let awkward = || AWKWARD.iter().map(|n| n.saturating_mul(facts.multiple)).filter(|n| facts.hold(*n));
    let mut choices: Vec<i64> = awkward().collect();
    choices.extend([at_most(facts, LARGEST), least.max(at_least(facts, 1))]);
    choices.push(if random.below(4) == 0 { least } else { choices[0] }); // 0 is one of a kind
    choices[random.below(choices.len())]
}

/// Halves the largest sizes that nobody asked for until they are cheap, or the least.
fn shrink(graph: &Graph, asked: &BTreeMap<String, i64>, sizes: &mut BTreeMap<Symbol, i64>) {
    while Cost::of(graph, sizes).is_ok_and(|cost| !cost.is_cheap()) {
        let smaller = |(symbol, size): (&Symbol, &i64)| {
            let next = at_most(facts(graph, symbol), size / 2);
            (!asked.contains_key(&**symbol) && next < *size).then(|| (*size, symbol.clone(), next))
        };
        let Some((_, symbol, next)) = sizes.iter().filter_map(smaller).max() else { return };
        sizes.insert(symbol, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_within_their_facts() {
        for facts in [
            Facts::range(0, 0),
            Facts::range(1, 1),
            Facts::range(8, 4096).multiple_of(8),
            Facts::range(5, 9).multiple_of(4),
            Facts::range(1_000_000, i64::MAX).multiple_of(3),
            Facts::range(i64::MAX, i64::MAX),
            Facts::range(0, i64::MAX).multiple_of(1 << 40),
        ] {
            for seed in 0..100 {
                let size = drawn(facts, &mut Random::new(seed));
                assert!(facts.hold(size), "{size} in {facts}");
                let (more, less) = (at_least(facts, size), at_most(facts, size / 2));
                assert!(
                    more == size && facts.hold(less) && less <= size,
                    "{size} in {facts}: {more}, {less}"
                );
            }
        }
    }
}
