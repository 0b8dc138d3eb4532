//! The one argument of a plan's kernel: words of 64 bits, each with a name in the kernel's text. What changes from run
//! to run - where memories lie - is written into them when a run begins; so equal kernels share their code, and a
//! launch looks nothing up.

use std::fmt::Write;

use crate::plan::{Memory, View};

/// The most words that a kernel's argument may have: 4 KiB, which is what a kernel's parameters may take.
/// Source: CUDA C++ Programming Guide, Function Parameters.
pub(super) const MOST: usize = 512;

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The same in every run.
    Number(u64),
    /// So many bytes from where a memory begins.
    Address(Memory, u64),
    /// So many bytes from where the device's scratch memory begins.
    Scratch(u64),
    /// Where a lane that fails leaves its note.
    Fault,
}

/// Words with their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    names: Vec<String>,
    words: Vec<Word>,
}

impl Words {
    /// One word more.
    pub fn push(&mut self, name: impl Into<String>, word: Word) {
        self.names.push(name.into());
        self.words.push(word);
    }

    /// A number.
    pub fn number(&mut self, name: impl Into<String>, value: usize) {
        self.push(name, Word::Number(value as u64));
    }

    /// The first element of a view, so many bytes each, and the elements between neighbours along each dimension.
    pub fn view(&mut self, name: &str, view: &View, element: usize, strides: &[usize]) {
        self.push(name, Word::Address(view.memory, (view.offset * element) as u64));
        strides.iter().enumerate().for_each(|(dim, stride)| self.number(format!("{name}_s{dim}"), *stride));
    }

    /// What a lane that fails needs; `site` is the step's number and one.
    pub fn fault(&mut self, site: usize) {
        self.push("fault", Word::Fault);
        self.number("site", site);
    }

    /// The struct of them in CUDA C++.
    pub fn declaration(&self, name: &str) -> String {
        let fields = self.names.iter().fold(String::new(), |mut text, name| {
            let _ = write!(text, " u64 {name};");
            text
        });
        format!("struct {name} {{{fields} }};\n")
    }

    /// The words alone.
    pub fn finish(self) -> Vec<Word> {
        self.words
    }
}
