//! Fetch: path resolution beneath the root, open, stat and read in one operation, as for an HTTP
//! GET.
//!
//! The kind of a file must be known before it is opened: opening a device may rewind a tape. So the
//! first time a path is resolved to a handle, checked, and opened through `/proc`. Paths that led
//! to a plain file are remembered, and are opened directly the next time, which saves two system
//! calls of six: `openat2`, `statx`, `preadv2`, `close` remain; and of those only `statx` and
//! `preadv2` for a recently fetched file ([`super::recent`]). For the shortcut to open a device, a
//! user who may create devices would have to replace a file by one in between; this is detected at
//! once, and the path forgotten.

use super::recent::Entry;
use super::{Ground, Mode, Outcome, attrs, enter, open};
use crate::descriptor;
use crate::errno::Trouble;
use base::op::{File, PathDone};
use base::{Access, Buf, Caller, Error, Kind, Stat};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;

/// Number of bytes to read of a file of size zero, which may have contents (those of `/proc` do).
const UNKNOWN_SIZE: u64 = 4096;

/// Fetches a path from a root.
pub(super) fn fetch(
    ground: &mut Ground<'_>,
    caller: &Caller,
    (root, path): (File, &[u8]),
    read_max: u32,
    headroom: u32,
) -> Outcome<PathDone> {
    let hash = ground.host.path_hash(root.0, path);
    let taken = ground.recent.as_mut().and_then(|(r, _)| r.take(hash, (root, path, caller)));
    if let Some(entry) = taken
        && let Ok(stat) = attrs::stat(entry.fd.as_fd())
        && stat.links > 0
    {
        let (done, file) = serve(ground, entry.fd, stat, read_max, headroom)?;
        if let (Some(fd), Some((recent, _))) = (file, &mut ground.recent) {
            recent.put_back(hash, Entry { fd, ..entry });
        }
        return Ok(done);
    }
    let (file, stat) = find(ground, root, path, hash)?;
    let (done, file) = serve(ground, file, stat, read_max, headroom)?;
    if let (Some(fd), Some((recent, now))) = (file, &mut ground.recent) {
        let (path, caller) = (path.to_vec(), caller.clone());
        recent.keep(*now, hash, Entry { root, path, caller, fd });
    }
    Ok(done)
}

/// Reads a file that was found; returns it if it is not handed out.
fn serve(
    ground: &mut Ground<'_>,
    file: OwnedFd,
    stat: Stat,
    read_max: u32,
    headroom: u32,
) -> Outcome<(PathDone, Option<OwnedFd>)> {
    if stat.kind == Kind::Directory {
        finish_flags(ground, &file)?;
        return Ok((PathDone::Fetched(stat, Buf::default(), Some(give_out(file))), None));
    }
    let expected = if stat.size == 0 { UNKNOWN_SIZE } else { stat.size };
    let count = usize::try_from(expected.min(read_max.into())).expect("fits in 32 bits");
    let mut buf = ground.memory.take(headroom as usize, count);
    if let Err(trouble) = fill(ground, file.as_fd(), &mut buf, count, stat.size) {
        ground.memory.give(buf);
        return Err(trouble);
    }
    // A file of size zero with contents may continue after any record.
    let more = stat.size > buf.len() as u64 || (stat.size == 0 && !buf.is_empty());
    if !more {
        return Ok((PathDone::Fetched(stat, buf, None), Some(file)));
    }
    finish_flags(ground, &file)?;
    Ok((PathDone::Fetched(stat, buf, Some(give_out(file))), None))
}

fn give_out(file: OwnedFd) -> File {
    File(descriptor::release(file))
}

/// Opens the plain file or directory at `path`.
fn find(ground: &Ground<'_>, root: File, path: &[u8], hash: u64) -> Outcome<(OwnedFd, Stat)> {
    let from = descriptor::file(root)?;
    if ground.mode == Mode::Cached && ground.host.was_plain(hash) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | open::ALWAYS;
        let file = enter::beneath(ground, from, path, flags, ResolveFlags::empty())?;
        let stat = attrs::stat(file.as_fd())?;
        if open::is_plain(stat.kind) {
            return Ok((file, stat));
        }
        ground.host.set_plain(hash, false);
        return Err(Error::Unsupported.into());
    }
    let handle = enter::beneath(ground, from, path, enter::HANDLE, ResolveFlags::empty())?;
    let stat = attrs::stat(handle.as_fd())?;
    if !open::is_plain(stat.kind) {
        return Err(Error::Unsupported.into());
    }
    let flags = OFlags::RDONLY | open::ALWAYS;
    let flags = if ground.mode == Mode::Cached { flags | OFlags::NONBLOCK } else { flags };
    let file = ground.settle(open::reopen(ground, handle.as_fd(), flags))?;
    ground.host.set_plain(hash, true);
    Ok((file, stat))
}

/// Reads the first `count` bytes, or as many as there are.
fn fill(
    ground: &Ground<'_>,
    file: BorrowedFd<'_>,
    buf: &mut Buf,
    count: usize,
    size: u64,
) -> Outcome<()> {
    let flags = match ground.mode {
        Mode::Cached => ReadWriteFlags::NOWAIT,
        Mode::Blocking => ReadWriteFlags::empty(),
    };
    while buf.len() < count {
        let offset = buf.len() as u64;
        let want = count - buf.len();
        let mut slices = [IoSliceMut::new(&mut buf.spare()[..want])];
        match ground.settle(rustix::io::preadv2(file, &mut slices, offset, flags)) {
            Ok(0) => break,
            Ok(n) => buf.grow(n),
            Err(Trouble::Kernel(Errno::INTR)) => {}
            Err(trouble) => return Err(trouble),
        }
        // A file of size zero returns its contents in one read.
        if size == 0 {
            break;
        }
    }
    Ok(())
}

/// Clears the flags of a non-blocking open before a file is handed out.
fn finish_flags(ground: &Ground<'_>, file: &OwnedFd) -> Outcome<()> {
    match ground.mode {
        Mode::Cached => Ok(open::clear_nonblock(file, Access::READ)?),
        Mode::Blocking => Ok(()),
    }
}
