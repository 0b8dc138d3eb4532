//! Laws of schedules, over drawn shapes and workloads.

mod search;
mod text;
mod times;
mod valid;

use super::*;

/// Every generator, a rule among them: B before R before F before W, and F as far ahead as keeps the slowest stage busy
/// while a micro-batch goes down from a rank and its gradient comes back.
fn generators() -> impl Iterator<Item = (&'static str, Generator)> + Clone {
    GENERATORS.into_iter().chain([("filled", filled as Generator)])
}

/// The rule that challenge B asks for.
fn filled(shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
    workload.check(shape)?;
    let preference = [Kind::Backward, Kind::Recompute, Kind::Forward, Kind::Weight];
    let time = |kinds: &[Kind], stage: usize| -> f64 {
        let asked = kinds.iter().filter(|kind| workload.asks(**kind, stage));
        asked.map(|kind| workload.time(*kind, stage)).sum()
    };
    let slowest = (0..shape.stages()).map(|stage| time(&preference, stage)).fold(0.0, f64::max);
    let spare = usize::from(workload.latency > 0.0);
    let mut trip = time(&[Kind::Recompute], shape.stages() - 1);
    let mut ahead = vec![0; shape.stages()];
    for stage in (0..shape.stages()).rev() {
        trip += time(&[Kind::Forward, Kind::Backward], stage);
        ahead[stage] =
            ((trip / slowest - 1e-9).ceil() as usize).saturating_add(spare).max(shape.ranks() - stage);
        trip += 2.0 * workload.latency;
    }
    listed(shape, workload, &Rule { preference, ahead })
}

/// Numbers that look random and are the same in every run: SplitMix64 (Steele et al., 2014).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below a limit.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Times whose sums are exact.
    fn time(&mut self) -> f64 {
        self.one_of(&[0.0, 0.25, 0.5, 1.0, 1.0, 1.5, 2.0])
    }

    fn stage(&mut self, recomputed: bool, trained: bool) -> Stage {
        let (forward, recompute) = (self.below(3) as u64, self.below(9) as u64);
        let most = forward + if recomputed { recompute } else { 0 };
        let held = Held { forward, recompute, weight: self.below(most as usize + 1) as u64 };
        let [forward, backward, weight, recompute, dequantize] = [(); 5].map(|()| self.time());
        let times = Times { forward: forward + 0.25, backward, weight, recompute, dequantize };
        Stage { times, held, recomputed, trained }
    }

    fn workload(&mut self, shape: Shape) -> Workload {
        let (recomputed, trained) = (self.coin(), self.coin());
        let stages = if self.coin() { 1 } else { shape.stages() };
        let stages = (0..stages).map(|_| self.stage(recomputed, trained)).collect();
        let buffer =
            Buffer { chunks: 1 + self.below(2), reads: self.one_of(&[None, None, Some(1), Some(3)]) };
        let latency = self.one_of(&[0.0, 0.0, 0.25, 1.0]);
        Workload { stages, latency, buffer: Some(buffer).filter(|_| self.coin()), ..Workload::uniform(PLAIN) }
    }

    /// A shape that a generator takes.
    fn shape(&mut self, name: &str) -> Shape {
        let (ranks, micro_batches) = (1 + self.below(6), 1 + self.below(12));
        let placement = self.one_of(&[Placement::Looped, Placement::V]);
        match name {
            "gpipe" => Shape::new(ranks, 1 + self.below(3), micro_batches, placement),
            "interleaved" => {
                Shape::new(ranks, 2 + self.below(2), ranks * (1 + self.below(3)), Placement::Looped)
            }
            _ => Shape::new(ranks, 1, micro_batches, placement),
        }
        .unwrap()
    }

    /// So many schedules of every generator, with their names and workloads.
    fn schedules(&mut self, each: usize) -> Vec<(&'static str, Schedule, Workload)> {
        let mut all = Vec::new();
        for (name, generator) in generators() {
            for _ in 0..each {
                let shape = self.shape(name);
                let workload = self.workload(shape);
                all.push((name, generator(shape, &workload).unwrap(), workload));
            }
        }
        all
    }
}

/// Forward, backward and weights of a unit of time each; a unit of memory from F to W.
const PLAIN: Stage = Stage {
    times: Times { forward: 1.0, backward: 1.0, weight: 1.0, recompute: 1.0, dequantize: 0.0 },
    held: Held { forward: 1, recompute: 0, weight: 1 },
    recomputed: false,
    trained: true,
};

/// An adapter is trained and activations are computed again: W is a tenth of F. What is computed again takes twelve
/// times as much memory as the stage's input.
const ADAPTER: Stage = Stage {
    times: Times { forward: 1.0, backward: 1.0, weight: 0.1, recompute: 1.0, dequantize: 0.0 },
    held: Held { forward: 1, recompute: 12, weight: 12 },
    recomputed: true,
    trained: true,
};

fn line(ranks: usize, micro_batches: usize) -> Shape {
    Shape::line(ranks, micro_batches).unwrap()
}

/// A schedule's lines, for tests that spoil one.
fn lines(schedule: &Schedule) -> Vec<Vec<Operation>> {
    schedule.ranks().to_vec()
}

fn refusal(text: &str, workload: &Workload) -> String {
    let schedule = Schedule::parse(text).unwrap();
    check(&schedule, workload).map(|_| ()).expect_err("it is wrong").to_string()
}
