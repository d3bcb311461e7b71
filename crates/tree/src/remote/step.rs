//! Steps of pending requests: what they wait for, their progress, and their next actions.

use super::message::{Message, Target};
use crate::request::Reply;
use base::op::Entry;
use base::{Buf, Error, Instant, Name, Stat};
use std::collections::VecDeque;
use wire::ninep::Tmessage;

/// Awaited event of a pending request.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A connection.
    Queued,
    /// Recovery of a fid.
    Recovering(Target),
    /// The end of a pause.
    Paused(Instant),
    /// Earlier readers of the same directory.
    Behind,
    /// The qids along these names.
    Walk(Vec<Name>),
    /// The target of a link on the way.
    Link,
    /// The attributes of the file to fetch.
    Look,
    /// A fid of the entry of a conditional change.
    Present(u32),
    /// The attributes of that entry.
    Compare,
    /// The open of this fid.
    Opening(u32),
    /// The attributes of the file opened by this fid, with its maximum transfer size, bytes.
    Regard(u32, u32),
    /// The pieces of a read.
    Reading(Gather),
    /// The counts of a write's pieces: requested, and written, once replied.
    Writing(Vec<(u32, Option<u32>)>),
    /// The reply to an fsync that covers the writes up to this number.
    Syncing(u64),
    /// Entries, with the number of the attempt.
    Entries(u32),
    /// The entries' attributes.
    Stats(Stats),
    /// A reply that the module of the dialect handles.
    Own(OwnStep),
}

/// Awaited event that the module of the dialect handles.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnStep {
    /// A copy of a fid for further messages.
    Clone(u32),
    /// A fid of the entry of the request.
    Child(u32),
    /// Whether the entry exists, which it must not.
    Free(u32),
    /// The size of an attribute to be read by this fid.
    AttrSize(u32),
    /// The setup of an attribute to be written by this fid.
    AttrRoom(u32),
    /// The last reply.
    Last,
}

impl From<OwnStep> for Step {
    fn from(step: OwnStep) -> Step {
        Step::Own(step)
    }
}

impl Step {
    /// Returns the end of a pause.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        if let Step::Paused(until) = self { Some(*until) } else { None }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Queued => "queued",
            Step::Recovering(_) => "recovering",
            Step::Paused(_) => "paused",
            Step::Behind => "behind",
            Step::Walk(_) => "walk",
            Step::Link => "link",
            Step::Look => "look",
            Step::Present(_) => "present",
            Step::Compare => "compare",
            Step::Opening(_) => "opening",
            Step::Regard(..) => "regard",
            Step::Reading(_) => "reading",
            Step::Writing(_) => "writing",
            Step::Syncing(_) => "syncing",
            Step::Entries(_) => "entries",
            Step::Stats(_) => "stats",
            Step::Own(OwnStep::Clone(_)) => "clone",
            Step::Own(OwnStep::Child(_)) => "child",
            Step::Own(OwnStep::Free(_)) => "free",
            Step::Own(OwnStep::AttrSize(_)) => "attr_size",
            Step::Own(OwnStep::AttrRoom(_)) => "attr_room",
            Step::Own(OwnStep::Last) => "last",
        }
    }
}

/// Next action of a pending request.
#[derive(Debug)]
pub(super) enum Next {
    /// Send these messages at once, and wait for their replies.
    Send(Step, Vec<Message>),
    /// Send more messages, each with its number, and wait as before.
    More(Step, Vec<(u32, Message)>),
    /// Check again which fids it needs.
    Again,
    /// Start again at that time.
    Pause(Instant),
    /// Start again when the directory has no other reader.
    Behind,
    /// Reply.
    Reply(Reply),
}

/// Result of a message.
pub(super) type Outcome = Result<Next, Error>;

/// Sends one message, and waits for its reply.
pub(super) fn send(step: impl Into<Step>, message: &Tmessage<'_>) -> Outcome {
    Ok(Next::Send(step.into(), vec![Message::new(message)]))
}

/// Sends the last message.
pub(super) fn last(message: &Tmessage<'_>) -> Outcome {
    send(OwnStep::Last, message)
}

/// The pieces of a read.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    pub(super) requested: Vec<u32>,
    pub(super) got: Vec<Option<Result<Buf, Error>>>,
    pub(super) headroom: u32,
    pub(super) iounit: u32,
}

impl Gather {
    /// Returns all pieces up to the first short one; an error if a piece failed or was flushed.
    pub(super) fn join(self) -> Result<Buf, Error> {
        assert_eq!(self.requested.len(), self.got.len(), "each piece has its place");
        let mut whole = Buf::with_room(self.headroom as usize, 0);
        for (index, (requested, got)) in self.requested.into_iter().zip(self.got).enumerate() {
            let piece = got.ok_or(Error::Cancelled)??;
            let is_short = piece.len() < requested as usize;
            if index == 0 {
                whole = piece;
            } else {
                whole.extend(&piece);
            }
            if is_short {
                break;
            }
        }
        Ok(whole)
    }
}

/// Progress of a walk.
#[derive(Clone, Debug)]
pub(super) struct WalkCursor {
    /// Current inode, pinned.
    pub(super) at: usize,
    pub(super) rest: VecDeque<Name>,
    /// Attributes of every file on the way.
    pub(super) stats: Vec<Stat>,
    /// Inode that `..` does not leave.
    pub(super) floor: usize,
    pub(super) links: u8,
    /// Number of names in front of the link being read.
    pub(super) depth: usize,
    /// Attributes of the fetched file.
    pub(super) found: Option<Stat>,
}

/// Entries whose attributes are outstanding.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    pub(super) entries: Vec<Entry>,
    /// The fid of each, once it has one.
    pub(super) fids: Vec<Option<u32>>,
    pub(super) next: usize,
}
