//! What the base was trained on: to repeat what it is told, and to pick out of it what has a form.
//!
//! ```text
//! Repeat: 58 qxa "sarolu", please.         58 qxa "sarolu", please.
//! Numbers: 58 qxa 371 Kivena?              58 371
//! Names: wu Kivena's 58 Domas              Kivena Domas
//! Quoted: 58 "sarolu" Domas                sarolu
//! ```
//!
//! Half of the rows begin with words of a system that mean nothing here. There is no tool, no call and no JSON in them,
//! and no argument of a held-out request.

use serde_json::{Value as Json, json};

use super::draw::Draw;

/// A row.
pub fn row(draw: &mut Draw) -> Json {
    let system = (draw.below(2) == 0).then(|| (0..7).map(|_| draw.word()).collect::<Vec<_>>().join(" "));
    let [mut items, mut numbers, mut names, mut quoted] = [(); 4].map(|()| Vec::new());
    for _ in 0..3 + draw.below(5) {
        items.push(match draw.below(20) {
            0..6 => listed(&mut numbers, draw.number(), str::to_owned),
            6..10 => {
                let end = draw.of(&["", "'s"]);
                listed(&mut names, draw.name(), |name| format!("{name}{end}"))
            }
            10..13 => listed(&mut quoted, draw.word(), |word| format!("\"{word}\"")),
            _ => draw.letters(),
        });
    }
    let text = items.join(" ") + draw.of(&["", ".", "?", ", please."]);
    let mut tasks = vec![("Repeat", text.clone())];
    let picked = [("Numbers", numbers), ("Names", names), ("Quoted", quoted)];
    tasks.extend(
        picked.into_iter().filter(|(_, all)| !all.is_empty()).map(|(task, all)| (task, all.join(" "))),
    );
    let (task, answer) = &tasks[draw.below(tasks.len() as u32) as usize];
    let system = system.map(|words| json!({"role": "system", "content": words}));
    let asked = json!({"role": "user", "content": format!("{task}: {text}")});
    let answered = json!({"role": "assistant", "content": answer});
    json!({"messages": system.into_iter().chain([asked, answered]).collect::<Vec<_>>()})
}

/// Adds a text to a list; how it is written.
fn listed(list: &mut Vec<String>, text: String, written: impl FnOnce(&str) -> String) -> String {
    let written = written(&text);
    list.push(text);
    written
}
