//! Run history of an installed storelet.

use crate::report::Report;
use base::Caller;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of runs in a history.
const RUNS_MAX: usize = 32;

/// Maximum length of a text in a history, bytes.
const TEXT_MAX: usize = 300;

/// Record of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Start of the run, seconds since 1970.
    pub(crate) at: i64,
    pub(crate) version: u32,
    /// User of the run; `None`: the server.
    pub(crate) uid: Option<u32>,
    /// Trigger: `request`, schedule, or the new file.
    pub(crate) trigger: String,
    /// Outcome, as in a report.
    pub(crate) end: String,
    pub(crate) exit: Option<u32>,
    pub(crate) reason: Option<String>,
    pub(crate) time_ns: u64,
    pub(crate) cpu_ns: u64,
    /// Fuel used; zero if not metered.
    #[serde(default)]
    pub(crate) fuel: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) output: u64,
    /// Beginning of standard error.
    pub(crate) complaint: String,
}

impl Run {
    /// Creates the record of a finished run.
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

/// Recent runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunHistory {
    /// Runs, oldest first.
    pub(crate) runs: VecDeque<Run>,
    /// Time of the last scheduled run, ns since 1970, and number of failures since its last
    /// success.
    #[serde(default)]
    pub(crate) past: Option<(i64, u32)>,
}

impl RunHistory {
    /// Decodes a stored history.
    ///
    /// # Errors
    /// A description of the problem.
    pub(crate) fn read(bytes: &[u8]) -> Result<RunHistory, String> {
        let mut history: RunHistory =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let excess = history.runs.len().saturating_sub(RUNS_MAX);
        history.runs.drain(..excess);
        Ok(history)
    }

    /// Encodes the history for the state store.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }

    /// Appends a run; drops the oldest one if there are too many.
    pub(crate) fn add(&mut self, run: Run) {
        assert!(self.runs.len() <= RUNS_MAX, "the oldest has gone");
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
    }
}
