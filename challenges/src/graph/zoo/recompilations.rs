//! What a program knows only as a number of its own: for each kind a program that is another graph for another number,
//! and one that is the same.

use std::panic::Location;

use reference::graph::interpret::Values;
use reference::graph::programs::{causal, mask};
use reference::graph::{Array, Attention, Dim, Dtype, Facts, Tape, Tensor, Type};

use super::{Case, NONE, Shows, floats, given, number, ramp};

/// Every case.
pub(super) fn all() -> Vec<Case> {
    vec![
        length(),
        equal_sizes(),
        widened_facts(),
        adapter_scale(),
        step_counter(),
        layer_number(),
        growing_cache(),
        position(),
        mask_table(),
        padded_length(),
        autocast(),
        training_flag(),
        logged_step(),
    ]
}

/// The input `x` (T,).
fn line(tape: &Tape) -> Tensor {
    tape.input("x", Dtype::F32, [tape.symbol("T", Facts::range(1, 4096))])
}

/// Values for it.
fn three() -> (&'static str, Array<f32>) {
    ("x", floats(&[3], &[1.0, -2.0, 4.0]))
}

fn length() -> Case {
    Case {
        name: "the length of a batch is a number",
        seen: "a public solution's log: `size mismatch at index 2. expected 101, actual 261`",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [5, 7],
            program: |tape, length| tape.output("y", &tape.input("x", Dtype::F32, [length]).exp()), // changes
            cured: |tape, _| tape.output("y", &line(tape).exp()),
            examples: |length| given([("x", ramp(&[length as usize]))]),
        },
    }
}

fn equal_sizes() -> Case {
    Case {
        name: "two sizes that are equal by accident share a symbol",
        seen: "a public solution's log: `state2.absmax.size()[0] == state2.code.size()[0]  # duck sizing`",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [4, 3],
            program: |tape, scales| {
                let code = tape.input("code", Dtype::F32, [tape.symbol("M", Facts::range(1, 4096))]);
                let symbol = if scales == 4 { "M" } else { "N" };
                let size = tape.symbol(symbol, Facts::range(1, 4096));
                let absmax = tape.input("absmax", Dtype::F32, [size]); // changes
                tape.output("sum", &(&code.total() + &absmax.total()));
            },
            cured: |tape, _| {
                let [code, absmax] = [("code", "M"), ("absmax", "N")].map(|(name, symbol)| {
                    tape.input(name, Dtype::F32, [tape.symbol(symbol, Facts::range(1, 4096))])
                });
                tape.output("sum", &(&code.total() + &absmax.total()));
            },
            examples: |scales| given([("code", ramp(&[4])), ("absmax", ramp(&[scales as usize]))]),
        },
    }
}

fn widened_facts() -> Case {
    Case {
        name: "the longest length so far is taken for the longest",
        seen: "torch.compile with dynamic sizes: the range of a size is narrowed by what the first batch did",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [4, 8],
            program: |tape, longest| {
                let length = tape.symbol("T", Facts::range(1, longest));
                tape.output("y", &tape.input("x", Dtype::F32, [length]).exp());
            },
            cured: |tape, _| tape.output("y", &line(tape).exp()),
            examples: |longest| given([("x", ramp(&[longest as usize]))]),
        },
    }
}

fn adapter_scale() -> Case {
    Case {
        name: "the scale of an adapter is a number of the host",
        seen: "peft, `self.scaling[adapter]`: a float of the module, alpha / r",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [2, 4],
            program: |tape, scale| {
                let x = line(tape);
                tape.output("y", &tape.within("layers.0.q_proj", || &x * scale as f64)); // changes
            },
            cured: |tape, _| tape.output("y", &(&line(tape) * &number(tape, "scale"))),
            examples: |scale| given([three(), ("scale", Array::scalar(scale as f64))]),
        },
    }
}

