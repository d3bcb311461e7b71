//! Statistics of one of the two runs.

use super::bursts::Counts;
use super::queue::Lengths;
use crate::io::{Outcome, Record};
use crate::statistics::{Distances, times};
use hdrhistogram::Histogram;

/// Accumulated statistics of one run.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) issued: u64,
    pub(super) failed: u64,
    /// Scheduled time of the first issued I/O: the origin of the counts.
    start_ns: Option<u64>,
    first_ns: u64,
    last_ns: u64,
    /// Response times, in ns.
    pub(super) response: Histogram<u64>,
    /// Service times, in ns.
    pub(super) service: Histogram<u64>,
    pub(super) queue: Lengths,
    pub(super) counts: Counts,
    pub(super) distances: Distances,
}

impl Default for Side {
    fn default() -> Side {
        Side {
            issued: 0,
            failed: 0,
            start_ns: None,
            first_ns: 0,
            last_ns: 0,
            response: times(),
            service: times(),
            queue: Lengths::default(),
            counts: Counts::default(),
            distances: Distances::default(),
        }
    }
}

impl Side {
    /// Adds the next I/O in issue order. Returns its issue time since the start.
    pub(super) fn add(&mut self, record: &Record) -> u64 {
        if self.issued == 0 {
            self.first_ns = record.issued_ns;
        }
        let start_ns = *self.start_ns.get_or_insert(record.scheduled_ns.min(record.issued_ns));
        let since_ns = record.issued_ns.saturating_sub(start_ns);
        self.issued += 1;
        self.last_ns = self.last_ns.max(record.issued_ns);
        if let Outcome::Done(_) = record.outcome {
            self.response.saturating_record(record.response_ns());
            self.service.saturating_record(record.service_ns());
        } else {
            self.failed += 1;
        }
        self.queue.add(record.issued_ns, record.completed_ns);
        self.counts.add(since_ns);
        self.distances.add(&record.io);
        since_ns
    }

    /// Time from the first issue to the last, in ns.
    pub(super) fn len_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}
