//! §6.3, last part: maximum rate of I/Os, against a special-purpose program and fio.

use super::spread::range;
use super::{Lab, fio};
use crate::instrument::number;
use anyhow::{Context, Result};
use rig::sh;
use std::fmt::Write as _;
use std::path::Path;

/// Generator of I/Os.
#[derive(Clone, Copy)]
enum Maker {
    /// Ours with a ring, or on the null target, with this number of users.
    Ours(u32),
    /// Ours with one thread of blocking `pread` calls.
    Calls,
    /// The special-purpose loop: `pread`, or a ring of this depth.
    Special(Option<u32>),
    /// fio: an engine and a depth.
    Fio(&'static str, u32),
}

impl Maker {
    fn is_ours(self) -> bool {
        match self {
            Maker::Ours(_) | Maker::Calls => true,
            Maker::Special(_) | Maker::Fio(..) => false,
        }
    }

    fn name(self) -> String {
        match self {
            Maker::Ours(depth) => format!("ours, {depth} in flight"),
            Maker::Calls => "ours, pread, one thread".to_owned(),
            Maker::Special(None) => "special-purpose loop, pread".to_owned(),
            Maker::Special(Some(depth)) => {
                format!("special-purpose loop, io_uring, {depth} in flight")
            }
            Maker::Fio(engine, depth) => format!("fio {engine}, {depth} in flight"),
        }
    }

    /// Returns the I/Os per second.
    fn run(self, lab: &mut Lab, target: Option<&Path>) -> Result<f64> {
        let seconds = lab.of(2.0, 0.2);
        let text = seconds.to_string();
        let place = target.map_or("null".to_owned(), |path| format!("file:{}", path.display()));
        let mut words = vec!["--target", &place, "--seconds", &text];
        let users;
        match self {
            Maker::Ours(depth) => {
                users = depth.to_string();
                words.extend(["--users", &users]);
                Ok(number(&lab.load(&words)?, "/rate"))
            }
            Maker::Calls => {
                words.extend(["--users", "1", "--workers", "1", "--engine", "threads"]);
                Ok(number(&lab.load(&words)?, "/rate"))
            }
            Maker::Special(depth) => special(target.context("it reads files")?, depth, &text),
            Maker::Fio(engine, depth) => fio::most(engine, depth, target, seconds),
        }
    }
}

const ON_NULL: [Maker; 4] =
    [Maker::Ours(32), Maker::Ours(128), Maker::Fio("null", 32), Maker::Fio("null", 128)];

const ON_FILES: [Maker; 9] = [
    Maker::Ours(32),
    Maker::Ours(128),
    Maker::Calls,
    Maker::Special(None),
    Maker::Special(Some(32)),
    Maker::Special(Some(128)),
    Maker::Fio("psync", 1),
    Maker::Fio("io_uring", 32),
    Maker::Fio("io_uring", 128),
];

fn special(target: &Path, depth: Option<u32>, seconds: &str) -> Result<f64> {
    let binary = sh::target().join("release/examples/special").display().to_string();
    let target = target.display().to_string();
    let depth_text = depth.unwrap_or(1).to_string();
    let how = if depth.is_some() { "uring" } else { "pread" };
    let printed = sh::read(&mut sh::cmd(&binary, &[how, &target, seconds, &depth_text]))?;
    printed.trim().parse().with_context(|| format!("output of the loop: {printed}"))
}

/// Measures the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    lab.text += "\n## As many as possible\n\nRandom reads of 4 KiB, as many as there can be. The \
        special-purpose loop knows its work beforehand, never looks at the clock between I/Os, and \
        keeps nothing; ours has a filament draw each I/O when another one has ended, stamps three \
        times of each and puts them into histograms. fio is told to leave most of its clock away \
        (`gtod_reduce`), to submit and reap half its depth at once, and to register file and \
        memory. All in turn, the order reversed in every other round; the ratio is that of the \
        best of ours to the other in the same round: median and range.\n";
    lab.warm()?;
    let cached = lab.cached.clone();
    target(lab, "null", None, &ON_NULL)?;
    target(lab, "/dev/zero", Some(Path::new("/dev/zero")), &ON_FILES)?;
    target(lab, "a file in the page cache", Some(&cached), &ON_FILES)?;
    lab.quote(
        "the maximum throughput we could achieve using the special-purpose program was 44000 \
         IOPS … Buttress could issue I/Os at 40000 IOPS, only 10% less",
        "§6.3",
    );
    lab.text += "\nWhere the ratio is below one, ours loses. On *null* there is nothing but what \
        it does itself for each I/O: a call of the filament, a place in a queue, stamps, a record, \
        two histograms. fio's null engine is told to do without most of its stamps. Against the \
        special-purpose loops the difference is the whole price of being general.\n";
    Ok(())
}

fn target(lab: &mut Lab, name: &str, path: Option<&Path>, makers: &[Maker]) -> Result<()> {
    lab.tell(&format!("as many as possible on {name}"));
    let mut rates = vec![Vec::new(); makers.len()];
    for round in 0..lab.of(5, 1) {
        let mut order: Vec<usize> = (0..makers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            rates[index].push(makers[index].run(lab, path)?);
        }
    }
    let rounds = rates[0].len();
    let best = |round: usize| {
        let ours = makers.iter().zip(&rates).filter(|(maker, _)| maker.is_ours());
        ours.map(|(_, rates)| rates[round]).fold(0.0, f64::max)
    };
    let best: Vec<f64> = (0..rounds).map(best).collect();
    let _ = write!(
        lab.text,
        "\n| on {name} | I/Os a second | best of ours / it |\n\
         |---|--:|--:|\n"
    );
    for (maker, rates) in makers.iter().zip(&rates) {
        let ratios: Vec<f64> = best.iter().zip(rates).map(|(best, rate)| best / rate).collect();
        let ratio = range(&ratios, &|ratio| format!("{ratio:.2}"));
        let thousands = range(rates, &|rate| format!("{:.0} k", rate / 1000.0));
        let _ = writeln!(lab.text, "| {} | {thousands} | {ratio} |", maker.name());
    }
    Ok(())
}
