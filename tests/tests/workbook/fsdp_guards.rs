//! Contract of challenge B: every guard is tripped by a cheat of its kind, and by no honest attempt.

use scorecard::{Challenge, Check, Outcome, Scorecard, Truth};
use tests::attempts::SHARDERS;
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 9] = [
    ("holds everything on every rank", "everything on every rank"),
    ("leaves everything to rank 0", "everything on every rank"),
    ("gathers in wide numbers", "more than shards on the wire"),
    ("takes its own gradient for the sum", "ranks left out"),
    ("takes its own norm for everyone's", "ranks left out"),
    ("searches for its schedule", "an oracle called inside a step"),
    ("takes the better schedule", "an oracle called inside a step"),
    ("searches for some shapes only", "an oracle called inside a step"),
    ("takes its own norm from the reference", "an oracle called inside a step"),
];

fn fsdp(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "fsdp").expect("all five are there")
}

#[test]
fn a_cheating_sharder_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let ran = own(OWN, cheat, &["test", "fsdp", "--json", "--seed", "0x1"]);
        let card = ran.card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert!(ran.code == 1, "{cheat} passes");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 30] = [
    ("divides elements by ranks", "B.1/rows-of-no-whole-number-of-blocks", "likely cause: elements or rows"),
    ("leaves the padding in", "B.2/padding", "likely cause: padding"),
    ("gathers in wide numbers", "B.2/four-bits-on-the-wire", "cast before they are gathered"),
    ("gathers a row", "B.2/bytes", "likely cause: a whole part has one dimension"),
    ("gathers right on five ranks only", "B.2/any-part-on-any-ranks", "ranks: rank "),
    ("gathers small parts in wide numbers", "B.2/any-part-on-any-ranks", "cast before it is gathered"),
    ("keeps what it has no room for", "B.3/no-room", "beyond the room"),
    ("keeps the first pieces", "B.3/the-last-first", "the rule: from the last piece to the first"),
    ("takes its own gradient for the sum", "B.4/sums", "nobody was asked"),
    ("pads nothing", "B.4/padding-is-zeros", "likely cause: the gradient was not padded"),
    ("sums everything everywhere", "B.4/no-more-than-a-scatter", "an all-reduce"),
    ("counts copies twice", "B.4/norm-of-copies", "counts several times"),
    ("writes an output of its own", "B.4/norm", "writes no output of its own, found `norm`"),
    ("takes the root before the sum", "B.4/norm", "likely cause: the root is taken before the sum"),
    ("leaves a group out", "B.4/norm-over-groups", "likely cause: a group is left out"),
    ("starts every gather early", "B.5/two-at-a-time", "the first gather has no work before it"),
    ("moves every layer", "B.6/everything", "layers go to the host"),
    ("keeps layers a byte beyond the room", "B.6/just-fits", "beyond the room"),
    ("cuts nothing", "B.7/every-parameter-is-cut", "B.7, `"),
    ("cuts what is as large on each rank", "B.7/every-parameter-is-cut", "expected Whole, found Rows"),
    ("joins nothing", "B.7/forward", "what follows o_proj and down_proj is not summed"),
    ("joins nothing", "B.7/gradients-of-adapters", "the forward is wrong as well"),
    ("leaves gradients of what is whole", "B.7/gradients-of-adapters", "not summed over the ranks"),
    ("does one F and one B in turn", "B.8/bubble-of-4-ranks", "likely cause: R waits for the gradient"),
    ("does one F and one B in turn", "B.8/shorter-than-1f1b", "expected less than the 15.5 units"),
    ("searches for some shapes only", "B.8/shorter-than-1f1b", "reference::schedule::shortest called"),
    ("takes its own norm from the reference", "B.4/norm", "reference::optim::norm called"),
    ("forgets the cap", "B.8/caps", "cap"),
    ("panics among ranks that train", "B/trains-in-shards", "no trained parameter lies on two ranks"),
    (
        "has a hole that training reaches",
        "B/trains-in-shards",
        "a hole that no check reaches: B.1: the trained",
    ),
];

#[test]
fn a_slip_in_a_step_of_a_sharder_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("fsdp:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
    }
}

#[test]
fn what_ranks_put_on_the_wire_is_counted_where_they_train() {
    let ran =
        own(OWN, "sums everything where it trains", &["replay", "fsdp:B/trains-in-shards", "--seed", "0x5"]);
    let sums = ran.stdout.split(" B in sums (limit ").next().and_then(|text| text.rsplit(' ').next());
    let limit = ran.stdout.split(" B in sums (limit ").nth(1).and_then(|text| text.split(':').next());
    let [sums, limit] = [sums, limit].map(|text| text.and_then(|text| text.parse::<f64>().ok()));
    assert!(sums > limit.map(|limit| 1.1 * limit) && ran.code == 1, "{}", ran.stdout);
}

