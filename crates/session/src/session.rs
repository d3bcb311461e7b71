//! The session: outstanding messages by tag, and fids.
//!
//! A flushed call keeps its tag until the reply to the flush, and a reply that arrives before that
//! is valid (flush(5)). A fid is reused after the reply to its clunk.
//!
#![doc = include_str!("session/states.md")]

#[cfg(test)]
mod tests;

use crate::fids::Fids;
use crate::version::{Agreement, Dialect, agreement};
use crate::{Violation, is_error};
use slab::Slab;
use std::ops::RangeInclusive;
use wire::ninep::{NO_TAG, Rmessage, Tmessage};

/// Maximum number of outstanding calls: each can have a flush, with a tag of its own.
pub const CALLS_MAX: usize = NO_TAG as usize / 2;

/// Maximum size of a message before a size is agreed on, bytes.
const UNAGREED_SIZE_MAX: usize = 8192;

const RFLUSH: u8 = 109;
const RCLUNK: u8 = 121;

/// Meaning of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<C> {
    /// The reply to the version message.
    Version(Agreement),
    /// The reply to a call.
    Reply(C),
    /// The end of a flushed call, without a reply.
    Never(C),
    /// The reply to a clunk, or to the flush of a call whose reply came first.
    Done,
}

/// Version negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a connection.
    Closed,
    /// Waiting for the reply to the version message, with a message size in this range.
    Offered(Dialect, RangeInclusive<u32>),
    /// Waiting for replies to calls; the dialect and the message size, bytes.
    Agreed(Dialect, u32),
}

/// State of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag<C> {
    /// A call: waiting for a reply of this type.
    Sent(C, u8),
    /// A flushed call: waiting for its reply or for the reply to the flush.
    Flushed(C, u8),
    /// A flushed call with a reply: waiting for the reply to the flush.
    Late,
    /// A flush of this tag: waiting for its reply.
    Flush(u16),
    /// A clunk of this fid: waiting for its reply.
    Clunk(u32),
}

/// A client's session; `C` identifies the owner of a call.
#[derive(Debug)]
pub struct Session<C> {
    phase: Phase,
    tags: Slab<Tag<C>>,
    /// Number of tags other than those of flushes.
    calls: usize,
    calls_max: usize,
    fids: Fids,
}

impl<C: Copy> Session<C> {
    /// Returns a session without a connection, for at most `calls_max` outstanding calls and
    /// clunks, itself at most [`CALLS_MAX`].
    pub fn new(calls_max: usize) -> Session<C> {
        let calls_max = calls_max.clamp(1, CALLS_MAX);
        let (tags, fids) = (Slab::new(), Fids::default());
        Session { phase: Phase::Closed, tags, calls: 0, calls_max, fids }
    }

    /// Forgets everything on the loss of the connection: no call will have a reply.
    pub fn close(&mut self) {
        *self = Session::new(self.calls_max);
    }

    /// Begins anew; returns the message that offers a dialect and the largest of these message
    /// sizes, bytes. The server may propose another one of them.
    pub fn offer(&mut self, dialect: Dialect, sizes: RangeInclusive<u32>) -> Vec<u8> {
        assert!(!sizes.is_empty(), "there is a message size to offer");
        let (msize, version) = (*sizes.end(), dialect.version().as_bytes());
        self.close();
        self.phase = Phase::Offered(dialect, sizes);
        let mut bytes = Vec::new();
        Tmessage::Version { msize, version }.encode(NO_TAG, &mut bytes);
        bytes
    }

    /// Returns the agreed dialect.
    ///
    /// # Panics
    /// If there is none.
    pub fn dialect(&self) -> Dialect {
        let Phase::Agreed(dialect, _) = self.phase else { unreachable!("{:?}", self.phase) };
        dialect
    }

    /// Returns the agreed message size, bytes.
    ///
    /// # Panics
    /// If there is none.
    pub fn msize(&self) -> u32 {
        let Phase::Agreed(_, msize) = self.phase else { unreachable!("{:?}", self.phase) };
        msize
    }

    /// Returns the maximum size of a received message now, bytes.
    pub fn size_max(&self) -> usize {
        match self.phase {
            Phase::Agreed(_, msize) => msize as usize,
            Phase::Closed | Phase::Offered(..) => UNAGREED_SIZE_MAX,
        }
    }

    /// Returns a fid unknown to the server; `None` if all are in use.
    pub fn new_fid(&mut self) -> Option<u32> {
        self.fids.take()
    }

    /// Frees a fid that the server does not know, or no longer.
    pub fn free_fid(&mut self, fid: u32) {
        self.fids.give(fid);
    }

    /// Returns the number of fids in use.
    pub fn fids(&self) -> usize {
        self.fids.used()
    }

    /// Returns the number of outstanding calls and clunks.
    pub fn outstanding(&self) -> usize {
        self.calls
    }

    /// Returns whether the maximum number of calls and clunks is outstanding.
    pub fn is_full(&self) -> bool {
        self.calls >= self.calls_max
    }

    /// Begins a call with a message of type `code`, to be sent with the returned tag; `None` if
    /// the session [is full](Session::is_full).
    pub fn call(&mut self, code: u8, owner: C) -> Option<u16> {
        self.begin(Tag::Sent(owner, code + 1))
    }

    /// Begins a call and appends its message to `out`; `None` if the session is full.
    pub fn send(&mut self, message: &Tmessage<'_>, owner: C, out: &mut Vec<u8>) -> Option<u16> {
        let tag = self.call(message.code(), owner)?;
        message.encode(tag, out);
        Some(tag)
    }

