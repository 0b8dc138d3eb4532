//! Fusion groups: the parts of the work while passes may still be joined, in their order.

use std::collections::{BTreeSet, HashMap};

use super::Part;
use super::emit::Kernel;

/// The most groups that wait for a later pass, the one whose work it does among them.
const MAX_WAITING: usize = 8;

/// A part that may still grow.
#[allow(clippy::large_enum_variant)] // a few hundred of them, once a compilation
pub(super) enum FusionGroup {
    Pass(Kernel),
    Whole(Part),
}

impl FusionGroup {
    pub(super) fn finish(self) -> Part {
        match self {
            FusionGroup::Pass(kernel) => Part::Kernel(kernel),
            FusionGroup::Whole(part) => part,
        }
    }

    /// The buffers that it writes.
    pub(super) fn writes(&self) -> Vec<usize> {
        match self {
            FusionGroup::Pass(kernel) => kernel.outputs.iter().map(|layout| layout.buffer).collect(),
            FusionGroup::Whole(part) => part.writes(),
        }
    }

    /// Whether ranks exchange something in it, for which all of them need it at the same place.
    fn is_transfer(&self) -> bool {
        matches!(self, FusionGroup::Whole(Part::Start(_) | Part::Wait(_)))
    }

    /// The buffers that it reads.
    pub(super) fn reads(&self) -> Vec<usize> {
        match self {
            FusionGroup::Pass(kernel) => kernel.inputs.iter().map(|layout| layout.buffer).collect(),
            FusionGroup::Whole(part) => part.reads(),
        }
    }
}

/// All groups in order, and those that write each buffer.
#[derive(Default)]
pub(super) struct FusionGroups {
    pub(super) all: Vec<FusionGroup>,
    written: HashMap<usize, BTreeSet<usize>>,
}

impl FusionGroups {
    pub(super) fn push(&mut self, group: FusionGroup) {
        self.all.push(group);
        self.note(self.all.len() - 1);
    }

    pub(super) fn replace(&mut self, place: usize, pass: Kernel) {
        self.all[place] = FusionGroup::Pass(pass);
        self.note(place);
    }

    /// Notes what a group writes.
    pub(super) fn note(&mut self, place: usize) {
        for buffer in self.all[place].writes() {
            self.written.entry(buffer).or_default().insert(place);
        }
    }

    /// The first place where all that a pass reads is there, if what reads nothing itself comes in time.
    pub(super) fn earliest(&self, pass: &Kernel) -> usize {
        self.writers(pass).filter(|place| !self.is_free(*place)).max().unwrap_or(0)
    }

    /// The passes that a pass reads from and that read nothing themselves: they may come at any time before it.
    pub(super) fn anywhere(&self, pass: &Kernel) -> BTreeSet<usize> {
        self.writers(pass).filter(|place| self.is_free(*place)).collect()
    }

    pub(super) fn writers(&self, pass: &Kernel) -> impl Iterator<Item = usize> {
        pass.inputs.iter().filter_map(|input| self.written.get(&input.buffer)).flatten().copied()
    }

    pub(super) fn is_free(&self, place: usize) -> bool {
        matches!(&self.all[place], FusionGroup::Pass(pass) if pass.inputs.is_empty())
    }

    /// Lets a pass do a later one's work too.
    pub(super) fn unite(&mut self, with: usize, place: usize, pass: Kernel) {
        let free = self.anywhere(&pass);
        self.all.remove(place);
        let moved = |at: usize| if at == place { with } else { at - usize::from(at > place) };
        self.renumber(moved);
        self.replace(with, pass);
        for free in free {
            self.advance(moved(free), with);
        }
    }

    /// Takes a pass away, and lets a later one do its work too, at the end.
    pub(super) fn postpone(&mut self, place: usize, pass: Kernel) {
        self.all.remove(place);
        self.written.values_mut().for_each(|places| _ = places.remove(&place));
        self.renumber(|at| at - usize::from(at > place));
        self.push(FusionGroup::Pass(pass));
    }

    /// The places of a pass and of all that has to come after it, for the pass to be computed together with one at the
    /// end, `before`. Nothing if they are many, ranks exchange something in one of them, or `before` reads what another
    /// one of them writes.
    pub(super) fn waiting(&self, place: usize, before: &Kernel) -> Option<Vec<usize>> {
        let mut waiting = vec![place];
        let own: BTreeSet<usize> = self.all[place].writes().into_iter().collect();
        let mut touched = own.clone();
        for (later, group) in self.all.iter().enumerate().skip(place + 1) {
            let writes = group.writes();
            if group.reads().iter().chain(&writes).any(|buffer| touched.contains(buffer)) {
                waiting.push(later);
                touched.extend(writes);
                if waiting.len() > MAX_WAITING || group.is_transfer() {
                    return None;
                }
            }
        }
        touched.retain(|buffer| !own.contains(buffer));
        let is_needed = before.inputs.iter().any(|input| touched.contains(&input.buffer));
        (!is_needed).then_some(waiting)
    }

    /// Takes the first of the places away and puts a pass that does its work too at the end, and the others after it.
    pub(super) fn delay(&mut self, waiting: &[usize], pass: Kernel) {
        let (last, mut kept) = (std::mem::take(&mut self.all), Vec::new());
        for (place, group) in last.into_iter().enumerate() {
            if waiting.contains(&place) { kept.push(group) } else { self.all.push(group) }
        }
        self.all.push(FusionGroup::Pass(pass));
        self.all.extend(kept.into_iter().skip(1));
        self.written.clear();
        (0..self.all.len()).for_each(|place| self.note(place));
    }

    pub(super) fn renumber(&mut self, moved: impl Fn(usize) -> usize) {
        let all = self.written.values_mut();
        all.for_each(|places| *places = places.iter().map(|place| moved(*place)).collect());
    }

    /// Lets a pass that reads nothing come before another one.
    pub(super) fn advance(&mut self, free: usize, before: usize) {
        if free < before {
            return;
        }
        self.all[before..=free].rotate_right(1);
        let moved = |place: usize| match place {
            place if place == free => before,
            place if (before..free).contains(&place) => place + 1,
            place => place,
        };
        self.renumber(moved);
    }
}

/// The groups that read each buffer.
#[derive(Default)]
pub(super) struct Readers(HashMap<usize, BTreeSet<usize>>);

impl Readers {
    pub(super) fn of(groups: &[FusionGroup]) -> Self {
        let mut readers = Self::default();
        groups.iter().enumerate().for_each(|(place, group)| readers.note(place, group));
        readers
    }

    pub(super) fn note(&mut self, place: usize, group: &FusionGroup) {
        for buffer in group.reads() {
            self.0.entry(buffer).or_default().insert(place);
        }
    }

    pub(super) fn forget(&mut self, place: usize, group: &FusionGroup) {
        for buffer in group.reads() {
            self.0.entry(buffer).or_default().remove(&place);
        }
    }

    /// The groups that read a buffer.
    pub(super) fn of_buffer(&self, buffer: usize) -> impl Iterator<Item = usize> {
        self.0.get(&buffer).into_iter().flatten().copied()
    }

    /// Whether no other group reads a buffer.
    pub(super) fn is_only(&self, place: usize, buffer: usize) -> bool {
        self.0.get(&buffer).into_iter().flatten().all(|reader| *reader == place)
    }
}
