//! Laws of communication, on ranks that are threads: whatever they do in whatever order, W ranks have the bits of one
//! that adds in their order; and whatever goes wrong, on whichever rank, every rank is told the same, and none hangs.
//!
//! A random *script* is a list of operations that every rank goes through in order, each in its group; a rank waits for
//! each of its own at a place of its own, later. No script can hang that is gone through as it is written: of the
//! operations that ranks wait for, take the first in the list; whoever has not started it waits for an earlier one.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use half::{bf16, f16};
use kernels::comm::{Collective, Comm, CommError, Kind, SpanMut, Ticket};
use kernels::threads;
use kernels::tile::Element;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

const ELEMENTS: [Element; 5] = [Element::U8, Element::F16, Element::Bf16, Element::F32, Element::I32];

/// Longer than a busy machine keeps a thread waiting: no test here is about its end.
const GENEROUS: Duration = Duration::from_mins(5);

/// For ranks that are stuck for certain: how long the others wait decides nothing but how long the test takes.
const SHORT: Duration = Duration::from_millis(100);

/// An operation of a script, by the world's numbers.
#[derive(Clone, Debug)]
struct Operation {
    group: Vec<usize>, // a sender and its receiver, if it is a message
    kind: Kind,        // a message's is a send
    element: Element,
    count: usize,
    tag: u32,
}

/// What a rank does with its ticket and how long it dawdles first.
#[derive(Clone, Debug)]
struct Manner {
    delay: Duration,
    wait_after: Index, // as many operations, or as there are left
}

/// A list of operations, and the manners of each rank in each.
#[derive(Clone, Debug)]
struct Script {
    world: usize,
    operations: Vec<Operation>,
    manners: Vec<Vec<Manner>>,
    seed: u64,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The rank returns, and drops what it holds.
    Leaves,
    Panics,
    Aborts,
    OtherCount,
    OtherElement,
    OtherKind,
    OtherTag,
    WrongSize,
    DropsTicket,
    /// The operation is left out: a message is lost, or everything after it is one too early.
    Skips,
}

const FAULTS: [Fault; 10] = [
    Fault::Leaves,
    Fault::Panics,
    Fault::Aborts,
    Fault::OtherCount,
    Fault::OtherElement,
    Fault::OtherKind,
    Fault::OtherTag,
    Fault::WrongSize,
    Fault::DropsTicket,
    Fault::Skips,
];

fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![select(vec![0, 1, 2, 3, 7, 8, 63, 64, 65, 511, 512, 513, 1531]), 0..200_usize]
}

fn operation(world: usize) -> impl Strategy<Value = Operation> {
    let all: Vec<usize> = (0..world).collect();
    let group = subsequence(all, 1..=world).prop_shuffle();
    let kinds = select(vec![Kind::AllGather, Kind::ReduceScatter, Kind::AllReduce, Kind::Send { to: 0 }]);
    (group, kinds, select(ELEMENTS.to_vec()), counts(), 0..3_u32).prop_map(
        |(mut group, kind, element, count, tag)| {
            let is_message = matches!(kind, Kind::Send { .. });
            group.truncate(if is_message { 2 } else { group.len() });
            let kind = if is_message && group.len() < 2 { Kind::AllReduce } else { kind };
            Operation { group, kind, element, count, tag }
        },
    )
}

fn manner() -> impl Strategy<Value = Manner> {
    let delay = prop_oneof![4 => Just(0), 1 => 0..300_u64].prop_map(Duration::from_micros);
    (delay, any::<Index>()).prop_map(|(delay, wait_after)| Manner { delay, wait_after })
}

