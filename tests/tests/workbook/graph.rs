//! The graph: what the type checker refuses, what sizes obey, what becomes of nodes that move.

use std::collections::BTreeMap;

use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::programs::{causal, mask, score};
use reference::graph::{
    Array, Attention, Builder, Dim, Dtype, Facts, Fault, Graph, Id, Known, Op, Symbol, Tensor, Type, Unary,
    interpret,
};
use tests::graphs;

/// Inputs for a node that does not fit them.
const INPUTS: &str = r#"graph "g" (T in 2..=8, U in 0..=9) {
  %0 = input "x" : f32[T, 3]
  %1 = input "i" : i32[T, 3]
  %2 = input "u" : u8[T, 3]
  %3 = input "h" : f16[T, 3]
  %4 = input "m" : f32[3, 5]
  %5 = input "s" : f32[]
  %6 = input "q" : f32[2, 4, T, 8]
  %7 = input "k" : f32[2, 3, T, 8]
  %8 = input "bytes" : u8[16]
  %9 = input "table" : f32[16]
  %10 = input "absmax" : f32[1]
"#;

/// Every refusal: a node, and what its error says.
const REFUSED: [(&str, &str); 78] = [
    // Numbers of inputs.
    ("input %0 \"y\" : f32[]", "input \"y\": inputs: expected 0, found 1"),
    ("neg %0 %0 : f32[T, 3]", "neg: inputs: expected 1, found 2"),
    ("detach : f32[T, 3]", "detach: inputs: expected 1, found 0"),
    ("cast %0 %0 : f32[T, 3]", "cast: inputs: expected 1, found 2"),
    ("add %0 : f32[T, 3]", "add: inputs: expected 2, found 1"),
    ("less %0 : u8[T, 3]", "less: inputs: expected 2, found 1"),
    ("select %2 %0 : f32[T, 3]", "select: inputs: expected 3, found 2"),
    ("sum dim 0 : f32[1]", "sum: inputs: expected 1, found 0"),
    ("matmul %0 : f32[T, 3]", "matmul: inputs: expected 2, found 1"),
    ("gather %0 : f32[T, 3]", "gather: inputs: expected 2, found 1"),
    ("scatter_add %0 : f32[T, 3]", "scatter_add: inputs: expected 2, found 1"),
    ("reshape : f32[T, 3]", "reshape: inputs: expected 1, found 0"),
    ("transpose order : f32[]", "transpose: inputs: expected 1, found 0"),
    ("broadcast : f32[T, 3]", "broadcast: inputs: expected 1, found 0"),
    ("slice %0 %0 dim 0 from 0 to 1 : f32[1, 3]", "slice: inputs: expected 1, found 2"),
    ("concat dim 0 : f32[]", "concat: inputs: expected at least 1, found 0"),
    ("constant %0 1.0 : f32[]", "constant: inputs: expected 0, found 1"),
    ("iota %0 dim 0 : i32[4]", "iota: inputs: expected 0, found 1"),
    ("dequantize %8 %9 block 32 : f32[32]", "dequantize: inputs: expected 3, found 2"),
    ("dequantize %8 %9 %10 block 32 nested 32 : f32[32]", "dequantize: inputs: expected 6, found 3"),
    ("attention %6 %6 scale 1.0 : f32[2, 4, T, 8]", "attention: inputs: expected at least 3, found 2"),
    ("attention_grad wrt 0 scale 1.0 : f32[]", "inputs: expected those of an attention and a gradient"),
    // Types of elements.
    ("constant 0.5 : i32[]", "constant: 0.5 is no value of i32"),
    ("constant 256.0 : u8[]", "constant: 256.0 is no value of u8"),
    ("constant nan : u8[]", "constant: NaN is no value of u8"),
    ("constant 3e9 : i32[]", "constant: 3000000000.0 is no value of i32"),
    ("iota dim 0 : f32[4]", "iota: expected i32, found f32[4]"),
    ("exp %1 : i32[T, 3]", "exp: input 0: expected a float, found i32"),
    ("neg %2 : u8[T, 3]", "neg: input 0: expected a float or i32, found u8"),
    ("add %2 %2 : u8[T, 3]", "add: input 0: expected a float or i32, found u8"),
    ("add %0 %3 : f32[T, 3]", "add: input 1: expected f32, found f16"),
    ("less %1 %0 : u8[T, 3]", "less: input 1: expected i32, found f32"),
    ("select %0 %0 %0 : f32[T, 3]", "select: input 0: expected u8, found f32"),
    ("select %2 %0 %3 : f32[T, 3]", "select: input 2: expected f32, found f16"),
    ("sum %2 dim 0 : u8[1, 3]", "sum: input 0: expected a float or i32, found u8"),
    ("reduce_max %1 dim 0 : i32[1, 3]", "reduce_max: input 0: expected a float, found i32"),
    ("matmul %1 %4 : i32[T, 5]", "matmul: input 0: expected a float, found i32"),
    ("matmul %3 %4 : f16[T, 5]", "matmul: input 1: expected f16, found f32"),
    ("gather %4 %0 : f32[T, 3, 5]", "gather: input 1: expected i32, found f32"),
    ("scatter_add %1 %1 : i32[4]", "scatter_add: input 0: expected a float, found i32"),
    ("scatter_add %0 %0 : f32[4]", "scatter_add: input 1: expected i32, found f32"),
    ("concat %0 %3 dim 0 : f32[2*T, 3]", "concat: input 1: expected f32, found f16"),
    ("dequantize %9 %9 %10 block 32 : f32[32]", "dequantize: input 0: expected u8, found f32"),
    ("dequantize %8 %9 %10 block 32 : u8[32]", "dequantize: expected a float of fixed sizes, found u8[32]"),
    ("attention %1 %1 %1 scale 1.0 : i32[T, 3]", "attention: input 0: expected a float, found i32"),
    // Shapes.
    ("iota dim 1 : i32[4]", "iota: dimension 1 of 1"),
    ("add %0 %4 : f32[T, 3]", "add: input 1: expected [T, 3], found shape [3, 5]"),
    ("select %2 %4 %4 : f32[3, 5]", "select: input 0: expected [3, 5], found shape [T, 3]"),
    ("cast %0 : f16[3, T]", "cast: expected the shape of its input, found f16[3, T]"),
    ("sum %0 dim 2 : f32[1, 3]", "sum: dimension 2 of 2"),
    ("matmul %5 %4 : f32[5]", "matmul: input 0: expected [.., M, K], found shape []"),
    ("matmul %0 %0 : f32[T, 3]", "matmul: input 1: expected [], then 3, then N, found shape [T, 3]"),
    (
        "matmul %6 %4 : f32[2, 4, T, 5]",
        "matmul: input 1: expected [2, 4], then 8, then N, found shape [3, 5]",
    ),
    ("gather %5 %1 : f32[T, 3]", "gather: input 0: expected [n, ..], found shape []"),
    ("scatter_add %4 %1 : f32[4]", "scatter_add: input 0: expected [T, 3] and a row, found shape [3, 5]"),
    ("scatter_add %0 %1 : f32[4, 3]", "scatter_add: expected n rows [] of f32, found f32[4, 3]"),
    ("scatter_add %0 %1 : f32[]", "scatter_add: expected n rows [] of f32, found f32[]"),
    ("reshape %0 : f32[T, 4]", "reshape: expected 3*T elements of f32, found f32[T, 4]"),
    ("reshape %0 : f16[3*T]", "reshape: expected 3*T elements of f32, found f16[3*T]"),
    ("transpose %0 order 0 0 : f32[T, T]", "transpose: order: expected a permutation of 0..2, found [0, 0]"),
    ("transpose %0 order 1 : f32[3]", "transpose: order: expected a permutation of 0..2, found [1]"),
    ("broadcast %0 : f32[T, 6]", "broadcast: expected f32[T, 3], with a 1 repeated, found f32[T, 6]"),
    ("broadcast %5 : f32[1]", "broadcast: expected f32[], with a 1 repeated, found f32[1]"),
    ("slice %0 dim 2 from 0 to 1 : f32[T, 3]", "slice: dimension 2 of 2"),
    (
        "slice %0 dim 1 from 2 to 4 : f32[T, 2]",
        "slice: expected 4 <= 3, which does not follow from the sizes",
    ),
    (
        "slice %0 dim 0 from 0 to 3 : f32[3, 3]",
        "slice: expected 3 <= T, which does not follow from T in 2..=8",
    ),
    (
        "slice %0 dim 0 from -1 to 1 : f32[2, 3]",
        "slice: expected 0 <= -1, which does not follow from the sizes",
    ),
    (
        "slice %0 dim 0 from U to T : f32[T - U, 3]",
        "expected U <= T, which does not follow from T in 2..=8, U in 0..=9",
    ),
    ("concat %0 %4 dim 0 : f32[T + 3, 3]", "concat: input 1: expected [3, 3], found shape [3, 5]"),
    ("concat %0 %5 dim 0 : f32[T, 3]", "concat: input 1: expected 2 dimensions, found shape []"),
    ("concat %0 dim 2 : f32[T, 3]", "concat: dimension 2 of 2"),
    ("dequantize %8 %9 %10 block 32 : f32[T]", "dequantize: expected a float of fixed sizes, found f32[T]"),
    ("dequantize %8 %9 %10 block 32 : f32[34]", "dequantize: input 0: expected [17], found shape [16]"),
    (
        "dequantize %8 %9 %10 block 48 : f32[32]",
        "block size: expected a power of two from 32 to 4096, found 48",
    ),
    (
        "attention %6 %7 %7 scale 1.0 : f32[2, 4, T, 8]",
        "input 1: expected a number of key heads that divides 4, found shape [2, 3, T, 8]",
    ),
    (
        "attention %6 %6 %4 scale 1.0 : f32[2, 4, T, 8]",
        "input 2: expected [batch, key heads, keys, Dv], found shape [3, 5]",
    ),
    ("attention %6 %6 %6 scale inf : f32[2, 4, T, 8]", "scale: expected a finite number, found inf"),
    (
        "attention_grad %6 %6 %6 %6 wrt 3 scale 1.0 : f32[2, 4, T, 8]",
        "wrt: expected the number of an input of floats, found 3",
    ),
];

