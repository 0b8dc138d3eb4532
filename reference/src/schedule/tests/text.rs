//! The text of a grid.

use super::*;

#[test]
fn every_grid_reads_back_from_its_text() {
    for (_, schedule, _) in Draw(1).schedules(40) {
        assert_eq!(Schedule::parse(&schedule.to_string()), Ok(schedule));
    }
}

/// The grid at the top of `schedule/mod.rs`.
#[test]
fn the_grid_of_the_documentation_is_what_is_made() {
    let schedule = filled(line(2, 3), &Workload::uniform(ADAPTER)).unwrap();
    let documented = include_str!("../mod.rs").lines().map(|line| line.trim_start_matches("//! "));
    let grid: Vec<&str> = documented.skip_while(|line| !line.starts_with("schedule ranks")).take(3).collect();
    assert_eq!(schedule.to_string().lines().collect::<Vec<_>>(), grid);
}

#[test]
fn space_and_empty_lines_only_separate() {
    let schedule = one_f_one_b(line(2, 2), &Workload::uniform(PLAIN)).unwrap();
    let text = schedule.to_string();
    assert_eq!(
        text,
        "schedule ranks 2 chunks 1 micro_batches 2 placement looped\n\
         0: F0 F1 BW0 BW1\n\
         1: F0 BW0 F1 BW1\n"
    );
    let spread = format!("\n\n{}\n", text.replace(' ', "\t  ").replace('\n', "  \r\n\r\n"));
    assert_eq!(Schedule::parse(&spread), Ok(schedule));
}

#[test]
fn a_bad_grid_is_refused_with_line_and_column() {
    let header = "schedule ranks 2 chunks 2 micro_batches 3 placement v";
    let huge = "9".repeat(400);
    let two = |first: &str| format!("{header}\n{first}\n1: F0\n");
    let cases = [
        (String::new(), "line 1, column 1: expected `schedule`, found the end"),
        ("grid".to_owned(), "line 1, column 1: expected `schedule`, found `grid`"),
        ("schedule ranks 0".to_owned(), "line 1, column 16: expected a number from 1 to 10000, found `0`"),
        (
            format!("schedule ranks {huge}"),
            "line 1, column 16: expected a number from 0 to 10000, found `999999999999999999999999..`",
        ),
        (
            "schedule ranks 2 chunks 1 micro_batches -1".to_owned(),
            "line 1, column 41: expected a number from 0 to 1000000, found `-1`",
        ),
        (header.replace(" v", " w"), "line 1, column 53: expected `looped` or `v`, found `w`"),
        (format!("{header} 2"), "line 1, column 55: expected the end of the line, found `2`"),
        (header.to_owned(), "line 2, column 1: expected the line of rank 0, found the end"),
        (format!("{header}\n0: F0\n"), "line 3, column 1: expected the line of rank 1, found the end"),
        (format!("{header}\n1: F0\n"), "line 2, column 1: expected `0:`, the line of rank 0, found `1:`"),
        (format!("{header}\n0 F0\n"), "line 2, column 1: expected `0:`, the line of rank 0, found `0`"),
        (
            format!("{header}\n0:\n1:\n2:\n"),
            "line 4, column 1: expected the end of the text after 2 ranks, found `2:`",
        ),
        (two("0: F0 f1"), "line 2, column 7: expected an operation, such as `F0`, `RBW0` or `D`, found `f1`"),
        (two("0: 7"), "line 2, column 4: expected an operation, such as `F0`, `RBW0` or `D`, found `7`"),
        (two("0: F"), "line 2, column 5: expected a number from 0 to 2, found the end"),
        (two("0: F3"), "line 2, column 5: expected a number from 0 to 2, found `3`"),
        (two("0: F0.2"), "line 2, column 7: expected a number from 0 to 1, found `2`"),
        (two("0: F0."), "line 2, column 7: expected a number from 0 to 1, found the end"),
        (
            two("0: BF0"),
            "line 2, column 5: expected letters in the order D, F, R, B, W, each at most once, found `F0`",
        ),
        (
            two("0: FF0"),
            "line 2, column 5: expected letters in the order D, F, R, B, W, each at most once, found `F0`",
        ),
        (two("0: D1"), "line 2, column 5: expected a space after the operation, found `1`"),
        (two("0: F0,F1"), "line 2, column 6: expected a space after the operation, found `,F1`"),
        (
            two("0: F0 \u{424}1"),
            "line 2, column 7: expected an operation, such as `F0`, `RBW0` or `D`, found `\u{424}1`",
        ),
        (two("0: F\u{661}"), "line 2, column 5: expected a number from 0 to 2, found `\u{661}`"),
        (
            two("0: F0 \u{1b}[31m"),
            "line 2, column 7: expected an operation, such as `F0`, `RBW0` or `D`, found `\\u{1b}[31m`",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(Schedule::parse(&text).expect_err(&text).to_string(), message);
    }
}

const SPOILERS: [char; 11] = ['0', '9', ' ', '\n', '.', 'D', 'R', 'W', '\u{0}', '\u{202e}', '\u{1F600}'];

/// Whatever is done to a text, it is read or refused, and what is read is checked.
#[test]
fn a_spoilt_grid_is_read_or_refused() {
    let mut draw = Draw(2);
    let (mut read, mut refused) = (0, 0);
    for (_, schedule, workload) in draw.schedules(60) {
        let mut text: Vec<char> = schedule.to_string().chars().collect();
        for _ in 0..=draw.below(3) {
            let at = draw.below(text.len());
            match draw.below(4) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, text[draw.below(text.len())]),
                2 => text[at] = draw.one_of(&SPOILERS),
                _ => text.truncate(at.max(1)),
            }
        }
        match Schedule::parse(&text.iter().collect::<String>()) {
            Ok(schedule) => {
                read += 1;
                let _ = check(&schedule, &workload).map(|checked| checked.simulate());
            }
            Err(Error::Text { line, column, .. }) => {
                refused += 1;
                assert!(line >= 1 && column >= 1);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(read > 20 && refused > 100, "{read} read, {refused} refused");
}

/// A few characters claim a pipeline of 10^14 operations; nothing is reserved for them.
#[test]
fn a_claim_costs_no_memory() {
    let text = "schedule ranks 1 chunks 10000 micro_batches 1000000 placement looped\n0: F0\n";
    let found = refusal(text, &Workload::uniform(PLAIN));
    assert_eq!(found, "rank 0: missing `F1`");
}

#[test]
fn a_schedule_in_memory_is_held_to_the_same_rules() {
    let shape = line(1, 2);
    let refused = |operations| Schedule::new(shape, operations).expect_err("it is wrong").to_string();
    assert_eq!(refused(vec![]), "ranks: expected operations of 1 ranks, found 0");
    let f2 = Operation::one(Kind::Forward, 2, 0);
    assert_eq!(
        refused(vec![vec![f2]]),
        "rank 0, operation 0 (`F2`): expected a micro-batch from 0 to 1, found 2"
    );
    let chunk = Operation::dequantize(3);
    assert_eq!(
        refused(vec![vec![chunk]]),
        "rank 0, operation 0 (`D.3`): expected a chunk from 0 to 0, found 3"
    );
    let empty = Operation { kinds: Kinds::default(), micro_batch: 0, chunk: 0 };
    assert_eq!(
        refused(vec![vec![empty]]),
        "rank 0, operation 0 (`0`): expected at least one of D, F, R, B, W, found none"
    );
    let stray = Operation { micro_batch: 1, ..Operation::dequantize(0) };
    assert!(Schedule::new(shape, vec![vec![stray]]).is_err(), "its text would not say the 1");
}
