//! `cargo xtask test [--long]`: everything, from a clean clone on a fresh Debian machine; with
//! `--long` suites take longer, and more of them run, also over the reactor with threads.
//!
//! Missing packages are installed first (apt-get prints which and why). Then the workspace and the
//! storelet programs of the tests are built, which takes minutes only once. The unit tests, a short
//! simulation, every fuzzer briefly, and the conformance suites run as concurrent processes. The
//! last line is the total: `N passed, N failed`.

use crate::lanes::{self, Part};
use crate::report::Report;
use crate::server::Kind;
use crate::{conformance, sh};
use anyhow::{Context as _, Result, bail};
use std::process::Command;

/// Suites that also run over the reactor with threads: by default, and with `--long`.
const BY_THREADS: &[&str] = &["http", "9p2000", "diod", "cancel"];
const BY_THREADS_LONG: &[&str] = &["http", "9p2000", "diod", "pjdfstest", "kernel", "cancel"];

/// Runs the command. Returns whether everything passed.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    let long = match args {
        [] => false,
        [word] if word == "--long" => true,
        _ => bail!("usage: cargo xtask test [--long]"),
    };
    let mut report = Report::default();
    report.long = long;
    // One build of everything: a program built separately has dependencies with fewer features,
    // which would be rebuilt.
    let build = sh::cargo(&["build", "--workspace", "--bins", "--tests"]);
    let guests = sh::cmd(&sh::own_path()?.display().to_string(), &["guests"]);
    lanes::run(&mut report, vec![part("build", build), part("guests", guests)]);
    if report.has_failed("build") {
        return Ok(report.finish());
    }
    // One stage: at the end of a stage processors idle until its last part ends.
    report.stage("all tests", |report| {
        let mut parts = vec![unit()?];
        parts.extend(conformance::parts(report, &[], Kind::Uring)?);
        let by_threads = if long { BY_THREADS_LONG } else { BY_THREADS };
        parts.extend(conformance::parts(report, by_threads, Kind::Threads)?);
        let book = if long { &["book"][..] } else { &["book", "--pages"] };
        parts.push(part("book", sh::cmd(&sh::own_path()?.display().to_string(), book)));
        parts.push(part("models", built("model", &["smoke"])));
        parts.push(part("simulation", built("sim", &["smoke"])));
        parts.push(part("fuzzers", built("sim", &["fuzz", "smoke"])));
        lanes::run(report, parts);
        Ok(())
    });
    Ok(report.finish())
}

/// Returns a part that is one case.
fn part(title: &str, command: Command) -> Part {
    Part { title: title.to_owned(), command, uses: title.to_owned(), alone: false, sum: |_| None }
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
    Ok(Part { sum: result, ..part("cargo test", cargo) })
}

/// Runs `cargo xtask sim [SEED] …`, or another subcommand of the simulator.
pub(crate) fn sim(args: &[String]) -> Result<()> {
    let word = args.first().map_or("", String::as_str);
    let run = word.is_empty() || word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    sh::run(program("sim")?.args(run.then_some("run")).args(args))
}

/// Runs `cargo xtask model …`.
pub(crate) fn model(args: &[String]) -> Result<()> {
    sh::run(program("model")?.args(args))
}

/// Runs `cargo xtask fuzz …`, with seeds.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    sh::run(program("sim")?.arg("fuzz").args(args))
}

/// Returns a program of the workspace in a release build.
fn program(package: &str) -> Result<Command> {
    sh::build_optimised()?;
    let program = sh::target().join("release").join(package);
    Ok(sh::cmd(&program.display().to_string(), &[""; 0]))
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
