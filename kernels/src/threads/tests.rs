//! Ranks on one thread, one call after the other: `start` waits for nobody, so every order of calls can be written
//! down.

use std::sync::mpsc;

use super::*;
use crate::tile::Element;

const LONG: Duration = Duration::from_mins(10);

fn start(comm: &dyn Comm, what: Collective, input: &[u8]) -> Result<Ticket, CommError> {
    let bytes = what.output_bytes(comm.world()).expect("small");
    comm.start(&what, input.into(), Destination::Host { bytes })
}

fn wait(comm: &dyn Comm, ticket: Ticket, bytes: usize) -> Result<Vec<u8>, CommError> {
    let mut output = vec![0xAA; bytes];
    comm.wait(ticket, (&mut output[..]).into()).map(|()| output)
}

/// Every rank starts the same operation, then every rank waits for it.
fn together(ranks: &[Threads], what: Collective, input: impl Fn(usize) -> Vec<u8>) -> Vec<Vec<u8>> {
    let tickets: Vec<Ticket> =
        ranks.iter().map(|comm| start(comm, what, &input(comm.rank())).expect("starts")).collect();
    let bytes = what.output_bytes(ranks.len()).expect("small");
    ranks.iter().zip(tickets).map(|(comm, ticket)| wait(comm, ticket, bytes).expect("is there")).collect()
}

/// Two ranks start different things; both are told so.
fn mismatch(first: Collective, second: Collective) -> String {
    let ranks = world(2, LONG);
    let input = |what: Collective| vec![0; what.input_bytes(2).expect("small")];
    let ticket = start(&ranks[0], first, &input(first)).expect("the first meets nobody");
    let message = start(&ranks[1], second, &input(second)).expect_err("the second meets the first");
    assert_eq!(wait(&ranks[0], ticket, 0).expect_err("the same"), message);
    assert_eq!(ranks[0].exchange("").expect_err("the same from now on"), message);
    message.to_string()
}

#[test]
fn every_collective_gives_what_its_table_says() {
    for world_size in 1..=8_usize {
        let ranks = world(world_size, LONG);
        let all: Vec<u8> = (0..2 * world_size as u8).collect();
        let own = |rank: usize| all[2 * rank..][..2].to_vec();
        for got in together(&ranks, Collective::all_gather(Element::U8, 2), own) {
            assert_eq!(got, all);
        }
        let parts = together(&ranks, Collective::reduce_scatter(Element::U8, 2), |_| all.clone());
        let times = |bytes: &[u8]| bytes.iter().map(|byte| byte * world_size as u8).collect::<Vec<u8>>();
        assert_eq!(parts.concat(), times(&all));
        for count in 0..12 {
            let what = Collective::all_reduce(Element::U8, count);
            let sum: u8 = (1..=world_size as u8).sum();
            for got in together(&ranks, what, |rank| vec![rank as u8 + 1; count]) {
                assert_eq!(got, vec![sum; count]);
            }
        }
    }
}

#[test]
fn an_input_may_change_after_its_start() {
    let ranks = world(1, LONG);
    let mut input = vec![7];
    let ticket = start(&ranks[0], Collective::all_gather(Element::U8, 1), &input).expect("starts");
    input[0] = 8;
    assert_eq!(wait(&ranks[0], ticket, 1).expect("is there"), [7]);
}

#[test]
fn tickets_are_waited_for_in_any_order() {
    let ranks = world(2, LONG);
    let what = Collective::all_gather(Element::U8, 1);
    let start_two = |comm: &Threads| {
        [1, 2].map(|byte| start(comm, what, &[10 * byte + comm.rank() as u8]).expect("starts"))
    };
    let ([a, b], [c, d]) = (start_two(&ranks[0]), start_two(&ranks[1]));
    assert_eq!(wait(&ranks[0], b, 2).expect("is there"), [20, 21]);
    assert_eq!(wait(&ranks[1], c, 2).expect("is there"), [10, 11]);
    assert_eq!(wait(&ranks[1], d, 2).expect("is there"), [20, 21]);
    assert_eq!(wait(&ranks[0], a, 2).expect("is there"), [10, 11]);
}

