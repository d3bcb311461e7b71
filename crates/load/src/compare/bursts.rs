//! Counts of I/Os in short intervals, and their variation.

/// Initial interval width, in ns.
const WIDTH_NS: u64 = 1_000_000;
/// Maximum number of intervals: 16 MiB, or 70 minutes in ms.
const COUNTS_MAX: usize = 1 << 22;
/// Number of intervals merged into one at that limit.
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

    /// Returns the counts in intervals of this width, if it is a multiple of the stored width.
    pub(super) fn at(&self, width_ns: u64) -> Option<Vec<f64>> {
        if !width_ns.is_multiple_of(self.width_ns) {
            return None;
        }
        let group = (width_ns / self.width_ns) as usize;
        let sum = |counts: &[u32]| counts.iter().map(|count| f64::from(*count)).sum();
        Some(self.counts.chunks(group).map(sum).collect())
    }

    /// Returns the narrowest width of 1 ms, 10 ms, … that gives at most `at_most` intervals.
    pub(super) fn width_for(&self, at_most: usize) -> u64 {
        let mut width_ns = self.width_ns;
        let all_ns = (self.counts.len() as u64).saturating_mul(self.width_ns);
        while all_ns / width_ns > at_most as u64 {
            width_ns = width_ns.saturating_mul(10);
        }
        width_ns
    }
}

/// Returns the variance-to-mean ratio: 1 for independent arrivals, more for bursts, 0 for a
/// metronome. `None` for fewer than two intervals.
pub(super) fn dispersion(counts: &[f64]) -> Option<f64> {
    if counts.len() < 2 {
        return None;
    }
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let squares = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
    (mean > 0.0).then(|| squares / (counts.len() - 1) as f64 / mean)
}

/// Returns the correlation of two series, from −1 to 1; the shorter one is padded with zeros.
/// `None` if only one of them is constant.
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
