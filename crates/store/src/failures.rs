//! Failures of the disk, for the operator.

use crate::io::IoDone;
use base::Error;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Maximum number of failures waiting to be reported; more are counted only.
const REPORTS_MAX: usize = 64;

/// Maximum number of kinds of failures distinguished; others are counted only.
const KINDS_MAX: usize = 4096;

/// A failure or an error of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// An operation failed.
    Operation {
        /// The operation: `read`, `write` or `flush`.
        name: &'static str,
        /// The host's error.
        error: Error,
        /// Whether all writing stops until the volume is opened again.
        stops: bool,
    },
    /// This block does not have the checksum that it was written with.
    Damaged {
        /// Number of the block.
        block: u64,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Operation { name, error, stops } => {
                write!(f, "cannot {name}: {}", error.text())?;
                match (stops, error) {
                    (false, _) => Ok(()),
                    (true, Error::NoSpace | Error::QuotaExceeded) => f.write_str(
                        "; the volume cannot be changed until it is opened again; free space on \
                         the disk that holds it",
                    ),
                    (true, _) => f.write_str(
                        "; the volume cannot be changed until it is opened again; check the disk",
                    ),
                }
            }
            Failure::Damaged { block } => {
                write!(f, "block {block} is damaged; find the file with 'upcall volume check'")
            }
        }
    }
}

/// Failures since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: u64,
    reports: VecDeque<(Failure, u64)>,
    /// Number of failures of each kind.
    kinds: BTreeMap<Failure, u64>,
    /// Error of the last failed operation.
    last: Option<Error>,
}

impl Failures {
    /// Records the result of an operation.
    pub(crate) fn note(&mut self, done: &IoDone, stops: bool) {
        let (name, error) = match done {
            IoDone::Read(Err(error)) => ("read", *error),
            IoDone::Written(Err(error)) => ("write", *error),
            IoDone::Flushed(Err(error)) => ("flush", *error),
            IoDone::Read(Ok(_)) | IoDone::Written(Ok(())) | IoDone::Flushed(Ok(())) => return,
        };
        self.last = Some(error);
        self.report(Failure::Operation { name, error, stops });
    }

    pub(crate) fn report(&mut self, failure: Failure) {
        self.count += 1;
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&failure) {
            return;
        }
        let times = self.kinds.entry(failure).or_default();
        *times += 1;
        // A client can cause the same failure again and again: ever fewer lines report it.
        if times.is_power_of_two() && self.reports.len() < REPORTS_MAX {
            self.reports.push_back((failure, *times));
        }
    }

    /// Asserts all invariants.
    pub(crate) fn check(&self) {
        assert!(self.reports.len() <= REPORTS_MAX, "few reports wait");
        assert!(self.kinds.len() <= KINDS_MAX, "more kinds of failures than there are");
        assert!(self.kinds.values().sum::<u64>() <= self.count, "each kind is counted");
    }

    /// Returns the next failure to report, with its number of occurrences: the first, second,
    /// fourth, eighth … time.
    pub(crate) fn next(&mut self) -> Option<(Failure, u64)> {
        self.reports.pop_front()
    }

    /// Returns the number of failures since the volume was opened.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the error of a request whose operation failed last.
    pub(crate) fn last(&self) -> crate::Error {
        self.last.map_or(crate::Error::DiskFailed, crate::Error::of_disk)
    }
}
