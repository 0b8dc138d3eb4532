//! Which steps of a plan have to wait for which: what a device may do at the same time.
//!
//! A step waits for the last one that wrote what it touches, and for those that read what it writes. Inputs are only
//! read, so nothing waits because of them. Memory that a plan uses twice orders its uses; so a plan whose arena is
//! packed tightly has less that may go on side by side than one whose arena is not.

use std::collections::HashMap;
use std::ops::Range;

use super::{Memory, Plan};

/// A memory as far as an overlap is possible within it only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Arena,
    InOut(usize),
    Scratch,
}

/// What a step did to bytes of a place.
struct Access {
    bytes: Range<usize>,
    step: usize,
    is_written: bool,
}

/// So many steps, each in it or not.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn of(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn has(&self, step: usize) -> bool {
        self.0[step / 64] >> (step % 64) & 1 == 1
    }

    fn add(&mut self, step: usize) {
        self.0[step / 64] |= 1 << (step % 64);
    }

    fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }
}

impl Plan {
    /// For each step the earlier ones that it has to wait for, without those that another of them waits for. `scratch`
    /// are the bytes that each step writes of a memory that all of them share.
    ///
    /// The plan has passed its check, and has no operation between ranks: what those touch until they are waited for is
    /// not looked at.
    pub(crate) fn waits(&self, scratch: &[Range<usize>]) -> Vec<Vec<usize>> {
        let mut history: HashMap<Place, Vec<Access>> = HashMap::new();
        let mut before: Vec<Set> = Vec::with_capacity(self.steps.len()); // all that each step waits for
        let mut all = Vec::with_capacity(self.steps.len());
        for (number, bytes) in scratch.iter().enumerate() {
            let accesses = self.accesses(number, bytes.clone());
            let mut earlier: Vec<usize> = Vec::new();
            for (place, access) in &accesses {
                let past = history.get(place).into_iter().flatten();
                earlier.extend(past.filter(|past| access.conflicts(past)).map(|past| past.step));
            }
            let (waits, reached) = direct(earlier, &before);
            before.push(reached);
            all.push(waits);
            note(&mut history, accesses);
        }
        all
    }

    fn accesses(&self, step: usize, scratch: Range<usize>) -> Vec<(Place, Access)> {
        let touched = self.steps[step].touched();
        let of_plan = touched.iter().filter_map(|touched| {
            let place = match touched.memory() {
                Memory::Arena(_) => Place::Arena,
                Memory::InOut(number) => Place::InOut(number),
                Memory::Input(_) => return None,
            };
            Some((place, Access { bytes: touched.bytes(), step, is_written: touched.is_written }))
        });
        let own = (Place::Scratch, Access { bytes: scratch, step, is_written: true });
        of_plan.chain([own]).filter(|(_, access)| !access.bytes.is_empty()).collect()
    }
}

impl Access {
    fn conflicts(&self, other: &Self) -> bool {
        let meet = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        meet && (self.is_written || other.is_written)
    }

    fn covers(&self, other: &Self) -> bool {
        self.is_written && self.bytes.start <= other.bytes.start && other.bytes.end <= self.bytes.end
    }
}

/// Those of the earlier steps that none of the others waits for, the latest first, and all that is done with them.
fn direct(mut earlier: Vec<usize>, before: &[Set]) -> (Vec<usize>, Set) {
    earlier.sort_unstable_by_key(|step| std::cmp::Reverse(*step));
    let mut reached = Set::of(before.len());
    earlier.retain(|step| {
        let is_new = !reached.has(*step);
        if is_new {
            reached.add(*step);
            reached.add_all(&before[*step]);
        }
        is_new
    });
    (earlier, reached)
}

