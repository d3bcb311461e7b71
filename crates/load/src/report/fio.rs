//! Subset of fio's `json+` format used by its consumers, for one job.
//!
//! `slat_ns` is lateness, `clat_ns` service and `lat_ns` response time, so that the sum holds as in
//! fio, and time lost by the generator is included. Creates and removes do not exist in this format
//! and are omitted.

use super::Run;
use crate::io::Kind;
use crate::statistics::Times;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// fio's default percentiles.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Formats the run like fio.
pub fn report(run: &Run<'_>) -> String {
    let seconds = run.title.started_unix_ns / 1_000_000_000;
    let milliseconds = run.title.started_unix_ns / 1_000_000;
    let form = json!({
        "fio version": format!("upcall load {}", run.title.version),
        "timestamp": seconds,
        "timestamp_ms": milliseconds,
        "time": run.title.started,
        "jobs": [job(run)],
    });
    serde_json::to_string_pretty(&form).expect("every key is a string and nothing fails") + "\n"
}

fn job(run: &Run<'_>) -> Value {
    let run_ms = run.statistics.run_ns() / 1_000_000;
    let error = run.statistics.errors().keys().next().copied().unwrap_or(0);
    json!({
        "jobname": run.title.workload,
        "groupid": 0,
        "error": error,
        "elapsed": run_ms.div_ceil(1000),
        "job options": { "name": run.title.workload, "filename": run.title.target },
        "read": moved(run, Kind::Read),
        "write": moved(run, Kind::Write),
        "trim": moved(run, Kind::Trim),
        "sync": synced(run),
        "job_runtime": run_ms,
    })
}

/// Formats a kind of I/O that transfers data.
fn moved(run: &Run<'_>, kind: Kind) -> Value {
    let none = Times::default();
    let times = run.statistics.kind(kind).unwrap_or(&none);
    let total = times.service.len();
    // As in fio, the run time of a direction without I/O is 0.
    let run_ns = if total == 0 { 0 } else { run.statistics.run_ns() };
    let seconds = (run_ns as f64 / 1e9).max(1e-9);
    json!({
        "io_bytes": times.bytes,
        "io_kbytes": times.bytes / 1024,
        "bw_bytes": (times.bytes as f64 / seconds) as u64,
        "bw": (times.bytes as f64 / seconds / 1024.0) as u64,
        "iops": total as f64 / seconds,
        "runtime": run_ns / 1_000_000,
        "total_ios": total,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": short(&times.lateness),
        "clat_ns": full(&times.service),
        "lat_ns": short(&times.response),
    })
}

fn synced(run: &Run<'_>) -> Value {
    let none = Times::default();
    let times = run.statistics.kind(Kind::Sync).unwrap_or(&none);
    json!({ "total_ios": times.service.len(), "lat_ns": full(&times.service) })
}

/// Formats a distribution as five numbers.
fn short(times: &Histogram<u64>) -> Value {
    if times.is_empty() {
        return json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    }
    json!({
        "min": times.min(),
        "max": times.max(),
        "mean": times.mean(),
        "stddev": times.stdev(),
        "N": times.len(),
    })
}

/// Formats a distribution with percentiles and all buckets.
fn full(times: &Histogram<u64>) -> Value {
    let mut form = short(times);
    if times.is_empty() {
        return form;
    }
    let at = |percentile: f64| times.value_at_percentile(percentile).min(times.max());
    let percentiles: Map<String, Value> = PERCENTILES
        .into_iter()
        .map(|percentile| (format!("{percentile:.6}"), at(percentile).into()))
        .collect();
    let bins: Map<String, Value> = times
        .iter_recorded()
        .map(|step| {
            (step.value_iterated_to().to_string(), step.count_since_last_iteration().into())
        })
        .collect();
    form["percentile"] = percentiles.into();
    form["bins"] = bins.into();
    form
}
