//! What the kernel's own trace says about the times at which I/Os were issued.

use super::{Within, times};
use crate::io::Record;
use hdrhistogram::Histogram;

/// The I/Os that the kernel's trace saw too.
#[derive(Clone, Debug)]
pub struct Witness {
    /// How much later than scheduled the kernel saw them, ns.
    pub lateness: Histogram<u64>,
    /// How many of them so late at most.
    pub within: Within,
    /// How far apart what the generator says about an issue and what the kernel says are, ns.
    pub apart: Histogram<u64>,
    /// I/Os that the kernel saw before the generator says that it issued them. It takes the time
    /// just before the call, so there should be none: if there are, the clocks differ.
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
