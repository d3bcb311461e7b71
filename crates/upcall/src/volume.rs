//! `upcall volume`: makes volumes, looks at them, checks them, and copies trees in and out.
//!
//! Straight-line code, one thing at a time: nobody else uses a volume meanwhile, because its file
//! is locked. What changes nothing looks at a volume that is served too ([`served`]).

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
use serde::Serialize;
use std::process::ExitCode;

/// What can be done with a volume.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an empty volume in a new file, or on a block device
    Create(create::Create),
    /// Show what a volume is and what is in it, also while it is served
    Info(info::Info),
    /// Read everything in a volume and say what is damaged, also while it is served
    Check(check::Check),
    /// Keep the present state of a volume under a name
    Snapshot(snapshot::Snapshot),
    /// Give a volume more space
    Grow(grow::Grow),
    /// Make the state of a volume that of a snapshot; the present one is kept as another
    Rollback(rollback::Rollback),
    /// Copy a tree of files into a volume or out of it
    Copy(copy::Copy),
}

/// Does it.
///
/// # Errors
/// Why it could not begin.
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

/// The JSON of something, for programs.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("names and numbers are JSON")
}
