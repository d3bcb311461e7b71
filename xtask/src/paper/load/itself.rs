//! Figures 8, 10 and 11: a benchmark is traced, replayed, and compared with itself.

use super::Lab;
use super::ours::{self, Record, load, number};
use super::spread::{Spread, percent, time};
use crate::paper::plot::{Axes, Figure};
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write as _;

const REPLAYERS: [(&str, &str, &[&str]); 4] = [
    ("ours", "ours", &[]),
    ("clock", "DED-CLOCK", &["--scheme", "clock"]),
    ("sleep", "SLEEP", &["--scheme", "sleep"]),
    ("select", "SELECT", &["--scheme", "select"]),
];

/// The section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    lab.text += "\n## A benchmark, traced, replayed, compared with itself\n\nSixteen users read \
        (70 %) and write 4 KiB at random places of a file, past the page cache (`--direct`), each \
        thinking 1 ms on average between an answer and the next. Every I/O is written down; then \
        they are issued again when they were issued, on the same file. `upcall load compare` of \
        each replay with the original: distances are between distributions (Kolmogorov and \
        Smirnov, 0 to 1), the correlation is that of the counts in each 10 ms. The benchmark run \
        a second time, with other random numbers, stands beside: what is nearer than that cannot \
        be told from it.\n";
    lab.tell("a benchmark and its replays");
    let a = lab.scratch("a.records");
    let mut runs = vec![("the benchmark", ours::records(benchmark(lab, "1", &a)?.as_ref())?)];
    let mut compared = Vec::new();
    for (name, shown, options) in REPLAYERS {
        let b = lab.scratch(&format!("b-{name}.records"));
        let target = lab.direct.display().to_string();
        let mut words = vec!["replay", &a, "--target", &target, "--direct", "--destroy"];
        words.extend(["--records", &b]);
        words.extend(options);
        lab.load(&words)?;
        compared.push((shown, load(&["compare", &a, &b])?));
        runs.push((shown, ours::records(b.as_ref())?));
    }
    let again = lab.scratch("again.records");
    benchmark(lab, "2", &again)?;
    compared.push(("run again", load(&["compare", &a, &again])?));
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

/// Runs it; every I/O is in a file then.
fn benchmark(lab: &mut Lab, seed: &str, records: &str) -> Result<String> {
    let target = lab.direct.display().to_string();
    let seconds = lab.of("5", "0.5");
    let words = [
        "--target",
        &target,
        "--direct",
        "--destroy",
        "--users",
        "16",
        "--think",
        "1ms",
        "--mix",
        "read=70,write=30",
        "--seconds",
        seconds,
        "--seed",
        seed,
        "--records",
        records,
    ];
    lab.load(&words)?;
    Ok(records.to_owned())
}

fn table(lab: &mut Lab, compared: &[(&str, Value)]) {
    lab.text += "\n| | I/Os | issued within 10 µs of the original, % | service: distance | mean \
        ratio | p99 ratio | response: distance | mean ratio | queue: distance | mean ratio | \
        bursts in 10 ms: correlation |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for (name, said) in compared {
        let of = |path: &str| number(said, path);
        let within = of("/issue/within/1") * 100.0 / of("/issue/apart/count");
        let within = if *name == "run again" { "–".to_owned() } else { percent(within) };
        let quantile = |wanted: f64| {
            let all = said.pointer("/service/quantiles").and_then(Value::as_array);
            let found = all
                .into_iter()
                .flatten()
                .find(|one| (number(one, "/quantile") - wanted).abs() < 1e-9);
            found.map_or(f64::NAN, |one| number(one, "/ratio"))
        };
        let _ = writeln!(
            lab.text,
            "| {name} | {} | {within} | {:.3} | {:.2} | {:.2} | {:.3} | {:.2} | {:.3} | {:.2} \
             | {} |",
            of("/runs/b/issued"),
            of("/service/distance"),
            of("/service/mean_ratio"),
            quantile(0.99),
            of("/response/distance"),
            of("/response/mean_ratio"),
            of("/queue_distance"),
            of("/queue_mean_ratio"),
            correlation(said),
        );
    }
    let first = compared.first().map(|(_, said)| said);
    let mean = |path: &str| first.map_or(f64::NAN, |said| number(said, path));
    let _ = writeln!(
        lab.text,
        "\nThe benchmark itself: {} I/Os, service {} on average, {:.2} under way.",
        mean("/runs/a/issued"),
        time(mean("/runs/a/service/mean")),
        mean("/runs/a/queue_mean"),
    );
}

/// How well the counts of each 10 ms go together.
fn correlation(said: &Value) -> String {
    let all = said.pointer("/bursts").and_then(Value::as_array);
    let found = all.into_iter().flatten().find(|burst| number(burst, "/width_ns") == 1e7);
    found.map_or("–".to_owned(), |burst| format!("{:.4}", number(burst, "/correlation")))
}

fn issued(record: &Record) -> u64 {
    record.issued
}

fn scheduled(record: &Record) -> u64 {
    record.scheduled
}

/// How many there were in each interval of so many milliseconds, by time in seconds.
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

/// Figure 10: the bursts of a trace, and those that were made of it.
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
