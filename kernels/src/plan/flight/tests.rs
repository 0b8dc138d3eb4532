//! Plans of several ranks: what is refused, what runs, and what the others are told of a rank that cannot.

use std::time::Duration;

use super::*;
use crate::buffer::Buffer;
use crate::comm::CommError;
use crate::cpu::Cpu;
use crate::device::{Device, Links, Memories};
use crate::plan::Memory;
use crate::threads;
use crate::tile::{Binary, Element, Index, Op, Program, Store};

const LIMIT: Duration = Duration::from_mins(5);

/// Elements of each tensor.
const COUNT: usize = 8;

/// Bytes between the tensors of the arena.
const PLACE: usize = 64;

fn view(memory: Memory, bytes: usize) -> View {
    View { memory, bytes, offset: 0, strides: vec![1] }
}

fn at(place: usize) -> View {
    view(Memory::Arena(place * PLACE), PLACE)
}

/// An input of which each rank has a part.
fn shard(number: usize, ranks: usize) -> View {
    view(Memory::Input(number), COUNT / ranks * 4)
}

fn start(ticket: usize, world: usize, what: Collective, input: Option<View>, output: Option<View>) -> Step {
    Step::Start(Box::new(Start { ticket, group: 0, world, what, input, output, label: String::new() }))
}

fn wait(ticket: usize) -> Step {
    Step::Wait { ticket }
}

fn gather(ticket: usize, world: usize, input: usize, place: usize) -> Step {
    let what = Collective::all_gather(Element::F32, COUNT / world);
    start(ticket, world, what, Some(shard(input, world)), Some(at(place)))
}

/// `to = from op other`, of `COUNT` f32 each.
fn compute(op: Binary, from: usize, other: usize, to: usize) -> Step {
    let load = |input| Op::Load { input, element: Element::F32, index: Index::View };
    let ops = vec![load(0), load(1), Op::Binary(op, 0, 1)];
    let mut program = Program::flat("compute", ops, 2, Element::F32);
    program.stores.iter_mut().for_each(|store: &mut Store| store.index = Index::View);
    let (inputs, outputs) = (vec![at(from), at(other)], vec![at(to)]);
    Step::Pass { program: Arc::new(program), space: vec![COUNT], inputs, outputs }
}

/// Over an arena of eight places and inputs of one shard each.
fn plan(steps: Vec<Step>, ranks: usize) -> Plan {
    let inputs = vec![COUNT / ranks * 4; 2];
    Plan { name: "trial".into(), arena_bytes: 8 * PLACE, inputs, donated: vec![], steps }
}

/// Why a plan of two ranks is refused; empty if it is not.
fn refusal(steps: Vec<Step>) -> String {
    plan(steps, 2).check().err().map(|error| error.to_string()).unwrap_or_default()
}

fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_ne_bytes).collect()
}

/// Prepares a rank's plan and runs it twice on inputs of `rank * 10 + number`; returns the last place of the arena.
fn run_rank(device: &Cpu, comm: Arc<dyn Comm>, plan: Plan) -> Result<Vec<f32>, DeviceError> {
    let (rank, plan, groups) = (comm.rank(), Arc::new(plan), [Arc::clone(&comm), comm]);
    let mut executable = device.prepare(Arc::clone(&plan), &Links { groups: &groups, ..Links::default() })?;
    let mut arena = device.alloc("arena", plan.arena_bytes)?;
    let mut inputs: Vec<Buffer> = Vec::new();
    for (number, len) in plan.inputs.iter().enumerate() {
        let mut input = device.alloc("input", *len)?;
        device.upload(&mut input, &bytes((0..len / 4).map(|at| (rank * 10 + number + at) as f32)))?;
        inputs.push(input);
    }
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    for _ in 0..2 {
        let mut memories = Memories { arena: &mut arena, inputs: &inputs, donated: &mut [] };
        executable.run(&mut memories, None)?;
    }
    Ok(arena.view::<f32>()[7 * PLACE / 4..][..COUNT].to_vec())
}

