//! What a program does that no graph says: for each kind a program that does it, and one that need not.

use std::panic::Location;

use reference::graph::interpret::Values;
use reference::graph::programs::{causal, mask};
use reference::graph::{Array, Attention, Dim, Dtype, Facts, Host, Op, Tape, Tensor, Type};

use super::{
    Case, NONE, Shows, at_once, dequantize, floats, given, number, packed, packed_values, ramp, weight_type,
};

/// Every case, in the order in which a training step meets them.
pub(super) fn all() -> Vec<Case> {
    let frozen_weights = [
        packed_transpose(),
        addresses(),
        matmul_function(),
        foreign_integer(),
        device_guard(),
        stream(),
        shape_warning(),
        first_call(),
        alignment(),
    ];
    let model = [
        adapter_scale(),
        require_grad_hook(),
        layer_drop(),
        checkpoint(),
        long_rope(),
        padding_check(),
        block_mask(),
        flash_attention(),
        cache_write(),
        masked_fill(),
        overflow_clamp(),
        cache_warning(),
        index_check(),
        stop_check(),
    ];
    let loss = [kept_rows(), unpadding(), empty_labels(), fused_loss(), nan_filter()];
    let trainer = [
        clip(),
        found_inf(),
        moments(),
        step_counter(),
        loss_log(),
        precision_variable(),
        speed(),
        peak_memory(),
    ];
    [frozen_weights.to_vec(), model.to_vec(), loss.to_vec(), trainer.to_vec()].concat()
}

/// The input `x` (B, 16).
fn rows(tape: &Tape) -> Tensor {
    tape.input("x", Dtype::F32, [tape.symbol("B", Facts::range(1, 64)), 16.into()])
}

/// The input `x` (T,).
fn line(tape: &Tape) -> Tensor {
    tape.input("x", Dtype::F32, [tape.symbol("T", Facts::range(1, 4096))])
}

/// `y` = x W^T, as it should be.
fn project(tape: &Tape) {
    let weight = dequantize(tape, &packed(tape));
    tape.output("y", &rows(tape).matmul(&weight.t()));
}

/// The output `y` = 2 x, as it should be.
fn double(tape: &Tape) {
    tape.output("y", &(&line(tape) * 2.0));
}

/// Values for `x`.
fn three() -> Values<f32> {
    three_and([])
}

/// Values for `x` and more.
fn three_and<const N: usize>(more: [(&str, Array<f32>); N]) -> Values<f32> {
    let mut values = given(more);
    values.insert("x".to_owned(), floats(&[3], &[1.0, -2.0, 4.0]));
    values
}

/// Whether a condition that was read holds.
fn is(condition: Option<Vec<f64>>) -> bool {
    condition.is_some_and(|values| values[0] != 0.0)
}

/// The number that was read; 1 if none was.
fn first(values: Option<Vec<f64>>) -> f64 {
    values.map_or(1.0, |values| values[0])
}

fn packed_transpose() -> Case {
    Case {
        name: "the packed bytes of a weight are transposed",
        seen: "bitsandbytes, Linear4bit.forward: `self.weight.t()`, logged as `call_method Params4bit t` (bitsandbytes \
               issue 1578, public solutions)",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [codes, table, absmax] = packed(tape);
                let (row, column) = (Type::new(Dtype::U8, [1, 64]), codes.reshape([64, 1]));
                let t = |v: &[Array<f32>]| at_once(v, |v| v[0].t());
                let codes = tape.foreign("Params4bit.t", &[&column], &row, t); // break
                let weight = dequantize(tape, &[codes.reshape([64]), table, absmax]);
                tape.output("y", &rows(tape).matmul(&weight.t()));
            },
            cured: project,
            examples: packed_values,
        },
    }
}