#[test]
fn the_type_checker_refuses_with_what_is_there_and_what_is_needed() {
    for (node, want) in REFUSED {
        let text = format!("{INPUTS}  %11 = {node}\n}}");
        let got = Graph::parse(&text).expect_err(node).to_string();
        assert!(got.starts_with("line 13: ") && got.contains(want), "{node}\n  got  {got}\n  want {want}");
    }
}

#[test]
fn a_type_that_follows_otherwise_is_refused() {
    for (node, want) in [
        ("neg %0 : f16[T, 3]", "neg: expected f32[T, 3], found f16[T, 3]"),
        ("sum %0 dim 1 : f32[T]", "sum: expected f32[T, 1], found f32[T]"),
        ("less %0 %0 : f32[T, 3]", "less: expected u8[T, 3], found f32[T, 3]"),
        ("slice %0 dim 0 from 1 to T : f32[T, 3]", "slice: expected f32[T - 1, 3], found f32[T, 3]"),
        ("concat %0 %0 dim 0 : f32[T, 3]", "concat: expected f32[2*T, 3], found f32[T, 3]"),
        ("attention %6 %6 %6 scale 1.0 : f32[2, 4, 8, T]", "expected f32[2, 4, T, 8], found f32[2, 4, 8, T]"),
    ] {
        let text = format!("{INPUTS}  %11 = {node}\n}}");
        let got = Graph::parse(&text).expect_err(node).to_string();
        assert!(got.contains(want), "{node}\n  got  {got}\n  want {want}");
    }
}

