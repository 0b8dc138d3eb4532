//! Attention by every back end: laws that hold whatever the numbers are, and every case of the golden file.
//!
//! A law compares a back end with another run of itself, or with what the law says of any numbers. So neither a rule
//! that is wrong on all back ends alike nor one that is wrong on a single one goes unseen. The definition in f64 is
//! asked at the end, about requests with any features at once. All runs are compiled, over an arena full of NaN, on
//! the CPU and on a card where one answers.

#![allow(clippy::float_cmp)] // zeros are zeros, and what has the same bits is equal

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use challenges::graph;
use challenges::issues::attention::backends::{Shape, graph as write};
use challenges::issues::attention::{
    Attend, BACK_ENDS, BackEnd, Body, Feature, Part, Problem, Request, Rules, Sizes, Solution, Way, follow,
};
use compiler::session::Settings;
use kernels::Device;
use proptest::prelude::*;
use proptest::sample::subsequence;
use reference::graph::interpret::Values;
use reference::graph::programs::{ScoreEntry, distance_bias, or};
use reference::graph::{Array, Attention, Builder, Dim, Dtype, Tensor, Type, interpret};
use reference::philox::happens;
use safetensors::SafeTensors;
use serde::Deserialize;
use tests::golden;
use tests::one_graph::{OneGraph, devices};

/// How far a result in f32 may be from another one, or from the truth, of numbers as large as 1.
const NEAR: f64 = 1e-5;

/// The bits of dropout.
const KEY: [i32; 2] = [7, 11];

// ---- a request with its tensors, and a run of it

#[derive(Clone, Debug)]
struct Tensors {
    sizes: Sizes,
    given: [Vec<f64>; 4], // q, k, v and the gradient of the output
    documents: Vec<i32>,
    sinks: Vec<f64>,
}

/// Outputs by their names.
type Found = BTreeMap<String, Vec<f64>>;

/// Numbers of an f32 between -1 and 1.
fn drawn(seed: u32, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

impl Tensors {
    fn drawn(sizes: Sizes, documents: Vec<i32>, seed: u32) -> Self {
        let shapes = sizes.shapes().map(|shape| shape.iter().product());
        let given = [0, 1, 2, 3].map(|i| drawn(seed.wrapping_add(i), shapes[i as usize]));
        Self { sizes, given, documents, sinks: drawn(seed.wrapping_add(4), sizes.heads) }
    }

    /// Each key's value says which key it is: an output is then a query's weights.
    fn with_keys_as_values(mut self) -> Self {
        let Sizes { keys, width, .. } = self.sizes;
        assert_eq!(keys, width);
        self.given[2].iter_mut().enumerate().for_each(|(i, x)| *x = f64::from(i / width % keys == i % width));
        self
    }

    fn values(&self, way: Way, request: &Request) -> Values<f32> {
        let mut values: Values<f32> = Values::new();
        let wants = |feature| request.more.contains(&feature);
        for (i, (name, shape)) in ["q", "k", "v", "grad"].into_iter().zip(self.sizes.shapes()).enumerate() {
            if name != "grad" || wants(Feature::Gradients) {
                let numbers = self.given[i].iter().copied();
                values.insert(name.into(), Array::floats(Dtype::F32, &shape, numbers));
            }
        }
        let mut whole = |name: &str, numbers: Vec<i32>| {
            values.insert(name.into(), Array::integers(&[numbers.len()], numbers));
        };
        if request.rules.documents {
            whole("documents", self.documents.clone());
        }
        if way == Way::Packed {
            follow(&self.documents, self.sizes.keys).expect("documents in one piece");
            let packing = Solution.pack(&self.documents, self.sizes.keys);
            whole("tokens", packing.tokens);
            whole("packed", packing.documents);
        }
        if request.keep.is_some() {
            whole("key", KEY.to_vec());
        }
        if request.sinks {
            let sinks = self.sinks.iter().copied();
            values.insert("sinks".into(), Array::floats(Dtype::F32, &[self.sinks.len()], sinks));
        }
        values
    }

    /// The same tokens as a batch of their own: tokens of one row.
    fn of(&self, row: usize, tokens: &Range<usize>) -> Self {
        let Sizes { heads, groups, depth, width, .. } = self.sizes;
        let length = tokens.len();
        let sizes = Sizes { batch: 1, queries: length, keys: length, ..self.sizes };
        let [q, k, v, grad] = [(heads, depth), (groups, depth), (groups, width), (heads, width)];
        let of = |i: usize, (heads, width)| self.slice(&self.given[i], [heads, width], row, tokens);
        let given = [of(0, q), of(1, k), of(2, v), of(3, grad)];
        Self { sizes, given, documents: vec![1; length], sinks: self.sinks.clone() }
    }

    /// Some tokens of a row, out of (batch, heads, length, width).
    fn slice(&self, x: &[f64], [heads, width]: [usize; 2], row: usize, tokens: &Range<usize>) -> Vec<f64> {
        let length = self.sizes.keys;
        let of = |head: usize| {
            let begin = ((row * heads + head) * length + tokens.start) * width;
            &x[begin..begin + tokens.len() * width]
        };
        (0..heads).flat_map(of).copied().collect()
    }

    /// Some tokens of an output.
    fn part(&self, found: &Found, name: &str, row: usize, tokens: &Range<usize>) -> Vec<f64> {
        let Sizes { heads, groups, depth, width, .. } = self.sizes;
        let shape = match name {
            "output" => [heads, width],
            "lse" => [heads, 1],
            "grad_q" => [heads, depth],
            "grad_k" => [groups, depth],
            _ => [groups, width],
        };
        self.slice(&found[name], shape, row, tokens)
    }
}

/// The back ends that have what a request wants; documents end to end take documents.
fn able(request: &Request) -> Vec<&'static BackEnd> {
    let wanted = request.features();
    let is_able = |back_end: &&BackEnd| {
        let has_all = wanted.iter().all(|feature| back_end.has.contains(feature));
        has_all && (back_end.way != Way::Packed || request.rules.documents)
    };
    BACK_ENDS.iter().filter(is_able).collect()
}

