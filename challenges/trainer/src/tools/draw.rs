//! Names, words and numbers, drawn; and which of them training never sees.
//!
//! Every fifth text, by its hash, is kept for the held-out requests, so that no argument of theirs is in a row of
//! training, and a model that answers them has read them.

use reference::philox::philox4x32_10;

/// Draws from a seed and a row's number alone.
pub struct Draw {
    key: [u32; 2],
    row: u32,
    drawn: u32,
    is_held_out: bool,
}

const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
const VOWELS: &[u8] = b"aeiou";
const LAST: &[u8] = b"nrst";

impl Draw {
    /// Those of a row, whose arguments are of the held-out fifth or of the other four.
    pub fn new(seed: u32, row: u32, is_held_out: bool) -> Self {
        Self { key: [seed, 0], row, drawn: 0, is_held_out }
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        let [word, ..] = philox4x32_10([self.drawn, self.row, u32::from(self.is_held_out), 0], self.key);
        self.drawn += 1;
        ((u64::from(word) * u64::from(end)) >> 32) as u32
    }

    /// One of a list.
    pub fn of<'t, T: ?Sized>(&mut self, list: &[&'t T]) -> &'t T {
        list[self.below(list.len() as u32) as usize]
    }

    /// A whole number of one to four digits: "4821".
    pub fn number(&mut self) -> String {
        self.kept(|draw| {
            let end = [100, 100, 1000, 1000, 10_000][draw.below(5) as usize];
            (2 + draw.below(end - 2)).to_string()
        })
    }

    /// A word that is in no dictionary: "sarolu".
    pub fn word(&mut self) -> String {
        self.kept(Self::syllables)
    }

    /// The same as a name: "Sarolu".
    pub fn name(&mut self) -> String {
        self.kept(|draw| {
            let word = draw.syllables();
            word[..1].to_uppercase() + &word[1..]
        })
    }

    /// Letters that are no argument: "qxa".
    pub fn letters(&mut self) -> String {
        (0..=self.below(7)).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    fn syllables(&mut self) -> String {
        let mut word = String::new();
        for _ in 0..[2, 2, 3, 3, 4][self.below(5) as usize] {
            word.push(self.letter(CONSONANTS));
            word.push(self.letter(VOWELS));
        }
        if self.below(2) == 0 {
            word.push(self.letter(LAST));
        }
        word
    }

    fn letter(&mut self, of: &[u8]) -> char {
        char::from(of[self.below(of.len() as u32) as usize])
    }

    /// The first that is drawn of the right share.
    fn kept(&mut self, mut draw: impl FnMut(&mut Self) -> String) -> String {
        loop {
            let text = draw(self);
            if is_held_out(&text) == self.is_held_out {
                return text;
            }
        }
    }
}

/// Whether a text may be an argument of held-out requests only: one in five. The hash is FNV-1a, of 64 bits
/// (Fowler, Noll and Vo; RFC 9923), folded, for its low bits alone follow the last byte.
pub fn is_held_out(text: &str) -> bool {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    ((hash ^ hash >> 32) as u32).is_multiple_of(5)
}
