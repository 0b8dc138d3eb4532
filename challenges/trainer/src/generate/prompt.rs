//! What a model is to go on with: a text, a conversation or tokens.

use std::path::{Path, PathBuf};

use challenges::issues::chat::Conversation;
use clap::Args;
use serde_json::{Value as Json, json};

use super::calls::Calls;
use super::vocabulary::vocabulary;
use crate::decoder::stops;
use crate::messages;
use crate::output::{Failure, warn};
use crate::template::json_of;
use crate::train::data::Encoder;
use crate::train::image_files::parts_of;

/// One of three ways to give a prompt.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// A text to go on with
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["messages", "ids"])]
    prompt: Option<String>,
    /// A conversation to answer: a list of messages in JSON, or an object with messages and tools
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    messages: Option<PathBuf>,
    /// Tokens to go on with: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["prompt", "messages"])]
    ids: Option<Vec<i32>>,
    /// The tools of a conversation, a list in JSON
    #[arg(long, value_name = "FILE", requires = "messages")]
    tools: Option<PathBuf>,
}

impl Flags {
    /// Whether tokens are given.
    pub fn is_ids(&self) -> bool {
        self.ids.is_some()
    }

    /// The files that are read.
    pub fn files(&self) -> Vec<&Path> {
        [&self.messages, &self.tools].into_iter().flatten().map(PathBuf::as_path).collect()
    }
}

/// Tokens to go on with, and what reads and writes them.
pub(super) struct Prompt {
    pub ids: Vec<i32>,
    folder: PathBuf,
    encoder: Option<Encoder<'static>>,
    conversation: Option<Conversation>,
}

impl Prompt {
    /// Reads it. `vocab` is the number of tokens that the model has.
    pub fn read(flags: &Flags, folder: &Path, vocab: usize) -> Result<Self, Failure> {
        let needs_tokenizer = flags.ids.is_none() || folder.join("tokenizer.json").exists();
        let encoder = needs_tokenizer.then(|| Encoder::open(folder, vocab, false)).transpose()?;
        let mut prompt = Self { ids: Vec::new(), folder: folder.into(), encoder, conversation: None };
        if let Some(ids) = &flags.ids {
            prompt.ids.clone_from(ids);
        } else if let Some(text) = &flags.prompt {
            prompt.ids = prompt.encoder()?.encode(text, true).map_err(|error| prompt.named(&error))?;
        } else if let Some(file) = &flags.messages {
            let conversation = conversation(file, flags.tools.as_deref())?;
            prompt.ids = prompt.encoded(&conversation, file)?;
            prompt.conversation = Some(conversation);
        }
        let outside = prompt.ids.iter().find(|id| !usize::try_from(**id).is_ok_and(|id| id < vocab));
        if let Some(id) = outside {
            return Err(Failure::Usage(format!(
                "--ids: expected tokens from 0 to {}, found {id}",
                vocab - 1
            )));
        }
        if prompt.ids.is_empty() {
            return Err(Failure::Usage("the prompt has no token".into()));
        }
        Ok(prompt)
    }

    fn named(&self, error: &str) -> Failure {
        Failure::Usage(format!("{}: {error}", self.folder.display()))
    }

