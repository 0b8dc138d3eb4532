//! Agreement: narrow products that share a factor, or are added up, are one product and mean what they meant.

use std::collections::BTreeMap;

use challenges::graph::{Compile as _, Solution};
use compiler::compile::{Level, compile};
use compiler::rewrite::merge::merge_products;
use kernels::plan::Step;
use proptest::prelude::*;
use reference::graph::{Attention, Class, Dtype, Graph, Op, Tape, Tensor};
use tests::graphs::Case;

use crate::compiled::agrees_everywhere;
use crate::layouts::case;

/// Compares a case with its meaning, and counts the products of its plan and all of the plan's steps.
fn products(case: &Case) -> (usize, usize) {
    agrees_everywhere(case, Level::O2).unwrap_or_else(|error| panic!("{error}"));
    let compiled = compile(&Solution, &case.graph, &BTreeMap::new(), Level::O2.options());
    let compiled = compiled.expect("it compiles");
    let steps = &compiled.plan().steps;
    (steps.iter().filter(|step| matches!(step, Step::Product(_))).count(), steps.len())
}

/// An input by its name, with as many rows and columns.
fn input(tape: &Tape, name: &str, dtype: Dtype, [rows, columns]: [i64; 2]) -> Tensor {
    tape.input(name, dtype, [rows, columns])
}

/// 24 rows of 32 that are computed.
fn rows(tape: &Tape, dtype: Dtype) -> Tensor {
    input(tape, "x", dtype, [24, 32]).tanh()
}

/// Adapters of a rank, one for each name, over 32.
fn adapters(tape: &Tape, dtype: Dtype, ranks: &[i64]) -> Vec<Tensor> {
    let adapter = |(i, rank): (usize, &i64)| input(tape, &format!("a{i}"), dtype, [*rank, 32]);
    ranks.iter().enumerate().map(adapter).collect()
}

#[test]
fn products_that_share_a_factor_are_one() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let forward = case(|tape| {
            let x = rows(tape, dtype);
            for (i, a) in adapters(tape, dtype, &[4, 8, 4]).iter().enumerate() {
                tape.output(&format!("y{i}"), &x.matmul(&a.t()).exp());
            }
        });
        assert_eq!(products(&forward).0, 1, "{dtype:?}");
        let backward = case(|tape| {
            let x = rows(tape, dtype);
            for i in 0..3 {
                let u = input(tape, &format!("u{i}"), dtype, [24, 4]);
                tape.output(&format!("y{i}"), &(&x.t().matmul(&u.exp()).t() * 0.5));
            }
        });
        assert_eq!(products(&backward).0, 1, "{dtype:?}");
    }
}

/// What reads the same factor the same way, and is not merged: what follows from another, what is wide, what is given.
#[test]
fn products_that_stay_apart() {
    let one_by_one = case(|tape| {
        let x = rows(tape, Dtype::F32);
        let u = x.matmul(&input(tape, "a", Dtype::F32, [32, 4]));
        tape.output("y", &x.matmul(&x.t().matmul(&u)));
    });
    assert_eq!(products(&one_by_one).0, 3, "each waits for the one before");
    let given = case(|tape| {
        let x = input(tape, "x", Dtype::F32, [24, 32]);
        for (i, a) in adapters(tape, Dtype::F32, &[4, 4]).iter().enumerate() {
            tape.output(&format!("y{i}"), &x.matmul(&a.t()));
        }
    });
    assert_eq!(products(&given).0, 2, "chunks of a weight are apart on purpose");
    let wide = case(|tape| {
        let x = rows(tape, Dtype::F32);
        for (i, a) in adapters(tape, Dtype::F32, &[9, 9]).iter().enumerate() {
            tape.output(&format!("y{i}"), &x.matmul(&a.t()));
        }
    });
    assert_eq!(products(&wide).0, 2, "wider than a quarter of the factor");
    let many = case(|tape| {
        let x = input(tape, "x", Dtype::F32, [24, 256]).tanh();
        for i in 0..5 {
            let a = input(tape, &format!("a{i}"), Dtype::F32, [256, 64]);
            tape.output(&format!("y{i}"), &x.matmul(&a));
        }
    });
    assert_eq!(products(&many).0, 2, "four, and one that would be too wide with them");
}

