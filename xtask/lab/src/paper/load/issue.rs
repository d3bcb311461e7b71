//! Figures 4 and 5: issue error of the I/Os of real traces.

use super::ours::{self, Record};
use super::spread::{LIMITS, Spread, percent, time};
use super::{Lab, fio};
use crate::paper::plot::{Axes, Figure};
use anyhow::Result;
use std::fmt::Write as _;

/// A part of a trace.
struct Piece {
    name: &'static str,
    file: &'static str,
    what: &'static str,
    part: &'static [&'static str],
    /// Number of replays.
    rounds: usize,
}

const PIECES: [Piece; 3] = [
    Piece {
        name: "tpcc",
        file: "tpcc-small.mqsim.trace",
        what: "a database under TPC-C, 6,999 I/Os in 136 ms",
        part: &[],
        rounds: 10,
    },
    Piece {
        name: "cloudphysics",
        file: "cloudphysics.vscsi",
        what: "a virtual machine's disk, 1,779 s to 1,799 s, its busiest",
        part: &["--from", "1779s", "--until", "1799s"],
        rounds: 1,
    },
    Piece {
        name: "tpch",
        file: "small-tpch.hfplayer.csv",
        what: "a database under TPC-H, 780 I/Os in 925 ms",
        part: &[],
        rounds: 5,
    },
];

/// Replayer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Ours,
    Witnessed,
    Naive(&'static str),
    Fio(&'static str),
}

const TOOLS: [(Tool, &str); 7] = [
    (Tool::Ours, "ours"),
    (Tool::Witnessed, "ours, by the kernel's witness"),
    (Tool::Naive("clock"), "DED-CLOCK"),
    (Tool::Naive("sleep"), "SLEEP"),
    (Tool::Naive("select"), "SELECT"),
    (Tool::Fio("psync"), "fio psync"),
    (Tool::Fio("io_uring"), "fio io_uring"),
];

/// Measures the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    lab.text += "\n## Issue error\n\nReal traces, read only, on a file in the page cache. *Ours* \
        and the naive replayers (SELECT and SLEEP with 64 threads, DED-CLOCK with 8 and one that \
        spins) stamp each I/O just before the call; the *witness* is the kernel's own trace, with \
        which ours is measured again, and fio alone. fio gets the same schedule, in microseconds, \
        and its clock is set so that none of its I/Os is early and the earliest in time; ours is \
        not shifted. Percent of the I/Os issued within so much of their time, all rounds \
        together.\n";
    let pieces = lab.of(&PIECES[..], &PIECES[..1]);
    for piece in pieces {
        for speed in lab.of(&["1", "4"][..], &["1"]) {
            one(lab, piece, speed)?;
        }
    }
    lab.quote(
        "Buttress issues about 98% of the I/Os in the omail workload within 10 μs of the actual \
         time in the original workload and 95% of the I/Os in the harp workload within less than \
         50 μs of their actual time … both SLEEP and SELECT could achieve 1 millisecond of issue \
         accuracy for only about 30% … DED-CLOCK … 89% of the I/Os in the harp trace and 60% of \
         the I/Os in the omail trace within 100 μs. [Fourfold speed:] 92% of the I/Os in the harp \
         workload and the 90% … in the omail workload are issued within 50 μs",
        "Figures 4 and 5",
    );
    lab.text += "\nThe paper's clock ticked every 10 ms; Linux has timers of its own for each \
        sleep, which end some 60 µs late (50 of them by design), so SELECT and SLEEP are far \
        better here than there. fio falls behind: it waits so long *after* what it did before, \
        and what was late stays late. Ours loses \
        where the trace has several I/Os at one time and large ones, which are copied from the \
        page cache by whoever issues them: the second waits for the first.\n";
    Ok(())
}

