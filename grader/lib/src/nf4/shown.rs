//! An attempt whose calls are watched: what a step is called with is shown where a replay asks for it, and an oracle
//! that is called meanwhile is noted.

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use kernels::Cpu;

use crate::calls::{call, few};
use crate::oracles;

/// Passes each call on.
pub(super) struct Watched<'a>(pub &'a dyn Nf4);

impl Watched<'_> {
    fn of<T>(&self, step: &str, message: impl Fn() -> String, run: impl FnOnce(&dyn Nf4) -> T) -> T {
        call(&message);
        oracles::during(step, &message, || run(self.0))
    }
}

impl Nf4 for Watched<'_> {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        let len = codes.len();
        let message = || format!("unpack: packed {}, codes of {len} elements", few(packed));
        self.of("A.1", message, |step| step.unpack(packed, codes));
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        let message = || format!("look_up: codes {}\ntable {table:?}", few(codes));
        self.of("A.2", message, |step| step.look_up(codes, table, values));
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        let len = values.len();
        let message = || {
            let packed = few(packed);
            format!("block: packed {packed}, absmax {absmax:?}, values of {len} elements\ntable {table:?}")
        };
        self.of("A.3", message, |step| step.block(packed, table, absmax, values));
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        let message = || format!("absmax: block {block} of {}", scales(absmax));
        self.of("A.4", message, |step| step.absmax(absmax, block))
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        let into = into(&out);
        let message = || format!("dequantize: {}, {}", self::weight(weight), sized(into));
        self.of("A.5", message, |step| step.dequantize(cpu, weight, out));
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        let into = into(&out);
        let message = || format!("dequantize_fast: {}, {}, {}", self::weight(weight), sized(into), unit(cpu));
        self.of("A.6", message, |step| step.dequantize_fast(cpu, weight, out));
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

fn into(out: &Output<'_>) -> (&'static str, usize) {
    match out {
        Output::F16(out) => ("f16", out.len()),
        Output::Bf16(out) => ("bf16", out.len()),
        Output::F32(out) => ("f32", out.len()),
    }
}

fn sized((dtype, len): (&str, usize)) -> String {
    format!("into {len} elements of {dtype}")
}

fn unit(cpu: &Cpu) -> String {
    format!("{} threads, {}", cpu.threads(), cpu.vector())
}
