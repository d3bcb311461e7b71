//! `upcall load`: command line of the load generator.

mod compare;
mod file;
mod flags;
mod limits;
mod place;
mod prepare;
mod printing;
mod replay;
mod run;
mod trace;
mod workload;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Generate load on a target, at specified times, and report how accurately it was issued.
///
/// The target is `null` (measures the instrument itself), a file or block device (`file:PATH`), an
/// Upcall volume (`volume:PATH`), a file on a 9P server (`9p://HOST:PORT/PATH`,
/// `9p+unix:SOCKET:/PATH`) or an NFS server (`nfs://HOST:PORT/PATH`), or an object on an HTTP
/// server (`http://HOST:PORT/PATH`). A missing target is created by a run that writes, and by a
/// read-only run with --create. An existing target is only read, unless --destroy is given.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Load {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    stream: workload::WorkloadFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a workload file (TOML), which may combine several workloads
    Run(Box<file::Run>),
    /// Replay the I/Os of a trace
    Replay(Box<replay::Replay>),
    /// Report the fidelity of one run to another
    Compare(compare::Compare),
    /// Inspect, convert and anonymize traces
    #[command(subcommand)]
    Trace(trace::Command),
}

/// Runs the command.
pub(crate) fn run(load: Load) -> Result<ExitCode, String> {
    match load.command {
        None => workload::run(&load.stream),
        Some(Command::Run(run)) => file::run(&run),
        Some(Command::Replay(replay)) => replay::run(&replay),
        Some(Command::Compare(compare)) => compare::run(&compare),
        Some(Command::Trace(command)) => trace::run(&command),
    }
}
