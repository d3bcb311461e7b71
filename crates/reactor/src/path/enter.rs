//! Opening of entries without crossing a mount point unchecked.
//!
//! The kernel refuses to cross (`RESOLVE_NO_XDEV`); the mount table identifies the file system
//! behind the mount point; and only if it is local, or the job was admitted to it, the call is
//! repeated.

use super::{Mode, Outcome, PathContext};
use crate::errno::StepError;
use crate::mounts::Mount;
use crate::pool::lanes::Lane;
use base::Caller;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Flags of a handle, which names a file without opening it.
pub(super) const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Maximum number of name lookups for one path; more than any path has.
const STEPS_MAX: usize = 1 << 14;

/// Maximum number of attempts to resolve a path while directories are being renamed.
pub(super) const RETRIES: usize = 8;

/// Size of a link, bytes, up to which operations follow it that are no long jobs.
const SHORT_LINK: i64 = 256;

/// Maximum number of links on one path (`MAXSYMLINKS` of Linux).
const LINKS_MAX: usize = 40;

/// Opens or creates the entry `name` of `dir`; one name.
pub(super) fn entry(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
    mode: rustix::fs::Mode,
) -> Outcome<OwnedFd> {
    assert!(!name.contains(&b'/'), "one name, which is looked up in this directory");
    context.step()?;
    let open = |resolve| rustix::fs::openat2(dir, name, flags, mode, resolve);
    match open(refused(context)) {
        Err(Errno::XDEV) if context.mode == Mode::Blocking => {
            if let Some(lane) = behind(context, dir, name)? {
                return Err(StepError::Elsewhere(lane));
            }
            Ok(open(ResolveFlags::empty())?)
        }
        result => context.settle(result),
    }
}

/// Opens the file at a path beneath `root`. Links are followed unless `wanted` forbids it.
///
/// # Errors
/// `Lengthy`, where the number of name lookups is limited, if links lead through many names: 40
/// links of 4,000 bytes take the kernel milliseconds.
pub(super) fn beneath(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    wanted: ResolveFlags,
) -> Outcome<OwnedFd> {
    let wanted = wanted | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mode = rustix::fs::Mode::empty();
    let path = if path.is_empty() { b"." } else { path };
    let is_limited = context.steps.is_some() && !wanted.contains(ResolveFlags::NO_SYMLINKS);
    let open = |resolve| {
        let mut result = rustix::fs::openat2(root, path, flags, mode, wanted | resolve);
        for _ in 0..RETRIES {
            // A directory was renamed while a `..` was resolved, which may have led out.
            if context.mode == Mode::Cached || !matches!(result, Err(Errno::AGAIN)) {
                break;
            }
            result = rustix::fs::openat2(root, path, flags, mode, wanted | resolve);
        }
        result
    };
    let first = if is_limited { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
    let mut opened = open(refused(context) | first);
    // There are links on the path.
    if is_limited && matches!(opened, Err(Errno::LOOP)) {
        expect_few_names(context, root, path)?;
        opened = open(refused(context));
    }
    match opened {
        // A mount point, or a path out of the root.
        Err(Errno::XDEV) if context.mode == Mode::Blocking => {
            let follow = !wanted.contains(ResolveFlags::NO_SYMLINKS);
            resolve(context, root, path, follow)
        }
        result => context.settle(result),
    }
}

/// # Errors
/// `Lengthy` if a path leads through more names than are left, or through a long link. The errors
/// of the path itself are the kernel's to report.
fn expect_few_names(context: &PathContext<'_>, root: BorrowedFd<'_>, path: &[u8]) -> Outcome<()> {
    match resolve(context, root, path, true) {
        Err(failure @ (StepError::Lengthy | StepError::NotCached)) => Err(failure),
        Ok(_) | Err(StepError::Kernel(_) | StepError::Elsewhere(_) | StepError::Known(_)) => Ok(()),
    }
}

/// Returns the crossings and waits that the kernel must refuse in this mode.
fn refused(context: &PathContext<'_>) -> ResolveFlags {
    match context.mode {
        Mode::Cached => ResolveFlags::CACHED | ResolveFlags::NO_XDEV,
        Mode::Blocking => ResolveFlags::NO_XDEV,
    }
}

/// Resolves a path name by name, to a handle. The kernel would resolve all of it at once and cross
/// every mount point, including new ones.
///
/// A `..` restarts at the root with the names before it, so that a directory renamed meanwhile
/// leads nowhere else.
fn resolve(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    path: &[u8],
    follow: bool,
) -> Outcome<OwnedFd> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV.into());
    }
    let (mut names, mut passed, mut links) = (split(path), Vec::new(), 0);
    let mut here = entry(context, root, b".", HANDLE, NO_MODE)?;
    for _ in 0..STEPS_MAX {
        let Some(name) = names.pop() else { return Ok(here) };
        if name == b".." {
            // Out of the root.
            passed.pop().ok_or(Errno::XDEV)?;
            names.extend(passed.drain(..).rev());
            here = entry(context, root, b".", HANDLE, NO_MODE)?;
            continue;
        }
        let next = entry(context, here.as_fd(), &name, HANDLE | OFlags::NOFOLLOW, NO_MODE)?;
        let stat = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            if !follow || links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if context.steps.is_some() && stat.st_size > SHORT_LINK {
                return Err(StepError::Lengthy);
            }
            expect_followable(context, here.as_fd(), stat.st_uid)?;
            let target = rustix::fs::readlinkat(&next, c"", Vec::new())?.into_bytes();
            if target.starts_with(b"/") {
                return Err(Errno::XDEV.into());
            }
            names.extend(split(&target));
            continue;
        }
        passed.push(name);
        here = next;
    }
    Err(Errno::LOOP.into())
}

