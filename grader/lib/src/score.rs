//! From a command to a scorecard: which attempt, on which device, what was seen, what it is worth.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use kernels::cuda::Gpu;
use kernels::{Vector, Which, cpu};

use crate::course::{self, Backend, Course};
use crate::courses::{self, COURSES};
use crate::evidence::{Seen, unmeasured};
use crate::expected::Expected;
use crate::gather::{Effort, Gathered, Item, Launch, Request, Source, gather};
use crate::pace::Pace;
use crate::report;
use crate::rubric::{Facts, RUBRICS, Rubric, possible};
use crate::scorecard::{Basis, Challenge, Check, ELSEWHERE, Guard, Machine, Measurement, Outcome, Scorecard};
use crate::stub::{Language, code_hash};
use crate::workbook::{NotBuilt, Program, Workbook, folder};

/// Whose attempt is graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The reader's text in the workbook.
    Exercise,
    /// The workbook's solution.
    Solution,
    /// What the program's own `main` handed in.
    Own,
}

/// Which items are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything.
    Score,
    /// Checks and guards.
    Test,
    /// Timed cases and what is watched.
    Bench,
}

/// What a run does.
pub(crate) struct Plan {
    pub attempt: Attempt,
    pub device: Device,
    pub courses: Vec<&'static Course>,
    pub scope: Scope,
    /// One step alone.
    pub step: Option<String>,
    /// What the names of checks and cases must hold.
    pub case: Option<String>,
    pub effort: Effort,
    /// Whether an item may take as long as it likes: a debugger holds it.
    pub has_no_limit: bool,
    pub progress: Box<dyn Fn(&str)>,
}

impl Plan {
    /// Whether no check is left out by its name.
    pub fn is_all(&self) -> bool {
        self.step.is_none() && self.case.is_none()
    }

    /// The courses of a challenge that are run.
    fn courses_of(&self, rubric: &Rubric) -> Vec<&'static Course> {
        self.courses.iter().copied().filter(|course| course.name == rubric.name).collect()
    }

    /// The device of a challenge, as reports name it: its first course decides.
    fn device_of(&self, courses: &[&Course]) -> Option<String> {
        Some(self.device.name(courses.first()?.backend))
    }
}

/// The device that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A GPU where one answers and the challenge has a back end for it, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The simulator.
    Sim,
    /// A GPU by number.
    Cuda(usize),
}

impl Device {
    /// As reports name it, for a course that runs on a back end.
    pub fn name(&self, back: Backend) -> String {
        match (self, back) {
            (Self::Auto, Backend::Cuda) => "cuda:0".into(),
            (Self::Auto | Self::Cpu, _) => "cpu".into(),
            (Self::Sim, _) => "sim".into(),
            (Self::Cuda(n), _) => format!("cuda:{n}"),
        }
    }

    /// Why a course cannot run here, if so.
    pub fn cannot_run(&self, course: &Course) -> Option<String> {
        let lacking =
            || format!("challenge {} has no back end for {} yet", course.letter(), self.name(course.backend));
        match (self, course.backend) {
            (Self::Auto | Self::Cuda(_), Backend::Cuda) => self.card_lacks(course.language),
            (Self::Auto | Self::Cpu, Backend::Cpu) => None,
            _ => Some(lacking()),
        }
    }

    /// What a card lacks for an attempt: kernels need the driver, plans also the libraries that they call.
    fn card_lacks(&self, language: Language) -> Option<String> {
        let ordinal = self.ordinal();
        match language {
            Language::Cuda => Gpu::look(ordinal).err().map(|reason| reason.to_string()),
            Language::Rust => Which::Cuda(ordinal).look().err().map(|reason| reason.to_string()),
        }
    }

    /// The GPU's number.
    fn ordinal(&self) -> usize {
        if let Self::Cuda(n) = self { *n } else { 0 }
    }
}

impl Attempt {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exercise => "exercise",
            Self::Solution => "solution",
            Self::Own => "own",
        }
    }
}

/// Why a run has no whole scorecard.
pub(crate) enum RunError {
    /// A fault of the grader or of the machine under it, in a sentence.
    Fault(String),
    /// The scorecard could not be written while it was made; what was scored until then.
    Write(io::Error, Box<Scorecard>),
}

