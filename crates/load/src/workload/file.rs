//! Workload file: a load defined without programming.
//!
//! The format is TOML. `[run]` defines the duration and the seed; any number of the following
//! tables define concurrent parts:
//!
//! | table | module | specific fields |
//! |---|---|---|
//! | `[[stream]]` | [`super::stream`] | `rate`, `arrival` |
//! | `[[users]]` | [`super::users`], closed | `users`, `think` |
//! | `[[sessions]]` | [`super::users`], partly open | `rate`, `arrival`, `each`, `think` |
//! | `[[transactions]]` | [`super::transactions`] | `branches`, `from`, `span`; pace: `terminals` |
//! | `[[spc1]]` | [`super::spc1`] | `bsus`, `from`, `span` |
//! | `[[postmark]]` | [`super::postmark`] | those of [`super::postmark::Setup`] |
//! | `[[specweb]]` | [`super::specweb`] | `year`, `load` or `directories`; pace: `connections` |
//! | `[[replay]]` | [`crate::replay`] | `trace`, `speed`, `way`, `depth` |
//!
//! All have `name`, `begin` and `seconds` (times), `count` (maximum I/Os, transactions or sessions)
//! and `seed`. The first three have a mix: `kinds`, `size`, `place`, `align`, `files`, `from` and
//! `span` (the used part of the target; to its end if `span` is 0 or omitted). A pace is either a
//! number of clients with a `think` time, or a `rate` and an `arrival`.
//!
//! ```
//! let workload = load::workload::Workload::parse(
//!     r#"
//!     [run]
//!     seconds = 60
//!     seed = 7
//!
//!     [[stream]]
//!     name = "pages"
//!     rate = 5000
//!     arrival = { hyper = { share = 0.9, factor = 20 } }
//!     kinds = { read = 70, write = 30 }
//!     size = { "4KiB" = 60, "64KiB" = 40 }
//!     place = { zipf = 0.99 }
//!
//!     [[users]]
//!     name = "scan"
//!     users = 2
//!     think = "2.5ms"
//!     size = "1MiB"
//!     place = "sequential"
//!     "#,
//! )?;
//! assert_eq!(workload.wants().io_max, 1 << 20);
//! let filaments = workload.filaments(8 << 30)?;
//! assert_eq!(filaments.len(), 2);
//! # Ok::<(), load::workload::file::Error>(())
//! ```
//!
//! Files of a target are numbered: those of mixes, transactions and SPC-1 from 0, then those of
//! each PostMark-like and SPECweb-like part, in the order of the filaments.

mod build;
mod drawn;
mod parts;
mod values;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use super::pace::Lifetime;
use super::specweb::File;
use crate::{Filament, Kind};
use parts::{Document, Table, What};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

pub use parts::{Replay, ReplayMode};

/// Maximum length of a workload file, in bytes.
pub const TEXT_MAX: usize = 1 << 20;

/// Maximum parts of a workload.
pub const PARTS_MAX: usize = 256;

/// Maximum files of all parts together.
pub const FILES_MAX: u64 = 1 << 26;

/// Error in a workload file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line number, from 1, if known.
    pub line: Option<usize>,
    /// Text of that line, or the name of the part.
    pub place: String,
    /// Problem and expected contents.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

/// Contents of `[run]`. Strings are interpreted by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Name of the workload.
    pub name: Option<String>,
    /// Duration; `None` until all parts have ended.
    pub seconds: Option<Duration>,
    /// Unmeasured time at the start, included in `seconds`.
    pub warm_up: Duration,
    /// Random seed.
    pub seed: u64,
    /// Target.
    pub target: Option<String>,
    /// Wait policy of the generator.
    pub policy: Option<String>,
    /// Policy for late I/Os.
    pub late: Option<String>,
}

/// Requirements of a workload on its target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// Maximum I/O size in bytes, without replays.
    pub io_max: u32,
    /// Number of files, without replays.
    pub files: u32,
    /// Kinds of I/Os, without replays.
    pub kinds: BTreeSet<Kind>,
    /// Whether the target is changed; a replay counts as a change, as its contents are unknown.
    pub changes: bool,
    /// I/Os per second while all parts are active, if each has a rate of its own (including all
    /// I/Os of transactions and sessions).
    pub rate: Option<f64>,
}

/// Workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Contents of `[run]`.
    pub run: Run,
    parts: Vec<Part>,
}

/// Part of a workload.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    line: usize,
    seed: u64,
    life: Lifetime,
    what: What,
}

impl Part {
    fn error(&self, what: impl Into<String>) -> Error {
        Error { line: Some(self.line), place: format!("`{}`", self.name), what: what.into() }
    }
}