fn one(lab: &mut Lab, piece: &Piece, speed: &str) -> Result<()> {
    lab.tell(&format!("{} at speed {speed}", piece.name));
    lab.warm()?;
    let rounds = lab.of(piece.rounds, 1);
    let mut errors = vec![Vec::new(); TOOLS.len()];
    let mut schedule = Vec::new();
    for _ in 0..rounds {
        for (errors, (tool, _)) in errors.iter_mut().zip(TOOLS) {
            if let Tool::Fio(engine) = tool {
                errors.extend(fio::replay(&schedule, &lab.cached, engine, &lab.base)?);
                continue;
            }
            let records = replay(lab, piece, speed, tool)?;
            errors.extend(records.iter().filter_map(|record| error(record, tool)));
            if tool == Tool::Ours {
                schedule = records;
            }
        }
    }
    let spreads: Vec<_> = errors.into_iter().map(Spread::of).collect();
    table(lab, piece, speed, &spreads);
    crowding(lab, &schedule);
    verdict(lab, &spreads);
    let named = TOOLS.iter().zip(&spreads).map(|((_, name), spread)| (*name, spread.curve()));
    let title = format!("Issue error of {}, speed {speed}", piece.name);
    let lines = named.collect();
    let (x, y) = ("microseconds", "% of the I/Os");
    let figure = Figure { title: &title, x, y, lines, axes: Axes::LogarithmicX };
    lab.figure(&format!("load-issue-{}-{speed}", piece.name), &figure)?;
    if piece.rounds == 1 {
        super::itself::bursts(lab, piece.name, speed, &schedule)?;
    }
    Ok(())
}

/// Runs one replay with `upcall load`.
fn replay(lab: &mut Lab, piece: &Piece, speed: &str, tool: Tool) -> Result<Vec<Record>> {
    let trace = lab.traces.join(piece.file).display().to_string();
    let (target, records) = (lab.cached.display().to_string(), lab.scratch("issue.records"));
    let mut words = vec!["replay", &trace, "--target", &target, "--read-only"];
    words.extend(["--speed", speed, "--records", &records]);
    words.extend(piece.part);
    match tool {
        Tool::Witnessed => words.push("--witness"),
        Tool::Naive(scheme) => words.extend(["--scheme", scheme]),
        Tool::Ours | Tool::Fio(_) => {}
    }
    lab.load(&words)?;
    ours::records(records.as_ref())
}

fn error(record: &Record, tool: Tool) -> Option<u64> {
    let at = if tool == Tool::Witnessed { record.witnessed } else { Some(record.issued) };
    at.map(|at| at.saturating_sub(record.scheduled))
}

fn table(lab: &mut Lab, piece: &Piece, speed: &str, spreads: &[Spread]) {
    let times = if speed == "1" { "original speed" } else { "fourfold speed" };
    let _ = write!(lab.text, "\n### {}, {times}\n\n{}.\n\n| |", piece.name, piece.what);
    LIMITS.iter().for_each(|(_, limit)| {
        let _ = write!(lab.text, " ≤ {limit} |");
    });
    lab.text += " median | p99 | max |\n|---|";
    lab.text += &"--:|".repeat(LIMITS.len() + 3);
    lab.text.push('\n');
    for ((_, name), spread) in TOOLS.iter().zip(spreads) {
        let _ = write!(lab.text, "| {name} |");
        for (limit, _) in LIMITS {
            let _ = write!(lab.text, " {} |", percent(spread.within(limit)));
        }
        let [median, p99, max] = [0.5, 0.99, 1.0].map(|share| time(spread.at(share) as f64));
        let _ = writeln!(lab.text, " {median} | {p99} | {max} |");
    }
}

/// Reports the gaps between scheduled I/Os, and how long each occupies its issuer.
fn crowding(lab: &mut Lab, schedule: &[Record]) {
    let pairs = schedule.windows(2);
    let gaps = Spread::of(pairs.map(|pair| pair[1].scheduled - pair[0].scheduled).collect());
    let took = schedule.iter().map(|record| record.completed.saturating_sub(record.issued));
    let _ = write!(
        lab.text,
        "\nOf these I/Os {} % come less than 10 µs after the one before, {} % at the same \
         microsecond; reading takes {} (median of ours), on the processor of who issues.\n",
        percent(gaps.within(9_999)),
        percent(gaps.within(999)),
        time(Spread::of(took.collect()).at(0.5) as f64),
    );
}

/// Reports whether ours, by witness, beats fio's better engine at every percentile.
fn verdict(lab: &mut Lab, spreads: &[Spread]) {
    let of = |wanted: Tool| TOOLS.iter().position(|(tool, _)| *tool == wanted);
    let spread = |tool| of(tool).map(|index| &spreads[index]);
    let Some(ours) = spread(Tool::Witnessed).filter(|spread| !spread.is_empty()) else { return };
    for engine in ["psync", "io_uring"] {
        let Some(other) = spread(Tool::Fio(engine)) else { continue };
        let worse = ours.worse_than(other);
        let printed = match worse.as_slice() {
            [] => "at every percentile".to_owned(),
            [first, ..] => {
                format!("except at {} percentiles, the first {first} %", worse.len())
            }
        };
        let _ = write!(lab.text, "\nOurs by witness is nearer than fio with {engine} {printed}.");
    }
    lab.text.push('\n');
}