/// Runs a plan.
///
/// # Errors
/// A fault of the grader or of the machine under it, in a sentence.
pub(crate) fn run(plan: &Plan) -> Result<Scorecard, String> {
    run_with(plan, &mut |_| Ok(())).map_err(|ended| match ended {
        RunError::Fault(message) => message,
        RunError::Write(error, _) => error.to_string(),
    })
}

/// Runs a plan and hands `on_update` the scorecard while it is made: before anything runs, and with each challenge that
/// is scored. Its challenges come in the published order, its sums are those of the challenges that it holds.
///
/// # Errors
/// A fault, or that `on_update` failed. The children have ended by then.
pub(crate) fn run_with(
    plan: &Plan,
    on_update: &mut dyn FnMut(&Scorecard) -> io::Result<()>,
) -> Result<Scorecard, RunError> {
    let card = graded(plan, on_update);
    (plan.progress)(""); // whatever is printed next has the line to itself
    card
}

fn graded(
    plan: &Plan,
    on_update: &mut dyn FnMut(&Scorecard) -> io::Result<()>,
) -> Result<Scorecard, RunError> {
    let pace = pace(plan);
    let mut card = begun(plan);
    let mut update = |card: &Scorecard| {
        (plan.progress)("");
        on_update(card).map_err(|error| RunError::Write(error, Box::new(card.clone())))
    };
    update(&card)?;
    for rubric in &RUBRICS {
        let courses = plan.courses_of(rubric);
        if courses.is_empty() {
            add(&mut card, absent(rubric), Vec::new());
        } else {
            let parts = courses.iter().map(|course| grade(plan, course, &pace)).collect::<Result<_, _>>();
            let graded = together(&courses, parts.map_err(RunError::Fault)?);
            let challenge = challenge(rubric, plan, &courses, &graded, &card.machine);
            add(&mut card, challenge, graded.guards);
        }
        update(&card)?;
    }
    pace.over();
    Ok(card)
}

/// Whether a plan has anything to do: a name may fit no check and no case.
pub(crate) fn has_items(plan: &Plan) -> bool {
    plan.courses.iter().any(|course| !chosen(plan, (course.items)(&plan.effort)).is_empty())
}

/// Whether a challenge will have run, as far as its items tell: a check always has an outcome, a number may stay
/// unmeasured.
pub(crate) fn will_run(plan: &Plan, rubric: &Rubric) -> Option<bool> {
    let courses = plan.courses_of(rubric).into_iter();
    let items: Vec<Item> = courses.flat_map(|course| chosen(plan, (course.items)(&plan.effort))).collect();
    if items.is_empty() { Some(false) } else { items.iter().any(Item::is_check).then_some(true) }
}

/// Runs the first course of a plan; its checks, and what the attempt printed meanwhile.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_printing(plan: &Plan) -> Result<(Vec<Check>, String), String> {
    let graded = grade(plan, plan.courses[0], &pace(plan));
    (plan.progress)("");
    graded.map(|graded| (graded.checks, graded.printed))
}

/// The items of a plan. Their seconds are kept where they are shown: with a reader at a terminal.
fn pace(plan: &Plan) -> Pace {
    let of_course = |course: &&'static Course| {
        let items = chosen(plan, (course.items)(&plan.effort));
        items.into_iter().map(|item| timed_as(plan, course, &item.name)).collect::<Vec<_>>()
    };
    let file = Workbook::find().ok().filter(|_| std::io::stderr().is_terminal());
    let file = file.map(|workbook| folder(&workbook).join("times.json"));
    Pace::new(plan.courses.iter().flat_map(of_course).collect(), file)
}

/// What the seconds of an item are kept under: they depend on whose attempt it is, and on how much is measured.
fn timed_as(plan: &Plan, course: &Course, item: &str) -> String {
    let effort = if plan.effort.quick { "quick" } else { "whole" };
    format!("{} {effort} {} {item}", plan.attempt.name(), course.key())
}

/// What was seen of one attempt, and the hash of its code.
#[derive(Default)]
struct Graded {
    code: String,
    printed: String,
    guards: Vec<Guard>,
    checks: Vec<Check>,
    measurements: BTreeMap<String, Measurement>,
    unmeasured: BTreeMap<String, String>,
}

/// What was seen of all parts of a challenge.
fn together(courses: &[&Course], parts: Vec<Graded>) -> Graded {
    let codes: Vec<(&Course, String)> =
        courses.iter().copied().zip(parts.iter().map(|part| part.code.clone())).collect();
    let mut all = Graded { code: course::code(&codes), ..Graded::default() };
    for part in parts {
        all.printed.push_str(&part.printed);
        all.guards.extend(part.guards);
        all.checks.extend(part.checks);
        all.measurements.extend(part.measurements);
        all.unmeasured.extend(part.unmeasured);
    }
    all
}