fn addresses() -> Case {
    Case {
        name: "addresses of a weight's parts go to a C function",
        seen: "bitsandbytes, functional.py, dequantize_blockwise: `get_ptr`, then a call through ctypes",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 3,
            program: |tape| {
                let parts = packed(tape);
                let _arguments = [parts[0].pointer(), parts[2].pointer()]; // break
                let inputs = [&parts[0], &parts[1], &parts[2]];
                let weight = tape.foreign("cdequantize_blockwise_fp32_nf4", &inputs, &weight_type(), decode); // break
                tape.output("y", &rows(tape).matmul(&weight.t()));
            },
            cured: project,
            examples: packed_values,
        },
    }
}

fn decode(parts: &[Array<f32>]) -> Array<f32> {
    at_once(parts, |parts| dequantize(parts[0].tape(), parts))
}

fn matmul_function() -> Case {
    Case {
        name: "a product with a packed weight is a function with a derivative of its own",
        seen: "bitsandbytes, autograd/_functions.py: `MatMul4Bit.apply`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let ([codes, table, absmax], x) = (packed(tape), rows(tape));
                let ty = Type::new(Dtype::F32, [x.dim(0), 8.into()]);
                let inputs = [&codes, &table, &absmax, &x];
                let product = |v: &[Array<f32>]| at_once(v, |v| v[3].matmul(&dequantize(v[0].tape(), v).t()));
                tape.output("y", &tape.foreign("MatMul4Bit.apply", &inputs, &ty, product)); // break
            },
            cured: project,
            examples: packed_values,
        },
    }
}

fn foreign_integer() -> Case {
    Case {
        name: "a block size becomes a C integer",
        seen: "public solutions: `ct.c_int32(blocksize)` in bitsandbytes, logged as `_SimpleCData.__new__`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [codes, table, absmax] = packed(tape);
                let block_size = tape.host(Host::Object, "ctypes.c_int32(64)", || 64.0); // break
                let op =
                    Op::Dequantize { block_size: block_size.map_or(64, |size| size as usize), nested: None };
                let weight = tape.apply(op, &[&codes, &table, &absmax], Some(weight_type()));
                tape.output("y", &rows(tape).matmul(&weight.t()));
            },
            cured: project,
            examples: packed_values,
        },
    }
}

fn device_guard() -> Case {
    Case {
        name: "the device is set before a kernel and put back after it",
        seen: "bitsandbytes, functional.py: `pre_call`, `post_call`; later `device_of` (pytorch issue 128095)",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 2,
            program: |tape| {
                let before = tape.host(Host::Device, "torch.cuda.set_device(x.device)", || 0.0); // break
                double(tape);
                tape.host(Host::Device, "torch.cuda.set_device(before)", || before.unwrap_or(0.0)); // break
            },
            cured: double,
            examples: three,
        },
    }
}

fn stream() -> Case {
    Case {
        name: "a kernel asks for the current stream",
        seen: "bitsandbytes, functional.py: `get_tensor_stream`; unsloth kernels/utils.py: `CUDA_STREAM`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                tape.host(Host::Device, "torch.cuda.current_stream().cuda_stream", || 0.0); // break
                double(tape);
            },
            cured: double,
            examples: three,
        },
    }
}

fn shape_warning() -> Case {
    Case {
        name: "a product warns of a shape that has no fast kernel",
        seen: "bitsandbytes, autograd/_functions.py, matmul_4bit: `warn(..)`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                tape.host(Host::Print, "warn(\"some hidden dimension is odd\")", || 0.0); // break
                double(tape);
            },
            cured: double,
            examples: three,
        },
    }
}

fn first_call() -> Case {
    Case {
        name: "a layer settles its compute type at its first call",
        seen: "bitsandbytes, Linear4bit.set_compute_type: setattr on a module (bitsandbytes issue 1184); in a public \
               solution its flag `compute_type_is_set` recompiled the MLP",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                tape.host(Host::State, "self.compute_dtype = x.dtype", || 0.0); // break
                double(tape);
            },
            cured: double,
            examples: three,
        },
    }
}

