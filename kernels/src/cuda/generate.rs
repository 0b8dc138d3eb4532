//! Tile programs as CUDA C++: one thread a lane, one statement an operation.
//!
//! Every arithmetic operation is spelled with the function that names its rounding (`__fmul_rn`, `__fadd_rn`),
//! so nothing is contracted and the bits are those of every other device.

use std::fmt::Write;

use super::module;
use crate::error::DeviceError;
use crate::tile::{Binary, Element, Index, Op, Program};

/// Threads a block of a generated kernel.
pub(super) const THREADS: u32 = 256;

/// The kernel's name in the generated text.
pub(super) const ENTRY: &str = "program";

/// Buffers that a generated kernel may be given, beside its output and the number of its lanes.
pub(super) const MOST_INPUTS: usize = module::COUNT - 2;

/// The text; `inputs` is how many buffers it is given.
pub(super) fn text(program: &Program, inputs: usize) -> Result<String, DeviceError> {
    let refuse = |op, needed| DeviceError::Value { program: program.name.clone(), op, needed };
    if inputs > MOST_INPUTS {
        return Err(refuse(0, "a launch with at most 22 inputs on this device"));
    }
    let parameters: String = (0..inputs).fold(String::new(), |mut text, i| {
        let _ = write!(text, "const void* in{i}, ");
        text
    });
    let mut text = format!(
        "#include \"warpbook.cuh\"\n// {:?}\nextern \"C\" __global__ void {ENTRY}({parameters}Out* out, u64 lanes) {{\n    \
         u64 lane = (u64)blockIdx.x * {THREADS} + threadIdx.x;\n    if (lane >= lanes) return;\n",
        program.name
    );
    let whole = program.kinds();
    for (number, op) in program.ops.iter().enumerate() {
        let statement = statement(number, op, &whole).ok_or_else(|| refuse(number, GENERATED))?;
        let _ = writeln!(text, "    {statement}");
    }
    let value = program.stores[0].value;
    if whole[value] {
        return Err(refuse(value, "to be stored as f32, f16 or bf16 on this device"));
    }
    let _ = writeln!(text, "    out[lane] = round_output(v{value});\n}}");
    Ok(text)
}

/// What a program may do here.
const GENERATED: &str =
    "an operation that kernels are generated for: loads, tables, sums and products of f32";

/// An operation's statement; nothing for those that the CPU alone has so far.
fn statement(number: usize, op: &Op, whole: &[bool]) -> Option<String> {
    Some(match *op {
        Op::Load { input, element, index } => {
            let place = place(index)?;
            match element {
                Element::U8 => format!("u32 v{number} = ((const u8*)in{input})[{place}];"),
                Element::I32 => format!("int v{number} = ((const int*)in{input})[{place}];"),
                Element::F32 => format!("float v{number} = ((const float*)in{input})[{place}];"),
                Element::F16 => format!("float v{number} = from_f16(((const u16*)in{input})[{place}]);"),
                Element::Bf16 => format!("float v{number} = from_bf16(((const u16*)in{input})[{place}]);"),
            }
        }
        Op::Nibble { input } => {
            format!("u32 v{number} = ((const u8*)in{input})[lane >> 1] >> (lane & 1 ? 0 : 4) & 15;")
        }
        Op::Table { input, at, entries } => {
            format!("float v{number} = ((const float*)in{input})[v{at} & {}];", entries - 1)
        }
        Op::Binary(Binary::Add, a, b) if !whole[a] => format!("float v{number} = __fadd_rn(v{a}, v{b});"),
        Op::Binary(Binary::Mul, a, b) if !whole[a] => format!("float v{number} = __fmul_rn(v{a}, v{b});"),
        Op::Gather { .. }
        | Op::Float(_)
        | Op::Whole(_)
        | Op::Coordinate(_)
        | Op::Unary(..)
        | Op::Binary(..)
        | Op::Compare(..)
        | Op::Select(..)
        | Op::Round(..)
        | Op::ToFloat(_)
        | Op::ToWhole(_)
        | Op::RowSum(_)
        | Op::RowMax(_)
        | Op::RandomMask { .. } => return None,
    })
}

/// A lane's place in an input; nothing for views, which only a plan has.
fn place(index: Index) -> Option<String> {
    match index {
        Index::Lane => Some("lane".into()),
        Index::Block(shift) => Some(format!("lane >> {shift}")),
        Index::First => Some("0".into()),
        Index::View => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_like_its_print() {
        let ops = vec![
            Op::Nibble { input: 0 },
            Op::Table { input: 1, at: 0, entries: 16 },
            Op::Load { input: 2, element: Element::F32, index: Index::Block(6) },
            Op::Binary(Binary::Mul, 1, 2),
        ];
        let text = text(&Program::flat("scaled", ops, 3, Element::F16), 3).expect("it is generated");
        assert!(text.contains("float v2 = ((const float*)in2)[lane >> 6];"), "{text}");
        assert!(text.contains("float v3 = __fmul_rn(v1, v2);\n    out[lane] = round_output(v3);"), "{text}");
    }

    #[test]
    fn a_sum_of_whole_numbers_is_refused_and_not_taken_for_one_of_floats() {
        let load = Op::Load { input: 0, element: Element::I32, index: Index::Lane };
        let ops = vec![load, Op::Binary(Binary::Add, 0, 0), Op::ToFloat(1)];
        let refused = text(&Program::flat("twice", ops, 2, Element::F32), 1);
        assert!(matches!(refused, Err(DeviceError::Value { op: 1, .. })), "{refused:?}");
    }

    #[test]
    fn a_whole_number_is_not_stored_as_a_float() {
        let load = Op::Load { input: 0, element: Element::I32, index: Index::Lane };
        let refused = text(&Program::flat("copy", vec![load], 0, Element::I32), 1);
        assert!(matches!(refused, Err(DeviceError::Value { op: 0, .. })), "{refused:?}");
    }

    #[test]
    fn a_kernel_has_at_most_twenty_two_inputs() {
        let load = |input| Op::Load { input, element: Element::F32, index: Index::Lane };
        let wide = |inputs| text(&Program::flat("wide", vec![load(inputs - 1)], 0, Element::F32), inputs);
        assert!(wide(MOST_INPUTS).is_ok_and(|text| text.contains("const void* in21, Out* out")));
        let refused = wide(MOST_INPUTS + 1).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|error| error.contains(&format!("at most {MOST_INPUTS} inputs"))));
    }

    #[test]
    fn a_view_is_refused_and_not_taken_for_the_first_element() {
        let load = Op::Load { input: 0, element: Element::F32, index: Index::View };
        let refused = text(&Program::flat("view", vec![load], 0, Element::F32), 1);
        assert!(matches!(refused, Err(DeviceError::Value { op: 0, .. })), "{refused:?}");
    }

    #[test]
    fn a_programs_name_stays_in_its_comment() {
        let load = Op::Load { input: 0, element: Element::F32, index: Index::Lane };
        for name in ["a\n#error b", "a\\", "a\r\n#error b", "a\u{2028}#error b"] {
            let text = text(&Program::flat(name, vec![load], 0, Element::F32), 1).expect("it is generated");
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines[1].ends_with('"') && lines[2].starts_with("extern \"C\""), "{text}");
        }
    }
}