fn grade(plan: &Plan, course: &'static Course, pace: &Pace) -> Result<Graded, String> {
    let items = chosen(plan, (course.items)(&plan.effort));
    if let Some(reason) = plan.device.cannot_run(course) {
        return Ok(without_answer(plan, course, &items, Outcome::NotMeasured, |_| reason.clone()));
    }
    let Start { launch, source, code, text, _built } = match start(plan, course) {
        Ok(start) => start,
        Err(NotBuilt::Unavailable(reason)) => return Err(reason),
        Err(NotBuilt::Refused { step, words }) => {
            let is_of = |name: &str, step: &str| name.starts_with(&format!("{step}/"));
            let describe = |check: &str| match &step {
                Some(step) if !is_of(check, step) => {
                    let why = format!("{ELSEWHERE}{step}");
                    let is_told = items.iter().any(|item| is_of(&item.name, step));
                    if is_told { why } else { format!("{why}\n{words}") }
                }
                _ => words.clone(),
            };
            let code = code_hash(&exercise(course)?);
            return Ok(Graded {
                code,
                ..without_answer(plan, course, &items, Outcome::DoesNotCompile, describe)
            });
        }
    };
    let request = Request {
        challenge: course.name.into(),
        course: course.key(),
        source,
        effort: plan.effort.clone(),
        ranks: course.ranks,
        memory_limit: memory_limit(plan, course),
        ordinal: plan.device.ordinal(),
        text: text.as_ref().map(|file| file.path().to_path_buf()),
        graph: None,
    };
    let progress = |item: &str| (plan.progress)(&pace.begin(&timed_as(plan, course, item), item));
    let gathered =
        gather(&launch, &request, &items, &progress).map_err(|error| format!("no child process: {error}"))?;
    let Gathered { checks, guards, measurements, unmeasured, printed, .. } = gathered;
    Ok(Graded { code, printed, guards, checks, measurements, unmeasured })
}

/// Bytes that a child may hold: what the course needs; beside a reader's own checkpoint, most of what there is.
fn memory_limit(plan: &Plan, course: &Course) -> usize {
    let most = usize::try_from(cpu::host().memory_bytes / 4 * 3).unwrap_or(usize::MAX);
    if plan.effort.model.is_some() { most.max(course.memory_limit) } else { course.memory_limit }
}

/// The reader's text.
fn exercise(course: &Course) -> Result<String, String> {
    Workbook::find()?.exercise(course)
}

/// As long as nobody sits at a breakpoint.
const A_DAY: Duration = Duration::from_hours(24);

/// The items that the scope and `--case` leave.
fn chosen(plan: &Plan, items: Vec<Item>) -> Vec<Item> {
    let is_asked = plan.case.is_some(); // by its name: else what takes as long as a measurement is no quick test
    let in_scope = |item: &Item| match plan.scope {
        Scope::Score => true,
        Scope::Test => item.group() == "guard" || (item.is_check() && (is_asked || !item.is_measured())),
        Scope::Bench => matches!(item.group(), "bench" | "watch") || item.is_measured(),
    };
    let of_step = |item: &Item| plan.step.as_ref().is_none_or(|step| item.group() == step);
    let alone = plan.effort.shows_calls; // a replay: that check, and none whose name holds its name
    let named = |item: &Item| {
        plan.case
            .as_ref()
            .is_none_or(|case| if alone { item.name == *case } else { item.name.contains(case.as_str()) })
    };
    let limit = |item: Item| Item { limit: if plan.has_no_limit { A_DAY } else { item.limit }, ..item };
    items.into_iter().filter(|item| in_scope(item) && of_step(item) && named(item)).map(limit).collect()
}

/// How a child is started.
pub(crate) struct Start {
    /// The program.
    pub launch: Launch,
    /// What it is to work on.
    pub source: Source,
    /// The hash of the attempt's code.
    code: String,
    /// A copy of the reader's kernels, so that a save in the middle of a run changes nothing.
    text: Option<tempfile::NamedTempFile>,
    /// What was built of the reader's text, as long as it is run.
    _built: Option<Program>,
}

