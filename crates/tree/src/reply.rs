//! Replies to file requests.

use crate::locks::Lock;
use crate::{NodeId, OpenId};
use base::op::{Content, Entry, Listing};
use base::{Buf, FileHandle, Stat, StatFs, User};

/// A reply of a tree.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Success without a value.
    Done,
    /// Attributes of every file on the way; the node if all names were found. If not even the first
    /// name was found, the reply is an error.
    Walked(Vec<Stat>, Option<NodeId>),
    /// Attributes, the first bytes, and the open file if there may be more (or it is a directory).
    Fetched(Stat, Buf, Option<OpenId>),
    /// Attributes.
    Stat(Stat),
    /// The persistent identity of a file.
    FileHandle(FileHandle),
    /// An open file.
    Opened(OpenId, Stat),
    /// A new file, open; without a name if its link count is zero.
    Created(NodeId, OpenId, Stat),
    /// Nothing was replaced or removed, because the entry is in this other state.
    Unexpected(Option<Stat>),
    /// Bytes read; none: the end of the file.
    Data(Buf),
    /// Bytes read, in pieces shared with a cache; none: the end of the file. An alternative reply
    /// to [`Ask::Read`](crate::Ask::Read), without headroom.
    Pieces(Vec<Buf>),
    /// Offset of the next allocated byte; `None` if there is none up to the end of the file.
    DataAt(Option<u64>),
    /// Number of bytes written.
    Written(u32),
    /// Entries; none: the end of the directory.
    Entries(Vec<Entry>),
    /// The directories listed, and the processor time used, ns.
    Listings(Vec<Listing>, u64),
    /// The files read, and the processor time used, ns.
    Contents(Vec<Content>, u64),
    /// The target of a link, the value of an attribute, or the list of attributes.
    Bytes(Vec<u8>),
    /// Space and files of the tree, used and free.
    StatFs(StatFs),
    /// The range is locked (or unlocked).
    Locked,
    /// A conflicting lock is held, and the request does not wait.
    Blocked,
    /// Conflicting lock, if there is one.
    Conflict(Option<Lock>),
    /// A user.
    User(User),
}

impl Reply {
    /// Returns the node and the open file handed out by the reply.
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
