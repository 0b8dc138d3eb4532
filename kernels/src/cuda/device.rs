//! The GPU behind the device's seam.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::blas;
use super::compile::{Source, Target, Unit, compile, compile_together};
use super::error::CudaError;
use super::kept::Kept;
use super::library::{self, Kind};
use super::module::Module;
use super::plan::CudaPlan;
use super::probe::Gpu;
use crate::buffer::Buffer;
use crate::device::{Counts, Device, Executable, Links, PlanTrial, Trial, Watermark};
use crate::error::DeviceError;
use crate::plan::{Choice, Plan, Product};
use crate::tile::Element;

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

impl Gpu {
    /// Texts as code on this card, the module that has each: see [`compile_together`].
    pub(super) fn build_together(
        &self,
        name: &str,
        prelude: &str,
        texts: &[String],
    ) -> Result<Vec<Module>, CudaError> {
        let target = Target::Machine(self.card().capability);
        let mut modules = vec![None; texts.len()];
        for Unit { image, texts } in compile_together(name, prelude, texts, target)? {
            let module = self.load(name, &image)?;
            for text in texts {
                modules[text] = Some(module.clone());
            }
        }
        Ok(modules.into_iter().map(|module| module.expect("each text is in a unit")).collect())
    }
}

impl Device for Gpu {
    fn name(&self) -> String {
        format!("cuda:{}", self.card().ordinal)
    }

    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError> {
        Ok(Buffer::cuda(self.zeroed(tag, bytes)?))
    }

    fn upload_at(&self, to: &mut Buffer, first: usize, from: &[u8]) -> Result<(), DeviceError> {
        to.has(first, from.len())?;
        to.on_card_mut()?.write(first, from)?;
        self.inner.uploaded.fetch_add(from.len() as u64, Relaxed);
        Ok(())
    }

    fn download_at(&self, from: &Buffer, first: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        from.has(first, to.len())?;
        from.on_card()?.read(first, to)?;
        self.check_faults()?;
        self.inner.downloaded.fetch_add(to.len() as u64, Relaxed);
        Ok(())
    }

    fn copy_at(
        &self,
        to: &mut Buffer,
        first: usize,
        from: &Buffer,
        at: usize,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        to.has(first, bytes)?;
        from.has(at, bytes)?;
        Ok(to.on_card_mut()?.copy(self.stream(), first, from.on_card()?, at, bytes)?)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.stream().sync()?;
        self.check_faults()
    }

    fn clock(&self) -> Duration {
        self.inner.made.elapsed()
    }

    fn counts(&self) -> Counts {
        let usage = self.usage();
        Counts {
            launches: self.launches(),
            read_bytes: self.inner.read.load(Relaxed),
            written_bytes: self.inner.written.load(Relaxed),
            allocated_bytes: usage.total,
            live_bytes: usage.current as u64,
            peak_bytes: usage.peak as u64,
            scratch_bytes: self.scratch().map_or(0, |scratch| scratch.bytes() as u64),
            uploaded_bytes: self.inner.uploaded.load(Relaxed),
            downloaded_bytes: self.inner.downloaded.load(Relaxed),
        }
    }

    fn watermark(&self) -> Result<Box<dyn Watermark + '_>, DeviceError> {
        self.sync()?; // what is freed is no longer in use
        Ok(Box::new(self.inner.pool.watermark()?))
    }

    fn choices(&self, product: &Product) -> Vec<Choice> {
        let algorithms =
            if blas::is_expressible(product) { self.count_algorithms(product).unwrap_or(0) } else { 0 };
        let all = (0..algorithms.max(1)).filter_map(|algorithm| u8::try_from(algorithm).ok());
        all.map(Choice::Algorithm).collect()
    }

    fn attends_narrow(&self) -> bool {
        self.card().capability >= (8, 0) // has the instructions of attention_mma.cuh
    }

    fn runs_side_by_side(&self) -> bool {
        true // in captured graphs
    }

    fn identity(&self) -> String {
        let version = library::open(Kind::CublasLt).ok().and_then(|found| found.version).unwrap_or_default();
        format!("{} {} cuBLASLt {}.{}", self.name(), self.card().name, version.0, version.1)
    }

    fn trial<'a>(&'a self, product: &Product) -> Result<Box<dyn Trial + 'a>, DeviceError> {
        Ok(Box::new(PlanTrial::new(self, product)?))
    }

    fn prepare<'a>(
        &'a self,
        plan: Arc<Plan>,
        links: &Links<'_, 'a>,
    ) -> Result<Box<dyn Executable + 'a>, DeviceError> {
        Ok(Box::new(CudaPlan::new(self, plan, links)?))
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