/// The program to start, and what it is to work on.
pub(crate) fn start(plan: &Plan, course: &'static Course) -> Result<Start, NotBuilt> {
    let own = || {
        std::env::current_exe()
            .map_err(|error| NotBuilt::Unavailable(format!("this program has no path: {error}")))
    };
    let here = |program: PathBuf| Launch { program, arguments: Vec::<OsString>::new() };
    match plan.attempt {
        Attempt::Solution => {
            let code = code_hash(course.solution());
            Ok(Start { launch: here(own()?), source: Source::Solution, code, text: None, _built: None })
        }
        Attempt::Own => Ok(Start {
            launch: here(own()?),
            source: Source::Own,
            code: String::new(),
            text: None,
            _built: None,
        }),
        Attempt::Exercise if course.language == Language::Cuda => {
            let text = Workbook::find().map_err(NotBuilt::Unavailable)?.screened(course)?;
            let copy = kept_aside(&text).map_err(|error| {
                NotBuilt::Unavailable(format!("no temporary file can be written: {error}"))
            })?;
            Ok(Start {
                launch: here(own()?),
                source: Source::Own,
                code: code_hash(&text),
                text: Some(copy),
                _built: None,
            })
        }
        Attempt::Exercise => {
            let workbook = Workbook::find().map_err(NotBuilt::Unavailable)?;
            let code = code_hash(&exercise(course).map_err(NotBuilt::Unavailable)?);
            (plan.progress)("compiling the exercise");
            let built = workbook.build(course)?;
            let launch = here(built.path.clone());
            Ok(Start { launch, source: Source::Own, code, text: None, _built: Some(built) })
        }
    }
}

/// A text in a file of its own, removed with the value.
fn kept_aside(text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Every check with the same outcome, because none could be run.
fn without_answer(
    plan: &Plan,
    course: &Course,
    items: &[Item],
    outcome: Outcome,
    detail: impl Fn(&str) -> String,
) -> Graded {
    let checks = items.iter().filter(|item| item.is_check()).map(|item| Check {
        name: item.name.clone(),
        outcome,
        detail: detail(&item.name),
        replay: crate::calls::replay_command(course.name, &item.name, plan.effort.seed),
    });
    let guards = items.iter().filter_map(Item::guard).map(|name| Guard {
        challenge: course.name.into(),
        name: name.into(),
        ran: false,
        tripped: false,
        detail: String::new(),
    });
    Graded {
        code: String::new(),
        printed: String::new(),
        checks: checks.collect(),
        guards: guards.collect(),
        measurements: BTreeMap::new(),
        unmeasured: BTreeMap::new(),
    }
}

fn challenge(
    rubric: &Rubric,
    plan: &Plan,
    courses: &[&Course],
    graded: &Graded,
    machine: &Machine,
) -> Challenge {
    let Graded { code, guards, checks, measurements, unmeasured, .. } = graded;
    let facts = match Expected::of(courses, Vector::widest()).part(checks, guards) {
        Some(part) => of_part(rubric, &part),
        None => courses::facts(rubric, courses, &Seen { checks, guards, measurements, unmeasured }, machine),
    };
    let mut measurements = measurements.clone();
    let totals: Vec<_> =
        courses.iter().filter_map(|course| course.total.and_then(|total| total(&measurements))).collect();
    measurements.extend(totals.into_iter().map(|(name, total)| (name.to_owned(), total)));
    judged(
        rubric,
        &facts,
        Challenge {
            device: plan.device_of(courses).unwrap_or_default(),
            code: code.clone(),
            attempted: checks.iter().any(|check| is_attempt(check.outcome)) || !measurements.is_empty(),
            checks: checks.clone(),
            measurements,
            ..blank(rubric, true)
        },
    )
}

/// The facts of a run of part of the checks and guards: nothing is measured by it.
pub(crate) fn of_part(rubric: &Rubric, part: &str) -> Facts {
    rubric.facts().into_iter().map(|name| (name, unmeasured(part))).collect()
}

/// Whether a check saw more than a hole.
pub(crate) fn is_attempt(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Passed | Outcome::Wrong | Outcome::DoesNotCompile)
}

/// Fills in the rows and points from the facts.
pub(crate) fn judged(rubric: &Rubric, facts: &Facts, challenge: Challenge) -> Challenge {
    let score = rubric.score(facts, &challenge.device);
    let looked = challenge.attempted || !challenge.checks.is_empty(); // else nobody asked for it
    let points = if challenge.attempted || !looked { score.points } else { rubric.not_attempted };
    Challenge { points, unmeasured: score.unmeasured + score.points - points, rows: score.rows, ..challenge }
}

