//! The CPU behind the device's seam: tile programs on all threads.

#![allow(unsafe_code)] // hands buffers to the engine

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Cpu;
use super::engine::{Pass, Site};
use crate::buffer::Buffer;
use crate::device::{Counts, Device};
use crate::error::DeviceError;
use crate::tile::{Program, Schedule};

impl Device for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError> {
        let buffer = Buffer::new(tag, bytes)?;
        self.allocated.fetch_add(bytes as u64, Relaxed);
        Ok(buffer)
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
        program.check_flat(len, inputs, output)?;
        inputs.iter().copied().chain([&*output]).try_for_each(Buffer::on_host)?;
        let (read, written) = program.traffic(len);
        self.launches.fetch_add(1, Relaxed);
        self.read.fetch_add(read.iter().sum::<usize>() as u64, Relaxed);
        self.written.fetch_add(written.iter().sum::<usize>() as u64, Relaxed);
        let schedule = Schedule::of(program, &[]);
        let outputs = vec![site(output.view_mut::<u8>().as_mut_ptr(), output.bytes())];
        let inputs =
            inputs.iter().map(|input| site(input.view::<u8>().as_ptr().cast_mut(), input.bytes())).collect();
        let pass =
            Pass { program, schedule: &schedule, space: vec![len], origin: Vec::new(), inputs, outputs };
        // SAFETY: checked: every lane's elements are there, and it stores its own; the output is borrowed exclusively.
        unsafe { self.pass(pass) }
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

/// A whole buffer, for programs that go lane by lane.
fn site(base: *mut u8, bytes: usize) -> Site {
    Site { base, bytes, offset: 0, strides: Vec::new() }
}
