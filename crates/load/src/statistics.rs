//! Statistics of a run: distributions, counts and time series.
//!
//! [`Statistics`] takes records in batches, in any order, on a background thread. Its memory is
//! bounded for runs of any length (about 20 MiB, and 16 bytes per file). Three times are recorded,
//! each in a histogram with three digits: *lateness* (scheduled to issued), *service* (issued to
//! completed) and *response* (scheduled to completed, including time lost by the generator). Every
//! issued I/O has a lateness. Only successful ones have service and response times, because the
//! speed of errors says nothing about a target.

mod buckets;
mod counted;
mod distances;
mod drift;
mod machine;
mod peak;
mod series;
mod spans;
#[cfg(test)]
mod tests;
mod witness;

pub use buckets::Buckets;
pub use distances::Distances;
pub use drift::Drift;
pub use machine::{Gap, Machine, Spin};
pub use series::{Queue, Series, Tick};
pub use spans::{Span, Spans};
pub use witness::Witness;

use crate::io::{Cause, Kind, Outcome, Record};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Lateness above which an I/O counts as late, in ns: the paper's criterion of a good issue time.
pub const LATE_NS: u64 = 10_000;

/// Maximum recorded time (an hour), in ns; longer ones count as this.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Creates a histogram of times up to an hour, with three digits.
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("the bounds are in order")
}

fn merge_times(into: &mut Histogram<u64>, from: &Histogram<u64>) {
    into.add(from).expect("both have the bounds of `times`");
}

/// Exact counts of I/Os by bound of their lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Within {
    counts: [u64; 4],
}

impl Within {
    /// Bounds, in ns: 1 µs, 10 µs, 100 µs and 1 ms.
    pub const LIMITS_NS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

    pub(crate) fn add(&mut self, lateness_ns: u64) {
        for (count, limit) in self.counts.iter_mut().zip(Within::LIMITS_NS) {
            *count += u64::from(lateness_ns <= limit);
        }
    }

    fn merge(&mut self, other: &Within) {
        self.counts.iter_mut().zip(other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns the counts, one for each bound.
    pub fn counts(&self) -> [u64; 4] {
        self.counts
    }
}

/// Late I/Os of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// I/Os with this cause.
    pub count: u64,
    /// Those later than [`LATE_NS`].
    pub late: u64,
    /// Sum of their lateness, in ns.
    pub lateness_ns: u64,
    /// Those skipped because of their lateness.
    pub skipped: u64,
}

/// Times of a set of I/Os.
#[derive(Clone, Debug)]
pub struct Times {
    /// Lateness from the scheduled time to the issue, in ns.
    pub lateness: Histogram<u64>,
    /// Service times from issue to completion, in ns.
    pub service: Histogram<u64>,
    /// Response times from the scheduled time to completion, in ns.
    pub response: Histogram<u64>,
    /// Bytes transferred.
    pub bytes: u64,
    /// I/Os that failed on the target.
    pub failed: u64,
}

impl Default for Times {
    fn default() -> Times {
        let (lateness, service, response) = (times(), times(), times());
        Times { lateness, service, response, bytes: 0, failed: 0 }
    }
}

impl Times {
    fn merge(&mut self, other: &Times) {
        merge_times(&mut self.lateness, &other.lateness);
        merge_times(&mut self.service, &other.service);
        merge_times(&mut self.response, &other.response);
        self.bytes += other.bytes;
        self.failed += other.failed;
    }
}

/// Range of times, in ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First time.
    pub first_ns: u64,
    /// Last time.
    pub last_ns: u64,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent { first_ns: u64::MAX, last_ns: 0 }
    }
}

impl Extent {
    fn add(&mut self, time_ns: u64) {
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
    }

