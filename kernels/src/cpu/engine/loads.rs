//! Loads: what a tile reads of the inputs, by lane, by view, by table or by index.

use half::{bf16, f16};

use super::TILE;
use super::access::Access;
use super::machine::Machine;
use super::operations::TileBuffer;
use crate::cpu::lanes::{self, Operand};
use crate::error::DeviceError;
use crate::tile::{Element, Index, Value};

impl Machine<'_> {
    /// Where the tile's lanes lie in a row, if they lie side by side: nothing has to be copied then.
    pub(super) fn direct(&self, input: usize, element: Element, index: Index) -> Option<*const f32> {
        if !matches!(element, Element::F32 | Element::I32) {
            return None;
        }
        let access = self.input(input);
        let start = match index {
            Index::Lane => self.first,
            Index::View if *access.strides.last()? == 1 => {
                let (row, col) = (self.first / self.frame.cols, self.first % self.frame.cols);
                if col + self.lanes > self.frame.cols {
                    return None;
                }
                self.row_start(access, row) + col
            }
            _ => return None,
        };
        Some(access.some::<f32>(start, self.lanes).as_ptr())
    }

    pub(super) fn load(&self, input: usize, element: Element, index: Index, to: &mut TileBuffer) {
        let access = self.input(input);
        match element {
            Element::F32 => self.fetch(access, index, to.float(), copy::<f32>, |x| x),
            Element::F16 => self.fetch(access, index, to.float(), lanes::widen_f16, f16::to_f32),
            Element::Bf16 => {
                let widen = |from: &[bf16], to: &mut [f32]| lanes::widen_bf16(self.unit, from, to);
                self.fetch(access, index, to.float(), widen, bf16::to_f32);
            }
            Element::I32 => self.fetch(access, index, to.whole(), copy::<i32>, |x| x),
            Element::U8 => {
                let widen = |from: &[u8], to: &mut [i32]| {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = i32::from(*from));
                };
                self.fetch(access, index, to.whole(), widen, i32::from);
            }
        }
    }

    /// Reads a tile: `many` where elements lie side by side, else one by one.
    fn fetch<M: Copy, T: Copy>(
        &self,
        access: Access<'_>,
        index: Index,
        to: &mut [T],
        many: impl Fn(&[M], &mut [T]),
        single: impl Fn(M) -> T,
    ) {
        let one = |place: usize| single(access.some::<M>(place, 1)[0]);
        match index {
            Index::Lane => many(access.some(self.first, to.len()), to),
            Index::First => to.fill(one(0)),
            Index::Block(shift) => {
                to.iter_mut().enumerate().for_each(|(lane, to)| *to = one((self.first + lane) >> shift));
            }
            Index::View => {
                let stride = *access.strides.last().unwrap_or(&0);
                for segment in self.segments(to.len()) {
                    let start = self.row_start(access, segment.row) + segment.col * stride;
                    let to = &mut to[segment.at..][..segment.len];
                    match stride {
                        0 => to.fill(one(start)),
                        1 => many(access.some(start, segment.len), to),
                        _ => to.iter_mut().enumerate().for_each(|(i, to)| *to = one(start + i * stride)),
                    }
                }
            }
        }
    }

    pub(super) fn nibbles(&self, input: usize, to: &mut [i32]) {
        let from = self.input(input).elements::<u8>();
        for (lane, to) in to.iter_mut().enumerate() {
            let e = self.first + lane;
            *to = i32::from(if e % 2 == 0 { from[e / 2] >> 4 } else { from[e / 2] & 15 });
        }
    }

    pub(super) fn table(&self, input: usize, at: Value, entries: usize, to: &mut [f32]) {
        let table = &self.input(input).elements::<f32>()[..entries];
        match self.integer(at) {
            Operand::Lanes(at) => {
                to.iter_mut().zip(at).for_each(|(to, at)| *to = table[*at as usize & (entries - 1)]);
            }
            Operand::Splat(at) => to.fill(table[at as usize & (entries - 1)]),
        }
    }

    pub(super) fn gather(
        &self,
        value: Value,
        input: usize,
        element: Element,
        at: Value,
        to: &mut TileBuffer,
    ) -> Result<(), DeviceError> {
        let access = self.input(input);
        let rows = access.at.bytes / element.bytes();
        let spread;
        let places: &[i32] = match self.integer(at) {
            Operand::Lanes(places) => places,
            Operand::Splat(place) => {
                spread = [place; TILE];
                &spread[..to.lanes]
            }
        };
        let outside =
            places.iter().position(|place| usize::try_from(*place).map_or(true, |place| place >= rows));
        if let Some(lane) = outside {
            let (program, op, lane, got) =
                (self.frame.program.name.clone(), value, self.first + lane, places[lane]);
            return Err(DeviceError::RowIndex { program, op, lane, got, rows });
        }
        match element {
            Element::F32 => pick(access.elements(), places, to.float(), |x: f32| x),
            Element::F16 => pick(access.elements(), places, to.float(), f16::to_f32),
            Element::Bf16 => pick(access.elements(), places, to.float(), bf16::to_f32),
            Element::I32 => pick(access.elements(), places, to.whole(), |x: i32| x),
            Element::U8 => pick(access.elements::<u8>(), places, to.whole(), i32::from),
        }
        Ok(())
    }
}

pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.copy_from_slice(from);
}

fn pick<M: Copy, T>(from: &[M], places: &[i32], to: &mut [T], f: impl Fn(M) -> T) {
    to.iter_mut().zip(places).for_each(|(to, place)| *to = f(from[*place as usize]));
}
