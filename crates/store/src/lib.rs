//! Volumes: a crash-safe transactional store in one file or block device.
//!
//! A volume maps keys to values in copy-on-write B+trees of checksummed pages, with a journal in
//! front of them. It does not know what a file is: the file tree is one of its users.
//!
//! ```text
//!   commit(changes) ──▶ journal (one write, shared by all who came meanwhile) ──▶ Committed
//!        │
//!        └──▶ pages in the cache ──checkpoint──▶ segments ──flush──▶ superblock
//! ```
//!
//! Who uses a store in its own thread *plans*, then *applies*: [`Store::reader`] looks at the
//! cached pages and gives an answer or says what is [`Missing`]; [`Store::fetch`] brings that, and
//! the plan is made again from the start; nothing was changed in between. [`Store::commit`] then
//! applies all changes or none, without waiting.
//!
//! What was acknowledged as durable survives power loss at any moment. What was not may or may
//! not be there, but never half. After a failed write or flush the store writes no more until it
//! is recovered.

pub mod access;
pub mod drive;
pub mod transaction;

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
mod locks;
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
pub use reader::{Entry, Missing, Piece, Reader, Value};
pub use store::{Config, Counts, Input, Output, Refusal, SnapshotEntry, Space, Store};
pub use superblock::Superblock;

use std::fmt;

/// A named set of keys. Numbers below 256 are for the store itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table(pub u32);

/// Names something that was asked for; chosen by who asks and given back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A snapshot: the epoch of the checkpoint that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

/// Which state of the volume is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Everything committed so far.
    Present,
    /// What a snapshot keeps.
    Snapshot(SnapshotId),
}

/// Why a store refused or failed, named by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Error {
    /// The volume is full: delete something, or drop a snapshot.
    NoSpace,
    /// A key, a value or a transaction is larger than the volume takes.
    TooLarge,
    /// What is on the disk is not what was written: restore it from elsewhere.
    Damaged,
    /// The disk failed; nothing is written any more until the volume is opened again.
    DiskFailed,
    /// The disk that holds the volume is full: free space there. Where a write of the journal or of
    /// a checkpoint failed, nothing is written any more until the volume is opened again.
    DiskFull,
    /// The volume was opened for reading only, or is being closed.
    ReadOnly,
    /// There is no such snapshot.
    NotFound,
    /// There is a snapshot of that name.
    Exists,
    /// Waiting for a lock would never end: roll back and try again.
    WouldDeadlock,
    /// This is no volume, or one of a version that is not known.
    NotAVolume,
    /// The last block of the new size cannot be read: make the file or device longer first.
    TooShort,
}

impl Error {
    /// Translates a disk error: `DiskFull` for a full disk or quota, otherwise `DiskFailed`.
    pub fn of_disk(error: base::Error) -> Error {
        let full = matches!(error, base::Error::NoSpace | base::Error::QuotaExceeded);
        if full { Error::DiskFull } else { Error::DiskFailed }
    }

    /// The sentence a person reads.
    pub fn text(self) -> &'static str {
        match self {
            Error::NoSpace => "the volume is full",
            Error::TooLarge => "larger than the volume takes",
            Error::Damaged => "what is on the disk is not what was written",
            Error::DiskFailed => "the disk failed; nothing is written until the volume is reopened",
            Error::DiskFull => "the disk that holds the volume is full; free space there",
            Error::ReadOnly => "the volume cannot be written",
            Error::NotFound => "there is no such snapshot",
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