    fn merge(&mut self, other: Extent) {
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// Length from the first to the last time in ns; 0 without times.
    pub fn len_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// Returns the bytes transferred by an I/O.
fn moved(record: &Record) -> u64 {
    match (record.outcome, record.io.kind) {
        (Outcome::Done(bytes), Kind::Read | Kind::Write | Kind::Create) => u64::from(bytes),
        (_, Kind::Sync | Kind::Trim | Kind::Remove)
        | (Outcome::Failed(_) | Outcome::Skipped, _) => 0,
    }
}

/// Statistics of a run.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Times of each kind with I/Os, in the order of [`Kind::ALL`].
    kinds: [Option<Box<Times>>; Kind::ALL.len()],
    /// In the order of [`Cause::ALL`].
    causes: [Late; Cause::ALL.len()],
    within: Within,
    errors: BTreeMap<u16, u64>,
    skipped: u64,
    scheduled: Extent,
    issued: Extent,
    completed: Extent,
    series: Series,
    spans: Spans,
    peak: peak::Peak,
    distances: Distances,
    witness: Option<Box<Witness>>,
}

impl Statistics {
    /// Adds a batch of records. Seek distances depend on the order of records; everything else is
    /// order-independent.
    pub fn add(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.add_one(record));
    }

    fn add_one(&mut self, record: &Record) {
        self.scheduled.add(record.scheduled_ns);
        self.series.add(record);
        if record.outcome == Outcome::Skipped {
            self.skipped += 1;
            self.causes[record.cause as usize].skipped += 1;
            return;
        }
        self.issue(record);
        self.complete(record);
        self.distances.add(&record.io);
        if let Some(witnessed_ns) = record.witnessed_ns {
            self.witness.get_or_insert_default().add(record, witnessed_ns);
        }
    }

    fn issue(&mut self, record: &Record) {
        let lateness_ns = record.lateness_ns();
        self.issued.add(record.issued_ns);
        self.within.add(lateness_ns);
        self.spans.at(record.scheduled_ns).lateness.add(lateness_ns);
        let late = &mut self.causes[record.cause as usize];
        late.count += 1;
        late.late += u64::from(lateness_ns > LATE_NS);
        late.lateness_ns = late.lateness_ns.saturating_add(lateness_ns);
    }

    fn complete(&mut self, record: &Record) {
        self.completed.add(record.completed_ns);
        self.peak.add(record.issued_ns, record.completed_ns, &mut self.series);
        let times = self.kinds[record.io.kind as usize].get_or_insert_default();
        times.lateness.saturating_record(record.lateness_ns());
        match record.outcome {
            Outcome::Done(_) => {
                let response_ns = record.response_ns();
                times.bytes += moved(record);
                times.service.saturating_record(record.service_ns());
                times.response.saturating_record(response_ns);
                self.spans.at(record.completed_ns).response.add(response_ns);
            }
            Outcome::Failed(number) => {
                times.failed += 1;
                *self.errors.entry(number).or_default() += 1;
            }
            Outcome::Skipped => unreachable!("one that is not issued does not complete"),
        }
    }

    /// Merges the statistics of another thread of the same run.
    pub fn merge(&mut self, other: &Statistics) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
        for (mine, theirs) in self.causes.iter_mut().zip(&other.causes) {
            mine.count += theirs.count;
            mine.late += theirs.late;
            mine.lateness_ns = mine.lateness_ns.saturating_add(theirs.lateness_ns);
            mine.skipped += theirs.skipped;
        }
        for (number, count) in &other.errors {
            *self.errors.entry(*number).or_default() += count;
        }
        self.within.merge(&other.within);
        self.skipped += other.skipped;
        self.scheduled.merge(other.scheduled);
        self.issued.merge(other.issued);
        self.completed.merge(other.completed);
        self.series.merge(&other.noted());
        self.spans.merge(&other.spans);
        self.peak.merge(&other.peak);
        self.distances.merge(&other.distances);
        if let Some(witness) = &other.witness {
            self.witness.get_or_insert_default().merge(witness);
        }
    }
}
