//! Renders a synthetic run in every report format: `cargo run -p load --example report DIRECTORY`.
//!
//! 200,000 I/Os at 20,000 per second, drawn from a seed. The machine steals the processor 40 times,
//! and I/Os due in a gap are issued immediately after it.

use load::compare::{Tolerance, compare};
use load::io::{Cause, Io, Kind, Outcome, Record};
use load::records::Writer;
use load::report::{Run, Title, fio, hdr, html, json, text};
use load::statistics::{Gap, Machine, Spin, Statistics};
use load::verdict::{Thresholds, Verdict};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

const COUNT: u64 = 200_000;
const RATE: f64 = 20_000.0;

fn main() -> std::io::Result<()> {
    let to = PathBuf::from(std::env::args().nth(1).expect("the directory to write to is given"));
    fs::create_dir_all(&to)?;
    let mut rng = fastrand::Rng::with_seed(7);
    let machine = machine(&mut rng);
    let records = records(&mut rng, &machine.gaps);
    let mut statistics = Statistics::default();
    for batch in records.chunks(256) {
        statistics.add(batch);
    }
    let title = Title {
        target: "/data/<volume> & more".to_owned(),
        workload: "Poisson, 70 % reads of 4 KiB".to_owned(),
        asked_rate: Some(RATE),
        started: "2026-11-20 20:00:00 UTC".to_owned(),
        started_unix_ns: 1_795_204_800_000_000_000,
        host: "example".to_owned(),
        version: "0.1.0".to_owned(),
    };
    let verdict = Verdict::of(&statistics, &machine, title.asked_rate, &Thresholds::default());
    let run = Run { title: &title, statistics: &statistics, machine: &machine, verdict: &verdict };
    for second in 1..=3 {
        println!("{}", text::progress(&statistics, second * 1_000_000_000));
    }
    println!("{}", text::report(&run));
    fs::write(to.join("report.txt"), text::report(&run))?;
    fs::write(to.join("report.json"), json::report(&run))?;
    fs::write(to.join("fio.json"), fio::report(&run))?;
    fs::write(to.join("report.html"), html::report(&run))?;
    hdr::write(&run, &mut fs::File::create(to.join("report.hlog"))?)?;
    let mut writer = Writer::new(fs::File::create(to.join("report.records"))?, 0)?;
    writer.add(&records)?;
    writer.finish()?;
    compare_with_a_sleeper(&records, &to)
}

/// Compares the run with a replay that sleeps in steps of 1 ms.
fn compare_with_a_sleeper(records: &[Record], to: &Path) -> std::io::Result<()> {
    let sleeper = |record: &Record| {
        let late_ns = 1_000_000 - record.scheduled_ns % 1_000_000;
        let (issued_ns, service_ns) = (record.scheduled_ns + late_ns, record.service_ns());
        let completed_ns = issued_ns + service_ns * 5 / 4;
        Ok::<_, Infallible>(Record { issued_ns, completed_ns, ..*record })
    };
    let original = records.iter().map(|record| Ok(*record));
    let Ok(comparison) = compare(original, records.iter().map(sleeper), &Tolerance::default());
    println!("{}", load::compare::report::text(&comparison));
    fs::write(to.join("compare.txt"), load::compare::report::text(&comparison))?;
    fs::write(to.join("compare.json"), load::compare::report::json(&comparison))?;
    let names = ["a made-up run", "the same, issued each millisecond"];
    fs::write(to.join("compare.html"), load::compare::report::html(&comparison, names))
}

/// Forty gaps, a few of them long.
fn machine(rng: &mut fastrand::Rng) -> Machine {
    let spin = |lost_ns| Spin { watched_ns: 100_000_000, lost_ns, gap_ns_max: lost_ns / 4 };
    let mut machine = Machine {
        watched_ns: 10_000_000_000,
        spin_before: Some(spin(600_000)),
        spin_after: Some(spin(970_000)),
        policies: vec![(0, "spinning at ordinary priority".to_owned())],
        clock: "tsc".to_owned(),
        recalibrations: 10,
        processors: 2,
        ..Machine::default()
    };
    for number in 0..40 {
        let start_ns = number * 250_000_000 + rng.u64(..200_000_000);
        let len_ns =
            if rng.u8(..8) == 0 { rng.u64(1..9) * 1_000_000 } else { rng.u64(9_000..90_000) };
        machine.steal(Gap { start_ns, len_ns });
    }
    machine
}

fn records(rng: &mut fastrand::Rng, gaps: &[Gap]) -> Vec<Record> {
    let mut now = 0.0;
    let mut records = Vec::new();
    for _ in 0..COUNT {
        let burst = if (now / 1e9) as u64 % 3 == 2 { 1.6 } else { 1.0 };
        now += exponential(rng, 1e9 / RATE * 1.03 / burst * 1.13);
        records.push(record(rng, now as u64, gaps));
    }
    records.sort_by_key(|record| record.completed_ns);
    records
}

fn record(rng: &mut fastrand::Rng, scheduled_ns: u64, gaps: &[Gap]) -> Record {
    let gap = gaps
        .iter()
        .find(|gap| gap.start_ns <= scheduled_ns && scheduled_ns < gap.start_ns + gap.len_ns);
    let ready_ns = gap.map_or(scheduled_ns, |gap| gap.start_ns + gap.len_ns);
    let issued_ns = ready_ns + 80 + exponential(rng, 120.0) as u64;
    let kind = if rng.u8(..10) < 7 { Kind::Read } else { Kind::Write };
    let mean = if kind == Kind::Read { 60_000.0 } else { 25_000.0 };
    let slow = if rng.u8(..50) == 0 { 2e6 } else { 0.0 };
    let service = 12_000.0 + exponential(rng, mean) + exponential(rng, slow);
    Record {
        scheduled_ns,
        issued_ns,
        completed_ns: issued_ns + service as u64,
        witnessed_ns: Some(issued_ns + 700 + rng.u64(..400)),
        io: Io { kind, file: 0, offset: rng.u64(..1 << 18) * 4096, len: 4096 },
        outcome: Outcome::Done(4096),
        cause: gap.map_or(Cause::None, |_| Cause::Stolen),
        filament: 0,
    }
}

fn exponential(rng: &mut fastrand::Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}
