//! Translation of errnos to the project's errors.

use crate::pool::lanes::Lane;
use base::Error;
use rustix::io::Errno;
use std::io;

/// Failure of a step of straight-line work.
#[derive(Debug)]
pub(crate) enum StepError {
    /// An error of the kernel.
    Kernel(Errno),
    /// An error of this crate.
    Known(Error),
    /// The step would block, which is not allowed here: perform it on the pool.
    NotCached,
    /// The operation takes too many steps for the node's thread: perform it on the pool, as a long
    /// job.
    Lengthy,
    /// The step leads to a file system that may block, and that the job was not admitted to.
    Elsewhere(Lane),
}

impl From<Errno> for StepError {
    fn from(errno: Errno) -> StepError {
        StepError::Kernel(errno)
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        StepError::Known(error)
    }
}

impl From<StepError> for Error {
    fn from(failure: StepError) -> Error {
        match failure {
            StepError::Kernel(errno) => translate(errno),
            StepError::Known(error) => error,
            StepError::NotCached | StepError::Lengthy => Error::WouldBlock,
            StepError::Elsewhere(_) => Error::CrossDevice,
        }
    }
}

/// Translates a negative result of the kernel.
pub(crate) fn from_raw(result: i32) -> Error {
    translate(Errno::from_raw_os_error(-result))
}

/// Translates an I/O error of blocking code; an error without an errno becomes `Io`.
pub fn error_of(error: io::Error) -> Error {
    Errno::from_io_error(&error).map_or(Error::Io, translate)
}

/// Translates an errno. An unlisted one is a failure of the disk or its driver: `Io`.
pub(crate) fn translate(errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::NotFound,
        Errno::ACCESS => Error::Denied,
        Errno::PERM => Error::NotPermitted,
        Errno::EXIST => Error::Exists,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::NAMETOOLONG => Error::NameTooLong,
        Errno::LOOP => Error::Loop,
        Errno::XDEV => Error::CrossDevice,
        Errno::NOSPC => Error::NoSpace,
        Errno::DQUOT => Error::QuotaExceeded,
        Errno::FBIG | Errno::OVERFLOW => Error::FileTooLarge,
        Errno::ROFS => Error::ReadOnly,
        Errno::BUSY => Error::Busy,
        Errno::TXTBSY => Error::TextBusy,
        Errno::MLINK => Error::TooManyLinks,
        Errno::MFILE | Errno::NFILE => Error::TooManyOpen,
        Errno::INVAL | Errno::BADF | Errno::FAULT | Errno::SPIPE | Errno::ILSEQ => Error::Invalid,
        Errno::NODATA => Error::NoAttribute,
        Errno::RANGE | Errno::TOOBIG => Error::AttributeTooLarge,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::AFNOSUPPORT => Error::Unsupported,
        Errno::STALE => Error::Stale,
        Errno::CANCELED | Errno::INTR => Error::Cancelled,
        Errno::DEADLK => Error::WouldDeadlock,
        Errno::AGAIN => Error::WouldBlock,
        Errno::NXIO | Errno::NODEV => Error::NoDevice,
        Errno::CONNRESET
        | Errno::PIPE
        | Errno::NOTCONN
        | Errno::CONNABORTED
        | Errno::CONNREFUSED
        | Errno::SHUTDOWN
        | Errno::TIMEDOUT
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::NETDOWN
        | Errno::NETRESET => Error::Disconnected,
        Errno::NOMEM | Errno::NOBUFS => Error::NoMemory,
        _ => Error::Io,
    }
}
