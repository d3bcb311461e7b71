//! `cargo xtask test`: everything, from a clean clone on a fresh Debian machine.
//!
//! Missing packages are installed first (apt-get says which and why). Then the programs that
//! storelets are tested with, which takes minutes only once; the unit tests of the workspace, a
//! short simulation, every fuzzer for a moment, and all conformance suites. The last line is the
//! sum: `N passed, N failed`.

use crate::report::Report;
use crate::server::Kind;
use crate::{conformance, guests, sh};
use anyhow::{Context as _, Result, bail};
use std::process::Command;

/// The command. True if everything passed.
pub(crate) fn main() -> Result<bool> {
    let mut report = Report::default();
    report.stage("guests", |report| {
        report.case("guests", programs);
        Ok(())
    });
    report.stage("cargo test --workspace", unit);
    report.stage("models", |report| smoke(report, "model", &["smoke"]));
    report.stage("simulation", |report| smoke(report, "sim", &["smoke"]));
    report.stage("fuzzers", |report| smoke(report, "sim", &["fuzz", "smoke"]));
    report.stage("conformance", |report| conformance::run(report, &[], Kind::Uring));
    report.stage("conformance of the other reactor", |report| {
        let names = ["http", "9p2000", "diod", "pjdfstest", "cancel"];
        conformance::run(report, &names, Kind::Threads)
    });
    Ok(report.finish())
}

/// `cargo xtask sim [SEED] …`, or one of the simulator's other words.
pub(crate) fn sim(args: &[String]) -> Result<()> {
    let word = args.first().map_or("", String::as_str);
    let run = word.is_empty() || word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    sh::run(program("sim").args(run.then_some("run")).args(args))
}

/// `cargo xtask model …`.
pub(crate) fn model(args: &[String]) -> Result<()> {
    sh::run(program("model").args(args))
}

/// `cargo xtask fuzz …`.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    sh::run(program("sim").arg("fuzz").args(args))
}

/// A program of the workspace, optimised.
fn program(package: &str) -> Command {
    sh::cargo(&["run", "--quiet", "--release", "-p", package, "--"])
}

/// A program of the workspace, as it was built with the unit tests.
fn smoke(report: &mut Report, program: &str, words: &[&str]) -> Result<()> {
    let mut command = Command::new(sh::target().join("debug").join(program));
    let name = format!("{program}/{}", words.join("/"));
    report.case(&name, || sh::run(command.args(words)).map(|()| String::new()));
    Ok(())
}

/// What storelets are tested with.
fn programs() -> Result<String> {
    let failed = guests::make(&[])?;
    if !failed.is_empty() {
        bail!("not made: {}", failed.join(", "));
    }
    Ok(String::new())
}

fn unit(report: &mut Report) -> Result<()> {
    // In one go: a program that is built by itself has dependencies with fewer features, and they
    // would be built once more.
    sh::run(&mut sh::cargo(&["build", "--workspace", "--bins", "--tests"]))?;
    let (mut passed, mut failed) = (0, 0);
    let mut cargo = sh::cargo(&["test", "--workspace", "--no-fail-fast"]);
    // Tests run in the directories of their crates.
    let made = sh::scratch("guests")?.canonicalize().context("the directory of guests")?;
    let status = sh::stream(cargo.env("UPCALL_GUESTS", made), |line| {
        println!("{line}");
        if let Some((good, bad)) = result(line) {
            passed += good;
            failed += bad;
        }
    })?;
    report.counted("cargo test", passed, failed);
    if !status.success() && failed == 0 {
        bail!("cargo test ended with {status}");
    }
    Ok(())
}

/// The figures of a `test result:` line.
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
