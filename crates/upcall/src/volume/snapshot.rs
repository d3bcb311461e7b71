//! `upcall volume snapshot`: snapshots of a volume. Creating and dropping them requires the lock.

use super::file::{self, How};
use super::info::{self, SnapshotFacts};
use super::served::{self, Served};
use crate::clock;
use base::Name;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `upcall volume snapshot`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Snapshot {
    /// Volume of the snapshots
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Create a snapshot of the current state
    Create {
        /// Name of the snapshot
        name: String,
    },
    /// Delete a snapshot and free the storage used only by it
    Drop {
        /// Name of the snapshot
        name: String,
    },
    /// List all snapshots
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub(crate) fn run(snapshot: &Snapshot) -> Result<ExitCode, String> {
    let path = &snapshot.file;
    match &snapshot.what {
        What::Create { name } => change(path, name, true)?,
        What::Drop { name } => change(path, name, false)?,
        What::List { json } => list(path, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn change(path: &Path, text: &str, make: bool) -> Result<(), String> {
    let name = Name::new(text.as_bytes()).ok().filter(Name::plain).ok_or_else(|| {
        format!(
            "'{text}' cannot be the name of a snapshot: use another, of at most 255 bytes and \
             without '/'"
        )
    })?;
    let verb = if make { "mkdir" } else { "rmdir" };
    let there = format!("use '{verb} /.upcall/snapshots/{text}' over any protocol");
    let opened = file::open(path, &How { if_served: &there, ..How::WRITE })?;
    let changed = file::change_snapshots(opened, |store, ticket, printed| match make {
        true => store.snapshot(file::START, ticket, name.as_bytes(), clock::wall(), printed),
        false => store.drop_snapshot(file::START, ticket, name.as_bytes(), printed),
    });
    changed.map_err(|error| match error {
        store::Error::TooLarge => format!(
            "{}: '{text}' is too long for the name of a snapshot there: use a shorter one",
            path.display()
        ),
        error => file::explain(path, error),
    })?;
    let verb = if make { "created" } else { "dropped" };
    out_line!("{verb} snapshot {text} of {}", path.display());
    Ok(())
}

/// Snapshots of a volume.
#[derive(Debug, Serialize)]
struct List {
    path: String,
    /// The process that uses the volume, if any; then these are the snapshots of the newest
    /// checkpoint.
    served: Option<Served>,
    /// Epoch of the newest checkpoint.
    epoch: u64,
    snapshots: Vec<SnapshotFacts>,
}

fn list(path: &Path, json: bool) -> Result<(), String> {
    let shown = path.display();
    let list = served::look(path, |opened, served| {
        let snapshots = opened.store.snapshots().map(SnapshotFacts::new).collect();
        let epoch = opened.store.superblock().epoch;
        Ok(List { path: shown.to_string(), served: served.cloned(), epoch, snapshots })
    })?;
    if json {
        out_line!("{}", crate::output::json(&list));
        return Ok(());
    }
    if let Some(served) = &list.served {
        err_line!(
            "{shown}: served by {served}: this is the list of checkpoint {}; later changes are in \
             the journal, which is not read",
            list.epoch
        );
    }
    let mut text = String::new();
    match list.snapshots.is_empty() {
        true => text.push_str("no snapshots\n"),
        false => info::list(&mut text, &list.snapshots, "").expect("a string"),
    }
    crate::output::out(format_args!("{text}"));
    Ok(())
}
