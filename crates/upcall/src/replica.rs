//! `upcall replica` and `upcall op`: replicated services.

mod gate;
mod grow;
mod init;
mod join;
pub(crate) mod kept;
mod key;
mod op;
mod op_session;
mod remove;
mod report;
mod sheet;
mod status;

pub(crate) use op::Operation;

use crate::output::quoted;
use clap::Subcommand;
use std::path::Path;
use std::process::ExitCode;

/// Commands for the replicas of a service.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create the replicas of a new service, each in a file
    Init(init::Init),
    /// Create one more replica of an existing service
    Join(join::Join),
    /// Remove replicas from a service, or continue without lost ones
    Remove(remove::Remove),
    /// Replace a replica's file by a larger one of the same name; no server may be using it
    Grow(grow::Grow),
    /// Show the progress of the replicas of a service
    Status(status::Status),
    /// Import a CSV or XLSX file into a sheet
    Import(sheet::Import),
    /// Export a sheet to a CSV or XLSX file
    Export(sheet::Export),
}

/// Runs the command.
///
/// # Errors
/// The reason why it could not begin.
pub(crate) fn run(command: &Command) -> Result<ExitCode, String> {
    match command {
        Command::Init(init) => init::run(init),
        Command::Join(join) => join::run(join),
        Command::Remove(remove) => remove::run(remove),
        Command::Grow(grow) => grow::run(grow),
        Command::Status(status) => Ok(status::run(status)),
        Command::Import(import) => Ok(sheet::import(import)),
        Command::Export(export) => Ok(sheet::export(export)),
    }
}

/// Returns the message after creating a replica: how to serve it, and the consequences.
fn created(file: &Path, address: &str, then: &str) -> String {
    let (shown, file, listen) = (file.display(), quoted(file), quoted(Path::new(address)));
    format!(
        "created {shown}; where {address} is, serve it{then}:\n  upcall serve DIR --9p {listen} \
         --replica {file}\n"
    )
}

/// Runs one operation, or several.
pub(crate) fn operate(operation: &Operation) -> ExitCode {
    op::run(operation)
}
