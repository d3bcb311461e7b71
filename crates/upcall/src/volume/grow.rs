//! `upcall volume grow`: enlarges a volume.
//!
//! The file is extended first, or the device was; then one checkpoint records the new size, written
//! by the server if it uses the volume. A power failure leaves the old size or the new one, and the
//! same command can be repeated.

use super::file::{self, How};
use super::served::{self, Served};
use crate::remote::{Server, names};
use crate::size::{self, show};
use clap::Args;
use client::Address;
use reactor::VolumeFile;
use serde::Serialize;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use store::{Layout, Ticket};

/// Timeout of a server: a growth waits for up to two checkpoints.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Options of `upcall volume grow`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Grow {
    /// Volume to enlarge
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// New size, like 32G; a volume never shrinks [default: for a device all of it]
    #[arg(value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Allocate storage when it is needed, not now, except for the larger space map
    #[arg(long)]
    sparse: bool,

    /// Server of the volume, if it is served: the unix socket of its 9P listener, unix:PATH
    #[arg(long, value_name = "ADDR")]
    at: Option<Address>,

    /// Print the result as JSON
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
    let (file, served) = served::open_file(path, &How::WRITE)?;
    let before = match &served {
        None => file::superblock(path, &file)?.0.layout,
        Some(served) => served.newest()?.superblock.layout,
    };
    let available = file.size().map_err(|error| refuse(path, &error))?;
    let is_device = file.is_device().map_err(|error| refuse(path, &error))?;
    let bytes = grow.target(&before, is_device.then_some(available))?;
    let after = plan(path, &before, bytes)?;
    if is_device && bytes > available {
        let has = show(available);
        return Err(format!("{} has {has}: make the device larger first", path.display()));
    }
    let extended = if is_device { available } else { bytes };
    let maps = after.maps_in_data();
    let block = after.block as u64;
    let taken = match grow.sparse {
        true => maps.start * block..maps.end * block,
        false => available.min(extended)..extended,
    };
    match (&served, &grow.at) {
        (None, None) => {
            // Before the file changes: one that cannot be opened stays unchanged.
            let opened = file::open_locked(path, file, &How::WRITE)?;
            extend(path, available..extended, |size| {
                opened.disk.file.extend(size.start, size.end, taken.clone())?;
                opened.disk.file.sync()
            })?;
            commit(path, opened, &after)?;
        }
        (Some(_), Some(at)) => {
            let longer = || {
                extend(path, available..extended, |size| {
                    VolumeFile::extend_in_use(path, size.end, taken.clone())
                })
            };
            let whole = path.canonicalize().map_err(|error| refuse(path, &error))?;
            let absolute = std::path::absolute(path).map_err(|error| refuse(path, &error))?;
            let paths = [whole, absolute, path.clone()];
            let informed = names::grow(&Server::at(at, TIMEOUT), &paths, bytes_of(&after), longer);
            if informed != ExitCode::SUCCESS {
                return Ok(informed);
            }
        }
        (Some(served), None) => return Err(need_address(path, served)),
        (None, Some(_)) => {
            let shown = path.display();
            return Err(format!("no server has {shown}: leave out --at"));
        }
    }
    let (bytes_before, bytes) = (bytes_of(&before), bytes_of(&after));
    let report = Report { path: path.display().to_string(), bytes_before, bytes };
    match grow.json {
        true => out_line!("{}", crate::output::json(&report)),
        false => out_line!(
            "grown {} from {} to {}",
            report.path,
            show(report.bytes_before),
            show(report.bytes)
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn need_address(path: &Path, served: &Served) -> String {
    format!(
        "cannot grow {}: {served} has it; if that is a server, name its unix socket: --at \
         unix:PATH",
        path.display()
    )
}

fn bytes_of(layout: &Layout) -> u64 {
    layout.blocks * layout.block as u64
}

/// Writes the checkpoint with the new size.
fn commit(path: &Path, mut opened: file::Opened, after: &Layout) -> Result<(), String> {
    let file::Opened { disk, store } = &mut opened;
    let (ticket, mut printed) = (Ticket(1), Vec::new());
    store.grow(ticket, after.blocks, &mut printed);
    let grown = file::committed(store, disk, ticket, printed);
    let closed = file::close_store(store, disk);
    grown.and(closed).map_err(|error| file::explain(path, error))
}

impl Grow {
    /// Returns the new size of the volume, bytes; `device` is that of its device.
    fn target(&self, before: &Layout, device: Option<u64>) -> Result<u64, String> {
        let shown = self.file.display();
        match (self.size, device) {
            (Some(bytes), _) => Ok(bytes),
            (None, None) => Err(format!("the new size of {shown} is missing; give it like 32G")),
            (None, Some(all)) if all / before.block as u64 > before.blocks => Ok(all),
            (None, Some(all)) => {
                let all = show(all);
                Err(format!("the volume has all of {shown}, {all}: make the device larger first"))
            }
        }
    }
}

/// Returns the layout of the larger volume.
fn plan(path: &Path, before: &Layout, bytes: u64) -> Result<Layout, String> {
    let (shown, block) = (path.display(), before.block as u64);
    let (has, blocks) = (before.blocks * block, bytes / block);
    if bytes <= has {
        return Err(format!("{shown} has {} already; choose a larger size", show(has)));
    }
    before.grown(blocks).map_err(|_| match before.least_grown(blocks) {
        Some(least) if blocks == before.blocks => format!(
            "cannot grow {shown} by {} bytes: it grows by blocks of {block} bytes; use {} bytes \
             or more",
            bytes - has,
            least * block
        ),
        Some(least) => format!(
            "cannot grow {shown} by {}: its larger space map does not fit; use {} bytes or more",
            show(bytes - has),
            least * block
        ),
        None => format!(
            "cannot grow {shown} to {}: with segments of {} it can have {} at most; copy its files \
             out, and into a new volume of that size, with 'upcall volume copy'",
            show(bytes),
            show(before.segment * block),
            show(before.grown_max() * block)
        ),
    })
}

/// Extends the file durably with `extend`, if it is shorter.
fn extend(
    path: &Path,
    size: Range<u64>,
    extend: impl FnOnce(Range<u64>) -> io::Result<()>,
) -> Result<(), String> {
    let extended = if size.is_empty() { Ok(()) } else { extend(size) };
    extended.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => format!(
            "cannot grow {}: {error}; there is not so much room: choose a smaller size, or \
             --sparse, which needs room for the larger map of space alone",
            path.display()
        ),
        io::ErrorKind::Unsupported => format!(
            "cannot grow {}: this file system cannot make a file longer that is in use; stop the \
             server first",
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
            Grow { file, size, sparse: false, at: None, json: false }.target(&before, device)
        };
        assert_eq!(target(Some(1 << 30), None), Ok(1 << 30));
        assert_eq!(target(None, Some(1 << 30)), Ok(1 << 30));
        let missing = "the new size of /dev/sdx is missing; give it like 32G";
        assert_eq!(target(None, None), Err(missing.to_string()));
        // Less than one additional block is not larger either.
        for all in [64 << 20, (64 << 20) + 4095] {
            let refused = target(None, Some(all)).expect_err("it is not larger");
            assert!(refused.ends_with(" MiB: make the device larger first"), "{refused}");
        }
    }

    #[test]
    fn a_size_that_is_too_small_is_refused_with_the_least_that_is_not() {
        let refused = |before: &Layout, bytes| {
            plan(Path::new("v"), before, bytes).expect_err("it is too small")
        };
        let new = Geometry::for_bytes(64 << 20).layout().expect("a usual size");
        let text = refused(&new, 64 << 20);
        assert_eq!(text, "v has 64 MiB already; choose a larger size");
        let grown = new.grown((1 << 30) / 4096).expect("it has room");
        let causes = [
            (&new, (64 << 20) + 4095, "by 4095 bytes: it grows by blocks of 4096 bytes; use"),
            (&new, (64 << 20) + 9 * 4096, "its larger space map does not fit; use"),
            (&grown, 1025 << 20, "by 1 MiB: its larger space map does not fit; use"),
        ];
        for (before, bytes, cause) in causes {
            let text = refused(before, bytes);
            let (_, advice) = text.split_once(cause).unwrap_or_else(|| panic!("{text}"));
            let least = advice.trim().split(' ').next().expect("a size").parse();
            let least: u64 = least.unwrap_or_else(|_| panic!("{text}"));
            assert!(plan(Path::new("v"), before, least).is_ok(), "{text}");
            refused(before, least - 1);
        }
    }
}