/// The error of an attention (1, 1, 4, 2) with a program.
fn program_refused(program: &str, extras: &str) -> String {
    let text = format!(
        "graph \"g\" {{ %0 = input \"q\" : f32[1, 1, 4, 2] %1 = input \"e\" : f32[4] \
         %2 = attention %0 %0 %0 {extras} scale 1.0 {program} : f32[1, 1, 4, 2] }}"
    );
    Graph::parse(&text).expect_err(program).to_string()
}

const ARGUMENTS: &str = "%0 = input \"score\" : f32[] %1 = input \"batch\" : i32[] %2 = input \"head\" : i32[] \
                         %3 = input \"query\" : i32[] %4 = input \"key\" : i32[]";

#[test]
fn a_program_that_is_none_is_refused() {
    let scored = |rest: &str| format!("score graph \"p\" {{ {ARGUMENTS} {rest} }}");
    let masked = |rest: &str| format!("mask graph \"p\" {{ {ARGUMENTS} {rest} }}");
    for (program, extras, want) in [
        (
            scored("return \"y\" %0"),
            "%1",
            "`p`: inputs: expected score, batch, head, query, key and the extras, found 5",
        ),
        (scored("%5 = input \"e\" : f32[5] return \"y\" %0"), "%1", "`e`: expected f32[4], found f32[5]"),
        (scored(""), "", "`p`: number of outputs: expected 1, found 0"),
        (scored("return \"y\" %0, \"z\" %0"), "", "`p`: number of outputs: expected 1, found 2"),
        (scored("return \"y\" %1"), "", "`y`: expected f32[], found i32[]"),
        (masked("return \"y\" %0"), "", "`y`: expected u8[], found f32[]"),
        (
            scored(
                "%5 = reshape %0 : f32[1] %6 = sum %5 dim 0 : f32[1] %7 = reshape %6 : f32[] return \"y\" %7",
            ),
            "",
            "%5 reshape: expected a scalar, element by element or read from a table, found f32[1]",
        ),
        (
            scored(
                "%5 = input \"e\" : f32[4] %6 = constant 0.0 : i32[1] %7 = reshape %1 : i32[] %8 = gather %5 %7 : f32[] return \"y\" %8",
            ),
            "%1",
            "%7 reshape: expected a scalar, element by element or read from a table, found i32[]",
        ),
    ] {
        let got = program_refused(&program, extras);
        assert!(got.contains(&format!("in its program: {want}")), "{program}\n  got  {got}\n  want {want}");
    }
}

