//! Distance of two distributions.

use crate::statistics::Distances;
use hdrhistogram::Histogram;

/// Returns the Kolmogorov–Smirnov distance: the greatest difference of two cumulative
/// distributions, each given as points with ascending values and cumulative shares. 0 means
/// identical, 1 disjoint.
pub(super) fn kolmogorov_smirnov(a: &[(f64, f64)], b: &[(f64, f64)]) -> f64 {
    let (mut i, mut j) = (0, 0);
    let (mut share_a, mut share_b, mut largest) = (0.0, 0.0, 0.0f64);
    while i < a.len() || j < b.len() {
        let next_a = a.get(i).map_or(f64::INFINITY, |point| point.0);
        let next_b = b.get(j).map_or(f64::INFINITY, |point| point.0);
        if next_a <= next_b {
            share_a = a[i].1;
            i += 1;
        }
        if next_b <= next_a {
            share_b = b[j].1;
            j += 1;
        }
        largest = largest.max((share_a - share_b).abs());
    }
    largest
}

/// Returns the exact cumulative distribution of times.
pub(super) fn of_times(times: &Histogram<u64>) -> Vec<(f64, f64)> {
    let counts = times
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()));
    cumulated(counts, times.len())
}

/// Returns the cumulative distribution of seek distances; sequential I/Os have distance 0.
pub(super) fn of_distances(distances: &Distances) -> Vec<(f64, f64)> {
    let sequential = std::iter::once((0, distances.sequential));
    cumulated(sequential.chain(distances.apart.iter()), distances.count())
}

fn cumulated(counts: impl Iterator<Item = (u64, u64)>, total: u64) -> Vec<(f64, f64)> {
    let mut below = 0;
    let points = counts.map(|(value, count)| {
        below += count;
        (value as f64, below as f64 / total.max(1) as f64)
    });
    points.collect()
}
