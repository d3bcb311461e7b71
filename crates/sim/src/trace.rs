//! The trace of a run: every operation, completion and message in order, as text or as a hash.

use std::fmt::{self, Write as _};

/// Treatment of the lines besides hashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Nothing.
    Hash,
    /// Keep them.
    Keep,
    /// Print them immediately.
    Print,
}

/// Lines, hashed and optionally kept or printed.
#[derive(Debug)]
pub struct Trace {
    show: Show,
    hash: u64,
    line: String,
    text: String,
}

impl Trace {
    /// Returns an empty trace.
    pub fn new(show: Show) -> Trace {
        Trace { show, hash: 0xcbf2_9ce4_8422_2325, line: String::new(), text: String::new() }
    }

    /// Adds a line.
    pub fn line(&mut self, words: fmt::Arguments<'_>) {
        self.line.clear();
        writeln!(self.line, "{words}").expect("a string");
        self.hash = hash(self.hash, self.line.as_bytes());
        match self.show {
            Show::Hash => {}
            Show::Keep => self.text.push_str(&self.line),
            Show::Print => print!("{}", self.line),
        }
    }

    /// Returns the hash of all lines so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the kept text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Continues a hash: FNV-1a by words of eight bytes, then the length. Two texts of one length that
/// differ in one word have different hashes.
pub fn hash(start: u64, bytes: &[u8]) -> u64 {
    let add = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    let (words, rest) = bytes.as_chunks();
    let hash = words.iter().fold(start, |hash, word| add(hash, u64::from_le_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| add(hash, u64::from(*byte)));
    add(hash, bytes.len() as u64)
}
