//! The CPU behind the device's seam.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::executable::CpuPlan;
use super::{Cpu, host};
use crate::buffer::Buffer;
use crate::device::{Counts, Device, Executable, Links, PlanTrial, Trial};
use crate::error::DeviceError;
use crate::plan::{Choice, Plan, Product};
use crate::tile::Element;

impl Device for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError> {
        let buffer = Buffer::new(tag, bytes)?.counted(&self.tally);
        self.allocated.fetch_add(bytes as u64, Relaxed);
        Ok(buffer)
    }

    fn upload_at(&self, to: &mut Buffer, first: usize, from: &[u8]) -> Result<(), DeviceError> {
        to.on_host()?;
        to.has(first, from.len())?;
        to.view_mut::<u8>()[first..][..from.len()].copy_from_slice(from);
        self.uploaded.fetch_add(from.len() as u64, Relaxed);
        Ok(())
    }

    fn download_at(&self, from: &Buffer, first: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        from.on_host()?;
        from.has(first, to.len())?;
        to.copy_from_slice(&from.view::<u8>()[first..][..to.len()]);
        self.downloaded.fetch_add(to.len() as u64, Relaxed);
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
        to.on_host()?;
        from.on_host()?;
        to.has(first, bytes)?;
        from.has(at, bytes)?;
        to.view_mut::<u8>()[first..][..bytes].copy_from_slice(&from.view::<u8>()[at..][..bytes]);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(()) // a run returns when it is done
    }

    fn clock(&self) -> Duration {
        self.made.elapsed()
    }

    fn counts(&self) -> Counts {
        let [live_bytes, peak_bytes] = self.tally.bytes();
        Counts {
            launches: self.launches(),
            read_bytes: self.read.load(Relaxed),
            written_bytes: self.written.load(Relaxed),
            allocated_bytes: self.allocated.load(Relaxed),
            live_bytes,
            peak_bytes,
            scratch_bytes: self.scratch.bytes(),
            uploaded_bytes: self.uploaded.load(Relaxed),
            downloaded_bytes: self.downloaded.load(Relaxed),
        }
    }

    fn choices(&self, product: &Product) -> Vec<Choice> {
        if product.elements != [Element::F32; 3] {
            return vec![Choice::Packed];
        }
        if self.threads() == 1 {
            return vec![Choice::Single, Choice::Packed];
        }
        let matrices: usize = product.batch.iter().product();
        let is_useful = |choice: &Choice| match choice {
            Choice::Library | Choice::Single | Choice::Packed => true,
            Choice::Rows => product.m > 1,
            Choice::Columns => product.n > 1,
            Choice::Batch => matrices > 1,
            Choice::Algorithm(_) => false,
        };
        Choice::ALL.into_iter().filter(is_useful).collect()
    }

    fn identity(&self) -> String {
        static PROCESSOR: LazyLock<String> =
            LazyLock::new(|| host().cpu.split_whitespace().collect::<Vec<_>>().join(" "));
        format!("{} {} {} {} threads", self.name(), *PROCESSOR, self.vector(), self.threads())
    }

    fn trial<'a>(&'a self, product: &Product) -> Result<Box<dyn Trial + 'a>, DeviceError> {
        Ok(Box::new(PlanTrial::new(self, product)?))
    }

    fn prepare<'a>(
        &'a self,
        plan: Arc<Plan>,
        links: &Links<'_, 'a>,
    ) -> Result<Box<dyn Executable + 'a>, DeviceError> {
        Ok(Box::new(CpuPlan::new(self, &plan, links)?))
    }
}