fn script(worlds: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Script> {
    (worlds, 1..10_usize, any::<u64>()).prop_flat_map(|(world, len, seed)| {
        let operations = vec(operation(world), len);
        let manners = vec(vec(manner(), len), world);
        (operations, manners).prop_map(move |(operations, manners)| Script {
            world,
            operations,
            manners,
            seed,
        })
    })
}

/// A rank's input of an operation: bytes that look random (`SplitMix64`); any bits, NaNs among them.
fn bytes(seed: u64, number: usize, rank: usize, len: usize) -> Vec<u8> {
    let word = |at: usize| {
        let mut bits =
            (seed ^ ((8 * number + rank) as u64) << 32).wrapping_add((at as u64 + 1) * 0x9E3779B97F4A7C15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58476D1CE4E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D049BB133111EB);
        (bits ^ bits >> 31).to_ne_bytes()
    };
    (0..len.div_ceil(8)).flat_map(word).take(len).collect()
}

impl Operation {
    /// What a member starts; `None` if a rank has no part in it.
    fn of(&self, rank: usize) -> Option<Collective> {
        let own = self.group.iter().position(|member| *member == rank)?;
        let kind = match self.kind {
            Kind::Send { .. } if own == 0 => Kind::Send { to: self.group[1] },
            Kind::Send { .. } => Kind::Receive { from: self.group[0] },
            kind => kind,
        };
        Some(Collective { kind, element: self.element, count: self.count, tag: self.tag })
    }

    /// Each member's input, in the group's order.
    fn inputs(&self, seed: u64, number: usize) -> Vec<Vec<u8>> {
        let len = |rank: &usize| {
            let what = self.of(*rank).expect("a member");
            what.input_bytes(self.group.len()).expect("small")
        };
        self.group.iter().map(|rank| bytes(seed, number, *rank, len(rank))).collect()
    }

    /// A member's result, from everyone's inputs, as the definition says it.
    fn meaning(&self, inputs: &[Vec<u8>], own: usize) -> Vec<u8> {
        let sum = || in_order(self.element, inputs);
        match self.kind {
            Kind::AllGather => inputs.concat(),
            Kind::AllReduce => sum(),
            Kind::ReduceScatter => {
                let part = self.count * self.element.bytes();
                sum()[own * part..][..part].to_vec()
            }
            Kind::Send { .. } if own == 0 => vec![],
            Kind::Send { .. } => inputs[0].clone(),
            Kind::Receive { .. } => unreachable!("a script has sends"),
        }
    }
}

/// The sum of one rank that adds in rank order: halves in f32, rounded at the end.
fn in_order(element: Element, inputs: &[Vec<u8>]) -> Vec<u8> {
    let add = |a: f32, b: f32| a + b;
    let (f16s, bf16s) = (|x| f16::from_f32(x).to_ne_bytes(), |x| bf16::from_f32(x).to_ne_bytes());
    match element {
        Element::U8 => fold(inputs, u8::from_ne_bytes, u8::wrapping_add, u8::to_ne_bytes),
        Element::I32 => fold(inputs, i32::from_ne_bytes, i32::wrapping_add, i32::to_ne_bytes),
        Element::F32 => fold(inputs, f32::from_ne_bytes, add, f32::to_ne_bytes),
        Element::F16 => fold(inputs, |two| f16::from_ne_bytes(two).to_f32(), add, f16s),
        Element::Bf16 => fold(inputs, |two| bf16::from_ne_bytes(two).to_f32(), add, bf16s),
    }
}

fn fold<const N: usize, S>(
    inputs: &[Vec<u8>],
    read: impl Fn([u8; N]) -> S,
    add: impl Fn(S, S) -> S,
    write: impl Fn(S) -> [u8; N],
) -> Vec<u8> {
    let number = |input: &Vec<u8>, lane: usize| read(input[lane * N..][..N].try_into().expect("N bytes"));
    let sum = |lane: usize| inputs.iter().map(|input| number(input, lane)).reduce(&add).expect("a rank");
    (0..inputs[0].len() / N).flat_map(|lane| write(sum(lane))).collect()
}

/// Bytes whose NaNs are all the same one: which of two a sum hands on is the processor's choice.
fn comparable(element: Element, bytes: &[u8]) -> Vec<u8> {
    let is_nan = |number: &[u8]| match element {
        Element::F32 => f32::from_ne_bytes(number.try_into().expect("four bytes")).is_nan(),
        Element::F16 => f16::from_ne_bytes(number.try_into().expect("two bytes")).is_nan(),
        Element::Bf16 => bf16::from_ne_bytes(number.try_into().expect("two bytes")).is_nan(),
        Element::U8 | Element::I32 => false,
    };
    let one = |number: &[u8]| if is_nan(number) { vec![0xFF; number.len()] } else { number.to_vec() };
    bytes.chunks(element.bytes()).flat_map(one).collect()
}

/// An operation in flight.
struct Flight {
    due: usize, // before this operation is started
    number: usize,
    ticket: Ticket,
    comm: Arc<dyn Comm>,
    output: Vec<u8>,
}

impl Flight {
    fn land(mut self) -> Result<(usize, Vec<u8>), CommError> {
        self.comm.wait(self.ticket, (&mut self.output[..]).into()).map(|()| (self.number, self.output))
    }
}

/// A rank that goes through a script.
struct Rank<'a> {
    script: &'a Script,
    comm: Arc<dyn Comm>,
    groups: HashMap<Vec<usize>, Arc<dyn Comm>>,
    flights: Vec<Flight>,
    results: Vec<(usize, Vec<u8>)>,
}

