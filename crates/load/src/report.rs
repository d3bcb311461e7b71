//! What a run says: to people, to programs, and as pictures.
//!
//! Every form is made from the same [`Run`]. None of them reads a clock or a file.

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

/// What was done to what.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Title {
    /// The target: `null`, a path, an address.
    pub target: String,
    /// The workload or the trace, in a few words.
    pub workload: String,
    /// I/Os a second, if a rate was asked for.
    pub asked_rate: Option<f64>,
    /// When the run started, as people read it.
    pub started: String,
    /// The same, ns since 1970, UTC.
    pub started_unix_ns: u64,
    /// The machine that made the load.
    pub host: String,
    /// The version of the instrument.
    pub version: String,
}

/// Everything that is known about a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What was done to what.
    pub title: &'a Title,
    /// What was measured.
    pub statistics: &'a Statistics,
    /// What the machine did to the generator.
    pub machine: &'a Machine,
    /// What the numbers are worth.
    pub verdict: &'a Verdict,
}

/// A cause of lateness in a word.
fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "none",
        Cause::Stolen => "stolen",
        Cause::Submission => "submission",
        Cause::Full => "full",
        Cause::Generator => "generator",
    }
}
