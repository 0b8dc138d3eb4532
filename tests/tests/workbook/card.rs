//! The card as a device: the same seam as the CPU's, memory that is counted, graphs that replay, code that is
//! compiled once. Without a GPU these tests print "not measured".

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use challenges::nf4::cuda::{Attempt, Build, Kernel, OnCard, source};
use challenges::nf4::tile::{run, run_in_three, upload};
use challenges::nf4::{Absmax, Weight};
use kernels::cuda::{Arguments, FILL, Gpu, Grid, PRELUDE, Source, Target, compile, output_defines};
use kernels::tile::Element;
use kernels::{Counts, Cpu, Device, DeviceError};
use reference::nf4::{CODE2, NF4, OutputDtype, dequantize_bits};

use crate::device::with_weight;

/// A card that no other test of this process uses meanwhile: the driver ends a capture of one thread where another
/// waits for the default stream.
pub(crate) struct Alone {
    gpu: Gpu,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

pub(crate) fn probed() -> Option<Alone> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Gpu::probe() {
        Ok(gpu) => {
            tests::gpu::note();
            Some(Alone { gpu, _turn: turn })
        }
        Err(reason) => {
            println!("not measured: {reason}");
            None
        }
    }
}

/// What a kernel of the solution makes of a weight.
pub(crate) fn dequantized(gpu: &Gpu, kernel: &str, weight: &Weight<'_>, dtype: OutputDtype) -> Vec<u32> {
    built(gpu, kernel, weight, dtype, Build::of(dtype))
}

fn built(gpu: &Gpu, kernel: &str, weight: &Weight<'_>, dtype: OutputDtype, build: Build) -> Vec<u32> {
    let (attempt, defines) = (Attempt::solution(), build.defines());
    let module = gpu.build(&source(&attempt, &defines)).expect("compiles");
    let kernel = Kernel::of(&module, kernel).expect("is there");
    let on_card = OnCard::upload(gpu, weight, 0).expect("room");
    let out = gpu.zeroed("out", weight.len * dtype.bytes()).expect("room");
    kernel.run(gpu, &on_card, out.address()).expect("runs");
    gpu.stream().sync().expect("ends");
    let mut bytes = vec![0; out.bytes()];
    out.read(0, &mut bytes).expect("reads");
    challenges::nf4::cuda::bits(dtype, &bytes)
}

fn bits(device: &dyn Device, out: &kernels::Buffer, dtype: OutputDtype) -> Vec<u32> {
    let mut bytes = vec![0; out.bytes()];
    device.download(out, &mut bytes).expect("the lengths are equal");
    challenges::nf4::cuda::bits(dtype, &bytes)
}

#[test]
fn a_tile_program_gives_the_same_bits_on_a_card() {
    let Some(gpu) = probed() else { return };
    for (len, block_size) in [(1, 64), (63, 64), (255, 32), (64 * 300 + 17, 64), (4096 * 17 + 1, 4096)] {
        with_weight(len, block_size, |weight| {
            for dtype in [OutputDtype::F16, OutputDtype::Bf16, OutputDtype::F32] {
                let want = dequantize_bits(weight, dtype);
                let uploaded = upload(&*gpu, weight).expect("a well-formed weight");
                let mut out = gpu.alloc("out", len * dtype.bytes()).expect("room");
                run(&*gpu, &uploaded, dtype, len, &mut out).expect("fits");
                assert_eq!(bits(&*gpu, &out, dtype), want, "fused, {len}, {dtype:?}");
                let mut out = gpu.alloc("out", len * dtype.bytes()).expect("room");
                run_in_three(&*gpu, &uploaded, dtype, len, &mut out).expect("fits");
                assert_eq!(bits(&*gpu, &out, dtype), want, "in three, {len}, {dtype:?}");
            }
        });
    }
}

