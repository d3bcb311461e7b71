//! `upcall replica grow`: a larger file for a replica.
//!
//! The contents are copied into a larger file beside it, which then takes its name: at any moment
//! one of the two is complete, and two servers can never start with the same replica.

use super::kept;
use crate::clock::Clock;
use crate::size;
use crate::volume::create::{Create, beside, directory};
use crate::volume::file::{self, FileDisk, How};
use clap::Args;
use services::{Copying, StoredReplica};
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::drive;
use store::{Change, Durability, Output, Refusal, Store, Ticket};

/// Options of `upcall replica grow`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Grow {
    /// File of the replica
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// New maximum size, like 32G; storage is allocated as it is filled
    #[arg(long, value_parser = size::parse)]
    size: u64,
}

/// Creates a larger file and replaces the present one.
pub(crate) fn run(grow: &Grow) -> Result<ExitCode, String> {
    let shown = grow.file.display();
    let refuse = |error: io::Error| format!("cannot replace {shown}: {error}; it is as it was");
    // The target of a link; a missing file is reported when it is opened.
    let path = std::fs::canonicalize(&grow.file).unwrap_or_else(|_| grow.file.clone());
    let mut old = kept::read(&path)?;
    let layout = old.store.layout();
    let before = layout.blocks * layout.block as u64;
    let meta = path.metadata().map_err(refuse)?;
    if !meta.is_file() {
        return Err(format!("{shown} is no file: only files are replaced by larger ones"));
    }
    if grow.size <= before {
        let now = size::show(before);
        return Err(format!("{shown} has {now}; choose a larger --size"));
    }
    let temporary = beside(&path);
    let made = copy(&mut old, &temporary, grow.size).and_then(|()| {
        std::os::unix::fs::chown(&temporary, Some(meta.uid()), Some(meta.gid()))
            .and_then(|()| std::fs::set_permissions(&temporary, meta.permissions()))
            .and_then(|()| std::fs::rename(&temporary, &path))
            .and_then(|()| directory(&path)?.sync_all())
            .map_err(refuse)
    });
    // Renamed away, or obsolete; if it cannot be removed, it stays.
    let _ = std::fs::remove_file(&temporary);
    made?;
    out_line!("{shown} has {} now: serve it as before", size::show(grow.size));
    Ok(ExitCode::SUCCESS)
}

/// Creates a file of this size with the contents of another one.
fn copy(old: &mut kept::Read, to: &Path, size: u64) -> Result<(), String> {
    let StoredReplica { settings, .. } = &old.kept;
    Create::of_replica(to, Some(size), settings.clone()).make()?;
    let file::Opened { disk, store } = file::open(to, &How::WRITE)?;
    let mut target = Target { disk, store, clock: Clock::start() };
    let (from, clock) = (&mut old.disk, Clock::start());
    let mut bring = |store: &mut Store, missing| kept::fetch(store, from, &clock, missing);
    let (mut copying, refuse) = (Copying::begin(), |error| file::explain(to, error));
    let mut next = || copying.next(&mut old.store, &mut bring);
    while let Some(changes) = next().map_err(|why| kept::explain(&old.path, why))? {
        target.put(&changes).map_err(refuse)?;
    }
    file::close_store(&mut target.store, &mut target.disk).map_err(refuse)
}

/// The volume being filled.
struct Target {
    disk: FileDisk,
    store: Store,
    clock: Clock,
}

impl Target {
    fn put(&mut self, changes: &[Change]) -> Result<(), store::Error> {
        loop {
            let (now, mut outputs) = (self.clock.now(), Vec::new());
            let result = self.store.commit(now, Ticket(0), changes, Durability::Soon, &mut outputs);
            if let Err(Refusal::Missing(missing)) = &result {
                self.store.fetch(now, Ticket(0), missing.clone(), &mut outputs);
            }
            self.settle(outputs);
            match result {
                Ok(()) => return Ok(()),
                Err(Refusal::Failed(error)) => return Err(error),
                Err(Refusal::Missing(_)) => {}
            }
        }
    }

    /// Performs the store's operations until there are none.
    fn settle(&mut self, outputs: Vec<Output>) {
        let (mut outputs, mut more) = (VecDeque::from(outputs), Vec::new());
        loop {
            match outputs.pop_front() {
                Some(Output::Io(io)) => {
                    let (id, done) = drive::perform(&mut self.disk, &io);
                    self.store.done(self.clock.now(), id, done, &mut more);
                }
                // A failure is reported by the next commit.
                Some(Output::Fetched(..) | Output::Committed(..)) => {}
                Some(other @ (Output::Opened(_) | Output::Placed(..) | Output::Closed(..))) => {
                    unreachable!("{other:?} was not asked for")
                }
                None => {
                    self.store.tick(self.clock.now(), &mut more);
                    if more.is_empty() {
                        return;
                    }
                }
            }
            outputs.extend(more.drain(..));
        }
    }
}
