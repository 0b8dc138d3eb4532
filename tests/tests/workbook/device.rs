//! The device's seam: tile programs are right to the bit, counted, and refused when they do not fit.

use challenges::nf4::tile::{fused, run, run_in_three, upload};
use challenges::nf4::{Absmax, Weight};
use kernels::tile::{Binary, Element, Index, Op, Program};
use kernels::{Buffer, Cpu, Device, DeviceError, cpu};
use reference::nf4::{CODE2, NF4, OutputDtype, dequantize_bits};
use tests::one_graph::{bytes, devices};
use tests::plans::flat;

/// A double-quantised weight of `len` elements.
pub(crate) fn with_weight(len: usize, block_size: usize, test: impl FnOnce(&Weight<'_>)) {
    let blocks = len.div_ceil(block_size);
    let packed: Vec<u8> = (0..len.div_ceil(2)).map(|i| (i * 167 + i / 251) as u8).collect();
    let codes: Vec<u8> = (0..blocks).map(|b| (b * 91 + 3) as u8).collect();
    let scales: Vec<f32> = (0..blocks.div_ceil(256)).map(|s| 0.01 + s as f32 * 0.003).collect();
    let absmax =
        Absmax::Double { codes: &codes, table: &CODE2, scales: &scales, block_size: 256, offset: 0.037 };
    test(&Weight { len, block_size, packed: &packed, table: &NF4, absmax });
}

fn bits(buffer: &Buffer, dtype: OutputDtype) -> Vec<u32> {
    match dtype {
        OutputDtype::F32 => buffer.view::<u32>().to_vec(),
        _ => buffer.view::<u16>().iter().map(|bits| u32::from(*bits)).collect(),
    }
}

#[test]
fn a_tile_program_equals_the_oracle_fused_and_in_three() {
    for (len, block_size) in [(1, 64), (63, 64), (255, 32), (64 * 300 + 17, 64), (4096 * 17 + 1, 4096)] {
        with_weight(len, block_size, |weight| {
            for dtype in [OutputDtype::F16, OutputDtype::Bf16, OutputDtype::F32] {
                let want = dequantize_bits(weight, dtype);
                for device in [Cpu::with_threads(1), Cpu::with_threads(3)] {
                    let uploaded = upload(&device, weight).expect("a well-formed weight");
                    let mut out = device.alloc("out", len * dtype.bytes()).unwrap();
                    run(&device, &uploaded, dtype, len, &mut out).expect("fits");
                    assert_eq!(bits(&out, dtype), want, "fused, {len}, {dtype:?}");
                    let mut out = device.alloc("out", len * dtype.bytes()).unwrap();
                    run_in_three(&device, &uploaded, dtype, len, &mut out).expect("fits");
                    assert_eq!(bits(&out, dtype), want, "in three, {len}, {dtype:?}");
                }
            }
        });
    }
}

#[test]
fn launches_and_bytes_are_counted() {
    let len = 64 * 1024;
    with_weight(len, 64, |weight| {
        let device = Cpu::with_threads(2);
        let uploaded = upload(&device, weight).expect("a well-formed weight");
        let mut out = device.alloc("out", len * 2).unwrap();
        let before = device.counts();
        run(&device, &uploaded, OutputDtype::Bf16, len, &mut out).expect("fits");
        let once = device.counts();
        assert_eq!(once.launches - before.launches, 1);
        assert_eq!(once.written_bytes - before.written_bytes, len as u64 * 2);
        let read = len / 2 + 16 * 4 + len / 64 + 256 * 4 + len / 64 / 256 * 4 + 4;
        assert_eq!(once.read_bytes - before.read_bytes, read as u64);
        run_in_three(&device, &uploaded, OutputDtype::Bf16, len, &mut out).expect("fits");
        let three = device.counts();
        assert_eq!(three.launches - once.launches, 3);
        assert_eq!(three.allocated_bytes - once.allocated_bytes, 2 * len as u64 / 64 * 4);
    });
}

#[test]
fn a_program_prints_as_text() {
    with_weight(64, 64, |weight| {
        let device = Cpu::with_threads(1);
        let program = fused(&upload(&device, weight).expect("a well-formed weight"), OutputDtype::Bf16);
        let text = "program nf4\n  %0 = nibble in0[lane]\n  %1 = table in1[%0] (16)\n  %2 = load u8 in2[lane / 64]\n  \
                    %3 = table in3[%2] (256)\n  %4 = load f32 in4[lane / 16384]\n  %5 = mul %3 %4\n  \
                    %6 = load f32 in5[0]\n  %7 = add %5 %6\n  %8 = mul %1 %7\n  store bf16 out[lane] %8\n";
        assert_eq!(program.to_string(), text);
    });
}

fn program(ops: Vec<Op>, result: usize) -> Program {
    Program::flat("trial", ops, result, Element::F32)
}

#[test]
fn what_does_not_fit_is_refused_before_it_runs() {
    let device = Cpu::with_threads(1);
    let short = device.alloc("short", 12).unwrap();
    let mut out = device.alloc("out", 64).unwrap();
    let load = Op::Load { input: 0, element: Element::F32, index: Index::Lane };
    let describe = |program: Program, inputs: &[&Buffer], out: &mut Buffer| {
        flat(&device, program, 16, inputs, out).expect_err("must be refused").to_string()
    };
    assert_eq!(
        describe(program(vec![load], 0), &[&short], &mut out),
        "step 0 of plan trial, trial, needs memory for every lane"
    );
    assert_eq!(
        describe(program(vec![load], 0), &[], &mut out),
        "step 0 of plan trial, trial, needs a view for every input and output"
    );
    let ahead = vec![Op::Binary(Binary::Add, 0, 1), load];
    assert_eq!(
        describe(program(ahead, 0), &[&short], &mut out),
        "operation 0 of program trial needs earlier values"
    );
    let code = vec![Op::Nibble { input: 0 }];
    assert!(
        describe(program(code, 0), &[&short], &mut out)
            .contains("needs to be a value of the type that it is stored as")
    );
    let mut tiny = device.alloc("tiny", 4).unwrap();
    assert!(describe(program(vec![load], 0), &[&out], &mut tiny).contains("memory for every lane"));
    assert_eq!(device.counts().launches, 0);
}

#[test]
fn a_copy_of_another_length_is_refused() {
    let device = Cpu::with_threads(1);
    let mut buffer = device.alloc("ten", 10).unwrap();
    let refused = device.upload(&mut buffer, &[0; 11]).expect_err("too long");
    assert_eq!(refused, DeviceError::Length { tag: "ten", buffer: 10, host: 11 });
    assert!(device.download(&buffer, &mut [0; 9]).is_err());
    device.upload(&mut buffer, &[7; 10]).expect("equal lengths");
    let mut back = [0; 10];
    device.download(&buffer, &mut back).expect("equal lengths");
    assert_eq!(back, [7; 10]);
}

#[test]
fn a_copy_within_a_device_moves_the_bytes_that_there_are() {
    for device in devices() {
        let mut from = device.alloc("from", 8).expect("room");
        let mut to = device.alloc("to", 6).expect("room");
        device.upload(&mut from, &[1, 2, 3, 4, 5, 6, 7, 8]).expect("the lengths are equal");
        device.copy_at(&mut to, 1, &from, 3, 4).expect("both have them");
        assert_eq!(bytes(device, &to), [0, 4, 5, 6, 7, 0], "{}", device.name());
        for (first, at, len) in [(3, 0, 4), (0, 5, 4), (usize::MAX, 0, 1), (0, 1, usize::MAX)] {
            let refused = device.copy_at(&mut to, first, &from, at, len);
            assert!(matches!(refused, Err(DeviceError::Range { .. })), "{first} {at} {len}: {refused:?}");
        }
    }
}

#[test]
fn streaming_fills_any_slice_and_reads_any_source() {
    for device in [Cpu::with_threads(1), Cpu::with_threads(3)] {
        for (read, write, skip) in
            [(0, 0, 0), (0, 1, 0), (64, 31, 1), (1000, 100_000, 3), (300_000, 70_001, 5)]
        {
            let source = vec![3u8; read];
            let mut out = vec![0x5555u16; write + skip];
            cpu::stream(&device, &source, &mut out[skip..]);
            assert!(out[..skip].iter().all(|word| *word == 0x5555), "nothing before the slice is touched");
        }
    }
}
