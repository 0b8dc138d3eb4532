//! Agreement: a step that is compiled for buckets is, at every length, the step that was written.

use std::collections::BTreeMap;

use challenges::graph::Solution;
use compiler::compile::{Level, Options};
use compiler::session::{DeviceTensor, Error, Io, NoDequantizer, Session, Settings};
use compiler::tune::Tuned;
use kernels::cpu::Vector;
use kernels::{Cpu, Device};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Data, Dim, Dtype, Facts, Graph, Symbol, interpret};
use reference::llama::train::{Recipe, moments, step_of};
use reference::llama::{Llama, rope};
use reference::lora::{self, Adapter, Targets};
use reference::optim::AdamW;
use serde_json::json;
use tests::attempts::with_buckets;
use tests::one_graph::{OneGraph, array, bytes, card, devices, floats, upload};
use tests::small_llama::SmallLlama;

/// A small Llama with an adapter, for sequences of up to 4096 tokens.
struct Step {
    llama: Llama,
    graph: Graph,
    fixed: Values<f32>,
}

impl Step {
    fn new() -> Self {
        let llama =
            SmallLlama::sound().with("max_position_embeddings", json!(4096)).open().expect("it is sound");
        let config = lora::Config::new(3, 6.0, Targets::AllLinear);
        let adapter = Adapter::fresh(config.clone(), &llama.config, 7).expect("targets are projections");
        let mut spec = llama.spec();
        spec.adapter = Some(config);
        let recipe = Recipe { optimizer: AdamW::default(), max_norm: 1.0 };
        let graph = step_of(spec.training_loss().expect("a graph"), &recipe).expect("a step");
        let mut fixed: Values<f32> = llama.values().expect("weights");
        for (seed, (name, value)) in adapter.values::<f32>().into_iter().enumerate() {
            let numbers = (0..value.data.len()).map(|i| (((i * 37 + seed * 11) % 41) as f64 - 20.0) / 100.0);
            for moment in moments(&name) {
                let small = numbers.clone().map(|x| x * x * 1e-3 + 1e-6);
                fixed.insert(moment, Array::floats(Dtype::F32, &value.shape, small));
            }
            fixed.insert(name, Array::floats(Dtype::F32, &value.shape, numbers));
        }
        fixed.append(&mut recipe.optimizer.rates(2, 1e-3));
        Self { llama, graph, fixed }
    }

    fn values(&self, batch: usize, length: usize) -> Values<f32> {
        let token = |i: usize, salt: usize| ((i * 7 + salt * 5 + i * i) % 17) as i32;
        let tokens = |salt| (0..batch * length).map(|i| token(i, salt)).collect::<Vec<_>>();
        let mut values = self.fixed.clone();
        values.append(&mut rope::values(&self.llama.config, length));
        values.insert("ids".into(), Array::integers(&[batch, length], tokens(length)));
        values.insert("labels".into(), Array::integers(&[batch, length], tokens(length + 1)));
        values
    }
}

/// Where two runs differ by more than sums in another order do.
fn apart(
    device: &dyn Device,
    graph: &Graph,
    got: &BTreeMap<String, DeviceTensor>,
    want: &[Array<f32>],
) -> Option<String> {
    graph.outputs().iter().zip(want).find_map(|((name, id), want)| {
        let got = array(device, graph.ty(*id).dtype, &got[name]);
        if got.shape != want.shape {
            return Some(format!("{name}: expected shape {:?}, found {:?}", want.shape, got.shape));
        }
        let (Data::Float(got), Data::Float(want)) = (&got.data, &want.data) else { return None };
        let largest = want.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        let far = (0..got.len()).find(|i| got[*i].is_nan() || (got[*i] - want[*i]).abs() > 3e-5 * largest)?;
        Some(format!("{name}: element {far}: expected {}, found {}", want[far], got[far]))
    })
}

