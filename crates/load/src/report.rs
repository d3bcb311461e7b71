//! Reports of a run: for people, for programs, and as plots.
//!
//! Every format is derived from the same [`Run`]. None of them reads a clock or a file.

pub mod fio;
pub mod hdr;
pub mod html;
pub mod json;
mod page;
mod plot;
mod points;
mod summary;
#[cfg(test)]
mod tests;
pub mod text;
pub mod units;

pub use summary::Summary;

pub(crate) use page::{Page, Table};
pub(crate) use plot::{Axis, Line, Mark, Plot, Unit};
pub(crate) use points::{cdf, thin};

use crate::io::Cause;
use crate::statistics::{Machine, Statistics};
use crate::verdict::Verdict;
use serde::Serialize;

/// Description of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Title {
    /// Target: `null`, a path or an address.
    pub target: String,
    /// Workload or trace, in a few words.
    pub workload: String,
    /// Requested rate in I/Os per second, if any.
    pub asked_rate: Option<f64>,
    /// Start time for people.
    pub started: String,
    /// Start time, in ns since 1970, UTC.
    pub started_unix_ns: u64,
    /// Machine that generated the load.
    pub host: String,
    /// Version of the program.
    pub version: String,
}

/// All data about a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Description.
    pub title: &'a Title,
    /// Statistics.
    pub statistics: &'a Statistics,
    /// Interference of the machine.
    pub machine: &'a Machine,
    /// Validity of the results.
    pub verdict: &'a Verdict,
}

/// Returns the name of a cause, in one word.
fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "none",
        Cause::Stolen => "stolen",
        Cause::Submission => "submission",
        Cause::Full => "full",
        Cause::Generator => "generator",
    }
}
