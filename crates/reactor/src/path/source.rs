//! Sources of mounts: directories, volumes, and servers by name.

use super::{Outcome, PathContext, attrs};
use crate::descriptor;
use crate::errno::error_of;
use crate::volume::VolumeFile;
use base::Error;
use base::op::{File, PathDone};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::io;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Size of the pieces in which the beginning of a volume is read, bytes.
const UNIT: usize = 4096;

/// Opens a directory to be served.
pub(super) fn open_root(context: &PathContext<'_>, path: &[u8]) -> Outcome<PathDone> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = attrs::stat(fd.as_fd())?;
    context.host.forget_plain();
    Ok(PathDone::Root(File(descriptor::release(fd)), stat))
}

/// Opens and locks a volume, and reads its first `head` bytes.
pub(super) fn open_volume(path: &[u8], writable: bool, head: usize) -> Outcome<PathDone> {
    let path = Path::new(OsStr::from_bytes(path));
    let volume =
        VolumeFile::open_patiently(path, writable).map_err(|error| refusal(path, error))?;
    let size = volume.size().map_err(error_of)?;
    let mut bytes = Vec::new();
    if size >= head as u64 {
        let blocks = volume.read_blocks(0, head / UNIT, UNIT).map_err(error_of)?;
        blocks.iter().for_each(|block| bytes.extend_from_slice(block));
    }
    let file = File(descriptor::release(volume.into_fd()));
    Ok(PathDone::Volume(file, size, bytes))
}

/// Translates an error of opening a volume: use by another process is no failure.
fn refusal(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        Error::Busy
    } else if error.kind() == io::ErrorKind::InvalidInput {
        // Neither a file nor a block device.
        if path.is_dir() { Error::IsDirectory } else { Error::Unsupported }
    } else {
        error_of(error)
    }
}

/// Returns the addresses of a server.
pub(super) fn resolve(address: &str) -> Outcome<PathDone> {
    let found = address.to_socket_addrs().map_err(|_| Error::NotFound)?;
    let found: Vec<_> = found.collect();
    if found.is_empty() { Err(Error::NotFound.into()) } else { Ok(PathDone::Addresses(found)) }
}