/// The step operation by operation, for this length alone.
fn operation_by_operation(
    step: &Step,
    device: &dyn Device,
    inputs: &BTreeMap<String, DeviceTensor>,
) -> Vec<Array<f32>> {
    let options = Options { flex: false, ..Level::O1.options() };
    let settings = Settings { exact: true, options: Some(options), ..Settings::default() };
    let mut plain = OneGraph::new(&Solution, device, &step.graph, settings).expect("it can be run");
    let results = plain.run(inputs).expect("it runs");
    let output = |(name, id): &(String, _)| array(device, step.graph.ty(*id).dtype, &results[name]);
    step.graph.outputs().iter().map(output).collect()
}

#[test]
fn every_length_has_the_results_of_the_step_as_it_is_written() {
    devices().into_iter().for_each(lengths_have_the_results_of_the_step);
}

fn lengths_have_the_results_of_the_step(device: &dyn Device) {
    let step = Step::new();
    let mut session =
        OneGraph::new(&Solution, device, &step.graph, Settings::default()).expect("it can be padded");
    let lengths = [1, 2, 3, 5, 31, 32, 33, 64, 97, 127, 128, 251, 509, 512, 769, 1021, 4093, 4096];
    for length in lengths {
        let values = step.values(1, length);
        let inputs = upload(device, &values);
        let got = session.run(&inputs).unwrap_or_else(|error| panic!("{length}: {error}"));
        let want = if length <= 97 {
            interpret(&step.graph, &values).expect("it has a meaning")
        } else if length < 4000 {
            operation_by_operation(&step, device, &inputs)
        } else {
            continue; // the scores of its definition take gigabytes: it is enough that it runs
        };
        assert_eq!(apart(device, &step.graph, &got, &want), None, "length {length}");
    }
    let counters = session.counters();
    let buckets = session.buckets("T").len();
    assert!(counters.compilations <= buckets, "{} compilations for {buckets} buckets", counters.compilations);
    assert_eq!((counters.runs, counters.hits + counters.compilations), (lengths.len(), lengths.len()));
}

#[test]
fn a_hundred_lengths_and_some_batches_take_few_compilations() {
    devices().into_iter().for_each(a_hundred_lengths);
}

fn a_hundred_lengths(device: &dyn Device) {
    let step = Step::new();
    let mut session =
        OneGraph::new(&Solution, device, &step.graph, Settings::default()).expect("it can be padded");
    for number in 0..100 {
        let length = 1 + number * 37 % 101;
        let inputs = upload(device, &step.values(1 + number % 3, length));
        session.run(&inputs).unwrap_or_else(|error| panic!("{length}: {error}"));
    }
    let most = session.buckets("T").iter().filter(|size| **size <= 128).count() * 3;
    let made = session.counters().compilations;
    assert!(made <= most, "{made} compilations, there are {most} buckets up to these sizes");
}

#[test]
fn what_is_sealed_refuses_to_compile_and_says_for_which_size() {
    devices().into_iter().for_each(sealed_refuses);
}

fn sealed_refuses(device: &dyn Device) {
    let step = Step::new();
    let mut session =
        OneGraph::new(&Solution, device, &step.graph, Settings::default()).expect("it can be padded");
    session.run(&upload(device, &step.values(1, 20))).expect("it runs");
    session.seal();
    session.run(&upload(device, &step.values(1, 31))).expect("that bucket is compiled");
    let refused = session.run(&upload(device, &step.values(1, 65)));
    let message = refused.expect_err("that bucket is not").to_string();
    assert!(message.contains("B = 1, T = 96") && message.contains("B = 1, T = 32"), "{message}");
}

#[test]
fn inputs_that_do_not_fit_are_refused_by_name() {
    devices().into_iter().for_each(refuses_inputs);
}

