//! Figure 7: issue error against rate, also beside a busy neighbour.

use super::Lab;
use super::neighbour::Neighbour;
use super::ours::bare;
use super::spread::{percent, range, time};
use crate::bench::table::median;
use crate::instrument::{self, number};
use crate::paper::plot::{Axes, Figure};
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write as _;

const RATES: [u32; 9] = [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000];
const FEW: [u32; 2] = [10_000, 100_000];

/// Targets, with and without a neighbour.
const CASES: [(bool, bool, &str); 4] = [
    (false, false, "null, quiet"),
    (true, false, "file, quiet"),
    (false, true, "null, beside a busy neighbour"),
    (true, true, "file, beside a busy neighbour"),
];

/// Rounds of one rate.
#[derive(Default)]
struct Row {
    rate: u32,
    within: Vec<f64>,
    mean: Vec<f64>,
    p99: Vec<f64>,
    max: Vec<f64>,
    bare: Vec<f64>,
    reached: Vec<f64>,
    waits: String,
}

/// Measures the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    lab.text += "\n## Issue error against rate\n\nI/Os of 4 KiB at equal distances, on *null*, \
        which does nothing, and on a file in the page cache: there by the kernel's witness. The \
        neighbour is one process for each processor that only spins, at ordinary priority. Beside \
        each stands what a bare loop lost that only reads the clock at ordinary priority, just \
        before and after. Medians, and ranges over the rounds.\n";
    lab.warm()?;
    let mut lines = Vec::new();
    for (file, neighbour, name) in CASES {
        let rows = rows(lab, file, neighbour, name)?;
        table(lab, name, &rows);
        let point = |row: &Row| {
            (f64::from(row.rate), (median(row.mean.iter().copied()) / 1000.0).max(0.001))
        };
        lines.push((name, rows.iter().map(point).collect::<Vec<_>>()));
    }
    let title = "Mean issue error, by rate";
    let (x, y) = ("I/Os a second", "microseconds");
    let figure = Figure { title, x, y, lines, axes: Axes::Logarithmic };
    lab.figure("load-rate", &figure)?;
    lab.quote(
        "Buttress can issue I/O requests within 100 μs of the desired issue time even at rates of \
         10000 I/Os per second (IOPS)",
        "its summary; Figure 7 shows it",
    );
    Ok(())
}

fn rows(lab: &mut Lab, file: bool, neighbour: bool, name: &str) -> Result<Vec<Row>> {
    let rates = lab.of(&RATES[..], &FEW[..]);
    let rounds = lab.of(3, 1);
    let mut rows: Vec<_> = rates.iter().map(|rate| Row { rate: *rate, ..Row::default() }).collect();
    let _neighbour = neighbour.then(Neighbour::start).transpose()?;
    for round in 0..rounds {
        lab.tell(&format!("rates on {name}, round {}", round + 1));
        for row in &mut rows {
            let printed = one(lab, row.rate, file)?;
            if !neighbour {
                lab.bare.push(bare(&printed));
            }
            row.add(&printed, file);
        }
    }
    Ok(rows)
}

fn one(lab: &Lab, rate: u32, file: bool) -> Result<Value> {
    let (rate, target) = (rate.to_string(), lab.cached.display().to_string());
    let seconds = lab.of("2", "0.5");
    let mut words = vec!["--rate", &rate, "--arrival", "uniform", "--seconds", seconds];
    if file {
        words.extend(["--target", &target, "--witness"]);
    } else {
        words.extend(["--target", "null"]);
    }
    instrument::run(&words, None)
}

impl Row {
    fn add(&mut self, printed: &Value, witness: bool) {
        let (near, times) = match witness {
            true => ("/witness/within", "/witness/lateness"),
            false => ("/within", "/times/together/lateness"),
        };
        let count = number(printed, &format!("{times}/count"));
        let limits = printed.pointer(near).and_then(Value::as_array).into_iter().flatten();
        let ten = limits.filter(|near| number(near, "/limit_ns") <= 10_000.0);
        let ten = ten.map(|near| number(near, "/count")).fold(f64::NAN, f64::max);
        self.within.push(ten * 100.0 / count);
        self.mean.push(number(printed, &format!("{times}/mean")));
        self.p99.push(number(printed, &format!("{times}/p99")));
        self.max.push(number(printed, &format!("{times}/max")));
        self.bare.push(bare(printed) * 100.0);
        self.reached.push(number(printed, "/rate"));
        let policies = printed.pointer("/machine/policies").and_then(Value::as_array);
        let last = policies.and_then(|policies| policies.last()?.get(1)?.as_str());
        let word = last.unwrap_or("?").split(':').next().unwrap_or("?");
        if !self.waits.split(", ").any(|known| known == word) {
            let comma = if self.waits.is_empty() { "" } else { ", " };
            let _ = write!(self.waits, "{comma}{word}");
        }
    }
}

fn table(lab: &mut Lab, name: &str, rows: &[Row]) {
    let _ = write!(
        lab.text,
        "\n### {name}\n\n| asked for | reached | within 10 µs, % | mean | p99 | max | a bare loop \
         loses, % | waits by |\n|--:|--:|--:|--:|--:|--:|--:|---|\n"
    );
    for row in rows {
        let _ = writeln!(
            lab.text,
            "| {} | {:.0} | {} | {} | {} | {} | {} | {} |",
            row.rate,
            median(row.reached.iter().copied()),
            range(&row.within, &percent),
            range(&row.mean, &time),
            range(&row.p99, &time),
            range(&row.max, &time),
            range(&row.bare, &percent),
            row.waits,
        );
    }
}