/// The tensors' own features, L, and gradients where they are wanted.
fn request(rules: Rules, sizes: &Sizes, gradients: bool) -> Request {
    let own = [
        (Feature::GroupedHeads, sizes.groups < sizes.heads),
        (Feature::ShortQueries, sizes.queries < sizes.keys),
        (Feature::Lse, true),
        (Feature::Gradients, gradients),
    ];
    let more = own.into_iter().filter(|(_, is)| *is).map(|(feature, _)| feature).collect();
    Request { scale: 0.6, offset: sizes.keys - sizes.queries, rules, more, ..Request::default() }
}

fn run(device: &dyn Device, way: Way, request: &Request, tensors: &Tensors) -> Found {
    let values = tensors.values(way, request);
    let tokens = values.get("tokens").map_or(0, |tokens| tokens.shape[0]);
    let shape = Shape::of(tensors.sizes, tokens, Dtype::F32);
    let graph = write(way, request, &Solution, &shape).unwrap_or_else(|error| panic!("{way:?}: {error}"));
    let settings = Settings { exact: true, poison: true, ..Settings::default() };
    let one = OneGraph::new(&graph::Solution, device, &graph, settings);
    let arrays = one.and_then(|mut one| one.arrays(&values));
    let arrays = arrays.unwrap_or_else(|error| panic!("{way:?} on {}: {error}", device.name()));
    let names = graph.outputs().iter().map(|(name, _)| name.clone());
    names.zip(arrays).map(|(name, array)| (name, array.wide())).collect()
}

/// Runs a request on all devices and back ends that are able.
fn each(request: &Request, tensors: &Tensors, check: impl Fn(&str, &Found)) {
    for device in devices() {
        for back_end in able(request) {
            let what = format!("{} on {}: {:?}", back_end.name, device.name(), request.features());
            check(&what, &run(device, back_end.way, request, tensors));
        }
    }
}