fn refuses_inputs(device: &dyn Device) {
    let step = Step::new();
    let mut session =
        OneGraph::new(&Solution, device, &step.graph, Settings::default()).expect("it can be padded");
    let mut refused = |spoil: &dyn Fn(&mut Values<f32>)| {
        let mut values = step.values(1, 5);
        spoil(&mut values);
        session.run(&upload(device, &values)).expect_err("it does not fit").to_string()
    };
    assert_eq!(refused(&|values| _ = values.remove("labels")), "missing input `labels`");
    let message = refused(&|values| _ = values.insert("labels".into(), Array::integers(&[1, 4], vec![1; 4])));
    assert_eq!(message, "input `labels`: expected i32[B, T], found the shape [1, 4]");
    let message = refused(&|values| {
        values.insert("ids".into(), Array::integers(&[1, 5000], vec![1; 5000]));
        values.insert("labels".into(), Array::integers(&[1, 5000], vec![1; 5000]));
    });
    assert_eq!(message, "T: expected 1..=4096, found 5000");
}

#[test]
fn what_tuning_found_is_kept_and_answers_the_next_run() {
    devices().into_iter().for_each(keeps_what_tuning_found);
}

fn keeps_what_tuning_found(device: &dyn Device) {
    let step = Step::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tuned.txt");
    let settings = || Settings { level: Level::O3, tuned: Some(file.clone()), ..Settings::default() };
    let inputs = upload(device, &step.values(1, 24));
    let run = || {
        let mut session =
            OneGraph::new(&Solution, device, &step.graph, settings()).expect("it can be padded");
        let results = session.run(&inputs).expect("it runs");
        let cuts = format!("{:?}", session.compiled(&inputs).expect("it is compiled").plan().steps);
        let losses = bytes(device, &results["loss"].buffer);
        (session.counters().trials, session.tuned().answers().clone(), cuts, losses)
    };
    let (first, second) = (run(), run());
    assert!(first.0 > 0 && second.0 == 0, "{} trials, then {}", first.0, second.0);
    assert_eq!(
        (first.1, first.2, first.3),
        (second.1, second.2, second.3),
        "a recorded run is repeated bit for bit"
    );
}

/// A step of tuning: `y = x w`, both 33 x 65 and 65 x 40.
fn tunable() -> (Graph, Values<f32>) {
    let builder = Builder::new("product");
    let [x, w] = [("x", [33, 65]), ("w", [65, 40])]
        .map(|(name, shape)| builder.tape().input(name, Dtype::F32, shape.map(Dim::from)));
    builder.tape().output("y", &x.matmul(&w));
    let numbers = |rows: usize, columns: usize| {
        Array::floats(Dtype::F32, &[rows, columns], (0..rows * columns).map(|i| (i % 7) as f64))
    };
    let values = [("x".to_owned(), numbers(33, 65)), ("w".to_owned(), numbers(65, 40))];
    (builder.finish().expect("shapes fit"), values.into())
}

/// How many trials a run takes that keeps its answers in a file.
fn trials(device: &dyn Device, file: &std::path::Path) -> usize {
    let (graph, values) = tunable();
    let settings = Settings { level: Level::O3, tuned: Some(file.to_owned()), ..Settings::default() };
    let mut session = OneGraph::new(&Solution, device, &graph, settings).expect("it can be run");
    session.run(&upload(device, &values)).expect("it runs");
    session.counters().trials
}

#[test]
fn tuned_answers_hold_for_their_machine_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tuned.txt");
    let portable = || Cpu::with_threads(1).limited_to(Vector::Portable).expect("it is everywhere");
    for device in [Cpu::with_threads(1), Cpu::with_threads(2), Cpu::with_threads(3)] {
        assert!(trials(&device, &file) > 0, "{} threads answer for others", device.threads());
        assert_eq!(trials(&device, &file), 0);
    }
    if portable().vector() != Cpu::with_threads(1).vector() {
        assert!(trials(&portable(), &file) > 0, "one vector unit answers for another");
    }
    let processor = kernels::cpu::host().cpu.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = std::fs::read_to_string(&file).expect("a file").replace(&processor, "another");
    std::fs::write(&file, text).expect("a file");
    assert!(trials(&Cpu::with_threads(2), &file) > 0, "one processor answers for another");
}

#[test]
fn a_torn_file_of_answers_is_found_out_again() {
    devices().into_iter().for_each(finds_out_again);
}

