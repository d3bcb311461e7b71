//! Time spent at each queue length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum queue length; longer ones count as this.
const LENGTH_MAX: usize = 1 << 16;

/// Time by queue length, exact for I/Os in issue order. Memory is proportional to the I/Os in
/// flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    in_flight: BinaryHeap<Reverse<u64>>,
    now_ns: u64,
    begun: bool,
    /// Nanoseconds at each length.
    time_ns: Vec<u64>,
    /// Maximum length.
    pub(super) max: u64,
}

impl Lengths {
    pub(super) fn add(&mut self, issued_ns: u64, completed_ns: u64) {
        if !self.begun {
            (self.begun, self.now_ns) = (true, issued_ns);
        }
        self.until(issued_ns);
        self.in_flight.push(Reverse(completed_ns));
        self.max = self.max.max(self.in_flight.len() as u64);
    }

    /// Completes all I/Os.
    pub(super) fn finish(&mut self) {
        self.until(u64::MAX);
    }

    fn until(&mut self, time_ns: u64) {
        while let Some(Reverse(completed_ns)) = self.in_flight.peek().copied() {
            if completed_ns > time_ns {
                break;
            }
            self.pass(completed_ns);
            self.in_flight.pop();
        }
        if !self.in_flight.is_empty() || time_ns != u64::MAX {
            self.pass(time_ns);
        }
    }

    fn pass(&mut self, to_ns: u64) {
        let length = self.in_flight.len().min(LENGTH_MAX);
        if length >= self.time_ns.len() {
            self.time_ns.resize(length + 1, 0);
        }
        let passed_ns = to_ns.saturating_sub(self.now_ns);
        self.time_ns[length] = self.time_ns[length].saturating_add(passed_ns);
        self.now_ns = self.now_ns.max(to_ns);
    }

    /// Returns the mean length over time.
    pub(super) fn mean(&self) -> f64 {
        let area = |(length, time_ns): (usize, &u64)| length as f64 * *time_ns as f64;
        self.time_ns.iter().enumerate().map(area).sum::<f64>() / self.total()
    }

    fn total(&self) -> f64 {
        self.time_ns.iter().map(|time_ns| *time_ns as f64).sum::<f64>().max(1.0)
    }

    /// Returns, for each length, the share of time with at most that length.
    pub(super) fn cdf(&self) -> Vec<(f64, f64)> {
        let total = self.total();
        let mut below = 0.0;
        let point = |(length, time_ns): (usize, &u64)| {
            below += *time_ns as f64 / total;
            (length as f64, below)
        };
        self.time_ns.iter().enumerate().map(point).collect()
    }
}
