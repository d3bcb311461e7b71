//! What came of the last runs of a storelet that is installed.

use crate::report::Report;
use base::Caller;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many runs of a storelet are remembered.
const RUNS_MAX: usize = 32;

/// The longest text about a run, bytes.
const TEXT_MAX: usize = 300;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// When it was begun, seconds since 1970.
    pub(crate) at: i64,
    pub(crate) version: u32,
    /// For whom; `None`: the server.
    pub(crate) uid: Option<u32>,
    /// Why it was run: `request`, and with which file.
    pub(crate) trigger: String,
    /// How it ended, as a report says it.
    pub(crate) end: String,
    pub(crate) exit: Option<u32>,
    pub(crate) reason: Option<String>,
    pub(crate) time_ns: u64,
    pub(crate) cpu_ns: u64,
    /// None: it was not counted.
    #[serde(default)]
    pub(crate) fuel: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) output: u64,
    /// What it complained of first.
    pub(crate) complaint: String,
}

impl Run {
    /// A run that has ended like this.
    pub(crate) fn new(
        (at, version, trigger): (i64, u32, &str),
        caller: &Caller,
        report: &Report,
        complaint: &[u8],
    ) -> Run {
        let uid = match caller {
            Caller::Server => None,
            Caller::User(user) => Some(user.uid),
        };
        let short = |text: &str| text.chars().take(TEXT_MAX).collect::<String>();
        let stage = report.stage.iter().map(|stage| format!("{stage}: "));
        let reason = report.reason.as_deref().map(|why| stage.collect::<String>() + why);
        Run {
            at,
            version,
            uid,
            trigger: short(trigger),
            end: report.end.to_string(),
            exit: report.exit,
            reason: reason.as_deref().map(short),
            time_ns: report.time_ns,
            cpu_ns: report.used.cpu_ns + report.used.served_ns,
            fuel: report.used.fuel,
            read: report.used.read,
            written: report.used.written,
            output: report.used.output,
            complaint: String::from_utf8_lossy(complaint).into_owned(),
        }
    }
}

/// The last runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Book {
    /// The oldest first.
    pub(crate) runs: VecDeque<Run>,
    /// When it was last run because it was time, ns since 1970; and how often that has failed since
    /// it last did not.
    #[serde(default)]
    pub(crate) past: Option<(i64, u32)>,
}

impl Book {
    /// Reads what was kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Book, String> {
        let mut book: Book = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let excess = book.runs.len().saturating_sub(RUNS_MAX);
        book.runs.drain(..excess);
        Ok(book)
    }

    /// It, to be kept.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, run: Run) {
        assert!(self.runs.len() <= RUNS_MAX, "the oldest has gone");
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
    }
}