pub(crate) fn blank(rubric: &Rubric, built: bool) -> Challenge {
    Challenge {
        name: rubric.name.into(),
        letter: rubric.letter.into(),
        built,
        attempted: false,
        device: "cpu".into(),
        code: String::new(),
        points: 0,
        possible: rubric.possible,
        unmeasured: 0,
        rows: vec![],
        checks: vec![],
        measurements: BTreeMap::new(),
    }
}

/// A challenge that is not built, or that nobody asked for.
pub fn absent(rubric: &Rubric) -> Challenge {
    let built = COURSES.iter().any(|course| course.name == rubric.name);
    let reason = if built { "not asked for" } else { "not part of this version" };
    let facts = rubric.facts().into_iter().map(|name| (name, unmeasured(reason))).collect();
    let blank = blank(rubric, built);
    let score = rubric.score(&facts, &blank.device);
    Challenge { unmeasured: score.unmeasured, rows: score.rows, ..blank }
}

/// A scorecard without a challenge yet.
fn begun(plan: &Plan) -> Scorecard {
    Scorecard {
        warpbook: env!("CARGO_PKG_VERSION").into(),
        attempt: plan.attempt.name().into(),
        seed: format!("{:#x}", plan.effort.seed),
        machine: Machine { gpu: gpu(plan), ..machine() },
        points: 0,
        possible: possible(),
        unmeasured: 0,
        stand_in: 0,
        challenges: Vec::new(),
        guards: Vec::new(),
    }
}

/// Takes the next challenge in, with what its guards saw.
fn add(card: &mut Scorecard, challenge: Challenge, guards: Vec<Guard>) {
    let stand_in = challenge.rows.iter().filter(|row| row.basis == Basis::StandIn);
    card.stand_in += stand_in.map(|row| row.points).sum::<i32>();
    card.points += challenge.points;
    card.unmeasured += challenge.unmeasured;
    card.challenges.push(challenge);
    card.guards.extend(guards);
}

/// The GPU that a challenge runs on, as a report names it.
fn gpu(plan: &Plan) -> Option<String> {
    let devices = RUBRICS.iter().filter_map(|rubric| plan.device_of(&plan.courses_of(rubric)));
    let is_used = devices.into_iter().any(|device| device.starts_with("cuda"));
    let card = is_used.then(|| Gpu::look(plan.device.ordinal()).ok()).flatten()?;
    Some(report::card(&card))
}

/// This machine, as a report names it.
pub(crate) fn machine() -> Machine {
    let host = cpu::host();
    let own = Vector::of_machine().into_iter().max().filter(|own| *own != Vector::widest());
    Machine {
        cpu: host.cpu,
        cores: host.cores,
        vector: Vector::widest().to_string(),
        widest: own.map(|own| own.to_string()),
        cache_bytes: host.cache_bytes,
        memory_bytes: host.memory_bytes,
        gpu: None,
        os: std::env::consts::OS.into(),
        wine: host.wine,
        arch: std::env::consts::ARCH.into(),
        date: crate::date::today(),
    }
}

/// What is wrong with a scorecard, as an exit code: 0 nothing, 1 a check or a guard. A guard that could not
/// look at an attempt counts like one that tripped: whatever kept it from looking was in the attempt.
pub(crate) fn exit_code(card: &Scorecard, strict: bool) -> u8 {
    let checks = || card.challenges.iter().flat_map(|challenge| &challenge.checks);
    let is = |outcome| checks().any(|check| check.outcome == outcome);
    if is(Outcome::GraderFault) {
        return 6;
    }
    let failed = is(Outcome::Wrong) || is(Outcome::NotAttempted) || is(Outcome::DoesNotCompile);
    let blind = |guard: &Guard| !guard.ran && !guard.detail.is_empty();
    if failed || card.guards.iter().any(|guard| guard.tripped || blind(guard)) {
        return 1;
    }
    let open = is(Outcome::NotMeasured)
        || card
            .challenges
            .iter()
            .filter(|challenge| challenge.built)
            .flat_map(|challenge| &challenge.rows)
            .any(|row| {
                row.fact == crate::scorecard::Truth::Unmeasured || row.evidence.starts_with("inconclusive")
            });
    if strict && open { 4 } else { 0 }
}
