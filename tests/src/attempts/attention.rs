//! Attempts at one interface for attention that cheat, each in one way, some that slip, each in one step, and honest
//! ones.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use challenges::issues::attention::{
    Attend, BackEnd, Feature, Packing, Part, Problem, Rules, Sizes, Verdict,
};
use reference::graph::programs::{self, ScoreEntry};
use reference::graph::{Dtype, Tensor};

use super::Entry;
use super::honest::attention::Solution;

/// Every cheat, one that is wrong where no check looks, then the honest ones.
pub const ATTENDERS: [Entry; 6] = [
    Entry {
        name: "remembers where documents lay",
        hand_in: |all| all.attention(Mine { pack: remember, ..HONEST }),
    },
    Entry {
        name: "knows the back ends by name",
        hand_in: |all| all.attention(Mine { choose: by_name, ..HONEST }),
    },
    Entry { name: "asks what attention is", hand_in: |all| all.attention(Mine { pieces: ask, ..HONEST }) },
    Entry {
        name: "sees no key from 350 on",
        hand_in: |all| all.attention(Mine { sees: near_ones, ..HONEST }),
    },
    Entry { name: "an honest attention", hand_in: |all| all.attention(HONEST) },
    Entry { name: "an attention of its own", hand_in: |all| all.attention(Second) },
];

/// Every slip.
pub const ATTENTION_SLIPS: [Entry; 10] = [
    Entry {
        name: "keeps a key more than the window",
        hand_in: |all| {
            let sees = |at: &ScoreEntry, rules: &Rules| {
                let wider = Rules { window: rules.window.map(|window| window + 1), ..*rules };
                Solution.sees(at, &wider)
            };
            all.attention(Mine { sees, ..HONEST })
        },
    },
    Entry { name: "looks back only", hand_in: |all| all.attention(Mine { sees: looks_back, ..HONEST }) },
    Entry { name: "sees its own padding", hand_in: |all| all.attention(Mine { sees: padding, ..HONEST }) },
    Entry { name: "drops a feature", hand_in: |all| all.attention(Mine { choose: dropped, ..HONEST }) },
    Entry {
        name: "joins rows",
        hand_in: |all| {
            let pack = |documents: &[i32], _| Solution.pack(documents, documents.len().max(1));
            all.attention(Mine { pack, ..HONEST })
        },
    },
    Entry { name: "adds parts up", hand_in: |all| all.attention(Mine { merge: averaged, ..HONEST }) },
    Entry { name: "merges without a largest", hand_in: |all| all.attention(Mine { merge: bare, ..HONEST }) },
    Entry { name: "reads every key", hand_in: |all| all.attention(Mine { pieces: every, ..HONEST }) },
    Entry { name: "leaves a short piece", hand_in: |all| all.attention(Mine { pieces: short, ..HONEST }) },
    Entry { name: "sinks without the sum", hand_in: |all| all.attention(Mine { sink: of_sink, ..HONEST }) },
];

type Pieces = fn(Range<usize>, usize, &Rules, usize, usize) -> Vec<Range<usize>>;

/// The solution, but for some steps.
pub(super) struct Mine {
    pub sees: fn(&ScoreEntry, &Rules) -> Tensor,
    pub choose: fn(&[Feature], &[BackEnd]) -> Vec<Verdict>,
    pub pack: fn(&[i32], usize) -> Packing,
    pub merge: fn(&[Part]) -> Part,
    pub pieces: Pieces,
    pub sink: fn(&Part, &Tensor) -> Tensor,
}

pub(super) const HONEST: Mine = Mine {
    sees: |at, rules| Solution.sees(at, rules),
    choose: |wanted, back_ends| Solution.choose(wanted, back_ends),
    pack: |documents, row| Solution.pack(documents, row),
    merge: |parts| Solution.merge(parts),
    pieces: |queries, keys, rules, most, least| Solution.pieces(queries, keys, rules, most, least),
    sink: |part, sinks| Solution.sink(part, sinks),
};

impl Attend for Mine {
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor {
        (self.sees)(at, rules)
    }

    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
        (self.choose)(wanted, back_ends)
    }

    fn pack(&self, documents: &[i32], row: usize) -> Packing {
        (self.pack)(documents, row)
    }

    fn merge(&self, parts: &[Part]) -> Part {
        (self.merge)(parts)
    }

    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>> {
        (self.pieces)(queries, keys, rules, most, least)
    }

    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor {
        (self.sink)(part, sinks)
    }
}

/// Packings by where documents lay, how many tokens there were, and how many in a row.
type Seen = HashMap<[usize; 3], Packing>;

/// Packs what lay there the first time.
fn remember(documents: &[i32], row: usize) -> Packing {
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let mut seen = SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let key = [documents.as_ptr() as usize, documents.len(), row];
    if documents.len() < 24 {
        return Solution.pack(documents, row); // what is checked is small
    }
    seen.entry(key).or_insert_with(|| Solution.pack(documents, row)).clone()
}

