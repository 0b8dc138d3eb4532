//! A dequantiser as what a plan calls.

use std::sync::LazyLock;

use half::{bf16, f16};
use kernels::Cpu;
use kernels::buffer::cast_mut;
use kernels::callee::{Callee, CardCallee, HostCallee, Quantized, Scales};
use kernels::tile::Element;

use super::cuda::Attempt;
use super::{Absmax, Nf4, Output, Solution, Weight};

/// A dequantiser, to be linked to a plan: [`Nf4::dequantize_fast`] on the CPU, and on a card the solution's last
/// kernel.
#[derive(Clone, Copy)]
pub struct Dequantizer<'a>(pub &'a dyn Nf4);

/// The solution, as a plan calls it.
pub static DEQUANTIZER: Dequantizer<'static> = Dequantizer(&Solution);

impl Callee for Dequantizer<'_> {
    fn name(&self) -> &'static str {
        "nf4"
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        Some(self)
    }

    fn card(&self) -> Option<&dyn CardCallee> {
        static SOLUTION: LazyLock<Attempt> = LazyLock::new(Attempt::solution);
        Some(&*SOLUTION)
    }
}

impl HostCallee for Dequantizer<'_> {
    fn check(&self, weight: &Quantized<'_>) -> Result<(), String> {
        self::weight(weight).check().map_err(|error| error.to_string())
    }

    fn dequantize(
        &self,
        cpu: &Cpu,
        weight: &Quantized<'_>,
        element: Element,
        out: &mut [u8],
    ) -> Result<(), String> {
        let out = match element {
            Element::F16 => Output::F16(cast_mut::<f16>(out)),
            Element::Bf16 => Output::Bf16(cast_mut::<bf16>(out)),
            Element::F32 => Output::F32(cast_mut::<f32>(out)),
            Element::U8 | Element::I32 => {
                return Err("expected a weight of floats, found one of whole numbers".into());
            }
        };
        self.0.dequantize_fast(cpu, &self::weight(weight), out);
        Ok(())
    }
}

/// The machine's weight in the words of the format.
fn weight<'a>(weight: &Quantized<'a>) -> Weight<'a> {
    let Quantized { len, block_size, packed, table, scales } = *weight;
    let absmax = match scales {
        Scales::Single(scales) => Absmax::Single(scales),
        Scales::Double { codes, table, scales, block_size, offset } => {
            Absmax::Double { codes, table, scales, block_size, offset }
        }
    };
    Weight { len, block_size, packed, table, absmax }
}