type Outcome = Result<Vec<f32>, DeviceError>;

/// Every rank with its plan, all on one device.
fn run(ranks: usize, plan: impl Fn(usize) -> Plan + Sync) -> Vec<Outcome> {
    let device = Cpu::with_threads(2);
    let outcomes = threads::launch(ranks, LIMIT, |comm| {
        let plan = plan(comm.rank());
        run_rank(&device, comm, plan)
    });
    outcomes.into_iter().map(|outcome| outcome.expect("no panic")).collect()
}

/// The error of every rank, which is one.
fn describe(ranks: usize, plan: impl Fn(usize) -> Plan + Sync) -> String {
    let outcomes = run(ranks, plan);
    let errors: Vec<String> =
        outcomes.into_iter().map(|outcome| outcome.expect_err("no rank runs").to_string()).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors[0].clone()
}

/// Two layers: gather a weight, add it to what there is. Place 7 has the result.
fn two_layers(ranks: usize, is_prefetched: bool) -> Plan {
    let (a, b) = (gather(0, ranks, 0, 0), gather(1, ranks, 1, 1));
    let (first, second) = (compute(Binary::Add, 0, 0, 2), compute(Binary::Mul, 2, 1, 7));
    let steps = if is_prefetched {
        vec![a, wait(0), b, first, wait(1), second]
    } else {
        vec![a, wait(0), first, b, wait(1), second]
    };
    plan(steps, ranks)
}

#[test]
fn a_prefetching_plan_is_one_whose_start_is_moved_up() {
    let text = "plan trial (6 steps, arena of 512 bytes)
  0: start 0: all-gather of 4 f32 in group 0: input 0[1] -> @0[1]
  1: wait 0
  2: start 1: all-gather of 4 f32 in group 0: input 1[1] -> @64[1]
  3: compute over [8]: @0[1], @0[1] -> @128[1]
  4: wait 1
  5: compute over [8]: @128[1], @64[1] -> @448[1]
";
    assert_eq!(two_layers(2, true).to_string(), text);
    for ranks in [1, 2, 4, 8] {
        let part = COUNT / ranks;
        let weight = |number: usize, at: usize| (at / part * 10 + number + at % part) as f32;
        let expected: Vec<f32> = (0..COUNT).map(|at| 2.0 * weight(0, at) * weight(1, at)).collect();
        for is_prefetched in [false, true] {
            for outcome in run(ranks, |_| two_layers(ranks, is_prefetched)) {
                assert_eq!(outcome.expect("runs"), expected, "{ranks} ranks, prefetched: {is_prefetched}");
            }
        }
    }
}

#[test]
fn what_is_in_flight_is_not_touched() {
    let needed = "memory that no operation in flight reads or writes";
    let refused = |step: Step| refusal(vec![gather(0, 2, 0, 0), step, wait(0)]);
    assert_eq!(refused(compute(Binary::Add, 1, 2, 3)), "");
    let read = format!("step 1 of plan trial, compute, needs {needed}");
    assert_eq!(refused(compute(Binary::Add, 0, 2, 3)), read, "the output is read too early");
    assert_eq!(refused(compute(Binary::Add, 1, 2, 0)), read, "the output is written by two");
    let other = "step 1 of plan trial, all-gather of 4 f32, needs ".to_owned() + needed;
    assert_eq!(refused(gather(1, 2, 1, 0)), other, "the output is another's, too");
    let reduce = |ticket, from, to| {
        start(ticket, 2, Collective::all_reduce(Element::F32, COUNT), Some(at(from)), Some(at(to)))
    };
    let both = |step: Step, waits: Vec<Step>| refusal([vec![reduce(0, 0, 1), step], waits].concat());
    assert_eq!(both(reduce(1, 0, 2), vec![wait(1), wait(0)]), "", "two read one input");
    assert_eq!(both(compute(Binary::Add, 0, 2, 3), vec![wait(0)]), "", "an input may be read");
    assert_eq!(both(compute(Binary::Add, 2, 2, 0), vec![wait(0)]), read, "and not written");
}

