//! `cargo xtask paper mux [--quick] [--record]`, `cargo xtask paper storelet [--kernel] [--quick]
//! [--record]`, `cargo xtask paper load --traces DIR [--quick] [--record]`, `cargo xtask paper
//! replica [--quick] [--record]`: a paper's evaluation made again with ours, beside what the paper
//! says of its own.
//!
//! *mux* is thesis 004, §6.1: latency per message as clients and servers grow in number, walks
//! over mount points, reads of unions. *load* is paper 003, §6: how far from their times I/Os are
//! issued, and what that does; `--traces` says where the traces are that it replays. *storelet* is
//! paper 002: programs beside the data against a mount, and a file service beside competitors;
//! with a word behind it (`jobs`, `crowd`, `start`) only that part, with `--kernel` also by
//! Linux's own client in a virtual machine (root, qemu). *replica* is paper 001, chapter 5:
//! throughput, response times and inconsistent answers of replicas on threads, as slow as the
//! paper's and as fast as they are; with `again` behind it only what was not measured last time is,
//! and the page is written again.
//!
//! The figures go to `docs/paper/` with `--record`, else they are only printed. `--quick` takes
//! fewer points and less time, to see that it runs.

mod crowd;
mod load;
mod mux;
mod plot;
mod replica;
mod storelet;

use anyhow::{Result, bail};
use std::path::PathBuf;

/// What the command line asks for.
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) record: bool,
    /// Where the traces are that are replayed.
    pub(crate) traces: Option<PathBuf>,
    /// Whether Linux's own client mounts, too.
    pub(crate) kernel: bool,
    /// The only part that is measured, where there are several.
    pub(crate) part: Option<String>,
}

/// The command.
pub(crate) fn main(args: &[String]) -> Result<()> {
    if cfg!(debug_assertions) {
        return crate::sh::optimised("paper", args);
    }
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
