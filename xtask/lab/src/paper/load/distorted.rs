//! Figures 9 and 2: effect of issue errors on measurements.

use super::Lab;
use super::spread::{range, time};
use crate::instrument::number;
use anyhow::Result;
use std::fmt::Write as _;

/// Distortions of the times, and their options.
const WAYS: [(&str, &[&str]); 10] = [
    ("as it is", &[]),
    ("Q-1: quantized, 1 ms", &["--quantize", "1ms"]),
    ("Q-4", &["--quantize", "4ms"]),
    ("Q-10", &["--quantize", "10ms"]),
    ("UD-1: delayed, mean 1 ms", &["--delay", "1ms"]),
    ("UD-4", &["--delay", "4ms"]),
    ("UD-10", &["--delay", "10ms"]),
    ("DED-CLOCK", &["--scheme", "clock"]),
    ("SLEEP", &["--scheme", "sleep"]),
    ("SELECT", &["--scheme", "select"]),
];

/// Traces: name, file, options, rounds.
const TRACES: [(&str, &str, &[&str], usize); 2] = [
    ("tpcc", "tpcc-small.mqsim.trace", &[], 9),
    ("cloudphysics", "cloudphysics.vscsi", &["--from", "1779s", "--until", "1799s"], 1),
];

#[derive(Default)]
struct Row {
    response: Vec<f64>,
    service: Vec<f64>,
    queue: Vec<f64>,
}

/// Measures the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    lab.text += "\n## What errors of issue times do\n\nThe traces on the device (`--direct`, read \
        only), at their times, at times that are spoilt in a known way, and by the naive \
        replayers. Spoilt times are the schedule then: response is measured from them, as one \
        would who did not know. Medians over the rounds, and how many times as much as without \
        spoiling in the same round.\n";
    for (name, file, part, rounds) in lab.of(&TRACES[..], &TRACES[..1]) {
        lab.tell(&format!("spoilt times of {name}"));
        let ways = lab.of(&WAYS[..], &WAYS[..3]);
        let mut rows: Vec<Row> = ways.iter().map(|_| Row::default()).collect();
        for _ in 0..lab.of(*rounds, 1) {
            for (row, (_, options)) in rows.iter_mut().zip(ways) {
                one(lab, file, part, options, row)?;
            }
        }
        table(lab, name, ways, &rows);
    }
    lab.quote(
        "the mean response time changes as much as 37% for the harp workload and 19% for the \
         omail workload. … (mean queue size) is more dramatic: as much as 11 times for the harp \
         workload and five times for the omail workload",
        "Figure 9; with SELECT 3.5 times the response and 26 times the queue, Figure 2",
    );
    Ok(())
}

fn one(lab: &mut Lab, file: &str, part: &[&str], options: &[&str], row: &mut Row) -> Result<()> {
    let trace = lab.traces.join(file).display().to_string();
    let target = lab.direct.display().to_string();
    let mut words = vec!["replay", &trace, "--target", &target, "--direct", "--read-only"];
    words.extend(part);
    words.extend(options);
    let printed = lab.load(&words)?;
    row.response.push(number(&printed, "/times/together/response/mean"));
    row.service.push(number(&printed, "/times/together/service/mean"));
    row.queue.push(number(&printed, "/queue/mean"));
    Ok(())
}

fn table(lab: &mut Lab, name: &str, ways: &[(&str, &[&str])], rows: &[Row]) {
    let _ = write!(
        lab.text,
        "\n| {name} | mean response | times as much | mean service | times as much | mean queue \
         | times as much |\n|---|--:|--:|--:|--:|--:|--:|\n"
    );
    let times = |of: &[f64], base: &[f64]| {
        let ratios: Vec<f64> = of.iter().zip(base).map(|(of, base)| of / base).collect();
        range(&ratios, &|ratio| format!("{ratio:.2}"))
    };
    let middle = |of: &[f64]| crate::bench::table::median(of.iter().copied());
    for ((way, _), row) in ways.iter().zip(rows) {
        let _ = writeln!(
            lab.text,
            "| {way} | {} | {} | {} | {} | {:.2} | {} |",
            time(middle(&row.response)),
            times(&row.response, &rows[0].response),
            time(middle(&row.service)),
            times(&row.service, &rows[0].service),
            middle(&row.queue),
            times(&row.queue, &rows[0].queue),
        );
    }
}
