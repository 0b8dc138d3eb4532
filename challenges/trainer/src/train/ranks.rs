//! The ranks of a run: threads, each with a device of its own.
//!
//! ```text
//! one rank        the calling thread, all cores, the whole model
//! several         a thread each, cores / ranks of each, a part of the model     kernels::threads, challenges::fsdp
//! ```
//!
//! Data are read and tokenised before, and every rank reads the same rows. A rank that fails ends the communication of
//! all, so none waits for it; what the run says is what the first one that failed says.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use challenges::fsdp::Store;
use challenges::train::Engine;
use kernels::bytes::Peak;
use kernels::comm::{Comm, CommError};
use kernels::{Cpu, Device, threads};
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;

use super::images::Seer;
use super::objective::{Generator, Goal};
use super::parallelize::{self, Sharing};
use super::peers::Peers;
use super::run::{Job, Run, Seat};
use super::{Watch, machine};
use crate::output::{Failure, opened, print};

/// Runs a job on as many ranks as its config says, from A, B and moments; the exit code.
pub fn run(
    job: &Job<'_>,
    state: Values<f32>,
    peak: Option<Peak>,
    watch: &mut Watch<'_>,
) -> Result<u8, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::bug)?;
    }
    let seat = Seat { peak, watch };
    match job.config.several() {
        None => alone(job, state, seat, stop),
        Some(mesh) => together(job, &mesh, state, seat, &stop),
    }
}

fn alone(
    job: &Job<'_>,
    state: Values<f32>,
    seat: Seat<'_, '_>,
    stop: Arc<AtomicBool>,
) -> Result<u8, Failure> {
    let device = opened(job.config.device)?;
    let mut device_peak = None;
    if device.name() != "cpu" {
        print(&format!("on {}\n", device.identity()));
        device_peak = Some(device.watermark().map_err(Failure::bug)?);
    }
    let loss = job.config.in_chunks(job.loss.as_ref());
    let mut engine = parallelize::alone(job, machine(&*device), &state, loss.as_ref())?;
    drop(state); // the engine has it
    let generator = begin_objective(job, &mut engine, Some(&*device))?;
    let hidden = job.model.config.hidden;
    let seer = job.images.map(|images| Seer::new(machine(&*device), images, hidden)).transpose()?;
    let run = Run::new(job, Peers::alone(), engine, Some(seat), stop)?;
    run.on_device(device_peak).generating(generator).seeing(seer).all()
}

/// Keeps the reference model of an objective; what draws completions, if they are drawn, on the rank that has a device
/// for it.
fn begin_objective<'a>(
    job: &Job<'a>,
    engine: &mut Engine<'a>,
    device: Option<&'a dyn Device>,
) -> Result<Option<Generator<'a>>, Failure> {
    let Some((goal, start)) = job.goal.as_ref().zip(job.start_adapter.as_ref()) else { return Ok(None) };
    if goal.has_reference() {
        engine.keep_reference(&start.values()).map_err(Failure::usage)?;
    }
    match (goal, device) {
        (Goal::Grpo(grpo), Some(device)) => {
            Generator::new(job.config, device, job.model, start, &job.data[0], grpo)
        }
        _ => Ok(None),
    }
}

/// The time that ranks wait for each other where the first rank draws completions for all and runs the program that
/// judges them. Neither has a bound that is known here.
const DRAWING_LIMIT: Duration = Duration::from_hours(24 * 365);

/// The inputs of a rank's thread.
struct Luggage<'s, 'w> {
    state: Arc<Values<f32>>,
    seat: Option<Seat<'s, 'w>>,
}

