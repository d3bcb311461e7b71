//! Renaming and removal, by name or by a handle whose present name must be determined.

use super::create::plain;
use super::{Outcome, PathContext, attrs, enter, walk};
use crate::errno::StepError;
use crate::identity::IdentityPart;
use base::op::PathDone;
use base::{Caller, Error, Name, Stat};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// Maximum number of attempts to locate a file that is being renamed.
const RETRIES: usize = 4;

/// Renames an entry; `replace`: it may replace an existing one.
pub(super) fn rename(
    from: BorrowedFd<'_>,
    name: &Name,
    to: BorrowedFd<'_>,
    new_name: &Name,
    replace: bool,
) -> Outcome<PathDone> {
    let (name, new_name) = (movable(name)?, movable(new_name)?);
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    rustix::fs::renameat_with(from, name, to, new_name, flags)?;
    Ok(PathDone::Ok)
}

/// Refuses names that every directory has, and that the kernel would call busy.
pub(super) fn movable(name: &Name) -> Result<&[u8], Error> {
    plain(name).map_err(|_| Error::Invalid)
}

/// Removes an entry.
pub(super) fn remove(
    dir: BorrowedFd<'_>,
    name: &Name,
    directory: Option<bool>,
) -> Outcome<PathDone> {
    let name = movable(name)?;
    match directory {
        Some(true) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?,
        Some(false) => rustix::fs::unlinkat(dir, name, AtFlags::empty())?,
        None => match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?,
            other => other?,
        },
    }
    Ok(PathDone::Ok)
}

/// Renames the file at `place`.
pub(super) fn rename_file(
    place: &Location,
    to: Option<BorrowedFd<'_>>,
    new_name: &Name,
    replace: bool,
) -> Outcome<PathDone> {
    let parent = place.parent.as_fd();
    rename(parent, &place.name, to.unwrap_or(parent), new_name, replace)
}

/// Removes the file of `file`.
pub(super) fn remove_file(
    context: &PathContext<'_>,
    caller: &Caller,
    root: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
) -> Outcome<PathDone> {
    let place = locate(context, caller, root, file)?;
    remove(place.parent.as_fd(), &place.name, None)
}

/// Present location of a file.
pub(super) struct Location {
    parent: OwnedFd,
    name: Name,
}

/// Finds the present name of a file beneath the root.
///
/// The kernel reports it as an absolute path, which may lead through directories above the
/// root that the caller may not search: so the search has the server's own rights, and operations
/// in the directory found have the caller's.
pub(super) fn locate(
    context: &PathContext<'_>,
    caller: &Caller,
    root: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
) -> Outcome<Location> {
    context.host.own.be_server()?;
    let found = search(context, root, file);
    context.host.own.assume(caller, None, IdentityPart::Changing)?;
    found
}

fn search(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
) -> Outcome<Location> {
    let top = attrs::stat(root)?;
    for _ in 0..RETRIES {
        let wanted = attrs::stat(file)?;
        if wanted.is_same(&top) {
            return Err(Error::NotPermitted.into());
        }
        if wanted.links == 0 {
            return Err(Error::NotFound.into());
        }
        if let Some(place) = look(context, root, file, &wanted)? {
            return Ok(place);
        }
    }
    // It has other names, or its link count would be zero; but the one it was found by is gone.
    Err(Error::NotFound.into())
}

/// Reads the name and checks it; `None` if it is no longer valid.
fn look(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    wanted: &Stat,
) -> Outcome<Option<Location>> {
    let (top, path) = (enter::path_of(context, root)?, enter::path_of(context, file)?);
    let Some(path) = enter::relative(&top, &path) else { return Err(Error::CrossDevice.into()) };
    let slash = path.iter().rposition(|&b| b == b'/');
    let (parent, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    let Ok(name) = Name::new(name) else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match enter::beneath(context, root, parent, flags, ResolveFlags::NO_SYMLINKS) {
        Err(StepError::Kernel(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => return Ok(None),
        other => other?,
    };
    match walk::stat(context, parent.as_fd(), name.as_bytes()) {
        Err(StepError::Kernel(Errno::NOENT)) => return Ok(None),
        Err(failure) => return Err(failure),
        Ok(entry) if !entry.is_same(wanted) => return Ok(None),
        Ok(_) => {}
    }
    Ok(Some(Location { parent, name }))
}