impl Workload {
    /// Parses a workload file.
    ///
    /// # Errors
    /// If it is not TOML, or has unknown or impossible contents.
    pub fn parse(text: &str) -> Result<Workload, Error> {
        let whole = |what: &str| Error { line: None, place: String::new(), what: what.to_string() };
        if text.len() > TEXT_MAX {
            return Err(whole(&format!("a workload file has at most {TEXT_MAX} bytes")));
        }
        let document: Document = toml::from_str(text).map_err(|error| located(text, &error))?;
        let Document { run, stream, users, sessions, transactions, spc1, .. } = document;
        let run = Run {
            name: run.name,
            seconds: run.seconds.map(|seconds| seconds.0),
            warm_up: run.warm_up.0,
            seed: run.seed,
            target: run.target,
            policy: run.policy,
            late: run.late,
        };
        if run.seconds.is_some_and(|seconds| seconds <= run.warm_up) {
            return Err(whole("`warm_up` must be shorter than `seconds`, of which it is a part"));
        }
        let mut collected = Collected { text, run: &run, parts: Vec::new() };
        collected.add(stream)?;
        collected.add(users)?;
        collected.add(sessions)?;
        collected.add(transactions)?;
        collected.add(spc1)?;
        collected.add(document.postmark)?;
        collected.add(document.specweb)?;
        collected.add(document.replay)?;
        let parts = collected.parts;
        if parts.is_empty() {
            let tables = "stream, users, sessions, transactions, spc1, postmark, specweb, replay";
            return Err(whole(&format!("there is nothing to do: no table of {tables}")));
        }
        if parts.len() > PARTS_MAX {
            return Err(whole(&format!("a workload has at most {PARTS_MAX} parts")));
        }
        let workload = Workload { run, parts };
        let own: u64 = workload.parts.iter().map(|part| u64::from(part.own_files())).sum();
        if own + u64::from(workload.shared_files()) > FILES_MAX {
            return Err(whole(&format!("a workload has at most {FILES_MAX} files")));
        }
        Ok(workload)
    }

    /// Scales all rates, and the speed of replays, by a factor. Closed loops have no rate and are
    /// unchanged.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Workload {
        self.parts.iter_mut().for_each(|part| part.scale(factor));
        self
    }

    /// Returns the filaments for a target (or each file of it) of this size in bytes, without
    /// replays. They are in the order of the table above, then of the file.
    ///
    /// # Errors
    /// If a part does not fit into the target.
    pub fn filaments(&self, span: u64) -> Result<Vec<Box<dyn Filament>>, Error> {
        let firsts = self.firsts();
        let made = self.parts.iter().zip(firsts).filter_map(|(part, first)| {
            part.filament(span, first).map_err(|what| part.error(what)).transpose()
        });
        made.collect()
    }

    /// Returns the names of the filaments, in order.
    pub fn names(&self) -> Vec<&str> {
        let replays = |part: &&Part| !matches!(part.what, What::Replay { .. });
        self.parts.iter().filter(replays).map(|part| part.name.as_str()).collect()
    }

    /// Returns the traces to replay beside the filaments.
    pub fn replays(&self) -> Vec<Replay> {
        self.parts.iter().filter_map(Part::replay).collect()
    }

    /// Returns the files that must exist before the run, with their sizes. Other numbers below
    /// [`Wants::files`] are files as large as the span, or created by the workload.
    pub fn files(&self) -> impl Iterator<Item = File> + '_ {
        self.parts.iter().zip(self.firsts()).flat_map(|(part, first)| {
            let numbered = move |file: File| File { number: first + file.number, ..file };
            part.set().into_iter().flat_map(move |set| set.files().map(numbered))
        })
    }

    /// Returns the requirements on a target.
    pub fn wants(&self) -> Wants {
        let mut wants = Wants { rate: Some(0.0), ..Wants::default() };
        for part in &self.parts {
            wants.io_max = wants.io_max.max(part.io_max());
            wants.kinds.extend(part.kinds());
            wants.rate = wants.rate.zip(part.rate()).map(|(sum, rate)| sum + rate);
            wants.changes |= matches!(part.what, What::Replay { .. });
        }
        wants.changes |= wants.kinds.iter().any(|kind| kind.changes());
        wants.files = self.shared_files() + self.parts.iter().map(Part::own_files).sum::<u32>();
        wants
    }

    /// Describes the workload in one line.
    pub fn describe(&self) -> String {
        let name = self.run.name.as_ref().map_or(String::new(), |name| format!("{name}: "));
        let seconds = match self.run.seconds {
            Some(seconds) => format!("for {seconds:?}"),
            None => "until all is done".to_string(),
        };
        let parts: Vec<String> = self.parts.iter().map(Part::describe).collect();
        format!("{name}{seconds}, seed {}: {}", self.run.seed, parts.join("; "))
    }

    /// Returns the number of files shared by mixes, transactions and SPC-1: those with the lowest
    /// numbers, each as large as the span.
    pub fn shared_files(&self) -> u32 {
        self.parts.iter().map(Part::shared_files).max().unwrap_or(0)
    }

    /// Returns the first file number of each part.
    fn firsts(&self) -> Vec<u32> {
        let mut next = self.shared_files();
        let firsts = self.parts.iter().map(|part| {
            let first = next;
            next += part.own_files();
            first
        });
        firsts.collect()
    }
}