#[test]
fn messages_of_one_tag_keep_their_order_and_pass_others() {
    let ranks = world(2, LONG);
    let send =
        |tag: u32, byte: u8| start(&ranks[0], Collective::send(1, Element::U8, 1).with_tag(tag), &[byte]);
    let receive = |tag: u32| start(&ranks[1], Collective::receive(0, Element::U8, 1).with_tag(tag), &[]);
    let sent = [(0, 1), (0, 2), (5, 3)].map(|(tag, byte)| send(tag, byte).expect("starts"));
    let received = [5, 0, 0].map(|tag| receive(tag).expect("starts"));
    let got = received.map(|ticket| wait(&ranks[1], ticket, 1).expect("is there")[0]);
    assert_eq!(got, [3, 1, 2]);
    for ticket in sent {
        wait(&ranks[0], ticket, 0).expect("was received");
    }
}

#[test]
fn a_rank_may_send_to_itself() {
    let ranks = world(1, LONG);
    let sent = start(&ranks[0], Collective::send(0, Element::U8, 1), &[4]).expect("starts");
    let received = start(&ranks[0], Collective::receive(0, Element::U8, 1), &[]).expect("starts");
    assert_eq!(wait(&ranks[0], received, 1).expect("is there"), [4]);
    wait(&ranks[0], sent, 0).expect("was received");
}

#[test]
fn a_group_has_an_order_and_operations_of_its_own() {
    let ranks = world(3, LONG);
    let [a, b] = [2, 0].map(|rank: usize| ranks[rank].group(&[2, 0]).expect("a group"));
    let again = [2, 0].map(|rank: usize| ranks[rank].group(&[2, 0]).expect("another group"));
    assert_eq!((a.rank(), b.rank(), b.world(), b.ranks()), (0, 1, 2, &[2, 0][..]));
    let what = Collective::all_gather(Element::U8, 1);
    let early = start(&*again[0], what, &[9]).expect("starts");
    let (mine, theirs) = (start(&*a, what, &[20]).expect("starts"), start(&*b, what, &[0]).expect("starts"));
    assert_eq!(wait(&*a, mine, 2).expect("is there"), [20, 0]);
    assert_eq!(wait(&*b, theirs, 2).expect("is there"), [20, 0]);
    let late = start(&*again[1], what, &[8]).expect("starts");
    assert_eq!(wait(&*again[1], late, 2).expect("is there"), [9, 8]);
    assert_eq!(wait(&*again[0], early, 2).expect("is there"), [9, 8]);
    let inner = b.group(&[1]).expect("a group of a group");
    assert_eq!((inner.rank(), inner.ranks()), (0, &[0][..]));
}

#[test]
fn a_list_that_is_no_group_is_refused() {
    let describe = |list: &[usize]| world(3, LONG)[1].group(list).err().expect("no group").to_string();
    let expected = ": expected 1 and others below 3, each once";
    assert_eq!(describe(&[0, 2]), format!("rank 1 asked for the group [0, 2]{expected}"));
    assert_eq!(describe(&[1, 3]), format!("rank 1 asked for the group [1, 3]{expected}"));
    assert_eq!(describe(&[1, 0, 1]), format!("rank 1 asked for the group [1, 0, 1]{expected}"));
}

#[test]
fn every_mismatch_names_both_ranks_and_operations() {
    let gather = Collective::all_gather(Element::F32, 2);
    let place =
        "ranks 0 and 1 differ in operation 1 of ranks [0, 1]: rank 0 started all-gather of 2 f32, rank 1";
    for (other, named) in [
        (Collective::all_reduce(Element::F32, 2), "all-reduce of 2 f32"),
        (Collective::all_gather(Element::I32, 2), "all-gather of 2 i32"),
        (Collective::all_gather(Element::F32, 3), "all-gather of 3 f32"),
        (gather.with_tag(1), "all-gather of 2 f32, tag 1"),
    ] {
        assert_eq!(mismatch(gather, other), format!("{place} started {named}"));
    }
    let (send, receive) = (Collective::send(1, Element::U8, 2), Collective::receive(0, Element::U8, 3));
    assert_eq!(
        mismatch(send, receive),
        "ranks 0 and 1 differ in message 1 from rank 0 to 1, tag 0: rank 0 started send of 2 u8 to rank 1, rank 1 \
         started receive of 3 u8 from rank 0"
    );
}