/// Two groups of which each waits for the other: one of them stays as it was.
#[test]
fn groups_that_would_wait_for_each_other() {
    for first in [false, true] {
        let crossed = case(|tape| {
            let [x, z] = ["x", "z"].map(|name| input(tape, name, Dtype::F32, [24, 32]).tanh());
            let [a, b] = ["a", "b"].map(|name| input(tape, name, Dtype::F32, [32, 4]));
            let (x, z) = if first { (x, z) } else { (z, x) };
            let [of_x, of_z] = [x.matmul(&a), z.matmul(&b)];
            let [later_x, later_z] =
                [x.matmul(&x.t().matmul(&of_z.sigmoid())), z.matmul(&z.t().matmul(&of_x.sigmoid()))];
            tape.output("x", &(&of_x + &later_x));
            tape.output("z", &(&of_z + &later_z));
        });
        assert_eq!(products(&crossed).0, 5, "of six, two are one");
    }
}

#[test]
fn narrow_products_that_are_added_up_are_one() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let of = |sum: fn(&Tape, &[Tensor], &Tensor) -> Tensor| {
            let case = case(|tape| {
                let terms = adapters(tape, dtype, &[4, 8, 4]).into_iter().enumerate().map(|(i, a)| {
                    let rank = a.dim(0).as_fixed().expect("a size");
                    input(tape, &format!("u{i}"), dtype, [24, rank]).tanh().matmul(&a)
                });
                let terms: Vec<Tensor> = terms.collect();
                let wide = input(tape, "w", dtype, [24, 32]);
                tape.output("y", &sum(tape, &terms, &wide));
            });
            products(&case).0
        };
        assert_eq!(of(|_, t, _| &(&t[0] + &t[1]) + &t[2]), 1, "{dtype:?}");
        assert_eq!(of(|_, t, _| &t[0] + &(&t[1] + &t[2])), 1, "{dtype:?}");
        assert_eq!(of(|_, t, wide| &(&(&t[2] + wide) + &t[0]) + &t[1]), 1, "{dtype:?}");
        assert_eq!(of(|_, t, wide| &(&t[0] + wide) - &(&t[1] + &t[2])), 2, "{dtype:?}: two sums");
        assert_eq!(of(|_, t, _| &(&t[0] + &t[0]) + &(&t[1] + &t[2])), 2, "{dtype:?}: one is there twice");
        let read_elsewhere = of(|tape, t, _| {
            tape.output("first", &t[0]);
            &(&t[0] + &t[1]) + &t[2]
        });
        assert_eq!(read_elsewhere, 2, "{dtype:?}");
        let read_between = of(|tape, t, _| {
            let two = &t[0] + &t[1];
            tape.output("two", &two.exp());
            &two + &t[2]
        });
        assert_eq!(read_between, 2, "{dtype:?}");
        let viewed = of(|_, t, wide| {
            let heads = |x: &Tensor| x.reshape([2, 12, 32]);
            &(&heads(&t[0]) + &heads(wide)) + &(&heads(&t[1]) + &heads(&t[2]))
        });
        assert_eq!(viewed, 1, "{dtype:?}");
    }
}

/// The gradients of an adapter's input: what each product writes is a factor of the next where it lies.
#[test]
fn products_write_side_by_side() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let ranks = [4, 8, 4];
        let chain = case(|tape| {
            let x = rows(tape, dtype);
            let mut sum = x.clone();
            for (i, a) in adapters(tape, dtype, &ranks).iter().enumerate() {
                let b = input(tape, &format!("b{i}"), dtype, [40, ranks[i]]);
                let u = input(tape, &format!("g{i}"), dtype, [24, 40]).sigmoid().matmul(&b);
                tape.output(&format!("of_a{i}"), &x.t().matmul(&u));
                sum = &sum + &u.matmul(a);
            }
            tape.output("sum", &sum);
        });
        assert_eq!(products(&chain).0, 3 + 1 + 1, "{dtype:?}");
        let compiled = compile(&Solution, &chain.graph, &BTreeMap::new(), Level::O2.options());
        let compiled = compiled.expect("it compiles");
        let in_whole =
            |step: &&Step| matches!(step, Step::Product(product) if product.to.strides.ends_with(&[16, 1]));
        let steps = compiled.plan().steps.iter();
        assert_eq!(
            steps
                .filter(in_whole)
                .filter(|step| matches!(step, Step::Product(product) if product.n < 16))
                .count(),
            3,
            "{dtype:?}"
        );
    }
}