/// Returns the line number and the line at a position of a text.
fn line_at(text: &str, at: usize) -> (usize, String) {
    let before = text.get(..at).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    (number, shown(text, number))
}

/// Returns the beginning of the line with this number.
fn shown(text: &str, number: usize) -> String {
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    line.chars().take(80).collect()
}

/// Returns the key with which an error begins.
fn key_of(what: &str) -> Option<&str> {
    what.strip_prefix('`')?.split_once('`').map(|(key, _)| key)
}

/// Returns the line number of a key of the table that begins at this line.
fn line_of_key(text: &str, table: usize, key: &str) -> Option<usize> {
    let lines = (1..).zip(text.lines().map(str::trim)).skip(table);
    let mut own = lines.take_while(|(_, line)| !line.starts_with('['));
    let found = own.find(|(_, line)| {
        line.split_once('=').is_some_and(|(name, _)| name.trim().trim_matches('"') == key)
    });
    found.map(|(number, _)| number)
}

/// Converts an error of the TOML parser, with its line.
fn located(text: &str, error: &toml::de::Error) -> Error {
    let what = explained(error.message());
    match error.span() {
        Some(span) => {
            let (line, place) = line_at(text, span.start);
            // The parser takes an array for the values of the table's keys in order.
            let is_array = place.starts_with("[[run]]");
            let what = if is_array { "expected a table: [run]".to_string() } else { what };
            Error { line: Some(line), place, what }
        }
        None => Error { line: None, place: String::new(), what },
    }
}

/// Replaces the parser's terms, which are those of Rust, by those of the file.
fn explained(message: &str) -> String {
    let terms = [("field", "key"), ("variant", "name")];
    for (term, own) in terms {
        for kind in ["unknown", "missing", "duplicate"] {
            if let Some(rest) = message.strip_prefix(&format!("{kind} {term}")) {
                return format!("{kind} {own}{rest}");
            }
        }
    }
    let kinds = ["invalid type: ", "invalid value: "];
    let found = kinds.iter().find_map(|kind| message.strip_prefix(kind));
    match found.and_then(|found| found.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            let expected = match expected {
                "u32" => "an integer from 0 to 4294967295",
                "u64" => "an integer, not negative",
                "f64" => "a number",
                "a string" | "path string" => "a string",
                "a sequence" => "an array of tables, like [[stream]]",
                table if table.starts_with("struct ") => "a table",
                other => other,
            };
            let found = match found {
                "sequence" => "an array",
                "map" => "a table",
                // Larger than any of TOML.
                other => other.trim_end_matches(" as i128"),
            };
            format!("expected {expected}; found {found}")
        }
        None => message.to_string(),
    }
}

/// Parts during parsing.
struct Collected<'a> {
    text: &'a str,
    run: &'a Run,
    parts: Vec<Part>,
}

impl Collected<'_> {
    fn add<T: Table>(&mut self, tables: Vec<toml::Spanned<T>>) -> Result<(), Error> {
        for (number, table) in (1..).zip(tables) {
            let (line, place) = line_at(self.text, table.span().start);
            let table = table.into_inner();
            let common = table.common();
            let wrong = |what| Error { line: Some(line), place: place.clone(), what };
            let what = table.what().map_err(|what| {
                let named = key_of(&what).and_then(|key| line_of_key(self.text, line, key));
                let line = named.unwrap_or(line);
                Error { line: Some(line), place: shown(self.text, line), what }
            })?;
            let end = common.seconds.map(|seconds| common.begin + seconds);
            let ends = common.count.is_some() || end.or(self.run.seconds).is_some();
            if !ends && what.is_endless() {
                let shows = "it has neither `seconds` nor a `count`, and [run] has no `seconds`";
                return Err(wrong(shows.to_string()));
            }
            let end = end.unwrap_or(Duration::MAX).min(self.run.seconds.unwrap_or(Duration::MAX));
            let part = self.parts.len() as u64;
            self.parts.push(Part {
                name: common.name.unwrap_or_else(|| format!("{} {number}", T::KIND)),
                line,
                seed: common.seed.unwrap_or_else(|| super::seed(self.run.seed, part)),
                life: Lifetime {
                    begin: common.begin,
                    end,
                    count: common.count.unwrap_or(u64::MAX),
                },
                what,
            });
        }
        Ok(())
    }
}
