//! What is measured of an attempt at vision: images, mixed batches, and conversations with images in them.

use challenges::issues::chat::toy::{Token, Toy};
use challenges::issues::chat::{Chat as _, ChatTemplate, Conversation, Options, Solution};
use challenges::issues::vision::{Batch, Placeholders, Row, Sample, Side, TEMPLATE, Vision};
use reference::loss::IGNORED;
use serde_json::{Value, json};

use super::drawn;
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// Images that are sized, of which those that are small enough are resized.
const IMAGES: usize = 300;

/// Batches.
const BATCHES: usize = 120;

/// Conversations.
const CONVERSATIONS: usize = 120;

fn number(child: &mut Child, name: &str, value: f64, unit: &str) {
    child.measured(name, Measurement { value, unit: unit.into(), interval: None, samples: Vec::new() });
}

/// What is counted, or nothing where the attempt cannot be measured, which is reported under a name.
fn counted<T>(child: &mut Child, name: &str, run: impl FnOnce() -> Result<T, String>) -> Option<T> {
    match caught(run) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(name, &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(name, &format!("not written yet: {hole}")),
    }
    None
}

/// The bytes of images by all rules.
pub(super) fn images(child: &mut Child, attempt: &dyn Vision) {
    let mut random = Random::named(child.request.effort.seed, "vision images");
    let run = || Ok((0..IMAGES).map(|_| image(attempt, &mut random)).collect::<Vec<_>>());
    let Some(all) = counted(child, "issues.images.all", run) else { return };
    number(child, "issues.images.all", IMAGES as f64, "count");
    number(child, "issues.images.same", all.iter().filter(|(same, _)| *same).count() as f64, "count");
    number(
        child,
        "issues.images.largest",
        all.iter().map(|(_, area)| *area).max().unwrap_or(0) as f64,
        "count",
    );
}

/// Whether an image is sized and resized as the oracle does, and its pixels.
fn image(attempt: &dyn Vision, random: &mut Random) -> (bool, usize) {
    let (rule, size) = (drawn::rule(random), drawn::size(400, random));
    let given = (random.below(2) == 1).then(|| 1 + random.below(100_000));
    let [got, want] = [attempt.limited(rule, given), rule.at_most(given)];
    let rule = match (got == want, want) {
        (false, _) => return (false, 0),
        (true, Err(_)) => return (true, 0),
        (true, Ok(rule)) => rule,
    };
    let [got, want] = [attempt.size(rule, size), rule.size(size)];
    match want {
        Ok(to) if got == want && to.area() <= 200_000 => {
            let image = drawn::image(size, random);
            (attempt.resized(&image, to) == image.resized(to), size.area())
        }
        _ => (got == want, 0),
    }
}

/// Batches of texts with images and without.
pub(super) fn batches(child: &mut Child, attempt: &dyn Vision) {
    let mut random = Random::named(child.request.effort.seed, "vision batches");
    let run = || (0..BATCHES).map(|_| batch(attempt, &mut random)).collect::<Result<Vec<_>, _>>();
    let Some(all) = counted(child, "issues.mixed.all", run) else { return };
    let sum = |of: fn(&[usize; 3]) -> usize| all.iter().map(of).sum::<usize>() as f64;
    number(child, "issues.mixed.all", BATCHES as f64, "count");
    number(child, "issues.mixed.same", sum(|counts| counts[0]), "count");
    number(child, "issues.mixed.slots", sum(|counts| counts[1]), "count");
    number(child, "issues.mixed.features", sum(|counts| counts[2]), "count");
}

/// Whether a batch is the oracle's, the slots that it takes, and the features of its images.
fn batch(attempt: &dyn Vision, random: &mut Random) -> Result<[usize; 3], String> {
    let by = drawn::placeholders(random);
    let samples: Vec<Sample> = (0..2 + random.below(5)).map(|_| drawn::sample(&by, 2, random)).collect();
    let rows =
        |of: &dyn Fn(&Sample) -> Result<Row, String>| samples.iter().map(of).collect::<Result<Vec<_>, _>>();
    let own = rows(&|sample| attempt.expanded(sample, &by).map_err(|error| format!("D.25: {error}")))?;
    let truth = rows(&|sample| sample.expanded(&by).map_err(|error| error.to_string()))?;
    let side = [Side::Left, Side::Right][random.below(2)];
    let (got, want) = (attempt.batch(&own, &by, 0, side), Batch::of(&truth, &by, 0, side));
    let largest = |batch: &Batch| batch.slots.iter().copied().max().unwrap_or(0).max(0) as usize;
    Ok([usize::from(got == want), largest(&got), largest(&want)])
}

