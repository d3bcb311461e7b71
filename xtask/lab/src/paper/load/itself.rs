//! Figures 8, 10 and 11: a benchmark is traced, replayed, and compared with its replay.

use super::Lab;
use super::ours::{self, Record};
use super::spread::{Spread, percent, range, time};
use crate::bench::table::median;
use crate::instrument::{self, number};
use crate::paper::plot::{Axes, Figure};
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write as _;

const REPLAYERS: [(&str, &[&str]); 4] = [
    ("ours", &[]),
    ("DED-CLOCK", &["--scheme", "clock"]),
    ("SLEEP", &["--scheme", "sleep"]),
    ("SELECT", &["--scheme", "select"]),
];

/// Label of a second run of the benchmark.
const AGAIN: &str = "run again";

/// Measures the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    lab.text += "\n## A benchmark, traced, replayed, compared with itself\n\nSixteen users read \
        (70 %) and write 4 KiB at random places of a file, past the page cache (`--direct`), each \
        thinking 1 ms on average between an answer and the next. Every I/O is written down; then \
        they are issued again when they were issued, on the same file. `upcall load compare` of \
        each replay with the original: distances are between distributions (Kolmogorov and \
        Smirnov, 0 to 1), the correlation is that of the counts in each 10 ms. The benchmark run \
        a second time, with other random numbers, stands beside: what is nearer than that cannot \
        be told from it. Medians and ranges of the rounds; the pictures are of the first.\n";
    lab.tell("a benchmark and its replays");
    let (a, b) = (lab.scratch("a.records"), lab.scratch("b.records"));
    // A new file is slower: a warm-up run.
    benchmark(lab, 0, &a)?;
    benchmark(lab, 1, &a)?;
    let mut runs = vec![("the benchmark", ours::records(a.as_ref())?)];
    let mut compared: Vec<(&str, Vec<Value>)> =
        REPLAYERS.iter().map(|(name, _)| (*name, Vec::new())).collect();
    compared.push((AGAIN, Vec::new()));
    for round in 0..lab.of(5, 1) {
        for ((_, options), (name, printed)) in REPLAYERS.iter().zip(&mut compared) {
            replay(lab, &a, &b, options)?;
            printed.push(instrument::run(&["compare", &a, &b], None)?);
            if round == 0 {
                runs.push((name, ours::records(b.as_ref())?));
            }
        }
        benchmark(lab, round + 2, &b)?;
        if let Some((_, printed)) = compared.last_mut() {
            printed.push(instrument::run(&["compare", &a, &b], None)?);
        }
    }
    table(lab, &compared);
    let service = |records: &[Record]| {
        Spread::of(records.iter().map(|r| r.completed.saturating_sub(r.issued)).collect()).curve()
    };
    let lines = runs.iter().map(|(name, records)| (*name, service(records))).collect();
    let title = "Time from issue to completion of a benchmark, and of its replays";
    let (x, y, axes) = ("microseconds", "% of the I/Os", Axes::LogarithmicX);
    lab.figure("load-itself-response", &Figure { title, x, y, lines, axes })?;
    let lines = runs.iter().map(|(name, records)| (*name, counts(records, issued, 10)));
    let lines = lines.filter(|(name, _)| *name != "DED-CLOCK" && *name != "SLEEP").collect();
    let title = "I/Os issued in each 10 ms by a benchmark, and by its replays";
    let (x, y, axes) = ("seconds", "I/Os in 10 ms", Axes::Linear);
    lab.figure("load-itself-bursts", &Figure { title, x, y, lines, axes })?;
    lab.quote(
        "The high-accuracy of Buttress helps it to produce almost the exact response time \
         statistics as the actual workload, while the less accurate mechanisms deviate \
         significantly more",
        "Figure 11",
    );
    Ok(())
}

/// Runs the benchmark and records every I/O in a file.
fn benchmark(lab: &mut Lab, seed: u32, records: &str) -> Result<()> {
    let (target, seed) = (lab.direct.display().to_string(), seed.to_string());
    let seconds = lab.of("5", "0.5");
    let mut words = vec!["--target", &target, "--direct", "--destroy", "--users", "16"];
    words.extend(["--think", "1ms", "--mix", "read=70,write=30", "--seconds", seconds]);
    words.extend(["--seed", &seed, "--records", records]);
    lab.load(&words).map(|_| ())
}

