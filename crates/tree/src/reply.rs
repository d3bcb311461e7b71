//! Answers to file requests.

use crate::locks::Lock;
use crate::{NodeId, OpenId};
use base::op::{Content, Entry, Listing};
use base::{Buf, Stat, StatFs, User};

/// Answer of a tree.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Nothing but success.
    Done,
    /// Attributes of every file on the way; the node if all names were found. Not even the first
    /// found is an error, unless there were no names.
    Walked(Vec<Stat>, Option<NodeId>),
    /// Attributes, the first bytes, and the open file if there may be more (or it is a directory).
    Fetched(Stat, Buf, Option<OpenId>),
    /// Attributes.
    Stat(Stat),
    /// An open file.
    Opened(OpenId, Stat),
    /// A new file, open; without a name if it has no links.
    Created(NodeId, OpenId, Stat),
    /// Nothing was replaced or removed, because this is the present state of the entry.
    Unexpected(Option<Stat>),
    /// Bytes read; none: the end of the file.
    Data(Buf),
    /// Bytes read, in pieces that are shared with a cache; none: the end of the file. Another
    /// answer to [`Ask::Read`](crate::Ask::Read), which leaves no room for a header.
    Pieces(Vec<Buf>),
    /// Offset of the next byte that takes space; `None`: there is none to the end of the file.
    DataAt(Option<u64>),
    /// So many bytes were written.
    Written(u32),
    /// Entries; none: the end of the directory.
    Entries(Vec<Entry>),
    /// Directories that were listed, and the processor time that took, ns.
    Listings(Vec<Listing>, u64),
    /// Files that were read, and the processor time that took, ns.
    Contents(Vec<Content>, u64),
    /// A link's target, an attribute's value, the list of attributes.
    Bytes(Vec<u8>),
    /// Space and files of the tree, used and free.
    StatFs(StatFs),
    /// The range is locked (or unlocked).
    Locked,
    /// Somebody else holds it, and waiting was not asked for.
    Blocked,
    /// Conflicting lock, if there is one.
    Conflict(Option<Lock>),
    /// A user.
    User(User),
}

impl Reply {
    /// A node and an open file that are held for whoever gets this.
    pub fn handed_out(&self) -> (Option<NodeId>, Option<OpenId>) {
        if let Reply::Walked(_, node) = self {
            return (*node, None);
        }
        if let Reply::Created(node, open, _) = self {
            return (Some(*node), Some(*open));
        }
        let (Reply::Opened(open, _) | Reply::Fetched(_, _, Some(open))) = self else {
            return (None, None);
        };
        (None, Some(*open))
    }
}