fn alignment() -> Case {
    Case {
        name: "an address decides which kernel is taken",
        seen: "Triton's launcher: pointers divisible by 16 are specialised on",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let x = line(tape);
                let aligned = x.pointer().is_some_and(|address| address % 16 == 0); // break
                tape.output("y", &if aligned { &x * 2.0 } else { &x + &x });
            },
            cured: double,
            examples: three,
        },
    }
}

fn adapter_scale() -> Case {
    Case {
        name: "the scale of an adapter is read from a tensor",
        seen: "LoRA with a learnt or stored scale: `scaling.item()`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let (x, scale) = (line(tape), number(tape, "scale"));
                let scale = first(scale.read()); // break
                tape.output("y", &(&x * scale));
            },
            cured: |tape| tape.output("y", &(&line(tape) * &number(tape, "scale"))),
            examples: || three_and([("scale", Array::scalar(0.25))]),
        },
    }
}

fn require_grad_hook() -> Case {
    Case {
        name: "a hook sees what the embedding gives",
        seen: "transformers, `enable_input_require_grads`, which public solutions call",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let x = line(tape);
                let x = tape.foreign("make_inputs_require_grads", &[&x], x.ty(), |v| v[0].clone()); // break
                tape.output("y", &(&x * 2.0));
            },
            cured: double,
            examples: three,
        },
    }
}

fn layer_drop() -> Case {
    Case {
        name: "a random number decides whether a layer is left out",
        seen: "transformers, OPT and others: `layerdrop`; the same with dropout written by hand",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let x = line(tape);
                let drawn = tape.host(Host::Random, "torch.rand([])", || 0.75); // break
                let dropped = drawn.is_some_and(|drawn| drawn < 0.1);
                tape.output("y", &if dropped { x } else { &x * 2.0 });
            },
            cured: |tape| {
                let (x, drawn) = (line(tape), number(tape, "drawn"));
                tape.output("y", &drawn.less(&drawn.like(0.1)).select(&x, &(&x * 2.0)));
            },
            examples: || three_and([("drawn", Array::scalar(0.75))]),
        },
    }
}

fn checkpoint() -> Case {
    Case {
        name: "a layer that is computed again keeps the random state",
        seen: "torch.utils.checkpoint with preserve_rng_state; public solutions switch checkpointing off for it",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 2,
            program: |tape| {
                let state = tape.host(Host::Random, "torch.get_rng_state()", || 3407.0); // break
                double(tape);
                tape.host(Host::Random, "torch.set_rng_state(state)", || state.unwrap_or(0.0)); // break
            },
            cured: double,
            examples: three,
        },
    }
}

fn long_rope() -> Case {
    /// Angles of positions beyond 4 turn more slowly.
    fn angles(positions: &Tensor) -> [Tensor; 2] {
        let positions = positions.cast(Dtype::F32);
        [&positions * 1.0, &positions * 0.5]
    }
    Case {
        name: "the largest position decides which frequencies are used",
        seen: "transformers, `dynamic_frequency_update`: `seq_len = torch.max(position_ids) + 1`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let positions =
                    tape.input("positions", Dtype::I32, [tape.symbol("T", Facts::range(1, 4096))]);
                let [short, long] = angles(&positions);
                let largest = first(positions.cast(Dtype::F32).reduce_max(0).read()); // break
                tape.output("angles", if largest > 4.0 { &long } else { &short });
            },
            cured: |tape| {
                let positions =
                    tape.input("positions", Dtype::I32, [tape.symbol("T", Facts::range(1, 4096))]);
                let [short, long] = angles(&positions);
                let largest = positions.cast(Dtype::F32).reduce_max(0);
                tape.output("angles", &largest.like(4.0).less(&largest).select(&long, &short));
            },
            examples: || given([("positions", Array::integers(&[3], vec![3, 4, 5]))]),
        },
    }
}

