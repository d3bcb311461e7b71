//! Keys of mount points.

use base::Stat;

/// Identity of a file, independent of the name and node by which it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    tree: u16,
    device: u64,
    inode: u64,
}

impl Key {
    pub(crate) fn new(tree: u16, stat: &Stat) -> Key {
        Key { tree, device: stat.device, inode: stat.inode }
    }

    /// Returns the number of the tree.
    pub(crate) fn tree(self) -> u16 {
        self.tree
    }

    /// Returns the least key of a tree.
    pub(crate) fn first(tree: u16) -> Key {
        Key { tree, device: 0, inode: 0 }
    }
}
