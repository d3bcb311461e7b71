//! What is known about a run as a whole: distributions, counts, and how it went over time.
//!
//! [`Statistics`] takes records in batches, in any order, on a thread that is not in a hurry, and
//! its memory is bounded however long a run is (about 20 MiB, and 16 bytes a file). Three times
//! are kept apart, each in a histogram with three digits: *lateness* (scheduled to issued),
//! *service* (issued to completed) and *response* (scheduled to completed, which hides nothing
//! that the generator lost). Every I/O that was issued has a lateness; only one that was done has
//! a service and a response time, because how fast a target refuses says nothing about it.

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

/// An I/O is late when it is issued more than this after its time, ns: the paper's measure of
/// a good issue time.
pub const LATE_NS: u64 = 10_000;

/// Times longer than this (an hour) count as this.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// A histogram of times up to an hour, with three digits.
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("the bounds are in order")
}

fn merge_times(into: &mut Histogram<u64>, from: &Histogram<u64>) {
    into.add(from).expect("both have the bounds of `times`");
}

/// How many I/Os were issued so soon after their time at most; exact counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Within {
    counts: [u64; 4],
}

impl Within {
    /// The limits, ns: 1 µs, 10 µs, 100 µs and 1 ms.
    pub const LIMITS_NS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

    pub(crate) fn add(&mut self, lateness_ns: u64) {
        for (count, limit) in self.counts.iter_mut().zip(Within::LIMITS_NS) {
            *count += u64::from(lateness_ns <= limit);
        }
    }

    fn merge(&mut self, other: &Within) {
        self.counts.iter_mut().zip(other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The counts, one for each limit.
    pub fn counts(&self) -> [u64; 4] {
        self.counts
    }
}

/// The I/Os that were late for one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// I/Os with this cause.
    pub count: u64,
    /// Those of them that were later than [`LATE_NS`].
    pub late: u64,
    /// The sum of their lateness, ns.
    pub lateness_ns: u64,
    /// Those that were not issued, because they were late and late ones are skipped.
    pub skipped: u64,
}

/// The three times of a set of I/Os.
#[derive(Clone, Debug)]
pub struct Times {
    /// From the time an I/O was to be issued until it was, ns.
    pub lateness: Histogram<u64>,
    /// From issue to completion, ns.
    pub service: Histogram<u64>,
    /// From the time it was to be issued to completion, ns.
    pub response: Histogram<u64>,
    /// Bytes that went over.
    pub bytes: u64,
    /// I/Os that the target refused.
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

/// The first and the last of some times, ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first.
    pub first_ns: u64,
    /// The last.
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

    /// From the first to the last, ns; 0 of none.
    pub fn len_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// The bytes that went over with a record, if they did.
fn moved(record: &Record) -> u64 {
    match (record.outcome, record.io.kind) {
        (Outcome::Done(bytes), Kind::Read | Kind::Write | Kind::Create) => u64::from(bytes),
        (_, Kind::Sync | Kind::Trim | Kind::Remove)
        | (Outcome::Failed(_) | Outcome::Skipped, _) => 0,
    }
}

/// What is known about a run.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// The times of each kind, if there is an I/O of it; in the order of [`Kind::ALL`].
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
    /// Takes up a batch of records. Distances between places are taken in the order of records;
    /// everything else is the same in any order.
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

    /// Takes up what another thread counted of the same run.
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
