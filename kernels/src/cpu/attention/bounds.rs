//! What a mask can give over a block, without asking each query and key: the least and the most of every value of its
//! program, each from those of the values that it is made of.
//!
//! The keys that a causal mask, a window or a document leaves are a band; a block of scores beside it is empty, inside
//! it full. There `query - key` lies between two numbers that the block's corners say, and the documents of 128 queries
//! between the least and the most of 128 numbers. So a row of T tokens costs (T / 128)^2 times some hundred operations
//! instead of T^2 times some ten. Where the bounds leave both answers, on the band's edges, each lane is asked.
//!
//! Bounds are of whole numbers alone. What may wrap around has those of its type, and of floats nothing is known: a
//! mask that compares floats is asked everywhere.
//!
//! Reading: Moore, Kearfott and Cloud, "Introduction to Interval Analysis" (2009), chapters 2 and 5.

use super::super::engine::{Binding, filled};
use super::{AttentionCall, Block, Scheduled};
use crate::tile::{Binary, Compare, Element, Index, Op, Program, Value};

/// The least and the most that a whole number can be.
type Bounds = [i64; 2];

const FLOAT: Bounds = [i64::MIN, i64::MAX];
const I32: Bounds = [i32::MIN as i64, i32::MAX as i64];
const U8: Bounds = [0, u8::MAX as i64];
const NIBBLE: Bounds = [0, 15];
const CONDITION: Bounds = [0, 1];

/// Elements of an input that are looked at for their bounds: some block's side, and what lies between.
const MOST_LOOKED_AT: usize = 1 << 10;

/// Bytes for the bounds of a program's values.
pub(super) fn bytes(program: &Program) -> usize {
    program.ops.len() * size_of::<Bounds>()
}

/// What all lanes of a block have in common, if that is known: whether the mask allows them.
///
/// # Safety
/// As for [`AttentionCall::apply`].
pub(super) unsafe fn of_all(
    work: &AttentionCall,
    mask: &Scheduled,
    block: &Block,
    mut memory: &mut [u8],
) -> Option<bool> {
    let program = mask.program();
    let over = Over { work, block, own: mask.own };
    let values = filled(&mut memory, program.ops.len(), FLOAT);
    for (n, op) in program.ops.iter().enumerate() {
        // SAFETY: the caller's.
        values[n] = unsafe { over.bounds(op, &values[..n])? };
    }
    let [least, most] = values[program.stores[0].value];
    if least > 0 || most < 0 { Some(true) } else { ([least, most] == [0, 0]).then_some(false) }
}

/// A block that a mask is looked at over.
struct Over<'a> {
    work: &'a AttentionCall<'a>,
    block: &'a Block,
    own: usize, // inputs before the extras
}