/// What a product writes may be needed elsewhere too, in another order, twice, or outside.
#[test]
fn what_lies_in_a_concatenation_is_read_right_elsewhere() {
    let uses: [fn(&Tape, &Tensor, &Tensor) -> Tensor; 15] = [
        |tape, u, _| tape.concat(&[u, &u.tanh()], 1), // no step writes where it reads
        |tape, u, _| tape.concat(&[&u.tanh(), u], 0),
        |tape, u, _| tape.concat(&[u, &u.matmul(&input(tape, "f", u.ty().dtype, [12, 12]))], 1),
        |tape, u, v| tape.concat(&[u, v, &u.t().reshape([24, 12])], 1),
        |tape, u, v| {
            tape.output("rows", &u.reshape([18, 16]).exp()); // in one piece
            tape.output("pairs", &v.t().reshape([18, 16]).exp());
            tape.concat(&[u, v], 1)
        },
        |tape, u, v| {
            let rows = tape.input("rows", Dtype::I32, [5]);
            tape.output("table", &u.gather(&(&rows * &rows))); // no row below the first
            tape.concat(&[v, u], 1)
        },
        |tape, u, v| {
            let heads = |x: &Tensor| x.reshape([1, 24, 3, 4]).transpose(&[0, 2, 1, 3]);
            let attended =
                heads(u).attend(Attention { scale: 0.5, score: None, mask: None }, &heads(u), &heads(v), &[]);
            tape.output("attended", &attended);
            tape.concat(&[u, v], 1)
        },
        |tape, u, v| tape.concat(&[u, v], 1),
        |tape, u, v| tape.concat(&[v, u], 1),
        |tape, u, v| tape.concat(&[u, u, v], 1),
        |tape, u, v| tape.concat(&[&u.t(), &v.t()], 0).t(),
        |tape, u, v| {
            tape.output("u", u);
            tape.concat(&[u, v], 1)
        },
        |tape, u, v| {
            tape.output("sum", &u.sum(1));
            tape.output("other", &tape.concat(&[v, &u.exp()], 1));
            tape.concat(&[u, v], 1)
        },
        |tape, u, v| {
            tape.output("turned", &u.t().exp());
            tape.concat(&[u, &v.exp()], 1)
        },
        |tape, u, v| tape.concat(&[&(u + u), &(v * 0.5)], 0),
    ];
    for (at, both) in uses.into_iter().enumerate() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let case = case(|tape| {
                let x = rows(tape, dtype);
                let [u, v] = [("c", 12), ("d", 12)]
                    .map(|(name, columns)| x.matmul(&input(tape, name, dtype, [32, columns])));
                let both = both(tape, &u, &v);
                tape.output("both", &both.exp());
                tape.output(
                    "y",
                    &both.matmul(&input(tape, "e", dtype, [both.dim(1).as_fixed().expect("a size"), 7])),
                );
            });
            assert!(products(&case).1 > 2, "use {at}");
        }
    }
}

/// A sum in which one term is computed from a factor of another, and one of which a factor is read twice.
#[test]
fn terms_that_need_each_other_are_added_up_right() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let case = case(|tape| {
            let [b, c, d] = [("b", [4, 32]), ("c", [4, 32]), ("d", [4, 4])]
                .map(|(name, shape)| input(tape, name, dtype, shape));
            let u = rows(tape, dtype).matmul(&input(tape, "a", dtype, [32, 4]));
            tape.output("tanh", &(&u.matmul(&b) + &u.tanh().matmul(&c)));
            tape.output("product", &(&u.matmul(&c) + &u.matmul(&d).matmul(&b)));
            tape.output("twice", &(&u.matmul(&b) + &u.matmul(&c)));
        });
        assert!(products(&case).0 >= 5, "{dtype:?}");
    }
}

