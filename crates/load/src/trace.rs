//! Readers of I/O traces.
//!
//! Eleven formats are supported, each documented in a module of its own. The result is always an
//! iterator of [`Traced`], in issue order, with times from 0. A trace is never held in memory: only
//! a window of out-of-order records, the issues without completion, and file names.
//!
//! ```text
//!  file ──> detect ──> Parse (one per format) ──> Order ──> Reader ──┬──> Summary
//!                      blktrace and blkparse:     sorts a            ├──> adapt ──> depend
//!                      events ──> Paired          window             └──> convert ──> Write
//! ```
//!
//! **Invariants of a [`Reader`]**: `at_ns` of its first record is 0 and never decreases; `io.file`
//! is below `names().len()`; after an error or the end it returns `None`. Memory is bounded by
//! [`Options`], [`FILES_MAX`] and [`LINE_MAX`], whatever the file contains.

pub mod adapt;
pub mod blkparse;
pub mod blktrace;
pub mod convert;
pub mod depend;
pub mod distort;
pub mod hfplayer;
pub mod iolog;
pub mod mqsim;
pub mod msr;
pub mod recording;
pub mod run;
pub mod spc;
pub mod summary;
pub mod vscsi;

mod bytes;
mod detect;
mod error;
mod lines;
mod names;
mod order;
mod pair;
mod parse;
mod reader;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use crate::Io;
use std::fmt;
use std::str::FromStr;

pub use adapt::{Adapted, Files, Fold, Plan, Ratio, Sample};
pub use convert::{Anonymous, Converted, Records, Write, anonymize, convert, writer};
pub use depend::{Depended, Dependence, Dependencies};
pub use detect::detect;
pub use distort::{Distorted, Distortion};
pub use error::{Error, Position};
pub use lines::LINE_MAX;
pub use names::FILES_MAX;
pub use parse::{Issue, Notes, Options, Wait};
pub use reader::Reader;
pub use summary::Summary;

/// I/O of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Issue time, in ns since the first record of the trace.
    pub at_ns: u64,
    /// Duration from issue to completion in ns, if recorded.
    pub took_ns: Option<u64>,
    /// I/O. `io.file` numbers the devices or files of the trace in order of appearance.
    pub io: Io,
    /// Process, host or application unit that issued it, if recorded; otherwise 0.
    pub stream: u32,
}

impl Traced {
    /// Returns the completion time in ns since the first record, if recorded.
    pub fn completed_ns(&self) -> Option<u64> {
        Some(self.at_ns.saturating_add(self.took_ns?))
    }
}

/// Trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Binary output of `blktrace`: [`blktrace`].
    BlktraceBinary,
    /// Text output of `blkparse`: [`blkparse`].
    BlkparseText,
    /// fio's I/O log, version 2: [`iolog`].
    Iolog2,
    /// fio's I/O log, version 3, with times: [`iolog`].
    Iolog3,
    /// CSV of the MSR Cambridge traces: [`msr`].
    Msr,
    /// ASCII of the Storage Performance Council: [`spc`].
    Spc,
    /// CloudPhysics' VSCSI, versions 1 and 2: [`vscsi`].
    Vscsi,
    /// ASCII of the simulator MQSim: [`mqsim`].
    Mqsim,
    /// HFPlayer's CSV with a header of typed names: [`hfplayer`].
    Hfplayer,
    /// Upcall's own format: [`recording`].
    Recording,
    /// Records of a run, written by `upcall load --records`: [`run`].
    Run,
}

impl Format {
    /// All formats, in the order of detection.
    pub const ALL: [Format; 11] = [
        Format::Recording,
        Format::Run,
        Format::BlktraceBinary,
        Format::Iolog2,
        Format::Iolog3,
        Format::Hfplayer,
        Format::Vscsi,
        Format::Msr,
        Format::Spc,
        Format::Mqsim,
        Format::BlkparseText,
    ];

    /// Returns the name for `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Format::BlktraceBinary => "blktrace",
            Format::BlkparseText => "blkparse",
            Format::Iolog2 => "iolog2",
            Format::Iolog3 => "iolog3",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Vscsi => "vscsi",
            Format::Mqsim => "mqsim",
            Format::Hfplayer => "hfplayer",
            Format::Recording => "recording",
            Format::Run => "records",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Format, String> {
        let known = Format::ALL.into_iter().find(|format| format.name() == word);
        known.ok_or_else(|| {
            let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("there is no format {word:?}; there are {}", names.join(", "))
        })
    }
}