fn padding_check() -> Case {
    /// Whether something is padded, and `x` without what is padded.
    fn masked(tape: &Tape) -> [Tensor; 3] {
        let x = line(tape);
        let padding =
            tape.input("mask", Dtype::U8, x.shape()).equal(&tape.constant(0.0, &x.ty().with(Dtype::U8)));
        let padded = padding.cast(Dtype::F32).reduce_max(0);
        [padded.like(0.0).less(&padded), padding.select(&x.like(0.0), &x), x]
    }
    Case {
        name: "the mask is left out where nothing is padded",
        seen: "transformers, `AttentionMaskConverter._ignore_causal_mask_sdpa`: `torch.all(mask == 1)`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [is_padded, masked, x] = masked(tape);
                let is_padded = is(is_padded.read()); // break
                tape.output("y", &if is_padded { masked } else { x });
            },
            cured: |tape| {
                let [_, masked, _] = masked(tape);
                tape.output("y", &masked);
            },
            examples: || three_and([("mask", Array::bytes(&[3], vec![1, 1, 0]))]),
        },
    }
}

/// Queries, keys and values of 4 places in one head of 2.
fn heads(tape: &Tape) -> [Tensor; 3] {
    ["q", "k", "v"].map(|name| tape.input(name, Dtype::F32, [1, 1, 4, 2]))
}

fn heads_values() -> Values<f32> {
    let [q, k, v] = [(); 3].map(|()| ramp(&[1, 1, 4, 2]));
    given([("q", q), ("k", k), ("v", v)])
}

fn attend(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let mask = mask("causal", &[], causal).expect("numbers fit each other");
    q.attend(Attention { mask: Some(mask), ..Attention::plain(0.5) }, k, v, &[])
}

fn block_mask() -> Case {
    Case {
        name: "a library makes the table of what a query may see",
        seen: "flex attention, `create_block_mask`, called anew for each batch by public solutions",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let ([q, k, v], ty) = (heads(tape), Type::new(Dtype::U8, [16])); // (4, 4), row after row
                let causal = |i: usize| u8::from(i % 4 <= i / 4);
                let table = |_: &[Array<f32>]| Array::bytes(&[16], (0..16).map(causal).collect());
                let table = tape.foreign("create_block_mask", &[], &ty, table); // break
                let mask = mask("table", &[ty], |at| at.extras[0].gather(&(&(&at.query * 4.0) + &at.key)));
                let mask = mask.expect("a table has rows");
                let attention = Attention { mask: Some(mask), ..Attention::plain(0.5) };
                tape.output("y", &q.attend(attention, &k, &v, &[&table]));
            },
            cured: |tape| {
                let [q, k, v] = heads(tape);
                tape.output("y", &attend(&q, &k, &v));
            },
            examples: heads_values,
        },
    }
}

fn flash_attention() -> Case {
    Case {
        name: "attention is a library's function",
        seen: "transformers with flash-attn 2: `flash_attn_func`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [q, k, v] = heads(tape);
                let flash = |v: &[Array<f32>]| at_once(v, |v| attend(&v[0], &v[1], &v[2]));
                tape.output("y", &tape.foreign("flash_attn_func", &[&q, &k, &v], q.ty(), flash)); // break
            },
            cured: |tape| {
                let [q, k, v] = heads(tape);
                tape.output("y", &attend(&q, &k, &v));
            },
            examples: heads_values,
        },
    }
}

fn cache_write() -> Case {
    /// A cache of 4 rows, and the same with a new row in place 2.
    fn updated(tape: &Tape) -> [Tensor; 2] {
        let cache = tape.input("cache", Dtype::F32, [4, 2]);
        let place = tape.iota(cache.shape(), 0);
        let here = place.equal(&place.like(2.0));
        let updated = here.select(&tape.input("row", Dtype::F32, [1, 2]), &cache);
        [cache, updated]
    }
    Case {
        name: "a new key is written into the cache",
        seen: "transformers, `StaticCache.update`: `index_copy_`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [cache, updated] = updated(tape);
                cache.write(&updated); // break
                tape.output("sum", &cache.total());
                tape.output("cache", &cache);
            },
            cured: |tape| {
                let [_, updated] = updated(tape);
                tape.output("sum", &updated.total());
                tape.output("cache", &updated);
            },
            examples: || given([("cache", ramp(&[4, 2])), ("row", floats(&[1, 2], &[8.0, 9.0]))]),
        },
    }
}

