//! What a classifier answers as it learns: for each look at it a square with a row for each class that is true and a
//! column for each that is answered.
//!
//! Right answers stand on the diagonal. A cell is as dark as the share of its row's texts that it has, and its number
//! says how many they are, so that nothing is told by colour alone; mistakes have a hue of their own.

use super::plot::{Anchor, Ink, Plot, WIDTH};
use scorecard::Challenge;

/// What the figure shows, in a sentence.
pub const CAPTION: &str = "Texts that are held out, answered as the classifier is trained: a row for each class that is \
                           true, a column for each that is answered. Right answers stand on the diagonal.";

/// The answers after some steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Steps of the training.
    pub steps: u64,
    /// How often each class was answered for each, row by row.
    pub counts: Vec<f64>,
}

/// The name of a look's numbers, without its steps.
const NUMBERS: &str = "issues.classifier.confusion.";

/// Most looks, and most classes, that are drawn.
const MOST_LOOKS: usize = 4;
const MOST_CLASSES: usize = 4;

/// Where the squares begin, what a pair is apart, and the most that a count may be.
const FIRST: f64 = 28.0;
const GAP: f64 = 16.0;
const TOP: f64 = 56.0;
const MOST: f64 = 999.0;

impl Look {
    /// All of a challenge's measurements, by their steps.
    pub fn all(challenge: &Challenge) -> Vec<Self> {
        let one = |(name, number): (&String, &scorecard::Measurement)| {
            let steps = name.strip_prefix(NUMBERS)?.parse().ok()?;
            Some(Self { steps, counts: number.samples.clone() })
        };
        let mut all: Vec<Self> = challenge.measurements.iter().filter_map(one).collect();
        all.sort_by_key(|look| look.steps);
        all
    }

    fn classes(&self) -> usize {
        self.counts.len().isqrt()
    }

    /// The texts of a class, or all of them.
    fn texts(&self, class: Option<usize>) -> f64 {
        let of = |row: &[f64]| row.iter().sum::<f64>();
        class.map_or_else(
            || of(&self.counts),
            |class| of(&self.counts[class * self.classes()..][..self.classes()]),
        )
    }

    fn accuracy(&self) -> f64 {
        accuracy(&self.counts)
    }

    fn is_sound(&self) -> bool {
        let classes = self.classes();
        (2..=MOST_CLASSES).contains(&classes)
            && self.counts.len() == classes * classes
            && self.counts.iter().all(|count| (0.0..=MOST).contains(count))
            && self.texts(None) > 0.0
    }
}

/// The share of a confusion (C, C) that is on its diagonal; 0 of nothing.
pub fn accuracy(confusion: &[f64]) -> f64 {
    let classes = confusion.len().isqrt();
    let right: f64 = confusion.iter().step_by(classes + 1).sum();
    let all: f64 = confusion.iter().sum();
    if all > 0.0 { right / all } else { 0.0 }
}

/// The figure; nothing without looks, or of such as make no sense.
pub fn confusions(title: &str, looks: &[Look]) -> Option<String> {
    let alike = |look: &Look| look.is_sound() && look.classes() == looks[0].classes();
    if !(1..=MOST_LOOKS).contains(&looks.len()) || !looks.iter().all(alike) {
        return None;
    }
    let mut plot = Plot::new(title, &describe(looks));
    let side = (WIDTH - 8.0 - FIRST - GAP * (MOST_LOOKS - 1) as f64) / MOST_LOOKS as f64;
    let cell = side / looks[0].classes() as f64;
    for (number, look) in looks.iter().enumerate() {
        let left = FIRST + number as f64 * (side + GAP);
        let middle = left + side / 2.0;
        let steps = if look.steps == 0 { "before".to_owned() } else { format!("{} steps", look.steps) };
        plot.text((middle, TOP - 22.0), Anchor::Middle, Ink::Text, &steps);
        square(&mut plot, look, (left, TOP), cell);
        let accuracy = format!("{:.1} % right", 100.0 * look.accuracy());
        plot.text((middle, TOP + side + 16.0), Anchor::Middle, Ink::Text, &accuracy);
    }
    for class in 0..looks[0].classes() {
        let middle = TOP + (class as f64 + 0.5) * cell;
        plot.text((FIRST - 6.0, middle + 4.0), Anchor::End, Ink::Quiet, &class.to_string());
    }
    plot.text(
        (8.0, TOP + side + 36.0),
        Anchor::Start,
        Ink::Quiet,
        "rows: the class that is true; columns: the answer",
    );
    Some(plot.finish(TOP + side + 46.0))
}

/// One look's cells, with the classes that are answered above them.
fn square(plot: &mut Plot, look: &Look, (left, top): (f64, f64), cell: f64) {
    let classes = look.classes();
    for (at, count) in look.counts.iter().enumerate() {
        let (truth, answer) = (at / classes, at % classes);
        let (x, y) = (left + answer as f64 * cell, top + truth as f64 * cell);
        let ink = if truth == answer { Ink::Attempt } else { Ink::Threshold };
        let share = count / look.texts(Some(truth)).max(1.0);
        plot.area((x + 0.5, y + 0.5), (x + cell - 0.5, y + cell - 0.5), ink, hundredths(0.06 + 0.5 * share));
        plot.text((x + cell / 2.0, y + cell / 2.0 + 4.0), Anchor::Middle, Ink::Text, &format!("{count:.0}"));
    }
    for answer in 0..classes {
        let middle = left + (answer as f64 + 0.5) * cell;
        plot.text((middle, top - 4.0), Anchor::Middle, Ink::Quiet, &answer.to_string());
    }
}

fn hundredths(x: f64) -> f64 {
    (100.0 * x).round() / 100.0
}

fn describe(looks: &[Look]) -> String {
    let one = |look: &Look| {
        let right =
            (0..look.classes()).map(|class| format!("{:.0}", look.counts[class * (look.classes() + 1)]));
        format!(
            "After {} steps {:.1} % of {:.0} texts are answered right, of the classes {}.",
            look.steps,
            100.0 * look.accuracy(),
            look.texts(None),
            right.collect::<Vec<_>>().join(", ")
        )
    };
    looks.iter().map(one).collect::<Vec<_>>().join(" ")
}