    /// Returns the message that clunks a fid, which is free after the reply; `None` if the session
    /// is full.
    pub fn clunk(&mut self, fid: u32) -> Option<Vec<u8>> {
        let tag = self.begin(Tag::Clunk(fid))?;
        Some(encoded(tag, &Tmessage::Clunk { fid }))
    }

    /// Returns the message that flushes a call, which has no flush yet.
    ///
    /// # Panics
    /// If no such call is outstanding.
    pub fn flush(&mut self, tag: u16) -> Vec<u8> {
        let it = &mut self.tags[usize::from(tag)];
        *it = match *it {
            Tag::Sent(owner, expected) => Tag::Flushed(owner, expected),
            Tag::Flushed(..) | Tag::Late | Tag::Flush(_) | Tag::Clunk(_) => {
                unreachable!("tag {tag} is that of no call, or of a flushed one")
            }
        };
        let flush = self.insert(Tag::Flush(tag));
        encoded(flush, &Tmessage::Flush { oldtag: tag })
    }

    /// Returns the tags and owners of all calls that were not flushed.
    pub fn calls(&self) -> impl Iterator<Item = (u16, C)> + '_ {
        self.tags.iter().filter_map(|(tag, state)| match state {
            Tag::Sent(owner, _) => Some((tag as u16, *owner)),
            Tag::Flushed(..) | Tag::Late | Tag::Flush(_) | Tag::Clunk(_) => None,
        })
    }

    /// Decodes and processes a whole message.
    ///
    /// # Errors
    /// If the server violates the protocol.
    pub fn receive<'a>(
        &mut self,
        message: &'a [u8],
    ) -> Result<(Answer<C>, Rmessage<'a>), Violation> {
        let (tag, reply) = Rmessage::decode(message).map_err(|_| Violation::Malformed)?;
        let answer = match &self.phase {
            Phase::Offered(offered, sizes) if tag == NO_TAG => {
                let agreement = agreement(*offered, sizes, &reply)?;
                self.phase = match agreement {
                    Agreement::Agreed(dialect, msize) => Phase::Agreed(dialect, msize),
                    Agreement::Unknown | Agreement::Refused => Phase::Closed,
                };
                Answer::Version(agreement)
            }
            Phase::Closed | Phase::Offered(..) | Phase::Agreed(..) => {
                self.answered(tag, reply.code())?
            }
        };
        Ok((answer, reply))
    }

    /// Processes a reply to a call, by tag and type alone.
    ///
    /// # Errors
    /// If the server violates the protocol.
    pub fn answered(&mut self, tag: u16, code: u8) -> Result<Answer<C>, Violation> {
        let state = *self.tags.get(tag.into()).ok_or(Violation::Tag(tag))?;
        let expected = match state {
            Tag::Sent(_, expected) | Tag::Flushed(_, expected) => expected,
            Tag::Late => return Err(Violation::Twice(tag)),
            Tag::Flush(_) => RFLUSH,
            Tag::Clunk(_) => RCLUNK,
        };
        if code != expected && !is_error(code) {
            return Err(Violation::Type(code, expected));
        }
        Ok(match state {
            Tag::Sent(owner, _) => {
                self.end(tag);
                Answer::Reply(owner)
            }
            Tag::Flushed(owner, _) => {
                self.tags[tag.into()] = Tag::Late;
                Answer::Reply(owner)
            }
            Tag::Clunk(fid) => {
                self.end(tag);
                self.free_fid(fid);
                Answer::Done
            }
            Tag::Flush(flushed) => {
                self.tags.remove(tag.into());
                match self.end(flushed) {
                    Tag::Flushed(owner, _) => Answer::Never(owner),
                    Tag::Late => Answer::Done,
                    Tag::Sent(..) | Tag::Flush(_) | Tag::Clunk(_) => {
                        unreachable!("tag {flushed} was flushed")
                    }
                }
            }
            Tag::Late => unreachable!("its second reply is an error"),
        })
    }

    fn begin(&mut self, state: Tag<C>) -> Option<u16> {
        assert!(matches!(self.phase, Phase::Agreed(..)), "a version is agreed on first");
        if self.is_full() {
            return None;
        }
        self.calls += 1;
        Some(self.insert(state))
    }

    fn insert(&mut self, state: Tag<C>) -> u16 {
        let tag = self.tags.insert(state);
        u16::try_from(tag).expect("at most two tags for each call")
    }

    fn end(&mut self, tag: u16) -> Tag<C> {
        self.calls -= 1;
        self.tags.remove(tag.into())
    }

    /// Asserts all invariants.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        let flushed =
            |tag: u16| matches!(self.tags.get(tag.into()), Some(Tag::Flushed(..) | Tag::Late));
        let (mut flushes, mut given_up) = (0, 0);
        for (tag, state) in &self.tags {
            given_up += usize::from(flushed(tag as u16));
            if let Tag::Flush(of) = state {
                assert!(flushed(*of), "a flush is of a flushed call");
                flushes += 1;
            }
        }
        assert_eq!(flushes, given_up, "a flushed call has one flush");
        assert_eq!(self.calls, self.tags.len() - flushes);
        let is_agreed = matches!(self.phase, Phase::Agreed(..));
        assert!(self.calls <= self.calls_max && (is_agreed || self.tags.is_empty()));
        self.fids.check();
    }
}

fn encoded(tag: u16, message: &Tmessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    bytes
}