#[test]
fn a_wrong_size_is_everyones_error() {
    let describe = |input: usize, bytes: usize| {
        let ranks = world(2, LONG);
        let what = Collective::reduce_scatter(Element::F16, 3);
        let (input, output) = (vec![0; input], Destination::Host { bytes });
        let error = ranks[1].start(&what, input[..].into(), output).expect_err("is refused");
        assert_eq!(start(&ranks[0], what, &[0; 12]).expect_err("the same"), error);
        error.to_string()
    };
    assert_eq!(describe(6, 6), "reduce-scatter of 3 f16 on rank 1: expected an input of 12 bytes, found 6");
    assert_eq!(describe(12, 5), "reduce-scatter of 3 f16 on rank 1: expected an output of 6 bytes, found 5");
    let ranks = world(1, LONG);
    let ticket = start(&ranks[0], Collective::all_gather(Element::U8, 2), &[1, 2]).expect("starts");
    assert_eq!(
        wait(&ranks[0], ticket, 3).expect_err("another size than announced").to_string(),
        "all-gather of 2 u8 on rank 0: expected an output of 2 bytes, found 3"
    );
}

#[test]
fn a_peer_that_is_no_member_is_refused() {
    let ranks = world(2, LONG);
    let error = start(&ranks[0], Collective::send(2, Element::U8, 1), &[0]).expect_err("no such rank");
    assert_eq!(
        error.to_string(),
        "send of 1 u8 to rank 2, started by rank 0: expected a peer below 2, found 2"
    );
}

#[test]
fn a_ticket_of_another_rank_or_group_is_refused() {
    let what = Collective::all_gather(Element::U8, 1);
    let ranks = world(2, LONG);
    let ticket = start(&ranks[0], what, &[0]).expect("starts");
    let message = "rank 1 waits in group [0, 1] for a ticket that is not its own there";
    assert_eq!(wait(&ranks[1], ticket, 2).expect_err("another rank's").to_string(), message);
    let ranks = world(2, LONG);
    let group = ranks[0].group(&[0, 1]).expect("a group");
    let ticket = start(&ranks[0], what, &[0]).expect("starts");
    let message = "rank 0 waits in group [0, 1] for a ticket that is not its own there";
    assert_eq!(wait(&*group, ticket, 2).expect_err("another group's").to_string(), message);
}

#[test]
fn a_ticket_that_is_never_waited_for_is_everyones_error() {
    let what = Collective::all_gather(Element::U8, 1);
    let message = "rank 0 dropped the ticket of all-gather of 1 u8 (operation 1 of ranks [0, 1]) and never waited for it";
    let ranks = world(2, LONG);
    drop(start(&ranks[0], what, &[0]).expect("starts"));
    assert_eq!(ranks[1].exchange("").expect_err("is told").to_string(), message);
    let mut ranks = world(2, LONG);
    std::mem::forget(start(&ranks[0], what, &[0]).expect("starts"));
    drop(ranks.remove(0));
    assert_eq!(ranks[0].exchange("").expect_err("is told").to_string(), message);
}

#[test]
fn a_rank_that_leaves_is_missed_by_those_that_need_it() {
    let what = Collective::all_gather(Element::U8, 1);
    let message =
        "rank 1 left without all-gather of 1 u8 (operation 1 of ranks [0, 1, 2]), which rank 0 has started";
    let mut ranks = world(3, LONG);
    let ticket = start(&ranks[0], what, &[0]).expect("starts");
    drop(ranks.remove(1));
    assert_eq!(wait(&ranks[0], ticket, 3).expect_err("left after the start").to_string(), message);
    let mut ranks = world(3, LONG);
    drop(ranks.remove(1));
    assert_eq!(start(&ranks[0], what, &[0]).expect_err("left before the start").to_string(), message);
    assert_eq!(ranks[1].exchange("").expect_err("is told, too").to_string(), message);
}

#[test]
fn a_rank_that_left_is_missed_in_groups_that_it_never_joined() {
    let mut ranks = world(2, LONG);
    let group = ranks[0].group(&[0, 1]).expect("a group");
    drop(ranks.remove(1));
    assert_eq!(
        group.exchange("").expect_err("rank 1 is gone").to_string(),
        "rank 1 left without exchange of texts (operation 1 of ranks [0, 1]), which rank 0 has started"
    );
}

#[test]
fn a_rank_may_leave_when_its_part_is_done() {
    let mut ranks = world(2, LONG);
    let what = Collective::all_gather(Element::U8, 1);
    let [a, b] = [0, 1].map(|rank: usize| start(&ranks[rank], what, &[rank as u8]).expect("starts"));
    assert_eq!(wait(&ranks[0], a, 2).expect("is there"), [0, 1]);
    drop(ranks.remove(0));
    assert_eq!(wait(&ranks[0], b, 2).expect("is there"), [0, 1]);
}

