//! Messages to be sent, and the owners of their replies.

use base::{Buf, Name};
use wire::ninep::{Names, Tmessage, write_header};

const CLUNK: u8 = 120;
const REMOVE: u8 = 122;

/// Target of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// A fid of an inode for a user.
    BoundFid(usize, u32),
    /// The fid of an open file.
    Open(usize),
}

/// Recipient of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A pending request, and the number of the message among those that it sent at once.
    Pending(usize, u32),
    /// A fid being recovered.
    Recovery(Target),
}

/// Source of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    /// Clunks of fids without a user.
    Cleanup,
    /// Recovery of fids.
    Recovery,
    /// Pending requests of a caller, by its number.
    Requester(u32),
}

/// A whole message without its tag, and data to be sent directly behind it.
#[derive(Clone, Debug)]
pub(super) struct Message {
    head: Vec<u8>,
    data: Option<Buf>,
}

impl Message {
    pub(super) fn new(message: &Tmessage<'_>) -> Message {
        let mut head = Vec::new();
        message.encode(0, &mut head);
        Message { head, data: None }
    }

    /// Returns a `Twrite` whose data are not copied.
    pub(super) fn write(fid: u32, offset: u64, data: Buf) -> Message {
        Message { head: write_header(fid, offset, data.len()), data: Some(data) }
    }

    /// Returns the type byte.
    pub(super) fn code(&self) -> u8 {
        self.head[4]
    }

    /// Returns whether it frees its fid.
    pub(super) fn frees_fid(&self) -> bool {
        matches!(self.code(), CLUNK | REMOVE)
    }

    pub(super) fn send(mut self, tag: u16, out: &mut Vec<Buf>) {
        self.head[5..7].copy_from_slice(&tag.to_le_bytes());
        out.push(Buf::from(self.head));
        out.extend(self.data.filter(|data| !data.is_empty()));
    }
}

/// Returns a walk along at most sixteen names.
pub(super) fn walk<'a>(fid: u32, newfid: u32, names: &'a [Name]) -> Tmessage<'a> {
    let names: Vec<&[u8]> = names.iter().map(Name::as_bytes).collect();
    let names = Names::new(&names).expect("no more than sixteen");
    Tmessage::Walk { fid, newfid, names }
}