#[test]
fn what_only_a_builder_can_get_wrong_is_refused() {
    let mut graph = Graph::new("g");
    let untyped = graph.push(Op::Input { name: "x".into() }, &[]).expect_err("no type");
    assert_eq!(untyped.to_string(), "%0 input \"x\": its type has to be given");
    let nowhere = graph.push(Op::Unary(Unary::Neg), &[Id(7)]).expect_err("no input");
    assert_eq!(nowhere.to_string(), "%0 neg: %7 is no earlier node");
    let ty = Type::scalar(Dtype::F32);
    let x = graph.push_as(Op::Input { name: "x".into() }, &[], ty.clone()).expect("an input");
    graph.output("y", x);
    graph.check().expect("sound so far");

    let spoilt = |spoil: &dyn Fn(&mut Graph)| {
        let mut graph = graph.clone();
        spoil(&mut graph);
        graph.check().expect_err("spoilt").to_string()
    };
    assert_eq!(spoilt(&|graph| graph.output("z", Id(9))), "`z`: %9 is no earlier node");
    assert_eq!(spoilt(&|graph| graph.output("y", x)), "`y`: the name is used twice");
    assert_eq!(spoilt(&|graph| graph.know("T", Facts::range(3, 2))), "`T`: no size is in 3..=2");
    let again = |graph: &mut Graph| {
        graph.push_as(Op::Input { name: "x".into() }, &[], ty.clone()).expect("an input");
    };
    assert_eq!(spoilt(&again), "`x`: the name is used twice");
}

