//! The figures of tool calling: a prompt and its tokens, two prompts that part, a text that arrives in pieces.

use challenges::issues::chat::own::{self, Own};
use challenges::issues::chat::parse::{self, Event, Parser};
use challenges::issues::chat::toy::Toy;
use challenges::issues::chat::{
    Chat, ChatTemplate, Conversation, Layout, Rendered, Solution, Steps, json_text,
};
use figures::prompt::{self as figure, Arrival, Out, Piece, Role};
use serde_json::{Value, json};

use crate::figure::Drawn;

/// The special tokens of the Hermes format, and what each is for.
const SPECIAL: [(&str, Role); 6] = [
    ("<|im_start|>", Role::Turn),
    ("<|im_end|>", Role::Turn),
    ("<tool_call>", Role::Call),
    ("</tool_call>", Role::Call),
    ("<tool_response>", Role::Result),
    ("</tool_response>", Role::Result),
];

fn hermes() -> Result<&'static Own, String> {
    own::find("hermes").ok_or_else(|| "there is no template `hermes`".into())
}

fn rendered(messages: Vec<Value>, tools: Option<Value>) -> Result<Rendered, String> {
    let own = hermes()?;
    let template = ChatTemplate::new(own.template, own::options()).map_err(|error| error.to_string())?;
    let conversation = Conversation { messages, tools, ..Conversation::default() };
    template.chat(&conversation).map_err(|error| error.to_string())
}

/// A call, its result and the answer.
pub fn prompt() -> Result<Drawn, String> {
    let call = json!({"function": {"name": "weather", "arguments": {"city": "Oslo", "days": 3}}});
    let messages = vec![
        json!({"role": "user", "content": "Weather in Oslo?"}),
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "content": "4 C, rain"}),
        json!({"role": "assistant", "content": "4 C and rain."}),
    ];
    let rendered = rendered(messages, None)?;
    let svg = figure::prompt("A prompt as a model reads it", &pieces(&rendered));
    let caption = "A conversation with a call and a result, in the Hermes format and a small vocabulary. Beneath each token its \
                   number. What is trained is underlined: the assistant's text and the token that ends its turn.";
    Ok(("chat-prompt", caption, svg))
}

/// The tokens of a rendered text; bytes of one character are shown as one.
fn pieces(rendered: &Rendered) -> Vec<Piece> {
    let special: Vec<&str> = SPECIAL.iter().map(|(token, _)| *token).collect();
    let tokens = Toy::new(&special).encode(&rendered.text, false);
    let offsets: Vec<_> = tokens.iter().map(|token| token.characters.clone()).collect();
    let mask = Solution.token_mask(&offsets, &rendered.spans);
    let piece = |(token, trained): (&challenges::issues::chat::toy::Token, bool)| {
        let range = &token.characters;
        let text: String = rendered.text.chars().skip(range.start).take(range.len()).collect();
        let role = SPECIAL.iter().find(|(known, _)| *known == text).map(|(_, role)| *role);
        Piece { text, id: token.id, role, trained }
    };
    tokens.iter().zip(mask).map(piece).collect()
}

/// The same prompt by a filter that escapes for web pages.
pub fn difference() -> Result<Drawn, String> {
    let function = json!({"name": "frost", "description": "Whether it is < 0 C.", "parameters": {}});
    let tool = json!({"type": "function", "function": function});
    let layout = Layout::default();
    let plain = json_text(&tool, &layout, &Steps::default()).map_err(|error| error.to_string())?;
    let right = rendered(vec![json!({"role": "user", "content": "Frost?"})], Some(json!([tool])))?.text;
    let wrong = right.replacen(&plain, &plain.replace('<', "\\u003c"), 1);
    let texts = [("as Python writes it", right.as_str()), ("escaped for a web page", wrong.as_str())];
    let svg = figure::difference("Where two prompts part", texts);
    let caption = "A tool's declaration by two filters of the same name. Both are right JSON and mean the same; only one of \
                   them is what the model was trained on.";
    Ok(("chat-difference", caption, svg))
}

/// A text with a call, in the pieces in which it arrives: in the figure and in the chapter's texts.
pub const PIECES: [&str; 9] = [
    "1 <",
    " 2. <to",
    "ol_",
    "call>",
    "{\"name\": \"ping\", ",
    "\"arguments\": {}}",
    "</tool",
    "_call>",
    "<|im_end|>",
];

/// A call that comes in pieces.
pub fn stream() -> Result<Drawn, String> {
    let describe = |error: parse::Error| error.to_string();
    let template = parse::ResponseTemplate::new(&hermes()?.response).map_err(|error| error.to_string())?;
    let (mut events, mut arrivals) = (Vec::new(), Vec::new());
    let mut parser = Parser::new(&template, "<|im_start|>assistant\n", &mut events).map_err(describe)?;
    for piece in PIECES {
        events.clear();
        parser.feed(piece.as_bytes(), &mut events).map_err(describe)?;
        let (out, held) = (events.iter().map(out).collect(), parser.held().to_owned());
        arrivals.push(Arrival { piece: piece.into(), out, held });
    }
    events.clear();
    parser.finish(&mut events).map_err(describe)?;
    arrivals.push(Arrival {
        piece: "(end)".into(),
        out: events.iter().map(out).collect(),
        held: String::new(),
    });
    let svg = figure::stream("A call that arrives in pieces", &arrivals);
    let caption = "What is handed out after each piece, and what is held back because it may become a marker. A sign that turns \
                   out to be none follows with the next piece.";
    Ok(("chat-stream", caption, svg))
}

fn out(event: &Event) -> Out {
    match event {
        Event::Append { field: "content", text } => Out::Content(text.clone()),
        Event::Append { text, .. } => Out::Call(text.clone()),
        Event::Open { field } => Out::Event(format!("{} opens", short(field))),
        Event::Close { field, .. } => Out::Event(format!("{} closes", short(field))),
    }
}

fn short(field: &str) -> &str {
    if field == "tool_calls" { "call" } else { field }
}
