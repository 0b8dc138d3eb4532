//! Stores: what a tile, or a row, writes to the outputs.

#![allow(unsafe_code)] // threads write disjoint lanes of one memory

use half::bf16;

use super::TILE;
use super::access::Access;
use super::loads::copy;
use super::machine::Machine;
use crate::cpu::lanes::{self, Operand};
use crate::tile::{Element, Index, Store};

impl Machine<'_> {
    /// Stores the values of the tile's lanes.
    pub(super) unsafe fn store(&self) {
        for store in self.frame.program.stores.iter().filter(|store| !store.per_row) {
            // SAFETY: the caller's.
            unsafe { self.store_lanes(store, self.lanes) };
        }
        if self.first % self.frame.cols == 0 {
            let first_lane = |store: &&Store| store.per_row && !self.frame.schedule.per_row[store.value];
            for store in self.frame.program.stores.iter().filter(first_lane) {
                // SAFETY: the caller's.
                unsafe { self.store_lanes(store, 1) };
            }
        }
    }

    /// Stores the first `lanes` lanes of a tile.
    unsafe fn store_lanes(&self, store: &Store, lanes: usize) {
        let (access, index) = (self.output(store.output), store.index);
        let float = || self.float(store.value).first(lanes);
        let whole = || self.integer(store.value).first(lanes);
        let low_byte = |from: &[i32], to: &mut [u8]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as u8);
        };
        // SAFETY: the caller's.
        unsafe {
            match store.element {
                Element::F32 => self.put(access, index, float(), lanes, copy),
                Element::F16 => self.put(access, index, float(), lanes, lanes::narrow_f16),
                Element::Bf16 => {
                    let narrow = |from: &[f32], to: &mut [bf16]| lanes::narrow_bf16(self.unit, from, to);
                    self.put(access, index, float(), lanes, narrow);
                }
                Element::I32 => self.put(access, index, whole(), lanes, copy),
                Element::U8 => self.put(access, index, whole(), lanes, low_byte),
            }
        }
    }

    /// Writes a tile: at once where elements lie side by side, else one by one.
    unsafe fn put<T: Copy, M: Copy + Default>(
        &self,
        access: Access<'_>,
        index: Index,
        value: Operand<'_, T>,
        lanes: usize,
        narrow: impl Fn(&[T], &mut [M]),
    ) {
        let spread;
        let from = match &value {
            Operand::Lanes(lanes) => lanes,
            Operand::Splat(one) if lanes == 1 => std::slice::from_ref(one),
            Operand::Splat(one) => {
                spread = [*one; TILE];
                &spread[..lanes]
            }
        };
        if index == Index::Lane {
            // SAFETY: the caller's.
            return narrow(from, unsafe { access.stretch(self.first, lanes) });
        }
        let stride = *access.strides.last().unwrap_or(&0);
        for segment in self.segments(lanes) {
            let start = self.row_start(access, segment.row) + segment.col * stride;
            let from = &from[segment.at..][..segment.len];
            if stride == 1 {
                // SAFETY: the caller's.
                narrow(from, unsafe { access.stretch(start, segment.len) });
            } else {
                for (i, from) in from.iter().enumerate() {
                    // SAFETY: the caller's.
                    narrow(std::slice::from_ref(from), unsafe { access.stretch(start + i * stride, 1) });
                }
            }
        }
    }

    /// Stores the values of a row.
    pub(super) unsafe fn store_row(&mut self, row: usize) {
        (self.first, self.lanes) = (row * self.frame.cols, 1);
        for store in self.frame.program.stores.iter().filter(|store| self.frame.schedule.per_row[store.value])
        {
            // SAFETY: the caller's.
            unsafe { self.store_lanes(store, 1) };
        }
    }
}
