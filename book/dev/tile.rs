//! A challenge's pass as a tile program, in the words that [`kernels::tile::Program`] prints.
//!
//! The text on the page is what the workbook's own program says of itself: it is built here, from a weight
//! of one block, as a device would be handed it.

use challenges::nf4::tile::{fused, upload};
use kernels::Cpu;
use reference::nf4::{OutputDtype, Quantized};

/// The tile program of a challenge as a block of Markdown.
///
/// # Errors
/// Where the challenge has none.
pub fn program(challenge: &str) -> Result<String, String> {
    match challenge {
        "nf4" => Ok(format!("```text\n{}```", nf4()?)),
        _ => Err(format!("no tile program belongs to `{challenge}`")),
    }
}

/// The fused pass over a weight with double quantisation, to bf16.
fn nf4() -> Result<String, String> {
    let weight =
        Quantized::double(&[0.0; 64], &[64], OutputDtype::F32, 64).map_err(|error| error.to_string())?;
    let uploaded = upload(&Cpu::with_threads(1), &weight.view()).map_err(|error| error.to_string())?;
    Ok(fused(&uploaded, OutputDtype::Bf16).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_shown_as_it_prints() {
        let shown = program("nf4").unwrap();
        assert!(shown.starts_with("```text\nprogram nf4\n  %0 = nibble in0[lane]\n"), "{shown}");
        assert!(shown.ends_with("  store bf16 out[lane] %8\n```"), "{shown}");
        assert_eq!(program("loss").unwrap_err(), "no tile program belongs to `loss`");
    }
}
