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

    #[test]
    fn a_straight_line_is_fitted_by_itself() {
        let (slope, height, explained) = fit(&[(0.0, 3.0), (1.0, 5.0), (2.0, 7.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && (height - 3.0).abs() < 1e-9);
        assert!((explained - 1.0).abs() < 1e-9);
        assert!(fit(&LINE).2 < 0.9);
    }
}
