//! Notices about the rows of a file: doubled special tokens and columns that are not read.
//!
//! Training goes on, because TRL trains such rows too, but the user often meant something else.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use tokenizers::Tokenizer;

use super::columns::given;

/// Notices about a file, with the number of rows of each kind.
#[derive(Debug, Default)]
pub(super) struct Notices {
    begins: Vec<i32>, // tokens that a row begins with once
    ends: Vec<i32>,
    rows: RefCell<BTreeMap<Notice, usize>>,
}

/// A kind of notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    /// A row begins with a token twice.
    Begin(i32),
    /// A row ends with a token twice.
    End(i32),
    /// A line has a column that is not read.
    Unread { column: &'static str, read: &'static str },
}

/// Columns that compete.
const COLUMNS: [&str; 5] = ["prompt", "completion", "messages", "conversations", "text"];

impl Notices {
    /// Notices of no row yet, for a tokenizer and its special tokens, if it has them.
    pub fn new(tokenizer: &Tokenizer, begin: Option<i32>, end: Option<i32>) -> Result<Self, String> {
        let ids = |alone: bool| {
            let encoded = tokenizer.encode("a", alone).map_err(|error| error.to_string())?;
            Ok::<_, String>(encoded.get_ids().iter().map(|id| *id as i32).collect::<Vec<i32>>())
        };
        let (around, bare) = (ids(true)?, ids(false)?);
        let at = around.windows(bare.len().max(1)).position(|window| window == bare);
        let (before, after) = match at {
            Some(at) => (&around[..at], &around[at + bare.len()..]),
            None => (&around[..0], &around[..0]),
        };
        let begins = before.last().copied().into_iter().chain(begin).collect();
        let ends = after.first().copied().into_iter().chain(end).collect();
        Ok(Self { begins, ends, rows: RefCell::default() })
    }

    /// Counts a row that begins or ends with a special token twice.
    pub fn see(&self, ids: &[i32]) {
        match ids {
            [first, second, ..] if first == second && self.begins.contains(first) => {
                self.count(Notice::Begin(*first));
            }
            _ => {}
        }
        match ids {
            [.., second, last] if second == last && self.ends.contains(last) => {
                self.count(Notice::End(*last));
            }
            _ => {}
        }
    }

    /// Counts the columns of a line that stand next to those that are read: one, or prompt and completion.
    pub fn see_columns(&self, object: &Map<String, Json>, read: &'static str) {
        let is_unread = |column: &&str| !read.split(" and ").any(|read| read == *column);
        let unread =
            COLUMNS.into_iter().filter(|column| is_unread(column) && given(object, column).is_some());
        unread.for_each(|column| self.count(Notice::Unread { column, read }));
    }

    fn count(&self, notice: Notice) {
        *self.rows.borrow_mut().entry(notice).or_default() += 1;
    }

    /// Takes what there is to report, with the texts of tokens.
    pub fn take(&self, tokenizer: &Tokenizer) -> Vec<String> {
        let text = |id: i32| tokenizer.id_to_token(id as u32).unwrap_or_else(|| id.to_string());
        let once = "the tokenizer or the template adds one, so the data need not have it";
        let sentence = |(notice, rows): (Notice, usize)| match (notice, rows) {
            (Notice::Begin(id), 1) => format!("1 row begins with {} twice; {once}", text(id)),
            (Notice::Begin(id), _) => format!("{rows} rows begin with {} twice; {once}", text(id)),
            (Notice::End(id), 1) => format!("1 row ends with {} twice; {once}", text(id)),
            (Notice::End(id), _) => format!("{rows} rows end with {} twice; {once}", text(id)),
            (Notice::Unread { column, read }, 1) => {
                format!("1 row has {column} next to {read}; {column} is not read")
            }
            (Notice::Unread { column, read }, _) => {
                format!("{rows} rows have {column} next to {read}; {column} is not read")
            }
        };
        self.rows.take().into_iter().map(sentence).collect()
    }
}
