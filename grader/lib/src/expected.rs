//! What this version runs: the names that a whole report holds, and what makes a report one of a part.

use kernels::Vector;

use crate::course::Course;
use crate::gather::{Effort, Item};
use crate::scorecard::{Check, Guard, Machine};

/// The checks of A that exist once for each vector unit of the machine.
const EVERY_PATH: &str = "A.6/every-path-";

/// The names of some courses of a challenge, in the order in which they are run.
pub(crate) struct Expected {
    pub checks: Vec<String>,
    pub guards: Vec<String>,
    /// Guards that watch the timed cases, and are there where a case was timed.
    pub timed_guards: Vec<&'static str>,
}

impl Expected {
    /// What courses run on a machine whose widest vector unit is `widest`.
    pub fn of(courses: &[&Course], widest: Vector) -> Self {
        let items: Vec<Item> = courses.iter().flat_map(|course| (course.items)(&Effort::default())).collect();
        let checks = items.iter().filter(|item| item.is_check()).map(|item| item.name.clone());
        let mut checks: Vec<String> = checks.filter(|name| !name.starts_with(EVERY_PATH)).collect();
        if items.iter().any(|item| item.name.starts_with(EVERY_PATH)) {
            let word = |unit: &Vector| unit.to_string().to_lowercase();
            checks.extend(up_to(widest).iter().map(|unit| format!("{EVERY_PATH}{}", word(unit))));
        }
        let guards = items.iter().filter_map(Item::guard).map(str::to_owned).collect();
        Self { checks, guards, timed_guards: timed_guards(&items) }
    }

    /// What a run lacks, if it is one of a part.
    pub fn part(&self, checks: &[Check], guards: &[Guard]) -> Option<String> {
        let there = |name: &&String| checks.iter().any(|check| check.name == **name);
        let ran = self.checks.iter().filter(there).count();
        let there = |name: &&String| guards.iter().any(|guard| guard.name == **name);
        let looked = self.guards.iter().filter(there).count();
        let (all, guards) = (self.checks.len(), self.guards.len());
        ((ran, looked) != (all, guards))
            .then(|| format!("a run of part: {ran} of {all} checks, {looked} of {guards} guards"))
    }
}

/// Each guard that looks on while something is timed, once.
fn timed_guards(items: &[Item]) -> Vec<&'static str> {
    let mut all: Vec<&str> = Vec::new();
    for name in items.iter().flat_map(|item| &item.guards) {
        if !all.contains(name) {
            all.push(name);
        }
    }
    all
}

/// The vector units of a machine, by its widest one.
fn up_to(widest: Vector) -> &'static [Vector] {
    match widest {
        Vector::Portable => &[Vector::Portable],
        Vector::Neon => &[Vector::Portable, Vector::Neon],
        Vector::Avx2 => &[Vector::Portable, Vector::Avx2],
        Vector::Avx512 => &[Vector::Portable, Vector::Avx2, Vector::Avx512],
    }
}

/// The vector unit that a report names, if its processor can have it.
pub(crate) fn widest(machine: &Machine) -> Option<Vector> {
    unit(machine, &machine.vector)
}

/// The unit of that name, if a report's processor can have it.
pub(crate) fn unit(machine: &Machine, name: &str) -> Option<Vector> {
    let units: &[Vector] = match machine.arch.as_str() {
        "x86_64" => &[Vector::Portable, Vector::Avx2, Vector::Avx512],
        "aarch64" => &[Vector::Portable, Vector::Neon],
        _ => &[Vector::Portable],
    };
    units.iter().find(|unit| unit.to_string() == name).copied()
}
