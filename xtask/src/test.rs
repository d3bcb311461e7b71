//! `cargo xtask test [--long]`: everything, from a clean clone on a fresh Debian machine; with
//! `--long` suites take longer, and more of them run, also over the reactor with threads.
//!
//! Missing packages are installed first (apt-get prints which and why). Then the workspace and the
//! storelet programs of the tests are built, which takes minutes only once. The unit tests, a short
//! simulation, every fuzzer briefly, and the conformance suites run as concurrent processes. The
//! last line is the total: `N passed, N failed`. If a build fails, nothing else runs.

use crate::programs::{self, Profile};
use anyhow::{Result, bail};
use rig::lanes::{self, Part};
use rig::report::Report;
use rig::sh;

/// Runs the command. Returns whether everything passed.
pub(crate) fn main(args: &[String]) -> Result<bool> {
    if !matches!(args, [] | [_]) || args.iter().any(|word| word != "--long") {
        bail!("usage: cargo xtask test [--long]");
    }
    let mut report = Report::default();
    // One build of everything: a program built separately has dependencies with fewer features,
    // which would be rebuilt.
    let build = sh::cargo(&["build", "--workspace", "--bins", "--tests"]);
    let guests = sh::cmd(&sh::own_path()?.display().to_string(), &["guests"]);
    let parts = vec![Part::single("build", build), Part::single("guests", guests)];
    lanes::run(&mut report, parts);
    if report.has_failed("build") || report.has_failed("guests") {
        return Ok(report.finish());
    }
    match programs::replace("conformance", Profile::Tested, &["test"], args)? {}
}
