//! Numerical properties of a line.

/// A line: its points, from left to right.
pub(super) type Line = [(f64, f64)];

/// Returns the value at `x`; NaN if there is none.
pub(super) fn at(line: &Line, x: f64) -> f64 {
    line.iter().find(|point| (point.0 - x).abs() < 1e-9).map_or(f64::NAN, |point| point.1)
}

/// Returns the first value.
pub(super) fn first(line: &Line) -> f64 {
    line.first().map_or(f64::NAN, |point| point.1)
}

/// Returns the last value.
pub(super) fn last(line: &Line) -> f64 {
    line.last().map_or(f64::NAN, |point| point.1)
}

/// Returns the point with the greatest value.
pub(super) fn peak(line: &Line) -> (f64, f64) {
    let higher = |a: (f64, f64), b: &(f64, f64)| if b.1 > a.1 { *b } else { a };
    line.iter().fold((f64::NAN, f64::MIN), higher)
}

/// Returns whether it rises from point to point, with falls of at most the share `slack`.
pub(super) fn rises(line: &Line, slack: f64) -> bool {
    line.windows(2).all(|pair| pair[1].1 >= pair[0].1 * (1.0 - slack)) && last(line) > first(line)
}

/// Returns whether it falls, with rises of at most the share `slack`.
pub(super) fn falls(line: &Line, slack: f64) -> bool {
    line.windows(2).all(|pair| pair[1].1 <= pair[0].1 * (1.0 + slack)) && last(line) < first(line)
}

/// Returns the point from which on no value differs from the last one by more than this share of
/// the whole rise; NaN for an empty line.
pub(super) fn levels_off(line: &Line, share: f64) -> f64 {
    let near = (last(line) - first(line)).abs() * share;
    let away = line.iter().rposition(|point| (point.1 - last(line)).abs() > near);
    line.get(away.map_or(0, |away| away + 1)).map_or(f64::NAN, |point| point.0)
}

/// Growth from the first value to the last one from which on a line counts as rising, as a share.
const GROWS: f64 = 0.1;

/// Replicas by which a line of the paper that levels off at four is level.
const LEVEL: f64 = 5.0;

/// Share of the rise within which a value counts as level with the last one.
const NEAR: f64 = 0.15;

/// Returns whether a line is higher at its end than with one replica, and from where on it is
/// level.
pub(super) fn rises_and_levels_off(line: &Line) -> (bool, f64) {
    let level = levels_off(line, NEAR);
    (last(line) > (1.0 + GROWS) * first(line) && level <= LEVEL, level)
}

/// Returns whether a line has the paper's trend, a rise that levels off, and grows as much as the
/// `reference` does: the ratios of last to first differ by at most [`NEAR`].
pub(super) fn keeps_trend(line: &Line, reference: &Line) -> bool {
    let growth = |line: &Line| last(line) / first(line);
    let share = growth(line) / growth(reference);
    rises_and_levels_off(line).0 && (share - 1.0).abs() <= NEAR
}

/// Share by which two times differ at least if they are not counted as equal.
pub(super) const MARGIN: f64 = 0.1;

/// Comparison of our time with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Ours is shorter by more than [`MARGIN`].
    Shorter,
    /// The difference is within [`MARGIN`].
    Equal,
    /// Ours is longer by more than [`MARGIN`].
    Longer,
}

/// Compares our time with another one.
pub(super) fn compare(ours: f64, other: f64) -> Comparison {
    match (ours < other * (1.0 - MARGIN), other < ours * (1.0 - MARGIN)) {
        (true, _) => Comparison::Shorter,
        (false, true) => Comparison::Longer,
        (false, false) => Comparison::Equal,
    }
}

/// Returns the least-squares line: its slope, its intercept, and the explained variation, from 0 to
/// 1.
pub(super) fn fit(line: &Line) -> (f64, f64, f64) {
    let mean = |of: fn(&(f64, f64)) -> f64| super::runs::mean(line.iter().map(of));
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        line.iter().map(|point| of(point.0 - x, point.1 - y)).sum()
    };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    (xy / xx, y - xy / xx * x, xy * xy / (xx * yy))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: [(f64, f64); 5] = [(1.0, 10.0), (2.0, 20.0), (3.0, 29.0), (4.0, 30.0), (5.0, 30.0)];

    #[test]
    fn a_line_that_levels_off_says_where() {
        assert!((levels_off(&LINE, 0.1) - 3.0).abs() < 1e-9);
        assert!(levels_off(&[], 0.1).is_nan());
        assert!(rises(&LINE, 0.0) && !falls(&LINE, 0.0));
        assert_eq!(peak(&LINE), (4.0, 30.0));
        assert!((at(&LINE, 2.0) - 20.0).abs() < 1e-9 && at(&LINE, 9.0).is_nan());
    }

    /// Numbers the values from one on.
    fn line(values: &[f64]) -> Vec<(f64, f64)> {
        (1..).map(f64::from).zip(values.iter().copied()).collect()
    }

    /// The figures of `docs/paper/replica.md`: response times at the replicas.
    #[test]
    fn a_rise_is_not_the_trend_of_a_level_line() {
        let turn = line(&[28.1, 28.4, 28.4, 28.4, 28.5, 28.6, 28.7, 28.8, 29.0, 29.1]);
        let turn_n = line(&[28.2, 28.6, 30.8, 33.0, 35.7, 38.9, 42.3, 45.2, 47.6, 49.4]);
        let eager = line(&[28.1, 28.4, 35.2, 39.4, 41.1, 41.4, 41.3, 41.8, 41.4, 40.5]);
        let eager_n = line(&[28.2, 50.3, 42.8, 39.0, 36.8, 35.3, 34.2, 33.4, 32.8, 32.4]);
        assert!(!keeps_trend(&turn_n, &turn));
        assert!(!keeps_trend(&eager_n, &eager));
        assert!(keeps_trend(&eager, &eager));
        assert!(!keeps_trend(&turn, &turn), "a flat line does not rise");
        assert_eq!(rises_and_levels_off(&turn_n), (false, 9.0));
        assert_eq!(rises_and_levels_off(&eager), (true, 4.0));
    }

    /// The figures of `docs/paper/replica.md`: two, four and six replicas, milliseconds.
    #[test]
    fn times_within_the_margin_are_equal() {
        for (ours, other, expected) in [
            (0.14, 0.14, Comparison::Equal),
            (0.139, 0.141, Comparison::Equal),
            (0.17, 0.18, Comparison::Equal),
            (0.36, 0.44, Comparison::Shorter),
            (4.75, 1.66, Comparison::Longer),
            (1.0, 1.05, Comparison::Equal),
        ] {
            assert_eq!(compare(ours, other), expected, "{ours} against {other}");
        }
    }

    #[test]
    fn a_straight_line_is_fitted_by_itself() {
        let (slope, height, explained) = fit(&[(0.0, 3.0), (1.0, 5.0), (2.0, 7.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && (height - 3.0).abs() < 1e-9);
        assert!((explained - 1.0).abs() < 1e-9);
        assert!(fit(&LINE).2 < 0.9);
    }
}
