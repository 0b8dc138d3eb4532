//! A row of data as a model reads it.

use std::ops::Range;
use std::path::PathBuf;

use challenges::issues::classify::{self, Classify as _};
use challenges::issues::vision::Grid;

use super::labels::Target;

/// A row of data as a model reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The tokens.
    pub ids: Vec<i32>,
    /// Which of them are trained, or answered from.
    pub trained: Vec<bool>,
    /// The lengths of its documents: one, but where rows were packed.
    pub documents: Vec<usize>,
    /// What a classifier answers of each document; empty of a model that predicts the next token.
    pub targets: Vec<Target>,
    /// Its images, in the order of their tokens: of a row of one document.
    pub pictures: Vec<Picture>,
}

/// An image of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its file.
    pub path: PathBuf,
    /// The tokens of the row that it is.
    pub tokens: Range<usize>,
    /// Its patches.
    pub grid: Grid,
    /// Of its pixels, as the tower gets them.
    pub digest: [u8; 32],
}

impl Row {
    /// The labels: the token where it is trained, else -100. That the first of a document has no loss is the graph's. Of
    /// a classifier they are the classes of the documents, or 0, where these are answered from.
    pub fn labels(&self) -> Vec<i32> {
        if !self.targets.is_empty() {
            let mut labels = vec![reference::loss::IGNORED; self.ids.len()];
            for (token, target) in self.answers() {
                labels[token] = if let Target::Class(class) = target { *class } else { 0 };
            }
            return labels;
        }
        let label = |(id, trained): (&i32, &bool)| if *trained { *id } else { reference::loss::IGNORED };
        self.ids.iter().zip(&self.trained).map(label).collect()
    }

    /// The tokens that documents are answered from, with what they are held against.
    pub fn answers(&self) -> impl Iterator<Item = (usize, &Target)> {
        let tokens = (0..self.ids.len()).filter(|token| self.trained[*token]);
        tokens.zip(&self.targets)
    }

    /// A row of one document is answered from one token.
    pub(super) fn answer_from(&mut self, pad: Option<i32>) {
        self.trained.fill(false);
        if !self.ids.is_empty() {
            self.trained[classify::Solution.last_tokens(&self.ids, self.ids.len(), pad)[0]] = true;
        }
    }

    /// How many tokens have a loss: those that are trained and are not the first of their document. Of a classifier, how
    /// many documents have one.
    pub fn counted(&self) -> usize {
        if !self.targets.is_empty() {
            return self.answers().count();
        }
        let mut rest = self.trained.as_slice();
        let of_document = |length: &usize| {
            let (document, after) = rest.split_at(*length);
            rest = after;
            document.iter().skip(1).filter(|trained| **trained).count()
        };
        self.documents.iter().map(of_document).sum()
    }

    /// A row of one document, cut to so many tokens; whether there were more.
    pub(super) fn cut(&mut self, most: usize) -> bool {
        let longer = self.ids.len() > most;
        self.ids.truncate(most);
        self.trained.truncate(most);
        self.documents = vec![self.ids.len()];
        longer
    }

    /// Rows one after the other, as the documents of one.
    pub(super) fn joined(rows: &[&Row]) -> Self {
        Self {
            ids: rows.iter().flat_map(|row| row.ids.iter().copied()).collect(),
            trained: rows.iter().flat_map(|row| row.trained.iter().copied()).collect(),
            documents: rows.iter().flat_map(|row| row.documents.iter().copied()).collect(),
            targets: rows.iter().flat_map(|row| row.targets.iter().cloned()).collect(),
            pictures: Vec::new(), // rows with images are not joined
        }
    }
}
