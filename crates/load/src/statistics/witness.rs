//! Issue times according to the kernel's own trace.

use super::{Within, times};
use crate::io::Record;
use hdrhistogram::Histogram;

/// I/Os that are also in the kernel's trace.
#[derive(Clone, Debug)]
pub struct Witness {
    /// Lateness according to the kernel, in ns.
    pub lateness: Histogram<u64>,
    /// Counts by bound of that lateness.
    pub within: Within,
    /// Differences between the issue times of the generator and of the kernel, in ns.
    pub apart: Histogram<u64>,
    /// I/Os that the kernel saw before the generator's issue time. That is taken just before the
    /// call, so any such I/O means that the clocks differ.
    pub before: u64,
}

impl Default for Witness {
    fn default() -> Witness {
        Witness { lateness: times(), within: Within::default(), apart: times(), before: 0 }
    }
}

impl Witness {
    pub(super) fn add(&mut self, record: &Record, witnessed_ns: u64) {
        let lateness_ns = witnessed_ns.saturating_sub(record.scheduled_ns);
        self.lateness.saturating_record(lateness_ns);
        self.within.add(lateness_ns);
        self.apart.saturating_record(witnessed_ns.abs_diff(record.issued_ns));
        self.before += u64::from(witnessed_ns < record.issued_ns);
    }

    pub(super) fn merge(&mut self, other: &Witness) {
        super::merge_times(&mut self.lateness, &other.lateness);
        super::merge_times(&mut self.apart, &other.apart);
        self.within.merge(&other.within);
        self.before += other.before;
    }
}
