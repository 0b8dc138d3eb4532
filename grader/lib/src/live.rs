//! The scorecard on standard output while it is made: the header at once, each challenge as soon as it is scored, the
//! guards and the total at the end. Together it is the text that `report` shows of the whole scorecard.
//!
//! The header names the challenges that run. A plan with checks says which those are; one of measurements alone does
//! not, as all of a challenge's may fail, so that its header waits until no challenge is in doubt.

use std::io::{self, ErrorKind, Write};

use crate::report::text::{Options, Parts};
use crate::report::{Before, not_run};
use crate::rubric::{RUBRICS, Rubric};
use crate::score::{Plan, will_run};
use crate::scorecard::{Challenge, Scorecard};

/// What the challenges that a scorecard leaves out got before.
pub(crate) type Earlier<'a> = &'a dyn Fn(&Scorecard) -> Vec<Before>;

/// A scorecard of which the beginning is written.
pub(crate) struct Live<'a, W> {
    plan: &'a Plan,
    earlier: Earlier<'a>,
    out: W,
    parts: Parts,
    /// Whether the run goes on where nobody reads: there is more to write than this text.
    outlives_reader: bool,
    has_reader: bool,
    has_header: bool,
    written: usize,
    before: Vec<Before>,
}

impl<'a, W: Write> Live<'a, W> {
    /// Nothing is written yet.
    pub fn new(plan: &'a Plan, earlier: Earlier<'a>, out: W, options: Options) -> Self {
        Self {
            plan,
            earlier,
            out,
            parts: Parts::new(options),
            outlives_reader: false,
            has_reader: true,
            has_header: false,
            written: 0,
            before: Vec::new(),
        }
    }

    /// With a run that goes on although nobody reads any more, if `outlives_reader`.
    pub fn outliving_reader(self, outlives_reader: bool) -> Self {
        Self { outlives_reader, ..self }
    }

    /// Writes what is new of a scorecard with further challenges.
    ///
    /// # Errors
    /// If the text cannot be written; a closed pipe only where the run ends with its reader.
    pub fn update(&mut self, card: &Scorecard) -> io::Result<()> {
        let mut text = String::new();
        if !self.has_header {
            let Some(ran) = self.ran(card) else { return Ok(()) };
            text = self.parts.header(card, ran.into_iter().map(|rubric| (rubric.letter, rubric.name)));
            self.has_header = true;
        }
        if self.written < card.challenges.len() {
            self.before = (self.earlier)(card);
        }
        for challenge in &card.challenges[self.written..] {
            let before = self.before.iter().find(|before| before.name == challenge.name);
            text += &self.parts.challenge(challenge, before);
        }
        self.written = card.challenges.len();
        self.write(&text)
    }

