//! Whether a directory is beneath the root that it is served from.

use super::enter::{RETRIES, path_of, relative};
use super::{Outcome, PathContext, attrs, walk};
use base::Error;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Refuses a directory that is not beneath `root` at present. A client may hold one that was,
/// and that was moved away on the host since; no name is reachable through it.
pub(super) fn expect_within(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
) -> Outcome<()> {
    let mut top = path_of(context, root)?;
    for _ in 0..RETRIES {
        let path = match path_of(context, dir) {
            // The path is too long for the kernel to report.
            Err(Errno::NAMETOOLONG) => return expect_above(context, root, dir),
            path => path?,
        };
        if path == top || relative(&top, &path).is_some() {
            return Ok(());
        }
        // The root itself, or a directory above it, may have been renamed between the two.
        let before = std::mem::replace(&mut top, path_of(context, root)?);
        if before == top {
            return Err(Error::Stale.into());
        }
    }
    Err(Error::Busy.into())
}

/// Like [`expect_within`], by climbing from the directory.
fn expect_above(
    context: &PathContext<'_>,
    root: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
) -> Outcome<()> {
    let (top, stat) = (attrs::stat(root)?, attrs::stat(dir)?);
    match walk::KnownAncestors::default().climb(context, &top, dir, &stat)? {
        true => Ok(()),
        false => Err(Error::Stale.into()),
    }
}
