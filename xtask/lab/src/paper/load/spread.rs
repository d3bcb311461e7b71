//! Distributions and their formatting.

/// Limits of the paper, ns.
pub(super) const LIMITS: [(u64, &str); 5] = [
    (1000, "1 µs"),
    (10_000, "10 µs"),
    (50_000, "50 µs"),
    (100_000, "100 µs"),
    (1_000_000, "1 ms"),
];

/// Sorted values.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread(Vec<u64>);

impl Spread {
    pub(super) fn of(mut values: Vec<u64>) -> Spread {
        values.sort_unstable();
        Spread(values)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the percentage of values up to a limit.
    pub(super) fn within(&self, limit: u64) -> f64 {
        let count = self.0.partition_point(|value| *value <= limit);
        count as f64 * 100.0 / self.0.len().max(1) as f64
    }

    /// Returns the quantile of a share from 0 to 1.
    pub(super) fn at(&self, share: f64) -> u64 {
        let index = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(index.max(1) - 1).or(self.0.last()).copied().unwrap_or(0)
    }

    /// Returns the cumulative percentage, at fifteen points per decade from 0.1 µs on.
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        for step in 0..=105 {
            let micros = 10_f64.powf(f64::from(step) / 15.0 - 1.0);
            let share = self.within((micros * 1000.0) as u64);
            points.push((micros, share));
            if share >= 100.0 {
                break;
            }
        }
        points
    }

    /// Returns those of the percentiles 1 to 99, 99.9 and 100 at which `self` is greater.
    pub(super) fn worse_than(&self, other: &Spread) -> Vec<f64> {
        let shares = (1..100).map(f64::from).chain([99.9, 100.0]);
        shares.filter(|share| self.at(share / 100.0) > other.at(share / 100.0)).collect()
    }
}

/// Formats a time in a few digits.
pub(super) fn time(ns: f64) -> String {
    match ns {
        _ if ns.is_nan() => "–".to_owned(),
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e4 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        _ if ns < 1e7 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.0} ms", ns / 1e6),
    }
}

/// Formats a percentage that reads 100 only if it is exact.
pub(super) fn percent(share: f64) -> String {
    if share < 100.0 { format!("{:.2}", share.min(99.99)) } else { "100".to_owned() }
}

/// Formats median and range.
pub(super) fn range(values: &[f64], show: &dyn Fn(f64) -> String) -> String {
    let (low, high) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let middle = crate::bench::table::median(values.iter().copied());
    match values.len() {
        0 => "–".to_owned(),
        1 => show(middle),
        _ => format!("{} ({}..{})", show(middle), show(low), show(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quantiles_agree() {
        let spread = Spread::of((1..=100).rev().map(|value| value * 1000).collect());
        assert_eq!((spread.at(0.5), spread.at(1.0), spread.at(0.0)), (50_000, 100_000, 1000));
        assert!((spread.within(50_000) - 50.0).abs() < 1e-9);
        assert!(spread.curve().last().is_some_and(|point| point.1 >= 100.0));
        let later = Spread::of((2..=101).map(|value| value * 1000).collect());
        assert!(spread.worse_than(&later).is_empty());
        assert_eq!(later.worse_than(&spread).len(), 101);
        assert_eq!(range(&[3.0, 1.0, 2.0], &|value| format!("{value}")), "2 (1..3)");
    }
}
