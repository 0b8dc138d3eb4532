//! The flags of every verb, and what a grading verb makes of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use kernels::cuda::Gpu;
use reference::atomic_write;

use crate::course::{Backend, Course};
use crate::courses::{self, COURSES, Supplied};
use crate::gather::{Effort, Item};
use crate::random::fresh_seed;
use crate::rubric::RUBRICS;
use crate::score::{Attempt, Device, Plan, Scope};
use crate::scorecard::Scorecard;
use crate::terminal;
use crate::verify;
use crate::workbook::Workbook;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that does not exist: 2.
    Usage(String),
    /// The asked device cannot be had: 3.
    NoDevice(String),
    /// Reading or writing failed, or the grader did: 6.
    Fault(String),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AttemptName {
    Exercise,
    Solution,
}

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of every verb")]
#[allow(clippy::struct_excessive_bools)] // each is a flag of the published command line
pub(crate) struct Options {
    /// What to grade: the reader's exercise or the workbook's solution
    #[arg(long, global = true, value_enum)]
    attempt: Option<AttemptName>,
    /// auto, cpu, sim, cuda or cuda:N
    #[arg(long, global = true, default_value = "auto", value_parser = device)]
    pub device: Device,
    /// Ranks of challenge B, or of a graph
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// A checkpoint for challenges C and E
    #[arg(long, global = true, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The scorecard as JSON on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Where the output goes instead of standard output
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Writes the report as one self-contained HTML file, too
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Writes the report as Markdown, too
    #[arg(long, global = true, value_name = "FILE")]
    pub md: Option<PathBuf>,
    /// Seed of the generated inputs (decimal or 0x...); a fresh one if none is given
    #[arg(long, global = true, value_name = "S", value_parser = seed)]
    seed: Option<u64>,
    /// Only the checks and cases whose name contains this
    #[arg(long, global = true, value_name = "NAME")]
    case: Option<String>,
    /// Timed pairs a case; as many as the protocol needs if none is given
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: Option<u32>,
    /// Fewer samples and the published cases only
    #[arg(long, global = true)]
    quick: bool,
    /// Ends the whole command after so many seconds
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Exit code 4 if anything was inconclusive or could not be measured
    #[arg(long, global = true)]
    pub strict: bool,
    /// No colours
    #[arg(long, global = true)]
    no_color: bool,
}

fn device(text: &str) -> Result<Device, String> {
    match text.split_once(':').map_or((text, None), |(kind, number)| (kind, Some(number))) {
        ("auto", None) => Ok(Device::Auto),
        ("cpu", None) => Ok(Device::Cpu),
        ("sim", None) => Ok(Device::Sim),
        ("cuda", None) => Ok(Device::Cuda(0)),
        ("cuda", Some(number)) => {
            number.parse().map(Device::Cuda).map_err(|_| format!("{number:?} is no number of a GPU"))
        }
        _ => Err("expected auto, cpu, sim, cuda or cuda:N".into()),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected a number of 64 bits, decimal or 0x and hexadecimal".into())
}

/// The courses that a name means, on a back end or on the one that they have; or why it cannot be named here.
pub(crate) fn named(name: &str, backend: Backend) -> Result<Vec<&'static Course>, Failure> {
    let courses = courses::named(name, backend);
    if !courses.is_empty() {
        return Ok(courses);
    }
    let known = RUBRICS
        .iter()
        .find(|rubric| rubric.name == name.to_lowercase() || rubric.letter == name.to_uppercase());
    Err(match known {
        Some(rubric) => Failure::Usage(format!(
            "challenge {} ({}) is not part of this version",
            rubric.letter, rubric.name
        )),
        None => Failure::Usage(format!(
            "expected a challenge (nf4, fsdp, graph, issues, loss or A to E), found {name:?}{}",
            output_hint(name)
        )),
    })
}

/// A hint for a file that was given where a challenge is expected, as after `--json`, which has no value.
fn output_hint(name: &str) -> &'static str {
    const ENDS: [&str; 5] = ["json", "html", "md", "txt", "out"];
    let is_path = name.contains(['/', '\\']);
    let ends_so = Path::new(name).extension().is_some_and(|end| ENDS.iter().any(|known| end == *known));
    if is_path || ends_so { "; a file for the output is given as `-o FILE`: `--json -o FILE`" } else { "" }
}