fn masked_fill() -> Case {
    /// Scores, and the same with -1 where they are negative.
    fn filled(tape: &Tape) -> [Tensor; 2] {
        let scores = tape.within("layers.0.self_attn", || &line(tape) * 0.5);
        let filled = scores.less(&scores.like(0.0)).select(&scores.like(-1.0), &scores);
        [scores, filled]
    }
    Case {
        name: "scores are masked in place",
        seen: "`scores.masked_fill_(..)` in attention written by hand; `out=` arguments",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [scores, filled] = filled(tape);
                scores.write(&filled); // break
                tape.output("y", &scores.exp());
            },
            cured: |tape| {
                let [_, filled] = filled(tape);
                tape.output("y", &filled.exp());
            },
            examples: three,
        },
    }
}

fn overflow_clamp() -> Case {
    Case {
        name: "values are clamped where one is too large for f16",
        seen: "transformers, T5 and others: `if torch.isinf(hidden_states).any()`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let x = &line(tape) * 20000.0;
                let largest = first(x.max(&-&x).reduce_max(0).read()); // break
                let clamped =
                    if largest > 65504.0 { x.min(&x.like(64504.0)).max(&x.like(-64504.0)) } else { x };
                tape.output("y", &clamped);
            },
            cured: |tape| {
                let x = &line(tape) * 20000.0;
                let too_large = x.like(65504.0).less(&x.max(&-&x));
                let clamped = x.min(&x.like(64504.0)).max(&x.like(-64504.0));
                tape.output("y", &too_large.select(&clamped, &x));
            },
            examples: three,
        },
    }
}

fn cache_warning() -> Case {
    Case {
        name: "a layer logs once that it ignores a setting",
        seen: "transformers, LlamaModel.forward: `logger.warning_once(..)`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                tape.host(Host::Print, "logger.warning_once(\"use_cache is ignored\")", || 0.0); // break
                double(tape);
            },
            cured: double,
            examples: three,
        },
    }
}

fn index_check() -> Case {
    fn embedded(tape: &Tape) -> [Tensor; 2] {
        let ids = tape.input("ids", Dtype::I32, [tape.symbol("T", Facts::range(1, 4096))]);
        [tape.input("table", Dtype::F32, [4, 2]).gather(&ids), ids]
    }
    Case {
        name: "token ids are checked against the vocabulary",
        seen: "`assert input_ids.max() < vocab_size` in data collators and embeddings",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [y, ids] = embedded(tape);
                let inside = ids.read().is_none_or(|ids| ids.iter().all(|id| *id < 4.0)); // break
                tape.output("y", &if inside { y } else { y.like(f64::NAN) });
            },
            cured: |tape| {
                let [y, _] = embedded(tape); // a gather fails by itself where an id is outside
                tape.output("y", &y);
            },
            examples: || given([("ids", Array::integers(&[3], vec![0, 3, 1])), ("table", ramp(&[4, 2]))]),
        },
    }
}

fn stop_check() -> Case {
    Case {
        name: "a loop ends when every sequence has ended",
        seen: "transformers, generate: `unfinished_sequences.max() == 0`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 3,
            program: |tape| {
                let mut x = tape.input("x", Dtype::F32, [1]);
                for _ in 0..4 {
                    let ended = is(x.less(&x.like(1.0)).read()); // break
                    if ended {
                        break;
                    }
                    x = &x * 0.5;
                }
                tape.output("y", &x);
            },
            cured: |tape| {
                let halved = |x: Tensor, _| x.less(&x.like(1.0)).select(&x, &(&x * 0.5));
                tape.output("y", &(0..4).fold(tape.input("x", Dtype::F32, [1]), halved));
            },
            examples: || given([("x", floats(&[1], &[3.0]))]),
        },
    }
}

