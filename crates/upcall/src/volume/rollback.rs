//! `upcall volume rollback`: a volume becomes what it was when a snapshot was made.
//!
//! The present state is kept as a snapshot first. Then one checkpoint has the other state: a power
//! failure leaves the present one or that.

use super::file::{self, FileDisk, How, Opened};
use crate::clock;
use crate::progress::Progress;
use crate::size;
use base::Name;
use clap::Args;
use reactor::VolumeFile;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::drive::Disk as _;
use store::rollback::{self, Rollback as Plan};
use store::{Error, Ticket};

/// Which volume, and to which snapshot.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rollback {
    /// The volume
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The snapshot whose state it gets
    #[arg(value_name = "NAME")]
    name: String,

    /// Say it as JSON
    #[arg(long)]
    json: bool,
}

/// Names of both states.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    snapshot: String,
    /// The snapshot that has the state before.
    before: String,
}

/// Rolls a volume back.
pub(crate) fn run(rollback: &Rollback) -> Result<ExitCode, String> {
    let (path, name) = (&rollback.file, &rollback.name);
    let if_served = "stop the server first: a volume is rolled back while nobody serves it";
    let how = How { if_served, ..How::WRITE };
    let file = file::open_file(path, &how)?;
    let opened = file::open_locked(path, file, &how)?;
    let before = free_name(&opened, name);
    if !opened.store.snapshots().any(|(known, ..)| known == name.as_bytes()) {
        return Err(file::explain(path, Error::NotFound));
    }
    let FileDisk { file, .. } = keep(path, opened, &before)?;
    let kept = |why: String| format!("{why}; the present state was kept as snapshot {before}");
    exchange(path, file, &how, name).map_err(kept)?;
    let (shown, snapshot) = (path.display().to_string(), name.clone());
    match rollback.json {
        true => println!("{}", super::json(&Report { path: shown, snapshot, before })),
        false => println!(
            "rolled {shown} back to snapshot {snapshot}\nthe state before is kept as snapshot \
             {before}"
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// A name for the present state that no snapshot has.
fn free_name(opened: &Opened, name: &str) -> String {
    let date = clock::iso(clock::wall()).replace(':', "");
    // A name may have 255 bytes, and less in small blocks.
    let most = opened.store.layout().key_max().min(255);
    let is_free = |wanted: &String| {
        wanted.len() <= most
            && !opened.store.snapshots().any(|(known, ..)| known == wanted.as_bytes())
    };
    let long = format!("before-{name}-{date}");
    let numbered = (1..).map(|number| format!("before-{date}-{number}"));
    std::iter::once(long).chain(numbered).find(is_free).expect("there is no end of numbers")
}

/// Keeps the present state as a snapshot, and closes the volume.
fn keep(path: &Path, opened: Opened, before: &str) -> Result<FileDisk, String> {
    let name = Name::new(before.as_bytes()).map_err(|_| format!("'{before}' is no name"))?;
    let Opened { mut disk, mut store } = opened;
    let (ticket, mut said) = (Ticket(1), Vec::new());
    store.snapshot(file::START, ticket, name.as_bytes(), clock::wall(), &mut said);
    let made = file::committed(&mut store, &mut disk, ticket, said);
    let closed = file::close_store(&mut store, &mut disk);
    made.and(closed).map_err(|error| file::explain(path, error))?;
    Ok(disk)
}

/// Makes the present state of a closed volume that of a snapshot.
fn exchange(path: &Path, file: VolumeFile, how: &How<'_>, name: &str) -> Result<(), String> {
    let (file, plan) = plan(path, file, name)?;
    let Opened { mut disk, mut store } = file::open_locked(path, file, how)?;
    let (ticket, mut said) = (Ticket(1), Vec::new());
    store.roll_back(file::START, ticket, plan, &mut said);
    let done = file::committed(&mut store, &mut disk, ticket, said);
    let closed = file::close_store(&mut store, &mut disk);
    done.and(closed).map_err(|error| file::explain(path, error))
}

/// Reads both states.
fn plan(path: &Path, file: VolumeFile, name: &str) -> Result<(VolumeFile, Plan), String> {
    let (superblock, head) = file::superblock(path, &file)?;
    let mut disk = FileDisk::new(file, superblock.layout.block);
    let (mut progress, mut is_replica) = (Progress::start(), false);
    let mut read = |at: u64, count: u32| {
        let blocks = disk.read(at, count).ok();
        progress.show(|_| format!("reading both states: {}", size::show(disk.read)));
        blocks
    };
    let plan = rollback::plan(&mut read, &head, name.as_bytes(), &mut |table, key| {
        is_replica |= services::is_mark(table, key);
    });
    progress.clear();
    let plan = plan.map_err(|error| file::explain(path, error))?;
    if is_replica {
        return Err(format!(
            "{} has a replica of a service, which must not forget: let it leave, and make another \
             with 'upcall replica join'",
            path.display()
        ));
    }
    Ok((disk.file, plan))
}
