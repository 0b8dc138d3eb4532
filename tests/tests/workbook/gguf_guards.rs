//! Contract of GGUF files: every guard is tripped by a cheat of its kind, and by no honest attempt.

use scorecard::{Challenge, Outcome, Row, Scorecard, Truth};
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 3] = [
    ("remembers where numbers lay", "blocks that are remembered"),
    ("knows few heads", "known heads only"),
    ("asks how blocks are made", "a reference that is asked"),
];

fn issues(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "issues").expect("all five are there")
}

fn row(card: &Scorecard) -> &Row {
    let rows = &issues(card).rows;
    rows.iter().find(|row| row.wording == "GGUF vision support").expect("a published row")
}

#[test]
fn a_cheating_exporter_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let card = own(OWN, cheat, &["score", "gguf", "--quick", "--json", "--seed", "0x1"]).card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert_eq!(row(&card).points, 0, "{cheat} gets a point");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 23] = [
    ("keeps sizes in their order", "D.19/sizes", "shape [5, 3]: got [5, 3], want [3, 5]"),
    ("turns rows the other way", "D.19/one-head", "got [0, 2, 4, 6, 1, 3, 5, 7], want [0, 4, 1, 5,"),
    ("turns all rows as one head", "D.19/several-heads", "want [0, 2, 1, 3, 4, 6,"),
    ("lets factors run on", "D.19/factors-of-llama-3", "factor 0: got"),
    ("multiplies frequencies by the factors", "D.19/factors-of-llama-3", "factor 29: got 0.828"),
    ("scales by the largest without its sign", "D.20/q4_0", "d: got 0.1875, want -0.1875"),
    ("takes the last of the largest", "D.20/q4_0", "d: got 1, want -1"),
    ("rounds a product and a sum", "D.20/q4_0", "low and high half of a byte: got"),
    ("rounds a product and a sum once", "D.20/q4_1", "low and high half of a byte: got"),
    ("divides", "D.20/q8_0", ": code "),
    ("puts neighbours into one byte", "D.20/q4_0", "codes 0 and 16, low"),
    ("divides by the scale that is stored", "D.20/q8_0", ": code "),
    ("rounds halves to even", "D.20/q8_0", "code 0: got 0, want 1"),
    ("compares layers as text", "D.21/many-layers", "\"model.layers.2.input_layernorm.weight\": got None"),
    ("forgets biases", "D.21/names-of-qwen2-vl", "self_attn.q_proj.bias\": got None"),
    ("turns queries alone", "D.21/names", "\"blk.0.attn_k.weight\", part: Whole }), want"),
    ("turns keys by the heads of queries", "D.21/names", "want Some(Piece { name: \"blk.0.attn_k.weight\""),
    ("turns rows of every model", "D.21/names-of-qwen2-vl", "part: Whole })"),
    ("writes floats as f64", "D.21/keys", "attention.layer_norm_rms_epsilon: got F64("),
    ("cuts keys before queries", "D.22/names-of-qwen2-vl", "attn_q.weight\", part: Rows { begin: "),
    (
        "cuts patches by colour",
        "D.22/one-image-or-several-times",
        "want [Piece { name: \"v.patch_embd.weight\"",
    ),
    ("keeps the last norm of CLIP", "D.22/names-of-llava", "\"v.post_ln.weight\", part: Whole }], want []"),
    (
        "names every feature layer",
        "D.22/keys-of-llava",
        "feature_layer: got Array(I32([2])), want no such key",
    ),
];

#[test]
fn a_slip_in_a_step_of_an_exporter_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("issues:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
    }
}

#[test]
fn honest_exporters_trip_no_guard_and_get_their_point() {
    for honest in ["an honest exporter", "an exporter of its own"] {
        let ran = own(OWN, honest, &["score", "gguf", "--quick", "--json", "--seed", "0x2"]);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{honest}: {:#?}", card.guards);
        let open: Vec<_> =
            issues(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(open.is_empty() && ran.code == 0, "{honest}: {open:#?}");
        assert_eq!((row(&card).points, row(&card).fact), (1, Truth::Met), "{honest}: {:#?}", row(&card));
    }
}
