//! The text of a schedule, read.
//!
//! ```text
//! schedule  = header { line }
//! header    = "schedule" "ranks" number "chunks" number "micro_batches" number "placement" ( "looped" | "v" )
//! line      = rank ":" { operation }                        one for each rank, in order; each on a line of its own
//! operation = kinds micro_batch [ "." chunk ]               chunk 0 if none is written
//!           | "D" [ "." chunk ]
//! kinds     = [ "D" ] [ "F" ] [ "R" ] [ "B" ] [ "W" ]       at least one
//! ```
//!
//! Numbers are decimal digits without a sign. Space only separates, and empty lines count for nothing. Whoever wrote
//! the text is not trusted: memory grows with the text alone, whatever its numbers say, and an error quotes at most
//! [`LONGEST`] characters, none of them a control character.

use std::str::FromStr;

use super::grid::{MOST_MICRO_BATCHES, MOST_RANKS};
use super::{Error, Kind, Kinds, Operation, Placement, Schedule, Shape};

/// Characters of the text that an error quotes.
const LONGEST: usize = 24;

impl Schedule {
    /// Reads a schedule's text, such as [`to_string`](ToString::to_string) gives.
    ///
    /// Fails where the text does not follow the grammar at the top of `schedule/parse.rs`, with line and column.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut lines = text
            .lines()
            .zip(1..)
            .map(|(text, number)| Line { text, number, at: 0 })
            .filter(|line| !line.text.trim().is_empty());
        let shape = lines.next().unwrap_or(Line { text: "", number: 1, at: 0 }).header()?;
        let mut ranks = Vec::new();
        let mut last = 1;
        for mut line in lines {
            line.rank(ranks.len(), shape)?;
            ranks.push(line.operations(shape)?);
            last = line.number;
        }
        if ranks.len() < shape.ranks() {
            let end = Line { text: "", number: last + 1, at: 0 };
            return Err(end.error(0, format!("the line of rank {}", ranks.len())));
        }
        Self::new(shape, ranks)
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// A line and how far it is read, in bytes.
struct Line<'a> {
    text: &'a str,
    number: usize,
    at: usize,
}

impl Line<'_> {
    fn header(mut self) -> Result<Shape, Error> {
        self.word("schedule")?;
        let start = self.at;
        let ranks = self.setting("ranks", MOST_RANKS)?;
        let chunks = self.setting("chunks", MOST_RANKS)?;
        let micro_batches = self.setting("micro_batches", MOST_MICRO_BATCHES)?;
        self.word("placement")?;
        let placement = self.placement()?;
        self.end("the end of the line")?;
        Shape::new(ranks, chunks, micro_batches, placement)
            .map_err(|error| self.error(start, error.to_string()))
    }

    fn setting(&mut self, name: &str, most: usize) -> Result<usize, Error> {
        self.word(name)?;
        self.skip_space();
        let start = self.at;
        match self.number(most)? {
            0 => Err(self.error(start, format!("a number from 1 to {most}"))),
            number => Ok(number),
        }
    }

    fn placement(&mut self) -> Result<Placement, Error> {
        self.skip_space();
        let found = self.token();
        let placement =
            [Placement::Looped, Placement::V].into_iter().find(|placement| placement.word() == found);
        let placement = placement.ok_or_else(|| self.error(self.at, "`looped` or `v`".to_owned()))?;
        self.at += placement.word().len();
        Ok(placement)
    }

    /// The number of the line's rank, and the colon.
    fn rank(&mut self, rank: usize, shape: Shape) -> Result<(), Error> {
        self.skip_space();
        let start = self.at;
        if rank == shape.ranks() {
            return self.end(&format!("the end of the text after {rank} ranks"));
        }
        let expected = || format!("`{rank}:`, the line of rank {rank}");
        if self.number(MOST_RANKS).ok() != Some(rank) || !self.eat(':') {
            return Err(self.error(start, expected()));
        }
        Ok(())
    }

    fn operations(&mut self, shape: Shape) -> Result<Vec<Operation>, Error> {
        let mut operations = Vec::new();
        self.skip_space();
        while self.at < self.text.len() {
            operations.push(self.operation(shape)?);
            self.skip_space();
        }
        Ok(operations)
    }

    fn operation(&mut self, shape: Shape) -> Result<Operation, Error> {
        let mut operation = Operation { kinds: self.kinds()?, micro_batch: 0, chunk: 0 };
        if operation.has_micro_batch() {
            operation.micro_batch = self.number(shape.micro_batches() - 1)?;
        }
        if self.eat('.') {
            operation.chunk = self.number(shape.chunks() - 1)?;
        }
        match self.peek() {
            Some(c) if !c.is_whitespace() => {
                Err(self.error(self.at, "a space after the operation".to_owned()))
            }
            _ => Ok(operation),
        }
    }

    fn kinds(&mut self) -> Result<Kinds, Error> {
        let start = self.at;
        let mut kinds = Kinds::default();
        let mut last = None;
        while let Some(kind) = self.peek().and_then(Kind::of_letter) {
            if last >= Some(kind) {
                return Err(
                    self.error(self.at, "letters in the order D, F, R, B, W, each at most once".to_owned())
                );
            }
            last = Some(kind);
            kinds = kinds.with(kind);
            self.at += 1;
        }
        if kinds.is_empty() {
            return Err(self.error(start, "an operation, such as `F0`, `RBW0` or `D`".to_owned()));
        }
        Ok(kinds)
    }
}

/// The pieces.
impl Line<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// What comes up to the next space.
    fn token(&self) -> &str {
        self.text[self.at..].split(char::is_whitespace).next().unwrap_or("")
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn word(&mut self, word: &str) -> Result<(), Error> {
        self.skip_space();
        if self.token() != word {
            return Err(self.error(self.at, format!("`{word}`")));
        }
        self.at += word.len();
        Ok(())
    }

    /// Digits, of a number that is not too large.
    fn number(&mut self, most: usize) -> Result<usize, Error> {
        let rest = &self.text[self.at..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = rest[..digits].parse().ok().filter(|number| *number <= most);
        let number = number.ok_or_else(|| self.error(self.at, format!("a number from 0 to {most}")))?;
        self.at += digits;
        Ok(number)
    }

    fn end(&mut self, expected: &str) -> Result<(), Error> {
        self.skip_space();
        if self.at < self.text.len() { Err(self.error(self.at, expected.to_owned())) } else { Ok(()) }
    }

    /// That something else is needed at a byte of the line.
    fn error(&self, at: usize, expected: String) -> Error {
        let rest = &self.text[at..];
        let token = rest.split(char::is_whitespace).find(|word| !word.is_empty()).unwrap_or("");
        let quoted: String = token.chars().take(LONGEST).flat_map(char::escape_debug).collect();
        let more = if token.chars().nth(LONGEST).is_some() { ".." } else { "" };
        let found = if token.is_empty() { "the end".to_owned() } else { format!("`{quoted}{more}`") };
        let column = self.text[..at].chars().count() + 1;
        Error::Text { line: self.number, column, found, expected }
    }
}
