//! What a run does: whose attempt, on which device, which items.

use std::time::Duration;

use super::device::Device;
use crate::course::Course;
use crate::gather::{Effort, Item};
use crate::rubric::Rubric;

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
    pub(super) fn courses_of(&self, rubric: &Rubric) -> Vec<&'static Course> {
        self.courses.iter().copied().filter(|course| course.name == rubric.name).collect()
    }

    /// The device of a challenge, as reports name it: its first course decides.
    pub(super) fn device_of(&self, courses: &[&Course]) -> Option<String> {
        Some(self.device.name(courses.first()?.backend))
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

/// As long as nobody sits at a breakpoint.
const A_DAY: Duration = Duration::from_hours(24);

/// The items that the scope and `--case` leave.
pub(super) fn chosen(plan: &Plan, items: Vec<Item>) -> Vec<Item> {
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
