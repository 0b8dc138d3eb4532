//! A dequantiser as what a plan calls: the parts of a weight in one order on both sides of the wall, a part of a weight
//! against the whole of it, and scales that are looked at when their bytes are new and not at each call.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use challenges::graph::Solution;
use challenges::nf4::DEQUANTIZER;
use compiler::session::{Session, Settings};
use kernels::callee::{Callee, Dequantize, HostCallee, Quantized as OnDevice};
use kernels::plan::{Memory, Plan, Step, View};
use kernels::tile::Element;
use kernels::{Buffer, Cpu, Device, DeviceError, Executable, Links};
use proptest::prelude::*;
use reference::graph::Array;
use reference::llama::rope;
use reference::nf4::{CODE2, Layout, NF4, OutputDtype, Part, PartValues, Quantized, Scales, dequantize_bits};
use tests::one_graph::{CPU, bytes, devices, upload};
use tests::plans::execute;
use tests::small_llama::SmallLlama;

/// The two tables know nothing of each other.
#[test]
fn both_sides_of_the_wall_list_the_parts_of_a_weight_alike() {
    for (block_size, nested) in [(32, None), (64, Some(256)), (4096, Some(32)), (64, Some(4096))] {
        for len in [0, 1, 2, 63, 64, 65, 8191, 64 * 256, 64 * 256 + 1, 1 << 30] {
            let what = Dequantize::whole(len, block_size, nested, Element::F16);
            let parts: Vec<_> = Layout { len, block_size, nested }.parts().collect();
            assert_eq!(parts.len(), what.inputs().len(), "{what:?}");
            for (position, (part, own)) in parts.iter().zip(what.inputs()).enumerate() {
                assert_eq!((part.part as usize, *own as usize), (position, position), "{what:?}");
                assert_eq!(format!("{:?}", part.part), format!("{own:?}"), "{what:?}");
                assert_eq!(part.bytes(), what.input_bytes(*own), "{what:?}");
                assert_eq!(part.shape().iter().product::<usize>(), part.len, "{part:?}");
            }
        }
    }
}

/// A weight whose codes and scales are all over their ranges, others for every seed.
fn weight(len: usize, block_size: usize, nested: Option<usize>, seed: usize) -> Quantized {
    let byte = |i: usize| ((i + seed).wrapping_mul(2_654_435_761) >> 13) as u8;
    let float = |i: usize| f32::from(byte(i)) / 255.0 + 0.25;
    let blocks = len.div_ceil(block_size);
    let absmax = match nested {
        None => Scales::Single((0..blocks).map(float).collect()),
        Some(size) => Scales::Double {
            codes: (0..blocks).map(|i| byte(i + 77)).collect(),
            table: Box::new(CODE2),
            scales: (0..blocks.div_ceil(size)).map(float).collect(),
            block_size: size,
            offset: 0.0625,
        },
    };
    let packed = (0..len.div_ceil(2)).map(byte).collect();
    Quantized { shape: vec![len], dtype: OutputDtype::F16, packed, table: NF4, block_size, absmax }
}

/// The parts of a weight in a device's memory, in their order.
fn uploaded(device: &dyn Device, weight: &Quantized) -> Vec<Buffer> {
    let one = |values: PartValues<'_>| {
        let bytes = match values {
            PartValues::Bytes(bytes) => bytes.to_vec(),
            PartValues::Floats(floats) => floats.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        };
        let mut buffer = device.alloc("part", bytes.len()).expect("room");
        device.upload(&mut buffer, &bytes).expect("equal lengths");
        buffer
    };
    weight.view().parts().map(|(_, values)| one(values)).collect()
}

/// What is wanted of a weight.
fn wanted(weight: &Quantized, element: Element, part: Range<usize>) -> Dequantize {
    let Layout { len, block_size, nested } = weight.view().layout();
    Dequantize { len, block_size, nested, element, part }
}

/// One call, of whose parts some are donated, and whose result is the last memory that is.
fn plan(what: Dequantize, donated: &[Part]) -> Plan {
    let is_donated = |input: &usize| donated.iter().any(|part| *part as usize == *input);
    let (parts, result) = (what.inputs(), what.inputs().len());
    let (lent, mut given): (Vec<usize>, Vec<usize>) = (0..result).partition(|input| !is_donated(input));
    given.extend([result]);
    let bytes = |input: &usize| parts.get(*input).map_or(what.output_bytes(), |part| what.input_bytes(*part));
    let view = |input: usize| {
        let place = |memories: &[usize]| memories.iter().position(|one| *one == input);
        let memory =
            place(&lent).map_or_else(|| place(&given).map(Memory::InOut), |at| Some(Memory::Input(at)));
        View { memory: memory.expect("one or the other"), bytes: bytes(&input), offset: 0, strides: vec![1] }
    };
    let (inputs, output) = ((0..result).map(view).collect(), view(result));
    Plan {
        name: "call".into(),
        arena_bytes: 0,
        inputs: lent.iter().map(bytes).collect(),
        donated: given.iter().map(bytes).collect(),
        steps: vec![Step::Call { callee: 0, name: "dequantize".into(), what, inputs, output }],
    }
}