/// A scale that overflowed times the table's zero is the card's NaN, 0x7fffffff.
#[test]
fn a_nan_stays_a_nan_with_and_without_inline_ptx() {
    let Some(gpu) = probed() else { return };
    let packed: Vec<u8> = (0..64).map(|i| (i * 17) as u8).collect();
    let (codes, scales) = ([255_u8, 0], [f32::MAX]);
    let absmax =
        Absmax::Double { codes: &codes, table: &CODE2, scales: &scales, block_size: 256, offset: f32::MAX };
    let weight = Weight { len: 128, block_size: 64, packed: &packed, table: &NF4, absmax };
    for dtype in [OutputDtype::F16, OutputDtype::Bf16] {
        let want = dequantize_bits(&weight, dtype);
        assert!(want.iter().any(|bits| dtype.value(*bits).is_nan()), "{dtype:?}");
        for kernel in ["dequantize_naive", "dequantize_wide", "dequantize"] {
            for build in [Build::of(dtype), Build::of(dtype).plain()] {
                let got = built(&gpu, kernel, &weight, dtype, build);
                for (got, want) in got.iter().zip(&want) {
                    let right = if dtype.value(*want).is_nan() { 0x7fff } else { *want };
                    assert_eq!(*got, right, "{kernel} to {dtype:?}, {build:?}: {got:x}, not {right:x}");
                }
            }
        }
    }
}

#[test]
fn launches_and_bytes_are_counted_alike_on_both_devices() {
    let Some(gpu) = probed() else { return };
    with_weight(64 * 1024, 64, |weight| {
        let counted = |device: &dyn Device| {
            let uploaded = upload(device, weight).expect("a well-formed weight");
            let mut out = device.alloc("out", 64 * 1024 * 2).expect("room");
            run(device, &uploaded, OutputDtype::Bf16, 64 * 1024, &mut out).expect("fits");
            device.sync().expect("runs");
            Counts { scratch_bytes: 0, ..device.counts() }
        };
        assert_eq!(counted(&*gpu), counted(&Cpu::with_threads(1)));
    });
}

#[test]
fn a_buffer_of_another_device_is_refused() {
    let Some(gpu) = probed() else { return };
    let mut on_host = Cpu::with_threads(1).alloc("here", 16).expect("room");
    let message = gpu.upload(&mut on_host, &[0; 16]).expect_err("must be refused");
    assert_eq!(message, DeviceError::Elsewhere { tag: "here", device: "the GPU" });
    let mut on_card = gpu.alloc("there", 16).expect("room");
    let message =
        Cpu::with_threads(1).upload(&mut on_card, &[0; 16]).expect_err("must be refused").to_string();
    assert_eq!(message, "buffer there is in another device's memory, and was given to the CPU");
}

#[test]
fn memory_is_counted_by_tag_and_given_back() {
    let Some(gpu) = probed() else { return };
    let first = gpu.reserve("first", 1000).expect("room");
    let address = first.address();
    let second = gpu.reserve("second", 5000).expect("room");
    assert_eq!((gpu.usage().current, gpu.usage().peak), (6000, 6000));
    drop(first);
    assert_eq!((gpu.usage().current, gpu.usage().peak), (5000, 6000));
    let again = gpu.reserve("first", 900).expect("room");
    assert_eq!(again.address(), address, "what was freed is handed out again");
    assert_eq!(gpu.usage().tags["first"], (900, 1000));
    drop(second);
    gpu.reset_peak();
    assert_eq!(gpu.usage().peak, 900);
    let message = gpu.reserve("the moon", 1 << 50).expect_err("more than any card has").to_string();
    assert!(message.contains("free bytes of the card's memory for the moon"), "{message}");
}

/// The kernel that fills memory with random words.
fn filling(gpu: &Gpu) -> kernels::cuda::Function {
    let defines = output_defines(Element::Bf16);
    let source = Source { name: "fill.cu", text: FILL, headers: &[PRELUDE], defines: &defines };
    gpu.build(&source).expect("compiles").function("random_words").expect("is there")
}

/// Two buffers of which one was free when the other came: at once there was the larger one only, and the driver, from
/// which both were taken, lacks both.
#[test]
fn a_watermark_is_what_was_taken_at_once_and_the_driver_lacks_it() {
    let Some(gpu) = probed() else { return };
    let device: &dyn Device = &*gpu;
    let [large, small] = [64 << 20, 32 << 20];
    let before = device.alloc("before", small).expect("room");
    let watermark = device.watermark().expect("a place");
    drop(device.alloc("large", large).expect("room"));
    let _small = device.alloc("small", small).expect("room");
    assert_eq!(watermark.bytes(), large as u64);
    let lacks = watermark.driver_bytes().expect("an answer").expect("a driver");
    assert!(lacks >= (large + small) as u64, "{lacks} bytes");
    assert_eq!(device.watermark().expect("a place").bytes(), 0, "from its beginning on");
    drop(before);
}

