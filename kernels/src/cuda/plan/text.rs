//! Tile programs as CUDA C++: one statement an operation.
//!
//! Every arithmetic operation is spelled with the function that names its rounding (`__fmul_rn`, `__fadd_rn`), so that
//! nothing is contracted and the bits are those of every other device. What a lane loads, and where it stands, is told
//! by whoever writes the loop around the statements: [`Lanes`].

use crate::tile::{Binary, Compare, Element, Op, Program, Unary, Value};

/// The lanes around a program's statements: expressions of CUDA C++.
pub(super) trait Lanes {
    /// What a load, a nibble or a coordinate gives: the value of operation `number`.
    fn leaf(&self, number: Value, op: &Op) -> String;

    /// The address of an input's first byte.
    fn base(&self, input: usize) -> String;

    /// How many elements an input has.
    fn limit(&self, input: usize, element: Element) -> String;

    /// The lane's number, row-major, as faults name it.
    fn lane(&self) -> String;

    /// What faults name the program by.
    fn step_id(&self) -> String {
        "(u32)p.step_id".into()
    }

    /// The name of a value.
    fn name(&self, value: Value) -> String {
        format!("v{value}")
    }
}

/// The template argument for an element type.
pub(super) fn element(element: Element) -> &'static str {
    match element {
        Element::U8 => "U8",
        Element::F16 => "F16",
        Element::Bf16 => "Bf16",
        Element::F32 => "F32",
        Element::I32 => "I32",
    }
}

/// The type of a value.
pub(super) fn kind(is_whole: bool) -> &'static str {
    if is_whole { "int" } else { "float" }
}

/// A float with all of its bits.
pub(super) fn float(value: f32) -> String {
    format!("__uint_as_float({:#x}u)", value.to_bits())
}

/// Whether an operation may fail in a lane.
pub(super) fn may_fail(op: &Op, whole: &[bool]) -> bool {
    matches!(op, Op::Gather { .. }) || matches!(op, Op::Binary(Binary::Div, a, _) if whole[*a])
}

/// The statement that computes a value. Reductions have none: they are the loop's.
pub(super) fn statement(lanes: &dyn Lanes, program: &Program, whole: &[bool], number: Value) -> String {
    let (op, name) = (&program.ops[number], lanes.name(number));
    let of = |value: Value| lanes.name(value);
    let value = match *op {
        Op::Load { .. } | Op::Nibble { .. } | Op::Coordinate(_) => lanes.leaf(number, op),
        Op::Table { input, at, entries } => {
            format!("fetch<F32>({}, (u32){} & {}u)", lanes.base(input), of(at), entries - 1)
        }
        Op::Gather { input, element: of_input, at } => {
            let (limit, base, at) = (lanes.limit(input, of_input), lanes.base(input), of(at));
            let fault = format!("fail(p.fault, {}, {number}, {}, {at})", lanes.step_id(), lanes.lane());
            let element = element(of_input);
            return format!(
                "const bool is_in{number} = {at} >= 0 && (u64){at} < {limit};\n\
                 if (!is_in{number}) {fault};\n\
                 const {} {name} = is_in{number} ? fetch<{element}>({base}, (u64)(u32){at}) : 0;",
                kind(whole[number])
            );
        }
        Op::Float(value) => float(value),
        Op::Whole(value) => format!("(int){:#x}u", value.cast_unsigned()),
        Op::Unary(unary, a) => unary_of(unary, &of(a)),
        Op::Binary(Binary::Div, a, b) if whole[a] => {
            let (a, b) = (of(a), of(b));
            let fault = format!("fail(p.fault, {}, {number}, {}, 0)", lanes.step_id(), lanes.lane());
            return format!(
                "if ({b} == 0) {fault};\nconst int {name} = {b} == 0 ? 0 : divide_down({a}, {b});"
            );
        }
        Op::Binary(binary, a, b) if whole[a] => whole_binary(binary, &of(a), &of(b)),
        Op::Binary(binary, a, b) => float_binary(binary, &of(a), &of(b)),
        Op::Compare(compare, a, b) => {
            let relation = match compare {
                Compare::Less => "<",
                Compare::Equal => "==",
            };
            format!("(int)({} {relation} {})", of(a), of(b))
        }
        Op::Select(c, a, b) => format!("{} != 0 ? {} : {}", of(c), of(a), of(b)),
        Op::Round(to, a) => format!("{0}::read({0}::write({1}))", element(to), of(a)),
        Op::ToFloat(a) => format!("__int2float_rn({})", of(a)),
        Op::ToWhole(a) => format!("__float2int_rz({})", of(a)),
        Op::RowSum(_) | Op::RowMax(_) => return String::new(),
        Op::RandomMask { key: [first, second], index, stream, threshold } => {
            let word =
                format!("philox((u32){}, {stream}u, (u32){}, (u32){})", of(index), of(first), of(second));
            format!("(int)((u64){word} < {threshold}ull)")
        }
    };
    format!("const {} {name} = {value};", kind(whole[number]))
}

fn unary_of(unary: Unary, a: &str) -> String {
    match unary {
        Unary::Neg => format!("-{a}"),
        Unary::Exp => format!("expf({a})"),
        Unary::Log => format!("logf({a})"),
        Unary::Sqrt => format!("__fsqrt_rn({a})"),
        Unary::Tanh => format!("tanhf({a})"),
        Unary::Sigmoid => format!("__frcp_rn(__fadd_rn(1.0f, expf(-{a})))"),
        Unary::Sin => format!("sinf({a})"),
        Unary::Cos => format!("cosf({a})"),
    }
}

fn float_binary(binary: Binary, a: &str, b: &str) -> String {
    let function = match binary {
        Binary::Add => "__fadd_rn",
        Binary::Sub => "__fsub_rn",
        Binary::Mul => "__fmul_rn",
        Binary::Div => "__fdiv_rn",
        Binary::Min => "smaller",
        Binary::Max => "larger",
    };
    format!("{function}({a}, {b})")
}

/// Whole numbers, but for a division.
fn whole_binary(binary: Binary, a: &str, b: &str) -> String {
    match binary {
        Binary::Add => format!("wrap_add({a}, {b})"),
        Binary::Sub => format!("wrap_sub({a}, {b})"),
        Binary::Mul => format!("wrap_mul({a}, {b})"),
        Binary::Div => format!("divide_down({a}, {b})"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Max => format!("max({a}, {b})"),
    }
}
