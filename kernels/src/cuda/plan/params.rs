//! The one argument of a plan's kernel: a struct of parameters of 64 bits, each with a name in the kernel's text. What
//! changes from run to run - where memories lie - is written into them when a run begins; so equal kernels share their
//! code, and a launch looks nothing up.

use std::fmt::Write;

use crate::plan::{Memory, View};

/// The most parameters that a kernel's argument may have: 4 KiB, which is what CUDA passes to a kernel.
/// Source: CUDA C++ Programming Guide, Function Parameters.
pub(super) const MAX_PARAMS: usize = 512;

/// A parameter of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Param {
    /// The same in every run.
    Number(u64),
    /// So many bytes from where a memory begins.
    Address(Memory, u64),
    /// So many bytes from where the device's scratch memory begins.
    Scratch(u64),
    /// Where a lane that fails leaves its note.
    Fault,
}

/// A kernel's parameters with their names.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelParams {
    names: Vec<String>,
    params: Vec<Param>,
}

impl KernelParams {
    /// One parameter more.
    pub fn push(&mut self, name: impl Into<String>, param: Param) {
        self.names.push(name.into());
        self.params.push(param);
    }

    /// A number.
    pub fn number(&mut self, name: impl Into<String>, value: usize) {
        self.push(name, Param::Number(value as u64));
    }

    /// The first element of a view, so many bytes each, and the elements between neighbours along each dimension.
    pub fn view(&mut self, name: &str, view: &View, element: usize, strides: &[usize]) {
        self.push(name, Param::Address(view.memory, (view.offset * element) as u64));
        strides.iter().enumerate().for_each(|(dim, stride)| self.number(format!("{name}_s{dim}"), *stride));
    }

    /// What a lane that fails needs; see [`step_id`](super::fault::step_id).
    pub fn fault(&mut self, step_id: usize) {
        self.push("fault", Param::Fault);
        self.number("step_id", step_id);
    }

    /// The struct of them in CUDA C++.
    pub fn declaration(&self, name: &str) -> String {
        let fields = self.names.iter().fold(String::new(), |mut text, name| {
            let _ = write!(text, " u64 {name};");
            text
        });
        format!("struct {name} {{{fields} }};\n")
    }

    /// The parameters alone.
    pub fn finish(self) -> Vec<Param> {
        self.params
    }
}
