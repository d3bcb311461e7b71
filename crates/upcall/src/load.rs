//! `upcall load`: command line of the load generator.

mod compare;
mod file;
mod flags;
mod limits;
mod place;
mod prepare;
mod replay;
mod run;
mod say;
mod trace;
mod workload;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Make load on a target, at stated times, and say how well that was done.
///
/// The target is `null` (measures the instrument itself), a file or block device
/// (`file:PATH`), a volume of Upcall (`volume:PATH`), a file of a 9P server
/// (`9p://HOST:PORT/PATH`, `9p+unix:SOCKET:/PATH`), or an object of an HTTP server
/// (`http://HOST:PORT/PATH`). A run that writes makes what does not exist; one that only reads
/// does so with --create. What exists is only read, unless --destroy is given.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Load {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    stream: workload::Asked,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the workload of a file (TOML), which may combine many
    Run(Box<file::Run>),
    /// Issue the I/Os of a trace
    Replay(Box<replay::Replay>),
    /// Say how faithful one run is to another
    Compare(compare::Compare),
    /// Look at traces, and change them
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
