//! The CPU behind the device's seam: tile programs on all threads.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Cpu;
use crate::buffer::{Buffer, Plain};
use crate::device::{Counts, Device};
use crate::error::DeviceError;
use crate::tile::{Element, Program, TILE};

impl Device for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError> {
        self.allocated.fetch_add(bytes as u64, Relaxed);
        Ok(Buffer::host(tag, bytes))
    }

    fn upload(&self, to: &mut Buffer, from: &[u8]) -> Result<(), DeviceError> {
        to.on_host()?;
        to.same_length(from.len())?;
        to.view_mut::<u8>().copy_from_slice(from);
        Ok(())
    }

    fn download(&self, from: &Buffer, to: &mut [u8]) -> Result<(), DeviceError> {
        from.on_host()?;
        from.same_length(to.len())?;
        to.copy_from_slice(from.view::<u8>());
        Ok(())
    }

    fn run(
        &self,
        program: &Program,
        len: usize,
        inputs: &[&Buffer],
        output: &mut Buffer,
    ) -> Result<(), DeviceError> {
        program.check(len, inputs, output)?;
        inputs.iter().copied().chain([&*output]).try_for_each(Buffer::on_host)?;
        let (read, written) = program.traffic(len);
        self.read.fetch_add(read.iter().sum::<usize>() as u64, Relaxed);
        self.written.fetch_add(written as u64, Relaxed);
        match program.element {
            Element::F16 => self.fill(program, inputs, &mut output.view_mut()[..len], store_f16),
            Element::Bf16 => self.fill(program, inputs, &mut output.view_mut()[..len], store_bf16),
            Element::F32 => self.fill(program, inputs, &mut output.view_mut()[..len], store_f32),
            Element::U8 => unreachable!("checked: a program ends in a float type"),
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(()) // a launch returns when it is done
    }

    fn clock(&self) -> Duration {
        self.made.elapsed()
    }

    fn counts(&self) -> Counts {
        Counts {
            launches: self.launches(),
            read_bytes: self.read.load(Relaxed),
            written_bytes: self.written.load(Relaxed),
            allocated_bytes: self.allocated.load(Relaxed),
        }
    }
}

impl Cpu {
    /// Runs the program over an output, tile by tile; `round` stores a tile of f32.
    fn fill<T: Plain>(
        &self,
        program: &Program,
        inputs: &[&Buffer],
        out: &mut [T],
        round: impl Fn(&[f32], &mut [T]) + Sync,
    ) {
        self.launch(out, TILE, |first, piece| {
            let mut values = program.values();
            for (t, tile) in piece.chunks_mut(TILE).enumerate() {
                round(program.run_tile(first + t * TILE, tile.len(), inputs, &mut values), tile);
            }
        });
    }
}

fn store_f16(from: &[f32], to: &mut [f16]) {
    to.convert_from_f32_slice(from);
}

fn store_bf16(from: &[f32], to: &mut [bf16]) {
    to.convert_from_f32_slice(from);
}

fn store_f32(from: &[f32], to: &mut [f32]) {
    to.copy_from_slice(from);
}
