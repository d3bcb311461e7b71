//! Reduction of distributions and series to the points of a plot.

use hdrhistogram::Histogram;

/// Points per decade of a logarithmic axis.
const DECADE: f64 = 60.0;

/// Returns the cumulative distribution of times. Times below `least` are moved to it, because a
/// logarithmic axis has no zero.
pub(crate) fn cdf(times: &Histogram<u64>, least: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let (mut below, mut column) = (0, i64::MIN);
    for step in times.iter_recorded() {
        below += step.count_since_last_iteration();
        let x = (step.value_iterated_to() as f64).max(least);
        let share = below as f64 / times.len() as f64;
        let next = (x.log10() * DECADE) as i64;
        match points.last_mut() {
            Some(last) if next == column => *last = (x, share),
            _ => points.push((x, share)),
        }
        column = next;
    }
    if let Some(&(first, _)) = points.first() {
        points.insert(0, (first, 0.0));
    }
    points
}

/// Reduces a series to `at_most` points by merging neighbours with `join`. Also returns the size of
/// the merged groups.
pub(crate) fn thin<T>(
    series: &[T],
    at_most: usize,
    join: impl Fn(&[T]) -> f64,
) -> (usize, Vec<f64>) {
    let group = series.len().div_ceil(at_most).max(1);
    (group, series.chunks(group).map(join).collect())
}
