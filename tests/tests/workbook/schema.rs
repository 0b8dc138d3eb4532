//! The scorecard's JSON against the schema that is kept for programs outside.

use scorecard::Scorecard;
use tests::fixture;

/// `UPDATE=1` writes the kept schema again.
#[test]
fn the_kept_schema_is_that_of_the_types() {
    let path = tests::place::workbook().join("grader/scorecard/schema.json");
    let schema = serde_json::to_string_pretty(&scorecard::schema()).expect("a schema is JSON") + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &schema).expect("the schema can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("grader/scorecard/schema.json").replace("\r\n", "\n");
    assert_eq!(kept, schema, "the types changed: UPDATE=1 writes grader/scorecard/schema.json again");
}

#[test]
fn a_scorecard_survives_json() {
    for card in [fixture::solved(), fixture::half_done(), fixture::untouched()] {
        let text = serde_json::to_string(&card).expect("JSON");
        assert!(serde_json::from_str::<Scorecard>(&text).expect("a scorecard") == card);
    }
}

/// The names that programs outside read.
#[test]
fn the_json_has_the_published_names() {
    let json = serde_json::to_value(fixture::solved()).expect("JSON");
    for name in
        ["warpbook", "attempt", "seed", "machine", "points", "possible", "unmeasured", "stand_in", "guards"]
    {
        assert!(json.get(name).is_some(), "{name}");
    }
    let challenge = &json["challenges"][0];
    for name in [
        "name",
        "letter",
        "built",
        "attempted",
        "device",
        "points",
        "possible",
        "unmeasured",
        "rows",
        "checks",
    ] {
        assert!(challenge.get(name).is_some(), "{name}");
    }
    for name in ["wording", "fact", "basis", "points", "worth", "evidence"] {
        assert!(challenge["rows"][0].get(name).is_some(), "{name}");
    }
    for name in ["name", "outcome", "detail", "replay"] {
        assert!(challenge["checks"][0].get(name).is_some(), "{name}");
    }
    let guard = &json["guards"][0];
    assert!(guard["challenge"].is_string() && guard["ran"].is_boolean() && guard["tripped"].is_boolean());
    assert!(challenge["measurements"]["nf4.speedup"]["interval"].is_array());
}
