//! Counts of durations in buckets that double: 64 numbers, no allocation, mergeable.

use std::time::Duration;

/// Counts of durations by magnitude. Bucket `i` holds durations below 2^i nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: [u64; 64],
    count: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [0; 64], count: 0, sum_ns: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, span: Duration) {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (64 - ns.leading_zeros() as usize).min(63);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (here, there) in self.buckets.iter_mut().zip(other.buckets) {
            *here += there;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the upper edge of the bucket with the `q` quantile (0 to 1); zero when empty.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (edge, n) in self.edges() {
            seen += n;
            if seen >= rank {
                return edge;
            }
        }
        Duration::ZERO
    }

    /// Returns the non-empty buckets: upper edge and count, ascending.
    pub fn edges(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let edge = |i: usize| Duration::from_nanos(1 << i);
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(move |(i, n)| (edge(i), *n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_edges() {
        let mut h = Histogram::default();
        for us in [1, 2, 3, 1000] {
            h.record(Duration::from_micros(us));
        }
        assert_eq!(h.count(), 4);
        assert_eq!(h.sum(), Duration::from_micros(1006));
        assert_eq!(h.quantile(0.5), Duration::from_nanos(2048));
        assert_eq!(h.quantile(1.0), Duration::from_nanos(1 << 20));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
        let mut twice = h.clone();
        twice.add(&h);
        assert_eq!((twice.count(), twice.sum()), (8, Duration::from_micros(2012)));
        assert_eq!(twice.edges().map(|(_, n)| n).collect::<Vec<_>>(), [2, 2, 2, 2]);
    }
}
