//! `upcall`: the binary. Command line, configuration, start; no logic that could be simulated.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "they panic without a reader")]

#[macro_use]
mod output;

mod bounded;
mod clock;
mod compiler;
mod config;
mod files;
mod fronts;
mod generate;
mod greeting;
mod homes;
mod hosting;
mod key_file;
mod listening;
mod load;
mod log;
mod mount;
mod nfs;
mod place;
mod portmapper;
mod progress;
mod record;
mod remote;
mod replica;
mod rule;
mod serve;
mod service;
mod size;
mod space;
mod ticker;
mod units;
mod volume;
mod worker_pool;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An active storage server: one tree of files for every client.
#[derive(Debug, Parser)]
#[command(name = "upcall", version = env!("UPCALL_VERSION"), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory or a volume over 9P and HTTP.
    Serve(Box<config::Serve>),
    /// Create, check, fill, grow and roll back volumes.
    #[command(subcommand)]
    Volume(volume::Command),
    /// Create and manage the replicas of a service.
    #[command(subcommand)]
    Replica(replica::Command),
    /// Run operations on a replicated service.
    Op(replica::Operation),
    Load(Box<load::Load>),
    Mount(mount::Mount),
    /// Print a script that completes commands and flags in a shell.
    Completions(generate::Completions),
    /// Write the manual pages; packages are built with it.
    #[command(hide = true)]
    ManPages(generate::ManPages),
    #[command(hide = true)]
    CompileModule(compiler::CompileModule),
    #[command(flatten)]
    Remote(remote::Command),
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if mount::is_helper(arguments.next().as_ref()) {
        return mount::run_helper(arguments);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let result = match cli.command {
        Command::Serve(flags) => {
            config::Serve::complete(*flags).and_then(|serve| serve::run(&serve))
        }
        Command::Volume(command) => volume::run(&command),
        Command::Replica(command) => replica::run(&command),
        Command::Op(operation) => Ok(replica::operate(&operation)),
        Command::Load(command) => load::run(*command),
        Command::Mount(flags) => Ok(mount::run(&flags)),
        Command::Completions(flags) => generate::completions(&flags),
        Command::ManPages(flags) => generate::man_pages(&flags),
        Command::CompileModule(requested) => compiler::run(&requested),
        Command::Remote(command) => Ok(remote::run(&command)),
    };
    match result {
        Ok(code) => output::finish(code),
        Err(reason) => {
            err_line!("upcall: {reason}");
            output::finish(ExitCode::from(2))
        }
    }
}