    /// Writes the last lines.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn finish(&mut self, card: &Scorecard) -> io::Result<()> {
        let text = self.parts.end(card, &self.before);
        self.write(&text)
    }

    /// The challenges that run; `None` while one is in doubt.
    fn ran(&self, card: &Scorecard) -> Option<Vec<&'static Rubric>> {
        let ran = |challenge: &Challenge| challenge.built && !not_run(challenge);
        let mut all = Vec::new();
        for (i, rubric) in RUBRICS.iter().enumerate() {
            if card.challenges.get(i).map(ran).or_else(|| will_run(self.plan, rubric))? {
                all.push(rubric);
            }
        }
        Some(all)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if !self.has_reader {
            return Ok(());
        }
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe && self.outlives_reader => {
                self.has_reader = false;
                Ok(())
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::courses::COURSES;
    use crate::fixture;
    use crate::gather::Effort;
    use crate::report::text;
    use crate::score::{Attempt, Device, Scope};

    /// A plan of the challenges that a scorecard has run.
    fn plan(card: &Scorecard, scope: Scope) -> Plan {
        let has_run = |name: &str| card.challenges.iter().any(|c| c.name == name && c.built && !not_run(c));
        Plan {
            attempt: Attempt::Solution,
            device: Device::Cpu,
            courses: COURSES.iter().filter(|course| has_run(course.name)).collect(),
            scope,
            step: None,
            case: None,
            effort: Effort::default(),
            has_no_limit: false,
            progress: Box::new(|_| {}),
        }
    }

    /// What is written before a challenge is scored, with each of them, and at the end.
    fn pieces(whole: &Scorecard, plan: &Plan, before: &[Before], options: Options) -> Vec<String> {
        let earlier = |card: &Scorecard| {
            let is_known = |before: &&Before| card.challenges.iter().any(|c| c.name == before.name);
            before.iter().filter(is_known).cloned().collect()
        };
        let mut live = Live::new(plan, &earlier, Vec::new(), options);
        let mut pieces = Vec::new();
        for scored in 0..=whole.challenges.len() {
            let challenges = whole.challenges[..scored].to_vec();
            live.update(&Scorecard { challenges, guards: vec![], ..whole.clone() }).expect("memory takes it");
            pieces.push(std::mem::take(&mut live.out));
        }
        live.finish(whole).expect("memory takes it");
        pieces.push(live.out);
        pieces.into_iter().map(|piece| String::from_utf8(piece).expect("text")).collect()
    }

    fn before() -> [Before; 1] {
        [Before { name: "issues".into(), points: 1, message: "1 of 12 points at 10:42 UTC".into() }]
    }

    #[test]
    fn the_pieces_are_the_whole_text() {
        let cards = [fixture::solved(), fixture::half_done(), fixture::untouched(), fixture::compiled()];
        for whole in cards.into_iter().chain([fixture::chunked(), fixture::on_ranks()]) {
            for (scope, points) in [(Scope::Score, true), (Scope::Test, false), (Scope::Bench, true)] {
                for color in [true, false] {
                    let options = Options { color, points, ..Options::default() };
                    let pieces = pieces(&whole, &plan(&whole, scope), &before(), options);
                    assert_eq!(pieces.concat(), text::render_after(&whole, options, &before()));
                }
            }
        }
    }

    #[test]
    fn the_header_comes_first_and_each_challenge_when_it_is_scored() {
        let whole = fixture::compiled();
        let pieces = pieces(&whole, &plan(&whole, Scope::Score), &[], Options::default());
        assert!(pieces[0].starts_with("warpbook 0.1.0   A nf4, C graph   solution"), "{}", pieces[0]);
        for (piece, begin) in pieces[1..].iter().zip(["A nf4  ", "B fsdp  ", "C graph  ", "D issues  "]) {
            assert!(piece.trim_start_matches(['\u{2500}', '\n']).starts_with(begin), "{begin}: {piece}");
        }
        assert!(pieces[6].contains("\npoints   "), "{}", pieces[6]);
    }

    #[test]
    fn the_header_waits_where_measurements_alone_decide_what_ran() {
        let whole = fixture::compiled();
        let pieces = pieces(&whole, &plan(&whole, Scope::Bench), &[], Options::default());
        let is_empty: Vec<bool> = pieces.iter().map(String::is_empty).collect();
        assert_eq!(
            is_empty,
            [true, true, true, false, false, false, false],
            "C is in doubt until it is scored"
        );
    }

    /// Takes so many writes.
    struct Pipe(usize);

    impl Write for Pipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(ErrorKind::BrokenPipe)?;
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_run_ends_with_its_reader_unless_there_is_more_to_write() {
        let whole = fixture::compiled();
        let (plan, earlier) = (plan(&whole, Scope::Score), |_: &Scorecard| Vec::new());
        for outlives in [false, true] {
            let live = Live::new(&plan, &earlier, Pipe(1), Options::default());
            let mut live = live.outliving_reader(outlives);
            live.update(&Scorecard { challenges: vec![], ..whole.clone() }).expect("the header is read");
            let ended =
                [live.update(&whole), live.finish(&whole)].map(|done| done.map_err(|error| error.kind()));
            assert_eq!(ended, if outlives { [Ok(()); 2] } else { [Err(ErrorKind::BrokenPipe); 2] });
        }
    }
}
