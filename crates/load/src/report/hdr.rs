//! Histogram log for the tools of HdrHistogram (version 2, compressed).
//!
//! One line for each span of the run has the response times of the I/Os completed in it, in ns with
//! an error of up to 1.6 %. Three tagged lines have the whole run with three digits: `lateness`,
//! `service` and `response`.

use super::Run;
use crate::statistics::Buckets;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

/// Writes the log.
pub fn write<W: Write>(run: &Run<'_>, to: &mut W) -> io::Result<()> {
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(run.title.started_unix_ns);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[upcall load: times in nanoseconds, maxima in milliseconds]")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(to, &mut serializer)?;
    let spans = run.statistics.spans();
    let width = Duration::from_nanos(spans.width_ns());
    for (index, span) in spans.all().iter().enumerate() {
        let begin = Duration::from_nanos(spans.width_ns() * index as u64);
        log.write_histogram(&histogram(&span.response), begin, width, None).map_err(failed)?;
    }
    let together = run.statistics.together();
    let whole = Duration::from_nanos(run.statistics.run_ns());
    let named = [
        ("lateness", &together.lateness),
        ("service", &together.service),
        ("response", &together.response),
    ];
    for (name, times) in named {
        log.write_histogram(times, Duration::ZERO, whole, Tag::new(name)).map_err(failed)?;
    }
    Ok(())
}

fn failed<E: std::fmt::Display + std::fmt::Debug>(error: IntervalLogWriterError<E>) -> io::Error {
    io::Error::other(error.to_string())
}

/// Converts buckets to a histogram of that library.
fn histogram(buckets: &Buckets) -> Histogram<u64> {
    let mut times = crate::statistics::times();
    buckets.iter().for_each(|(value, count)| times.saturating_record_n(value, count));
    times
}
