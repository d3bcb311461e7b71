//! Reads of many small files at once.

use super::{Outcome, PathContext, attrs, open, spent_since};
use crate::descriptor;
use crate::thread_time;
use base::op::{Content, File, PathDone};
use base::{Buf, Kind};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Reads files as a whole, as many of the first as fit.
pub(super) fn read_all(
    context: &PathContext<'_>,
    from: File,
    paths: &[Vec<u8>],
    size_max: u32,
    bytes_max: u32,
) -> Outcome<PathDone> {
    let from = descriptor::file(from)?;
    let begun = thread_time();
    let (mut contents, mut left) = (Vec::new(), u64::from(bytes_max));
    for path in paths {
        match read(context, from, path, u64::from(size_max), left) {
            FileOutcome::Read(content) => {
                left -= content.data.len() as u64;
                contents.push(content);
            }
            FileOutcome::LeftOut => {}
            FileOutcome::Full => break,
        }
    }
    Ok(PathDone::Contents(contents, spent_since(begun)))
}

/// Result for one file.
enum FileOutcome {
    Read(Content),
    LeftOut,
    /// It does not fit.
    Full,
}

fn read(
    context: &PathContext<'_>,
    from: BorrowedFd<'_>,
    path: &[u8],
    size_max: u64,
    left: u64,
) -> FileOutcome {
    // Only plain files are opened: opening others may have effects.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let Ok(handle) = rustix::fs::openat2(from, path, flags, Mode::empty(), resolve) else {
        return FileOutcome::LeftOut;
    };
    let Ok(stat) = attrs::stat(handle.as_fd()) else { return FileOutcome::LeftOut };
    // Files of size zero may have contents, such as those of `/proc`.
    if stat.kind != Kind::File || stat.size == 0 || stat.size > size_max {
        return FileOutcome::LeftOut;
    }
    if stat.size > left {
        return FileOutcome::Full;
    }
    let Ok(file) = open::reopen(context, handle.as_fd(), OFlags::RDONLY | open::ALWAYS) else {
        return FileOutcome::LeftOut;
    };
    match whole(file.as_fd(), stat.size) {
        Ok(Some(data)) => FileOutcome::Read(Content { path: path.to_vec(), stat, data }),
        // It was truncated meanwhile.
        Ok(None) | Err(_) => FileOutcome::LeftOut,
    }
}

/// Reads a file of this size; `None` if it is shorter. The memory is not zeroed first, which would
/// cost as much as the kernel's copy.
fn whole(file: BorrowedFd<'_>, size: u64) -> rustix::io::Result<Option<Buf>> {
    let size = usize::try_from(size).expect("it fits in 32 bits");
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let offset = bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), offset) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    // The allocation may be larger, and the file may have grown.
    bytes.truncate(size);
    Ok(Some(Buf::from(bytes)))
}