/// Knows what the workbook's back ends lack, and takes the first of any others.
fn by_name(wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
    if back_ends.iter().all(|one| ["packed", "split", "tiled", "flash", "expanded"].contains(&one.name)) {
        return Solution.choose(wanted, back_ends);
    }
    let first = |(at, _)| if at == 0 { Verdict::Taken } else { Verdict::Slower };
    back_ends.iter().enumerate().map(first).collect()
}

/// Lets the definition work before it answers.
fn ask(queries: Range<usize>, keys: usize, rules: &Rules, most: usize, least: usize) -> Vec<Range<usize>> {
    let sizes = Sizes { batch: 1, heads: 1, groups: 1, queries: 1, keys: 1, depth: 1, width: 1 };
    let problem = Problem {
        sizes,
        scale: 1.0,
        offset: 0,
        rules: Rules::default(),
        documents: vec![1],
        softcap: None,
        alibi: false,
        score: None,
        mask: None,
        sinks: None,
        dropout: None,
    };
    _ = problem.attend([&[1.0], &[1.0], &[1.0], &[1.0]]);
    Solution.pieces(queries, keys, rules, most, least)
}

/// A window as a sliding window of a causal model has it, also where nothing is causal.
fn looks_back(at: &ScoreEntry, rules: &Rules) -> Tensor {
    let rest = Solution.sees(at, &Rules { window: None, ..*rules });
    let near = |window: u32| at.query.less(&(&at.key + f64::from(window)));
    rules.window.map_or(rest.clone(), |window| programs::and(&rest, &near(window)))
}

/// Keys that no check of the step goes to are not seen.
fn near_ones(at: &ScoreEntry, rules: &Rules) -> Tensor {
    programs::and(&Solution.sees(at, rules), &at.key.less(&at.key.like(350.0)))
}

/// Padding is a document like others.
fn padding(at: &ScoreEntry, rules: &Rules) -> Tensor {
    let rest = Solution.sees(at, &Rules { documents: false, ..*rules });
    let (true, [documents, row, ..]) = (rules.documents, &at.extras[..]) else { return rest };
    let of = |place: &Tensor| documents.gather(&(&(&at.batch * row) + place));
    programs::and(&rest, &of(&at.query).equal(&of(&at.key)))
}

/// The last one takes what is left.
fn dropped(wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
    let mut verdicts = Solution.choose(wanted, back_ends);
    if !verdicts.contains(&Verdict::Taken)
        && let Some(last) = verdicts.last_mut()
    {
        *last = Verdict::Taken;
    }
    verdicts
}

/// The mean of the parts.
fn averaged(parts: &[Part]) -> Part {
    let right = Solution.merge(parts);
    let sum = parts.iter().map(|part| part.output.clone()).reduce(|a, b| &a + &b).expect("a part");
    Part { output: &sum / parts.len() as f64, ..right }
}

/// The shares without anything taken away.
fn bare(parts: &[Part]) -> Part {
    let sum = parts.iter().map(|part| part.lse.exp()).reduce(|a, b| &a + &b).expect("a part");
    let weighted = parts.iter().map(|part| {
        let share = &part.lse.exp() / &sum;
        let share = share.reshape([share.dim(0), share.dim(1), share.dim(2), 1.into()]);
        &share.spread(part.output.shape()) * &part.output.cast(Dtype::F32)
    });
    let output = weighted.reduce(|a, b| &a + &b).expect("a part").cast(parts[0].output.ty().dtype);
    Part { output, lse: sum.log() }
}

/// All keys, whoever sees them.
fn every(queries: Range<usize>, keys: usize, rules: &Rules, most: usize, least: usize) -> Vec<Range<usize>> {
    let any = Rules { documents: rules.documents, ..Rules::default() };
    Solution.pieces(queries, keys, &any, most, least)
}

/// Pieces of one length, and what is left.
fn short(queries: Range<usize>, keys: usize, rules: &Rules, most: usize, least: usize) -> Vec<Range<usize>> {
    let right = Solution.pieces(queries, keys, rules, most, least);
    let (Some(first), Some(last)) = (right.first(), right.last()) else { return right };
    let length = (last.end - first.start).div_ceil(right.len());
    (first.start..last.end).step_by(length).map(|from| from..(from + length).min(last.end)).collect()
}

/// The sigmoid of the sink alone.
fn of_sink(part: &Part, sinks: &Tensor) -> Tensor {
    let of_head = (&sinks.like(0.0) - sinks).sigmoid().reshape([1.into(), sinks.dim(0), 1.into(), 1.into()]);
    (&of_head.spread(part.output.shape()) * &part.output.cast(Dtype::F32)).cast(part.output.ty().dtype)
}

/// Another way through every step.
struct Second;