/// Returns the names of a path as a stack, the first on top.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}

/// Refuses other users' links in directories such as `/tmp`, as the kernel does
/// (`fs.protected_symlinks`, proc(5)).
fn expect_followable(context: &PathContext<'_>, dir: BorrowedFd<'_>, owner: u32) -> Outcome<()> {
    const STICKY_AND_WRITABLE: u32 = 0o1002;
    let dir = rustix::fs::fstat(dir)?;
    let open = dir.st_mode & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE;
    let own = match context.caller {
        Caller::Server => rustix::process::geteuid().as_raw(),
        Caller::User(user) => user.uid,
    };
    let trusted = owner == dir.st_uid || owner == own;
    if open && !trusted { Err(Errno::ACCESS.into()) } else { Ok(()) }
}

/// No permissions, where no file is created.
pub(super) const NO_MODE: rustix::fs::Mode = rustix::fs::Mode::empty();

/// Returns the file system behind the mount point `name` of `dir`, unless the job may enter it.
///
/// Mounts are distinguished by their parent mount and by their names, which cannot change while
/// something is mounted there; directories above can be renamed at any time. If there are several
/// of one name, the job needs admission to each.
fn behind(context: &PathContext<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> Outcome<Option<Lane>> {
    let (table, id) = (context.host.mounts.table(), mount_of(dir)?);
    let found: Vec<&Mount> = match name {
        b".." => table.above(id).into_iter().collect(),
        name => table.named(id, name).collect(),
    };
    if found.is_empty() {
        // It was unmounted, or is not visible from here.
        return Ok(Some(Lane::Hidden(id)).filter(|lane| !context.admitted.contains(lane)));
    }
    let may_block = found.into_iter().filter(|mount| !mount.is_local());
    let mut lanes = may_block.map(|mount| Lane::Device(mount.device));
    Ok(lanes.find(|lane| !context.admitted.contains(lane)))
}

/// Returns the mount id of a directory.
fn mount_of(dir: BorrowedFd<'_>) -> Outcome<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(dir, c"", flags, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Returns the present absolute path of an open file or handle, according to the kernel.
pub(super) fn path_of(
    context: &PathContext<'_>,
    file: BorrowedFd<'_>,
) -> rustix::io::Result<Vec<u8>> {
    let number = super::open::by_number(file);
    let path = rustix::fs::readlinkat(context.host.proc(), number.as_c_str(), Vec::new())?;
    Ok(path.into_bytes())
}

/// Returns the names of mount points on the mount of a directory: an entry of such a name may be
/// one.
pub(super) fn mount_points(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
) -> Outcome<BTreeSet<Vec<u8>>> {
    let (table, id) = (context.host.mounts.table(), mount_of(dir)?);
    Ok(table.names_on(id).map(<[u8]>::to_vec).collect())
}

/// Returns a path relative to the directory `root`; `None` if it is not beneath it.
pub(super) fn relative<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(root)?;
    let rest = if root == b"/" { rest } else { rest.strip_prefix(b"/")? };
    (!rest.is_empty()).then_some(rest)
}
