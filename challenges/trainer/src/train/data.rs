//! Data: a file of JSON objects ([`lines`](super::lines)), as tokens and which of them are trained.
//!
//! ```text
//! {"messages": [..]}                        the chat template's text
//! {"conversations": [..]}                   the same, of messages that may have the keys from and value
//! {"prompt": [..], "completion": [..]}      that of all the messages; the completion is trained
//! {"prompt": "..", "completion": ".."}      both texts, then the end of the sequence; the completion is trained
//! {"text": ".."}                            the text, then the end of the sequence
//! {"text": "..", "label": ..}               of a classifier: the text, or the messages, and what it is answered with
//! ```
//!
//! A text that ends with the end of the sequence already gets no second one; see [`end`](super::end) for the token.
//!
//! Of columns that compete, `prompt` and `completion` that are messages come first, then `messages`, then texts. Where a
//! line has both `messages` and `conversations` of `from` and `value`, TRL replaces the former by the latter. A notice names
//! the columns that are not read.
//!
//! Messages may have `tools` beside them, a list or such a list as text, and `chat_template_kwargs`, an object of
//! variables for the template. A completion begins where the tokens of all part from those of the prompt alone, which
//! of messages ends with the beginning of an answer.
//!
//! With `assistant_only_loss` what is trained of messages are the tokens that share a character with what the template
//! marks by `{% generation %}`, of a completion only its own; without it, every token. A row is cut to `max_length`
//! tokens at its end; one without a trained token is left out, for it has no loss.
//!
//! Of a model that reads images a line may have `images` beside its messages: see [`images`](super::images).
//!
//! A classifier reads a text as its tokenizer encodes it, or messages as the template writes them, and is answered from
//! the last token that is left of it and is not the model's token of padding; see [`labels`](super::labels).
//!
//! Sources: "Dataset formats and types" in the documentation of the `trl` library, 1.16, and its `SFTTrainer`
//! (`_prepare_dataset`, `build_labels`).

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use challenges::issues::chat::{Chat as _, Conversation, Options, Rendered, Solution};
use reference::llama;
use serde_json::{Map, Value as Json};
use tokenizers::Tokenizer;

pub(super) use super::columns::given;
use super::columns::{conversation, turns, unknown};
use super::config::Evaluation;
pub use super::dataset::Dataset;
use super::image_files;
use super::images::Images;
use super::labels::Labels;
use super::lines;
use super::notices::Notices;
pub use super::pack::packed;
pub use super::row::Row;
use super::{Config, end};
use crate::files::read_text;
use crate::markers::Markers;
use crate::messages::{self, kind};
use crate::output::{Failure, warn};
use crate::roles::Roles;
use crate::template::{Source, Templates};

/// What turns a line into a row.
pub struct Encoder<'i> {
    tokenizer: Tokenizer,
    /// The chat templates with their variables, or the reason why there are none.
    template: Result<(Templates, Vec<(String, Json)>), String>,
    /// The token that ends a sequence, if the tokenizer's configuration names one.
    pub(crate) end: Option<i32>,
    /// The text of that token, or the reason why the tokenizer has none.
    end_text: Result<String, String>,
    assistant_only: bool,
    /// What lines are answered with, if a classifier is trained.
    labels: Option<Labels>,
    /// What lines may show, if the model reads images.
    images: Option<&'i Images>,
    merged: Cell<usize>, // prompts of the file that is read whose tokens do not begin their row
    notices: Notices,    // about the file that is read
    roles: Roles,
}

