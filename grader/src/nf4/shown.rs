//! An attempt whose calls are shown.

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use kernels::Cpu;

use crate::calls::{call, few};

/// Tells each call before it is made.
pub(super) struct Shown<'a>(pub &'a dyn Nf4);

impl Nf4 for Shown<'_> {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        call(|| format!("unpack: packed {}, codes of {} elements", few(packed), codes.len()));
        self.0.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        call(|| format!("look_up: codes {}\ntable {table:?}", few(codes)));
        self.0.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        call(|| {
            let (packed, len) = (few(packed), values.len());
            format!("block: packed {packed}, absmax {absmax:?}, values of {len} elements\ntable {table:?}")
        });
        self.0.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        call(|| format!("absmax: block {block} of {}", scales(absmax)));
        self.0.absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        call(|| format!("dequantize: {}, {}", self::weight(weight), self::out(&out)));
        self.0.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        call(|| format!("dequantize_fast: {}, {}, {}", self::weight(weight), self::out(&out), unit(cpu)));
        self.0.dequantize_fast(cpu, weight, out);
    }
}

fn weight(weight: &Weight<'_>) -> String {
    let Weight { len, block_size, packed, table, absmax } = weight;
    format!(
        "{len} elements in blocks of {block_size}\npacked {}\nscales {}\ntable {table:?}",
        few(packed),
        scales(absmax)
    )
}

fn scales(absmax: &Absmax<'_>) -> String {
    match absmax {
        Absmax::Single(scales) => few(scales),
        Absmax::Double { codes, table, scales, block_size, offset } => format!(
            "codes {}\n  second level: table {}, scales {} of {block_size} codes each, offset {offset:?}",
            few(codes),
            few(&table[..]),
            few(scales)
        ),
    }
}

fn out(out: &Output<'_>) -> String {
    let (dtype, len) = match out {
        Output::F16(out) => ("f16", out.len()),
        Output::Bf16(out) => ("bf16", out.len()),
        Output::F32(out) => ("f32", out.len()),
    };
    format!("into {len} elements of {dtype}")
}

fn unit(cpu: &Cpu) -> String {
    format!("{} threads, {}", cpu.threads(), cpu.vector())
}
