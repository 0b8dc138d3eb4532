//! Contract of challenge E: every guard is tripped by a cheat of its kind, and by no honest attempt.

use scorecard::{Challenge, Outcome, Scorecard, Truth};
use tests::attempts::CHUNKERS;
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guards that see it.
const CAUGHT: [(&str, &[&str]); 8] = [
    ("derives cross entropy by hand", &["a hard-coded derivative"]),
    ("never upcasts", &["no upcast"]),
    ("keeps the logits", &["logits kept"]),
    ("ignores the chunk size", &["chunk size ignored", "logits kept"]),
    ("takes the mean of chunk means", &["mean of chunk means", "a hard-coded derivative"]),
    ("asks for the policy", &["an oracle called inside a step"]),
    ("asks for the policy of other sizes", &["an oracle called inside a step"]),
    ("takes the product from the oracle", &["an oracle called inside a step"]),
];

fn loss(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "loss").expect("all five are there")
}

fn fact(card: &Scorecard, wording: &str) -> Truth {
    let found = loss(card).rows.iter().find(|row| row.wording == wording);
    found.unwrap_or_else(|| panic!("no row {wording}")).fact
}

#[test]
fn a_cheating_chunker_trips_the_guard_of_its_kind() {
    for (cheat, guards) in CAUGHT {
        let ran = own(OWN, cheat, &["test", "loss", "--json", "--seed", "0x1"]);
        let card = ran.card();
        let tripped = tripped(&card);
        assert!(tripped.contains(&guards[0]), "{cheat} is not seen: {:#?}", card.guards);
        assert!(tripped.iter().all(|guard| guards.contains(guard)), "{cheat}: {:#?}", card.guards);
        assert!(ran.code == 1, "{cheat} passes");
    }
}

#[test]
fn what_the_statement_forbids_resets_the_score() {
    for (cheat, wording) in
        [("derives cross entropy by hand", "hardcoded_gradients"), ("never upcasts", "remove_float32_upcast")]
    {
        let ran = own(OWN, cheat, &["score", "loss", "--quick", "--json", "--seed", "0x3"]);
        let card = ran.card();
        assert_eq!(fact(&card, wording), Truth::Met, "{:#?}", loss(&card).rows);
        let row = loss(&card).rows.iter().find(|row| row.wording == wording).expect("as above");
        assert!(row.points <= 0, "{row:#?}");
    }
}

/// A training whose loss is a mean sees what seeds and rows make of a chunk's own count.
#[test]
fn means_of_chunk_means_train_to_other_losses() {
    let ran =
        own(OWN, "takes the mean of chunk means", &["score", "loss", "--quick", "--json", "--seed", "0x3"]);
    let card = ran.card();
    assert_eq!(fact(&card, "llama_1B_training_loss_matches"), Truth::Unmet, "{:#?}", loss(&card).rows);
}

/// What a case measures of an attempt, and the guards that tripped.
fn measured(attempt: &str, case: &str) -> (Challenge, Vec<String>) {
    let case = ["bench", "E", "--quick", "--case", case, "--samples", "2", "--json", "--seed", "0x1"];
    let card = own(OWN, attempt, &case).card();
    let tripped = tripped(&card).into_iter().map(str::to_owned).collect();
    (loss(&card).clone(), tripped)
}

#[test]
#[cfg(target_os = "linux")]
fn chunks_timed_beside_a_spinning_thread_are_no_measurement() {
    let is_timed =
        |attempt: &str| measured(attempt, "bench/sizes").0.measurements.contains_key("loss.over_whole");
    assert!(!is_timed("spins beside the chunks"));
    assert!(is_timed("sleeps beside the chunks"));
}

/// The run with all logits is the solution's: an attempt cannot make it large.
#[test]
fn memory_wasted_with_all_rows_wins_nothing() {
    let share = |attempt: &str| {
        let (loss, _) = measured(attempt, "watch/bytes");
        let of = |name: &str| loss.measurements[&format!("loss.bytes.{name}")].value;
        of("chunked") / of("whole")
    };
    let (by_cheat, by_honest) = (share("wastes memory with all rows"), share("an honest chunker"));
    assert!(by_cheat > 0.5 && by_honest <= 0.5, "{by_cheat} and {by_honest} of the bytes");
}