/// That numbers are near others; what is infinite has to be so.
fn near(what: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().filter(|x| x.is_finite()).fold(0.0_f64, |most, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let is_near = got == want || (got - want).abs() <= NEAR * (1.0 + largest);
        assert!(is_near, "{what}[{i}]: {got}, expected {want}");
    }
}

fn all_near(what: &str, got: &Found, want: &Found) {
    for (name, got) in got {
        near(&format!("{what}, {name}"), got, &want[name]);
    }
}

/// Queries and keys of a sequence, and its heads.
fn sizes(keys: Range<usize>) -> impl Strategy<Value = Sizes> {
    let more = (1..3_usize, 1..3_usize, 1..3_usize, 1..6_usize, 1..6_usize);
    (keys, more).prop_map(|(keys, (batch, groups, times, depth, width))| Sizes {
        batch,
        heads: groups * times,
        groups,
        queries: keys,
        keys,
        depth,
        width,
    })
}

fn causal() -> Rules {
    Rules { causal: true, ..Rules::default() }
}

// ---- windows

/// Short windows, and some that are longer than any row.
fn windows() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..40_u32, 1 => Just(4096), 1 => Just(i32::MAX as u32), 1 => Just(u32::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_window_of_w_keeps_w_keys_on_every_back_end(
        sizes in sizes(1..28), window in windows(), skipped in 0..28_usize, seed: u32, documents: bool
    ) {
        let queries = if documents { sizes.keys } else { (sizes.keys - skipped.min(sizes.keys - 1)).max(1) };
        let sizes = Sizes { queries, width: sizes.keys, ..sizes };
        let rules = Rules { window: Some(window), documents, ..causal() };
        let tensors = Tensors::drawn(sizes, vec![1; sizes.batch * sizes.keys], seed).with_keys_as_values();
        let request = request(rules, &sizes, false);
        prop_assert_eq!(able(&request).len(), if documents { 4 } else { 3 });
        each(&request, &tensors, |what, found| {
            for (row, weights) in found["output"].chunks(sizes.keys).enumerate() {
                let place = request.offset + row % queries;
                let kept: Vec<usize> = (0..sizes.keys).filter(|key| weights[*key] != 0.0).collect();
                let first = (place + 1).saturating_sub(window as usize);
                let want: Vec<usize> = (first..=place).collect();
                assert_eq!(kept, want, "{what}: a window of {window}, the query at {place}");
            }
        });
    }

    #[test]
    fn a_window_as_long_as_the_row_is_causal_to_the_bit(
        sizes in sizes(1..200), longer in prop_oneof![Just(0), 1..100_u32, Just(1 << 20)], seed: u32, documents: bool
    ) {
        let rules = Rules { documents, ..causal() };
        let window = Rules { window: Some(sizes.keys as u32 + longer), ..rules };
        let tensors = Tensors::drawn(sizes, vec![1; sizes.batch * sizes.keys], seed);
        for device in devices() {
            for back_end in able(&request(window, &sizes, true)) {
                let of = |rules| run(device, back_end.way, &request(rules, &sizes, true), &tensors);
                assert_eq!(of(window), of(rules), "{} on {}", back_end.name, device.name());
            }
        }
    }
}

// ---- documents

/// Rows of documents that follow each other, with padding between, before and after: of each row lengths, negative
/// where it is padding.
fn rows() -> impl Strategy<Value = Vec<Vec<i32>>> {
    let stretch = prop_oneof![3 => 1..14_i32, 1 => -5..0_i32];
    prop::collection::vec(prop::collection::vec(stretch, 1..5), 1..4)
}

/// A row, and tokens of it.
type Stretch = (usize, Range<usize>);

/// The documents of all tokens, in rows as long as the longest; and where each document is.
fn laid(rows: &[Vec<i32>]) -> (Vec<i32>, usize, Vec<Stretch>) {
    let tokens = |row: &Vec<i32>| row.iter().map(|length| length.unsigned_abs() as usize).sum();
    let keys = rows.iter().map(tokens).max().unwrap_or(1);
    let (mut documents, mut places) = (vec![0; rows.len() * keys], Vec::new());
    for (row, stretches) in rows.iter().enumerate() {
        let mut at = 0;
        for (number, length) in stretches.iter().enumerate() {
            let next = at + length.unsigned_abs() as usize;
            if *length > 0 {
                documents[row * keys + at..row * keys + next].fill(number as i32 + 1);
                places.push((row, at..next));
            }
            at = next;
        }
    }
    (documents, keys, places)
}