fn step_counter() -> Case {
    Case {
        name: "the optimiser's step is a number of the host",
        seen: "optimisers written by hand: `1 - beta ** step` with an int `step`; learning rates of a schedule alike",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [1, 2],
            program: |tape, step| {
                tape.output("y", &(&line(tape) * (1.0 / (1.0 - 0.5_f64.powi(step as i32))))); // changes
            },
            cured: |tape, _| {
                let decayed = (&number(tape, "step") * 0.5_f64.ln()).exp();
                tape.output("y", &(&line(tape) / &(&decayed.like(1.0) - &decayed)));
            },
            examples: |step| given([three(), ("step", Array::scalar(step as f64))]),
        },
    }
}

fn layer_number() -> Case {
    Case {
        name: "each layer of a model is another program",
        seen: "transformers, LlamaAttention: `self.layer_idx`; names of modules",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [0, 1],
            program: |tape, layer| {
                let (x, name) = (line(tape), format!("layers.{layer}.weight"));
                tape.output("y", &(&x * &number(tape, &name))); // changes
            },
            cured: |tape, layer| {
                let x = line(tape);
                let product = || &x * &number(tape, "weight");
                tape.output("y", &tape.within(&format!("layers.{layer}"), product));
            },
            examples: |layer| {
                let weight = Array::scalar(layer as f64 + 2.0);
                given([
                    three(),
                    (["layers.0.weight", "layers.1.weight"][layer as usize], weight.clone()),
                    ("weight", weight),
                ])
            },
        },
    }
}

fn growing_cache() -> Case {
    Case {
        name: "a cache grows by a key with each token",
        seen: "transformers 5, `DynamicLayer.update`: `torch.cat([self.keys, key_states], dim=-2)`",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [2, 3],
            program: |tape, filled| {
                let cache = tape.input("cache", Dtype::F32, [filled, 2]); // changes
                let key = tape.input("key", Dtype::F32, [1, 2]);
                tape.output("sum", &tape.concat(&[&cache, &key], 0).sum(0));
            },
            cured: |tape, _| {
                let slots = tape.input("slots", Dtype::F32, [8, 2]);
                let (place, filled) = (tape.iota(slots.shape(), 0), tape.input("filled", Dtype::I32, NONE));
                let key = tape.input("key", Dtype::F32, [1, 2]);
                let old = place.less(&filled).select(&slots, &slots.like(0.0));
                tape.output("sum", &place.equal(&filled).select(&key, &old).sum(0));
            },
            examples: |filled| {
                let filled = filled as usize;
                let [cache, slots] = [filled, 8].map(|rows| ramp(&[rows, 2]));
                let count = Array::integers(&[], vec![filled as i32]);
                given([
                    ("cache", cache),
                    ("slots", slots),
                    ("filled", count),
                    ("key", floats(&[1, 2], &[8.0, 9.0])),
                ])
            },
        },
    }
}

fn position() -> Case {
    Case {
        name: "a row of a table is cut out at a place of the host",
        seen: "rope by hand: `cos[position : position + 1]`",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [2, 5],
            program: |tape, place| {
                let table = tape.input("cos", Dtype::F32, [8, 2]);
                tape.output("row", &table.slice(0, place, place + 1)); // changes
            },
            cured: |tape, _| {
                let table = tape.input("cos", Dtype::F32, [8, 2]);
                tape.output("row", &table.gather(&tape.input("position", Dtype::I32, [1])));
            },
            examples: |place| {
                given([("cos", ramp(&[8, 2])), ("position", Array::integers(&[1], vec![place as i32]))])
            },
        },
    }
}

/// Queries, keys and values (1, 1, T, 2).
fn heads(tape: &Tape) -> [Tensor; 3] {
    let shape = [Dim::fixed(1), 1.into(), tape.symbol("T", Facts::range(1, 4096)), 2.into()];
    ["q", "k", "v"].map(|name| tape.input(name, Dtype::F32, &shape))
}

fn heads_values(length: i64) -> Values<f32> {
    let [q, k, v] = [(); 3].map(|()| ramp(&[1, 1, length as usize, 2]));
    given([("q", q), ("k", k), ("v", v), ("length", Array::integers(&[], vec![length as i32 - 1]))])
}

