//! Messages sent and not yet answered, by tag.
//!
//! The number of outstanding messages is bounded; further ones are queued by client (`line`). A
//! flushed call keeps its tag until the reply to the flush, and a reply that arrives before that is
//! valid (flush(5)).
//!
#![doc = include_str!("calls/states.md")]

mod line;
#[cfg(test)]
mod tests;

pub(super) use line::Party;

use super::recovery::Target;
use base::Buf;
use line::Line;
use slab::Slab;
use std::collections::BTreeSet;
use wire::ninep::{Rmessage, Tmessage};

const LERROR: u8 = 7;
const ERROR: u8 = 107;
const CLUNK: u8 = 120;
const REMOVE: u8 = 122;

/// Recipient of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A pending request, and the number of the message among those that it sent at once.
    Pending(usize, u32),
    /// A fid being recovered.
    Recovery(Target),
    /// None; this fid is free after the reply.
    Clunk(u32),
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
        let head = wire::ninep::write_header(fid, offset, data.len());
        Message { head, data: Some(data) }
    }

    /// Returns the type byte.
    pub(super) fn code(&self) -> u8 {
        self.head[4]
    }

    /// Returns whether it frees its fid.
    fn frees_fid(&self) -> bool {
        matches!(self.code(), CLUNK | REMOVE)
    }

    fn send(mut self, tag: usize, out: &mut Vec<Buf>) {
        let tag = u16::try_from(tag).expect("far fewer calls than tags");
        self.head[5..7].copy_from_slice(&tag.to_le_bytes());
        out.push(Buf::from(self.head));
        out.extend(self.data.filter(|data| !data.is_empty()));
    }
}

/// State of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for a reply of this type.
    Sent(Owner, u8),
    /// Waiting for its reply or for the reply to the flush.
    Flushed(Owner, u8),
    /// Replied to, and waiting for the reply to the flush.
    Late,
    /// Waiting for the reply to the flush of this tag.
    Flush(usize),
}

/// Meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Reply to a call of this owner.
    To(Owner),
    /// End of a flushed call of this owner, without a reply.
    Never(Owner),
    /// Reply to a flush that was too late.
    Late,
}

/// All calls.
#[derive(Debug)]
pub(super) struct Calls {
    tags: Slab<State>,
    /// Pending requests and the tags of their calls, unless flushed.
    sent_by: BTreeSet<(usize, usize)>,
    /// Number of calls other than flushes.
    sent: usize,
    sent_max: usize,
    waiting: Line,
}

impl Calls {
    /// Returns a table with this maximum number of outstanding calls.
    pub(super) fn new(sent_max: usize) -> Calls {
        let sent_max = sent_max.clamp(1, 16_384);
        let (tags, sent_by, waiting) = (Slab::new(), BTreeSet::new(), Line::default());
        Calls { tags, sent_by, sent: 0, sent_max, waiting }
    }

    /// Returns the numbers of outstanding and of queued messages.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.sent, self.waiting.len())
    }

    /// Sends a message, or queues it.
    pub(super) fn begin(
        &mut self,
        party: Party,
        owner: Owner,
        message: Message,
        out: &mut Vec<Buf>,
    ) {
        self.waiting.push(party, owner, message);
        self.go_on(out);
    }

    fn go_on(&mut self, out: &mut Vec<Buf>) {
        while self.sent < self.sent_max
            && let Some((owner, message)) = self.waiting.pop()
        {
            self.sent += 1;
            let tag = self.tags.insert(State::Sent(owner, message.code() + 1));
            if let Owner::Pending(slot, _) = owner {
                self.sent_by.insert((slot, tag));
            }
            message.send(tag, out);
        }
    }

    /// Returns the number of the next message that is queued.
    pub(super) fn next_queued(&self) -> u64 {
        self.waiting.next()
    }

    /// Removes the first queued message with a number below `end`, other than a clunk or remove,
    /// which free a fid.
    pub(super) fn give_up_first(&mut self, end: u64) -> Option<Owner> {
        self.waiting.give_up_first(end)
    }

    /// Handles a reply.
    ///
    /// # Errors
    /// If no message with this tag is outstanding, or the type of the reply is wrong.
    pub(super) fn answered(
        &mut self,
        tag: u16,
        message: &Rmessage<'_>,
        out: &mut Vec<Buf>,
    ) -> Result<Answer, &'static str> {
        let (tag, code) = (usize::from(tag), message.code());
        let state = *self.tags.get(tag).ok_or("an unsolicited reply")?;
        let fits = |expected: u8| code == expected || code == LERROR || code == ERROR;
        let answer = match state {
            State::Sent(_, expected) | State::Flushed(_, expected) if !fits(expected) => {
                return Err("an answer of the wrong type");
            }
            State::Sent(owner, _) => {
                self.tags.remove(tag);
                self.sent -= 1;
                if let Owner::Pending(slot, _) = owner {
                    self.sent_by.remove(&(slot, tag));
                }
                Answer::To(owner)
            }
            State::Flushed(owner, _) => {
                self.tags[tag] = State::Late;
                Answer::To(owner)
            }
            State::Late => return Err("two answers to one message"),
            State::Flush(flushed) => {
                if !fits(109) {
                    return Err("an answer of the wrong type");
                }
                self.tags.remove(tag);
                self.sent -= 1;
                match self.tags.remove(flushed) {
                    State::Flushed(owner, _) => Answer::Never(owner),
                    State::Late => Answer::Late,
                    other @ (State::Sent(..) | State::Flush(_)) => {
                        unreachable!("{other:?} was flushed")
                    }
                }
            }
        };
        self.go_on(out);
        Ok(answer)
    }

    /// Flushes all messages of a pending request; returns the number of those that were only
    /// queued.
    pub(super) fn flush(&mut self, slot: usize, out: &mut Vec<Buf>) -> u32 {
        let dropped = self.waiting.drop_request(slot);
        while let Some((_, tag)) = self.sent_by.range((slot, 0)..=(slot, usize::MAX)).next() {
            let tag = *tag;
            self.sent_by.remove(&(slot, tag));
            let State::Sent(owner, code) = self.tags[tag] else {
                unreachable!("{:?} is indexed as sent", self.tags[tag])
            };
            self.tags[tag] = State::Flushed(owner, code);
            let flush = self.tags.insert(State::Flush(tag));
            let oldtag = u16::try_from(tag).expect("far fewer calls than tags");
            Message::new(&Tmessage::Flush { oldtag }).send(flush, out);
        }
        dropped
    }

    /// Forgets all calls after the loss of the connection.
    pub(super) fn forget(&mut self) {
        *self = Calls::new(self.sent_max);
    }

    pub(super) fn check(&self) {
        let flushes = |state: &State| matches!(state, State::Flush(_));
        let given_up = |state: &State| matches!(state, State::Flushed(..) | State::Late);
        let count = |which: &dyn Fn(&State) -> bool| {
            self.tags.iter().filter(|(_, state)| which(state)).count()
        };
        assert_eq!(count(&flushes), count(&given_up), "each flush is of one call");
        assert_eq!(self.sent, self.tags.len() - count(&flushes));
        assert!(self.sent <= self.sent_max && (self.waiting.len() == 0 || self.sent > 0));
        self.waiting.check();
        let by_requests = |state: &State| matches!(state, State::Sent(Owner::Pending(..), _));
        assert_eq!(count(&by_requests), self.sent_by.len(), "each call is indexed");
        for (_, state) in &self.tags {
            if let State::Flush(flushed) = state {
                assert!(
                    self.tags.get(*flushed).is_some_and(given_up),
                    "a flush is of what is given up"
                );
            }
        }
    }
}
