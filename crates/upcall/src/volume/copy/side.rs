//! What a tree of files can be asked by a copy, whichever side of it the tree is on.

use base::{Buf, Error, Name, Stat};
use std::fmt::Display;

/// Why something was not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It concerns this file only.
    File(String),
    /// Nothing can be copied any more.
    Over(String),
}

impl Trouble {
    /// What a tree's error means to a copy.
    pub(crate) fn of(error: Error) -> Trouble {
        match error {
            Error::NoSpace | Error::QuotaExceeded => {
                Trouble::Over(format!("{error}: delete something there, then copy again"))
            }
            error => Trouble::File(error.to_string()),
        }
    }

    /// The same, with what was being done.
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

/// A part of a file, at its place; what lies between parts is a hole.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<Buf>,
    /// Where to go on; nothing comes between.
    pub(crate) next: u64,
}

/// A tree of files.
pub(crate) trait Side {
    /// A file that is held.
    type Node;
    /// A file that is open.
    type Open;

    /// The file of a name, if there is one.
    fn find(&mut self, dir: &Self::Node, name: &Name) -> Outcome<Option<(Self::Node, Stat)>>;

    /// Gives a file back.
    fn release(&mut self, node: Self::Node);

    /// All names in a directory, sorted.
    fn list(&mut self, dir: &Self::Node) -> Outcome<Vec<Name>>;

    /// What a symbolic link says.
    fn target(&mut self, node: &Self::Node) -> Outcome<Vec<u8>>;

    /// The extended attributes that can be kept.
    fn attrs(&mut self, node: &Self::Node, stat: &Stat) -> Outcome<Attrs>;

    /// Opens a plain file for reading.
    fn open(&mut self, node: &Self::Node) -> Outcome<Self::Open>;

    /// The next part from `from` on; `None`: nothing but perhaps a hole follows.
    fn read(&mut self, open: &mut Self::Open, from: u64, stat: &Stat) -> Outcome<Option<Part>>;

    /// Closes a file.
    fn close(&mut self, open: Self::Open);

    /// Makes a directory that only its owner may use.
    fn make_dir(&mut self, dir: &Self::Node, name: &Name) -> Outcome<Self::Node>;

    /// Makes a plain file that only its owner may use.
    fn create(&mut self, dir: &Self::Node, name: &Name) -> Outcome<(Self::Node, Self::Open)>;

    /// Writes a part of a file.
    fn write(&mut self, open: &mut Self::Open, part: Part) -> Outcome<()>;

    /// Makes a file longer, by a hole.
    fn lengthen(&mut self, node: &Self::Node, open: &mut Self::Open, size: u64) -> Outcome<()>;

    /// Makes a symbolic link.
    fn symlink(&mut self, dir: &Self::Node, name: &Name, target: &[u8]) -> Outcome<Self::Node>;

    /// Makes a special file of the kind that `stat` is.
    fn make_node(&mut self, dir: &Self::Node, name: &Name, stat: &Stat) -> Outcome<Self::Node>;

    /// Gives a file one more name.
    fn link(&mut self, node: &Self::Node, dir: &Self::Node, name: &Name) -> Outcome<()>;

    /// Takes a name away that is not a directory's.
    fn remove(&mut self, dir: &Self::Node, name: &Name) -> Outcome<()>;

    /// Gives a file its attributes, owner, mode and, as the last of all, its dates.
    fn dress(&mut self, node: &Self::Node, stat: &Stat, attrs: &Attrs) -> Outcome<()>;

    /// Makes everything so far durable.
    fn sync(&mut self) -> Outcome<()>;
}

/// Whether an attribute is copied: owners' for everybody, the system's for root only. What is
/// left are lists of permissions that a volume does not know.
pub(crate) fn keeps(name: &[u8], root: bool) -> bool {
    let private = name.starts_with(b"trusted.") || name.starts_with(b"security.");
    root || !private
}