/// Losses (T,) and labels (T,), and where a label counts.
fn labelled(tape: &Tape) -> [Tensor; 3] {
    let losses = line(tape);
    let labels = tape.input("labels", Dtype::I32, losses.shape());
    let kept = labels.like(-1.0).less(&labels);
    [losses, labels, kept]
}

fn labelled_values() -> Values<f32> {
    three_and([("labels", Array::integers(&[3], vec![5, -100, 7]))])
}

fn kept_rows() -> Case {
    Case {
        name: "rows without a label are taken out",
        seen: "`logits[labels != -100]` and `torch.nonzero` in losses; transformers, `_get_unpad_data`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [losses, labels, _] = labelled(tape);
                let ty = Type::new(Dtype::I32, [tape.symbol("N", Facts::range(0, 4096))]);
                let index = tape.foreign("torch.nonzero", &[&labels], &ty, where_kept); // break
                tape.output("sum", &losses.gather(&index).total());
            },
            cured: |tape| {
                let [losses, _, kept] = labelled(tape);
                tape.output("sum", &kept.select(&losses, &losses.like(0.0)).total());
            },
            examples: labelled_values,
        },
    }
}

fn where_kept(labels: &[Array<f32>]) -> Array<f32> {
    let labels = labels[0].as_integers();
    let kept: Vec<i32> = (0..).zip(labels).filter(|(_, label)| **label >= 0).map(|(i, _)| i).collect();
    Array::integers(&[kept.len()], kept)
}

fn unpadding() -> Case {
    Case {
        name: "packed documents are cut apart by their lengths",
        seen: "transformers 5, packed images in Qwen2.5-VL: `torch.split(tensor, lengths.tolist(), dim=2)`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let x = tape.input("x", Dtype::F32, [3]);
                let lengths = tape.input("lengths", Dtype::I32, [2]).read(); // break
                let first = lengths.map_or(1, |lengths| lengths[0] as usize);
                let [head, tail] = [x.slice(0, Dim::fixed(0), first), x.slice(0, first, 3)];
                tape.output("sums", &tape.concat(&[&head.sum(0), &tail.sum(0)], 0));
            },
            cured: |tape| {
                let x = tape.input("x", Dtype::F32, [3]);
                let documents = tape.input("documents", Dtype::I32, [3]);
                tape.output("sums", &x.scatter_add(&documents, 2));
            },
            examples: || {
                let lengths = Array::integers(&[2], vec![2, 1]);
                let documents = Array::integers(&[3], vec![0, 0, 1]);
                three_and([("lengths", lengths), ("documents", documents)])
            },
        },
    }
}

fn empty_labels() -> Case {
    /// The sum over labelled rows, and how many there are.
    fn counted(tape: &Tape) -> [Tensor; 2] {
        let [losses, _, kept] = labelled(tape);
        [kept.select(&losses, &losses.like(0.0)).total(), kept.cast(Dtype::F32).total()]
    }
    Case {
        name: "a batch without labels has no loss",
        seen: "`if (labels != -100).sum() == 0: return 0.0` and `num_items_in_batch.item()` in trainers",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [sum, count] = counted(tape);
                let none = first(count.read()) == 0.0; // break
                tape.output("loss", &if none { sum.like(0.0) } else { &sum / &count });
            },
            cured: |tape| {
                let [sum, count] = counted(tape);
                tape.output("loss", &(&sum / &count.max(&count.like(1.0))));
            },
            examples: labelled_values,
        },
    }
}