/// Layers that read one tensor keep their products: one layer may be computed again without the other.
#[test]
fn layers_keep_their_products() {
    let case = case(|tape| {
        let x = rows(tape, Dtype::F32);
        for (i, a) in adapters(tape, Dtype::F32, &[4, 4, 4, 4]).iter().enumerate() {
            let y = tape.within(&format!("layers.{}", i / 2), || x.matmul(&a.t()));
            tape.output(&format!("y{i}"), &y);
        }
    });
    assert_eq!(products(&case).0, 2, "one for each layer");
}

/// What ranks do together stays in its order, whatever is merged around it.
#[test]
fn collectives_stay_in_their_order() {
    let text = r#"graph "two" {
  %0 = input "x" : f32[24, 32]
  %1 = input "a" : f32[32, 4]
  %2 = input "b" : f32[32, 4]
  %3 = tanh %0 : f32[24, 32]
  %4 = matmul %3 %1 : f32[24, 4]
  %5 = all_reduce %4 over "dp" size 2 : f32[24, 4]
  %6 = all_reduce %2 over "dp" size 2 : f32[32, 4]
  %7 = matmul %3 %6 : f32[24, 4]
  return "y" %5, "z" %7
}"#;
    let graph = Graph::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let merged = merge_products(&graph).expect("a sound graph");
    let collectives = |graph: &Graph| -> Vec<String> {
        let nodes = graph.nodes().iter().filter(|node| node.op.class() == Class::Collective);
        nodes.map(|node| format!("{:?}", node.ty)).collect()
    };
    assert_eq!(collectives(&merged), collectives(&graph));
    assert_eq!(merged.nodes().iter().filter(|node| node.op == Op::Matmul).count(), 2);
}

/// Matrices of four shapes, in which products lead from one to another.
#[derive(Clone)]
struct Pool([Vec<Tensor>; 4]);

/// A step that adds a matrix: what it does, and which matrices it reads.
type Draw = (u8, u8, u8);

impl Pool {
    fn new(tape: &Tape, dtype: Dtype) -> Self {
        let shapes = [("x", [24, 32]), ("a", [32, 4]), ("u", [24, 4]), ("b", [4, 32])];
        Self(shapes.map(|(name, shape)| {
            let given = input(tape, name, dtype, shape);
            vec![given.clone(), given.tanh()]
        }))
    }

    fn one(&self, shape: usize, which: u8) -> Tensor {
        let all = &self.0[shape];
        all[which as usize % all.len()].clone()
    }

    fn step(&mut self, (what, first, second): Draw) {
        let small = |x: Tensor| &x * 0.125;
        let (to, made) = match what % 8 {
            0 | 1 => (2, small(self.one(0, first).matmul(&self.one(1, second)))),
            2 => (0, self.one(2, first).matmul(&self.one(3, second))),
            3 => (1, small(self.one(0, first).t().matmul(&self.one(2, second)))),
            4 => (3, small(self.one(2, first).t().matmul(&self.one(0, second)))),
            5 => (2, self.one(0, first).matmul(&self.one(1, second))),
            6 => (0, &self.one(0, first) + &self.one(0, second)),
            _ => (2, (&self.one(2, first) + &self.one(2, second)).tanh()),
        };
        self.0[to].push(made);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn drawn_products_mean_what_they_meant(
        draws in proptest::collection::vec(any::<Draw>(), 3..18),
        outputs in proptest::collection::vec((0_usize..4, any::<u8>()), 1..5),
        narrow in any::<bool>(),
    ) {
        let dtype = if narrow { Dtype::Bf16 } else { Dtype::F32 };
        let case = case(|tape| {
            let mut pool = Pool::new(tape, dtype);
            for draw in &draws {
                pool.step(*draw);
            }
            for (i, (shape, which)) in outputs.iter().enumerate() {
                tape.output(&format!("y{i}"), &pool.one(*shape, 255 - which));
            }
        });
        let pruned = Solution.prune(&case.graph).expect("a sound graph");
        prop_assert!(merge_products(&pruned).is_ok_and(|merged| merged.check().is_ok()));
        agrees_everywhere(&case, Level::O2).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