    fn encoder(&self) -> Result<&Encoder<'static>, Failure> {
        self.encoder.as_ref().ok_or_else(|| self.named("the folder holds no tokenizer.json"))
    }

    /// A conversation's tokens, with the beginning of the answer.
    fn encoded(&self, conversation: &Conversation, file: &Path) -> Result<Vec<i32>, Failure> {
        let encoder = self.encoder()?;
        let text = encoder.render(conversation);
        let text = text.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?.text;
        encoder.take_notices().iter().for_each(|notice| warn(&format!("{}: {notice}", file.display())));
        encoder.encode(&text, false).map_err(|error| self.named(&error))
    }

    /// The text of tokens, special ones included; `None` if there is no tokenizer.
    pub fn decode(&self, ids: &[i32]) -> Result<Option<String>, Failure> {
        let Some(encoder) = &self.encoder else { return Ok(None) };
        encoder.decode(ids).map(Some).map_err(|error| self.named(&error))
    }

    /// The tokens that end a sequence: those of the model's `generation_config.json`, else of its `config.json`, and
    /// that of the tokenizer.
    pub fn stops(&self, model: &Path) -> Result<Vec<i32>, Failure> {
        stops(model, self.encoder.as_ref().and_then(|encoder| encoder.end))
    }

    /// What holds the answer's calls to the tools.
    ///
    /// Fails where the template does not write a call as an object of name and arguments.
    pub fn calls(&self) -> Result<Calls, Failure> {
        let encoder = self.encoder()?;
        let end = encoder
            .end
            .ok_or_else(|| self.named("--constrained needs the eos_token of a tokenizer_config.json"))?;
        let vocabulary =
            vocabulary(&self.folder.join("tokenizer.json"), end as u32).map_err(Failure::usage)?;
        let conversation = self.conversation.as_ref().filter(|conversation| conversation.tools.is_some());
        let conversation =
            conversation.ok_or_else(|| self.named("--constrained needs --messages and tools"))?;
        let tools =
            conversation.tools.as_ref().and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let before = self.opening(encoder, conversation, tools)?;
        Calls::new(&vocabulary, tools, &before).map_err(Failure::usage)
    }

    /// What the template writes between the beginning of an answer and the JSON of a call.
    fn opening(
        &self,
        encoder: &Encoder<'_>,
        asked: &Conversation,
        tools: &[Json],
    ) -> Result<String, Failure> {
        let tool = tools.first().ok_or_else(|| self.named("--constrained: expected a tool, found none"))?;
        let name = &tool.get("function").unwrap_or(tool)["name"];
        let function = json!({"name": name, "arguments": {}});
        let call = json!({"id": "call00000", "type": "function", "function": function});
        let mut answered = Conversation { add_generation_prompt: false, ..asked.clone() };
        answered.messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
        let [asked, answered] = [asked, &answered].map(|conversation| encoder.render(conversation));
        let text = |rendered: Result<_, String>| rendered.map_err(|error| self.named(&error));
        let (asked, answered) = (text(asked)?.text, text(answered)?.text);
        let written = format!("{{\"name\": {name}, \"arguments\": {{}}}}");
        let before = answered.strip_prefix(&asked).and_then(|answer| answer.split_once(&written));
        before.map(|(before, _)| before.to_owned()).ok_or_else(|| {
            self.named(&format!(
                "--constrained: expected a template that writes a call as {written} in its answer"
            ))
        })
    }
}

/// Messages and tools, to be answered.
fn conversation(file: &Path, tools: Option<&Path>) -> Result<Conversation, Failure> {
    let given = json_of(file)?;
    let messages = if given.is_object() { &given["messages"] } else { &given };
    let list = |json: &Json, what: &str, file: &Path| match json {
        Json::Array(list) => Ok(list.clone()),
        _ => Err(Failure::Usage(format!("{}: expected a list of {what}", file.display()))),
    };
    let tools = match tools {
        Some(file) => Some(Json::Array(list(&json_of(file)?, "tools", file)?)),
        None => match given.get("tools").filter(|tools| !tools.is_null()) {
            Some(tools) => Some(Json::Array(list(tools, "tools", file)?)),
            None => None,
        },
    };
    let messages = list(messages, "messages", file)?;
    messages::check(&messages, "messages")
        .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    let images =
        parts_of(&messages).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    if !images.is_empty() {
        let reason = "expected messages of texts alone, as generate reads no images, found";
        return Err(Failure::Usage(format!("{}: {reason} {}", file.display(), images.len())));
    }
    Ok(Conversation { messages, tools, add_generation_prompt: true, ..Conversation::default() })
}
