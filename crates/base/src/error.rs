//! Errors of file requests.

use std::fmt;

/// An error of a file request, named by the caller's possible reaction.
///
/// Every protocol translates it in one exhaustive match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Error {
    /// There is no such entry.
    NotFound,
    /// The mode bits of a file or directory refuse this user.
    Denied,
    /// The operation is for the owner or root only, whatever the mode bits say.
    NotPermitted,
    /// An entry of that name is there already.
    Exists,
    /// A directory is needed and this is something else.
    NotDirectory,
    /// This is a directory and must not be.
    IsDirectory,
    /// The directory still has entries.
    NotEmpty,
    /// A name or path is longer than the file system takes.
    NameTooLong,
    /// Too many symbolic links on the way, or a link where none is followed.
    Loop,
    /// The two places are on different file systems, or a path leaves the served tree.
    CrossDevice,
    /// The device is full.
    NoSpace,
    /// The user's quota is used up.
    QuotaExceeded,
    /// The file would become larger than the file system takes.
    FileTooLarge,
    /// The tree is served or mounted read-only.
    ReadOnly,
    /// The file or entry is in use; a later attempt may succeed.
    Busy,
    /// The file is being executed.
    TextBusy,
    /// The inode has the maximum number of links.
    TooManyLinks,
    /// The server or its host has too many files open.
    TooManyOpen,
    /// An argument makes no sense.
    Invalid,
    /// There is no extended attribute of that name.
    NoAttribute,
    /// The attribute does not fit.
    AttributeTooLarge,
    /// This kind of file or file system cannot do that.
    Unsupported,
    /// The file is gone although a reference to it is held.
    Stale,
    /// The request was cancelled before it was done.
    Cancelled,
    /// The wait would never end.
    WouldDeadlock,
    /// The operation would block.
    WouldBlock,
    /// The device or peer behind a special file is not there.
    NoDevice,
    /// The connection is gone.
    Disconnected,
    /// The peer or device did not answer in time.
    TimedOut,
    /// Memory is short.
    NoMemory,
    /// The disk or its driver failed.
    Io,
}

impl Error {
    /// All errors, for tables and tests.
    pub const ALL: [Error; 31] = [
        Error::NotFound,
        Error::Denied,
        Error::NotPermitted,
        Error::Exists,
        Error::NotDirectory,
        Error::IsDirectory,
        Error::NotEmpty,
        Error::NameTooLong,
        Error::Loop,
        Error::CrossDevice,
        Error::NoSpace,
        Error::QuotaExceeded,
        Error::FileTooLarge,
        Error::ReadOnly,
        Error::Busy,
        Error::TextBusy,
        Error::TooManyLinks,
        Error::TooManyOpen,
        Error::Invalid,
        Error::NoAttribute,
        Error::AttributeTooLarge,
        Error::Unsupported,
        Error::Stale,
        Error::Cancelled,
        Error::WouldDeadlock,
        Error::WouldBlock,
        Error::NoDevice,
        Error::Disconnected,
        Error::TimedOut,
        Error::NoMemory,
        Error::Io,
    ];

    /// Returns the message for people; also the string of a 9P2000 error.
    pub fn text(self) -> &'static str {
        match self {
            Error::NotFound => "file does not exist",
            Error::Denied => "permission denied",
            Error::NotPermitted => "operation not permitted",
            Error::Exists => "file already exists",
            Error::NotDirectory => "not a directory",
            Error::IsDirectory => "is a directory",
            Error::NotEmpty => "directory is not empty",
            Error::NameTooLong => "file name too long",
            Error::Loop => "too many levels of symbolic links",
            Error::CrossDevice => "leads to another file system or out of the served tree",
            Error::NoSpace => "no space left on device",
            Error::QuotaExceeded => "disk quota exceeded",
            Error::FileTooLarge => "file too large",
            Error::ReadOnly => "file system is read-only",
            Error::Busy => "device or resource busy",
            Error::TextBusy => "file is being executed",
            Error::TooManyLinks => "too many links",
            Error::TooManyOpen => "too many open files",
            Error::Invalid => "invalid argument",
            Error::NoAttribute => "no such extended attribute",
            Error::AttributeTooLarge => "extended attribute does not fit",
            Error::Unsupported => "operation not supported",
            Error::Stale => "stale file handle",
            Error::Cancelled => "interrupted",
            Error::WouldDeadlock => "resource deadlock would occur",
            Error::WouldBlock => "resource temporarily unavailable",
            Error::NoDevice => "no such device or address",
            Error::Disconnected => "connection lost",
            Error::TimedOut => "timed out",
            Error::NoMemory => "cannot allocate memory",
            Error::Io => "input/output error",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}