fn fused_loss() -> Case {
    /// ln of the sum of e^logits, less the logit of the label; summed over the rows.
    fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
        let place = logits.tape().iota(logits.shape(), 1);
        let target = labels.reshape([labels.dim(0), 1.into()]).equal(&place);
        let picked = target.select(logits, &logits.like(0.0)).sum(1);
        (&logits.logsumexp(1) - &picked).total()
    }
    fn inputs(tape: &Tape) -> [Tensor; 2] {
        let rows = tape.symbol("T", Facts::range(1, 4096));
        [tape.input("logits", Dtype::F32, [rows.clone(), 4.into()]), tape.input("labels", Dtype::I32, [rows])]
    }
    Case {
        name: "the loss is a kernel with a derivative of its own",
        seen: "unsloth kernels/cross_entropy_loss.py: `Fast_CrossEntropyLoss.apply`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let ([logits, labels], ty) = (inputs(tape), Type::scalar(Dtype::F32));
                let kernel = |v: &[Array<f32>]| at_once(v, |v| cross_entropy(&v[0], &v[1]));
                let loss = tape.foreign("Fast_CrossEntropyLoss.apply", &[&logits, &labels], &ty, kernel); // break
                tape.output("loss", &loss);
            },
            cured: |tape| {
                let [logits, labels] = inputs(tape);
                tape.output("loss", &cross_entropy(&logits, &labels));
            },
            examples: || given([("logits", ramp(&[3, 4])), ("labels", Array::integers(&[3], vec![1, 0, 3]))]),
        },
    }
}

fn nan_filter() -> Case {
    Case {
        name: "a loss that is no number is not counted",
        seen: "transformers, Trainer: `torch.isnan(tr_loss_step)` with logging_nan_inf_filter",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let (loss, before) = (number(tape, "loss"), number(tape, "before"));
                let is_number = is(loss.equal(&loss).read()); // break
                tape.output("sum", &if is_number { &before + &loss } else { before });
            },
            cured: |tape| {
                let (loss, before) = (number(tape, "loss"), number(tape, "before"));
                tape.output("sum", &loss.equal(&loss).select(&(&before + &loss), &before));
            },
            examples: || given([("loss", Array::scalar(f64::NAN)), ("before", Array::scalar(2.5))]),
        },
    }
}

fn clip() -> Case {
    /// Gradients and their norm.
    fn normed(tape: &Tape) -> [Tensor; 2] {
        let gradient = line(tape);
        [(&gradient * &gradient).sum(0).sqrt(), gradient]
    }
    Case {
        name: "gradients are clipped where their norm is too large",
        seen: "`if total_norm.item() > max_norm` in trainers; the norm that the log shows",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [norm, gradient] = normed(tape);
                let norm = first(norm.read()); // break
                tape.output("clipped", &if norm > 1.0 { &gradient * (1.0 / norm) } else { gradient });
            },
            cured: |tape| {
                let [norm, gradient] = normed(tape);
                let factor = (&norm.like(1.0) / &norm).min(&norm.like(1.0));
                tape.output("clipped", &(&gradient * &factor));
            },
            examples: || given([("x", floats(&[2], &[3.0, 4.0]))]),
        },
    }
}

fn found_inf() -> Case {
    fn inputs(tape: &Tape) -> [Tensor; 3] {
        let weight = line(tape);
        [tape.input("gradient", Dtype::F32, weight.shape()), number(tape, "found_inf"), weight]
    }
    Case {
        name: "a step is left out where a scaled gradient overflowed",
        seen: "torch.amp.GradScaler: `sum(v.item() for v in found_inf_per_device)`, with `fp16 = True`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let [gradient, found, weight] = inputs(tape);
                let overflowed = is(found.read()); // break
                tape.output("weight", &if overflowed { weight } else { &weight - &gradient });
            },
            cured: |tape| {
                let [gradient, found, weight] = inputs(tape);
                let fine = found.equal(&found.like(0.0));
                tape.output("weight", &fine.select(&(&weight - &gradient), &weight));
            },
            examples: || three_and([("gradient", ramp(&[3])), ("found_inf", Array::scalar(0.0))]),
        },
    }
}

