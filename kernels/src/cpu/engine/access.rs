//! An input or output of a pass: where it begins, and how the space's rows lie in it.

#![allow(unsafe_code)] // memory that the launch promises, read and written in stretches

use super::Binding;
use super::machine::Machine;

/// An input or output of a pass: where it begins, and its strides.
#[derive(Clone, Copy)]
pub(super) struct Access<'a> {
    pub(super) at: Binding,
    pub(super) strides: &'a [usize],
}

impl<'a> Access<'a> {
    /// All of it, to be read: nothing of it is written by this pass.
    pub(super) fn elements<T>(self) -> &'a [T] {
        self.some(0, self.at.bytes / size_of::<T>())
    }

    /// Some of it, to be read. In place, other lanes may be written meanwhile: these are not.
    pub(super) fn some<T>(self, start: usize, len: usize) -> &'a [T] {
        assert!((start + len) * size_of::<T>() <= self.at.bytes, "a load inside the input");
        // SAFETY: the launch's promise: that many bytes, aligned, and not written by another lane.
        unsafe { std::slice::from_raw_parts(self.at.base.cast::<T>().add(start), len) }
    }

    /// Some of it, to be written.
    pub(super) unsafe fn stretch<T>(self, start: usize, len: usize) -> &'a mut [T] {
        assert!((start + len) * size_of::<T>() <= self.at.bytes, "a store inside the output");
        // SAFETY: the caller's: no other lane has these elements.
        unsafe { std::slice::from_raw_parts_mut(self.at.base.cast::<T>().add(start), len) }
    }
}

impl<'a> Machine<'a> {
    pub(super) fn input(&self, number: usize) -> Access<'a> {
        Access { at: self.pass.inputs[number], strides: &self.frame.inputs[number] }
    }

    pub(super) fn output(&self, number: usize) -> Access<'a> {
        Access { at: self.pass.outputs[number], strides: &self.frame.outputs[number] }
    }

    /// Where a row begins in an input or output, in elements.
    pub(super) fn row_start(&self, access: Access<'_>, row: usize) -> usize {
        let dims = self.frame.space.len();
        let mut rest = row;
        let mut start = access.at.offset;
        for dim in (0..dims - 1).rev() {
            start += rest % self.frame.space[dim] * access.strides[dim];
            rest /= self.frame.space[dim];
        }
        start
    }
}