impl Over<'_> {
    /// The bounds of an operation's value; `None` if a lane may fail, so that it has to be asked.
    unsafe fn bounds(&self, op: &Op, known: &[Bounds]) -> Option<Bounds> {
        Some(match *op {
            // SAFETY: the caller's.
            Op::Load { input, element, index } => unsafe { self.loaded(input, element, index) },
            // SAFETY: as above.
            Op::Gather { input, element, at } => unsafe { self.gathered(input, element, known[at])? },
            Op::Nibble { .. } => NIBBLE,
            Op::Whole(number) => [i64::from(number); 2],
            Op::Coordinate(dim) => self.coordinates(dim),
            Op::Binary(op, a, b) => arithmetic(op, known[a], known[b])?,
            Op::Compare(op, a, b) => relation(op, [a, b], known),
            Op::Select(condition, a, b) => one_of(known[condition], known[a], known[b]),
            Op::RandomMask { .. } => CONDITION,
            Op::ToWhole(_) => I32,
            Op::RowSum(a) | Op::RowMax(a) if known[a] != FLOAT => I32,
            Op::Float(_) | Op::Table { .. } | Op::Unary(..) | Op::Round(..) | Op::ToFloat(_) => FLOAT,
            Op::RowSum(_) | Op::RowMax(_) => FLOAT,
        })
    }

    fn coordinates(&self, dim: usize) -> Bounds {
        let Block { batch, head, query, queries, key, keys } = *self.block;
        let (first, count) = [(batch, 1), (head, 1), (query, queries), (key, keys)][dim];
        [first as i64, (first + count) as i64 - 1]
    }

    fn input(&self, input: usize) -> (Binding, &[usize]) {
        (self.work.extras[input - self.own], &self.work.attention.extras[input - self.own].strides)
    }

    /// The bounds of what a block loads.
    unsafe fn loaded(&self, input: usize, element: Element, index: Index) -> Bounds {
        let (binding, strides) = self.input(input);
        if index != Index::View {
            // SAFETY: the caller's; an attention's programs have no other index.
            return unsafe { of_elements(binding, element, std::iter::once(0)) };
        }
        let Block { batch, head, query, queries, key, keys } = *self.block;
        let first =
            [batch, head, query, key].iter().zip(strides).map(|(at, stride)| at * stride).sum::<usize>();
        let first = binding.offset + first;
        let [along_queries, along_keys] = [(queries, strides[2]), (keys, strides[3])];
        let [of_queries, of_keys] =
            [along_queries, along_keys].map(|(n, stride)| if stride == 0 { 1 } else { n });
        if of_queries * of_keys > MOST_LOOKED_AT {
            return of_type(element);
        }
        let of_query =
            |query: usize| (0..of_keys).map(move |key| first + query * along_queries.1 + key * along_keys.1);
        // SAFETY: the caller's: extras were checked for the whole space.
        unsafe { of_elements(binding, element, (0..of_queries).flat_map(of_query)) }
    }

    /// The bounds of what is taken from a table at places between bounds, if none of them lies outside.
    unsafe fn gathered(&self, input: usize, element: Element, at: Bounds) -> Option<Bounds> {
        let (binding, _) = self.input(input);
        let [first, last] = at.map(|place| usize::try_from(place).ok());
        let (first, last) = (first?, last.filter(|last| *last < binding.bytes / element.bytes())?);
        if last - first >= MOST_LOOKED_AT {
            return Some(of_type(element));
        }
        // SAFETY: the caller's; the places are inside.
        Some(unsafe { of_elements(binding, element, first..=last) })
    }
}

/// What numbers of a type lie between.
fn of_type(element: Element) -> Bounds {
    match element {
        Element::U8 => U8,
        Element::I32 => I32,
        Element::F16 | Element::Bf16 | Element::F32 => FLOAT,
    }
}

/// The least and the most of some elements, of which there is one at least.
///
/// # Safety
/// They are in the memory.
unsafe fn of_elements(from: Binding, element: Element, places: impl Iterator<Item = usize>) -> Bounds {
    let wider = |[least, most]: Bounds, number: i64| [least.min(number), most.max(number)];
    let none = [i64::MAX, i64::MIN];
    match element {
        // SAFETY: the caller's.
        Element::U8 => places.map(|i| i64::from(unsafe { *from.base.add(i) })).fold(none, wider),
        // SAFETY: the caller's; a binding is aligned to its elements.
        Element::I32 => {
            places.map(|i| i64::from(unsafe { *from.base.cast::<i32>().add(i) })).fold(none, wider)
        }
        Element::F16 | Element::Bf16 | Element::F32 => FLOAT,
    }
}

/// The bounds of a sum, difference and so on, `None` if a division may be one by 0.
fn arithmetic(op: Binary, a: Bounds, b: Bounds) -> Option<Bounds> {
    if a == FLOAT {
        return Some(FLOAT);
    }
    let corners = |of: fn(i64, i64) -> i64| {
        let all = [of(a[0], b[0]), of(a[0], b[1]), of(a[1], b[0]), of(a[1], b[1])];
        all.into_iter().fold([all[0]; 2], |[least, most], corner| [least.min(corner), most.max(corner)])
    };
    let found = match op {
        Binary::Add => [a[0] + b[0], a[1] + b[1]],
        Binary::Sub => [a[0] - b[1], a[1] - b[0]],
        Binary::Mul => corners(|a, b| a * b),
        Binary::Div if b[0] <= 0 && b[1] >= 0 => return None,
        Binary::Div => corners(floor_of_quotient),
        Binary::Min => [a[0].min(b[0]), a[1].min(b[1])],
        Binary::Max => [a[0].max(b[0]), a[1].max(b[1])],
    };
    Some(if found[0] < I32[0] || found[1] > I32[1] { I32 } else { found })
}