/// Conversations, whose labels have to be the assistant's text and nothing else.
pub(super) fn completions(child: &mut Child, attempt: &dyn Vision) {
    let mut random = Random::named(child.request.effort.seed, "vision completions");
    let run = || {
        let template = ChatTemplate::new(TEMPLATE, Options::default()).map_err(|error| error.to_string())?;
        let toy =
            Toy::new(&["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", PLACEHOLDER]);
        let one = |_| conversation(attempt, &template, &toy, &mut random);
        (0..CONVERSATIONS).map(one).collect::<Result<Vec<_>, _>>()
    };
    let Some(all) = counted(child, "issues.completions.all", run) else { return };
    number(child, "issues.completions.all", CONVERSATIONS as f64, "count");
    number(child, "issues.completions.same", all.iter().filter(|(same, _)| *same).count() as f64, "count");
    number(
        child,
        "issues.completions.images",
        all.iter().map(|(_, images)| *images).sum::<usize>() as f64,
        "count",
    );
}

/// What stands for an image in the template's text.
const PLACEHOLDER: &str = "<|image_pad|>";

/// What is said in a conversation.
const SAYINGS: [&str; 6] = [
    "What is in it?",
    "Rain in Oslo.",
    "A disc and a line",
    "Ja, naiv.",
    "\u{e9}t\u{e9} \u{2603}",
    "Compare both",
];

/// Whether the labels of a conversation are the assistant's text, and how many images it has.
fn conversation(
    attempt: &dyn Vision,
    template: &ChatTemplate,
    toy: &Toy,
    random: &mut Random,
) -> Result<(bool, usize), String> {
    let (mut messages, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..=random.below(3) {
        messages.push(json!({"role": "user", "content": question(random)}));
        let answer = SAYINGS[random.below(SAYINGS.len())];
        answers.push(format!("{answer}<|im_end|>"));
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    let conversation = Conversation { messages, ..Conversation::default() };
    let rendered = template.chat(&conversation).map_err(|error| error.to_string())?;
    let tokens: Vec<Token> = toy.encode(&rendered.text, false);
    let offsets: Vec<_> = tokens.iter().map(|token| token.characters.clone()).collect();
    let ids: Vec<i32> = tokens.iter().map(|token| token.id as i32).collect();
    let image = toy.encode(PLACEHOLDER, false)[0].id as i32;
    let by = Placeholders::Qwen { image, merge: 2 };
    let images = ids.iter().filter(|id| **id == image).count();
    let grids = (0..images).map(|_| drawn::grid(&by, random)).collect();
    let trained = Solution.token_mask(&offsets, &rendered.spans);
    let row =
        attempt.expanded(&Sample { ids, trained, grids }, &by).map_err(|error| format!("D.25: {error}"))?;
    let labels = attempt.labels(&row);
    let kept = labels.iter().copied().filter(|label| *label != IGNORED);
    let want: Vec<i32> =
        answers.iter().flat_map(|text| toy.encode(text, false)).map(|token| token.id as i32).collect();
    Ok((labels.len() == row.ids.len() && kept.collect::<Vec<_>>() == want, images))
}

/// Words, or words and images in any order.
fn question(random: &mut Random) -> Value {
    let saying = SAYINGS[random.below(SAYINGS.len())];
    if random.below(3) == 0 {
        return saying.into();
    }
    let parts = 1 + random.below(4);
    let part = |_| match random.below(2) {
        0 => json!({"type": "image"}),
        _ => json!({"type": "text", "text": saying}),
    };
    (0..parts).map(part).collect()
}
