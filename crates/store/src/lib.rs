//! Volumes: a crash-safe transactional store in one file or block device.
//!
//! A volume maps keys to values in copy-on-write B+trees of checksummed pages, with a journal in
//! front of them. It does not know what a file is: the file tree is one of its users.
//!
//! ```text
//!   commit(changes) ──▶ journal (one write, shared by all commits meanwhile) ──▶ Committed
//!        │
//!        └──▶ pages in the cache ──checkpoint──▶ segments ──flush──▶ superblock
//! ```
//!
//! A user of a store in its own thread *plans*, then *applies*: [`Store::reader`] reads the cached
//! pages and returns a result or the [`Missing`] ones; [`Store::fetch`] reads these, and the plan
//! is made again from the start; nothing was changed in between. [`Store::commit`] then applies all
//! changes or none, without waiting.
//!
//! Changes acknowledged as durable survive power loss at any moment. Others may or may not survive,
//! but never in part. After a failed write or flush the store writes nothing until it is recovered.

pub mod drive;
pub mod keys;
pub mod leaf;

mod btree;
mod cache;
#[cfg(feature = "canary")]
pub mod canary;
mod change;
pub mod check;
mod checkpoint;
mod failures;
mod format;
mod io;
mod journal;
mod layout;
mod little_endian;
mod missing;
mod page;
mod present;
mod reader;
mod recovery;
pub mod rollback;
mod segment;
mod snapshots;
mod space;
mod store;
mod sum;
mod superblock;

pub use base::Block;
pub use change::{Change, Durability, Extent};
pub use failures::Failure;
pub use format::format;
pub use io::{Io, IoDone, IoId};
pub use layout::{Geometry, HEAD_BYTES, Layout};
pub use missing::Missing;
pub use reader::{Entry, Piece, Reader, Value};
pub use store::{Config, Counts, Input, Output, Refusal, SnapshotEntry, Space, Store};
pub use superblock::Superblock;

use std::fmt;

/// A named set of keys. Numbers below 256 are for the store itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table(pub u32);

/// Identifier of a request, chosen by the caller and returned with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A snapshot: the epoch of the checkpoint that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

/// State of the volume to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Everything committed so far.
    Present,
    /// The state of a snapshot.
    Snapshot(SnapshotId),
}

/// An error of the store, named by the caller's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Error {
    /// The volume is full: delete something, or drop a snapshot.
    NoSpace,
    /// A key, a value or a transaction exceeds the volume's limits.
    TooLarge,
    /// The contents of the disk are not as written: restore them from elsewhere.
    Damaged,
    /// The disk failed; nothing is written until the volume is opened again.
    DiskFailed,
    /// The disk that holds the volume is full: free space there. If a write of the journal or of a
    /// checkpoint failed, nothing is written until the volume is opened again.
    DiskFull,
    /// The volume was opened read-only, or is being closed.
    ReadOnly,
    /// There is no such snapshot.
    NotFound,
    /// There is a snapshot of that name.
    Exists,
    /// The wait for a lock would never end: roll back and try again.
    WouldDeadlock,
    /// This is no volume, or one of an unknown version.
    NotAVolume,
    /// The last block of the new size cannot be read: extend the file or device first.
    TooShort,
}

impl Error {
    /// Translates a disk error: `DiskFull` for a full disk or quota, otherwise `DiskFailed`.
    pub fn of_disk(error: base::Error) -> Error {
        let full = matches!(error, base::Error::NoSpace | base::Error::QuotaExceeded);
        if full { Error::DiskFull } else { Error::DiskFailed }
    }

    /// Returns the message for people.
    pub fn text(self) -> &'static str {
        match self {
            Error::NoSpace => "the volume is full",
            Error::TooLarge => "larger than the volume takes",
            Error::Damaged => "checksum mismatch",
            Error::DiskFailed => "the disk failed; nothing is written until the volume is reopened",
            Error::DiskFull => "the disk that holds the volume is full; free space there",
            Error::ReadOnly => "the volume cannot be written",
            Error::NotFound => "no such snapshot",
            Error::Exists => "there is a snapshot of that name",
            Error::WouldDeadlock => "waiting for this lock would never end",
            Error::NotAVolume => "not a volume, or a volume of another version",
            Error::TooShort => {
                "its new last block cannot be read; make the file or device longer first"
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}