fn floor_of_quotient(a: i64, b: i64) -> i64 {
    a.div_euclid(b) - i64::from(b < 0 && a.rem_euclid(b) != 0)
}

/// The bounds of a relation's 1 or 0.
fn relation(op: Compare, [a, b]: [Value; 2], known: &[Bounds]) -> Bounds {
    let ([least, most], [other_least, other_most]) = (known[a], known[b]);
    if known[a] == FLOAT {
        return CONDITION;
    }
    let (always, never) = match op {
        Compare::Less => (most < other_least, least >= other_most),
        Compare::Equal => {
            let one = least == most && other_least == other_most;
            (a == b || one && least == other_least, most < other_least || other_most < least)
        }
    };
    if always {
        [1, 1]
    } else if never {
        [0, 0]
    } else {
        CONDITION
    }
}

/// The bounds of one of two values.
fn one_of(condition: Bounds, a: Bounds, b: Bounds) -> Bounds {
    match condition {
        [0, 0] => b,
        [least, most] if least > 0 || most < 0 => a,
        _ => [a[0].min(b[0]), a[1].max(b[1])],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::super::{Programs, Rows};
    use super::*;
    use crate::cpu::Vector;
    use crate::error::DeviceError;
    use crate::plan::{Attention, Memory, View};

    /// Sequences, heads, queries, keys: the last blocks are no whole ones.
    const SPACE: [usize; 4] = [2, 2, 300, 200];

    /// Elements of the tables, one of which says what it says for long.
    const TABLE: usize = 400;

    fn below(state: &mut u64, limit: u64) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 33) % limit) as usize
    }

    /// A mask of whole numbers, its operands drawn from all that is there.
    fn drawn(state: &mut u64) -> Program {
        let mut ops: Vec<Op> = (0..4).map(Op::Coordinate).collect();
        for _ in 0..3 + below(state, 20) {
            let [a, b, c] = [0; 3].map(|_| below(state, ops.len() as u64));
            let (input, index) = (1 + below(state, 3), Index::View);
            ops.push(match below(state, 20) {
                0 => Op::Whole([0, 1, -1, 7, 128, 100_000, i32::MAX, i32::MIN][below(state, 8)]),
                1 => Op::Load { input: 1, element: Element::I32, index: Index::First },
                2 => Op::Load { input, element: Element::I32, index },
                3 => Op::Load { input: 4, element: Element::U8, index },
                4..7 => Op::Gather { input, element: Element::I32, at: below(state, 4) },
                7 => Op::Gather { input, element: Element::I32, at: a },
                8 => Op::Select(a, b, c),
                9 | 10 => Op::Compare(Compare::Equal, a, b),
                11 | 12 => Op::Compare(Compare::Less, a, b),
                13 => Op::Binary(Binary::Div, a, b),
                14 => Op::Binary(Binary::Mul, a, b),
                15 => Op::Binary(Binary::Min, a, b),
                16 => Op::Binary(Binary::Max, a, b),
                17 => Op::Binary(Binary::Add, a, b),
                _ => Op::Binary(Binary::Sub, a, b),
            });
        }
        let (a, b) = (ops.len() - 1, below(state, ops.len() as u64));
        ops.push(if below(state, 2) == 0 {
            Op::Compare(Compare::Less, b, a)
        } else {
            Op::Binary(Binary::Min, a, a)
        });
        let value = ops.len() - 1;
        let mut mask = Program::flat("mask", ops, value, Element::I32);
        mask.stores[0].index = Index::View;
        mask
    }

    fn attention(mask: Program) -> Attention {
        let [batch, heads, queries, keys] = SPACE;
        let view = |strides: Vec<usize>| View { memory: Memory::Input(0), bytes: 0, offset: 0, strides };
        let strides = [vec![0, 0, 1, 0], vec![0, 0, 0, 1], vec![1, 0, 0, 0], vec![0, 1, 1, 0]];
        Attention {
            batch,
            heads,
            groups: heads,
            queries,
            keys,
            depth: 1,
            width: 1,
            element: Element::F32,
            scale: 1.0,
            score: None,
            mask: Some(Arc::new(mask)),
            q: view(vec![]),
            k: view(vec![]),
            v: view(vec![]),
            extras: strides.map(view).to_vec(),
        }
    }

    /// What every lane of a block is by the program itself.
    fn asked(work: &AttentionCall, block: &Block, memory: &mut [u8]) -> Result<Vec<bool>, DeviceError> {
        let mut allowed = vec![0.0_f32; block.lanes()];
        let mask = work.programs.mask.as_ref().expect("a mask");
        // SAFETY: the mask reads extras alone, which are as long as the space asks for.
        unsafe { work.apply(mask, block, &[std::ptr::null_mut()], allowed.as_mut_ptr(), memory)? };
        Ok(allowed.iter().map(|allowed| allowed.to_bits() != 0).collect())
    }

    #[test]
    fn what_bounds_say_of_a_block_is_what_each_of_its_lanes_says() {
        let mut state = 3;
        let mut seen = [0; 3]; // full, empty, left open
        for case in 0..600 {
            let attention = attention(drawn(&mut state));
            let mut tables: [Vec<i32>; 3] =
                [60, 3, 400].map(|long| (0..TABLE as i32).map(|i| i / long - 2).collect());
            tables[1].sort_by_key(|x| x.wrapping_mul(7) % 5);
            let mut bytes: Vec<u8> = (0..TABLE).map(|i| (i / 90 * 85) as u8).collect();
            let binding = |base: *mut u8, bytes| Binding { base, bytes, offset: 0 };
            let mut extras: Vec<Binding> =
                tables.iter_mut().map(|t| binding(t.as_mut_ptr().cast(), 4 * TABLE)).collect();
            extras.push(binding(bytes.as_mut_ptr(), TABLE));
            let none = Rows { at: std::ptr::null_mut(), strides: [0; 4] };
            let (programs, blocks) = (Programs::of(&attention), AtomicU64::new(0));
            let work = AttentionCall {
                attention: &attention,
                programs: &programs,
                q: none,
                k: none,
                v: none,
                extras: &extras,
                unit: Vector::widest(),
                blocks: &blocks,
            };
            let mut lines = vec![[0_u64; 8]; programs.bytes(extras.len()) / 64 + 2];
            // SAFETY: the same bytes.
            let memory =
                unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), lines.len() * 64) };
            let skipped = memory.as_ptr().align_offset(64);
            let memory = &mut memory[skipped..];
            for n in 0..12 {
                let block = work.block(n % 2, n / 2 % 2, n / 4, n % 3 % 2);
                let mask = programs.mask.as_ref().expect("a mask");
                // SAFETY: as above.
                let found = unsafe { of_all(&work, mask, &block, memory) };
                let lanes = asked(&work, &block, memory);
                seen[found.map_or(2, |full| usize::from(!full))] += 1;
                if let Some(allowed) = found {
                    let right = lanes.as_ref().is_ok_and(|lanes| lanes.iter().all(|lane| *lane == allowed));
                    assert!(
                        right,
                        "case {case}, {block:?}: {found:?}\n{}",
                        attention.mask.as_ref().expect("a mask")
                    );
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
    }

    #[test]
    fn quotients_are_rounded_down() {
        for (a, b) in (-9..=9).flat_map(|a| (-4..=4).map(move |b| (a, b))).filter(|(_, b)| *b != 0) {
            assert_eq!(floor_of_quotient(a, b), (a as f64 / b as f64).floor() as i64, "{a} / {b}");
        }
    }
}
