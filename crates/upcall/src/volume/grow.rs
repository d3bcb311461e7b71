//! `upcall volume grow`: more space for a volume.
//!
//! The file is made longer first, or the device was; then one checkpoint has the new size. A power
//! failure leaves the old size or the new one, and the same command can be given again.

use super::file::{self, FileDisk, How};
use crate::size::{self, show};
use clap::Args;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Error, Layout, Ticket};

/// Which volume, and how large it becomes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Grow {
    /// The volume
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Its new size, like 32G; it never shrinks [default: of a device all of it]
    #[arg(value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Take storage when it is needed, not now
    #[arg(long)]
    sparse: bool,

    /// Say it as JSON
    #[arg(long)]
    json: bool,
}

/// Sizes before and after.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    bytes_before: u64,
    bytes: u64,
}

/// Grows a volume.
pub(crate) fn run(grow: &Grow) -> Result<ExitCode, String> {
    let path = &grow.file;
    let if_served = "stop the server first: a volume grows while nobody serves it";
    let how = How { if_served, ..How::WRITE };
    let file = file::open_file(path, &how)?;
    let (superblock, _) = file::superblock(path, &file)?;
    let before = superblock.layout;
    let available = file.size().map_err(|error| refuse(path, &error))?;
    let is_device = file.is_device().map_err(|error| refuse(path, &error))?;
    let bytes = grow.target(&before, is_device.then_some(available))?;
    let after = plan(path, &before, bytes)?;
    if is_device && bytes > available {
        let has = show(available);
        return Err(format!("{} has {has}: make the device larger first", path.display()));
    }
    // Before the file changes: one that cannot be opened stays as it is.
    let mut opened = file::open_locked(path, file, &how)?;
    if !is_device {
        extend(path, &opened.disk, available, bytes, grow.sparse)?;
    }
    let file::Opened { disk, store } = &mut opened;
    let (ticket, mut said) = (Ticket(1), Vec::new());
    store.grow(ticket, after.blocks, &mut said);
    let grown = file::committed(store, disk, ticket, said);
    let closed = file::close_store(store, disk);
    grown.and(closed).map_err(|error| file::explain(path, error))?;
    let bytes = |layout: &Layout| layout.blocks * layout.block as u64;
    let report = Report {
        path: path.display().to_string(),
        bytes_before: bytes(&before),
        bytes: bytes(&after),
    };
    match grow.json {
        true => println!("{}", super::json(&report)),
        false => println!(
            "grown {} from {} to {}",
            report.path,
            show(report.bytes_before),
            show(report.bytes)
        ),
    }
    Ok(ExitCode::SUCCESS)
}

impl Grow {
    /// New size of the volume, bytes; `device`: that of the device that it is on.
    fn target(&self, before: &Layout, device: Option<u64>) -> Result<u64, String> {
        let shown = self.file.display();
        match (self.size, device) {
            (Some(bytes), _) => Ok(bytes),
            (None, None) => Err(format!("say how large {shown} becomes, like 32G")),
            (None, Some(all)) if all / before.block as u64 > before.blocks => Ok(all),
            (None, Some(all)) => {
                let all = show(all);
                Err(format!("the volume has all of {shown}, {all}: make the device larger first"))
            }
        }
    }
}

/// The layout of the larger volume.
fn plan(path: &Path, before: &Layout, bytes: u64) -> Result<Layout, String> {
    let (shown, block) = (path.display(), before.block as u64);
    let (has, blocks) = (before.blocks * block, bytes / block);
    if blocks <= before.blocks {
        return Err(format!("{shown} has {} already: say a larger size", show(has)));
    }
    before.grown(blocks).map_err(|error| match error {
        Error::TooLarge if bytes < has + has / 8 + (1 << 20) => format!(
            "cannot grow {shown} by {}: its larger map of space does not fit there; say a larger \
             size",
            show(bytes - has)
        ),
        _ => format!(
            "cannot grow {shown} to {}: with segments of {} it can have {} at most; copy its files \
             out, and into a new volume of that size, with 'upcall volume copy'",
            show(bytes),
            show(before.segment * block),
            show(before.grown_max() * block)
        ),
    })
}

/// Makes the file longer, durably; it never becomes shorter.
fn extend(path: &Path, disk: &FileDisk, from: u64, to: u64, sparse: bool) -> Result<(), String> {
    let extended = if from >= to { Ok(()) } else { disk.file.extend(from, to, sparse) };
    extended.and_then(|()| disk.file.sync()).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => format!(
            "cannot grow {}: {error}; there is not so much room: choose a smaller size, or \
             --sparse",
            path.display()
        ),
        _ => refuse(path, &error),
    })
}

fn refuse(path: &Path, error: &io::Error) -> String {
    format!("cannot grow {}: {error}; look at the path and the disk", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Geometry;

    #[test]
    fn a_volume_grows_to_the_size_given_or_to_that_of_its_device() {
        let before = Geometry::for_bytes(64 << 20).layout().expect("a usual size");
        let target = |size, device| {
            let file = PathBuf::from("/dev/sdx");
            Grow { file, size, sparse: false, json: false }.target(&before, device)
        };
        assert_eq!(target(Some(1 << 30), None), Ok(1 << 30));
        assert_eq!(target(None, Some(1 << 30)), Ok(1 << 30));
        let missing = "say how large /dev/sdx becomes, like 32G";
        assert_eq!(target(None, None), Err(missing.to_string()));
        // Less than one block more is not larger either.
        for all in [64 << 20, (64 << 20) + 4095] {
            let refused = target(None, Some(all)).expect_err("it is not larger");
            assert!(refused.ends_with(" MiB: make the device larger first"), "{refused}");
        }
    }
}