impl<'i> Encoder<'i> {
    /// The tokenizer and the chat template of a folder.
    ///
    /// Fails where either cannot be read, and where a token has no row in an embedding of `vocab` rows.
    pub fn open(folder: &Path, vocab: usize, assistant_only: bool) -> Result<Self, Failure> {
        let file = folder.join("tokenizer.json");
        let named = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", file.display()));
        let text =
            read_text(&file).map_err(Failure::usage)?.ok_or_else(|| named(&"there is no such file"))?;
        let markers = Markers::read(folder).map_err(Failure::usage)?;
        let text = text.trim_start_matches('\u{feff}');
        let mut tokenizer: Tokenizer = text.parse().map_err(|error: tokenizers::Error| named(&error))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| named(&error))?;
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
        let rows = (largest as usize + 1).max(markers.size as usize); // the library numbers some tokens anew
        if rows > vocab {
            return Err(named(&format!(
                "expected ids below {vocab}, the rows of the model's embedding, found {}; `trainer template repair \
                 --resize` adds rows",
                rows - 1
            )));
        }
        let found = end::find(folder, &tokenizer).map_err(Failure::usage)?;
        let end = found.as_ref().ok().map(|(_, id)| *id);
        let begin = markers.named.iter().find(|(name, _)| name == "bos_token");
        let begin = begin.and_then(|(_, text)| tokenizer.token_to_id(text)).map(|id| id as i32);
        let notices = Notices::new(&tokenizer, begin, end).map_err(|error| named(&error))?;
        let roles = Roles::new(markers.templates.iter().map(|(_, text)| text.as_str()));
        let source = match Source::read(folder) {
            Err(_) if markers.templates.is_empty() => {
                Err(format!("`messages` need a chat template; {} has none", folder.display()))
            }
            source => source.map_err(|failure| failure.to_string()),
        };
        let marks = source
            .as_ref()
            .is_ok_and(|source| source.templates.iter().any(|(_, text)| marks_generation(text)));
        let template = match source {
            Ok(source) => {
                let variables = source.variables();
                Ok((source.compiled(folder, &Options::default())?, variables))
            }
            Err(reason) if assistant_only && !markers.templates.is_empty() => {
                return Err(Failure::Usage(reason));
            }
            Err(reason) => Err(reason),
        };
        if assistant_only && !marks {
            return Err(Failure::Usage(format!(
                "{}: assistant_only_loss needs a chat template with {{% generation %}} marks; `trainer template \
                 repair` adds them",
                folder.display()
            )));
        }
        Ok(Self {
            tokenizer,
            template,
            end,
            end_text: found.map(|(text, _)| text),
            assistant_only,
            labels: None,
            images: None,
            merged: Cell::new(0),
            notices,
            roles,
        })
    }

    /// One that reads what a classifier is trained on.
    fn with_labels(self, labels: Option<Labels>) -> Self {
        Self { labels, ..self }
    }

    /// One that reads images beside texts.
    fn with_images(self, images: Option<&'i Images>) -> Self {
        Self { images, ..self }
    }

    /// Every line of a file, cut to `most` tokens.
    ///
    /// Fails at the first line that is no row, with its number.
    pub fn rows(&self, file: &Path, most: Option<usize>) -> Result<Dataset, Failure> {
        self.read(file, |data, object| {
            self.check_images(&object)?;
            let mut row = self.row(&object)?;
            if let Some(images) = self.images {
                row = images.expanded(row, &object, file.parent().unwrap_or(Path::new("")))?;
                images.check_whole(&row, most)?;
            }
            data.cut += usize::from(most.is_some_and(|most| row.cut(most)));
            self.labels.iter().for_each(|labels| row.answer_from(labels.pad));
            if row.counted() == 0 {
                data.left_out += 1;
            } else {
                data.rows.push(row);
            }
            Ok(())
        })
    }

    /// Checks that a line has no images, if the model reads only texts.
    pub(super) fn check_images(&self, object: &Map<String, Json>) -> Result<(), String> {
        if self.images.is_some() { Ok(()) } else { image_files::check_none(object) }
    }

    /// Every line of a file, added to the data.
    ///
    /// Fails at the first line that cannot be, with its number.
    pub(super) fn read(
        &self,
        file: &Path,
        mut add: impl FnMut(&mut Dataset, Map<String, Json>) -> Result<(), String>,
    ) -> Result<Dataset, Failure> {
        let named = |error: &str| Failure::Usage(format!("{}: {error}", file.display()));
        let mut data = Dataset::default();
        let count =
            lines::objects(file, &mut |object| add(&mut data, object)).map_err(|error| named(&error))?;
        data.merged = self.merged.take();
        data.problem = self.labels.as_ref().and_then(Labels::problem);
        match data.rows.is_empty() {
            true if count == 0 => Err(named("expected a JSON object a line, found an empty file")),
            true => Err(named(&self.untrained())),
            false => {
                data.notices = self.take_notices();
                Ok(data)
            }
        }
    }

    /// Takes the notices about the rows that were read.
    pub(crate) fn take_notices(&self) -> Vec<String> {
        [self.notices.take(&self.tokenizer), self.roles.take_notices()].concat()
    }

    /// Why no row is trained.
    fn untrained(&self) -> String {
        let error = "no line has a trained token";
        match self.roles.listed().filter(|_| self.assistant_only) {
            Some(roles) => format!(
                "{error}: assistant_only_loss trains what the chat template marks, and the messages have the roles {roles}"
            ),
            None => error.to_owned(),
        }
    }

    /// A line's row.
    fn row(&self, object: &Map<String, Json>) -> Result<Row, String> {
        if let Some(labels) = &self.labels {
            return Ok(Row { targets: vec![labels.target(object)?], ..self.classified(object)? });
        }
        let turns = turns(object)?;
        match (given(object, "prompt"), given(object, "completion"), turns) {
            (Some(Json::Array(prompt)), Some(Json::Array(completion)), _) => {
                messages::check(prompt, "prompt")?;
                messages::check(completion, "completion")?;
                self.notices.see_columns(object, "prompt and completion");
                self.answered(prompt, completion, object)
            }
            (.., Some((key, messages))) => {
                self.notices.see_columns(object, key);
                self.conversation(&messages, object)
            }
            (Some(Json::Array(_)), None, None) => Err("expected the key completion next to prompt".into()),
            (Some(Json::Array(_)), ..) => {
                Err("completion: expected a list of messages, as prompt is one".into())
            }
            _ if self.assistant_only => {
                Err("assistant_only_loss needs `messages`, or `prompt` and `completion` that are messages"
                    .into())
            }
            _ => self.plain(object),
        }
    }

    /// A text to be classified, or messages.
    fn classified(&self, object: &Map<String, Json>) -> Result<Row, String> {
        match (turns(object)?, given(object, "text")) {
            (Some((key, messages)), None) => {
                self.notices.see_columns(object, key);
                self.conversation(&messages, object)
            }
            (None, Some(Json::String(text))) => self.text(text, None),
            (Some((key, _)), Some(_)) => Err(format!("expected text or {key} next to the label, found both")),
            (None, Some(other)) => Err(format!("text: expected a text, found {}", kind(other))),
            (None, None) => Err("expected the key text, or messages, next to the label".into()),
        }
    }

    /// A row of texts.
    fn plain(&self, object: &Map<String, Json>) -> Result<Row, String> {
        let text = |key: &str| {
            let value =
                given(object, key).map(|value| value.as_str().ok_or(format!("{key}: expected a text")));
            value.transpose()
        };
        match (text("prompt")?, text("completion")?, text("text")?) {
            (Some(prompt), Some(completion), _) => {
                self.notices.see_columns(object, "prompt and completion");
                self.completion(prompt, completion)
            }
            (_, _, Some(text)) => {
                self.notices.see_columns(object, "text");
                self.text(text, self.end_of(text)?)
            }
            _ => Err(unknown(object)),
        }
    }

    /// A row that is a text, with a token after it.
    fn text(&self, text: &str, end: Option<i32>) -> Result<Row, String> {
        let mut ids = self.encode(text, true)?;
        ids.extend(end);
        self.notices.see(&ids);
        Ok(Row { trained: vec![true; ids.len()], documents: vec![ids.len()], ids, ..Row::default() })
    }

    pub(super) fn completion(&self, prompt: &str, completion: &str) -> Result<Row, String> {
        let mut ids = self.encode(&format!("{prompt}{completion}"), true)?;
        let before = self.common(&self.encode(prompt, true)?, &ids);
        ids.extend(self.end_of(completion)?);
        self.notices.see(&ids);
        let trained = (0..ids.len()).map(|token| token >= before).collect();
        Ok(Row { documents: vec![ids.len()], ids, trained, ..Row::default() })
    }

    /// The end of the sequence, if a text does not end with it already.
    ///
    /// Fails where the tokenizer has no such token.
    fn end_of(&self, text: &str) -> Result<Option<i32>, String> {
        let end = self.end_text.as_ref().map_err(Clone::clone)?;
        Ok(self.end.filter(|_| !text.ends_with(end)))
    }

    /// Why no token ends a sequence.
    pub(super) fn no_end(&self) -> Option<&str> {
        self.end_text.as_ref().err().map(String::as_str)
    }

    /// Tokens of a prompt alone that are also the first of its row.
    fn common(&self, prompt: &[i32], row: &[i32]) -> usize {
        let common = prompt.iter().zip(row).take_while(|(prompt, row)| prompt == row).count();
        self.merged.set(self.merged.get() + usize::from(common < prompt.len()));
        common
    }

    /// The tokens of a text, with those that the tokenizer puts around one where `is_alone`.
    pub(crate) fn encode(&self, text: &str, is_alone: bool) -> Result<Vec<i32>, String> {
        let encoded = self.tokenizer.encode(text, is_alone).map_err(|error| error.to_string())?;
        Ok(encoded.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// The text of tokens, special ones included.
    pub(crate) fn decode(&self, ids: &[i32]) -> Result<String, String> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        self.tokenizer.decode(&ids, false).map_err(|error| error.to_string())
    }

    /// A conversation as the template writes it.
    pub(crate) fn render(&self, conversation: &Conversation) -> Result<Rendered, String> {
        let (template, variables) = self.template.as_ref().map_err(Clone::clone)?;
        let write = |conversation: &Conversation| {
            let variables = [variables.as_slice(), &conversation.variables].concat(); // the last of a name counts
            let conversation = Conversation { variables, ..conversation.clone() };
            template.chat(&conversation)
        };
        if self.assistant_only && !marks_generation(template.source(conversation)?) {
            return Err(
                "assistant_only_loss needs {% generation %} marks in the chat template of this row, found \
                 none; `trainer template repair` adds them"
                    .into(),
            );
        }
        let rendered = write(conversation)?;
        self.roles.check(conversation, &rendered.text, |other| write(other).map(|other| other.text))?;
        Ok(rendered)
    }

    /// A prompt and its completion, both of them messages.
    pub(super) fn answered(
        &self,
        prompt: &[Json],
        completion: &[Json],
        object: &Map<String, Json>,
    ) -> Result<Row, String> {
        let asked = self.asked(prompt, object)?;
        let mut row = self.conversation(&[prompt, completion].concat(), object)?;
        let before = self.common(&asked, &row.ids);
        row.trained[..before].fill(false);
        Ok(row)
    }

    /// The tokens of messages that are to be answered.
    fn asked(&self, prompt: &[Json], object: &Map<String, Json>) -> Result<Vec<i32>, String> {
        let asked = Conversation { add_generation_prompt: true, ..conversation(prompt.to_vec(), object)? };
        self.encode(&self.render(&asked)?.text, false)
    }

    /// The tokens of a prompt, a text or messages.
    pub(super) fn prompt(&self, prompt: &Json, object: &Map<String, Json>) -> Result<Vec<i32>, String> {
        match prompt {
            Json::String(text) => self.encode(text, true),
            Json::Array(messages) => {
                messages::check(messages, "prompt")?;
                self.asked(messages, object)
            }
            _ => Err("prompt: expected a text or a list of messages".to_owned()),
        }
    }

    fn conversation(&self, messages: &[Json], object: &Map<String, Json>) -> Result<Row, String> {
        let rendered = self.render(&conversation(messages.to_vec(), object)?)?;
        let encoded = self.tokenizer.encode_char_offsets(rendered.text.as_str(), false);
        let encoded = encoded.map_err(|error| error.to_string())?;
        let ids: Vec<i32> = encoded.get_ids().iter().map(|id| *id as i32).collect();
        self.notices.see(&ids);
        let offsets: Vec<Range<usize>> = encoded.get_offsets().iter().map(|(from, to)| *from..*to).collect();
        let trained = if self.assistant_only {
            Solution.token_mask(&offsets, &rendered.spans)
        } else {
            vec![true; ids.len()]
        };
        Ok(Row { documents: vec![ids.len()], ids, trained, ..Row::default() })
    }
}

