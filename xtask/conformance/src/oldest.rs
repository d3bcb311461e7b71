//! The server on the oldest supported kernel (Debian 12's 6.1), in the virtual machine.

use anyhow::Result;
use rig::report::Report;
use rig::server::{self, Kind};
use rig::vm::{self, Job};

const SCRIPT: &str = include_str!("guest/oldest");

const CASES: [&str; 8] = [
    "uring_starts",
    "uring_http",
    "uring_9p",
    "uring_ends",
    "threads_starts",
    "threads_http",
    "threads_9p",
    "threads_ends",
];

/// Runs the suite with both reactors, regardless of the selected one.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("oldest", "it is about our own server");
        return Ok(());
    }
    let job = Job::new("oldest", SCRIPT)?;
    job.program(&server::binary())?;
    let text = job.run()?;
    vm::enter(report, "oldest", &text, &CASES);
    Ok(())
}
