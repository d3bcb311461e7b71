//! How many I/Os are issued in each short interval, and how that varies.

/// The width of an interval at first, ns.
const WIDTH_NS: u64 = 1_000_000;
/// No more intervals than this: 16 MiB, which is 70 minutes in milliseconds.
const COUNTS_MAX: usize = 1 << 22;
/// So many intervals become one when there are too many.
const COARSEN: usize = 10;

/// I/Os in each interval since the first issue.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    width_ns: u64,
    counts: Vec<u32>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { width_ns: WIDTH_NS, counts: Vec::new() }
    }
}

impl Counts {
    pub(super) fn add(&mut self, time_ns: u64) {
        while time_ns / self.width_ns >= COUNTS_MAX as u64 {
            let sum = |counts: &[u32]| counts.iter().fold(0u32, |sum, n| sum.saturating_add(*n));
            self.counts = self.counts.chunks(COARSEN).map(sum).collect();
            self.width_ns = self.width_ns.saturating_mul(COARSEN as u64);
        }
        let index = (time_ns / self.width_ns) as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(1);
    }

    /// The counts in intervals of this width; nothing if they are kept in wider ones.
    pub(super) fn at(&self, width_ns: u64) -> Option<Vec<f64>> {
        if !width_ns.is_multiple_of(self.width_ns) {
            return None;
        }
        let group = (width_ns / self.width_ns) as usize;
        let sum = |counts: &[u32]| counts.iter().map(|count| f64::from(*count)).sum();
        Some(self.counts.chunks(group).map(sum).collect())
    }

    /// The narrowest width that gives no more than so many intervals, of 1 ms, 10 ms, ...
    pub(super) fn width_for(&self, at_most: usize) -> u64 {
        let mut width_ns = self.width_ns;
        let all_ns = (self.counts.len() as u64).saturating_mul(self.width_ns);
        while all_ns / width_ns > at_most as u64 {
            width_ns = width_ns.saturating_mul(10);
        }
        width_ns
    }
}

/// Variance by mean: 1 for arrivals that do not know of each other, more for bursts, 0 for a
/// metronome. Nothing for fewer than two intervals.
pub(super) fn dispersion(counts: &[f64]) -> Option<f64> {
    if counts.len() < 2 {
        return None;
    }
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let squares = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
    (mean > 0.0).then(|| squares / (counts.len() - 1) as f64 / mean)
}

/// How well two series go up and down together, from −1 to 1; the shorter one goes on with zeros.
/// Nothing if one of them does not vary while the other does.
pub(super) fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let len = a.len().max(b.len());
    let get = |series: &[f64], index: usize| series.get(index).copied().unwrap_or(0.0);
    let mean = |series: &[f64]| series.iter().sum::<f64>() / len as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut square_a, mut square_b) = (0.0, 0.0, 0.0);
    for index in 0..len {
        let (x, y) = (get(a, index) - mean_a, get(b, index) - mean_b);
        both += x * y;
        square_a += x * x;
        square_b += y * y;
    }
    if square_a == 0.0 && square_b == 0.0 {
        return (mean_a == mean_b).then_some(1.0);
    }
    let scale = (square_a * square_b).sqrt();
    (scale > 0.0).then(|| both / scale)
}
