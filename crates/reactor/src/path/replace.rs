//! Conditional changes of one entry, and files without a name until then.
//!
//! The caller ensures that no other change of the entry through this server is in flight, so check
//! and change are atomic with respect to those. Other programs of the host can intervene; only the
//! absence of an entry is checked by the kernel itself (`linkat`, `RENAME_NOREPLACE`).

use super::create::{created, permissions};
use super::rename::movable;
use super::{Outcome, PathContext, attrs, open, walk};
use crate::descriptor;
use crate::errno::StepError;
use base::op::{File, PathDone, Replacement};
use base::{Access, Error, Expected, Kind, Name, Stat};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, FileType, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};

/// Age, seconds, from which on a file with a temporary name counts as left over.
const LEFT_OVER_SECS: i64 = 60;

/// Maximum number of attempts on an entry that other programs change meanwhile.
const RETRIES: usize = 64;

/// Creates a file without a name.
pub(super) fn create_unnamed(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    access: Access,
    mode: u32,
) -> Outcome<PathDone> {
    context.host.own.admit_mode(Kind::File, mode)?;
    let access = Access { write: true, ..access };
    let flags = open::flags(access) | OFlags::TMPFILE;
    match rustix::fs::openat(dir, c".", flags, permissions(mode)) {
        Ok(file) => {
            let handle = open::reopen(context, file.as_fd(), OFlags::PATH | OFlags::CLOEXEC)?;
            created(file, handle)
        }
        // Errors of kernels and file systems without support for it (open(2)).
        Err(Errno::ISDIR | Errno::OPNOTSUPP | Errno::INVAL) => Err(Error::Unsupported.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Replaces or removes an entry, if it is as expected.
pub(super) fn replace(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    by: &Replacement<File>,
    expected: Expected,
) -> Outcome<PathDone> {
    let name = movable(name)?;
    let mut failed = Errno::BUSY;
    for _ in 0..RETRIES {
        let present = match walk::stat(context, dir, name) {
            Err(StepError::Kernel(Errno::NOENT)) => None,
            other => Some(other?),
        };
        if !expected.is_met_by(present.as_ref()) {
            return Ok(PathDone::Unexpected(present));
        }
        let changed = match by {
            Replacement::Nothing => rustix::fs::unlinkat(dir, name, AtFlags::empty()),
            Replacement::Entry(from, old) => {
                let (from, old) = (descriptor::file(*from)?, movable(old)?);
                date(from, old, AtFlags::SYMLINK_NOFOLLOW);
                move_entry(from, old, dir, name, present.as_ref())
            }
            Replacement::Unnamed(file) => {
                give_name(context, descriptor::file(*file)?, dir, name, present.as_ref())
            }
        };
        match changed {
            // Another program was faster.
            Err(errno @ (Errno::EXIST | Errno::NOENT)) => failed = errno,
            Err(errno) => return Err(errno.into()),
            Ok(()) => return done(context, dir, name, by),
        }
    }
    Err(failed.into())
}

/// Returns the attributes after the change.
fn done(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &[u8],
    by: &Replacement<File>,
) -> Outcome<PathDone> {
    match by {
        Replacement::Nothing => Ok(PathDone::Ok),
        Replacement::Entry(..) => Ok(PathDone::Stat(walk::stat(context, dir, name)?)),
        Replacement::Unnamed(file) => Ok(PathDone::Stat(attrs::stat(descriptor::file(*file)?)?)),
    }
}

fn move_entry(
    from: BorrowedFd<'_>,
    old: &[u8],
    dir: BorrowedFd<'_>,
    name: &[u8],
    present: Option<&Stat>,
) -> rustix::io::Result<()> {
    let flags = match present {
        Some(_) => RenameFlags::empty(),
        None => RenameFlags::NOREPLACE,
    };
    match rustix::fs::renameat_with(from, old, dir, name, flags) {
        // File systems without the flag (NFS, some FUSE): the check above has to suffice.
        Err(Errno::INVAL) if present.is_none() => rustix::fs::renameat(from, old, dir, name),
        // Not the entry is missing, but its replacement.
        Err(Errno::NOENT) if rustix::fs::statat(from, old, AtFlags::SYMLINK_NOFOLLOW).is_err() => {
            Err(Errno::STALE)
        }
        other => other,
    }
}

/// Gives this name to an unnamed file. An entry can be replaced by a rename only, so the file has a
/// temporary name for a moment. It depends on the final name only, so that one left by a crash is
/// found and removed by the next change of that entry.
fn give_name(
    context: &PathContext<'_>,
    file: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &[u8],
    present: Option<&Stat>,
) -> rustix::io::Result<()> {
    let (proc, number) = (context.host.proc(), open::by_number(file));
    date(proc, number.as_c_str(), AtFlags::empty());
    let link =
        |to: &[u8]| rustix::fs::linkat(proc, number.as_c_str(), dir, to, AtFlags::SYMLINK_FOLLOW);
    if present.is_none() {
        return link(name);
    }
    let mut between = format!(".upcall-put-{:016x}", fnv1a(name));
    let mut linked = link(between.as_bytes());
    if linked == Err(Errno::EXIST) && is_left_over(dir, &between) {
        let _may_be_anothers = rustix::fs::unlinkat(dir, between.as_str(), AtFlags::empty());
        linked = link(between.as_bytes());
    }
    if linked == Err(Errno::EXIST) {
        // The name is in use, or unavailable: use a unique one.
        between = unique(&between);
        linked = link(between.as_bytes());
    }
    linked?;
    let renamed = rustix::fs::renameat(dir, between.as_str(), dir, name);
    if renamed.is_err() {
        // A failure leaves nothing behind.
        let _gone = rustix::fs::unlinkat(dir, between.as_str(), AtFlags::empty());
    }
    renamed
}

/// Sets the modification time to the present, to the nanosecond: the kernel's own timestamps may be
/// equal for some milliseconds, in which an inode number can be reused. Where this is refused, the
/// file keeps its time.
fn date<P: rustix::path::Arg>(dir: BorrowedFd<'_>, name: P, flags: AtFlags) {
    let now = clock_gettime(ClockId::Realtime);
    let kept = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: kept, last_modification: now };
    let _kept = rustix::fs::utimensat(dir, name, &times, flags);
}

/// Returns whether a file has had a temporary name for so long that nobody is about to rename it.
fn is_left_over(dir: BorrowedFd<'_>, name: &str) -> bool {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let now = clock_gettime(ClockId::Realtime).tv_sec;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file && stat.st_ctime.saturating_add(LEFT_OVER_SECS) < now
}

/// Returns the name with a suffix unique among all changes of all processes.
fn unique(name: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (now, count) = (clock_gettime(ClockId::Realtime), COUNT.fetch_add(1, Ordering::Relaxed));
    let process = rustix::process::getpid().as_raw_nonzero();
    format!("{name}-{process:x}-{:x}{:08x}-{count:x}", now.tv_sec, now.tv_nsec)
}

/// Returns the 64-bit hash of Fowler, Noll and Vo.
fn fnv1a(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}
