//! A distribution of times in a dozen numbers.

use hdrhistogram::Histogram;
use serde::Serialize;

/// What is told of a distribution. Times are nanoseconds; all are 0 of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many values.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// How far values are from the mean, as the root of the mean of squares.
    pub stddev: f64,
    /// Half of the values are no larger.
    pub p50: u64,
    /// 90 % are no larger.
    pub p90: u64,
    /// 95 % are no larger.
    pub p95: u64,
    /// 99 % are no larger.
    pub p99: u64,
    /// 99.9 % are no larger.
    pub p99_9: u64,
    /// 99.99 % are no larger.
    pub p99_99: u64,
    /// The largest.
    pub max: u64,
}

impl Summary {
    /// The numbers of a distribution.
    pub fn of(times: &Histogram<u64>) -> Summary {
        if times.is_empty() {
            return Summary::default();
        }
        let at = |quantile| times.value_at_quantile(quantile).min(times.max());
        Summary {
            count: times.len(),
            min: times.min(),
            mean: times.mean(),
            stddev: times.stdev(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: times.max(),
        }
    }
}
