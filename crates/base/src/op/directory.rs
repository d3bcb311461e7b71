//! Entries of directories and files with their contents, as results of operations.

use crate::{Buf, FileHandle, Kind, Name, Stat};

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position behind this entry. Stable while the directory changes.
    pub cookie: u64,
    /// Inode number.
    pub inode: u64,
    /// Device number. `None`: that of the directory when it was opened.
    pub device: Option<u64>,
    /// Kind of the file.
    pub kind: Kind,
    /// Its name, neither `.` nor `..`.
    pub name: Name,
    /// Attributes, where requested and available.
    pub stat: Option<Stat>,
    /// Persistent identity, where requested and available.
    pub handle: Option<FileHandle>,
}

/// Details of the entries of a list, each with those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Name, kind and inode number.
    #[default]
    Name,
    /// Attributes.
    Stat,
    /// Persistent identity.
    Handle,
}

impl Detail {
    /// Returns whether entries have attributes.
    pub fn has_stat(self) -> bool {
        self >= Detail::Stat
    }

    /// Returns whether entries have their identity.
    pub fn has_handle(self) -> bool {
        self >= Detail::Handle
    }
}

/// The listing of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Path relative to the directory of the request: components joined by `/`.
    pub path: Vec<u8>,
    /// Its entries, without attributes.
    pub entries: Vec<Entry>,
}

/// A file with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Path relative to the directory of the request: components joined by `/`.
    pub path: Vec<u8>,
    /// Its attributes.
    pub stat: Stat,
    /// Its contents, of the size in its attributes.
    pub data: Buf,
}