fn together(
    job: &Job<'_>,
    mesh: &Mesh,
    state: Values<f32>,
    seat: Seat<'_, '_>,
    stop: &Arc<AtomicBool>,
) -> Result<u8, Failure> {
    let cores = Cpu::new().threads();
    let (ranks, state) = (mesh.ranks(), Arc::new(state));
    let seats = std::iter::once(Some(seat)).chain(std::iter::repeat_with(|| None));
    let luggage = seats.take(ranks).map(|seat| Luggage { state: Arc::clone(&state), seat });
    let luggage: Vec<Mutex<Option<Luggage<'_, '_>>>> = luggage.map(|own| Mutex::new(Some(own))).collect();
    drop(state);
    let (store, pipeline) = (Store::default(), job.config.pipeline_parallel_schedule.pipeline());
    let sharing = Sharing { mesh, pipeline: &pipeline, store: &store };
    let limit = if job.config.draws_completions() { DRAWING_LIMIT } else { threads::DEFAULT_LIMIT };
    let outcomes = threads::launch(ranks, limit, |comm| {
        let own = luggage[comm.rank()].lock().unwrap_or_else(PoisonError::into_inner).take();
        let Luggage { state, seat } = own.expect("a rank is started once");
        let comm: Arc<dyn Comm> = comm;
        let cpu = Cpu::with_threads((cores / ranks).max(1));
        let work = || {
            let (world, loss) = (Arc::clone(&comm), job.config.in_chunks(job.loss.as_ref()));
            let mut engine = parallelize::on_ranks(job, machine(&cpu), &sharing, world, &state, loss)?;
            drop(state);
            let peers = Peers::of(Arc::clone(&comm));
            let own = peers.is_first().then_some(&cpu as &dyn Device);
            let generator = begin_objective(job, &mut engine, own)?;
            let hidden = job.model.config.hidden;
            let seer = job.images.map(|images| Seer::new(machine(&cpu), images, hidden)).transpose()?;
            let run = Run::new(job, peers, engine, seat, Arc::clone(stop))?;
            run.generating(generator).seeing(seer).all()
        };
        work().map_err(|failure| (Peers::of(Arc::clone(&comm)).end(&failure), failure))
    });
    outcome(outcomes)
}

/// A rank's exit code, or why it failed, and whether nothing had failed before.
type Ended = Result<u8, (bool, Failure)>;

/// The outcome of a run: the exit code that all ranks have, or the failure of the first rank that failed.
fn outcome(ranks: Vec<Result<Ended, CommError>>) -> Result<u8, Failure> {
    let (mut code, mut failures) = (0, Vec::new());
    for rank in ranks {
        match rank {
            Err(died) => return Err(Failure::bug(died)),
            Ok(Ok(own)) => code = own,
            Ok(Err(failure)) => failures.push(failure),
        }
    }
    failures.sort_by_key(|(is_cause, _)| !is_cause);
    failures.into_iter().next().map_or(Ok(code), |(_, failure)| Err(failure))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use crate::output::Failure;
    use crate::train::config::Task;
    use crate::train::{Config, example, fit};

    fn config(folder: &Path, more: &[(&str, &str)]) -> Config {
        let given =
            [("ranks", "2"), ("gradient_accumulation_steps", "2"), ("max_steps", "6"), ("save_steps", "2")];
        let settings = given.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Config::read(&folder.join("config.toml"), &settings.collect::<Vec<_>>()).expect("a config")
    }

    /// A rank that dies in the middle of a run ends it with its name; the checkpoint before it is whole, and the run
    /// goes
    /// on.
    #[test]
    fn a_rank_that_dies_ends_the_run_and_costs_no_checkpoint() {
        let folder = TempDir::new().expect("a folder");
        let folder = folder.path().join("example");
        example::write(&folder, Task::CausalLm).expect("an example");
        let died = fit(&config(&folder, &[]), None, &mut |step, _| {
            assert!(step < 4, "a bug");
            Ok(String::new())
        });
        let Err(Failure::Fault(reason)) = died else { panic!("a run without its first rank: {died:?}") };
        assert_eq!(reason, "rank 0 panicked: a bug");
        let resumed = config(&folder, &[("resume_from_checkpoint", "true"), ("ranks", "3")]);
        let mut steps = Vec::new();
        let done = fit(&resumed, None, &mut |step, _| {
            steps.push(step);
            Ok(String::new())
        });
        assert_eq!((done.expect("it goes on"), steps), (0, vec![6]));
    }

    /// The run reports the failure that started it, not the aborts that it caused.
    #[test]
    fn a_failure_of_the_first_rank_alone_is_the_runs() {
        let folder = TempDir::new().expect("a folder");
        let folder = folder.path().join("example");
        example::write(&folder, Task::CausalLm).expect("an example");
        let failed = fit(&config(&folder, &[]), None, &mut |_, _| Err(Failure::usage("enough")));
        let Err(Failure::Usage(reason)) = failed else { panic!("a run that failed: {failed:?}") };
        assert_eq!(reason, "enough");
    }
}
