//! Opening entries without crossing a mount point unawares.
//!
//! The kernel refuses to cross (`RESOLVE_NO_XDEV`); the mount table says where the mount point
//! leads; and only if that is local, or the job was admitted to it, the kernel is asked again.

use super::{Ground, Mode, Outcome};
use crate::errno::Trouble;
use crate::pool::lanes::Lane;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;

/// A handle that names a file without opening it.
pub(super) const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// How often a path is resolved again if directories were moved in the meantime.
const RETRIES: usize = 8;

/// Links that one path may lead through (`MAXSYMLINKS` of Linux).
const LINKS_MAX: usize = 40;

/// Opens, or makes, the entry `name` of `dir`; one name.
pub(super) fn entry(
    ground: &Ground<'_>,
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
    mode: rustix::fs::Mode,
) -> Outcome<OwnedFd> {
    let open = |resolve| rustix::fs::openat2(dir, name, flags, mode, resolve);
    match open(refused(ground)) {
        Err(Errno::XDEV) if ground.mode == Mode::Blocking => {
            if let Some(lane) = behind(ground, dir, name)? {
                return Err(Trouble::Elsewhere(lane));
            }
            Ok(open(ResolveFlags::empty())?)
        }
        result => ground.settle(result),
    }
}

/// Opens what a path leads to beneath `root`. Links are followed unless `wanted` says otherwise.
pub(super) fn beneath(
    ground: &Ground<'_>,
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    wanted: ResolveFlags,
) -> Outcome<OwnedFd> {
    let wanted = wanted | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mode = rustix::fs::Mode::empty();
    let path = if path.is_empty() { b"." } else { path };
    let open = |resolve| {
        let mut result = rustix::fs::openat2(root, path, flags, mode, wanted | resolve);
        for _ in 0..RETRIES {
            // Something was renamed while a `..` was resolved: it may have led out.
            if ground.mode == Mode::Cached || !matches!(result, Err(Errno::AGAIN)) {
                break;
            }
            result = rustix::fs::openat2(root, path, flags, mode, wanted | resolve);
        }
        result
    };
    match open(refused(ground)) {
        // A mount point, or a way out of the root: the second attempt tells.
        Err(Errno::XDEV) if ground.mode == Mode::Blocking => {
            scout(ground, root, path)?;
            Ok(open(ResolveFlags::empty())?)
        }
        result => ground.settle(result),
    }
}

/// What the kernel shall refuse in this mode.
fn refused(ground: &Ground<'_>) -> ResolveFlags {
    match ground.mode {
        Mode::Cached => ResolveFlags::CACHED | ResolveFlags::NO_XDEV,
        Mode::Blocking => ResolveFlags::NO_XDEV,
    }
}

/// Goes a path name by name, to find the first mount point on it that leads to where the job may
/// not go yet. Ends where the path does, or where the kernel will say what is wrong with it.
fn scout(ground: &Ground<'_>, root: BorrowedFd<'_>, path: &[u8]) -> Outcome<()> {
    let split = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
        names.rev().map(<[u8]>::to_vec).collect()
    };
    let (mut names, mut links, mut depth) = (split(path), 0, 0usize);
    let mut here: Option<OwnedFd> = None;
    while let Some(name) = names.pop() {
        let up = name == b"..";
        if up && depth == 0 {
            return Ok(());
        }
        let dir = here.as_ref().map_or(root, AsFd::as_fd);
        let next = match entry(ground, dir, &name, HANDLE | OFlags::NOFOLLOW, NO_MODE) {
            Err(elsewhere @ Trouble::Elsewhere(_)) => return Err(elsewhere),
            Err(_) => return Ok(()),
            Ok(next) => next,
        };
        match FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) {
            FileType::Directory => {
                depth = if up { depth - 1 } else { depth + 1 };
                here = Some(next);
            }
            FileType::Symlink if links < LINKS_MAX => {
                links += 1;
                let target = rustix::fs::readlinkat(&next, c"", Vec::new())?.into_bytes();
                if target.starts_with(b"/") {
                    return Ok(());
                }
                names.extend(split(&target));
            }
            FileType::Symlink
            | FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Ok(()),
        }
    }
    Ok(())
}

/// No permissions, for what is not made.
pub(super) const NO_MODE: rustix::fs::Mode = rustix::fs::Mode::empty();

/// The file system behind the mount point `name` of `dir`, unless the job may go there.
fn behind(ground: &Ground<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> Outcome<Option<Lane>> {
    let table = ground.host.mounts.table();
    let point = [&*absolute(ground, dir)?, name].join(&b'/');
    let mount = if name == b".." {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        table.above(rustix::fs::statx(dir, c"", flags, StatxFlags::MNT_ID)?.stx_mnt_id)
    } else {
        table.at(&point)
    };
    let lane = match mount {
        Some(mount) if mount.is_local() => return Ok(None),
        Some(mount) => Lane::Device(mount.device),
        // It has been unmounted, or is not seen from here.
        None => Lane::Path(point.into()),
    };
    Ok(Some(lane).filter(|lane| !ground.admitted.contains(lane)))
}

/// The absolute path of a directory, without a slash at its end.
fn absolute(ground: &Ground<'_>, dir: BorrowedFd<'_>) -> Outcome<Vec<u8>> {
    let mut path = path_of(ground, dir)?;
    if path == b"/" {
        path.clear();
    }
    Ok(path)
}

/// The absolute path of an open file or handle, as the kernel knows it at present.
pub(super) fn path_of(ground: &Ground<'_>, file: BorrowedFd<'_>) -> rustix::io::Result<Vec<u8>> {
    let number = super::open::by_number(file);
    let path = rustix::fs::readlinkat(ground.host.proc(), number.as_c_str(), Vec::new())?;
    Ok(path.into_bytes())
}

/// Entries of a directory that must not be looked at: mount points of file systems that the job
/// may not enter.
pub(super) fn closed(ground: &Ground<'_>, dir: BorrowedFd<'_>) -> Outcome<BTreeSet<Vec<u8>>> {
    let table = ground.host.mounts.table();
    let path = path_of(ground, dir)?;
    let mut closed = BTreeSet::new();
    for (name, mount) in table.in_directory(&path) {
        let may_enter = mount.is_local() || ground.admitted.contains(&Lane::Device(mount.device));
        if may_enter {
            closed.remove(name);
        } else {
            closed.insert(name.to_vec());
        }
    }
    Ok(closed)
}

/// A path relative to the directory `root`; `None`: it is not beneath it.
pub(super) fn relative<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(root)?;
    let rest = if root == b"/" { rest } else { rest.strip_prefix(b"/")? };
    (!rest.is_empty()).then_some(rest)
}