/// Every challenge once, on a back end where it has it, else on the CPU.
fn default_courses(backend: Backend) -> Vec<&'static Course> {
    RUBRICS.iter().flat_map(|rubric| courses::of_challenge(rubric.name, backend)).collect()
}

/// Whether a name is the key of a course on a card, which says itself where it runs: `nf4.cuda`.
fn names_a_card(name: &str) -> bool {
    courses::of_key(&name.to_lowercase()).is_some_and(|course| course.backend == Backend::Cuda)
}

/// What `--quick` does not do.
fn left_out_by_quick(courses: &[&Course]) -> Vec<Item> {
    let of = |course: &Course, quick: bool| (course.items)(&Effort { quick, ..Effort::default() });
    let left_out = |course: &&Course| {
        let quick = of(course, true);
        let stays = move |item: &Item| quick.iter().any(|other| other.name == item.name);
        of(course, false).into_iter().filter(move |item| !stays(item)).collect::<Vec<_>>()
    };
    courses.iter().flat_map(left_out).collect()
}

/// Without a text to grade the command line asks for something that does not exist.
fn there_are_exercises(courses: &[&Course]) -> Result<(), Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    courses.iter().try_for_each(|course| workbook.exercise(course).map(drop)).map_err(Failure::Usage)
}

/// A file's one name, also before it is there.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.into(),
    }
}

impl Options {
    /// What a grading verb does.
    pub fn plan(&self, own: &Supplied, challenges: &[String], scope: Scope) -> Result<Plan, Failure> {
        if let Some(flag) = self.flag_without_meaning() {
            return Err(Failure::Usage(flag));
        }
        self.planned(own, challenges, scope)
    }

