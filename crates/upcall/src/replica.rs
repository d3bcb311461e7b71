//! `upcall replica` and `upcall op`: replicated services.

mod init;
pub(crate) mod kept;
mod op;
mod status;

pub(crate) use op::Operation;

use clap::Subcommand;
use std::process::ExitCode;

/// What can be done with the replicas of a service.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the replicas of a new service, each in a file
    Init(init::Init),
    /// Show how far the replicas of a service are
    Status(status::Status),
}

/// Does it.
///
/// # Errors
/// Why it could not begin.
pub(crate) fn run(command: &Command) -> Result<ExitCode, String> {
    match command {
        Command::Init(init) => init::run(init),
        Command::Status(status) => Ok(status::run(status)),
    }
}

/// Does one operation, or several.
pub(crate) fn operate(operation: &Operation) -> ExitCode {
    op::run(operation)
}