#[test]
fn a_rank_that_never_starts_is_a_timeout_that_names_it() {
    let ranks = world(3, Duration::from_millis(20));
    let what = Collective::all_reduce(Element::F32, 1);
    let [a, b] = [0, 2].map(|rank: usize| start(&ranks[rank], what, &[0; 4]).expect("starts"));
    let message =
        "rank 0 waited 20ms for ranks [1] to start all-reduce of 1 f32 (operation 1 of ranks [0, 1, 2])";
    assert_eq!(wait(&ranks[0], a, 4).expect_err("rank 1 is alive and does nothing").to_string(), message);
    assert_eq!(wait(&ranks[2], b, 4).expect_err("the same").to_string(), message);
    assert_eq!(ranks[1].exchange("").expect_err("the same").to_string(), message);
}

#[test]
fn a_message_that_nobody_receives_is_a_timeout_of_its_sender() {
    let ranks = world(2, Duration::from_millis(20));
    let ticket = start(&ranks[0], Collective::send(1, Element::U8, 1).with_tag(3), &[0]).expect("starts");
    assert_eq!(
        wait(&ranks[0], ticket, 0).expect_err("no receive").to_string(),
        "rank 0 waited 20ms for ranks [1] to start send of 1 u8 to rank 1, tag 3 (message 1 from rank 0 to 1, tag 3)"
    );
}

#[test]
fn an_abort_ends_every_group() {
    let ranks = world(3, LONG);
    let group = ranks[0].group(&[0, 1]).expect("a group");
    ranks[2].abort("out of memory");
    assert_eq!(group.exchange("").expect_err("aborted").to_string(), "rank 2 aborted: out of memory");
    ranks[1].abort("later");
    assert_eq!(ranks[1].exchange("").expect_err("the first").to_string(), "rank 2 aborted: out of memory");
}

#[test]
fn ranks_that_disagree_are_told_the_line() {
    let plan = |rank: usize| format!("all-gather of 1 f32\nall-reduce of {} f32\n", 1 + rank / 2);
    let agreed = launch(2, LONG, |comm| comm.agree(&plan(comm.rank())));
    assert_eq!(agreed, [Ok(Ok(())), Ok(Ok(()))]);
    for message in launch(3, LONG, |comm| comm.agree(&plan(comm.rank()))) {
        assert_eq!(
            message.expect("no panic").expect_err("rank 2 differs").to_string(),
            "ranks disagree at line 2: rank 0 has `all-reduce of 1 f32`, rank 2 has `all-reduce of 2 f32`"
        );
    }
}

#[test]
fn a_panic_is_told_to_all() {
    let outcomes = launch(3, LONG, |comm| {
        assert!(comm.rank() != 1, "a bug of rank {}", comm.rank());
        let group = comm.group(&[0, 1, 2])?; // when rank 1 has panicked already, this says so
        let ticket = start(&*group, Collective::all_reduce(Element::U8, 1), &[1])?;
        wait(&*group, ticket, 1).map(|sum| sum[0])
    });
    let message = CommError::Panicked { rank: 1, message: "a bug of rank 1".into() };
    assert_eq!(outcomes, [Ok(Err(message.clone())), Err(message.clone()), Ok(Err(message))]);
}

#[test]
fn a_handle_dropped_by_a_panic_is_told_to_all() {
    let mut ranks = world(2, LONG);
    let last = ranks.remove(1);
    let ended = std::thread::spawn(move || {
        let _held = last;
        panic!("a bug");
    })
    .join();
    assert!(ended.is_err());
    assert_eq!(ranks[0].exchange("").expect_err("rank 1 is gone").to_string(), "rank 1 panicked");
}

#[test]
fn a_busy_rank_is_waited_for_and_its_result_is_right() {
    let (tell, message) = mpsc::channel::<()>();
    let message = std::sync::Mutex::new(message);
    let sums = launch(2, LONG, |comm| {
        let input = [comm.rank() as u8 + 1];
        if comm.rank() == 1 {
            message.lock().expect("only rank 1").recv().expect("rank 0 has started");
        }
        let ticket = start(&*comm, Collective::all_reduce(Element::U8, 1), &input)?;
        if comm.rank() == 0 {
            tell.send(()).expect("rank 1 listens");
        }
        wait(&*comm, ticket, 1)
    });
    assert_eq!(sums, [Ok(Ok(vec![3])), Ok(Ok(vec![3]))]);
}