#[test]
fn a_ticket_is_started_and_waited_for_once() {
    let needs =
        |step: usize, name: &str, needed: &str| format!("step {step} of plan trial, {name}, needs {needed}");
    let gathered = |ticket, place| gather(ticket, 2, 0, place);
    assert_eq!(refusal(vec![wait(0)]), needs(0, "wait 0", "a ticket in flight"));
    assert_eq!(refusal(vec![gathered(0, 0), wait(0), wait(0)]), needs(2, "wait 0", "a ticket in flight"));
    assert_eq!(
        refusal(vec![gathered(0, 0), gathered(1, 1), wait(1)]),
        needs(0, "all-gather of 4 f32", "a step that waits for its ticket")
    );
    assert_eq!(
        refusal(vec![gathered(3, 0), wait(3), gathered(3, 1), wait(3)]),
        needs(2, "all-gather of 4 f32", "a ticket of its own")
    );
}

#[test]
fn a_start_has_the_memory_that_its_operation_needs() {
    let of = |what: Collective, input: Option<View>, output: Option<View>| {
        let message = refusal(vec![start(0, 2, what, input, output), wait(0)]);
        message.rsplit(" needs ").next().unwrap_or_default().to_owned()
    };
    let (sum, send) = (Collective::all_reduce(Element::F32, COUNT), Collective::send(1, Element::U8, 1));
    assert_eq!(of(sum, Some(at(0)), Some(at(1))), "");
    assert_eq!(of(sum, Some(at(0)), Some(at(0))), "", "in place");
    let shifted = View { offset: 1, ..at(0) };
    assert_eq!(of(sum, Some(at(0)), Some(shifted)), "an output apart from its input");
    assert_eq!(of(send, Some(at(0)), None), "");
    let sides = "an input unless it receives, and an output unless it sends";
    assert_eq!(of(send, Some(at(0)), Some(at(1))), sides);
    assert_eq!(of(sum, None, Some(at(1))), sides);
    assert_eq!(of(Collective::send(2, Element::U8, 1), Some(at(0)), None), "a peer in its group");
    let large = Collective { count: usize::MAX, ..sum };
    assert_eq!(of(large, Some(at(0)), Some(at(1))), "elements that can be counted");
    let (given, beyond) = (view(Memory::Input(0), 16), View { offset: 9, ..at(0) });
    let four = Collective { count: 4, ..sum };
    assert_eq!(of(four, Some(at(0)), Some(given)), "an output in the arena: what is given is only read");
    assert_eq!(of(sum, Some(beyond), Some(at(1))), "an input that lies in its memory, side by side");
    let apart = View { strides: vec![2], ..at(0) };
    assert_eq!(of(four, Some(at(1)), Some(apart)), "an output that lies in its memory, side by side");
}

#[test]
fn ranks_may_have_plans_of_their_own() {
    let what = |rank: usize| match rank {
        0 => start(0, 2, Collective::send(1, Element::F32, COUNT), Some(at(0)), None),
        _ => start(0, 2, Collective::receive(0, Element::F32, COUNT), None, Some(at(7))),
    };
    let outcomes = run(2, |rank| {
        let before = [gather(1, 2, 0, 0), wait(1)];
        let steps = if rank == 0 { vec![what(0), wait(0)] } else { vec![what(1), wait(0)] };
        plan([&before[..], &steps].concat(), 2)
    });
    let [zeros, received] = outcomes.try_into().expect("two ranks");
    assert_eq!(zeros, Ok(vec![0.0; COUNT]));
    assert_eq!(received, Ok(vec![0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]));
}

