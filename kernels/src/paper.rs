//! A device on paper: it has no memory and computes nothing, and counts what would be there and what would be sent.
//!
//! A program that runs on it does everything that it does on a device - places, graphs, compilations, allocations in
//! their order - but for the work itself, so that the bytes it would take are not estimated but counted, for a model of
//! any size on a machine that could never hold it. What is read back from it is zeros.
//!
//! Ranks are on paper, too: one of them runs, and the others are taken to do the same at the same time. So whatever it
//! does with them is done at once, and what it receives is zeros.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::{Buffer, Tally};
use crate::comm::{Collective, Comm, CommError, Destination, Issuer, Span, SpanMut, Ticket};
use crate::cpu::{Cpu, executable_scratch};
use crate::device::{Counts, Device, Executable, Links, Memories, Trial, Watch};
use crate::error::DeviceError;
use crate::plan::{Choice, Plan, Product, Step};

/// Bytes that a rank sends, by the group of ranks that gets them.
pub type Sent = BTreeMap<Vec<usize>, u64>;

/// A device on paper that plans for a number of threads of the CPU.
pub struct Paper {
    cpu: Cpu,
    made: Instant,
    tally: Arc<Tally>,
    sent: Arc<Mutex<Sent>>,
}

impl Paper {
    /// A device that would compute with so many threads.
    pub fn new(threads: usize) -> Self {
        let (tally, sent) = (Arc::default(), Arc::default());
        Self { cpu: Cpu::with_threads(threads), made: Instant::now(), tally, sent }
    }

    /// The most bytes that were there at once, by what they are for; together they are [`Counts::peak_bytes`].
    pub fn at_peak(&self) -> BTreeMap<&'static str, u64> {
        self.tally.at_peak()
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        locked(&self.sent).clone()
    }

    /// One of `world` ranks that has this device.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn rank(&self, rank: usize, world: usize) -> Arc<dyn Comm> {
        assert!(rank < world, "rank {rank} of {world}");
        Arc::new(Member { rank, ranks: (0..world).collect(), sent: Arc::clone(&self.sent) })
    }
}

impl Device for Paper {
    fn name(&self) -> String {
        "paper".into()
    }

    fn alloc(&self, tag: &'static str, bytes: usize) -> Result<Buffer, DeviceError> {
        Ok(Buffer::on_paper(tag, bytes).counted(&self.tally))
    }

    fn upload_at(&self, to: &mut Buffer, first: usize, from: &[u8]) -> Result<(), DeviceError> {
        to.has(first, from.len())
    }

    fn download_at(&self, from: &Buffer, first: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        from.has(first, to.len())?;
        to.fill(0);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn clock(&self) -> Duration {
        self.made.elapsed()
    }

    fn counts(&self) -> Counts {
        let [live_bytes, peak_bytes] = self.tally.bytes();
        Counts { live_bytes, peak_bytes, ..self.cpu.counts() }
    }

    fn choices(&self, product: &Product) -> Vec<Choice> {
        self.cpu.choices(product)
    }

    fn identity(&self) -> String {
        format!("paper, for {}", self.cpu.identity())
    }

    fn trial<'a>(&'a self, product: &Product) -> Result<Box<dyn Trial + 'a>, DeviceError> {
        self.cpu.trial(product)
    }

    fn prepare<'a>(
        &'a self,
        plan: Arc<Plan>,
        links: &Links<'_, 'a>,
    ) -> Result<Box<dyn Executable + 'a>, DeviceError> {
        let scratch = executable_scratch(&self.cpu, &plan, links)?;
        let groups = links.groups.iter().map(|group| group.ranks().to_vec()).collect();
        Ok(Box::new(OnPaper { plan, groups, scratch, sent: Arc::clone(&self.sent) }))
    }
}

/// A plan whose runs count what they send.
struct OnPaper {
    plan: Arc<Plan>,
    groups: Vec<Vec<usize>>,
    scratch: usize,
    sent: Arc<Mutex<Sent>>,
}

impl Executable for OnPaper {
    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }

    fn run(&mut self, memories: &mut Memories<'_>, watch: Option<&mut Watch<'_>>) -> Result<(), DeviceError> {
        memories.fit(&self.plan, Buffer::is_on_paper)?;
        for step in &self.plan.steps {
            if let Step::Start(start) = step {
                count(&self.sent, &self.groups[start.group], &start.what);
            }
        }
        if let Some(watch) = watch {
            (0..self.plan.steps.len()).for_each(|number| watch(number, Duration::ZERO));
        }
        Ok(())
    }
}

fn count(sent: &Mutex<Sent>, ranks: &[usize], what: &Collective) {
    let bytes = what.sent_bytes(ranks.len()).unwrap_or(usize::MAX) as u64;
    *locked(sent).entry(ranks.to_vec()).or_default() += bytes;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rank whose others do what it does.
struct Member {
    rank: usize,
    ranks: Vec<usize>,
    sent: Arc<Mutex<Sent>>,
}

/// Nobody waits for what is done at once.
struct Done;

impl Issuer for Done {
    fn never_waited(&self, _: u64) {}
}

impl Comm for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    fn start(&self, what: &Collective, input: Span<'_>, output: Destination) -> Result<Ticket, CommError> {
        what.check(self, input.bytes(), output.bytes())?;
        count(&self.sent, &self.ranks, what);
        Ok(Ticket::new(0, Arc::new(Done)))
    }

    fn wait(&self, ticket: Ticket, output: SpanMut<'_>) -> Result<(), CommError> {
        let SpanMut::Host(bytes) = output;
        bytes.fill(0);
        drop(ticket);
        Ok(())
    }

    fn exchange(&self, text: &str) -> Result<Vec<String>, CommError> {
        Ok(vec![text.to_owned(); self.ranks.len()])
    }

    fn group(&self, ranks: &[usize]) -> Result<Arc<dyn Comm>, CommError> {
        let own = self.ranks[self.rank];
        let rank = ranks.iter().position(|rank| *rank == own);
        let rank =
            rank.ok_or_else(|| CommError::Aborted { rank: own, why: "it is no member of its group".into() })?;
        Ok(Arc::new(Self { rank, ranks: ranks.to_vec(), sent: Arc::clone(&self.sent) }))
    }

    fn fail(&self, error: CommError) -> CommError {
        error
    }
}