fn moments() -> Case {
    /// Moments of a gradient, and what becomes of them.
    fn inputs(tape: &Tape) -> [[Tensor; 2]; 2] {
        let gradient = line(tape);
        let [m, v] = ["m", "v"].map(|name| tape.input(name, Dtype::F32, gradient.shape()));
        let new_m = &(&m * 0.5) + &(&gradient * 0.5);
        let new_v = &(&v * 0.75) + &(&(&gradient * &gradient) * 0.25);
        [[m, new_m], [v, new_v]]
    }
    Case {
        name: "an optimiser updates its moments in place",
        seen: "torch.optim.AdamW: `exp_avg.lerp_(..)`, `exp_avg_sq.mul_(..)`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 2,
            program: |tape| {
                for ([moment, new], name) in inputs(tape).iter().zip(["m", "v"]) {
                    moment.write(new); // break
                    tape.output(name, moment);
                }
            },
            cured: |tape| {
                for ([_, new], name) in inputs(tape).iter().zip(["m", "v"]) {
                    tape.output(name, new);
                }
            },
            examples: || three_and([("m", ramp(&[3])), ("v", floats(&[3], &[1.0, 2.0, 3.0]))]),
        },
    }
}

fn step_counter() -> Case {
    Case {
        name: "the optimiser's step is read for its correction",
        seen: "torch.optim.Adam: `_get_value(step_t)`, which is `.item()` in eager mode",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let (m, step) = (line(tape), number(tape, "step"));
                let step = first(step.read()); // break
                tape.output("corrected", &(&m * (1.0 / (1.0 - 0.5_f64.powf(step)))));
            },
            cured: |tape| {
                let (m, step) = (line(tape), number(tape, "step"));
                let decayed = (&step * 0.5_f64.ln()).exp();
                tape.output("corrected", &(&m / &(&decayed.like(1.0) - &decayed)));
            },
            examples: || three_and([("step", Array::scalar(3.0))]),
        },
    }
}

fn loss_log() -> Case {
    Case {
        name: "the loss is printed within the step",
        seen: "transformers, Trainer with logging_steps 1: `loss.item()`, then a line of the log",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 2,
            program: |tape| {
                let loss = line(tape).mean(0);
                let seen = first(loss.read()); // break
                tape.host(Host::Print, "print(loss)", || seen); // break
                tape.output("loss", &loss);
            },
            cured: |tape| tape.output("loss", &line(tape).mean(0)),
            examples: three,
        },
    }
}

fn precision_variable() -> Case {
    Case {
        name: "an environment variable decides the precision",
        seen: "accelerate: `os.environ.get(\"ACCELERATE_MIXED_PRECISION\")`",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                let x = line(tape);
                let half = tape.host(Host::Environment, "os.environ[\"MIXED_PRECISION\"]", || 0.0); // break
                let dtype = if half == Some(1.0) { Dtype::F16 } else { Dtype::F32 };
                tape.output("y", &(&x.cast(dtype) * 2.0));
            },
            cured: double,
            examples: three,
        },
    }
}

fn speed() -> Case {
    Case {
        name: "a step takes its own time",
        seen: "`time.perf_counter()` around a layer; the puzzle asks to \"monitor speedups\"",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 2,
            program: |tape| {
                let start = tape.host(Host::Clock, "time.perf_counter()", || 12.0); // break
                double(tape);
                let end = tape.host(Host::Clock, "time.perf_counter()", || 12.5); // break
                let seconds = end.zip(start).map_or(0.0, |(end, start)| end - start);
                tape.output("seconds", &tape.constant(seconds, &Type::new(Dtype::F32, NONE)));
            },
            cured: |tape| {
                double(tape);
                tape.output("seconds", &number(tape, "seconds"));
            },
            examples: || three_and([("seconds", Array::scalar(0.5))]),
        },
    }
}

fn peak_memory() -> Case {
    Case {
        name: "a layer logs how much memory is in use",
        seen: "`torch.cuda.max_memory_allocated()`; the puzzle asks to \"log memory / VRAM usage\"",
        at: Location::caller(),
        shows: Shows::Breaks {
            times: 1,
            program: |tape| {
                tape.host(Host::Device, "torch.cuda.max_memory_allocated()", || 0.0); // break
                double(tape);
            },
            cured: double,
            examples: three,
        },
    }
}
