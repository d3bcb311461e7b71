//! `cargo xtask paper mux [--quick] [--record]`, `cargo xtask paper storelet [--kernel] [--quick]
//! [--record]`, `cargo xtask paper load --traces DIR [--quick] [--record]`, `cargo xtask paper
//! replica [--quick] [--record]`: reproduces a paper's evaluation with our implementation, beside
//! the paper's own results.
//!
//! *mux* is thesis 004, §6.1: latency per message as clients and servers grow in number, walks over
//! mount points, reads of unions. *load* is paper 003, §6: issue error of I/Os and its effects;
//! `--traces` names the directory of the traces to replay. *storelet* is paper 002: programs beside
//! the data against a mount, and a file service beside competitors; a further word (`jobs`,
//! `crowd`, `start`) selects one part, and `--kernel` adds Linux's own client in a virtual machine
//! (root, qemu). *replica* is paper 001, chapter 5: throughput, response times and inconsistent
//! answers of replicas on threads, at the paper's speed and at full speed; with the word `again`
//! only runs missing from the last time are measured, and the page is rewritten.
//!
//! With `--record` the figures are written to `docs/paper/`, otherwise only printed. `--quick`
//! takes fewer points and less time, as a smoke test.

mod crowd;
mod load;
mod mux;
mod plot;
mod replica;
mod storelet;

use anyhow::{Result, bail};
use std::path::PathBuf;

/// Options of the command line.
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) record: bool,
    /// Directory of the traces to replay.
    pub(crate) traces: Option<PathBuf>,
    /// Whether Linux's own client is measured, too.
    pub(crate) kernel: bool,
    /// The only part to measure, of several.
    pub(crate) part: Option<String>,
}

/// Runs the command.
pub(crate) fn main(args: &[String]) -> Result<()> {
    rig::server::expect_measured()?;
    let mut plan = Plan { quick: false, record: false, kernel: false, traces: None, part: None };
    let mut paper: Option<fn(&Plan) -> Result<()>> = None;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => plan.quick = true,
            "--kernel" => plan.kernel = true,
            "--record" => plan.record = true,
            "--traces" => plan.traces = words.next().map(PathBuf::from),
            "mux" => paper = Some(mux::run),
            "load" => paper = Some(load::run),
            "storelet" => paper = Some(storelet::run),
            "replica" => paper = Some(replica::run),
            "jobs" | "crowd" | "start" | "again" => plan.part = Some(word.clone()),
            other => bail!(
                "no paper or option {other}: there are mux, load, storelet and replica, with \
                 --quick and --record; for load --traces DIR, for storelet jobs, crowd or start"
            ),
        }
    }
    match paper {
        Some(run) => run(&plan),
        None => bail!("which paper? there are mux, load, storelet and replica"),
    }
}
