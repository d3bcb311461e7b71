//! Command-line syntax of operators, and its help texts.

use super::Bytes;
use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::str::FromStr;

/// Command-line form of an operator.
pub(super) struct Word<O> {
    /// Name.
    pub(super) name: &'static str,
    /// Syntax of the arguments; optional ones are in brackets.
    pub(super) arguments: &'static str,
    /// Example in JSON.
    pub(super) json: &'static str,
    /// Description.
    pub(super) help: &'static str,
    /// Parses the arguments.
    pub(super) make: fn(&mut Arguments) -> Result<O, String>,
}

/// Data type with a command-line syntax.
pub(super) trait Spoken {
    /// Operator type.
    type Operator: 'static;
    /// All operators.
    const WORDS: &'static [Word<Self::Operator>];
}

/// Unparsed arguments of an operator.
pub(super) struct Arguments(VecDeque<String>);

impl Arguments {
    /// Takes the next argument as bytes.
    pub(super) fn bytes(&mut self) -> Result<Bytes, String> {
        self.0.pop_front().map(|word| word.as_str().into()).ok_or_else(|| "too few words".into())
    }

    /// Takes the next argument as text.
    pub(super) fn string(&mut self) -> Result<String, String> {
        self.0.pop_front().ok_or_else(|| "too few words".into())
    }

    /// Takes and parses the next argument; the parser supplies the error text.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self) -> Result<T, String> {
        self.string()?.parse().map_err(|error: T::Err| error.to_string())
    }

    /// Reports whether all arguments are consumed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next argument as a number.
    pub(super) fn number<N: FromStr>(&mut self) -> Result<N, String> {
        let word = self.0.pop_front().ok_or("too few words")?;
        word.parse().map_err(|_| format!("{word:?} is not a number that can be here"))
    }

    /// Takes an optional argument as bytes.
    pub(super) fn maybe_bytes(&mut self) -> Option<Bytes> {
        self.0.pop_front().map(|word| word.as_str().into())
    }

    /// Takes an optional number; returns `default` without one.
    pub(super) fn number_or<N: FromStr>(&mut self, default: N) -> Result<N, String> {
        if self.0.is_empty() { Ok(default) } else { self.number() }
    }
}

/// Parses an operator from words, or explains the failure.
pub(super) fn read<D: Spoken>(words: &[String]) -> Result<D::Operator, String> {
    let (name, arguments) = words.split_first().ok_or("an operation is missing")?;
    let word = D::WORDS.iter().find(|word| word.name == name);
    let word = word.ok_or_else(|| format!("unknown operation {name:?}"))?;
    let mut arguments = Arguments(arguments.iter().cloned().collect());
    let text = |what| format!("{} {}: {what}", word.name, word.arguments);
    let operator = (word.make)(&mut arguments).map_err(text)?;
    match arguments.0.pop_front() {
        None => Ok(operator),
        Some(more) => Err(text(format!("{more:?} is too much"))),
    }
}

/// Returns the command-line syntax of a type, one operator a line.
pub(super) fn help<D: Spoken>() -> String {
    table(D::WORDS, |word| format!("{} {}", word.name, word.arguments))
}

/// Returns all operators of a type as JSON, one a line.
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

/// Returns all operators of a type as rows of a Markdown table.
#[cfg(test)]
pub(super) fn rows<D: Spoken>() -> Vec<String> {
    let row = |word: &Word<D::Operator>| {
        let words = format!("{} {}", word.name, word.arguments);
        format!("| `{}` | `{}` | {} |", words.trim_end(), word.json, word.help)
    };
    D::WORDS.iter().map(row).collect()
}
