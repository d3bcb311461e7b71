//! Operators in the words of the command line, and what is said of them to people.

use super::Bytes;
use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::str::FromStr;

/// An operator as the command line has it.
pub(super) struct Word<O> {
    /// Its name.
    pub(super) name: &'static str,
    /// What follows the name; what may be left out is in brackets.
    pub(super) arguments: &'static str,
    /// An example of it as JSON.
    pub(super) json: &'static str,
    /// What it does.
    pub(super) help: &'static str,
    /// Makes one of what follows the name.
    pub(super) make: fn(&mut Arguments) -> Result<O, String>,
}

/// A type of data whose operators have words.
pub(super) trait Spoken {
    /// What can be done to it.
    type Operator: 'static;
    /// All of its words.
    const WORDS: &'static [Word<Self::Operator>];
}

/// What follows the name of an operator.
pub(super) struct Arguments(VecDeque<String>);

impl Arguments {
    /// The next one, as it is.
    pub(super) fn bytes(&mut self) -> Result<Bytes, String> {
        self.0.pop_front().map(|word| word.as_str().into()).ok_or_else(|| "too few words".into())
    }

    /// The next one, a text.
    pub(super) fn string(&mut self) -> Result<String, String> {
        self.0.pop_front().ok_or_else(|| "too few words".into())
    }

    /// The next one, something that says itself what is wrong with it.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self) -> Result<T, String> {
        self.string()?.parse().map_err(|error: T::Err| error.to_string())
    }

    /// Whether there is no more.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next one, a number.
    pub(super) fn number<N: FromStr>(&mut self) -> Result<N, String> {
        let word = self.0.pop_front().ok_or("too few words")?;
        word.parse().map_err(|_| format!("{word:?} is not a number that can be here"))
    }

    /// The next one if there is one, as it is.
    pub(super) fn maybe_bytes(&mut self) -> Option<Bytes> {
        self.0.pop_front().map(|word| word.as_str().into())
    }

    /// The next one if there is one, a number; else this.
    pub(super) fn number_or<N: FromStr>(&mut self, default: N) -> Result<N, String> {
        if self.0.is_empty() { Ok(default) } else { self.number() }
    }
}

/// The operator of these words; if there is none, why.
pub(super) fn read<D: Spoken>(words: &[String]) -> Result<D::Operator, String> {
    let (name, arguments) = words.split_first().ok_or("an operation is missing")?;
    let word = D::WORDS.iter().find(|word| word.name == name);
    let word = word.ok_or_else(|| format!("there is no operation {name:?}"))?;
    let mut arguments = Arguments(arguments.iter().cloned().collect());
    let said = |what| format!("{} {}: {what}", word.name, word.arguments);
    let operator = (word.make)(&mut arguments).map_err(said)?;
    match arguments.0.pop_front() {
        None => Ok(operator),
        Some(more) => Err(said(format!("{more:?} is too much"))),
    }
}

/// All words of a type, one a line.
pub(super) fn help<D: Spoken>() -> String {
    table(D::WORDS, |word| format!("{} {}", word.name, word.arguments))
}

/// All operators of a type as JSON, one a line.
pub(super) fn json_help<D: Spoken>() -> String {
    table(D::WORDS, |word| word.json.to_owned())
}

fn table<O>(words: &[Word<O>], form: impl Fn(&Word<O>) -> String) -> String {
    let width = words.iter().map(|word| form(word).len()).max().unwrap_or(0);
    let mut lines = String::new();
    for word in words {
        writeln!(lines, "  {:width$}  {}", form(word), word.help).expect("a String grows");
    }
    lines
}

/// All operators of a type, as rows of a table in Markdown.
#[cfg(test)]
pub(super) fn rows<D: Spoken>() -> Vec<String> {
    let row = |word: &Word<D::Operator>| {
        let words = format!("{} {}", word.name, word.arguments);
        format!("| `{}` | `{}` | {} |", words.trim_end(), word.json, word.help)
    };
    D::WORDS.iter().map(row).collect()
}
