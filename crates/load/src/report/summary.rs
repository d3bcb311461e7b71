//! Distribution of times in a dozen numbers.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Summary of a distribution. Times are in ns; all are 0 for an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Maximum.
    pub max: u64,
}

impl Summary {
    /// Summarizes a distribution.
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
