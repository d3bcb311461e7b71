//! Walks, one name after the other, and never outside of the served root.

use super::{Outcome, PathContext, attrs, enter};
use crate::descriptor;
use crate::errno::StepError;
use base::op::{File, PathDone};
use base::{Error, Name, Stat};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::BTreeSet;

/// Maximum depth of a directory to climb from; longer paths are impossible in Linux.
const DEPTH_MAX: usize = 4096;

/// Performs a walk. Only the last handle is returned; the others are closed.
pub(super) fn walk(
    context: &mut PathContext<'_>,
    root: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    names: &[Name],
) -> Outcome<PathDone> {
    let mut stats = Vec::with_capacity(names.len());
    let mut here: Option<OwnedFd> = None;
    let mut above = KnownAncestors::default();
    for name in names {
        let dir = here.as_ref().map_or(from, AsFd::as_fd);
        match step(context, root, dir, name, &mut above) {
            Ok((next, stat)) => {
                stats.push(stat);
                here = Some(next);
            }
            Err(
                failure @ (StepError::NotCached | StepError::Lengthy | StepError::Elsewhere(_)),
            ) => {
                return Err(failure);
            }
            Err(failure) => return Ok(PathDone::Walked(stats, Err(failure.into()))),
        }
    }
    match here {
        Some(fd) => Ok(PathDone::Walked(stats, Ok(File(descriptor::release(fd))))),
        None => Err(Error::Invalid.into()),
    }
}

fn step(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &Name,
    above: &mut KnownAncestors,
) -> Outcome<(OwnedFd, Stat)> {
    if name.is_parent() {
        return parent(context, root, dir, above);
    }
    let fd = handle(context, dir, name.as_bytes())?;
    let stat = attrs::stat(fd.as_fd())?;
    Ok((fd, stat))
}

/// Returns the parent of `dir`, or `dir` itself if that is the root.
fn parent(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    above: &mut KnownAncestors,
) -> Outcome<(OwnedFd, Stat)> {
    let top = attrs::stat(root)?;
    let here = attrs::stat(dir)?;
    let name: &[u8] = if here.is_same(&top) { b"." } else { b".." };
    let fd = handle(context, dir, name)?;
    let stat = attrs::stat(fd.as_fd())?;
    if !above.contains(&stat) && !above.climb(context, &top, fd.as_fd(), &stat)? {
        return Err(Error::CrossDevice.into());
    }
    Ok((fd, stat))
}

/// Returns a handle of the entry `name` of `dir`, without following links.
pub(super) fn handle(
    context: &PathContext<'_>,
    dir: BorrowedFd<'_>,
    name: &[u8],
) -> Outcome<OwnedFd> {
    enter::entry(context, dir, name, enter::HANDLE | OFlags::NOFOLLOW, enter::NO_MODE)
}

/// Returns the attributes of the entry `name` of `dir`.
pub(super) fn stat(context: &PathContext<'_>, dir: BorrowedFd<'_>, name: &[u8]) -> Outcome<Stat> {
    attrs::stat(handle(context, dir, name)?.as_fd())
}

/// Directories found in the served tree in this operation, by device and inode: further `..` of a
/// walk need not climb again.
#[derive(Default)]
pub(super) struct KnownAncestors(BTreeSet<(u64, u64)>);

impl KnownAncestors {
    fn contains(&self, stat: &Stat) -> bool {
        self.0.contains(&(stat.device, stat.inode))
    }

    /// Returns whether the directory `dir` with attributes `stat` is `top` or beneath it, by
    /// climbing.
    pub(super) fn climb(
        &mut self,
        context: &PathContext<'_>,
        top: &Stat,
        dir: BorrowedFd<'_>,
        stat: &Stat,
    ) -> Outcome<bool> {
        let mut seen = BTreeSet::new();
        let mut here: Option<OwnedFd> = None;
        let mut stat = stat.clone();
        for _ in 0..DEPTH_MAX {
            seen.insert((stat.device, stat.inode));
            if stat.is_same(top) || self.contains(&stat) {
                self.0.append(&mut seen);
                return Ok(true);
            }
            let above = handle(context, here.as_ref().map_or(dir, AsFd::as_fd), b"..")?;
            let above_stat = attrs::stat(above.as_fd())?;
            if above_stat.is_same(&stat) {
                return Ok(false);
            }
            here = Some(above);
            stat = above_stat;
        }
        Ok(false)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests of the real world")]
mod tests {
    use crate::descriptor;
    use crate::host::Host;
    use crate::memory::Memory;
    use crate::path::{Performed, STEPS_MAX, Task, perform};
    use base::op::{File, NOBODY, PathDone, PathOp};
    use base::{Caller, Name};

    #[test]
    fn a_long_climb_is_a_long_job() {
        let dir = std::env::temp_dir().join(format!("upcall-climb-{}", std::process::id()));
        let deep = dir.join("d/".repeat(STEPS_MAX + 10));
        std::fs::create_dir_all(&deep).expect("a directory");
        let open = |path| {
            let file = std::fs::File::open(path).expect("it is there");
            File(descriptor::release(file.into()))
        };
        let (root, from) = (open(&dir), open(&deep));
        let host = Host::new().expect("this host");
        let walk = |names, is_long| {
            let names = vec![Name::new(b"..").expect("a name"); names];
            let op = PathOp::Walk { root, from, names };
            let task = Task { caller: Caller::Server, requester: NOBODY, within: None, op };
            perform(&host, &mut Memory::default(), (&[], is_long), &task)
        };
        assert!(matches!(walk(1, false), Performed::Lengthy));
        for names in [1, 16, STEPS_MAX + 10] {
            let Performed::Done(Ok(PathDone::Walked(stats, Ok(file)))) = walk(names, true) else {
                panic!("a walk of {names} names up");
            };
            assert_eq!(stats.len(), names);
            descriptor::close(file.0);
        }
        [root, from].into_iter().for_each(|file| descriptor::close(file.0));
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }
}