/// A request with what looks at places: a window, slopes, a cap.
fn local(window: Option<u32>, sizes: &Sizes) -> Request {
    let rules = Rules { documents: true, window, ..causal() };
    Request { softcap: Some(1.5), alibi: true, ..request(rules, sizes, true) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn documents_in_a_row_are_documents_run_one_by_one(
        rows in rows(), sizes in sizes(1..2), window in prop::option::of(1..9_u32), seed: u32
    ) {
        let (documents, keys, places) = laid(&rows);
        prop_assume!(!places.is_empty());
        let sizes = Sizes { batch: rows.len(), queries: keys, keys, ..sizes };
        let tensors = Tensors::drawn(sizes, documents, seed);
        let request = local(window, &sizes);
        let alone = Request { rules: Rules { documents: false, ..request.rules }, ..request.clone() };
        let device = devices()[0];
        let one = |(row, tokens): &Stretch| run(device, Way::Expanded, &alone, &tensors.of(*row, tokens));
        let alone: Vec<Found> = places.iter().map(one).collect();
        prop_assert_eq!(able(&request).len(), 3, "split has no gradients");
        each(&request, &tensors, |what, found| {
            for ((row, tokens), alone) in places.iter().zip(&alone) {
                for (name, want) in alone {
                    let got = tensors.part(found, name, *row, tokens);
                    near(&format!("{what}: {name} of {tokens:?} in row {row}"), &got, want);
                }
            }
        });
    }

    #[test]
    fn a_query_that_sees_nothing_has_zeros_and_gives_none(
        rows in rows(), sizes in sizes(1..2), window in prop_oneof![Just(None), Just(Some(0)), Just(Some(3))],
        sinks: bool, seed: u32
    ) {
        let (documents, keys, _) = laid(&rows);
        let sizes = Sizes { batch: rows.len(), queries: keys, keys, ..sizes };
        let tensors = Tensors::drawn(sizes, documents.clone(), seed);
        let request = Request { sinks, ..local(window, &sizes) };
        let forward = Request { more: vec![Feature::Lse], ..request.clone() };
        let blind = |token: &usize| documents[*token] == 0 || window == Some(0);
        for request in [request, forward] {
            each(&request, &tensors, |what, found| {
                for token in (0..documents.len()).filter(blind) {
                    let (row, place) = (token / keys, token % keys..token % keys + 1);
                    for name in found.keys() {
                        let nothing = if name == "lse" { f64::NEG_INFINITY } else { 0.0 };
                        let part = tensors.part(found, name, row, &place);
                        assert!(part.iter().all(|x| *x == nothing), "{what}: {name} of {token}: {part:?}");
                    }
                }
                assert!(found.values().flatten().all(|x| !x.is_nan()), "{what}");
            });
        }
    }

    #[test]
    fn documents_in_another_order_have_their_results_in_that_order(
        lengths in prop::collection::vec(1..20_usize, 2..6), sizes in sizes(1..2), window in prop::option::of(1..9_u32),
        seed: u32
    ) {
        let keys: usize = lengths.iter().sum();
        let sizes = Sizes { batch: 1, queries: keys, keys, ..sizes };
        let rows = [lengths.iter().map(|length| *length as i32).collect::<Vec<i32>>()];
        let (documents, _, places) = laid(&rows);
        let tensors = Tensors::drawn(sizes, documents, seed);
        let request = local(window, &sizes);
        let (others, back) = reversed(&tensors, &places);
        for device in devices() {
            for back_end in able(&request) {
                let [found, turned] = [&tensors, &others].map(|tensors| run(device, back_end.way, &request, tensors));
                for ((_, tokens), other) in places.iter().zip(&back) {
                    for name in found.keys() {
                        let want = tensors.part(&found, name, 0, tokens);
                        near(&format!("{}: {name}", back_end.name), &tensors.part(&turned, name, 0, other), &want);
                    }
                }
            }
        }
    }
}

/// One row with its documents in the reverse order, and where each is now.
fn reversed(tensors: &Tensors, places: &[Stretch]) -> (Tensors, Vec<Range<usize>>) {
    let Sizes { keys, heads, groups, depth, width, .. } = tensors.sizes;
    let order: Vec<usize> = places.iter().rev().flat_map(|(_, tokens)| tokens.clone()).collect();
    let moved = |x: &[f64], [heads, width]: [usize; 2]| -> Vec<f64> {
        let of =
            |head: usize| order.iter().flat_map(move |token| &x[(head * keys + token) * width..][..width]);
        (0..heads).flat_map(of).copied().collect()
    };
    let shapes = [[heads, depth], [groups, depth], [groups, width], [heads, width]];
    let given = [0, 1, 2, 3].map(|i| moved(&tensors.given[i], shapes[i]));
    let documents = order.iter().map(|token| tensors.documents[*token]).collect();
    let place = |(_, tokens): &Stretch| keys - tokens.end..keys - tokens.start;
    (Tensors { given, documents, ..tensors.clone() }, places.iter().map(place).collect())
}

// ---- pieces of the keys

/// Attention to some keys; a part of none sees nothing.
fn part([q, k, v]: &[Tensor; 3], sizes: &Sizes, keys: Range<usize>) -> Part {
    if keys.is_empty() {
        let [.., output] = sizes.shapes();
        let constant = |value: f64, shape: &[usize]| {
            q.tape().constant(value, &Type::new(Dtype::F32, shape.iter().copied()))
        };
        return Part { output: constant(0.0, &output), lse: constant(f64::NEG_INFINITY, &output[..3]) };
    }
    let [k, v] = [k, v].map(|x| x.slice(2, keys.start, keys.end));
    let plain = || Attention::plain(0.7);
    Part { output: q.attend(plain(), &k, &v, &[]), lse: q.attend_lse(plain(), &k, &v, &[]) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn keys_cut_anywhere_are_put_together_again(
        sizes in sizes(1..12), cuts in prop::collection::vec(0..12_usize, 0..5), is_reversed: bool, seed: u32
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(sizes.keys)).collect();
        cuts.sort_unstable();
        let builder = Builder::new("parts");
        let [q, k, v, _] = sizes.shapes();
        let input = |(name, shape)| builder.tape().input(name, Dtype::F32, shape);
        let inputs = [("q", q), ("k", k), ("v", v)].map(input);
        let ends = cuts.iter().copied().chain([sizes.keys]);
        let pieces = [0].into_iter().chain(cuts.iter().copied()).zip(ends);
        let mut parts: Vec<Part> = pieces.map(|(begin, end)| part(&inputs, &sizes, begin..end)).collect();
        if is_reversed {
            parts.reverse();
        }
        let (merged, whole) = (Solution.merge(&parts), part(&inputs, &sizes, 0..sizes.keys));
        builder.tape().output("output", &(&merged.output - &whole.output));
        builder.tape().output("lse", &(&merged.lse - &whole.lse));
        drop((parts, merged, whole, inputs));
        let graph = builder.finish().expect("sound");
        let tensors = Tensors::drawn(sizes, Vec::new(), seed);
        let values = tensors.values(Way::Tiled, &Request::default());
        let wide: Values<f64> = values.iter().map(|(name, x)| (name.clone(), x.widened())).collect();
        let off = interpret(&graph, &wide).expect("runs");
        prop_assert!(off.iter().flat_map(Array::wide).all(|off| off.abs() < 1e-13), "{off:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_cache_in_pieces_gives_what_it_gives_at_once(
        sizes in sizes(1..2), keys in 500..1300_usize, queries in 1..4_usize, window in prop::option::of(1..1400_u32),
        prefix in prop::option::of(0..700_u32), sinks: bool, seed: u32
    ) {
        let sizes = Sizes { queries, keys, ..sizes };
        let rules = Rules { window, prefix, ..causal() };
        let request = Request { sinks, alibi: true, ..request(rules, &sizes, false) };
        let tensors = Tensors::drawn(sizes, Vec::new(), seed);
        let want = run(devices()[0], Way::Tiled, &request, &tensors);
        each(&request, &tensors, |what, found| all_near(what, found, &want));
    }
}

// ---- blocks and buckets

/// What is true of every score, but only when it is known.
fn of_the_score(at: &ScoreEntry) -> Tensor {
    at.score.less(&at.score.like(1e30))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn blocks_that_are_left_out_change_nothing(
        sizes in sizes(1..420), window in prop::option::of(1..150_u32), prefix in prop::option::of(0..200_u32),
        is_causal: bool, lengths in prop::collection::vec(1..200_usize, 1..6), seed: u32
    ) {
        let rules = Rules { causal: is_causal, window, prefix, documents: true };
        let ends: Vec<usize> = lengths.iter().scan(0, |end, length| { *end += length; Some(*end) }).collect();
        let document = |token: usize| ends.iter().filter(|end| **end <= token % sizes.keys).count() as i32 + 1;
        let documents = (0..sizes.batch * sizes.keys).map(document).collect();
        let tensors = Tensors::drawn(sizes, documents, seed);
        let by_blocks = request(rules, &sizes, true);
        let all = Request { mask: Some(Arc::new(of_the_score) as Body), ..by_blocks.clone() };
        for device in devices() {
            let [by_blocks, all] = [&by_blocks, &all].map(|request| run(device, Way::Tiled, request, &tensors));
            let name = device.name();
            all_near(&name, &by_blocks, &all);
            prop_assert!(name != "cpu" || by_blocks == all, "another bit on {}", name);
        }
    }

    #[test]
    fn two_lengths_in_one_bucket_never_see_each_other(
        sizes in sizes(1..2), lengths in prop::array::uniform2(1..120_usize), window in prop::option::of(1..60_u32),
        documents: bool, seed: u32
    ) {
        let rules = Rules { window, documents, ..causal() };
        let mut request = request(rules, &sizes, true);
        request.more.push(Feature::DynamicLengths);
        let shapes = |length: usize| Sizes { queries: length, keys: length, ..sizes };
        let [mut first, second] = lengths.map(|length| {
            Tensors::drawn(shapes(length), vec![1; sizes.batch * length], seed ^ length as u32)
        });
        first.given.iter_mut().flatten().for_each(|x| *x *= 1e18); // what is left over would be seen
        for device in devices() {
            for back_end in able(&request) {
                let want = dynamic(device, back_end.way, &request, &[&second]);
                let got = dynamic(device, back_end.way, &request, &[&first, &second]);
                prop_assert_eq!(got, want, "{} on {}, lengths {:?}", back_end.name, device.name(), lengths);
            }
        }
    }
}

/// What the last of some tensors give, of all that are run with one program in one bucket.
fn dynamic(device: &dyn Device, way: Way, request: &Request, all: &[&Tensors]) -> Vec<Vec<f64>> {
    let lengths = ["T", "T", "P"].map(Dim::symbol);
    let shape = Shape { lengths, longest: 512, ..Shape::of(all[0].sizes, 1, Dtype::F32) };
    let graph = write(way, request, &Solution, &shape).expect("it can be written");
    let buckets = ["T", "P"].map(|symbol| (symbol.into(), vec![512])).into_iter().collect();
    let settings = Settings { poison: true, buckets, ..Settings::default() };
    let mut one = OneGraph::new(&graph::Solution, device, &graph, settings).expect("it loads");
    let run = |tensors: &&Tensors| one.arrays(&tensors.values(way, request)).expect("it runs");
    let last = all.iter().map(run).last().expect("a run");
    assert_eq!(one.counters().compilations, 1, "one bucket");
    last.iter().map(Array::wide).collect()
}

// ---- the definition

fn halved(at: &ScoreEntry) -> Tensor {
    &(&at.score * 0.5) - &(&at.head.cast(Dtype::F32) * 0.25)
}

/// All keys but the second one before the query.
fn holed(at: &ScoreEntry) -> Tensor {
    let hole = &at.query - 2.0;
    or(&at.key.less(&hole), &hole.less(&at.key))
}

/// A request with these features, and what it means.
fn with(features: &[Feature], sizes: Sizes, tensors: &Tensors) -> (Request, Problem) {
    let has = |feature| features.contains(&feature);
    let rules = Rules {
        causal: has(Feature::Causal),
        window: has(Feature::Window).then_some(5),
        prefix: has(Feature::Prefix).then_some(4),
        documents: has(Feature::Documents),
    };
    let mut more = request(rules, &sizes, has(Feature::Gradients)).more;
    more.extend(has(Feature::Documents).then_some(Feature::Documents));
    let request = Request {
        softcap: has(Feature::SoftCap).then_some(1.5),
        alibi: has(Feature::Alibi),
        score: has(Feature::ScoreProgram).then(|| Arc::new(halved) as Body),
        mask: has(Feature::MaskProgram).then(|| Arc::new(holed) as Body),
        sinks: has(Feature::Sinks),
        keep: has(Feature::Dropout).then_some(0.75),
        more,
        ..request(rules, &sizes, false)
    };
    let scores = sizes.batch * sizes.heads * sizes.queries * sizes.keys;
    let kept = |i: u32, keep: f64| happens(KEY.map(|word| word as u32), i, 0, keep);
    let dropped =
        |keep: f64| (0..scores as u32).map(|i| if kept(i, keep) { keep.recip() } else { 0.0 }).collect();
    let problem = Problem {
        sizes,
        scale: request.scale,
        offset: request.offset,
        rules,
        documents: tensors.documents.clone(),
        softcap: request.softcap,
        alibi: request.alibi,
        score: request.score.is_some().then_some(|s, [_, head, _, _]| [0.5 * s - 0.25 * head as f64, 0.5]),
        mask: request.mask.is_some().then_some(|[_, _, query, key]| key + 2 != query),
        sinks: request.sinks.then(|| tensors.sinks.clone()),
        dropout: request.keep.map(dropped),
    };
    (request, problem)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_features_at_once_are_what_the_definition_says(
        features in subsequence(Feature::ALL.to_vec(), 0..=Feature::ALL.len()), rows in rows(), sizes in sizes(1..2),
        skipped in 0..20_usize, seed: u32
    ) {
        let (documents, keys, _) = laid(&rows);
        let is_short = features.contains(&Feature::ShortQueries);
        let queries = if is_short { keys - skipped.min(keys - 1) } else { keys };
        let sizes = Sizes { batch: rows.len(), queries, keys, ..sizes };
        let tensors = Tensors::drawn(sizes, documents, seed);
        let (request, problem) = with(&features, sizes, &tensors);
        let truth = problem.attend(tensors.given.each_ref().map(Vec::as_slice));
        let [grad_q, grad_k, grad_v] = truth.gradients;
        let gradients = [("grad_q", grad_q), ("grad_k", grad_k), ("grad_v", grad_v)];
        let truth = [("output", truth.output), ("lse", truth.lse)].into_iter().chain(gradients);
        let truth: Found = truth.map(|(name, numbers)| (name.to_owned(), numbers)).collect();
        prop_assert!(able(&request).iter().any(|back_end| back_end.way == Way::Expanded));
        each(&request, &tensors, |what, found| all_near(what, found, &truth));
    }
}

// ---- the golden file

/// One attention that the original library computed.
#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    kind: String,
    q_offset: usize,
    scale: f64,
    softcap: Option<f64>,
    window: Option<u32>,
    prefix: Option<u32>,
}

const NAMES: [&str; 4] = ["out", "grad_q", "grad_k", "grad_v"];

impl Case {
    fn is(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.kind.contains(kind))
    }

    /// The request that its kind stands for.
    fn request(&self, sizes: &Sizes) -> Request {
        let rules = Rules {
            causal: self.is(&["causal", "window", "alibi", "document", "prefix"]),
            window: self.window,
            prefix: self.prefix,
            documents: self.is(&["document"]),
        };
        let mut plain = request(rules, sizes, true);
        plain.more.extend(rules.documents.then_some(Feature::Documents));
        Request {
            scale: self.scale,
            offset: self.q_offset,
            softcap: self.softcap,
            alibi: self.is(&["alibi"]),
            score: self.is(&["rel_bias"]).then(|| Arc::new(biased) as Body),
            ..plain
        }
    }

    /// Its tensors, and what has to come out.
    fn read(&self, tensors: &SafeTensors) -> (Tensors, Found) {
        let tensor = |part: &str| tensors.tensor(&format!("{}.{part}", self.name)).expect("a tensor");
        let floats = |part: &str| -> Vec<f64> {
            tensor(part).data().as_chunks().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect()
        };
        let shape = |part: &str| <[usize; 4]>::try_from(tensor(part).shape()).expect("four dimensions");
        let ([batch, heads, queries, depth], [_, groups, keys, _]) = (shape("q"), shape("k"));
        let [.., width] = shape("v");
        let sizes = Sizes { batch, heads, groups, queries, keys, depth, width };
        let ids = tensors.tensor(&format!("{}.document_ids", self.name));
        let ids = ids.map_or(vec![0; keys], |ids| {
            ids.data().as_chunks().0.iter().map(|x| i64::from_le_bytes(*x) as i32).collect()
        });
        let documents = (0..batch * keys).map(|token| ids[token % keys] + 1).collect(); // theirs begin with 0
        let given = ["q", "k", "v", "grad_out"].map(floats);
        let want = NAMES.map(|name| (if name == "out" { "output" } else { name }.to_owned(), floats(name)));
        (Tensors { sizes, given, documents, sinks: Vec::new() }, want.into_iter().collect())
    }
}