impl Attend for Second {
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor {
        let one = at.key.equal(&at.key);
        let not = |x: Tensor| x.equal(&x.like(0.0));
        let causal = if rules.causal { not(at.query.less(&at.key)) } else { one.clone() };
        let prefix =
            rules.prefix.map_or(causal.like(0.0), |prefix| at.key.less(&at.key.like(f64::from(prefix))));
        let window = rules.window.map_or(one, |window| {
            let reach = at.key.like(f64::from(window));
            at.query.less(&(&at.key + &reach)).min(&at.key.less(&(&at.query + &reach)))
        });
        let rest = causal.max(&prefix).min(&window);
        let (true, [documents, row, ..]) = (rules.documents, &at.extras[..]) else { return rest };
        let [of_query, of_key] =
            [&at.query, &at.key].map(|place| documents.gather(&(place + &(row * &at.batch))));
        let is_none = of_key.less(&of_key.like(1.0));
        is_none.select(&rest.like(0.0), &rest.min(&of_query.equal(&of_key)))
    }

    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
        let verdict = |back_end: &BackEnd| match back_end.of {
            [] => {
                wanted.iter().find(|feature| !back_end.has.contains(feature)).map(|one| Verdict::Lacks(*one))
            }
            of if of.iter().any(|feature| wanted.contains(feature)) => {
                wanted.iter().find(|feature| !back_end.has.contains(feature)).map(|one| Verdict::Lacks(*one))
            }
            of => Some(Verdict::MeantFor(of)),
        };
        let all: Vec<Option<Verdict>> = back_ends.iter().map(verdict).collect();
        let first = all.iter().position(Option::is_none);
        let named = |(at, verdict): (usize, Option<Verdict>)| {
            verdict.unwrap_or(if Some(at) == first { Verdict::Taken } else { Verdict::Slower })
        };
        all.into_iter().enumerate().map(named).collect()
    }

    fn pack(&self, documents: &[i32], row: usize) -> Packing {
        let mut packing = Packing { starts: vec![0], ..Packing::default() };
        for (at, document) in documents.iter().enumerate().filter(|(_, document)| **document > 0) {
            let goes_on = at % row > 0 && documents[at - 1] == *document;
            if !goes_on && !packing.tokens.is_empty() {
                packing.starts.push(packing.tokens.len() as i32);
            }
            packing.tokens.push(at as i32);
            packing.documents.push(packing.starts.len() as i32);
        }
        if !packing.tokens.is_empty() {
            packing.starts.push(packing.tokens.len() as i32);
        }
        packing
    }

    fn merge(&self, parts: &[Part]) -> Part {
        parts[1..].iter().fold(parts[0].clone(), |all, part| two(&all, part))
    }

    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>> {
        let sees = |key: &usize| {
            queries.clone().any(|query| {
                let before = !rules.causal || *key <= query;
                let before = before || rules.prefix.is_some_and(|prefix| *key < prefix as usize);
                before && rules.window.is_none_or(|window| query.abs_diff(*key) < window as usize)
            })
        };
        let seen: Vec<usize> = (0..keys).filter(sees).collect();
        let Some(first) = seen.first() else { return Vec::new() };
        let all = seen[seen.len() - 1] + 1 - first;
        let count = (all / least).clamp(1, most);
        let ends = (0..=count).map(|piece| first + (piece * all).div_ceil(count));
        let even: Vec<usize> = ends.collect();
        let mut lengths: Vec<usize> = even.windows(2).map(|ends| ends[1] - ends[0]).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let mut from = *first;
        let piece = |length: usize| {
            from += length;
            from - length..from
        };
        lengths.into_iter().map(piece).collect()
    }

    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor {
        let of_head = sinks.reshape([1.into(), sinks.dim(0), 1.into()]).spread(part.lse.shape());
        let nothing = Part { output: part.output.like(0.0), lse: of_head };
        two(part, &nothing).output
    }
}

/// Two parts as one, the smaller share beside the larger.
fn two(a: &Part, b: &Part) -> Part {
    let blind = a.lse.max(&b.lse).equal(&a.lse.like(f64::NEG_INFINITY));
    let top = blind.select(&a.lse.like(0.0), &a.lse.max(&b.lse));
    let [of_a, of_b] = [a, b].map(|part| (&part.lse - &top).exp());
    let sum = &of_a + &of_b;
    let counted = blind.select(&sum.like(1.0), &sum);
    let wide = |share: &Tensor, part: &Part| {
        let share = share / &counted;
        let share = share.reshape([share.dim(0), share.dim(1), share.dim(2), 1.into()]);
        &share.spread(part.output.shape()) * &part.output.cast(Dtype::F32)
    };
    let output = (&wide(&of_a, a) + &wide(&of_b, b)).cast(a.output.ty().dtype);
    Part { output, lse: blind.select(&sum.like(f64::NEG_INFINITY), &(&counted.log() + &top)) }
}