#[test]
fn a_fact_taken_back_spoils_the_slice_that_it_proved() {
    let mut graph = Graph::parse(&format!("{INPUTS} %11 = slice %0 dim 0 from 2 to T : f32[T - 2, 3] }}"))
        .expect("sound");
    graph.know("T", Facts::range(1, 8));
    let got = graph.check().expect_err("unproven").to_string();
    assert_eq!(got, "%11 slice: expected 2 <= T, which does not follow from T in 1..=8");
}

#[test]
fn a_mistake_of_a_builder_names_its_line() {
    let builder = Builder::new("g");
    let x = builder.tape().input("x", Dtype::F32, [2, 3]);
    let line = line!() + 1;
    let y = x.matmul(&x);
    builder.tape().output("y", &y.exp());
    let error = builder.finish().expect_err("shapes");
    assert!(matches!(error.fault, Fault::Shape { input: 1, .. }));
    assert_eq!(error.source.map(std::panic::Location::line), Some(line));
    assert!(error.to_string().ends_with(&format!("graph.rs:{line})")), "{error}");
}

#[test]
fn a_mistake_below_a_method_names_the_line_of_the_method() {
    type Mistake = fn(&Tensor, &Tensor) -> (u32, Tensor);
    let mistakes: [Mistake; 6] = [
        |_, bytes| (line!(), bytes.total()),
        |_, bytes| (line!(), bytes.mean(0)),
        |_, bytes| (line!(), bytes.logsumexp(0)),
        |_, bytes| (line!(), bytes.softmax(0)),
        |x, bytes| (line!(), bytes.select(x, bytes)),
        |x, bytes| (line!(), x + bytes),
    ];
    for mistake in mistakes {
        let builder = Builder::new("g");
        let x = builder.tape().input("x", Dtype::F32, [2, 3]);
        let bytes = builder.tape().input("bytes", Dtype::U8, [2, 3]);
        let (line, _) = mistake(&x, &bytes);
        let error = builder.finish().expect_err("bytes");
        assert_eq!(error.source.map(std::panic::Location::line), Some(line), "{error}");
        assert!(error.to_string().contains("graph.rs"), "{error}");
    }
}

#[test]
fn a_value_that_is_read_too_early_is_refused() {
    let builder = Builder::new("g");
    let x = builder.tape().input("x", Dtype::F32, [2]);
    assert!(x.read().is_none());
    let got = builder.finish().expect_err("read").to_string();
    assert!(got.starts_with("%0 input \"x\": its value is read while the graph is recorded"), "{got}");
}

/// A size of three symbols, as a list of terms to be added.
fn size() -> impl Strategy<Value = Dim> {
    let term = (-5..6_i64, prop::collection::vec(0..3_usize, 0..3));
    prop::collection::vec(term, 0..4).prop_map(|terms| {
        let one = |(number, symbols): (i64, Vec<usize>)| {
            symbols
                .iter()
                .fold(Dim::fixed(number), |term, symbol| &term * &Dim::symbol(["A", "B", "C"][*symbol]))
        };
        terms.into_iter().map(one).fold(Dim::default(), |sum, term| &sum + &term)
    })
}

