//! A workload file: a load that is put together without programming.
//!
//! It is TOML. `[run]` says how long, and with which seed; any number of tables of these names say
//! what is done, all at the same time:
//!
//! | table | in | its own fields |
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
//! All have `name`, `begin` and `seconds` (times), `count` (most I/Os, transactions or sessions)
//! and `seed`. The first three have a mix: `kinds`, `size`, `place`, `align`, `files`, `from` and
//! `span` (the part of the target that is used; to its end if `span` is 0 or left out). Where a
//! pace is, there are either so many, who `think`, or a `rate` and an `arrival`.
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
//! Files of a target are numbered: those of mixes, transactions and SPC-1 from 0 on; then those of
//! each PostMark-like and SPECweb-like part, in the order of the filaments.

mod build;
mod drawn;
mod parts;
mod values;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use super::pace::Life;
use super::specweb::File;
use crate::{Filament, Kind};
use parts::{Document, Table, What};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

pub use parts::{Replay, Way};

/// The longest file, bytes.
pub const TEXT_MAX: usize = 1 << 20;

/// Most parts of a workload.
pub const PARTS_MAX: usize = 256;

/// Most files of all parts together.
pub const FILES_MAX: u64 = 1 << 26;

/// What is wrong with a workload file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// In which line of the file, from 1 on, if it is in one.
    pub line: Option<usize>,
    /// That line, or the name of the part.
    pub place: String,
    /// What, and what would be right.
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

/// What `[run]` says. Strings are left to whoever runs the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What the workload is called.
    pub name: Option<String>,
    /// How long it runs; `None`: until all parts have come to their ends.
    pub seconds: Option<Duration>,
    /// What is done so long after the beginning is not measured; a part of `seconds`.
    pub warm_up: Duration,
    /// Where all numbers come from.
    pub seed: u64,
    /// What is loaded.
    pub target: Option<String>,
    /// How the generator waits.
    pub policy: Option<String>,
    /// What becomes of late I/Os.
    pub late: Option<String>,
}

/// What a workload asks of its target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// The largest I/O, bytes; replays apart.
    pub io_max: u32,
    /// Files are numbered below this; replays apart.
    pub files: u32,
    /// What is done; replays apart.
    pub kinds: BTreeSet<Kind>,
    /// Whether anything is changed; of a replay nobody knows, so it counts as a change.
    pub changes: bool,
    /// I/Os a second while all parts are at work, if each comes at a rate of its own (transactions
    /// count their I/Os, and sessions theirs).
    pub rate: Option<f64>,
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// How long, with which seed, on what.
    pub run: Run,
    parts: Vec<Part>,
}

/// One of its parts.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    line: usize,
    seed: u64,
    life: Life,
    what: What,
}

impl Part {
    fn error(&self, what: impl Into<String>) -> Error {
        Error { line: Some(self.line), place: format!("`{}`", self.name), what: what.into() }
    }
}

impl Workload {
    /// Reads a workload file.
    ///
    /// # Errors
    /// If it is not TOML, or says something that is not known, or not possible on any target.
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
            return Err(whole("`warm_up` is shorter than `seconds`, of which it is a part"));
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

    /// Makes all that comes by itself, or was traced, come so many times as often. What comes when
    /// something else has ended has no rate, and stays.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Workload {
        self.parts.iter_mut().for_each(|part| part.scale(factor));
        self
    }

    /// Its filaments, for a target (or each file of it) with so many bytes; without the replays.
    /// They are in the order of the table above, then of the file.
    ///
    /// # Errors
    /// If something does not fit into the target.
    pub fn filaments(&self, span: u64) -> Result<Vec<Box<dyn Filament>>, Error> {
        let firsts = self.firsts();
        let made = self.parts.iter().zip(firsts).filter_map(|(part, first)| {
            part.filament(span, first).map_err(|what| part.error(what)).transpose()
        });
        made.collect()
    }

    /// The names of the filaments, in their order.
    pub fn names(&self) -> Vec<&str> {
        let replays = |part: &&Part| !matches!(part.what, What::Replay { .. });
        self.parts.iter().filter(replays).map(|part| part.name.as_str()).collect()
    }

    /// The traces that are to be replayed beside the filaments.
    pub fn replays(&self) -> Vec<Replay> {
        self.parts.iter().filter_map(Part::replay).collect()
    }

    /// The files that must be there before it runs, with their sizes; other numbers below
    /// [`Wants::files`] are of files that are as large as the span, or made by the workload.
    pub fn files(&self) -> impl Iterator<Item = File> + '_ {
        self.parts.iter().zip(self.firsts()).flat_map(|(part, first)| {
            let numbered = move |file: File| File { number: first + file.number, ..file };
            part.set().into_iter().flat_map(move |set| set.files().map(numbered))
        })
    }

    /// What it asks of a target.
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

    /// What it is, in one line for people.
    pub fn describe(&self) -> String {
        let name = self.run.name.as_ref().map_or(String::new(), |name| format!("{name}: "));
        let seconds = match self.run.seconds {
            Some(seconds) => format!("for {seconds:?}"),
            None => "until all is done".to_string(),
        };
        let parts: Vec<String> = self.parts.iter().map(Part::describe).collect();
        format!("{name}{seconds}, seed {}: {}", self.run.seed, parts.join("; "))
    }

    /// How many files mixes, transactions and SPC-1 share: those with the lowest numbers, each as
    /// large as the span.
    pub fn shared_files(&self) -> u32 {
        self.parts.iter().map(Part::shared_files).max().unwrap_or(0)
    }

    /// The first number of the files that are a part's own.
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

/// Where in a text something is: the number of the line, and the line itself.
fn line_at(text: &str, at: usize) -> (usize, String) {
    let before = text.get(..at).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    (number, line.chars().take(80).collect())
}

/// An error of the reader of TOML, with its line.
fn located(text: &str, error: &toml::de::Error) -> Error {
    let what = error.message().to_string();
    match error.span() {
        Some(span) => {
            let (line, place) = line_at(text, span.start);
            Error { line: Some(line), place, what }
        }
        None => Error { line: None, place: String::new(), what },
    }
}

/// Parts as they are read.
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
            let what = table.what().map_err(wrong)?;
            let end = common.seconds.map(|seconds| common.begin + seconds);
            let ends = common.count.is_some() || end.or(self.run.seconds).is_some();
            if !ends && what.is_endless() {
                let says = "it has neither `seconds` nor a `count`, and [run] has no `seconds`";
                return Err(wrong(says.to_string()));
            }
            let end = end.unwrap_or(Duration::MAX).min(self.run.seconds.unwrap_or(Duration::MAX));
            let part = self.parts.len() as u64;
            self.parts.push(Part {
                name: common.name.unwrap_or_else(|| format!("{} {number}", T::KIND)),
                line,
                seed: common.seed.unwrap_or_else(|| super::seed(self.run.seed, part)),
                life: Life { begin: common.begin, end, count: common.count.unwrap_or(u64::MAX) },
                what,
            });
        }
        Ok(())
    }
}