fn mask_table() -> Case {
    Case {
        name: "the mask is a table made for each length",
        seen: "`torch.tril(torch.ones(T, T))`; `create_block_mask(causal, .., Q_LEN = T, KV_LEN = T)`",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [3, 4],
            program: |tape, length| {
                let query = tape.iota(&[length.into(), length.into()], 0); // changes
                let key = tape.iota(query.shape(), 1);
                let table = key.less(&(&query + 1.0)).reshape([length * length]);
                let mask = mask("table", &[table.ty().clone()], |at| {
                    at.extras[0].gather(&(&(&at.query * length as f64) + &at.key))
                });
                let attention = Attention { mask: mask.ok(), ..Attention::plain(0.5) };
                let [q, k, v] = heads(tape);
                tape.output("y", &q.attend(attention, &k, &v, &[&table]));
            },
            cured: |tape, _| {
                let attention = Attention { mask: mask("causal", &[], causal).ok(), ..Attention::plain(0.5) };
                let [q, k, v] = heads(tape);
                tape.output("y", &q.attend(attention, &k, &v, &[]));
            },
            examples: heads_values,
        },
    }
}

fn padded_length() -> Case {
    Case {
        name: "the mask's program knows how long the text is",
        seen: "flex attention: a `mask_mod` that closes over a Python int",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [3, 4],
            program: |tape, length| {
                let [q, k, v] = heads(tape);
                let mask = mask("padding", &[], |at| at.key.less(&at.key.like(length as f64 - 1.0)));
                let attention = Attention { mask: mask.ok(), ..Attention::plain(0.5) };
                tape.output("y", &q.attend(attention, &k, &v, &[])); // changes
            },
            cured: |tape, _| {
                let [q, k, v] = heads(tape);
                let length = tape.input("length", Dtype::I32, NONE);
                let mask = mask("padding", &[Type::scalar(Dtype::I32)], |at| at.key.less(&at.extras[0]));
                let attention = Attention { mask: mask.ok(), ..Attention::plain(0.5) };
                tape.output("y", &q.attend(attention, &k, &v, &[&length]));
            },
            examples: heads_values,
        },
    }
}

fn autocast() -> Case {
    Case {
        name: "the compute type is a state of the host",
        seen: "a public solution's log: `GLOBAL_STATE changed: autocast`",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [0, 1],
            program: |tape, half| {
                let dtype = if half == 1 { Dtype::F16 } else { Dtype::Bf16 };
                tape.output("y", &(&line(tape).cast(dtype) * 2.0).cast(Dtype::F32)); // changes
            },
            cured: |tape, _| tape.output("y", &(&line(tape).cast(Dtype::Bf16) * 2.0).cast(Dtype::F32)),
            examples: |_| given([three()]),
        },
    }
}

fn training_flag() -> Case {
    Case {
        name: "a flag says whether the model is in training",
        seen: "torch: `self.training`, which an evaluation between steps sets and resets",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [1, 0],
            program: |tape, training| {
                let (x, keep) = (line(tape), number(tape, "keep"));
                let dropped = if training == 1 { &x * &keep } else { x }; // changes
                tape.output("y", &(&dropped + 1.0));
            },
            cured: |tape, _| {
                let (x, keep) = (line(tape), number(tape, "keep"));
                let training = tape.input("training", Dtype::U8, NONE);
                tape.output("y", &(&training.select(&(&x * &keep), &x) + 1.0));
            },
            examples: |training| {
                let flag = Array::bytes(&[], vec![training as u8]);
                given([three(), ("training", flag), ("keep", Array::scalar(0.5))])
            },
        },
    }
}

fn logged_step() -> Case {
    Case {
        name: "every other step gives what the log shows as well",
        seen: "trainers with logging_steps above 1: the norm is returned only where it is shown",
        at: Location::caller(),
        shows: Shows::Recompiles {
            numbers: [1, 2],
            program: |tape, step| {
                let x = line(tape);
                let norm = (&x * &x).sum(0).sqrt();
                tape.output("y", &(&x * 0.5));
                if step == 2 {
                    tape.output("norm", &norm);
                }
            },
            cured: |tape, _| {
                let x = line(tape);
                let norm = (&x * &x).sum(0).sqrt();
                tape.output("y", &(&x * 0.5));
                tape.output("norm", &norm);
            },
            examples: |_| given([three()]),
        },
    }
}
