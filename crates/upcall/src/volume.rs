//! `upcall volume`: creates, inspects and checks volumes, and copies trees in and out.
//!
//! Straight-line code, one operation at a time: the volume's file is locked, so no other process
//! uses it meanwhile. Commands that change nothing also inspect volumes in use by a server
//! ([`served`]).

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a command knows a few errors and replies; all others come to the same"
)]

mod check;
mod copy;
pub(crate) mod create;
pub(crate) mod direct;
pub(crate) mod file;
mod grow;
pub(crate) mod info;
mod rollback;
pub(crate) mod served;
mod snapshot;

use clap::Subcommand;
use std::process::ExitCode;

/// Commands for volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an empty volume in a new file, or on a block device
    Create(create::Create),
    /// Show the properties and contents of a volume, also while it is served
    Info(info::Info),
    /// Read a volume completely and report damage, also while it is served
    Check(check::Check),
    /// Create, drop and list snapshots of a volume
    Snapshot(snapshot::Snapshot),
    /// Enlarge a volume
    Grow(grow::Grow),
    /// Restore the state of a snapshot; the current state is kept as another snapshot
    Rollback(rollback::Rollback),
    /// Copy a directory tree into a volume or out of it
    Copy(copy::Copy),
}

/// Runs the command.
///
/// # Errors
/// The reason why it could not begin.
pub(crate) fn run(command: &Command) -> Result<ExitCode, String> {
    match command {
        Command::Create(create) => create::run(create),
        Command::Info(info) => info::run(info),
        Command::Check(check) => check::run(check),
        Command::Snapshot(snapshot) => snapshot::run(snapshot),
        Command::Grow(grow) => grow::run(grow),
        Command::Rollback(rollback) => rollback::run(rollback),
        Command::Copy(copy) => copy::run(copy),
    }
}