fn finds_out_again(device: &dyn Device) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tuned.txt");
    let all = trials(device, &file);
    let whole = std::fs::read(&file).expect("a file");
    let unfit = String::from_utf8_lossy(&whole).replace(['\n'], "?\n").into_bytes();
    let torn = whole[..whole.len() - 3].to_vec();
    let text = b"a question without an answer\n\n\t\nlibrary\n".to_vec();
    for spoilt in [torn, unfit, text, vec![0xff; 4096], Vec::new()] {
        std::fs::write(&file, &spoilt).expect("a file");
        assert_eq!(trials(device, &file), all, "{spoilt:?}");
        assert_eq!(trials(device, &file), 0, "it is whole again");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    assert_eq!(left.len(), 1, "nothing is left beside it: {left:?}");
    assert!(Tuned::read(folder.path()).answers().is_empty(), "a folder has no answers");
}

#[test]
fn an_answer_that_is_no_candidate_is_found_out_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tuned.txt");
    let device = Cpu::with_threads(1); // where cutting by batch is none
    let all = trials(&device, &file);
    let mut text = String::new();
    for line in std::fs::read_to_string(&file).expect("a file").lines() {
        let (question, _) = line.rsplit_once('\t').expect("an answer");
        text.extend([question, "\tbatch\n"]);
    }
    std::fs::write(&file, text).expect("a file");
    assert_eq!(trials(&device, &file), all);
}

#[test]
fn buckets_that_leave_a_size_out_are_refused() {
    let builder = Builder::new("short");
    let length = builder.tape().symbol("T", Facts::range(1, 64));
    builder.tape().output("y", &builder.tape().input("x", Dtype::F32, [length]).exp());
    let graph = builder.finish().expect("a graph");
    let device = Cpu::with_threads(1);
    for buckets in [vec![], vec![16, 32], vec![32, 16, 64], vec![64, 128]] {
        let passes = with_buckets(buckets.clone());
        let refused = OneGraph::new(&passes, &device, &graph, Settings::default());
        assert!(matches!(refused, Err(Error::Buckets { .. })), "{buckets:?} are taken");
    }
}

#[test]
fn what_is_sealed_runs_in_a_larger_bucket_that_is_compiled() {
    devices().into_iter().for_each(sealed_runs_in_a_larger_bucket);
}

fn sealed_runs_in_a_larger_bucket(device: &dyn Device) {
    let step = Step::new();
    let mut session =
        OneGraph::new(&Solution, device, &step.graph, Settings::default()).expect("it can be padded");
    session.run(&upload(device, &step.values(2, 40))).expect("it runs");
    session.run(&upload(device, &step.values(1, 96))).expect("it runs");
    session.seal();
    for (batch, length) in [(1, 40), (2, 33), (1, 3), (2, 48), (1, 95)] {
        let values = step.values(batch, length);
        let got = session.run(&upload(device, &values)).unwrap_or_else(|error| panic!("{length}: {error}"));
        let want = interpret(&step.graph, &values).expect("it has a meaning");
        assert_eq!(apart(device, &step.graph, &got, &want), None, "batch {batch}, length {length}");
    }
    assert_eq!(session.counters().compilations, 2);
    let message =
        session.run(&upload(device, &step.values(2, 49))).expect_err("nothing holds it").to_string();
    assert!(message.contains("B = 2, T = 64"), "{message}");
}

/// `sum of x over N`, and x itself, with N up to 100.
fn summed() -> Graph {
    let builder = Builder::new("summed");
    let tape = builder.tape();
    let rows = tape.symbol("N", Facts::range(1, 100));
    let x = tape.input("x", Dtype::F32, [rows, 3.into()]);
    tape.output("sum", &x.sum(0));
    tape.output("twice", &(&x + &x));
    builder.finish().expect("a graph")
}

#[test]
fn a_tensor_of_its_buckets_size_is_not_copied_and_its_padding_not_read() {
    let cpu = Cpu::with_threads(2); // whose copies no other test counts
    [&cpu as &dyn Device].into_iter().chain(card()).for_each(copies_no_tensor_of_its_buckets_size);
}

