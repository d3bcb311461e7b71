//! `upcall replica` and `upcall op`: replicated services.

mod gate;
mod grow;
mod init;
mod join;
pub(crate) mod kept;
mod key;
mod op;
mod remove;
mod report;
mod sheet;
mod status;
mod talk;

pub(crate) use op::Operation;

use clap::Subcommand;
use std::path::Path;
use std::process::ExitCode;

/// What can be done with the replicas of a service.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the replicas of a new service, each in a file
    Init(init::Init),
    /// Make one more replica of a service that there is
    Join(join::Join),
    /// Have replicas leave a service, or go on without those that are lost
    Remove(remove::Remove),
    /// Put the file of a replica, which no server has, into a larger one of the same name
    Grow(grow::Grow),
    /// Show how far the replicas of a service are
    Status(status::Status),
    /// Type what is in a CSV or XLSX file into a sheet
    Import(sheet::Import),
    /// Write what is in a sheet into a CSV or XLSX file
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
    let file = file.display();
    format!(
        "created {file}; where {address} is, serve it{then}:\n  upcall serve DIR --9p {address} \
         --replica {file}\n"
    )
}

/// Runs one operation, or several.
pub(crate) fn operate(operation: &Operation) -> ExitCode {
    op::run(operation)
}