#[test]
fn plans_that_do_not_fit_together_are_refused_on_every_rank() {
    let other = |rank: usize| {
        let mut plan = two_layers(2, false);
        if rank == 1 {
            plan.steps.truncate(3);
        }
        plan
    };
    assert_eq!(
        describe(2, other),
        "ranks disagree at operation 2 of [0, 1]: rank 0 has `all-gather of 4 f32`, rank 1 has nothing there"
    );
    let crossed = |rank: usize| {
        let send = start(0, 2, Collective::send(1 - rank, Element::F32, 1), Some(at(0)), None);
        let receive = start(1, 2, Collective::receive(1 - rank, Element::F32, 1), None, Some(at(1)));
        plan(vec![send, wait(0), receive, wait(1)], 2)
    };
    assert!(
        describe(2, crossed)
            .starts_with("ranks would wait for each other: rank 0 for 1 f32 (operation 1 of 0 -> 1")
    );
}

/// Which they do by their label where sizes do not tell; and a group that is linked twice is one.
#[test]
fn starts_that_meet_have_to_say_the_same() {
    let labelled = |label: &str| {
        let Step::Start(start) = gather(0, 2, 0, 0) else { unreachable!("a start") };
        let start = Start { group: 1, label: label.to_owned(), ..*start };
        plan(vec![Step::Start(Box::new(start)), wait(0)], 2)
    };
    assert!(run(2, |_| labelled("f32[2, 2] along\ndimension 0")).iter().all(Result::is_ok));
    assert_eq!(
        describe(2, |rank| labelled(["f32[2, 2]", "f32[4, 1]"][rank])),
        "ranks disagree at operation 1 of [0, 1]: rank 0 has `all-gather of 4 f32, f32[2, 2]`, rank 1 has \
         `all-gather of 4 f32, f32[4, 1]`"
    );
}

#[test]
fn a_group_that_is_not_linked_is_refused() {
    let device = Cpu::with_threads(1);
    let describe = |plan: Plan, groups: &[Arc<dyn Comm>]| {
        let links = Links { groups, ..Links::default() };
        device.prepare(Arc::new(plan), &links).err().expect("is refused").to_string()
    };
    let needs = |needed: &str| format!("step 0 of plan trial, all-gather of 4 f32, needs {needed}");
    assert_eq!(describe(two_layers(2, true), &[]), needs("a group that is linked"));
    let alone: Arc<dyn Comm> = Arc::new(threads::world(1, LIMIT).remove(0));
    assert_eq!(describe(two_layers(2, true), &[alone]), needs("a group of as many ranks"));
}

#[test]
fn a_rank_that_cannot_prepare_or_run_tells_the_others() {
    let unprepared = run(2, |rank| {
        let mut plan = two_layers(2, false);
        plan.arena_bytes = if rank == 1 { 0 } else { plan.arena_bytes };
        plan
    });
    let needed =
        "step 0 of plan trial, all-gather of 4 f32, needs an output that lies in its memory, side by side";
    let why = CommError::Aborted { rank: 1, why: needed.into() };
    assert_eq!(unprepared[0], Err(DeviceError::Comm(why)));
    assert_eq!(unprepared[1].as_ref().map_err(ToString::to_string), Err(needed.to_owned()));
    // A scatter whose index is outside its table fails on one rank only, before what the others wait for.
    let failing = run(2, |rank| {
        let index = View { bytes: 4, strides: vec![], ..view(Memory::Input(rank), 4) };
        let rows = View { strides: vec![], ..at(3) };
        let to = View { strides: vec![], ..at(4) };
        let scatter = Step::Scatter { rows, index, to, count: 1, width: 1, table: 1 };
        let steps = vec![gather(0, 2, 0, 0), wait(0), scatter, gather(1, 2, 1, 1), wait(1)];
        plan(steps, 2)
    });
    let errors: Vec<String> =
        failing.into_iter().map(|outcome| outcome.expect_err("rank 1 fails").to_string()).collect();
    assert!(errors[1].starts_with("operation 0 of program scatter reads place"), "{errors:?}");
    assert_eq!(errors[0], format!("rank 1 aborted: plan trial: {}", errors[1]));
}

#[test]
fn more_ranks_than_threads_may_share_a_device() {
    for outcome in run(8, |_| two_layers(8, true)) {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}