impl<'a> Rank<'a> {
    fn new(script: &'a Script, comm: Arc<dyn Comm>) -> Self {
        Self { script, comm, groups: HashMap::new(), flights: vec![], results: vec![] }
    }

    /// Its results by operation; if all goes well, all ranks meet once more at the end.
    fn go(mut self, fault: Option<(usize, Fault)>) -> Result<Vec<(usize, Vec<u8>)>, CommError> {
        for number in 0..self.script.operations.len() {
            self.land_until(number)?;
            let Some(what) = self.script.operations[number].of(self.comm.rank()) else { continue };
            match fault.filter(|(at, _)| *at == number) {
                None => self.start(number, what)?,
                Some((_, Fault::Leaves)) => return Ok(self.results),
                Some((_, fault)) => self.go_wrong(number, what, fault)?,
            }
        }
        self.land_until(self.script.operations.len())?;
        self.comm.exchange("the end")?;
        Ok(self.results)
    }

    /// Waits for what is due, the latest start first.
    fn land_until(&mut self, number: usize) -> Result<(), CommError> {
        for at in (0..self.flights.len()).rev() {
            if self.flights[at].due <= number {
                self.results.push(self.flights.remove(at).land()?);
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize, what: Collective) -> Result<(), CommError> {
        let (operation, world_rank) = (&self.script.operations[number], self.comm.rank());
        let manner = &self.script.manners[world_rank][number];
        std::thread::sleep(manner.delay);
        let comm = self.group(number)?;
        let size = |bytes: Option<usize>| bytes.expect("small");
        let input = size(what.input_bytes(operation.group.len()));
        let input = bytes(self.script.seed, number, world_rank, input);
        let mut output = vec![0xAA; size(what.output_bytes(operation.group.len()))];
        let ticket = comm.start(&what, input[..].into(), SpanMut::from(&mut output[..]).destination())?;
        let due = number + 1 + manner.wait_after.index(self.script.operations.len() - number);
        self.flights.push(Flight { due, number, ticket, comm, output });
        Ok(())
    }

    /// The world for messages, else the operation's group.
    fn group(&mut self, number: usize) -> Result<Arc<dyn Comm>, CommError> {
        let Operation { group, kind, .. } = &self.script.operations[number];
        if matches!(kind, Kind::Send { .. }) {
            return Ok(Arc::clone(&self.comm));
        }
        if let Some(known) = self.groups.get(group) {
            return Ok(Arc::clone(known));
        }
        let made = self.comm.group(group)?;
        self.groups.insert(group.clone(), Arc::clone(&made));
        Ok(made)
    }

    fn go_wrong(&mut self, number: usize, what: Collective, fault: Fault) -> Result<(), CommError> {
        let other = match fault {
            Fault::Leaves | Fault::Skips => return Ok(()),
            Fault::Panics => std::panic::resume_unwind(Box::new("a bug")),
            Fault::Aborts => {
                self.comm.abort("had enough");
                return Ok(());
            }
            Fault::DropsTicket => {
                self.start(number, what)?;
                drop(self.flights.pop());
                return Ok(());
            }
            Fault::WrongSize => {
                let destination = SpanMut::from(&mut [0; 3][..]).destination();
                let input = vec![0; 5 + what.input_bytes(self.script.world).expect("small")];
                return self.group(number)?.start(&what, input[..].into(), destination).map(drop);
            }
            Fault::OtherCount => Collective { count: what.count + 1, ..what },
            Fault::OtherElement if what.element == Element::F32 => {
                Collective { element: Element::I32, ..what }
            }
            Fault::OtherElement => Collective { element: Element::F32, ..what },
            Fault::OtherKind if what.kind == Kind::AllGather => Collective { kind: Kind::AllReduce, ..what },
            Fault::OtherKind if what.peer().is_none() => Collective { kind: Kind::AllGather, ..what },
            Fault::OtherKind => Collective { count: what.count + 1, ..what },
            Fault::OtherTag => what.with_tag(99),
        };
        self.start(number, other)
    }
}

type Outcome = Result<Result<Vec<(usize, Vec<u8>)>, CommError>, CommError>;

/// All ranks' outcomes. The calls of a rank end by themselves; that they do is what is tested, so somebody watches.
fn run(script: &Script, fault: Option<(usize, usize, Fault)>, limit: Duration) -> Vec<Outcome> {
    let (tell, message) = mpsc::channel();
    let script = script.clone();
    std::thread::spawn(move || {
        let outcomes = threads::launch(script.world, limit, |comm| {
            let own = fault.filter(|(rank, ..)| *rank == comm.rank()).map(|(_, at, fault)| (at, fault));
            Rank::new(&script, comm).go(own)
        });
        let _ = tell.send(outcomes);
    });
    message.recv_timeout(2 * GENEROUS).expect("no rank hangs")
}

/// Whether an error is that of a rank's fault.
fn is_told(error: &CommError, by: usize, fault: Fault) -> bool {
    match (fault, error) {
        (Fault::Leaves, CommError::Left { rank, .. } | CommError::NeverWaited { rank, .. })
        | (Fault::Aborts, CommError::Aborted { rank, .. })
        | (Fault::WrongSize, CommError::Size { rank, .. })
        | (Fault::DropsTicket, CommError::NeverWaited { rank, .. }) => *rank == by,
        (Fault::Panics, CommError::Panicked { rank, message }) => *rank == by && message == "a bug",
        (
            Fault::OtherCount | Fault::OtherElement | Fault::OtherKind | Fault::OtherTag,
            CommError::Mismatch { first, second, .. },
        ) => [first.0, second.0].contains(&by),
        _ => fault == Fault::Skips,
    }
}

/// A script whose last operation is all ranks', a place in it where two or more meet, and one of them.
fn place_of_fault() -> impl Strategy<Value = (Script, usize, usize)> {
    (script(2..=8), any::<Index>(), any::<Index>()).prop_map(|(mut script, place, member)| {
        let all: Vec<usize> = (0..script.world).collect();
        let last = script.operations.last_mut().expect("one at least");
        (last.group, last.kind) = (all, Kind::AllReduce);
        let meet = |number: &usize| script.operations[*number].group.len() > 1;
        let places: Vec<usize> = (0..script.operations.len()).filter(meet).collect();
        let place = *place.get(&places);
        let rank = *member.get(&script.operations[place].group);
        (script, rank, place)
    })
}

proptest! {
    #[test]
    fn ranks_have_the_bits_of_one_that_adds_in_their_order(script in script(1..=8)) {
        for (rank, outcome) in run(&script, None, GENEROUS).into_iter().enumerate() {
            let results = outcome.expect("no panic").map_err(|error| TestCaseError::fail(error.to_string()))?;
            let parts = script.operations.iter().filter(|operation| operation.group.contains(&rank));
            prop_assert_eq!(results.len(), parts.count());
            for (number, got) in results {
                let operation = &script.operations[number];
                let own = operation.group.iter().position(|member| *member == rank).expect("a member");
                let expected = operation.meaning(&operation.inputs(script.seed, number), own);
                let [got, expected] = [got, expected].map(|bytes| comparable(operation.element, &bytes));
                prop_assert!(got == expected, "rank {rank}, {operation:?}");
            }
        }
    }

    #[test]
    fn every_fault_is_the_same_error_on_every_rank(
        (script, by, at) in place_of_fault(),
        fault in select(FAULTS.to_vec()),
    ) {
        let is_message = matches!(script.operations[at].kind, Kind::Send { .. });
        let is_lost = fault == Fault::Skips || (fault == Fault::OtherTag && is_message);
        let outcomes = run(&script, Some((by, at, fault)), if is_lost { SHORT } else { GENEROUS });
        let mut message: Vec<CommError> = Vec::new();
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match outcome.and_then(|done| done) {
                Err(error) => message.push(error),
                Ok(_) => prop_assert!(rank == by && fault == Fault::Leaves, "rank {rank} was told nothing"),
            }
        }
        prop_assert!(message.iter().all(|error| *error == message[0]), "{message:?}");
        prop_assert!(is_lost || is_told(&message[0], by, fault), "{fault:?} of rank {by} in {at}: {}", message[0]);
    }

    #[test]
    fn ranks_that_would_do_different_things_are_told_the_first_line(
        world in 2..=8_usize,
        lines in vec("[a-z]{0,6}", 1..12),
        (odd, at) in (any::<Index>(), any::<Index>()),
    ) {
        let (odd, at) = (1 + odd.index(world - 1), at.index(lines.len()));
        let mut other = lines.clone();
        other[at].push('!');
        for outcome in threads::launch(world, GENEROUS, |comm| comm.agree(&lines.join("\n"))) {
            prop_assert_eq!(outcome.expect("no panic"), Ok(()));
        }
        let text = |rank: usize| if rank == odd { other.join("\n") } else { lines.join("\n") };
        for outcome in threads::launch(world, GENEROUS, |comm| comm.agree(&text(comm.rank()))) {
            let found = [Some(lines[at].clone()), Some(other[at].clone())];
            let expected = CommError::Disagree { ranks: [0, odd], place: format!("line {}", at + 1), found };
            prop_assert_eq!(outcome.expect("no panic"), Err(expected));
        }
    }
}
