//! The GPU behind the device's seam: tile programs, generated and compiled when they are first run.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::compile::{Source, Target, compile};
use super::error::CudaError;
use super::generate;
use super::kept::Kept;
use super::module::{Arguments, Grid, Module};
use super::probe::Gpu;
use super::texts::PRELUDE;
use crate::buffer::Buffer;
use crate::device::{Counts, Device};
use crate::error::DeviceError;
use crate::tile::{Element, Program};

impl Gpu {
    /// A text as code on this card: compiled for its architecture, or, where there is no compiler, the kept PTX
    /// that stands for the text.
    ///
    /// # Errors
    /// What the compiler says of the text, or that there is none; what the driver says of the code.
    pub fn build(&self, source: &Source<'_>) -> Result<Module, CudaError> {
        match compile(source, Target::Machine(self.card().capability)) {
            Ok(compiled) => self.load(source.name, &compiled.image),
            Err(error @ super::CompileError::NoCompiler(_)) => match Kept::of(source, self.card().capability)
            {
                Some(kept) => self.load(source.name, kept.ptx.as_bytes()),
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

impl Device for Gpu {
    fn name(&self) -> String {
        format!("cuda:{}", self.card().ordinal)
    }

    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError> {
        Ok(Buffer::cuda(self.zeroed(tag, bytes)?))
    }

    fn upload(&self, to: &mut Buffer, from: &[u8]) -> Result<(), DeviceError> {
        to.same_length(from.len())?;
        Ok(to.on_card_mut()?.write(0, from)?)
    }

    fn download(&self, from: &Buffer, to: &mut [u8]) -> Result<(), DeviceError> {
        from.same_length(to.len())?;
        Ok(from.on_card()?.read(0, to)?)
    }

    fn run(
        &self,
        program: &Program,
        len: usize,
        inputs: &[&Buffer],
        output: &mut Buffer,
    ) -> Result<(), DeviceError> {
        program.check_flat(len, inputs, output)?;
        let text = generate::text(program, inputs.len())?;
        let defines = output_defines(program.stores[0].element);
        let source = Source { name: "program.cu", text: &text, headers: &[PRELUDE], defines: &defines };
        let function = self.build(&source)?.function(generate::ENTRY)?;
        let mut arguments = Arguments::new();
        for input in inputs {
            arguments = arguments.u64(input.on_card()?.address());
        }
        let arguments = arguments.u64(output.on_card_mut()?.address()).u64(len as u64);
        let blocks = i32::try_from(len.div_ceil(generate::THREADS as usize));
        let blocks = blocks.map_err(|_| DeviceError::Value {
            program: program.name.clone(),
            op: program.stores[0].value,
            needed: "a launch of less than 2^31 blocks of lanes",
        })?;
        self.launch(
            &function,
            Grid { blocks: blocks.unsigned_abs(), threads: generate::THREADS, ..Grid::default() },
            arguments,
        )?;
        let (read, written) = program.traffic(len);
        self.inner.read.fetch_add(read.iter().sum::<usize>() as u64, Relaxed);
        self.inner.written.fetch_add(written.iter().sum::<usize>() as u64, Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(self.stream().sync()?)
    }

    fn clock(&self) -> Duration {
        self.inner.made.elapsed()
    }

    fn counts(&self) -> Counts {
        Counts {
            launches: self.launches(),
            read_bytes: self.inner.read.load(Relaxed),
            written_bytes: self.inner.written.load(Relaxed),
            allocated_bytes: self.usage().total,
        }
    }
}

/// The defines that choose a kernel text's output type.
pub fn output_defines(element: Element) -> [(&'static str, u32); 4] {
    [
        ("OUTPUT_F16", u32::from(element == Element::F16)),
        ("OUTPUT_BF16", u32::from(element == Element::Bf16)),
        ("OUTPUT_F32", u32::from(element == Element::F32)),
        ("INLINE_PTX", 1),
    ]
}