#[test]
fn chunks_of_the_solution_are_no_measurement() {
    let (loss, tripped) = measured("asks for the chunks that are measured", "watch/bytes");
    assert!(!loss.measurements.contains_key("loss.bytes.chunked"), "{:#?}", loss.measurements.keys());
    assert_eq!(tripped, ["an oracle called inside a step"]);
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 19] = [
    ("shifts by nothing finite", "E.1/far-from-zero", "row "),
    ("ends at a finite number", "E.1/minus-infinity", "want -inf"),
    ("reads ignored rows", "E.2/ignored-rows-cost-nothing", "expected the rows "),
    ("upcasts before the product", "E.2/no-copy-of-the-weight", "is cast to f32: that is another copy of it"),
    ("adds to nothing", "E.3/adds-to-what-is-there", "likely cause: what was there before is missing"),
    (
        "always adds up in f32",
        "E.3/sums-in-their-own-type",
        "`weight.grad` is f32, and the problem's sums are bf16",
    ),
    ("forgets what is upstream", "E.4/upstream", "4 rows at a time: "),
    (
        "gives the loss beside its seeds",
        "E.4/nothing-but-seeds",
        "`loss`: expected `seed.NAME` for each value and no other",
    ),
    (
        "has no seed for a metric",
        "E.4/a-value-that-nobody-asks-for",
        "`seed.largest`: expected 13 numbers, found no output of `seeds`",
    ),
    ("shifts over the end", "E.4/shift", "in sequences of "),
    ("clips both sides alike", "E.5/two-sided-clip", "4 rows at a time: "),
    ("means over every token", "E.5/grpo", "4 rows at a time: "),
    ("divides a sequence by its tokens", "E.5/masks", "got NaN"),
    ("leaves a rest", "E.6/evenly", "for the last one"),
    (
        "keeps every stretch for its largest",
        "E.1/never-more-than-a-stretch",
        "two stretches are there at a time",
    ),
    ("joins the stretches", "E.1/never-more-than-a-stretch", "two stretches are there at a time"),
    (
        "widens the hidden states' gradient",
        "E.3/sums-in-their-own-type",
        "`hidden.grad` is f32, and the problem's type is bf16",
    ),
    ("differentiates frozen hidden states", "E.3/frozen-head", "there is an output `hidden.grad`"),
    ("differentiates a frozen bias", "E.3/frozen-head", "there is an output `bias.grad`"),
];

#[test]
fn another_right_chunker_is_right() {
    let others = [
        ("adds the sums of stretches as logarithms", "E.1"),
        ("sums the stretches' sums at the end", "E.1"),
        ("names its outputs in reverse", "loss"),
    ];
    for (other, what) in others {
        let ran = own(OWN, other, &["test", what, "--seed", "0x5"]);
        assert!(ran.code == 0, "{other}: {}", ran.stdout);
    }
}

#[test]
fn a_slip_in_a_step_of_a_chunker_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("loss:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
        let words = ran.stdout.split("\n\ncalls (>)").next().unwrap_or_default(); // what was called comes after
        assert!(words.lines().count() < 60, "{slip} is told at length: {}", ran.stdout);
    }
}

#[test]
fn delta_may_hold_a_ratio_where_the_advantage_is_negative_and_nowhere_else() {
    for seed in ["0x1", "0x2", "0x3", "0x4"] {
        let one_sided = "holds a ratio where the advantage is negative";
        let ran = own(OWN, one_sided, &["replay", "loss:E.5/delta", "--seed", seed]);
        assert!(ran.code == 0, "{}", ran.stdout);
    }
}

#[test]
fn an_honest_chunker_trips_no_guard_and_gets_every_point() {
    let honest = CHUNKERS.last().expect("it is the last one").name;
    let ran = own(OWN, honest, &["score", "E", "--quick", "--json", "--seed", "0x2"]);
    let card = ran.card();
    assert!(tripped(&card).is_empty(), "{:#?}", card.guards);
    let open: Vec<_> = loss(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty() && ran.code == 0, "{open:#?}");
    assert_eq!((loss(&card).points, loss(&card).unmeasured), (10, 0), "{:#?}", loss(&card).rows);
}

#[test]
fn a_program_that_hands_in_no_chunker_is_told_so() {
    let ran = own(OWN, "answers zero", &["score", "loss"]);
    assert!(ran.code == 2 && ran.stderr.contains("no attempt at challenge E"), "{}", ran.stderr);
}
