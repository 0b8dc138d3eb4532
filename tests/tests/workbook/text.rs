//! Text: every graph reads back from what it prints, and no text brings the reader down.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use reference::graph::programs::{alibi, and, causal, mask, relative_bias, score, sliding_window, softcap};
use reference::graph::{
    Attention, Binary, Builder, Dim, Dtype, Facts, Fault, Graph, Op, Reduce, Symbol, Tensor, Type, Unary,
};
use reference::{grad, graph};
use tests::graphs;

use crate::look::looks_like;

/// A graph with something of everything: symbols, parts, programs, tables, odd names.
fn sampler() -> Graph {
    let builder = Builder::new("sampler");
    let tape = builder.tape();
    let t = tape.symbol("T", Facts::range(8, 4096).multiple_of(8));
    let b = tape.symbol("B", Facts::range(1, 8));
    let x = tape.input("x", Dtype::Bf16, [&b, &t, &Dim::fixed(32)]);
    let w = weight(&builder);
    let q = tape.within("layers.0", || tape.within("attention", || heads(&x.matmul(&w.t()))));
    let table = tape.input("table", Dtype::F32, [9]);
    let out = tape.within("layers.0", || q.attend(attention(table.ty()), &q, &q, &[&table]));
    let loss = tape.within("the \"loss\"\nof all", || {
        let last = out.cast(Dtype::F32).slice(2, &t - &Dim::fixed(8), &t);
        let kept = last.less(&last.like(f64::INFINITY));
        kept.select(&last, &last.like(-0.1)).total()
    });
    tape.output("loss", &loss);
    let (loss, table) = (builder.id(&loss), builder.id(&table));
    let mut graph = builder.finish().expect("a sound graph");
    let [loss, table] = [loss, table].map(|id| id.expect("a node"));
    let gradient = grad::differentiate(&mut graph, loss, &[table]).expect("a float");
    graph.output("table's \"gradient\"", gradient[0]);
    graph
}

/// A weight (64, 32) of NF4.
fn weight(builder: &Builder) -> Tensor {
    let tape = builder.tape();
    let shapes = [(Dtype::U8, vec![1024]), (Dtype::F32, vec![16]), (Dtype::U8, vec![32])];
    let more = [(Dtype::F32, vec![256]), (Dtype::F32, vec![1]), (Dtype::F32, vec![])];
    let parts = shapes.into_iter().chain(more).enumerate();
    let parts: Vec<Tensor> =
        parts.map(|(i, (dtype, shape))| tape.input(&format!("w.{i}"), dtype, shape)).collect();
    let op = Op::Dequantize { block_size: 64, nested: Some(256) };
    tape.apply(op, &parts.iter().collect::<Vec<_>>(), Some(Type::new(Dtype::Bf16, [64, 32])))
}

/// (B, T, 64) -> (B, 4, T, 16)
fn heads(x: &Tensor) -> Tensor {
    x.reshape([&x.dim(0), &x.dim(1), &Dim::fixed(4), &Dim::fixed(16)]).transpose(&[0, 2, 1, 3])
}

fn attention(table: &Type) -> Attention {
    let extras = [table.clone()];
    let body = |at: &graph::programs::ScoreEntry| {
        softcap(&relative_bias(at, &alibi(at, &at.score, 4), &at.extras[0], 4), 30.0)
    };
    Attention {
        scale: 0.25,
        score: Some(score("capped", &extras, body).expect("sound")),
        mask: Some(mask("local", &extras, |at| and(&causal(at), &sliding_window(at, 6))).expect("sound")),
    }
}

