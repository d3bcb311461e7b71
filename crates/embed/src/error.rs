//! Errors: the operation, the cause, and the next step.

use engine::Failure;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Error of an operation on a volume.
#[derive(Debug)]
pub enum Error {
    /// An operation on the volume's file failed.
    File {
        /// The operation.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        cause: io::Error,
    },
    /// The volume cannot be opened or created.
    Volume {
        /// Path of its file.
        path: PathBuf,
        /// Cause.
        cause: store::Error,
    },
    /// The request was refused or failed.
    Refused(Failure),
    /// The volume is closed, or its thread has ended.
    Closed,
}

impl Error {
    /// Returns whether the transaction was the victim of a deadlock, and can be retried.
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Error::Refused(Failure::Store(store::Error::WouldDeadlock)))
    }

    /// Returns the next step for the user.
    pub fn next_step(&self) -> &'static str {
        match self {
            Error::File { cause, .. } if cause.kind() == io::ErrorKind::WouldBlock => {
                "another process has the volume open; close it there"
            }
            Error::File { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                "create a volume there, or give another path"
            }
            Error::File { cause, .. } if cause.kind() == io::ErrorKind::AlreadyExists => {
                "open it, or give another path"
            }
            Error::File { .. } => "look at the path, its permissions, and the disk",
            Error::Volume { cause, .. } | Error::Refused(Failure::Store(cause)) => step(*cause),
            Error::Refused(Failure::Over) => "begin another transaction",
            Error::Refused(Failure::Busy) => "try again later",
            Error::Refused(Failure::OtherKind) => "use another name",
            Error::Refused(Failure::Dropped) => "open one of its name again",
            Error::Refused(Failure::Invalid) => "change the request",
            Error::Closed => "open the volume again",
        }
    }

    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |cause| Error::File { doing, path, cause }
    }

    pub(crate) fn volume(path: &Path) -> impl FnOnce(store::Error) -> Error {
        let path = path.to_path_buf();
        move |cause| Error::Volume { path, cause }
    }
}

fn step(cause: store::Error) -> &'static str {
    match cause {
        store::Error::NoSpace => "delete something, drop a snapshot, or use a larger volume",
        store::Error::TooLarge => "divide it into several",
        store::Error::Damaged => "restore it from a backup; other files can still be read",
        store::Error::DiskFailed => "look at the disk, then open the volume again",
        store::Error::DiskFull => {
            "free space on the disk that holds it, then open the volume again"
        }
        store::Error::ReadOnly => "open it for writing, in a transaction that may write",
        store::Error::NotFound => "look at the list of names",
        store::Error::Exists => "use another name, or drop the old snapshot",
        store::Error::WouldDeadlock => "roll back and try again",
        store::Error::NotAVolume => "give another path, or create a volume there",
        store::Error::TooShort => "make the file or device longer first",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { doing, path, cause } => {
                write!(f, "cannot {doing} {}: {cause}", path.display())?;
            }
            Error::Volume { path, cause } => write!(f, "{}: {cause}", path.display())?,
            Error::Refused(failure) => write!(f, "{failure}")?,
            Error::Closed => f.write_str("the volume is closed")?,
        }
        write!(f, " ({})", self.next_step())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { cause, .. } => Some(cause),
            Error::Volume { cause, .. } => Some(cause),
            Error::Refused(failure) => Some(failure),
            Error::Closed => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Refused(failure)
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Error {
        Error::Refused(Failure::Store(error))
    }
}