#[test]
fn what_only_ranks_reach_costs_the_rows_that_rest_on_it() {
    let fact = |slip: &str, wording: &str| {
        let ran = own(OWN, slip, &["score", "B", "--quick", "--json", "--seed", "0x5"]);
        let card = ran.card();
        let row = fsdp(&card).rows.iter().find(|row| row.wording.starts_with(wording)).expect("a line of B");
        assert!(ran.code == 1, "{slip} passes");
        (row.fact, row.evidence.clone())
    };
    let (truth, evidence) = fact("panics among ranks that train", "FSDP2_works_with_QLoRA and");
    assert!(truth == Truth::Unmet && evidence.contains("B/trains-in-shards is wrong"), "{evidence}");
    let (truth, evidence) = fact("has no pipeline to run", "else: TP_or_PP_with_QLoRA with");
    assert!(truth == Truth::Unmet && evidence.contains("B/runs-a-pipeline is wrong"), "{evidence}");
}

#[test]
fn a_dequantiser_is_tried_at_the_sizes_of_the_timed_step() {
    let number = |attempt: &str, name: &str| {
        let ran = own(
            OWN,
            attempt,
            &["bench", "B", "--quick", "--case", "times-a-step", "--samples", "2", "--json"],
        );
        fsdp(&ran.card()).measurements[&format!("fsdp.dequantizer.{name}")].value
    };
    let cheat = "dequantises nothing at the sizes of B";
    assert_eq!((number(cheat, "own"), number(cheat, "wrong_sizes")), (0.0, 3.0));
    let honest = "an honest sharder with its dequantiser";
    assert_eq!((number(honest, "own"), number(honest, "apart")), (1.0, 0.0));
}

/// The check of the timed step.
fn timed_step(attempt: &str) -> Check {
    let case = ["bench", "B", "--quick", "--case", "times-a-step", "--samples", "2", "--json"];
    let card = own(OWN, attempt, &case).card();
    let timed = fsdp(&card).checks.iter().find(|check| check.name == "B/times-a-step");
    timed.unwrap_or_else(|| panic!("{attempt}: {:#?}", fsdp(&card).checks)).clone()
}

#[test]
#[cfg(target_os = "linux")]
fn threads_next_to_ranks_are_seen() {
    for cheat in ["spins next to the ranks", "borrows threads among ranks"] {
        let timed = timed_step(cheat);
        let is_seen = timed.detail.contains("other threads of the process ran for");
        assert!(timed.outcome == Outcome::Wrong && is_seen, "{cheat}: {timed:#?}");
    }
    let twin = timed_step("sleeps next to the ranks");
    assert!(twin.outcome == Outcome::Passed, "{twin:#?}");
}

/// Other operations write to an output's memory between two steps, so the attempt finds no answer to leave as it is.
/// Where it found one, the windows that are spoilt before each call would make its losses wrong.
#[test]
fn outputs_hold_no_answer_of_an_earlier_step() {
    let timed = timed_step("relies on the step before");
    assert!(timed.outcome == Outcome::Passed, "{timed:#?}");
}

#[test]
fn schedules_of_two_rules_are_own_work() {
    let ran = own(OWN, "simulates its own schedules", &["test", "B.8", "--json", "--seed", "0x1"]);
    let card = ran.card();
    let open: Vec<_> = fsdp(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty() && tripped(&card).is_empty() && ran.code == 0, "{open:#?}");
}

/// Which dequantiser is faster depends on the machine: that row may be anything.
#[test]
fn an_honest_sharder_trips_no_guard_and_passes_every_check() {
    let honest = SHARDERS.last().expect("it is the last one").name;
    let ran = own(OWN, honest, &["score", "B", "--quick", "--json", "--seed", "0x2"]);
    let card = ran.card();
    assert!(tripped(&card).is_empty(), "{:#?}", card.guards);
    let open: Vec<_> = fsdp(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty(), "{open:#?}");
    assert!(fsdp(&card).points >= 7, "{:#?}", fsdp(&card).rows);
}

#[test]
fn a_program_that_hands_in_no_sharder_is_told_so() {
    let ran = own(OWN, "answers zero", &["score", "fsdp"]);
    assert!(ran.code == 2 && ran.stderr.contains("no attempt at challenge B"), "{}", ran.stderr);
}