/// Whether a template has a `generation` statement.
fn marks_generation(template: &str) -> bool {
    let word = |after: &str| after.trim_start_matches(['-', '+']).trim_start().starts_with("generation");
    template.split("{%").skip(1).any(word)
}

impl Config {
    /// The rows of its data, for a model whose embedding has so many rows and whose context has so many tokens, and
    /// those of its evaluations; none, if there are no evaluations. Of a classifier both are of one problem.
    pub fn rows(&self, model: &llama::Config, images: Option<&Images>) -> Result<[Dataset; 2], Failure> {
        let context = model.positions;
        let encoder = Encoder::open(&self.tokenizer_folder()?, model.vocab, self.assistant_only_loss)?;
        let encoder = encoder.with_labels(model.classifier.as_ref().map(Labels::of)).with_images(images);
        let evaluated = self.eval_dataset_name.as_ref().filter(|_| self.eval_strategy != Evaluation::No);
        let rows = |key: &str, file: &str| {
            let rows = self.rows_of(&encoder, file, context);
            let rows = rows.map_err(|failure| self.lookup.explain(key, failure))?;
            rows.notices.iter().for_each(|notice| warn(&format!("{file}: {notice}")));
            Ok::<_, Failure>(rows)
        };
        let data = rows("dataset_name", &self.dataset_name)?;
        let evaluated = evaluated.map(|file| rows("eval_dataset_name", file)).transpose()?;
        Ok([data, evaluated.unwrap_or_default()])
    }

    fn rows_of(&self, encoder: &Encoder<'_>, file: &str, context: usize) -> Result<Dataset, Failure> {
        let most = self.max_length.0.map(|most| most as usize);
        let data = match self.goal().map_err(Failure::Usage)? {
            Some(goal) => encoder.examples(Path::new(file), &goal, self, most)?,
            None => encoder.rows(Path::new(file), most)?,
        };
        let longer = data.rows.iter().filter(|row| row.ids.len() > context);
        let seen: Vec<&Row> = longer.filter(|row| !row.pictures.is_empty()).collect();
        match data.longest() {
            longest if longest > context => {
                let cut = || format!("max_length = {context} cuts it");
                let images = encoder.images.filter(|_| !seen.is_empty());
                let hint = images.map_or_else(cut, |images| images.hint(&seen, context));
                Err(Failure::Usage(format!(
                    "{file}: a row has {longest} tokens, the model's context {context}; {hint}"
                )))
            }
            _ if self.packing => {
                let most = self.max_length.0.map_or(context, |most| context.min(most as usize));
                Ok(Dataset { rows: packed(data.rows.iter().collect(), most), ..data })
            }
            _ => Ok(data),
        }
    }
}
