//! `upcall`: the binary. Command line, configuration, start; no logic that could be simulated.

mod config;
mod greeting;
mod place;
mod rule;
mod serve;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An active storage server: one tree of files for every client.
#[derive(Debug, Parser)]
#[command(name = "upcall", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over 9P and HTTP.
    Serve(Box<config::Serve>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match cli.command {
        Command::Serve(flags) => {
            config::Serve::complete(*flags).and_then(|serve| serve::run(&serve))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("upcall: {reason}");
            ExitCode::from(2)
        }
    }
}
