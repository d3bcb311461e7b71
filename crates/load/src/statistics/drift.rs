//! Drift of a generator that falls behind during a run.

use super::buckets::Buckets;
use super::spans::Spans;

/// Change of lateness over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drift {
    /// Median lateness in the last tenth of the run minus that in the first, in ns.
    pub median_ns: i64,
    /// Slope of the span medians in ns per second (least squares with equal weights).
    pub slope_ns_per_s: f64,
    /// Excess of the time from the first issue to the last over the schedule, in ns.
    pub stretch_ns: i64,
}

impl Drift {
    /// Computes the drift; `None` for a single span.
    pub(super) fn of(spans: &Spans, stretch_ns: i64) -> Option<Drift> {
        let some: Vec<(usize, &Buckets)> = spans
            .all()
            .iter()
            .map(|span| &span.lateness)
            .enumerate()
            .filter(|(_, lateness)| lateness.count() > 0)
            .collect();
        if some.len() < 2 {
            return None;
        }
        let tenth = some.len().div_ceil(10);
        let first = median(&some[..tenth]);
        let last = median(&some[some.len() - tenth..]);
        let seconds = spans.width_ns() as f64 / 1e9;
        let points = some
            .iter()
            .map(|(index, lateness)| (*index as f64 * seconds, lateness.quantile(0.5) as f64));
        Some(Drift {
            median_ns: signed_difference(last, first),
            slope_ns_per_s: slope(&points.collect::<Vec<_>>()),
            stretch_ns,
        })
    }
}

fn median(spans: &[(usize, &Buckets)]) -> u64 {
    let mut all = Buckets::default();
    spans.iter().for_each(|(_, lateness)| all.merge(lateness));
    all.quantile(0.5)
}

/// Returns `a - b`, in ns.
pub(super) fn signed_difference(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Returns the slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let products = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
    let squares = points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    if squares == 0.0 { 0.0 } else { products / squares }
}
