//! Fetch: path resolution beneath the root, open, stat and read in one operation, as for an HTTP
//! GET.
//!
//! The kind of a file must be known before it is opened: opening a device may rewind a tape. So the
//! first time a path is resolved to a handle, checked, and opened through `/proc`. Paths that led
//! to a plain file are remembered, and are opened directly the next time, which saves two system
//! calls of six: `openat2`, `statx`, `preadv2`, `close` remain; and of those only `statx` and
//! `preadv2` for a recently fetched file, or `statx` if its contents are held ([`super::recent`]).
//! For the shortcut to open a device, a user who may create devices would have to replace a file by
//! one in between; this is detected at once, and the path forgotten.

use super::recent::{Contents, Entry};
use super::{Mode, Outcome, PathContext, attrs, enter, open};
use crate::errno::StepError;
use crate::{clock, descriptor};
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
    context: &mut PathContext<'_>,
    caller: &Caller,
    (root, path): (File, &[u8]),
    read_max: u32,
    headroom: u32,
) -> Outcome<PathDone> {
    let hash = context.host.path_hash(root.0, path);
    let taken = context.recent.as_mut().and_then(|(r, _)| r.take(hash, (root, path, caller)));
    if let Some(entry) = taken
        && let Ok(stat) = attrs::stat(entry.fd.as_fd())
        && stat.links > 0
    {
        return fetch_recent(context, entry, hash, stat, read_max, headroom);
    }
    let (file, stat) = find(context, root, path, hash)?;
    let (done, file) = serve(context, file, stat, read_max, headroom)?;
    if let (Some(fd), Some((recent, now))) = (file, &mut context.recent) {
        let (path, caller, contents) = (path.to_vec(), caller.clone(), None);
        recent.keep(*now, hash, Entry { root, path, caller, fd, contents });
    }
    Ok(done)
}

/// Fetches a recently fetched file, whose attributes are `stat` now. Its contents are held from the
/// second fetch on.
fn fetch_recent(
    context: &mut PathContext<'_>,
    entry: Entry,
    hash: u64,
    stat: Stat,
    read_max: u32,
    headroom: u32,
) -> Outcome<PathDone> {
    let held = entry.contents.as_ref().and_then(|contents| contents.bytes_for(&stat));
    if let Some(bytes) = held.filter(|bytes| bytes.len() <= read_max as usize) {
        let mut buf = context.memory.take(headroom as usize, bytes.len());
        buf.extend(bytes);
        if let Some((recent, _)) = &mut context.recent {
            recent.put_back(hash, entry);
        }
        return Ok(PathDone::Fetched(stat, buf, None));
    }
    let (done, file) = serve(context, entry.fd, stat, read_max, headroom)?;
    if let (Some(fd), Some((recent, _))) = (file, &mut context.recent) {
        let contents = if let PathDone::Fetched(stat, buf, None) = &done {
            Contents::of(stat, buf, clock::wall())
        } else {
            None
        };
        recent.put_back(hash, Entry { fd, contents, ..entry });
    }
    Ok(done)
}

/// Reads a file that was found; returns it if it is not handed out.
fn serve(
    context: &mut PathContext<'_>,
    file: OwnedFd,
    stat: Stat,
    read_max: u32,
    headroom: u32,
) -> Outcome<(PathDone, Option<OwnedFd>)> {
    if stat.kind == Kind::Directory {
        finish_flags(context, &file)?;
        return Ok((PathDone::Fetched(stat, Buf::default(), Some(give_out(file))), None));
    }
    let expected = if stat.size == 0 { UNKNOWN_SIZE } else { stat.size };
    let count = usize::try_from(expected.min(read_max.into())).expect("fits in 32 bits");
    let mut buf = context.memory.take(headroom as usize, count);
    if let Err(failure) = fill(context, file.as_fd(), &mut buf, count, stat.size) {
        context.memory.give(buf);
        return Err(failure);
    }
    // A file of size zero with contents may continue after any record.
    let more = stat.size > buf.len() as u64 || (stat.size == 0 && !buf.is_empty());
    if !more {
        return Ok((PathDone::Fetched(stat, buf, None), Some(file)));
    }
    finish_flags(context, &file)?;
    Ok((PathDone::Fetched(stat, buf, Some(give_out(file))), None))
}

fn give_out(file: OwnedFd) -> File {
    File(descriptor::release(file))
}

/// Opens the plain file or directory at `path`.
fn find(context: &PathContext<'_>, root: File, path: &[u8], hash: u64) -> Outcome<(OwnedFd, Stat)> {
    let from = descriptor::file(root)?;
    if context.mode == Mode::Cached && context.host.was_plain(hash) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | open::ALWAYS;
        let file = enter::beneath(context, from, path, flags, ResolveFlags::empty())?;
        let stat = attrs::stat(file.as_fd())?;
        if open::is_plain(stat.kind) {
            return Ok((file, stat));
        }
        context.host.set_plain(hash, false);
        return Err(Error::Unsupported.into());
    }
    let handle = enter::beneath(context, from, path, enter::HANDLE, ResolveFlags::empty())?;
    let stat = attrs::stat(handle.as_fd())?;
    if !open::is_plain(stat.kind) {
        return Err(Error::Unsupported.into());
    }
    let flags = OFlags::RDONLY | open::ALWAYS;
    let flags = if context.mode == Mode::Cached { flags | OFlags::NONBLOCK } else { flags };
    let file = context.settle(open::reopen(context, handle.as_fd(), flags))?;
    context.host.set_plain(hash, true);
    Ok((file, stat))
}

/// Reads the first `count` bytes, or as many as there are.
fn fill(
    context: &PathContext<'_>,
    file: BorrowedFd<'_>,
    buf: &mut Buf,
    count: usize,
    size: u64,
) -> Outcome<()> {
    let flags = match context.mode {
        Mode::Cached => ReadWriteFlags::NOWAIT,
        Mode::Blocking => ReadWriteFlags::empty(),
    };
    while buf.len() < count {
        let offset = buf.len() as u64;
        let want = count - buf.len();
        let mut slices = [IoSliceMut::new(&mut buf.spare()[..want])];
        match context.settle(rustix::io::preadv2(file, &mut slices, offset, flags)) {
            Ok(0) => break,
            Ok(n) => buf.grow(n),
            Err(StepError::Kernel(Errno::INTR)) => {}
            Err(failure) => return Err(failure),
        }
        // A file of size zero returns its contents in one read.
        if size == 0 {
            break;
        }
    }
    Ok(())
}

/// Clears the flags of a non-blocking open before a file is handed out.
fn finish_flags(context: &PathContext<'_>, file: &OwnedFd) -> Outcome<()> {
    match context.mode {
        Mode::Cached => Ok(open::clear_nonblock(file, Access::READ)?),
        Mode::Blocking => Ok(()),
    }
}
