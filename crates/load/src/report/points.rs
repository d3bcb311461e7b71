//! Distributions and series as so many points as a plot can show.

use hdrhistogram::Histogram;

/// Points for one decade of a logarithmic axis.
const DECADE: f64 = 60.0;

/// The cumulative distribution of times: for each time the share that is no longer. Times below
/// `least` are shown there, because a logarithmic axis has no zero.
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

/// A series with `at_most` points: neighbours are put together by `join`, which is given a group.
/// Gives how many became one, too.
pub(crate) fn thin<T>(
    series: &[T],
    at_most: usize,
    join: impl Fn(&[T]) -> f64,
) -> (usize, Vec<f64>) {
    let group = series.len().div_ceil(at_most).max(1);
    (group, series.chunks(group).map(join).collect())
}
