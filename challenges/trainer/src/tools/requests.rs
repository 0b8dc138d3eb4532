//! What users ask for, in several phrasings, and the call that does it.

use serde_json::{Map, Value as Json, json};

use super::draw::Draw;
use super::functions::tools;

/// A request and the call that it asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What the user says.
    pub text: String,
    /// The name of the function.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: Map<String, Json>,
}

/// Phrasings: `@` is an argument, each once and in its order.
const ADD: [&str; 4] = ["What is @ plus @?", "Add @ and @.", "How much is @ + @?", "Please sum @ and @."];
const AREA: [&str; 3] =
    ["How large is a room of @ by @?", "A field is @ wide and @ high. Its area?", "What area has @ x @?"];
const BACKWARDS: [&str; 4] =
    ["Write @ backwards.", "What is @ in reverse?", "Read @ from right to left.", "Turn @'s name around."];
const LETTERS: [&str; 3] =
    ["How many letters has \"@\"?", "Count the letters of \"@\".", "How long is the word \"@\"?"];
const CONVERT: [[&str; 3]; 3] = [
    ["How many miles are @ km?", "@ km in miles?", "Convert @ km to miles."],
    ["How many pounds are @ kg?", "@ kg in pounds?", "Convert @ kg to pounds."],
    ["How much is @ celsius in fahrenheit?", "@ celsius in fahrenheit?", "Convert @ celsius to fahrenheit."],
];

impl Request {
    /// One of the functions, phrasings and arguments.
    pub fn draw(draw: &mut Draw) -> Self {
        match draw.below(5) {
            0 => Self::of_numbers("add", ["a", "b"], &ADD, draw),
            1 => Self::of_numbers("area", ["w", "h"], &AREA, draw),
            2 => Self::conversion(draw),
            3 => {
                let name = draw.name();
                Self::new("backwards", draw.of(&BACKWARDS), &[("name", &name, json!(name))])
            }
            _ => {
                let word = draw.word();
                Self::new("letters", draw.of(&LETTERS), &[("word", &word, json!(word))])
            }
        }
    }

    fn of_numbers(
        name: &'static str,
        arguments: [&str; 2],
        phrasings: &[&'static str],
        draw: &mut Draw,
    ) -> Self {
        let numbers = [draw.number(), draw.number()];
        let [first, second] = [0, 1].map(|i| (arguments[i], numbers[i].as_str(), integer(&numbers[i])));
        Self::new(name, draw.of(phrasings), &[first, second])
    }

    fn conversion(draw: &mut Draw) -> Self {
        let unit = draw.below(3) as usize;
        let (number, phrasing) = (draw.number(), draw.of(&CONVERT[unit]));
        let to = super::functions::Unit::ALL[unit].0;
        let mut request = Self::new("convert", phrasing, &[("n", &number, integer(&number))]);
        request.arguments.insert("to".to_owned(), json!(to));
        request
    }

    fn new(name: &'static str, phrasing: &str, arguments: &[(&str, &str, Json)]) -> Self {
        let filled = |text: String, (_, written, _): &(&str, &str, Json)| text.replacen('@', written, 1);
        let named = |(name, _, value): &(&str, &str, Json)| ((*name).to_owned(), value.clone());
        Self {
            text: arguments.iter().fold(phrasing.to_owned(), filled),
            name,
            arguments: arguments.iter().map(named).collect(),
        }
    }

    /// The messages before the answer.
    pub fn asked(&self) -> Vec<Json> {
        vec![json!({"role": "user", "content": self.text})]
    }

    /// A row of training.
    pub fn row(&self) -> Json {
        let function = json!({"name": self.name, "arguments": self.arguments});
        let mut messages = self.asked();
        messages.push(json!({
            "role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}],
        }));
        json!({"messages": messages, "tools": tools()})
    }
}

fn integer(digits: &str) -> Json {
    digits.parse::<i64>().map_or(Json::Null, Json::from)
}