#[test]
fn a_captured_graph_replays_and_its_launches_are_counted() {
    let Some(gpu) = probed() else { return };
    let words = 5000;
    let out = gpu.zeroed("out", words * 8).expect("room");
    let grid = Grid { blocks: 20, threads: 256, ..Grid::default() };
    let arguments = Arguments::new().u64(out.address()).u64(words as u64).u64(7);
    let function = filling(&gpu);
    let before = gpu.launches();
    let graph = gpu
        .capture(gpu.stream(), |stream| gpu.launch_on(stream, &function, grid, arguments.clone()))
        .expect("can be captured");
    drop(function); // the graph keeps the code
    assert_eq!(gpu.launches() - before, 1);
    let mut bytes = vec![0xff; words * 8];
    out.read(0, &mut bytes).expect("reads");
    assert!(bytes.iter().all(|byte| *byte == 0), "captured, not run");
    let (begin, end) = (gpu.event().expect("an event"), gpu.event().expect("an event"));
    begin.record(gpu.stream()).expect("records");
    graph.launch(gpu.stream()).expect("runs");
    end.record(gpu.stream()).expect("records");
    end.wait().expect("ends");
    let took = end.micros_since(&begin).expect("both were reached");
    assert!(took > 0.0 && took < 1e6, "{took} us");
    out.read(0, &mut bytes).expect("reads");
    let filled = bytes.chunks_exact(8).filter(|word| word.iter().any(|byte| *byte != 0)).count();
    assert_eq!(filled, words);
}

#[test]
fn a_capture_that_fails_or_panics_leaves_its_stream_free() {
    let Some(gpu) = probed() else { return };
    let function = filling(&gpu);
    let out = gpu.zeroed("out", 800).expect("room");
    let grid = Grid { blocks: 1, threads: 256, ..Grid::default() };
    let queue = |stream: &kernels::cuda::Stream| {
        let arguments = Arguments::new().u64(out.address()).u64(100).u64(7);
        gpu.launch_on(stream, &function, grid, arguments)
    };
    let is_free = |what: &str| {
        gpu.stream().sync().unwrap_or_else(|error| panic!("after {what}: {error}"));
        let graph = gpu.capture(gpu.stream(), queue).unwrap_or_else(|error| panic!("after {what}: {error}"));
        graph.launch(gpu.stream()).and_then(|()| gpu.stream().sync()).expect("runs");
    };
    let refused = gpu.capture(gpu.stream(), |stream| {
        queue(stream)?;
        Err(kernels::cuda::CudaError::Launch { kernel: "none".into(), text: "refused".into() })
    });
    assert!(refused.is_err_and(|error| error.to_string().contains("refused")));
    is_free("a refusal");
    assert!(gpu.capture(gpu.stream(), kernels::cuda::Stream::sync).is_err(), "a wait cannot be captured");
    is_free("a wait");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        gpu.capture(gpu.stream(), |stream| queue(stream).map(|()| panic!("while it is captured"))).map(|_| ())
    }));
    assert!(panicked.is_err());
    is_free("a panic");
    let twice = gpu.capture(gpu.stream(), |stream| gpu.capture(stream, queue).map(|_| ()));
    assert!(twice.is_err(), "a stream has one capture at a time");
    is_free("a capture within a capture");
}

#[test]
fn a_launch_with_too_many_arguments_is_refused() {
    let Some(gpu) = probed() else { return };
    let grid = Grid { blocks: 1, threads: 32, ..Grid::default() };
    let many = (0..25).fold(Arguments::new(), Arguments::u64);
    let refused = gpu.launch(&filling(&gpu), grid, many).expect_err("24 at most").to_string();
    assert!(refused.contains("expected at most 24 arguments of 768 bytes, found 25 of 200"), "{refused}");
}

#[test]
fn a_second_compilation_reads_the_cache() {
    let text = format!("extern \"C\" __global__ void k(int* a) {{ *a = {}; }}", std::process::id());
    let source = Source { name: "k.cu", text: &text, headers: &[], defines: &[] };
    if let Err(error @ kernels::cuda::CompileError::NoCompiler(_)) = compile(&source, Target::Ptx((7, 5))) {
        println!("not measured: {error}");
        return;
    }
    for target in [Target::Ptx((7, 5)), Target::Machine((8, 0))] {
        let first = compile(&source, target).expect("compiles");
        let second = compile(&source, target).expect("compiles");
        assert!(second.cached, "{target:?}");
        assert_eq!((&first.image, &first.ptx), (&second.image, &second.ptx), "{target:?}");
    }
}