/// Adds what a step did, and forgets what it wrote over: whoever meets that meets this step as well.
fn note(history: &mut HashMap<Place, Vec<Access>>, accesses: Vec<(Place, Access)>) {
    for (place, access) in &accesses {
        if let Some(past) = history.get_mut(place) {
            past.retain(|past| !access.covers(past));
        }
    }
    for (place, access) in accesses {
        history.entry(place).or_default().push(access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Step, View};

    fn view(memory: Memory, bytes: usize) -> View {
        View { memory, bytes, offset: 0, strides: vec![1] }
    }

    /// A step that reads two memories and writes a third.
    fn step(rows: View, index: View, to: View) -> Step {
        Step::Scatter { rows, index, to, count: 1, width: 1, table: 1 }
    }

    fn plan(steps: Vec<Step>) -> Plan {
        Plan { steps, ..Plan::default() }
    }

    fn drawn(state: &mut u64) -> (Plan, Vec<Range<usize>>) {
        let mut below = |limit: u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) % limit
        };
        let mut place = |is_written: bool| match below(8) {
            0 => view(Memory::InOut(below(2) as usize), 64),
            1 if !is_written => view(Memory::Input(0), 64),
            _ => view(Memory::Arena(64 * below(12) as usize), 64 * below(4) as usize),
        };
        let steps = (0..70).map(|_| step(place(false), place(false), place(true))).collect();
        let mut start = || below(6) as usize;
        let scratch = (0..70).map(|_| (start(), start())).map(|(start, length)| start..start + length / 4);
        (plan(steps), scratch.collect())
    }

    #[test]
    fn who_has_to_wait_does_and_nobody_else() {
        let mut state = 7;
        for _ in 0..50 {
            let (plan, scratch) = drawn(&mut state);
            let waits = plan.waits(&scratch);
            let touches = |step: usize| plan.accesses(step, scratch[step].clone());
            let conflict = |a: usize, b: usize| {
                let other = touches(b);
                touches(a).iter().any(|(place, access)| {
                    other.iter().any(|(at, past)| place == at && access.conflicts(past))
                })
            };
            let mut done: Vec<Vec<bool>> = Vec::new(); // what is done when a step begins
            for (step, own) in waits.iter().enumerate() {
                let mut before = vec![false; step];
                for wait in own {
                    before[*wait] = true;
                    done[*wait].iter().enumerate().for_each(|(earlier, is)| before[earlier] |= is);
                }
                assert!((0..step).all(|earlier| before[earlier] || !conflict(step, earlier)), "step {step}");
                assert!(own.iter().all(|wait| conflict(step, *wait)), "step {step} waits for {own:?}");
                let implied = |wait: &usize| own.iter().any(|other| done[*other].get(*wait) == Some(&true));
                assert!(!own.iter().any(implied), "step {step}: one of {own:?} waits for another");
                done.push(before);
            }
        }
    }

    #[test]
    fn what_is_only_read_and_what_lies_apart_orders_nothing() {
        let (a, b) = (view(Memory::Arena(0), 64), view(Memory::Arena(64), 64));
        let input = view(Memory::Input(0), 64);
        let steps =
            vec![step(input.clone(), input.clone(), a.clone()), step(input.clone(), input, b.clone())];
        assert_eq!(plan(steps).waits(&[0..0, 0..0]), [vec![], vec![]]);
        let to = |at| view(Memory::Arena(at), 64);
        let steps =
            vec![step(a.clone(), a.clone(), to(128)), step(a.clone(), a, to(192)), step(b.clone(), b, to(0))];
        let none = [0..0, 0..0, 0..0];
        assert_eq!(
            plan(steps).waits(&none),
            [vec![], vec![], vec![1, 0]],
            "who writes waits for all readers"
        );
    }

    #[test]
    fn scratch_memory_orders_who_shares_it() {
        let input = || view(Memory::Input(0), 64);
        let steps = (0..3).map(|at| step(input(), input(), view(Memory::Arena(64 * at), 64))).collect();
        assert_eq!(plan(steps).waits(&[0..8, 8..16, 4..12]), [vec![], vec![], vec![1, 0]]);
    }
}
