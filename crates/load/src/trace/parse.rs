//! Parsers of traces: their interface, options, and the irregularities that they report.

use super::names::Names;
use super::{Error, Traced};

/// Event of a block device that counts as the issue of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Issue {
    /// Queue event (`Q`), or driver event without any `Q` among the first events.
    #[default]
    Any,
    /// Queue event (`Q`): the application's view.
    Queued,
    /// Driver event (`D`): after merging and scheduling.
    Driver,
}

/// Meaning of `wait` in version 2 of fio's I/O log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Microseconds after the previous `wait`, as in fio's manual.
    #[default]
    Micros,
    /// Milliseconds after the start, as implemented by fio (3.33, `read_iolog_get`).
    Millis,
}

/// Options of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Event that counts as the issue, in formats with several.
    pub issue: Issue,
    /// Meaning of `wait`.
    pub wait: Wait,
    /// Number of records buffered for sorting.
    pub window: usize,
    /// Maximum issues waiting for completions; the oldest is then returned without one.
    pub pending: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { issue: Issue::Any, wait: Wait::Micros, window: 8192, pending: 65_536 }
    }
}

/// Irregularities that did not prevent reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Records older than an earlier one; they got its time.
    pub late: u64,
    /// Records other than I/Os: other commands, notes, summaries.
    pub skipped: u64,
    /// Completions without an issue.
    pub unmatched: u64,
    /// Records with a wrong checksum.
    pub damaged: u64,
    /// Bytes of an incomplete last record.
    pub cut_bytes: u64,
}

/// State of a parser beside its position in the file.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) names: Names,
    pub(super) notes: Notes,
}

/// Parser of one format, with times from any origin.
pub(super) trait Parse: Send {
    /// Returns the next record in file order.
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error>;
}