fn copies_no_tensor_of_its_buckets_size(device: &dyn Device) {
    let graph = summed();
    let mut session = Session::new(&Solution, device, &NoDequantizer, Settings::default());
    let program = session.load(&graph).expect("it can be padded");
    for rows in [1_i64, 5, 33, 47] {
        let sizes = BTreeMap::from([("N".into(), rows)]);
        let padded = session.rounded(program, &sizes).expect("a bucket")["N"] as usize;
        let number = |i: usize| if i < 3 * rows as usize { i as f32 } else { f32::NAN };
        let numbers: Vec<u8> = (0..3 * padded).flat_map(|i| number(i).to_ne_bytes()).collect();
        let x = DeviceTensor::new(device, &[padded, 3], &numbers).expect("room");
        session.run(program, io(&x, &sizes)).expect("it runs"); // compiled, and the length is there
        let uploaded = device.counts().uploaded_bytes;
        let outputs = session.run(program, io(&x, &sizes)).expect("it runs");
        let twice = outputs.array("twice").expect("an output");
        assert_eq!(twice.shape, [rows as usize, 3]);
        assert!(
            twice.as_floats().iter().enumerate().all(|(i, x)| x.to_bits() == (2.0 * i as f32).to_bits()),
            "{rows} rows"
        );
        let column = |at: usize| (0..rows as usize).map(|row| (3 * row + at) as f32).sum::<f32>();
        let sum = outputs.array("sum").expect("an output");
        assert_eq!(sum.as_floats(), [column(0), column(1), column(2)]);
        assert_eq!(device.counts().uploaded_bytes, uploaded, "the length is there from the run before");
    }
}

/// What follows from sizes is taken from the run before; what tensors hold is not, whether they are copied into a
/// bucket or have its size, and neither is a size that changes and comes back.
#[test]
fn runs_of_the_same_sizes_read_what_they_are_given() {
    devices().into_iter().for_each(runs_read_what_they_are_given);
}

fn runs_read_what_they_are_given(device: &dyn Device) {
    let graph = summed();
    let mut session = Session::new(&Solution, device, &NoDequantizer, Settings::default());
    let program = session.load(&graph).expect("it can be padded");
    let tensor = |rows: usize, from: f32| {
        let numbers = (0..3 * rows).flat_map(|i| (from + i as f32).to_ne_bytes()).collect::<Vec<u8>>();
        DeviceTensor::new(device, &[rows, 3], &numbers).expect("room")
    };
    let sums = |rows: i64, from: f32| {
        [0.0, 1.0, 2.0].map(|at| (0..rows).map(|row| from + at + 3.0 * row as f32).sum::<f32>())
    };
    for from in [0.0, 7.0, -2.0] {
        let x = tensor(5, from); // copied into its bucket
        let none = BTreeMap::new();
        let outputs = session.run(program, io(&x, &none)).expect("it runs");
        assert_eq!(outputs.array("sum").expect("an output").as_floats(), sums(5, from), "from {from}");
    }
    for (rows, from) in [(5, 1.0), (7, 1.0), (5, 1.0), (5, 4.0), (8, 4.0), (7, 4.0)] {
        let sizes = BTreeMap::from([("N".into(), rows)]);
        let x = tensor(8, from); // has its bucket's size
        let outputs = session.run(program, io(&x, &sizes)).expect("it runs");
        assert_eq!(outputs.array("twice").expect("an output").shape, [rows as usize, 3]);
        let found = outputs.array("sum").expect("an output");
        assert_eq!(found.as_floats(), sums(rows, from), "{rows} rows from {from}");
    }
    session.seal();
    let (sizes, x) = (BTreeMap::from([("N".into(), 6)]), tensor(8, 4.0));
    let outputs = session.run(program, io(&x, &sizes)).expect("8 rows are compiled");
    assert_eq!(outputs.array("sum").expect("an output").as_floats(), sums(6, 4.0));
}

