//! File descriptors as the opaque numbers used by the other crates.
//!
//! A [`File`] or [`Socket`] is the descriptor's own number. Its holder decides when it is closed;
//! use after a premature close fails in the kernel (`EBADF`) and cannot corrupt memory.
#![allow(unsafe_code)]

use base::Error;
use base::op::{File, Socket};
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{AtFlags, StatxFlags};

/// Borrows the descriptor with this number for one call.
fn borrow(number: u32) -> Result<BorrowedFd<'static>, Error> {
    let raw = RawFd::try_from(number).map_err(|_| Error::Invalid)?;
    // SAFETY: the number is not -1, as required. The borrow is passed only to system calls before
    // the operation ends, and the node closes nothing that has operations outstanding.
    Ok(unsafe { BorrowedFd::borrow_raw(raw) })
}

/// Borrows the descriptor of a file.
pub(crate) fn file(file: File) -> Result<BorrowedFd<'static>, Error> {
    borrow(file.0)
}

/// Borrows the descriptor of a connection.
pub(crate) fn socket(socket: Socket) -> Result<BorrowedFd<'static>, Error> {
    borrow(socket.0)
}

/// Size of a removed file, blocks of 512 bytes, above which it is freed on the pool: each extent
/// may take a discard of the disk.
const FREED_INLINE_MAX: u64 = 128;

/// Returns whether closing a local file may free storage: it has lost its last name, however that
/// happened. Does not block.
pub(crate) fn frees_storage(of: File) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::NLINK | StatxFlags::BLOCKS;
    file(of).is_ok_and(|fd| {
        rustix::fs::statx(fd, c"", flags, wanted)
            .is_ok_and(|stat| stat.stx_nlink == 0 && stat.stx_blocks > FREED_INLINE_MAX)
    })
}

/// Releases ownership of a descriptor; returns its number.
pub(crate) fn release(fd: OwnedFd) -> u32 {
    u32::try_from(fd.into_raw_fd()).expect("the kernel hands out no negative descriptors")
}

/// Closes the descriptor with this number. An error reported by network or FUSE file systems is
/// ignored: the descriptor is closed in any case (close(2)).
pub(crate) fn close(number: u32) {
    if let Ok(raw) = RawFd::try_from(number) {
        // SAFETY: the number was returned by `release`, and its holder closes it once.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}
