//! The staircase on a card: the same weight by every version that led to the solution, and by those that did
//! not help. They carry no points.
//!
//! Each version is a kernel `vNN_...` of `staircase.cu`, checked bit for bit before it is timed, and timed in
//! the rotation of the graded cases at two sizes. The three-launch baseline, the attempt's own steps and the
//! device copy stand on the same staircase.

use challenges::nf4::cuda::{Attempt, Build, Kernel, OnCard, STAIRCASE, source};
use challenges::nf4::{Bench, OutputDtype};
use reference::nf4::dequantize_bits;

use super::bench::Rotation;
use super::output::Output;
use super::session::{Session, Via};
use super::trouble::{Tried, Trouble};
use crate::gather::Child;
use crate::nf4::bench::total_bytes;
use crate::nf4::inputs::{Scale, weight};
use crate::scorecard::Measurement;
use crate::timing::median;

/// Rounds of a version at a size, after one that is not counted.
const ROUNDS: usize = 9;

/// The two sizes, and what their measurements are called.
pub(super) const SIZES: [(&str, Bench); 2] = [
    ("version", Bench { rows: 4096, columns: 14336, dtype: OutputDtype::Bf16, seed: 3408, published: true }),
    (
        "small_version",
        Bench { rows: 2048, columns: 8192, dtype: OutputDtype::F16, seed: 3407, published: true },
    ),
];

/// Everything on the staircase, in order: `00-three-launches`, `01-naive`, ..., `99-device-copy`.
pub(super) fn names() -> Vec<String> {
    let versions = kernels_of(STAIRCASE).into_iter().map(|kernel| label(&kernel));
    let own = ["90-A.9", "91-A.10", "92-A.12"].map(String::from);
    ["00-three-launches".to_owned()]
        .into_iter()
        .chain(versions)
        .chain(own)
        .chain(["99-device-copy".into()])
        .collect()
}

/// The kernels of a text whose names are those of versions (`v03_...`), in their order.
fn kernels_of(text: &str) -> Vec<String> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let is_version = |word: &&str| {
        let mut letters = word.chars();
        let begins = letters.next() == Some('v') && letters.next().is_some_and(|c| c.is_ascii_digit());
        begins && word.as_bytes().get(3) == Some(&b'_') && !word.ends_with("_choices")
    };
    let mut kernels: Vec<String> = words.filter(is_version).map(str::to_owned).collect();
    kernels.sort();
    kernels.dedup();
    kernels
}

/// `v03_wide_stores` as measurements are named: `03-wide-stores`.
fn label(kernel: &str) -> String {
    kernel[1..].replace('_', "-")
}

/// Times one version at both sizes.
pub(super) fn run(child: &mut Child, session: &Session, name: &str) {
    for (family, bench) in SIZES {
        let measured = format!("nf4.{family}.{name}");
        match time(session, &bench, name, child.request.effort.seed) {
            Ok(samples) => {
                let rate = total_bytes(bench.rows * bench.columns) / median(&samples) / 1e3;
                let plain = |value, unit: &str, samples| Measurement {
                    value,
                    unit: unit.into(),
                    interval: None,
                    samples,
                };
                child.measured(&measured, plain(median(&samples), "us", samples));
                child.measured(&format!("nf4.{family}_rate.{name}"), plain(rate, "GB/s", vec![]));
            }
            Err(trouble) => {
                child.ends_if(trouble.is_broken());
                return child.unmeasured(&measured, &trouble.reason());
            }
        }
    }
}

fn time(session: &Session, bench: &Bench, name: &str, seed: u64) -> Tried<Vec<f64>> {
    let mut rotation = Rotation::new(session, bench, seed)?;
    if name == "99-device-copy" {
        return (0..ROUNDS).map(|_| rotation.copy_us(total_bytes(rotation.len))).collect();
    }
    let graph = if name == "00-three-launches" {
        rotation.baseline_graph()?
    } else {
        let kernel = kernel(session, bench.dtype, name)?;
        right(session, bench.dtype, &kernel)?;
        rotation.attempt_graph(&kernel)?
    };
    rotation.sample(&graph)?;
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        samples.push(rotation.sample(&graph)?.event_us);
        if let Some(wrong) = rotation.wrong()? {
            return Err(Trouble::Wrong(wrong));
        }
    }
    Ok(samples)
}

/// The kernel of a version, of the staircase's text or of the attempt's.
fn kernel(session: &Session, dtype: OutputDtype, name: &str) -> Tried<Kernel> {
    let own = [("90-A.9", "dequantize_naive"), ("91-A.10", "dequantize_wide"), ("92-A.12", "dequantize")];
    if let Some((_, kernel)) = own.iter().find(|(label, _)| *label == name) {
        return session.kernel(Build::of(dtype), Via::Machine, kernel);
    }
    let all = kernels_of(STAIRCASE);
    let found = all.iter().find(|kernel| label(kernel) == name);
    let found = found.ok_or_else(|| Trouble::Wrong(format!("no version is called {name}")))?;
    let defines = Build::of(dtype).defines();
    let module = session.gpu.build(&source(&Attempt::staircase(), &defines))?;
    Ok(Kernel::of(&module, found)?)
}

/// Whether a version is right to the bit, with a ragged tail.
fn right(session: &Session, dtype: OutputDtype, kernel: &Kernel) -> Tried {
    let weight = weight(64 * 4001 + 29, 64, true, Scale::Wide, 11);
    let on_card = OnCard::upload(&session.gpu, &weight.view(), 0)?;
    let output = Output::new(&session.gpu, dtype, weight.shape[0], 3, 0)?;
    kernel.run(&session.gpu, &on_card, output.address())?;
    session.gpu.stream().sync()?;
    let (seen, want) = (output.seen()?, dequantize_bits(&weight.view(), dtype));
    let wrong = (0..want.len()).filter(|e| seen.bits[*e] != want[*e]).count();
    if wrong > 0 || seen.touched.is_some() {
        return Err(Trouble::Wrong(format!("{wrong} of {} elements are not equal to the bit", want.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_by_their_names() {
        let text = "LAUNCH(v01_naive, 256, 1, 0, 0, 0); // v99_is_told_of\nstruct v02_wide_loads_choices;\n\
                    VERSION(v02_wide_loads, 1); int value, v1;";
        assert_eq!(kernels_of(text), ["v01_naive", "v02_wide_loads"]);
        assert_eq!(label("v02_wide_loads"), "02-wide-loads");
    }
}
