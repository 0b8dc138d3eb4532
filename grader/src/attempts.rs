//! What a program hands in, and the three things that it can be started as.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use challenges::graph::Compile;
use challenges::issues::chat::{self, Chat};
use challenges::loss::Chunked;
use challenges::nf4::cuda::Attempt as Kernels;
use challenges::nf4::{Nf4, Solution};

use crate::course::{Back, Course};
use crate::gather::{CHILD_FLAG, Source, run_child};
use crate::step::{AS_TIMED, STEP_FLAG};
use crate::{cli, course};

/// What a program hands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each challenge is handed in or not, whatever the others are
pub(crate) struct Handed {
    /// Rust for challenge A.
    pub nf4: bool,
    /// Kernels for challenge A.
    pub kernels: bool,
    /// Rust for challenge C.
    pub graph: bool,
    /// Rust for the part of challenge D that calls tools.
    pub chat: bool,
    /// Rust for challenge E.
    pub loss: bool,
}

impl Handed {
    /// As the workbook does.
    pub const EVERYTHING: Self = Self { nf4: true, kernels: true, graph: true, chat: true, loss: true };

    /// Whether it hands in anything.
    pub fn any(self) -> bool {
        self.nf4 || self.kernels || self.graph || self.chat || self.loss
    }

    /// Whether it hands in an attempt at a challenge for what runs it.
    pub fn has(self, course: &Course) -> bool {
        match (course.name, course.back) {
            ("nf4", Back::Cpu) => self.nf4,
            ("nf4", Back::Cuda) => self.kernels,
            ("issues", _) => self.chat,
            ("loss", _) => self.loss,
            _ => self.graph,
        }
    }
}

/// A program's own attempts, one for each challenge it wants graded.
#[derive(Default)]
pub struct Attempts {
    nf4: Option<Box<dyn Nf4>>,
    nf4_kernels: Option<Kernels>,
    graph: Option<Box<dyn Compile>>,
    chat: Option<Arc<dyn Chat>>,
    loss: Option<Box<dyn Chunked>>,
}

impl Attempts {
    /// None: the workbook's exercise and solution are graded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands in an attempt at challenge A.
    #[must_use]
    pub fn nf4(mut self, attempt: impl Nf4 + 'static) -> Self {
        self.nf4 = Some(Box::new(attempt));
        self
    }

    /// Hands in an attempt at challenge A on CUDA: a text with the kernels of every step.
    #[must_use]
    pub fn nf4_cuda(mut self, attempt: Kernels) -> Self {
        self.nf4_kernels = Some(attempt);
        self
    }

    /// Hands in an attempt at challenge C.
    #[must_use]
    pub fn graph(mut self, attempt: impl Compile + 'static) -> Self {
        self.graph = Some(Box::new(attempt));
        self
    }

    /// Hands in an attempt at the part of challenge D that calls tools.
    #[must_use]
    pub fn chat(mut self, attempt: impl Chat + 'static) -> Self {
        self.chat = Some(Arc::new(attempt));
        self
    }

    /// Hands in an attempt at challenge E.
    #[must_use]
    pub fn loss(mut self, attempt: impl Chunked + 'static) -> Self {
        self.loss = Some(Box::new(attempt));
        self
    }

    /// Runs the grader's command line; `arguments` begin with the program's name.
    ///
    /// The same program also serves as the child process that an attempt runs in, and as the process that is
    /// single-stepped; hidden first arguments tell.
    pub fn run(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let text = |i: usize| arguments.get(i).and_then(|argument| argument.to_str()).unwrap_or_default();
        match text(1) {
            CHILD_FLAG => self.serve(),
            STEP_FLAG => self.step_through(text(2), text(3), text(4) == AS_TIMED),
            _ => cli::run(&self, arguments),
        }
    }

    /// What was handed in.
    pub(crate) fn handed(&self) -> Handed {
        Handed {
            nf4: self.nf4.is_some(),
            kernels: self.nf4_kernels.is_some(),
            graph: self.graph.is_some(),
            chat: self.chat.is_some(),
            loss: self.loss.is_some(),
        }
    }

    /// The attempt at A: what was handed in, or the solution.
    pub(crate) fn nf4_attempt(&self, source: Source) -> &dyn Nf4 {
        match (source, &self.nf4) {
            (Source::Own, Some(own)) => own.as_ref(),
            _ => &Solution,
        }
    }

    /// The attempt at A that belongs to an attempt at another challenge: the solution's is the solution.
    pub(crate) fn nf4_beside(&self, source: Source) -> Option<&dyn Nf4> {
        match source {
            Source::Own => self.nf4.as_deref(),
            Source::Solution => Some(&Solution),
        }
    }

    /// The attempt at C: what was handed in, or the solution.
    pub(crate) fn graph_attempt(&self, source: Source) -> &dyn Compile {
        match (source, &self.graph) {
            (Source::Own, Some(own)) => own.as_ref(),
            _ => &challenges::graph::Solution,
        }
    }

    /// The attempt at C that belongs to an attempt at another challenge, where it is not the solution.
    pub(crate) fn graph_beside(&self, source: Source) -> Option<&dyn Compile> {
        match source {
            Source::Own => self.graph.as_deref(),
            Source::Solution => None,
        }
    }

    /// The attempt at the part of challenge D that calls tools, or the solution.
    pub(crate) fn chat_attempt(&self, source: Source) -> Arc<dyn Chat> {
        match (source, &self.chat) {
            (Source::Own, Some(attempt)) => attempt.clone(),
            _ => Arc::new(chat::Solution),
        }
    }

    /// The attempt at challenge E, or the solution.
    pub(crate) fn loss_attempt(&self, source: Source) -> &dyn Chunked {
        match (source, &self.loss) {
            (Source::Own, Some(attempt)) => attempt.as_ref(),
            _ => &challenges::loss::Solution,
        }
    }

    /// The kernels of A: the reader's text, what was handed in, or the solution.
    pub(crate) fn nf4_kernels(&self, source: Source, text: Option<&Path>) -> Result<Kernels, String> {
        if let Some(path) = text {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            return Ok(Kernels { name: "exercise.cu".into(), text });
        }
        match (source, &self.nf4_kernels) {
            (Source::Own, Some(own)) => Ok(own.clone()),
            (Source::Own, None) => Err("this program hands in no kernels for challenge A".into()),
            (Source::Solution, _) => Ok(Kernels::solution()),
        }
    }

    fn serve(&self) -> ExitCode {
        run_child(|child, item| {
            let source = child.request.source;
            let back = if child.request.on_card { Back::Cuda } else { Back::Cpu };
            if let Some(course) = course::find(&child.request.challenge, back) {
                (course.work)(child, self, source, item);
            }
        })
    }

    fn step_through(&self, challenge: &str, source: &str, as_timed: bool) -> ExitCode {
        let source = if source == "own" { Source::Own } else { Source::Solution };
        let done =
            course::find(challenge, Back::Cpu).map(|course| (course.step_through)(self, source, as_timed));
        if matches!(done, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
