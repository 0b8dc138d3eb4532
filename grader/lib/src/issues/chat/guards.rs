//! Guards: attempts that look as if they streamed, or as if they knew what a special token is. `tests` holds a cheat
//! for each.

use challenges::issues::chat::parse::{Error, Event, Parser, ResponseTemplate};
use challenges::issues::chat::{Find, Steps};
use serde_json::json;

use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&Steps, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of this part.
const GUARDS: [(&str, Guard); 3] = [
    ("nothing before the end", nothing_before_the_end),
    ("an answer that remembers", |steps, random| Ok(remembers(steps, random))),
    ("known tokens only", |steps, random| Ok(known_only(steps, random))),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &Steps, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// Of a text most is handed out before its end, where it is handed out at all. What is not even then is told by the
/// checks, and so is a little that is held back too long.
fn nothing_before_the_end(steps: &Steps, random: &mut Random) -> Verdict {
    let words =
        |random: &mut Random| (0..2 + random.below(3)).map(|_| word(random) + " ").collect::<String>();
    let (open, close) = (format!("<{}>", word(random)), format!("</{}>", word(random)));
    let [first, more, end] = [0; 3].map(|_| words(random));
    let text = format!("{first}<b> {more}{open}f(){close} {}", end.trim_end());
    let length = text.len() - open.len() - close.len();
    let piece = 5 + random.below(5);
    let fields = json!({
        "content": {},
        "calls": {"open": open, "close": close, "repeats": true},
    });
    let template = json!({"start_anchor": "<assistant>", "fields": fields});
    let template = ResponseTemplate::with(&template, steps.clone()).map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    let describe = |error: Error| error.to_string();
    let mut parser = Parser::new(&template, "", &mut events).map_err(describe)?;
    for piece in text.as_bytes().chunks(piece) {
        parser.feed(piece, &mut events).map_err(describe)?;
    }
    let before: usize = events.iter().map(appended).sum();
    parser.finish(&mut events).map_err(describe)?;
    let all: usize = events.iter().map(appended).sum();
    let is_late = all == length && before < length / 2;
    Ok(is_late.then(|| format!("of {text:?} {before} of {length} bytes are handed out before its end")))
}

/// A word that nobody knows.
fn word(random: &mut Random) -> String {
    (0..3 + random.below(6)).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

fn appended(event: &Event) -> usize {
    if let Event::Append { text, .. } = event { text.len() } else { 0 }
}

/// The same question has the same answer, whatever was asked before, and a longer text with the same beginning has its
/// own.
fn remembers(steps: &Steps, random: &mut Random) -> Option<String> {
    let chat = steps.chat();
    let mut text = || (0..4 + random.below(8)).map(|_| ['<', 'x', '>'][random.below(3)]).collect();
    let asked: Vec<String> = (0..8).map(|_| text()).collect();
    let first: Vec<Find> = asked.iter().map(|text| chat.find(text, "<x>")).collect();
    let mut shared = String::with_capacity(64); // the same address with other content
    for round in 0..3 {
        for (text, want) in asked.iter().zip(&first) {
            shared.clear();
            shared.push_str(text);
            let got = chat.find(&shared, "<x>");
            if got != *want {
                let message = format!("\"<x>\" in {text:?} was {want:?} first, and {got:?} in round {round}");
                return Some(message);
            }
        }
    }
    let values = [0.5, 1e16, 1e-5].map(|value| value * (1.0 + random.unit()));
    values.into_iter().find_map(|value| {
        let (one, _, again) = (chat.float(value), chat.float(-value), chat.float(value));
        (one != again).then(|| format!("{value:e} is {one} first, and {again} after its negative"))
    })
}

/// A vocabulary that nobody has seen is as special as a well-known one. What leaves that one whole, too, is told by the
/// checks.
fn known_only(steps: &Steps, random: &mut Random) -> Option<String> {
    let known = steps.chat().defuse("say <|im_end|> or [else]", &["<|im_end|>"], '\u{2060}');
    let rounds = if known == "say <\u{2060}|im_end|> or [else]" { 20 } else { 0 };
    for _ in 0..rounds {
        let token = format!("[{}]", word(random));
        let text = format!("say {token} or <|im_end|>");
        let got = steps.chat().defuse(&text, &[&token], '\u{2060}');
        if got.contains(&token) {
            return Some(format!("{token:?} is special, and is still in {got:?}"));
        }
        if !got.contains("<|im_end|>") {
            return Some(format!("only {token:?} is special, and \"<|im_end|>\" is broken in {got:?}"));
        }
    }
    None
}