fn prepared<'a>(device: &'a dyn Device, plan: Plan, callee: &'a dyn Callee) -> Box<dyn Executable + 'a> {
    let links = Links { callees: &[callee], ..Links::default() };
    device.prepare(Arc::new(plan), &links).unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes after a result that nobody may write.
const SPARE: usize = 64;

/// What a call leaves in a memory that was full of something else.
fn call(device: &dyn Device, what: Dequantize, inputs: &[Buffer]) -> Vec<u8> {
    let len = what.output_bytes();
    let mut executable = prepared(device, plan(what, &[]), &DEQUANTIZER);
    let (mut arena, mut out) =
        (device.alloc("arena", 0).expect("room"), device.alloc("out", len + SPARE).expect("room"));
    device.upload(&mut out, &vec![0xa5; len + SPARE]).expect("equal lengths");
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    execute(&mut *executable, &mut arena, &inputs, &mut [&mut out]).unwrap_or_else(|error| panic!("{error}"));
    let mut result = bytes(device, &out);
    let spare = result.split_off(len);
    assert!(spare.iter().all(|byte| *byte == 0xa5), "bytes after the result are written");
    result
}

const ELEMENTS: [(Element, OutputDtype); 3] =
    [(Element::F32, OutputDtype::F32), (Element::F16, OutputDtype::F16), (Element::Bf16, OutputDtype::Bf16)];

/// The bytes that the oracle gives.
fn truth(weight: &Quantized, dtype: OutputDtype) -> Vec<u8> {
    let bits = dequantize_bits(&weight.view(), dtype);
    bits.iter().flat_map(|bits| bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

/// That a part, in blocks, has the bytes that the whole has there.
fn agrees(
    device: &dyn Device,
    weight: &Quantized,
    inputs: &[Buffer],
    blocks: Range<usize>,
    (element, whole): (Element, &[u8]),
) {
    let Layout { len, block_size, .. } = weight.view().layout();
    let part = blocks.start * block_size..(blocks.end * block_size).min(len);
    let want = &whole[part.start * element.bytes()..part.end * element.bytes()];
    let got = call(device, wanted(weight, element, part.clone()), inputs);
    let (layout, on) = (weight.view().layout(), device.name());
    assert!(got == want, "{part:?} of {layout:?} in {element:?} on {on}");
}

/// Every pair of blocks of small weights; of large ones those beside which a group of scales begins or ends.
#[test]
fn a_part_of_a_weight_has_the_bytes_that_the_whole_has_there() {
    devices().into_iter().for_each(parts_have_the_bytes_of_the_whole);
}

fn parts_have_the_bytes_of_the_whole(device: &dyn Device) {
    let cases = [
        (1, 64, None),
        (65, 64, Some(256)),
        (64 * 9 + 17, 64, None),
        (64 * 9 + 17, 64, Some(256)),
        (32 * 71 + 7, 32, Some(32)),
        (64 * (256 * 2 + 3) + 5, 64, Some(256)),
        (4096 * 3 + 2049, 4096, Some(32)),
    ];
    for (len, block_size, nested) in cases {
        let weight = weight(len, block_size, nested, len);
        let (inputs, blocks) = (uploaded(device, &weight), len.div_ceil(block_size));
        let group = nested.unwrap_or(blocks);
        let near = |at: usize| [0, 1, group - 1].iter().any(|off| at % group == *off) || at + 1 >= blocks;
        let bounds: Vec<usize> = (0..=blocks).filter(|at| blocks < 20 || near(*at)).collect();
        for (element, dtype) in ELEMENTS {
            let whole = truth(&weight, dtype);
            for (i, start) in bounds.iter().enumerate().filter(|(_, start)| **start < blocks) {
                for end in &bounds[i..] {
                    agrees(device, &weight, &inputs, *start..*end, (element, &whole));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_part_of_any_weight_has_the_bytes_of_the_whole(
        (block, nested) in (5..9_u32, prop::option::of(5..9_u32)),
        (blocks, short) in (1..200_usize, 0..512_usize),
        (a, b, element) in (0..1000_usize, 0..1000_usize, 0..3_usize),
    ) {
        let block_size = 1 << block;
        let len = blocks * block_size - short % block_size;
        let weight = weight(len, block_size, nested.map(|size| 1 << size), a);
        let (element, dtype) = ELEMENTS[element];
        let start = a % blocks;
        let part = start..start + b % (blocks - start + 1);
        let whole = truth(&weight, dtype);
        for device in devices() {
            agrees(device, &weight, &uploaded(device, &weight), part.clone(), (element, &whole));
        }
    }
}

/// The solution, counting what it is asked.
#[derive(Default)]
struct Asked {
    checks: AtomicUsize,
    calls: AtomicUsize,
}

impl Callee for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        Some(self)
    }
}

impl HostCallee for Asked {
    fn check(&self, weight: &OnDevice<'_>) -> Result<(), String> {
        self.checks.fetch_add(1, SeqCst);
        DEQUANTIZER.check(weight)
    }

    fn dequantize(
        &self,
        cpu: &Cpu,
        weight: &OnDevice<'_>,
        to: Element,
        out: &mut [u8],
    ) -> Result<(), String> {
        self.calls.fetch_add(1, SeqCst);
        DEQUANTIZER.dequantize(cpu, weight, to, out)
    }
}

impl Asked {
    /// Checks and calls since it was last asked.
    fn since(&self) -> [usize; 2] {
        [&self.checks, &self.calls].map(|count| count.swap(0, SeqCst))
    }
}

/// A call with its memories.
struct Called<'a> {
    executable: Box<dyn Executable + 'a>,
    arena: Buffer,
    out: Buffer,
}

impl<'a> Called<'a> {
    fn new(what: Dequantize, donated: &[Part], callee: &'a dyn Callee) -> Self {
        let [arena, out] = [0, what.output_bytes()].map(|bytes| CPU.alloc("memory", bytes).expect("room"));
        Self { executable: prepared(&*CPU, plan(what, donated), callee), arena, out }
    }

    fn run(&mut self, inputs: &[Buffer]) -> Result<(), DeviceError> {
        let inputs: Vec<&Buffer> = inputs.iter().collect();
        execute(&mut *self.executable, &mut self.arena, &inputs, &mut [&mut self.out])
    }
}

#[test]
fn scales_are_checked_once_and_again_when_their_bytes_may_be_others() {
    let weight = weight(64 * (256 * 2 + 3) + 5, 64, Some(256), 3);
    let [mut own, others] = [(); 2].map(|()| uploaded(&*CPU, &weight));
    let asked = Asked::default();
    let mut whole = Called::new(wanted(&weight, Element::F16, 0..weight.shape[0]), &[], &asked);
    for checks in [1, 0, 0] {
        whole.run(&own).expect("it is sound");
        assert_eq!(asked.since(), [checks, 1], "of one weight in one place");
    }
    for (inputs, checks) in [(&others, 1), (&others, 0), (&own, 1), (&own, 0)] {
        whole.run(inputs).expect("it is sound");
        assert_eq!(asked.since(), [checks, 1], "the same bytes in another place are new ones");
    }
    let scales = own[Part::NestedAbsmax as usize].view::<f32>().to_vec();
    own[Part::NestedAbsmax as usize].view_mut::<f32>()[2] = f32::NAN;
    for _ in 0..2 {
        let error = whole.run(&own).expect_err("a scale is no number").to_string();
        assert!(error.contains("nested_absmax[2]: expected a finite number, found NaN"), "{error}");
        assert_eq!(asked.since(), [1, 0], "what was refused is not known to be sound");
    }
    own[Part::NestedAbsmax as usize].view_mut::<f32>().copy_from_slice(&scales);
    for checks in [1, 0] {
        whole.run(&own).expect("it is sound again");
        assert_eq!(asked.since(), [checks, 1]);
    }
    let mut part = Called::new(wanted(&weight, Element::F16, 64 * 255..64 * 300), &[], &asked);
    for checks in [2, 0, 0] {
        part.run(&own).expect("it is sound");
        assert_eq!(asked.since(), [checks, 2], "a part that begins within a group is two weights");
    }
}

/// What a run may write, it may have written.
#[test]
fn scales_in_memory_that_a_run_may_write_are_checked_each_time() {
    let weight = weight(64 * 9, 64, None, 5);
    let asked = Asked::default();
    let what = wanted(&weight, Element::F32, 0..weight.shape[0]);
    let mut called = Called::new(what, &[Part::Absmax], &asked);
    let mut inputs = uploaded(&*CPU, &weight);
    let mut scales = inputs.remove(Part::Absmax as usize);
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    for _ in 0..3 {
        let donated: &mut [&mut Buffer] = &mut [&mut scales, &mut called.out];
        execute(&mut *called.executable, &mut called.arena, &inputs, donated).expect("it is sound");
        assert_eq!(asked.since(), [1, 1]);
    }
}

#[test]
fn a_session_checks_the_weights_that_it_keeps_once() {
    let llama = SmallLlama::sound().quantized(64, true).open().expect("it is sound");
    let asked = Asked::default();
    let mut session = Session::new(&Solution, &*CPU, &asked, Settings::default());
    for (name, tensor) in challenges::weights::load(&*CPU, &llama).expect("there is room") {
        session.keep(&name, tensor);
    }
    let program = session.load(&llama.spec().forward().expect("a graph")).expect("it can be padded");
    let mut values = rope::values(&llama.config, 6);
    values.insert("ids".into(), Array::integers(&[1, 6], vec![1, 5, 2, 16, 0, 3]));
    let inputs = upload(&*CPU, &values);
    let mut run = || {
        session.run(program, &inputs).unwrap_or_else(|error| panic!("{error}"));
        asked.since()
    };
    let [checks, calls] = run();
    assert_eq!(checks, calls, "each weight is new once");
    assert_eq!(calls, 2 * 7 + 1, "projections of two layers, and the output layer");
    assert_eq!([run(), run()], [[0, calls]; 2]);
}
