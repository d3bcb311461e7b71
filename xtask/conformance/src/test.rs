//! The tests of `cargo xtask test`, after its build: unit tests, suites, models, simulation,
//! fuzzers and the book, as concurrent processes.

use crate::parts;
use anyhow::{Context as _, Result};
use rig::lanes::{self, Part};
use rig::report::Report;
use rig::server::Kind;
use rig::sh;
use std::process::Command;

/// Suites that also run over the reactor with threads: by default, and with `--long`.
const BY_THREADS: &[&str] = &["http", "9p2000", "diod", "cancel"];
const BY_THREADS_LONG: &[&str] = &["http", "9p2000", "diod", "pjdfstest", "kernel", "cancel"];

/// Runs all tests. Returns whether everything passed.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    let long = args.iter().any(|word| word == "--long");
    let mut report = Report::default();
    report.long = long;
    // One stage: at the end of a stage processors idle until its last part ends.
    report.stage("all tests", |report| {
        let mut all = vec![unit()?];
        all.extend(parts(report, &[], Kind::Uring)?);
        let by_threads = if long { BY_THREADS_LONG } else { BY_THREADS };
        all.extend(parts(report, by_threads, Kind::Threads)?);
        let book = if long { &["book"][..] } else { &["book", "--pages"] };
        all.push(Part::single("book", built("xtask", book)));
        all.push(Part::single("models", built("model", &["smoke"])));
        all.push(Part::single("simulation", built("sim", &["smoke"])));
        all.push(Part::single("fuzzers", built("sim", &["fuzz", "smoke"])));
        lanes::run(report, all);
        Ok(())
    });
    Ok(report.finish())
}

/// Returns the unit tests. Those of the program mostly wait for servers and timers, so more of them
/// run concurrently than there are processors.
fn unit() -> Result<Part> {
    let mut cargo = sh::cargo(&["test", "--workspace", "--no-fail-fast"]);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        cargo.env("RUST_TEST_THREADS", (lanes::processors() + 2).to_string());
    }
    // Tests run in the directories of their crates, so the path must be absolute.
    let guests = sh::scratch("guests")?.canonicalize().context("the directory of guests")?;
    cargo.env("UPCALL_GUESTS", guests);
    Ok(Part { sum: result, ..Part::single("cargo test", cargo) })
}

/// Returns a program of the workspace, as built with the unit tests.
fn built(program: &str, words: &[&str]) -> Command {
    let program = sh::target().join("debug").join(program);
    sh::cmd(&program.display().to_string(), words)
}

/// Parses the figures of a `test result:` line.
fn result(line: &str) -> Option<(u32, u32)> {
    let rest = line.strip_prefix("test result: ")?;
    let figure = |label: &str| {
        rest.split([';', '.']).find_map(|part| part.trim().strip_suffix(label)?.trim().parse().ok())
    };
    Some((figure("passed")?, figure("failed")?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sum_of_a_test_run_is_read() {
        let line = "test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured; 1 filtered out";
        assert_eq!(super::result(line), Some((7, 2)));
        assert_eq!(super::result("running 3 tests"), None);
    }
}