    /// What `graph FILE` does: challenge C's attempt, on ranks of the CPU.
    pub fn graph_plan(&self, own: &Supplied) -> Result<Plan, Failure> {
        if let Some(device) = match self.device {
            Device::Auto | Device::Cpu => None,
            Device::Sim => Some("sim".to_owned()),
            Device::Cuda(n) => Some(format!("cuda:{n}")),
        } {
            let message =
                format!("{device}: a graph of a file has no back end for it yet; it runs on the cpu");
            return Err(Failure::NoDevice(message));
        }
        let foreign = [
            ("--html", self.html.is_some()),
            ("--md", self.md.is_some()),
            ("--case", self.case.is_some()),
            ("--model", self.model.is_some()),
            ("--samples", self.samples.is_some()),
        ];
        if let Some((flag, _)) = foreign.into_iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(format!("{flag} has no meaning for graph FILE")));
        }
        let plan = self.planned(own, &["graph".into()], Scope::Test)?;
        let courses = plan.courses.iter().filter_map(|course| courses::on_the_cpu(course)).collect();
        Ok(Plan { device: Device::Cpu, courses, ..plan })
    }

    fn planned(&self, own: &Supplied, challenges: &[String], scope: Scope) -> Result<Plan, Failure> {
        self.writes_elsewhere(&[])?;
        if let Device::Cuda(n) = self.device {
            let found = Gpu::nth(n); // a card can be listed and still not start
            found.map_err(|reason| Failure::NoDevice(format!("cuda:{n} cannot be had: {reason}")))?;
        }
        let attempt = self.attempt(own.any());
        let supplied = if attempt == Attempt::Own { own.clone() } else { Supplied::everything() };
        let backend = self.backend(&supplied);
        let (mut courses, mut step): (Vec<&Course>, _) = (Vec::new(), None);
        for name in challenges {
            let (mut named, is_step) = self.courses(name, backend)?;
            if !names_a_card(name) {
                self.move_to_the_cpu(&mut named, &supplied);
            }
            if is_step {
                self.there_is_a_card(named[0], name)?;
                step = Some(name.to_uppercase()); // `test A.3`: that step alone
            }
            if named.iter().any(|course| supplied.has(course)) {
                named.retain(|course| supplied.has(course)); // of several parts those that are handed in
            }
            courses.extend(named);
        }
        if let Some(course) = courses.iter().find(|course| !supplied.has(course)) {
            return Err(Failure::Usage(course.not_handed_in()));
        }
        if courses.is_empty() {
            courses = default_courses(backend);
            self.move_to_the_cpu(&mut courses, &supplied);
            courses.retain(|course| supplied.has(course));
        }
        let takes_a_model = |course: &&Course| ["graph", "loss"].contains(&course.name);
        if self.model.is_some() && !courses.iter().any(takes_a_model) {
            return Err(Failure::Usage("--model is for challenges C (graph) and E (loss)".into()));
        }
        if attempt == Attempt::Exercise {
            there_are_exercises(&courses)?;
        }
        Ok(Plan {
            attempt,
            device: self.device.clone(),
            courses,
            scope,
            step,
            case: self.case.clone(),
            effort: self.effort(),
            has_no_limit: false,
            progress: terminal::progress(),
        })
    }

    /// What runs a report's attempt anew: its challenges, where they ran, with its seed.
    pub fn again(&self, own: &Supplied, card: &Scorecard) -> Result<Plan, Failure> {
        let unusable = |what: &str| Failure::Usage(format!("--again: {what}"));
        let (Some(attempt), Some(seed)) = (verify::attempt(card), verify::seed(card)) else {
            return Err(unusable("expected a report's attempt and seed, found none"));
        };
        if self.seed.is_some() {
            return Err(unusable("the seed is the report's, expected no --seed"));
        }
        if attempt == Attempt::Own && !own.any() {
            return Err(unusable("expected the program that handed the attempt in, found the workbook's"));
        }
        let ran = || card.challenges.iter().filter(|challenge| challenge.attempted);
        let courses: Vec<&Course> = ran().flat_map(courses::that_ran).map(|(course, _)| course).collect();
        if courses.is_empty() {
            return Err(unusable("expected a report of an attempt, found none"));
        }
        if attempt == Attempt::Exercise {
            there_are_exercises(&courses)?;
        }
        let device = ran().find_map(|ran| ran.device.strip_prefix("cuda:")?.parse().ok());
        if let Some(n) = device {
            Gpu::nth(n).map_err(|reason| Failure::NoDevice(format!("cuda:{n} cannot be had: {reason}")))?;
        }
        let left_out = left_out_by_quick(&courses);
        let is_whole = |name: &String| left_out.iter().any(|item| item.may_measure(name));
        let is_whole = ran().flat_map(|ran| ran.measurements.keys()).any(is_whole);
        let shows = !left_out.is_empty();
        Ok(Plan {
            attempt,
            device: device.map_or(Device::Auto, Device::Cuda),
            courses,
            scope: Scope::Score,
            step: None,
            case: self.case.clone(),
            effort: Effort { seed, quick: self.quick || (shows && !is_whole), ..Effort::default() },
            has_no_limit: false,
            progress: terminal::progress(),
        })
    }

    /// Every file that is written is a regular one, no other than the others, and none of those that are read.
    ///
    /// # Errors
    /// The flag, and what its file is, in a sentence.
    pub fn writes_elsewhere(&self, read: &[&Path]) -> Result<(), Failure> {
        self.writes_elsewhere_with(read, ("", &None))
    }

    /// [`Self::writes_elsewhere`] with a verb's own flag.
    ///
    /// # Errors
    /// As there.
    pub fn writes_elsewhere_with(
        &self,
        read: &[&Path],
        own: (&str, &Option<PathBuf>),
    ) -> Result<(), Failure> {
        let flags = [("-o", &self.output), ("--html", &self.html), ("--md", &self.md), own];
        let mut taken: Vec<PathBuf> = read.iter().filter_map(|path| path.canonicalize().ok()).collect();
        for (flag, path) in flags.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            let refused = |what: &str| Failure::Usage(format!("{flag} {}: {what}", path.display()));
            let target = match atomic_write::target(path) {
                Err(error) if error.kind() == ErrorKind::NotADirectory => continue, // reported when it is written
                target => target.map_err(|error| refused(&error.to_string()))?.0,
            };
            let place = place(&target);
            if taken.contains(&place) {
                return Err(refused("expected a file of its own, found one that is read or written already"));
            }
            taken.push(place);
        }
        Ok(())
    }

    /// The back end that the device means: with `auto` a GPU where one answers and there are kernels to run.
    pub fn backend(&self, supplied: &Supplied) -> Backend {
        let twin = |course: &Course| courses::of_key(&course.folders().collect::<Vec<_>>().join("."));
        let mut on_card = COURSES
            .iter()
            .filter(|course| course.backend == Backend::Cuda && supplied.has(course))
            .peekable();
        let any = on_card.peek().is_some();
        let only = on_card.all(|course| twin(course).is_none_or(|twin| !supplied.has(twin)));
        match self.device {
            Device::Cuda(_) => Backend::Cuda,
            Device::Auto if any && (only || Gpu::look(0).is_ok()) => Backend::Cuda,
            Device::Auto | Device::Cpu | Device::Sim => Backend::Cpu,
        }
    }

    /// With `auto`, what is not handed in for a card, or lacks something there, runs on the CPU where it can.
    fn move_to_the_cpu(&self, courses: &mut [&'static Course], supplied: &Supplied) {
        if self.device != Device::Auto {
            return;
        }
        for course in courses.iter_mut().filter(|course| course.backend == Backend::Cuda) {
            let stays = supplied.has(course) && self.device.cannot_run(course).is_none();
            let twin = courses::on_the_cpu(course).filter(|twin| !stays && supplied.has(twin));
            *course = twin.unwrap_or(course);
        }
    }

    /// A step that runs on a GPU asks for one.
    fn there_is_a_card(&self, course: &Course, step: &str) -> Result<(), Failure> {
        if course.backend == Backend::Cpu || self.device != Device::Auto {
            return Ok(());
        }
        let found = Gpu::look(0);
        found.map(drop).map_err(|reason| Failure::NoDevice(format!("{step} runs on a GPU: {reason}")))
    }

    /// The courses of a challenge, or the one of a step, and whether a step was named. A step says itself where it
    /// runs, unless the command line does.
    pub fn courses(&self, name: &str, backend: Backend) -> Result<(Vec<&'static Course>, bool), Failure> {
        if let (found, Some((challenge, _))) = (courses::named(name, backend), name.split_once('.')) {
            return if found.is_empty() {
                self.of_step(challenge, name, backend)
            } else {
                Ok((found, false))
            };
        }
        Ok((named(name, backend)?, false))
    }

    fn of_step(
        &self,
        challenge: &str,
        name: &str,
        backend: Backend,
    ) -> Result<(Vec<&'static Course>, bool), Failure> {
        let known = named(challenge, backend);
        let by_letter = known.map_err(|failure| named(name, backend).err().unwrap_or(failure))?;
        let Some(of_step) = courses::of_step(&name.to_uppercase(), backend) else {
            return Err(Failure::Usage(format!(
                "challenge {} has no step {name}: `cargo grader list` shows them",
                by_letter[0].letter()
            )));
        };
        Ok((if self.device == Device::Auto { vec![of_step] } else { by_letter }, true))
    }

    /// Whose attempt is meant.
    pub fn attempt(&self, own: bool) -> Attempt {
        match self.attempt {
            Some(AttemptName::Solution) => Attempt::Solution,
            _ if own => Attempt::Own,
            _ => Attempt::Exercise,
        }
    }

    fn effort(&self) -> Effort {
        Effort {
            seed: self.seed.unwrap_or_else(fresh_seed),
            quick: self.quick,
            samples: self.samples.map(|samples| samples as usize),
            model: self.model.as_ref().map(|model| model.display().to_string()),
            shows_calls: false,
        }
    }

    /// A flag for a challenge that is not built has no meaning yet, and saying nothing would hide that.
    fn flag_without_meaning(&self) -> Option<String> {
        self.ranks.map(|_| "--ranks is for challenges that are not part of this version".into())
    }

    /// The ranks that are asked for.
    pub fn ranks(&self) -> Option<usize> {
        self.ranks.map(|ranks| ranks as usize)
    }

    /// Whether text may be coloured.
    pub fn color(&self) -> bool {
        let wanted = !self.no_color && std::env::var_os("NO_COLOR").is_none();
        // on Windows a console's colours are turned on by asking for them
        wanted && self.output.is_none() && console::Term::stdout().features().colors_supported()
    }
}