fn replay(lab: &mut Lab, trace: &str, records: &str, options: &[&str]) -> Result<()> {
    let target = lab.direct.display().to_string();
    let mut words = vec!["replay", trace, "--target", &target, "--direct", "--destroy"];
    words.extend(["--records", records]);
    words.extend(options);
    lab.load(&words).map(|_| ())
}

fn table(lab: &mut Lab, compared: &[(&str, Vec<Value>)]) {
    lab.text += "\n| | I/Os | issued within 10 µs of the original, % | service: distance | mean \
        ratio | p99 ratio | response: distance | mean ratio | queue: distance | mean ratio | \
        bursts in 10 ms: correlation |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for (name, rounds) in compared {
        let all = |of: &dyn Fn(&Value) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
        let figure = |path: &str| {
            range(&all(&|printed| number(printed, path)), &|value| format!("{value:.2}"))
        };
        let near = |printed: &Value| {
            number(printed, "/issue/within/1") * 100.0 / number(printed, "/issue/apart/count")
        };
        let near = if *name == AGAIN { "–".to_owned() } else { range(&all(&near), &percent) };
        let _ = writeln!(
            lab.text,
            "| {name} | {:.0} | {near} | {} | {} | {} | {} | {} | {} | {} | {} |",
            median(all(&|printed| number(printed, "/runs/b/issued")).into_iter()),
            figure("/service/distance"),
            figure("/service/mean_ratio"),
            range(&all(&p99), &|ratio| format!("{ratio:.2}")),
            figure("/response/distance"),
            figure("/response/mean_ratio"),
            figure("/queue_distance"),
            figure("/queue_mean_ratio"),
            range(&all(&correlation), &|value| format!("{value:.4}")),
        );
    }
    let first = compared.first().and_then(|(_, rounds)| rounds.first());
    let mean = |path: &str| first.map_or(f64::NAN, |printed| number(printed, path));
    let _ = writeln!(
        lab.text,
        "\nThe benchmark itself: {} I/Os, service {} on average, {:.2} in flight.",
        mean("/runs/a/issued"),
        time(mean("/runs/a/service/mean")),
        mean("/runs/a/queue_mean"),
    );
}

/// Returns the ratio of the 99th percentile of service time, replay to original.
fn p99(printed: &Value) -> f64 {
    let all = printed.pointer("/service/quantiles").and_then(Value::as_array);
    let is = |one: &&Value| (number(one, "/quantile") - 0.99).abs() < 1e-9;
    let found = all.into_iter().flatten().find(is);
    found.map_or(f64::NAN, |one| number(one, "/ratio"))
}

/// Returns the correlation of the counts in each 10 ms.
fn correlation(printed: &Value) -> f64 {
    let all = printed.pointer("/bursts").and_then(Value::as_array);
    let is = |burst: &&Value| (number(burst, "/width_ns") - 1e7).abs() < 1.0;
    let found = all.into_iter().flatten().find(is);
    found.map_or(f64::NAN, |burst| number(burst, "/correlation"))
}

fn issued(record: &Record) -> u64 {
    record.issued
}

fn scheduled(record: &Record) -> u64 {
    record.scheduled
}

/// Returns the number of I/Os in each interval of `width_ms` milliseconds, by time in seconds.
fn counts(records: &[Record], when: fn(&Record) -> u64, width_ms: u64) -> Vec<(f64, f64)> {
    let width = width_ms * 1_000_000;
    let first = records.iter().map(when).min().unwrap_or(0);
    let mut counts = Vec::new();
    for record in records {
        let index = ((when(record) - first) / width) as usize;
        if index >= counts.len() {
            counts.resize(index + 1, 0.0);
        }
        counts[index] += 1.0;
    }
    let point = |(index, count)| ((index as u64 * width) as f64 / 1e9, count);
    counts.into_iter().enumerate().map(point).collect()
}

/// Plots figure 10: the bursts of a trace, and those of its replays.
pub(super) fn bursts(lab: &mut Lab, name: &str, speed: &str, records: &[Record]) -> Result<()> {
    let title = format!("I/Os in each 100 ms of {name}, speed {speed}");
    let lines = vec![
        ("the trace", counts(records, scheduled, 100)),
        ("ours, as it was issued", counts(records, issued, 100)),
    ];
    let (x, y, axes) = ("seconds", "I/Os in 100 ms", Axes::Linear);
    let figure = Figure { title: &title, x, y, lines, axes };
    lab.figure(&format!("load-bursts-{name}-{speed}"), &figure)
}