/// -0.05 for each step between query and key.
fn biased(at: &ScoreEntry) -> Tensor {
    distance_bias(at, &at.score, 0.05)
}

/// There is no token left to pack, and no block to compute.
#[test]
fn a_batch_of_padding_alone_has_zeros_on_every_back_end() {
    let sizes = Sizes { batch: 2, heads: 2, groups: 1, queries: 5, keys: 5, depth: 3, width: 4 };
    let tensors = Tensors::drawn(sizes, vec![0; 10], 1);
    for sinks in [false, true] {
        each(&Request { sinks, ..local(None, &sizes) }, &tensors, |what, found| {
            for (name, numbers) in found {
                let nothing = if name == "lse" { f64::NEG_INFINITY } else { 0.0 };
                assert!(numbers.iter().all(|x| *x == nothing), "{what}: {name}: {numbers:?}");
            }
        });
    }
}

#[test]
fn every_golden_case_is_that_of_the_original_on_every_back_end() {
    golden::each_case("open-attention.safetensors", |case: &Case, stored| {
        let (tensors, want) = case.read(stored);
        let whole = case.request(&tensors.sizes);
        let mut forward = whole.clone();
        forward.more.retain(|feature| *feature != Feature::Gradients);
        let in_pieces =
            able(&forward).into_iter().filter(|back_end| !back_end.has.contains(&Feature::Gradients));
        let runs = able(&whole).into_iter().map(|back_end| (back_end, &whole));
        let runs: Vec<_> = runs.chain(in_pieces.map(|back_end| (back_end, &forward))).collect();
        assert!(runs.len() >= 3, "{}: tiled, expanded and split have what {} wants", case.name, case.kind);
        for (back_end, request) in runs {
            if back_end.way == Way::Packed && follow(&tensors.documents, tensors.sizes.keys).is_err() {
                continue; // a document that goes on after another one
            }
            for device in devices() {
                let mut found = run(device, back_end.way, request, &tensors);
                found.remove("lse"); // the original has none
                let what = format!("{} ({}), {} on {}", case.name, case.kind, back_end.name, device.name());
                all_near(&what, &found, &want);
            }
        }
    });
}
