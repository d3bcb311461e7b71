//! File descriptors as the opaque numbers that the rest of the project sees.
//!
//! A [`File`] or [`Socket`] is the descriptor's own number. Whoever holds the number decides when
//! it is closed; a number that is closed too early fails in the kernel (`EBADF`), it cannot touch
//! memory.
#![allow(unsafe_code)]

use base::Error;
use base::op::{File, Socket};
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// The descriptor with this number, for one call.
fn borrow(number: u32) -> Result<BorrowedFd<'static>, Error> {
    let raw = RawFd::try_from(number).map_err(|_| Error::Invalid)?;
    // SAFETY: the number is not -1, as required. The borrow is only ever handed to system calls
    // before the operation ends, and the node closes nothing that has operations outstanding.
    Ok(unsafe { BorrowedFd::borrow_raw(raw) })
}

/// The descriptor of a file.
pub(crate) fn file(file: File) -> Result<BorrowedFd<'static>, Error> {
    borrow(file.0)
}

/// The descriptor of a connection.
pub(crate) fn socket(socket: Socket) -> Result<BorrowedFd<'static>, Error> {
    borrow(socket.0)
}

/// Lets the number stand for the descriptor from now on.
pub(crate) fn release(fd: OwnedFd) -> u32 {
    u32::try_from(fd.into_raw_fd()).expect("the kernel hands out no negative descriptors")
}

/// Closes the descriptor with this number. Network and FUSE file systems may report an error,
/// which nobody can act upon: the descriptor is closed all the same (close(2)).
pub(crate) fn close(number: u32) {
    if let Ok(raw) = RawFd::try_from(number) {
        // SAFETY: the number was handed out by `release`, and its holder gives it back once.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}
