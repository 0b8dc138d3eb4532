//! The figures of attention: what each back end claims, and what masks leave of scores and blocks.

use challenges::issues::attention::{self, BACK_ENDS, Feature, Problem, Rules, Sizes};
use figures::StepKind;
use figures::attention::{BackEnd, Claim, Mask, claims, masks as drawn};
use figures::parts::{Run, parts};

use crate::figure::Drawn;

/// Every feature of every back end.
pub fn features() -> Drawn {
    let features = Feature::ALL.map(|feature| feature.to_string());
    let back_ends = BACK_ENDS.map(|back_end| BackEnd {
        name: back_end.name.into(),
        claims: Feature::ALL.map(|feature| claim(&back_end, feature)).to_vec(),
        is_special: !back_end.of.is_empty(),
    });
    let svg = claims("What each back end has", &features, &back_ends);
    let caption = "The features of the four back ends, in the order in which they are asked. A request goes to the first that \
                   has everything it wants and is meant for it.";
    ("attention-features", caption, svg)
}

/// Returns what a back end claims of a feature.
pub fn claim(back_end: &attention::BackEnd, feature: Feature) -> Claim {
    Claim::of(back_end.has.contains(&feature), back_end.of.contains(&feature))
}

/// Tokens of a drawn mask, and of the side of a block: a machine's block has 128.
pub const TOKENS: usize = 64;
/// The side of a drawn block.
pub const BLOCK: usize = 8;
/// Keys of the drawn window, and of the prefix.
pub const WINDOW: u32 = 12;
const PREFIX: u32 = 20;
/// Where the drawn documents begin, but for the first.
const BEGINS: [usize; 3] = [14, 23, 45];
/// Tokens of padding.
const PADDING: usize = 18;

/// What a query sees by some rules, by the definition.
pub fn masks() -> Drawn {
    let causal = Rules { causal: true, ..Rules::default() };
    let document = |token: usize| 1 + BEGINS.iter().filter(|begin| **begin <= token).count() as i32;
    let documents = Rules { documents: true, ..causal };
    let all = [
        mask("causal", causal, |_| 1),
        mask("a window of 12", Rules { window: Some(WINDOW), ..causal }, |_| 1),
        mask("12, on both sides", Rules { window: Some(WINDOW), ..Rules::default() }, |_| 1),
        mask("four documents", documents, document),
        mask("padding of 18", documents, |token| i32::from(token >= PADDING)),
        mask("a prefix of 20", Rules { prefix: Some(PREFIX), ..causal }, |_| 1),
    ];
    let svg = drawn("What a query sees, and what is computed", &all, BLOCK);
    let caption = "64 queries and keys in blocks of 8 by 8; the machine's blocks are 128 by 128. All masks but the third are \
                   causal. Scores of a block in part are drawn one by one; in a whole block all are seen.";
    ("attention-masks", caption, svg)
}

/// A mask by its rules, of tokens whose documents are given.
pub fn mask(name: &str, rules: Rules, document: impl Fn(usize) -> i32) -> Mask {
    let sizes = Sizes { batch: 1, heads: 1, groups: 1, queries: TOKENS, keys: TOKENS, depth: 1, width: 1 };
    let problem = Problem {
        sizes,
        scale: 1.0,
        offset: 0,
        rules,
        documents: (0..TOKENS).map(document).collect(),
        softcap: None,
        alibi: false,
        score: None,
        mask: None,
        sinks: None,
        dropout: None,
    };
    let sees = (0..TOKENS * TOKENS).map(|at| problem.sees([0, 0, at / TOKENS, at % TOKENS]));
    Mask { name: name.into(), size: TOKENS, sees: sees.collect() }
}

/// Where the time of each back end goes, from a file of kept times: a line each, its name and then its milliseconds by
/// kind of launch.
pub(crate) fn times(kept: &str) -> Result<Drawn, String> {
    let mut lines = kept.lines().filter(|line| !line.starts_with('#'));
    let kinds = lines.next().and_then(|head| head.split(',').skip(1).map(kind).collect::<Option<Vec<_>>>());
    let kinds = kinds.ok_or("the kept times begin with the kinds of launches")?;
    let runs = lines.map(|line| run(line, &kinds)).collect::<Option<Vec<Run>>>();
    let runs = runs.ok_or("the kept times are lines of names and milliseconds")?;
    let svg = parts("Where the time goes", &runs).ok_or("there are no times to draw")?;
    let caption = "Milliseconds of a run by kind of launch: eight rows of 64 to 1024 tokens, 8 heads of 64, f32, \
                   forward and backward, on two cores.";
    Ok(("attention-times", caption, svg))
}

fn kind(name: &str) -> Option<StepKind> {
    StepKind::ALL.into_iter().find(|kind| kind.name() == name)
}

fn run(line: &str, kinds: &[StepKind]) -> Option<Run> {
    let (name, times) = line.split_once(',')?;
    let times = times.split(',').map(|time| time.parse().ok()).collect::<Option<Vec<f64>>>()?;
    (times.len() == kinds.len())
        .then(|| Run { name: name.into(), parts: kinds.iter().copied().zip(times).collect() })
}
