//! Failures of the disk, for the operator.

use crate::io::IoDone;
use base::Error;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Most failures that wait to be reported; more are counted only.
const REPORTS_MAX: usize = 64;

/// Most kinds of failures that are told apart; others are counted only.
const KINDS_MAX: usize = 4096;

/// Something that the disk did not do, or did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// An operation failed.
    Operation {
        /// The operation: `read`, `write` or `flush`.
        name: &'static str,
        /// The host's error.
        error: Error,
        /// Nothing is written any more until the volume is opened again.
        stops: bool,
    },
    /// This block does not have the checksum that it was written with.
    Damaged {
        /// Its number.
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
    /// How often each kind of failure has happened.
    kinds: BTreeMap<Failure, u64>,
    /// Why the last operation failed.
    last: Option<Error>,
}

impl Failures {
    /// Notes how an operation ended.
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
        // A client can make the same thing fail again and again: ever fewer lines tell of it.
        if times.is_power_of_two() && self.reports.len() < REPORTS_MAX {
            self.reports.push_back((failure, *times));
        }
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        assert!(self.reports.len() <= REPORTS_MAX, "few reports wait");
        assert!(self.kinds.len() <= KINDS_MAX, "few kinds are told apart");
        assert!(self.kinds.values().sum::<u64>() <= self.count, "each kind is counted");
    }

    /// The next failure that was not reported, and how often it has happened: the first, second,
    /// fourth, eighth … time.
    pub(crate) fn next(&mut self) -> Option<(Failure, u64)> {
        self.reports.pop_front()
    }

    /// Failures since the volume was opened.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The error of a request whose operation failed last.
    pub(crate) fn last(&self) -> crate::Error {
        self.last.map_or(crate::Error::DiskFailed, crate::Error::of_disk)
    }
}