#[test]
fn a_tensor_of_neither_size_is_refused_by_name() {
    devices().into_iter().for_each(refuses_a_tensor_of_neither_size);
}

fn refuses_a_tensor_of_neither_size(device: &dyn Device) {
    let graph = summed();
    let mut session = Session::new(&Solution, device, &NoDequantizer, Settings::default());
    let program = session.load(&graph).expect("it can be padded");
    let x = DeviceTensor::new(device, &[40, 3], &[0; 480]).expect("room");
    for (rows, words) in
        [(33, "input `x`: expected f32[N, 3], found the shape [40, 3]"), (101, "N: expected ")]
    {
        let sizes = BTreeMap::from([("N".into(), rows)]);
        let message = session.run(program, io(&x, &sizes)).map(|_| ()).expect_err("neither").to_string();
        assert!(message.contains(words), "{message}");
    }
}

fn io<'a>(x: &'a DeviceTensor, sizes: &BTreeMap<Symbol, i64>) -> Io<'a> {
    Io { inputs: BTreeMap::from([("x", x)]), sizes: sizes.clone(), ..Io::default() }
}

#[test]
fn a_forecast_compiles_once_and_holds_for_every_size() {
    let (graph, device) = (summed(), Cpu::with_threads(2));
    let mut session = Session::new(&Solution, &device, &NoDequantizer, Settings::default());
    let program = session.load(&graph).expect("it can be padded");
    let sizes = |rows: i64| BTreeMap::from([("N".into(), rows)]);
    let first = session.memory_profile(program, &sizes(20)).expect("it compiles");
    assert_eq!(session.counters().compilations, 1);
    session.seal();
    let second = session.memory_profile(program, &sizes(90)).expect("it is compiled");
    assert_eq!(first, second);
    let of = |rows: i64| first.peak(&sizes(rows)).expect("bound").1;
    assert_eq!(of(90) - of(89), of(3) - of(2));
}

/// A padded copy would be updated in its place.
#[test]
fn a_donated_tensor_smaller_than_its_bucket_is_refused_by_name() {
    devices().into_iter().for_each(refuses_a_small_donated_tensor);
}

fn refuses_a_small_donated_tensor(device: &dyn Device) {
    let builder = Builder::new("updates");
    let length = builder.tape().symbol("T", Facts::range(1, 64));
    let [state, x] = ["state", "x"].map(|name| builder.tape().input(name, Dtype::F32, [&length]));
    builder.tape().output("state", &(&state + &x));
    let graph = builder.finish().expect("a graph");
    let passes = with_buckets(vec![16, 32, 64]);
    let settings = Settings { donate: true, ..Settings::default() };
    let mut one = OneGraph::new(&passes, device, &graph, settings).expect("it can be padded");
    let (session, program) = one.parts();
    let tensor = |count: usize| {
        DeviceTensor::new(device, &[count], &1.5_f32.to_ne_bytes().repeat(count)).expect("room")
    };
    let (x, mut state) = (tensor(20), tensor(20));
    let io = Io { inputs: [("x", &x)].into(), donated: [("state", &mut state)].into(), ..Io::default() };
    let message = session.run(program, io).err().expect("it is padded").to_string();
    assert_eq!(message, "donated tensor `state` must have its bucket's size: expected [32], found [20]");
    session.keep("state", state);
    let io = || Io { inputs: [("x", &x)].into(), ..Io::default() };
    assert!(matches!(session.run(program, io()), Err(Error::DonatedSize { .. })));
    let kept = session.release("state").expect("it is still there");
    assert_eq!(floats(device, &kept.buffer), [1.5; 20], "and as it was");
    let (x, mut state) = (tensor(32), tensor(32));
    let io = Io { inputs: [("x", &x)].into(), donated: [("state", &mut state)].into(), ..Io::default() };
    session.run(program, io).expect("it fills its bucket");
    assert_eq!(floats(device, &state.buffer), [3.0; 32]);
}
