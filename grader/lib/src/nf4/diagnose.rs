//! A wrong answer, read like a good compiler error: where, got, want, how far, the rule, the likely cause.
//!
//! The cause is not guessed from the numbers' look. Each known mistake is a small program: the format with
//! that one mistake in it. The mistake whose output equals the attempt's, bit for bit, is the cause.

use std::fmt::Write;

use half::f16;
use reference::nf4::{Absmax, CODE2, NF4, OutputDtype, Weight, block_absmax};

/// What an attempt left behind.
pub(super) struct Found<'a> {
    /// Bit patterns of the output.
    pub got: &'a [u32],
    /// What the format says, asked before the attempt ran.
    pub want: &'a [u32],
    /// The pattern of an element that nobody wrote.
    pub poison: u32,
    /// The first element outside the output that was written, relative to the output.
    pub touched: Option<isize>,
}

/// A known mistake, as the format with the mistake in it.
struct Mistake {
    cause: &'static str,
    scale: fn(&Absmax<'_>, usize) -> f32,
    code: fn(&[u8], usize) -> u8,
    block: fn(usize, usize) -> usize,
    round: fn(OutputDtype, f32) -> u32,
    built_in_table: bool,
}

const RIGHT: Mistake = Mistake {
    cause: "",
    scale: right_scale,
    code: right_code,
    block: |e, size| e / size,
    round: OutputDtype::round,
    built_in_table: false,
};

/// Every mistake that can be told apart by its bits.
const MISTAKES: [Mistake; 22] = [
    Mistake {
        cause: "the built-in table instead of the weight's own: a checkpoint may carry another",
        built_in_table: true,
        ..RIGHT
    },
    Mistake {
        cause: "the built-in 8-bit table instead of the weight's own: a checkpoint may carry another",
        scale: |absmax, b| match absmax {
            Absmax::Single(scales) => scales[b],
            Absmax::Double { codes, scales, block_size, offset, .. } => {
                let scaled = CODE2[codes[b] as usize] * scales[b / block_size];
                scaled + offset
            }
        },
        ..RIGHT
    },
    Mistake {
        cause: "second-level blocks of 256 where this weight has others: the weight tells its own (`block_size`, `nested_shift`)",
        scale: |absmax, b| match absmax {
            Absmax::Single(scales) => scales[b],
            Absmax::Double { codes, table, scales, offset, .. } => {
                let scaled = table[codes[b] as usize] * scales[b / 256];
                scaled + offset
            }
        },
        ..RIGHT
    },
    Mistake {
        cause: "swapped nibbles: the even element is the HIGH half of its byte",
        code: |packed, e| if e % 2 == 0 { packed[e / 2] & 15 } else { packed[e / 2] >> 4 },
        ..RIGHT
    },
    Mistake {
        cause: "block off by one: each block is scaled with the next block's scale",
        block: |e, size| e / size + 1,
        ..RIGHT
    },
    Mistake {
        cause: "block off by one: each block is scaled with the block before's scale",
        block: |e, size| (e / size).saturating_sub(1),
        ..RIGHT
    },
    Mistake {
        cause: "block of half the size: a block of 64 elements is 32 bytes, not 32 elements",
        block: |e, size| e / (size / 2),
        ..RIGHT
    },
    Mistake {
        cause: "block of twice the size: packed bytes were counted as elements",
        block: |e, size| e / (size * 2),
        ..RIGHT
    },
    Mistake {
        cause: "second-level scale forgotten: the table value of the 8-bit code is not the scale yet",
        scale: |absmax, b| parts(absmax, b, |code, _, offset| code + offset),
        ..RIGHT
    },
    Mistake {
        cause: "second level forgotten altogether: neither its scale nor the offset is applied",
        scale: |absmax, b| parts(absmax, b, |code, _, _| code),
        ..RIGHT
    },
    Mistake {
        cause: "offset forgotten: the scales were quantised after their mean was taken off",
        scale: |absmax, b| parts(absmax, b, |code, scale, _| code * scale),
        ..RIGHT
    },
    Mistake {
        cause: "offset scaled too: it is added after the multiplication",
        scale: |absmax, b| parts(absmax, b, |code, scale, offset| (code + offset) * scale),
        ..RIGHT
    },
    Mistake {
        cause: "second-level block off by one: code b belongs to scale b / block_size",
        scale: next_second_level,
        ..RIGHT
    },
    Mistake {
        cause: "fused multiply-add: the product is rounded to f32 before the offset is added",
        scale: |absmax, b| parts(absmax, b, f32::mul_add),
        ..RIGHT
    },
    Mistake {
        cause: "scale rounded to f16: it stays f32 until the product is rounded",
        scale: |absmax, b| f16::from_f32(right_scale(absmax, b)).to_f32(),
        ..RIGHT
    },
    Mistake {
        cause: "scale rounded to bf16: it stays f32 until the product is rounded",
        scale: |absmax, b| half::bf16::from_f32(right_scale(absmax, b)).to_f32(),
        ..RIGHT
    },
    Mistake {
        cause: "f16 overflow: values from 65520 on become infinity, not the largest number",
        round: |dtype, w| match dtype {
            OutputDtype::F16 => dtype.round(w.clamp(-65504.0, 65504.0)),
            _ => dtype.round(w),
        },
        ..RIGHT
    },
    Mistake {
        cause: "subnormals flushed to zero: the format keeps them",
        round: |dtype, w| {
            let smallest = if dtype == OutputDtype::F16 { 6.103_515_6e-5 } else { f32::MIN_POSITIVE };
            dtype.round(if w.abs() < smallest { 0.0 * w } else { w })
        },
        ..RIGHT
    },
    Mistake { cause: "cut instead of rounded: to nearest, ties to even", round: cut, ..RIGHT },
    Mistake {
        cause: "rounded half up instead of half to even",
        round: |dtype, w| match dtype {
            OutputDtype::Bf16 => w.to_bits().wrapping_add(0x8000) >> 16,
            _ => dtype.round(w),
        },
        ..RIGHT
    },
    Mistake {
        cause: "the wrong 16-bit type: bf16 bits where f16 is asked, or the reverse",
        round: |dtype, w| match dtype {
            OutputDtype::F16 => OutputDtype::Bf16.round(w),
            OutputDtype::Bf16 => OutputDtype::F16.round(w),
            OutputDtype::F32 => w.to_bits(),
        },
        ..RIGHT
    },
    Mistake {
        cause: "rounded twice: through f16 (or bf16) before the output's own type",
        round: |dtype, w| match dtype {
            OutputDtype::Bf16 => dtype.round(f16::from_f32(w).to_f32()),
            OutputDtype::F16 => dtype.round(half::bf16::from_f32(w).to_f32()),
            OutputDtype::F32 => f16::from_f32(w).to_f32().to_bits(),
        },
        ..RIGHT
    },
];

fn right_scale(absmax: &Absmax<'_>, block: usize) -> f32 {
    block_absmax(absmax, block)
}

fn right_code(packed: &[u8], e: usize) -> u8 {
    if e % 2 == 0 { packed[e / 2] >> 4 } else { packed[e / 2] & 15 }
}

/// Puts a double-quantised scale together in another way.
fn parts(absmax: &Absmax<'_>, block: usize, join: fn(f32, f32, f32) -> f32) -> f32 {
    match absmax {
        Absmax::Single(scales) => scales[block],
        Absmax::Double { codes, table, scales, block_size, offset } => {
            join(table[codes[block] as usize], scales[block / block_size], *offset)
        }
    }
}

fn next_second_level(absmax: &Absmax<'_>, block: usize) -> f32 {
    match absmax {
        Absmax::Single(scales) => scales[block],
        Absmax::Double { codes, table, scales, block_size, offset } => {
            let scaled =
                table[codes[block] as usize] * scales[(block / block_size + 1).min(scales.len() - 1)];
            scaled + offset
        }
    }
}

/// Towards zero.
fn cut(dtype: OutputDtype, w: f32) -> u32 {
    let rounded = dtype.round(w);
    if dtype.value(rounded).abs() > w.abs() { rounded - 1 } else { rounded }
}

impl Mistake {
    /// What the whole weight comes to with this mistake; `None` where the mistake would leave the buffers.
    fn output(&self, weight: &Weight<'_>, dtype: OutputDtype) -> Vec<Option<u32>> {
        let blocks = weight.len.div_ceil(weight.block_size);
        let element = |e: usize| {
            let block = (self.block)(e, weight.block_size);
            (block < blocks).then(|| {
                let table = if self.built_in_table { &NF4 } else { weight.table };
                let value = table[(self.code)(weight.packed, e) as usize];
                (self.round)(dtype, value * (self.scale)(&weight.absmax, block))
            })
        };
        (0..weight.len).map(element).collect()
    }
}

/// Whether two bit patterns are the same number; any NaN equals any NaN.
fn same(dtype: OutputDtype, a: u32, b: u32) -> bool {
    a == b || (dtype.value(a).is_nan() && dtype.value(b).is_nan())
}

/// Judges a whole weight.
pub(super) fn weight(weight: &Weight<'_>, dtype: OutputDtype, found: &Found<'_>) -> Result<(), String> {
    let want = found.want;
    if let Some(touched) = found.touched {
        return Err(outside(weight.len, touched));
    }
    let wrong: Vec<usize> = (0..want.len()).filter(|e| !same(dtype, found.got[*e], want[*e])).collect();
    let Some(first) = wrong.first().copied() else { return Ok(()) };
    let mut text = String::new();
    let _ = writeln!(text, "{} of {} elements differ; the first is element {first}", wrong.len(), want.len());
    let _ = writeln!(text, "  {}", place(weight, first));
    let _ = writeln!(text, "  got  {}", show(dtype, found.got[first]));
    let _ = writeln!(text, "  want {}", show(dtype, want[first]));
    let _ = writeln!(text, "  off  {}", distance(dtype, found.got[first], want[first]));
    let _ = writeln!(
        text,
        "  rule w = f32(table[code] * absmax), then rounded once to {}",
        super::dtype_name(dtype)
    );
    let _ = write!(text, "  likely cause: {}", cause(weight, dtype, found, &wrong));
    Err(text)
}

fn outside(len: usize, touched: isize) -> String {
    let place = if touched < 0 {
        format!("{} before the first", -touched)
    } else {
        format!("{} past the last", touched + 1 - len as isize)
    };
    format!(
        "the step wrote outside its output of {len} elements: the element {place} was changed\n  \
         rule an output is written from its first element to its last, and nowhere else\n  \
         likely cause: tail not masked: the last block may be short"
    )
}

/// Where an element lies in the format.
fn place(weight: &Weight<'_>, e: usize) -> String {
    format!(
        "block {} ({} elements a block), its element {}; {} nibble of byte {} (0x{:02x})",
        e / weight.block_size,
        weight.block_size,
        e % weight.block_size,
        if e % 2 == 0 { "high" } else { "low" },
        e / 2,
        weight.packed[e / 2],
    )
}

fn show(dtype: OutputDtype, bits: u32) -> String {
    let digits = dtype.bytes() * 2;
    format!("{:<14e} (0x{bits:0digits$x})", dtype.value(bits))
}

/// How far apart two numbers are, in units in the last place.
fn distance(dtype: OutputDtype, got: u32, want: u32) -> String {
    if dtype.value(got).is_nan() {
        return "not a number".into();
    }
    let sign = 1i64 << (dtype.bytes() * 8 - 1);
    let order = |bits: u32| {
        let bits = i64::from(bits);
        if bits & sign != 0 { sign - bits } else { bits }
    };
    match (order(got) - order(want)).abs() {
        0 => "0 ulp (the sign of zero)".into(),
        n => format!("{n} ulp"),
    }
}

/// The mistake whose output is the attempt's.
fn cause(weight: &Weight<'_>, dtype: OutputDtype, found: &Found<'_>, wrong: &[usize]) -> String {
    let (got, want) = (found.got, found.want);
    let unwritten = wrong.iter().filter(|e| got[**e] == found.poison).count();
    if unwritten == wrong.len() {
        return unwritten_cause(weight, wrong);
    }
    if got.iter().all(|bits| dtype.value(*bits).is_nan()) {
        return "every output is NaN".into();
    }
    if got.len() > 16 && got.iter().all(|bits| *bits == got[0]) {
        return format!("every output is the same constant, {}", dtype.value(got[0]));
    }
    for mistake in &MISTAKES {
        let output = mistake.output(weight, dtype);
        let shown = (0..want.len()).any(|e| output[e].is_some_and(|bits| !same(dtype, bits, want[e])));
        let equal = (0..want.len()).all(|e| output[e].is_none_or(|bits| same(dtype, bits, got[e])));
        if shown && equal {
            return mistake.cause.into();
        }
    }
    if want.len() < FEW {
        return format!("too few elements to tell ({}): a larger case may", want.len());
    }
    unknown(weight, dtype, got, want, wrong)
}

/// Below so many elements a pattern in what is wrong is chance.
const FEW: usize = 8;

fn unwritten_cause(weight: &Weight<'_>, wrong: &[usize]) -> String {
    let last_block = (weight.len - 1) / weight.block_size * weight.block_size;
    match wrong.len() {
        n if n == weight.len => "nothing was written".into(),
        1 if wrong[0] == weight.len - 1 => {
            "tail dropped: the last element of an odd length was not written".into()
        }
        n if wrong[0] >= last_block => {
            format!("tail dropped: {n} elements of the last, short block were not written")
        }
        n if wrong.windows(2).all(|pair| pair[1] == pair[0] + 1) && wrong[n - 1] == weight.len - 1 => {
            format!("tail dropped: the last {n} elements were not written")
        }
        n => format!("{n} elements were not written"),
    }
}

/// What can be said where no known mistake fits.
fn unknown(weight: &Weight<'_>, dtype: OutputDtype, got: &[u32], want: &[u32], wrong: &[usize]) -> String {
    let near = wrong.iter().all(|e| {
        let (got, want) = (dtype.value(got[*e]), dtype.value(want[*e]));
        (got - want).abs() <= want.abs() * 0.01
    });
    if near {
        return "lower precision: every value is close, and some step rounds too early or too coarsely"
            .into();
    }
    if let Some(message) = another_scale(weight, dtype, got, wrong[0]) {
        return message;
    }
    if reordered(got, want, wrong[0]) {
        return "the right values in the wrong places within 32: instructions that unpack or shuffle on the CPU work \
                within each 128-bit half; in a word on a GPU the first element is nibble 1, the second nibble 0"
            .into();
    }
    let last_block = (weight.len - 1) / weight.block_size * weight.block_size;
    if wrong[0] >= last_block && last_block > 0 && weight.len % weight.block_size != 0 {
        return "tail: only the last, short block is wrong".into();
    }
    if wrong.iter().all(|e| e % 2 == 1) {
        return "only odd elements are wrong: look at the low nibble".into();
    }
    if wrong.iter().all(|e| e % 2 == 0) {
        return "only even elements are wrong: look at the high nibble".into();
    }
    format!("none of the known ones; the neighbourhood:{}", neighbourhood(weight, dtype, got, want, wrong[0]))
}

/// Whether the block around a wrong element is right but for its scale, which is another block's.
fn another_scale(weight: &Weight<'_>, dtype: OutputDtype, got: &[u32], e: usize) -> Option<String> {
    let block = e / weight.block_size;
    let elements = block * weight.block_size..((block + 1) * weight.block_size).min(weight.len);
    let with =
        |scale: f32, e: usize| dtype.round(weight.table[right_code(weight.packed, e) as usize] * scale);
    let fits = |other: &usize| {
        let scale = right_scale(&weight.absmax, *other);
        *other != block && elements.clone().all(|e| same(dtype, with(scale, e), got[e]))
    };
    let other = (0..weight.len.div_ceil(weight.block_size)).find(fits)?;
    Some(format!(
        "block {block} is scaled with the scale of block {other}: a block's number counts from the weight's first \
         element, (first + offset) / block_size"
    ))
}

/// Whether the 32 values around a wrong element are the right ones in another order.
fn reordered(got: &[u32], want: &[u32], e: usize) -> bool {
    let group = e / 32 * 32..(e / 32 * 32 + 32).min(want.len());
    let sorted = |bits: &[u32]| {
        let mut bits = bits[group.clone()].to_vec();
        bits.sort_unstable();
        bits
    };
    sorted(got) == sorted(want)
}

/// A few elements around the first wrong one.
fn neighbourhood(weight: &Weight<'_>, dtype: OutputDtype, got: &[u32], want: &[u32], first: usize) -> String {
    let around = first.saturating_sub(2)..(first + 6).min(want.len());
    let line = |e: usize| {
        let mark = if same(dtype, got[e], want[e]) { ' ' } else { '!' };
        let (code, scale) =
            (right_code(weight.packed, e), right_scale(&weight.absmax, e / weight.block_size));
        let (got, want) = (dtype.value(got[e]), dtype.value(want[e]));
        format!("\n  {mark} {e:>7}  code {code:>2}  scale {scale:<12e} got {got:<14e} want {want:e}")
    };
    around.map(line).collect()
}

/// Judges unpacked codes.
pub(super) fn codes(packed: &[u8], got: &[u8], want: &[u8]) -> Result<(), String> {
    let Some(first) = (0..want.len()).find(|e| got[*e] != want[*e]) else { return Ok(()) };
    let wrong = (0..want.len()).filter(|e| got[*e] != want[*e]).count();
    let swapped =
        (0..want.len()).all(|e| got[e] == if e % 2 == 0 { packed[e / 2] & 15 } else { packed[e / 2] >> 4 });
    let unwritten = (0..want.len()).all(|e| got[e] == want[e] || got[e] == 0xee);
    let cause = if swapped {
        "swapped nibbles: the even element is the HIGH half of its byte"
    } else if unwritten && first + 1 == want.len() {
        "tail dropped: an odd length ends on a high nibble"
    } else if unwritten {
        "codes that were never written"
    } else if got.iter().any(|code| *code > 15) {
        "a code above 15: the other nibble was not masked or shifted away"
    } else {
        "none of the known ones"
    };
    Err(format!(
        "{wrong} of {} codes differ; the first is code {first}, from byte {} (0x{:02x})\n  got  {}\n  want {}\n  \
         rule code e is the high nibble of byte e / 2 for even e, the low one for odd\n  likely cause: {cause}",
        want.len(),
        first / 2,
        packed[first / 2],
        got[first],
        want[first],
    ))
}

/// Judges plain f32 values.
pub(super) fn values(rule: &str, got: &[f32], want: &[f32]) -> Result<(), String> {
    let differs = |e: &usize| got[*e].to_bits() != want[*e].to_bits();
    let Some(first) = (0..want.len()).find(differs) else { return Ok(()) };
    Err(format!(
        "{} of {} values differ; the first is value {first}\n  got  {}\n  want {}\n  off  {}\n  rule value = {rule}",
        (0..want.len()).filter(differs).count(),
        want.len(),
        show(OutputDtype::F32, got[first].to_bits()),
        show(OutputDtype::F32, want[first].to_bits()),
        distance(OutputDtype::F32, got[first].to_bits(), want[first].to_bits()),
    ))
}

/// Judges the scales of all blocks.
pub(super) fn scales(absmax: &Absmax<'_>, got: &[f32]) -> Result<(), String> {
    let want: Vec<f32> = (0..got.len()).map(|b| block_absmax(absmax, b)).collect();
    let Err(text) = values("f32(f32(table[code] * scale) + offset), two roundings", got, &want) else {
        return Ok(());
    };
    let fits = |mistake: &&Mistake| {
        let scale = |b: usize| (mistake.scale)(absmax, b).to_bits();
        (0..got.len()).all(|b| got[b].to_bits() == scale(b))
            && (0..got.len()).any(|b| want[b].to_bits() != scale(b))
    };
    let cause = MISTAKES.iter().find(fits).map_or("none of the known ones", |mistake| mistake.cause);
    Err(format!("{text}\n  likely cause: {cause}"))
}
