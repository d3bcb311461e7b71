//! Interface of a copy to a tree of files, as source or target.

use base::{Buf, Error, Name, Stat};
use std::fmt::Display;

/// Error of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It concerns this file only.
    File(String),
    /// It ends the whole copy.
    Over(String),
}

impl Trouble {
    /// Converts a tree's error.
    pub(crate) fn of(error: Error) -> Trouble {
        match error {
            Error::NoSpace | Error::QuotaExceeded => {
                Trouble::Over(format!("{error}: delete something there, then copy again"))
            }
            error => Trouble::File(error.to_string()),
        }
    }

    /// Adds the failed operation.
    pub(crate) fn doing(self, what: impl Display) -> Trouble {
        match self {
            Trouble::File(cause) => Trouble::File(format!("{what}: {cause}")),
            Trouble::Over(cause) => Trouble::Over(cause),
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

/// Names and values of extended attributes.
pub(crate) type Attrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A part of a file, at its offset; gaps between parts are holes.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<Buf>,
    /// Offset to continue from, without data in between.
    pub(crate) next: u64,
}

/// A tree of files.
pub(crate) trait Side {
    /// A referenced file.
    type Node;
    /// An open file.
    type Open;

    /// Looks up a name, if it exists.
    fn find(&mut self, dir: &Self::Node, name: &Name) -> Outcome<Option<(Self::Node, Stat)>>;

    /// Releases a file.
    fn release(&mut self, node: Self::Node);

    /// Lists all names in a directory, sorted.
    fn list(&mut self, dir: &Self::Node) -> Outcome<Vec<Name>>;

    /// Reads the target of a symbolic link.
    fn target(&mut self, node: &Self::Node) -> Outcome<Vec<u8>>;

    /// Returns the extended attributes that can be kept.
    fn attrs(&mut self, node: &Self::Node, stat: &Stat) -> Outcome<Attrs>;

    /// Opens a plain file for reading.
    fn open(&mut self, node: &Self::Node) -> Outcome<Self::Open>;

    /// Reads the next part from `from` on; `None`: at most a hole follows.
    fn read(&mut self, open: &mut Self::Open, from: u64, stat: &Stat) -> Outcome<Option<Part>>;

    /// Closes a file.
    fn close(&mut self, open: Self::Open);

    /// Creates a directory with access for its owner only.
    fn make_dir(&mut self, dir: &Self::Node, name: &Name) -> Outcome<Self::Node>;

    /// Creates a plain file with access for its owner only.
    fn create(&mut self, dir: &Self::Node, name: &Name) -> Outcome<(Self::Node, Self::Open)>;

    /// Writes a part of a file.
    fn write(&mut self, open: &mut Self::Open, part: Part) -> Outcome<()>;

    /// Extends a file by a hole.
    fn lengthen(&mut self, node: &Self::Node, open: &mut Self::Open, size: u64) -> Outcome<()>;

    /// Creates a symbolic link.
    fn symlink(&mut self, dir: &Self::Node, name: &Name, target: &[u8]) -> Outcome<Self::Node>;

    /// Creates a special file of the kind of `stat`.
    fn make_node(&mut self, dir: &Self::Node, name: &Name, stat: &Stat) -> Outcome<Self::Node>;

    /// Adds a hard link to a file.
    fn link(&mut self, node: &Self::Node, dir: &Self::Node, name: &Name) -> Outcome<()>;

    /// Removes a name, except a directory's.
    fn remove(&mut self, dir: &Self::Node, name: &Name) -> Outcome<()>;

    /// Sets the attributes, owner, mode and, last of all, the timestamps of a file.
    fn dress(&mut self, node: &Self::Node, stat: &Stat, attrs: &Attrs) -> Outcome<()>;

    /// Makes everything so far durable.
    fn sync(&mut self) -> Outcome<()>;
}

/// Returns whether an attribute is copied: the user's always, the system's for root only. The rest
/// are access control lists, which a volume does not support.
pub(crate) fn keeps(name: &[u8], root: bool) -> bool {
    let private = name.starts_with(b"trusted.") || name.starts_with(b"security.");
    root || !private
}
