//! `upcall volume rollback`: restores the state of a snapshot.
//!
//! A snapshot of the present state is created first, and dropped again if the rollback is refused.
//! Then one checkpoint contains the other state: a power failure leaves the present one or that.

use super::file::{self, FileDisk, How, Opened};
use crate::clock;
use crate::progress::Progress;
use crate::size;
use clap::Args;
use reactor::VolumeFile;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::drive::Disk as _;
use store::rollback::{self, Rollback as Plan};
use store::{Error, Ticket, View};

/// Options of `upcall volume rollback`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rollback {
    /// Volume to roll back
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Snapshot to restore
    #[arg(value_name = "NAME")]
    name: String,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Names of both states.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    snapshot: String,
    /// Snapshot of the state before.
    before: String,
}

/// Cause of a rollback that failed.
enum Failure {
    /// The state is unchanged.
    Unchanged(String),
    /// The state may be either one.
    Unknown(String),
}

/// Rolls a volume back.
pub(crate) fn run(rollback: &Rollback) -> Result<ExitCode, String> {
    let (path, name) = (&rollback.file, &rollback.name);
    let if_served = "stop the server first: a volume cannot be rolled back while it is served";
    let how = How { if_served, ..How::WRITE };
    let file = file::open_file(path, &how)?;
    let mut opened = file::open_locked(path, file, &how)?;
    let before = free_name(&opened, name);
    refuse_replica(path, &mut opened, name)?;
    let FileDisk { file, .. } = snapshot_present(path, opened, &before)?;
    let there = |why: &str| format!("{why}; snapshot {before} has the state before");
    roll_back(path, file, &how, name).map_err(|failure| match failure {
        Failure::Unchanged(why) => match drop_snapshot(path, &how, &before) {
            Ok(()) => why,
            Err(_) => there(&why),
        },
        Failure::Unknown(why) => there(&why),
    })?;
    let (shown, snapshot) = (path.display().to_string(), name.clone());
    match rollback.json {
        true => out_line!("{}", crate::output::json(&Report { path: shown, snapshot, before })),
        false => out_line!(
            "rolled {shown} back to snapshot {snapshot}\nthe state before is kept as snapshot \
             {before}"
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an unused snapshot name for the present state.
fn free_name(opened: &Opened, name: &str) -> String {
    let date = clock::iso(clock::wall()).replace(':', "");
    // A name may have 255 bytes, and less in small blocks.
    let most = opened.store.layout().snapshot_name_max();
    let is_free = |wanted: &String| {
        wanted.len() <= most
            && !opened.store.snapshots().any(|(known, ..)| known == wanted.as_bytes())
    };
    let long = format!("before-{name}-{date}");
    let numbered = (1..).map(|number| format!("before-{date}-{number}"));
    std::iter::once(long).chain(numbered).find(is_free).expect("there is no end of numbers")
}

/// Refuses a volume whose present state, or that of the snapshot, is that of a replica.
fn refuse_replica(path: &Path, opened: &mut Opened, name: &str) -> Result<(), String> {
    let explain = |error| file::explain(path, error);
    let found = opened.store.snapshots().find(|(known, ..)| *known == name.as_bytes());
    let id = found.map(|(_, id, _)| id).ok_or_else(|| explain(Error::NotFound))?;
    for view in [View::Present, View::Snapshot(id)] {
        if is_replica(opened, view).map_err(explain)? {
            return Err(format!(
                "{} has a replica of a service, which must not forget: let it leave, and make \
                 another with 'upcall replica join'",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Returns whether a state of a volume is that of a replica.
fn is_replica(opened: &mut Opened, view: View) -> Result<bool, Error> {
    let (table, key) = services::MARK;
    loop {
        let found = opened.store.reader(view)?.get(table, key).map(|found| found.is_some());
        match found {
            Ok(found) => return Ok(found),
            Err(missing) => file::fetched(&mut opened.store, &mut opened.disk, missing)?,
        }
    }
}

/// Creates a snapshot of the present state, and closes the volume.
fn snapshot_present(path: &Path, opened: Opened, before: &str) -> Result<FileDisk, String> {
    file::change_snapshots(opened, |store, ticket, printed| {
        store.snapshot(file::START, ticket, before.as_bytes(), clock::wall(), printed);
    })
    .map_err(|error| file::explain(path, error))
}

/// Drops the snapshot of the present state again.
fn drop_snapshot(path: &Path, how: &How<'_>, before: &str) -> Result<(), String> {
    let dropped = file::change_snapshots(file::open(path, how)?, |store, ticket, printed| {
        store.drop_snapshot(file::START, ticket, before.as_bytes(), printed);
    });
    dropped.map(drop).map_err(|error| file::explain(path, error))
}

/// Replaces the present state of a closed volume by that of a snapshot.
fn roll_back(path: &Path, file: VolumeFile, how: &How<'_>, name: &str) -> Result<(), Failure> {
    let (file, plan) = plan(path, file, name).map_err(Failure::Unchanged)?;
    let opened = file::open_locked(path, file, how).map_err(Failure::Unchanged)?;
    let Opened { mut disk, mut store } = opened;
    let (ticket, mut printed) = (Ticket(1), Vec::new());
    store.roll_back(file::START, ticket, plan, &mut printed);
    let done = file::committed(&mut store, &mut disk, ticket, printed);
    let closed = file::close_store(&mut store, &mut disk);
    let explain = |error| file::explain(path, error);
    match done {
        // The store has refused the plan.
        Err(error @ (Error::NoSpace | Error::ReadOnly)) => Err(Failure::Unchanged(explain(error))),
        done => done.and(closed).map_err(|error| Failure::Unknown(explain(error))),
    }
}

/// Reads both states.
fn plan(path: &Path, file: VolumeFile, name: &str) -> Result<(VolumeFile, Plan), String> {
    let (superblock, head) = file::superblock(path, &file)?;
    let mut disk = FileDisk::new(file, superblock.layout.block);
    let mut progress = Progress::start();
    let mut read = |at: u64, count: u32| {
        let blocks = disk.read(at, count).ok();
        progress.show(|_| format!("reading both states: {}", size::show(disk.read)));
        blocks
    };
    let plan = rollback::plan(&mut read, &head, name.as_bytes());
    progress.clear();
    let plan = plan.map_err(|error| file::explain(path, error))?;
    Ok((disk.file, plan))
}