fn read(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> String {
    Graph::parse(text).expect_err(text).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_graph_reads_back_from_its_text(case in graphs::any()) {
        let text = case.graph.to_string();
        prop_assert_eq!(&read(&text), &case.graph);
        prop_assert_eq!(read(&text).to_string(), text);
    }

    #[test]
    fn every_gradient_reads_back_from_its_text(case in graphs::smooth()) {
        let mut graph = case.graph;
        let (loss, inputs) = (graph.outputs()[0].1, graphs::trainable(&graph));
        for (i, id) in grad::differentiate(&mut graph, loss, &inputs).expect("floats").into_iter().enumerate() {
            graph.output(format!("{i}"), id);
        }
        prop_assert_eq!(read(&graph.to_string()), graph);
    }

    #[test]
    fn every_number_reads_back_to_the_bit(bits in number()) {
        let mut graph = Graph::new("");
        let value = f64::from_bits(bits);
        graph.push_as(Op::Constant { value }, &[], Type::scalar(Dtype::F32)).expect("a constant");
        let again = read(&graph.to_string());
        let is_same = matches!(again.nodes()[0].op, Op::Constant { value } if value.to_bits() == bits);
        prop_assert!(is_same);
    }

    #[test]
    fn every_string_survives(name in string(), symbol in string(), scope in string(), size in size()) {
        let mut graph = Graph::new(name.clone());
        graph.know(&symbol, Facts::range(0, i64::MAX));
        let dim = &(&Dim::symbol(&symbol) * &Dim::symbol("T")) * &Dim::fixed(size);
        let ty = Type::new(Dtype::F16, [&dim + &Dim::fixed(size), Dim::symbol(&symbol)]);
        let id = graph.add(Op::Input { name: name.clone() }, &[], Some(ty), &scope).expect("an input");
        graph.output(name, id);
        prop_assert_eq!(read(&graph.to_string()), graph);
    }

    #[test]
    fn a_spoilt_text_is_read_or_refused_with_its_line(
        case in graphs::any(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..8_usize, spoil()), 1..4),
    ) {
        let mut text: Vec<char> = case.graph.to_string().chars().collect();
        for (at, len, new) in cuts {
            let at = at.index(text.len() + 1);
            let end = (at + len).min(text.len());
            text.splice(at..end, new.chars());
        }
        let text: String = text.into_iter().collect();
        match Graph::parse(&text) {
            Ok(graph) => prop_assert_eq!(read(&graph.to_string()).to_string(), graph.to_string()),
            Err(error) => prop_assert!(error.to_string().starts_with("line "), "{}", error),
        }
    }

    #[test]
    fn any_words_at_all_are_read_or_refused(words in prop::collection::vec(word(), 0..40)) {
        if let Err(error) = Graph::parse(&words.join(" ")) {
            prop_assert!(error.to_string().starts_with("line 1: "), "{}", error);
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    let odd = [0.0, -0.0, 0.1, 1e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
    let payload = (1_u64..1 << 52).prop_map(|payload| 0x7ff0_0000_0000_0000 | payload);
    prop_oneof![any::<u64>(), prop::sample::select(odd.to_vec()).prop_map(f64::to_bits), payload]
}

fn string() -> impl Strategy<Value = String> {
    let odd = ["", " ", "\"", "\\", "\n\r\t", "%1", "to", "2x", "T - 1", "a.b", "\u{0}\u{7f}\u{85}\u{2028}é"];
    let odd = prop::sample::select(odd.map(str::to_owned).to_vec());
    prop_oneof![odd, prop::collection::vec(any::<char>(), 0..6).prop_map(String::from_iter)]
}

fn size() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4_i64, any::<i64>(), prop::sample::select(vec![i64::MIN, i64::MAX])]
}

/// What may be put in the place of something else.
fn spoil() -> impl Strategy<Value = String> {
    let odd =
        ["", "%0", "%4000000000", "99999999999999999999", "\"", "\\u{", "{", "}", "[", "graph \"", "é", "-"];
    prop_oneof![prop::sample::select(odd.map(str::to_owned).to_vec()), word()]
}

/// A word of the grammar.
fn word() -> impl Strategy<Value = String> {
    let words = "graph \"g\" { } ( ) [ ] , : = @ % %0 %1 %2 in ..= by return input \"x\" constant 1 0.5 -inf nan iota dim \
                 0 add cast slice from to T - + * order block nested 32 scale score mask wrt attention attention_grad \
                 f32 f32[] u8 i32 concat matmul reshape transpose dequantize sum gather T*T";
    prop::sample::select(words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn a_graph_with_something_of_everything_looks_as_kept() {
    let text = sampler().to_string();
    assert_eq!(read(&text), sampler());
    looks_like("sampler.graph", &format!("{text}\n"));
}

#[test]
fn the_text_at_the_top_of_the_module_is_read() {
    let text = "graph \"twice\" (T in 1..=4096) {\n  %0 = input \"x\" : f32[T, 128]\n  %1 = add %0 %0 : f32[T, 128]\n  \
                return \"y\" %1\n}";
    assert_eq!(text.parse::<Graph>().expect("sound").to_string(), text);
}

#[test]
fn space_and_the_order_of_terms_do_not_matter() {
    let wide =
        "graph\n\"g\"(T in 0..=9,B in 1..=2 by 1){%0=input\"x\":f32[ 1+2*T*B - T ]\n@a return\"y\"%0}\n\n";
    let narrow = "graph \"g\" (B in 1..=2, T in 0..=9) {\n  %0 = input \"x\" : f32[2*B*T - T + 1] @ a\n  return \"y\" %0\n}";
    assert_eq!(read(wide).to_string(), narrow);
}

#[test]
fn a_text_that_breaks_the_grammar_is_told_what_stands_there_and_what_is_needed() {
    let node = |line: &str| format!("graph \"g\" {{\n  %0 = input \"x\" : f32[4, 2]\n  {line}\n}}");
    for (text, want) in [
        ("", "line 1: expected `graph`, found the end of the text"),
        ("graf \"g\" {}", "line 1: expected `graph`, found `graf`"),
        ("graph g {}", "line 1: expected a name in quotes, found `g`"),
        ("graph \"g {}", "line 1: expected a closing quote, found `\\\"`"),
        ("graph \"g\\q\" {}", "line 1: expected \\\", \\\\, \\n or \\u{..}, found `\\\\`"),
        ("graph \"g\\u{110000}\" {}", "line 1: expected \\\", \\\\, \\n or \\u{..}, found `\\\\`"),
        ("graph \"g\" {", "line 1: expected `}`, found the end of the text"),
        ("graph \"g\" {}\n\n x", "line 3: expected nothing more, found `x`"),
        ("graph \"g\" (T 1..=2) {}", "line 1: expected `in`, found `1`"),
        ("graph \"g\" (T in 1 ..= x) {}", "line 1: expected a number of 64 bits, found `x`"),
        (
            "graph \"g\" (T in 1..=99999999999999999999) {}",
            "line 1: expected a number of 64 bits, found `99999999999999999999`",
        ),
        ("graph \"g\" (T in 2..=1) {}", "line 1: `T`: no size is in 2..=1"),
        ("graph \"g\" (T in -1..=1) {}", "line 1: `T`: no size is in -1..=1"),
        ("graph \"g\" (T in 1..=7 by 8) {}", "line 1: `T`: no size is in 1..=7 by 8"),
        ("graph \"g\" (T in 1..=7 by 0) {}", "line 1: `T`: no size is in 1..=7 by 0"),
        ("graph \"g\" (T in 1..=7,\n T in 1..=8) {}", "line 2: `T`: the name is used twice"),
        (&node("%2 = neg %0 : f32[4, 2]"), "line 3: expected %1, found `%`"),
        (&node("%x = neg %0 : f32[4, 2]"), "line 3: expected a node such as %0, found `%`"),
        (&node("%1 = fold %0 : f32[4, 2]"), "line 3: expected an operation, found `fold`"),
        (&node("%1 = neg %0 : f64[4, 2]"), "line 3: expected f32, f16, bf16, u8 or i32, found `f64`"),
        (&node("%1 = neg %0 : f32[4, 2"), "line 4: expected `]`, found `}`"),
        (&node("%1 = neg %0 : f32[4, ]"), "line 3: expected a symbol, found `]`"),
        (
            &node("%1 = neg %0 : f32[4, 9223372036854775808]"),
            "line 3: expected a size of 64 bits, found `9223372036854775808`",
        ),
        (&node("%1 = sum %0 : f32[4, 1]"), "line 3: expected `dim`, found `:`"),
        (&node("%1 = sum %0 dim -1 : f32[4, 1]"), "line 3: expected a number from 0 on, found `-`"),
        (
            &node("%1 = constant one : f32[]"),
            "line 3: expected a number such as 0.5, inf or nan, found `one`",
        ),
        (&node("%1 = constant nan(0x1) : f32[]"), "line 3: expected the bits of a NaN, found `nan`"),
        (&node("%1 = neg %0 : f32[4, 2] @ "), "line 4: expected a part of the model, found `}`"),
        (&node("%1 = neg %3 : f32[4, 2]"), "line 3: %1 neg: %3 is no earlier node"),
        (&node("%1 = neg %0 : f32[4, 3]"), "line 3: %1 neg: expected f32[4, 2], found f32[4, 3]"),
        (&node("%1 = input \"x\" : f32[]"), "line 3: `x`: the name is used twice"),
        (&node("return \"y\" %0,\n \"y\" %0"), "line 4: `y`: the name is used twice"),
        (&node("return \"y\" %1"), "line 3: `y`: %1 is no earlier node"),
    ] {
        let got = refused(text);
        assert!(got.starts_with(want), "{text}\n  got  {got}\n  want {want}");
    }
}

#[test]
fn a_mistake_within_a_program_names_its_line() {
    let text = sampler().to_string().replacen("%12 = sub %4 %3 : i32[]", "%12 = sub %4 %3 : f32[]", 1);
    let got = refused(&text);
    let line = 1 + text.lines().position(|line| line.contains("sub %4 %3 : f32[]")).expect("it is there");
    let want = format!("line {line}: %12 sub: expected ");
    assert!(got.starts_with(&want), "{got}\n{want}");
}

#[test]
fn programs_in_each_other_do_not_exhaust_the_stack() {
    let nested = |depth: usize| {
        let open = "graph \"g\" { %0 = attention scale 1 score ".repeat(depth);
        format!("{open}{}", "graph \"g\" { } : f32[] }".repeat(depth))
    };
    assert!(refused(&nested(9)).contains("at most 8 programs in each other"));
    assert!(refused(&nested(200_000)).contains("at most 8 programs in each other"));
    assert!(refused(&"[".repeat(1_000_000)).contains("expected `graph`"));
}

#[test]
fn a_size_that_would_grow_without_bound_is_refused() {
    let symbols = |count: usize, by: &str| (0..count).map(|i| format!("s{i}")).collect::<Vec<_>>().join(by);
    let input = |ty: &str| format!("graph \"g\" {{ %0 = input \"x\" : f32[{ty}] }}");
    assert!(refused(&input(&symbols(100_000, " + "))).contains("at most 64 terms"));
    assert!(refused(&input(&symbols(100_000, "*"))).contains("at most 64 factors"));
    assert!(
        refused(&input(&symbols(100_000, ", ")))
            .contains("number of dimensions: expected at most 64, found 100000")
    );
    let sums = (0..60).map(|i| format!("a{i} + b{i}")).collect::<Vec<_>>().join(", ");
    let text = format!("graph \"g\" {{ %0 = input \"x\" : f32[{sums}] %1 = reshape %0 : f32[1] }}");
    assert!(refused(&text).contains("number of factors in the number of elements"));
}

#[test]
fn a_long_concat_of_different_sizes_is_refused_soon() {
    let inputs: Vec<String> = (0..50_000).map(|i| format!("%{i} = input \"{i}\" : f32[s{i}]")).collect();
    let all: Vec<String> = (0..50_000).map(|i| format!("%{i}")).collect();
    let (inputs, all) = (inputs.join("\n"), all.join(" "));
    let text = format!("graph \"g\" {{ {inputs} %50000 = concat {all} dim 0 : f32[1] }}");
    assert!(refused(&text).contains("number of terms of a size: expected at most 64, found 65"));
}

#[test]
fn reading_time_grows_with_the_nodes_not_with_their_square() {
    let small = long_graph(10_000);
    let large = long_graph(100_000);
    let fastest = |graph: &Graph| {
        let text = graph.to_string();
        (0..5).map(|_| timed(&text, graph)).min().expect("five tries") // others may use the machine, too
    };
    let (small, large) = (fastest(&small), fastest(&large));
    assert!(large < 40 * small, "ten times the nodes: {small:?}, then {large:?}");
}

fn long_graph(nodes: usize) -> Graph {
    let mut graph = Graph::new("long");
    graph.know("T", Facts::range(1, 4096));
    let ty = Type::new(Dtype::F32, [Dim::symbol("T"), Dim::fixed(64)]);
    let mut last = graph.push_as(Op::Input { name: "x".into() }, &[], ty).expect("an input");
    for i in 0..nodes {
        let op = if i % 2 == 0 { Op::Unary(Unary::Tanh) } else { Op::Binary(Binary::Add) };
        let inputs = if i % 2 == 0 { vec![last] } else { vec![last, last] };
        last = graph.add(op, &inputs, None, "layers.0.mlp").expect("a node");
    }
    graph.output("y", last);
    graph
}

/// How long it takes to read a graph.
fn timed(text: &str, graph: &Graph) -> Duration {
    let begin = Instant::now();
    let again = read(text);
    let spent = begin.elapsed();
    assert!(again == *graph);
    spent
}

#[test]
fn the_operation_of_every_table_is_read_by_its_name() {
    let unary = Unary::NAMES.map(|(op, _)| (Op::Unary(op), 1));
    let binary = Binary::NAMES.map(|(op, _)| (Op::Binary(op), 2));
    let reduce = Reduce::NAMES.map(|(op, _)| (Op::Reduce(op, 1), 1));
    let mut graph = Graph::new("all");
    let x =
        graph.push_as(Op::Input { name: "x".into() }, &[], Type::new(Dtype::F16, [2, 3])).expect("an input");
    for (op, inputs) in unary.into_iter().chain(binary).chain(reduce) {
        graph.push(op, &vec![x; inputs]).expect("a node");
    }
    assert_eq!(read(&graph.to_string()), graph);
}

#[test]
fn an_error_that_is_not_of_the_text_keeps_its_kind() {
    let text = "graph \"g\" { %0 = input \"x\" : u8[] %1 = exp %0 : u8[] }";
    let error = Graph::parse(text).expect_err("bytes");
    assert_eq!(error.at, "line 1: %1 exp");
    assert!(matches!(error.fault, Fault::Dtype { input: 0, got: Dtype::U8, .. }));
    let symbol: Symbol = "T".into();
    assert_eq!(Dim::symbol("T").as_symbol(), Some(&symbol));
}