/// Facts of three symbols, and values that satisfy them.
fn bound() -> impl Strategy<Value = (Known, BTreeMap<Symbol, i64>)> {
    let symbol = (0..40_i64, 1..5_i64, 0..9_i64, 0..9_i64);
    prop::collection::vec(symbol, 3).prop_map(|symbols| {
        let mut bound = (Known::new(), BTreeMap::new());
        for ((times, multiple, below, above), name) in symbols.into_iter().zip(["A", "B", "C"]) {
            let value = times * multiple;
            let facts = Facts::range((value - below).max(0), value + above).multiple_of(multiple);
            bound.0.insert(name.into(), facts);
            bound.1.insert(name.into(), value);
        }
        bound
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sizes_are_a_ring(a in size(), b in size(), c in size()) {
        let zero = Dim::fixed(0);
        prop_assert_eq!(&a + &b, &b + &a);
        prop_assert_eq!(&a * &b, &b * &a);
        prop_assert_eq!(&(&a + &b) + &c, &a + &(&b + &c));
        prop_assert_eq!(&(&a * &b) * &c, &a * &(&b * &c));
        prop_assert_eq!(&a * &(&b + &c), &(&a * &b) + &(&a * &c));
        prop_assert_eq!(&(&a - &b) + &b, a.clone());
        prop_assert_eq!(&a - &a, zero.clone());
        prop_assert_eq!((&a + &zero, &a * &Dim::fixed(1)), (a.clone(), a.clone()));
        prop_assert_eq!(&a * &zero, zero);
    }

    #[test]
    fn arithmetic_of_sizes_is_that_of_their_values(a in size(), b in size(), (_, bound) in bound()) {
        let value = |dim: &Dim| dim.value(&bound).expect("bound");
        prop_assert_eq!(value(&(&a + &b)), value(&a) + value(&b));
        prop_assert_eq!(value(&(&a - &b)), value(&a) - value(&b));
        prop_assert_eq!(value(&(&a * &b)), value(&a) * value(&b));
    }

    #[test]
    fn bounds_contain_every_value(a in size(), (known, bound) in bound()) {
        let (least, largest) = a.bounds(&known);
        let value = a.value(&bound).expect("bound");
        prop_assert!((least..=largest).contains(&value), "{} is {} of {}..={}", a, value, least, largest);
    }

    #[test]
    fn the_bounds_of_one_symbol_are_reached(number in -5..6_i64, (known, bound) in bound()) {
        let dim = &Dim::symbol("A") * &Dim::fixed(number);
        let facts = known["A"];
        let ends = [facts.min * number, facts.max * number];
        prop_assert_eq!(dim.bounds(&known), (ends[0].min(ends[1]), ends[0].max(ends[1])));
        prop_assert!(facts.make_sense() && facts.hold(bound["A"]));
    }

    #[test]
    fn what_is_said_to_divide_does(a in size(), number in 1..13_i64, (known, bound) in bound()) {
        let value = a.value(&bound).expect("bound");
        prop_assert!(!a.is_multiple_of(number, &known) || value % number == 0, "{} is {}", a, value);
        prop_assert!((&a * &Dim::fixed(number)).is_multiple_of(number, &known));
    }

    #[test]
    fn a_size_in_the_place_of_a_symbol_has_its_value(a in size(), b in size(), (_, mut bound) in bound()) {
        let replaced = a.substitute(&BTreeMap::from([("C".into(), b.clone())]));
        let value = replaced.value(&bound).expect("bound");
        bound.insert("C".into(), b.value(&bound).expect("bound"));
        prop_assert_eq!(value, a.value(&bound).expect("bound"));
    }

    #[test]
    fn a_size_that_is_a_number_or_a_symbol_says_so(number in any::<i64>(), a in size()) {
        prop_assert_eq!(Dim::fixed(number).as_fixed(), Some(number));
        prop_assert_eq!(a.as_fixed().is_some(), a.symbols().next().is_none());
        if let Some(symbol) = a.as_symbol() {
            prop_assert_eq!(Dim::symbol(symbol), a);
        }
    }

    #[test]
    fn every_random_graph_is_sound_and_runs(case in graphs::any()) {
        prop_assert!(case.graph.check().is_ok());
        prop_assert!(interpret::<f32>(&case.graph, &case.values()).is_ok());
        prop_assert!(interpret::<f64>(&case.graph, &case.values()).is_ok());
    }

    #[test]
    fn what_is_inlined_computes_the_same(case in graphs::any()) {
        let mut outer = Graph::new("outer");
        case.graph.known().iter().for_each(|(symbol, facts)| outer.know(symbol, *facts));
        let mut given = BTreeMap::new();
        for (name, id) in case.graph.inputs() {
            let op = Op::Input { name: name.to_owned() };
            given.insert(name, outer.push_as(op, &[], case.graph.ty(id).clone()).expect("an input"));
        }
        let place = outer.inline(&case.graph, &given).expect("the types are the same");
        case.graph.outputs().iter().for_each(|(name, id)| outer.output(name, place[id]));
        prop_assert!(outer.check().is_ok());
        prop_assert_eq!(outer.nodes().len(), case.graph.nodes().len());
        let [got, want] = [&outer, &case.graph].map(|graph| interpret::<f32>(graph, &case.values()).expect("runs"));
        prop_assert_eq!(format!("{got:?}"), format!("{want:?}")); // NaN is to be the same, too
    }

    #[test]
    fn ancestors_are_what_a_node_is_computed_from_and_nothing_else(case in graphs::any()) {
        let graph = &case.graph;
        for id in graph.ids() {
            let found = graph.ancestors([id]);
            prop_assert!(found.contains(&id) && found.iter().all(|one| *one <= id));
            let direct = graph.node(id).inputs.iter().map(|input| graph.ancestors([*input]));
            let mut union = direct.fold(std::collections::BTreeSet::new(), |all, some| &all | &some);
            union.insert(id);
            prop_assert_eq!(found, union);
        }
    }

    #[test]
    fn a_graph_with_its_sizes_put_in_computes_the_same(case in graphs::any()) {
        let first = case.graph.node(Id(0));
        let Op::Input { name } = &first.op else { unreachable!("every graph begins with an input") };
        let sizes = first.ty.shape.iter().zip(&case.values[name].shape);
        let by = sizes.filter_map(|(dim, size)| Some((dim.as_symbol()?.clone(), Dim::from(*size)))).collect();
        let fixed = case.graph.substitute(&by).expect("sizes that fit");
        prop_assert!(fixed.known().is_empty());
        prop_assert!(fixed.nodes().iter().all(|node| node.ty.shape.iter().all(|dim| dim.as_fixed().is_some())));
        let [got, want] = [&fixed, &case.graph].map(|graph| interpret::<f32>(graph, &case.values()).expect("runs"));
        prop_assert_eq!(format!("{got:?}"), format!("{want:?}"));
    }
}

#[test]
fn bounds_see_that_symbols_have_a_factor_in_common() {
    let known = Known::from([("B".into(), Facts::range(1, 4)), ("T".into(), Facts::range(1, 3))]);
    let [b, t] = ["B", "T"].map(Dim::symbol);
    let rows = &(&b * &t) - &b;
    assert_eq!(rows.bounds(&known), (0, 8));
    assert_eq!((&rows + &Dim::fixed(3)).bounds(&known), (3, 11));
    assert_eq!((&(&rows * &b) + &rows).bounds(&known), (0, 40));
    assert_eq!((&b - &(&b * &t)).bounds(&known), (-8, 0));
}

#[test]
fn bounds_see_that_symbols_are_above_their_least() {
    let above = Facts::range(2, 8);
    let known = Known::from(["B", "N", "T"].map(|symbol| (symbol.into(), above)));
    let [b, n, t] = ["B", "N", "T"].map(|symbol| &Dim::symbol(symbol) - &Dim::fixed(2));
    assert_eq!((&b * &n).bounds(&known), (0, 36));
    assert_eq!((&(&b * &n) * &t).bounds(&known), (0, 216));
    assert_eq!((&(&b * &n) - &Dim::fixed(1)).bounds(&known), (-1, 35));
}

#[test]
fn divisibility_does_not_trust_a_product_that_does_not_fit() {
    let known = Known::from([("A".into(), Facts::range(0, i64::MAX).multiple_of(1 << 40))]);
    let large = &(&Dim::symbol("A") * &Dim::symbol("A")) * &Dim::fixed(1 << 40);
    assert!(!large.is_multiple_of(7, &known)); // 2^63 - 1, where a product saturates, is a multiple of 7
    assert!(large.is_multiple_of(1 << 62, &known));
    assert!(!large.is_multiple_of(0, &known) && Dim::fixed(0).is_multiple_of(5, &known));
    assert!(!Facts::range(0, 9).multiple_of(0).hold(3));
}

#[test]
fn inlining_without_an_input_or_with_another_type_is_refused() {
    let inner = Graph::parse("graph \"f\" { %0 = input \"x\" : f32[2] return \"y\" %0 }").expect("sound");
    let mut outer = Graph::parse("graph \"g\" { %0 = input \"a\" : f32[3] }").expect("sound");
    let missing = outer.inline(&inner, &BTreeMap::new()).expect_err("missing").to_string();
    assert_eq!(missing, "`x`: missing input `x`");
    let other = outer.inline(&inner, &BTreeMap::from([("x", Id(0))])).expect_err("other").to_string();
    assert_eq!(other, "`x`: expected f32[2], found f32[3]");
}

#[test]
fn names_lead_to_inputs_and_outputs() {
    let text = "graph \"g\" { %0 = input \"a\" : f32[] %1 = neg %0 : f32[] return \"y\" %1, \"z\" %0 }";
    let mut graph = Graph::parse(text).expect("sound");
    assert_eq!((graph.find_input("a"), graph.find_input("y")), (Some(Id(0)), None));
    assert_eq!((graph.find_output("y"), graph.find_output("z")), (Some(Id(1)), Some(Id(0))));
    graph.clear_outputs();
    assert_eq!((graph.outputs(), graph.find_output("y")), (&[][..], None));
}

#[test]
fn extras_of_sizes_that_are_not_known_are_read_and_differentiated() {
    let builder = Builder::new("symbolic");
    let t = builder.tape().symbol("T", Facts::range(2, 64));
    let x = builder.tape().input("x", Dtype::F32, [&Dim::fixed(1), &Dim::fixed(1), &t, &Dim::fixed(2)]);
    let table = builder.tape().input("table", Dtype::F32, [&t, &Dim::fixed(2)]);
    let rows = [table.ty().clone()];
    let body = |at: &reference::graph::programs::ScoreEntry| {
        let first = at.extras[0].slice(1, 0, 1).cast(Dtype::F32).reshape([&Dim::symbol("T")]);
        &at.score + &first.gather(&at.key)
    };
    let attention = Attention {
        scale: 1.0,
        score: Some(score("biased", &rows, body).expect("sound")),
        mask: Some(mask("causal", &rows, causal).expect("sound")),
    };
    let y = x.attend(attention, &x, &x, &[&table]);
    let loss = (&y * &y).total();
    let [table, loss] = [&table, &loss].map(|tensor| builder.id(tensor).expect("a node"));
    let mut graph = builder.finish().expect("sound");
    let gradient = reference::grad::differentiate(&mut graph, loss, &[table]).expect("floats")[0];
    graph.output("gradient", gradient);
    graph.check().expect("sound");
    let value = |shape: &[usize]| Array::<f64>::floats(Dtype::F32, shape, (0..6).map(|i| f64::from(i).sin()));
    let values = Values::from([("x".into(), value(&[1, 1, 3, 2])), ("table".into(), value(&[3, 2]))]);
    let gradient = interpret(&graph, &values).expect("runs")[0].wide();
    assert!(gradient.iter().step_by(2).any(|g| g.abs() > 1e-3), "{gradient:?}");
    assert!(gradient.iter().skip(1).step_by(2).all(|g| *g == 0.0), "{gradient:?}");
}
