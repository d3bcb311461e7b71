//! A pending request.
//!
//! It waits for the link, then for the fids that it needs (`recovery`), then for
//! the replies to its messages (`progress`).
//!
#![doc = include_str!("states.md")]

use super::inodes::ROOT;
use super::step::{Step, WalkCursor};
use crate::entry_queue::Ticket;
use crate::request::{Ask, Id, Request, RequestId};
use base::op::Replacement;
use base::{Error, Name};

/// A pending request.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request: RequestId,
    pub(super) user: u32,
    pub(super) ask: Ask,
    pub(super) step: Step,
    /// Number of messages without a reply.
    pub(super) outstanding: u32,
    /// Fids of its own, and whether they are bound on the server.
    pub(super) fids: Vec<(u32, bool)>,
    /// Progress of a walk.
    pub(super) cursor: Option<WalkCursor>,
    /// Fid freed by its last message, whatever the result.
    pub(super) removing: Option<u32>,
    /// Whether it uses the fallback, because the server does not support the first way.
    pub(super) second: bool,
    /// Whether its precondition was fulfilled on this connection.
    pub(super) checked: bool,
    /// Its ticket in the queues of the entries that it changes.
    pub(super) ticket: Option<Ticket>,
    /// Error of the first piece of a write.
    pub(super) failed: Option<Error>,
    /// Inodes that it changes, and the number of the change among those of each.
    pub(super) changing: Vec<(usize, u64)>,
    pub(super) pins: [Option<Id>; 2],
    /// Whether a message that changes something was sent.
    pub(super) changed: bool,
    pub(super) cancelled: bool,
    pub(super) attempts: u8,
}

impl Pending {
    pub(super) fn new(
        id: RequestId,
        user: u32,
        request: Request,
        ticket: Option<Ticket>,
    ) -> Pending {
        let pins = request.ask.ids();
        Pending {
            request: id,
            user,
            ask: request.ask,
            step: Step::Queued,
            outstanding: 0,
            fids: Vec::new(),
            cursor: None,
            removing: None,
            second: false,
            checked: false,
            ticket,
            failed: None,
            changing: Vec::new(),
            pins,
            changed: false,
            cancelled: false,
            attempts: 0,
        }
    }

    /// Records that a fid is bound on the server.
    pub(super) fn bound(&mut self, fid: u32) {
        self.fids.iter_mut().filter(|(known, _)| *known == fid).for_each(|known| known.1 = true);
    }

    /// Takes a fid from the pending request.
    pub(super) fn keep_fid(&mut self, fid: u32) {
        self.fids.retain(|(known, _)| *known != fid);
    }

    /// Returns its last fid, to be bound by a walk.
    pub(super) fn last_fid(&self) -> u32 {
        self.fids.last().expect("the walk was given one").0
    }

    pub(super) fn pins(&self) -> impl Iterator<Item = Id> + use<> {
        self.pins.into_iter().flatten()
    }
}

/// Returns the error of a request that is invalid for any tree, or unsupported by this one.
pub(super) fn refused(ask: &Ask) -> Option<Error> {
    let special = |name: &Name| !name.plain();
    match ask {
        Ask::Create { name, .. }
        | Ask::MakeDir { name, .. }
        | Ask::Symlink { name, .. }
        | Ask::MakeNode { name, .. }
        | Ask::Link { name, .. } => special(name).then_some(Error::Exists),
        Ask::Rename { name, new_name, .. } => {
            (special(name) || special(new_name)).then_some(Error::Busy)
        }
        Ask::RenameNode { new_name, .. } if special(new_name) => Some(Error::Busy),
        Ask::RenameNode { node, .. } | Ask::RemoveNode { node } => {
            (node.local() == ROOT).then_some(Error::NotPermitted)
        }
        Ask::Replace { by: Replacement::Unnamed(_), .. } | Ask::CreateUnnamed { .. } => {
            Some(Error::Unsupported)
        }
        Ask::Replace { by: Replacement::Entry(_, name), .. } if special(name) => {
            Some(Error::Invalid)
        }
        Ask::Replace { name, .. } | Ask::Remove { name, .. } => {
            special(name).then_some(Error::Invalid)
        }
        Ask::Identify { .. }
        | Ask::FileHandle { .. }
        | Ask::Resolve { .. }
        | Ask::ListAll { .. }
        | Ask::ReadAll { .. }
        | Ask::NextData { .. } => Some(Error::Unsupported),
        Ask::Walk { .. }
        | Ask::Fetch { .. }
        | Ask::Stat { .. }
        | Ask::SetStat { .. }
        | Ask::Open { .. }
        | Ask::Read { .. }
        | Ask::Write { .. }
        | Ask::Sync { .. }
        | Ask::List { .. }
        | Ask::ReadLink { .. }
        | Ask::StatFs { .. }
        | Ask::GetAttr { .. }
        | Ask::SetAttr { .. }
        | Ask::ListAttrs { .. }
        | Ask::RemoveAttr { .. }
        | Ask::Lock { .. }
        | Ask::GetLock { .. } => None,
    }
}

/// Returns whether a message of this type may change something.
pub(super) fn changes(code: u8) -> bool {
    const CHANGING: [u8; 14] = [14, 16, 18, 20, 26, 32, 52, 70, 72, 74, 76, 114, 118, 122];
    const TWSTAT: u8 = 126;
    code == TWSTAT || CHANGING.contains(&code)
}
