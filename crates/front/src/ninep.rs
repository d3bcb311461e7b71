//! A 9P connection.
//!
//! Messages are taken off the stream; each becomes a [`call`], and calls are answered in the order
//! of the replies of the namespace. `Tversion` selects the dialect and resets the session. A peer
//! that violates the protocol is disconnected.
//!
//! Messages that arrive while the connection is at a limit are [`parked`], and taken in order when
//! calls end. `Tflush` and `Tversion` never wait: a client at a limit with hanging calls must be
//! able to abandon them.
//!
//! *Flush* (flush(5)): a read-only call is abandoned at once: its tag is free, and its reply is
//! discarded when it arrives; until then it counts against twice the limits only. A call that may
//! change something is cancelled, and `Rflush` follows its reply, or stands alone if the
//! cancellation was in time.
//!
#![doc = include_str!("ninep/states.md")]

mod call;
mod fid;
mod linux;
mod parked;
mod plan9;
mod shared;
mod translate;

#[cfg(test)]
mod tests;

use crate::{CallId, Export, Identity, Input, Limits, Output, Room};
use base::op::ReceiveBuf;
use base::{Automaton, Buf, Caller, Error, Instant};
use call::{Await, Call, LISTED, Next, cost};
use fid::Fids;
use parked::Parked;
use slab::Slab;
use std::collections::BTreeMap;
use std::{iter, mem};
use tree::{Reply, Request};
use wire::ninep::{HEADER_SIZE, Rmessage, Tmessage, frame_size};

/// Minimum message size, which holds every message except long names and data.
const MSIZE_MIN: u32 = 512;

/// Missing bytes from which a message is received directly into its own buffer.
const RECEIVE_INTO_MIN: usize = 8192;

/// Initial size of a message's receive buffer, which grows as bytes arrive. This much input does
/// not count: every connection can always receive a small message.
const RECEIVE_FREE: usize = 16 << 10;

/// Maximum message size before the version is negotiated.
const NEW_SIZE_MAX: usize = 8192;

/// Maximum number of flushes waiting for one call.
const FLUSHES_MAX: usize = 16;

/// Size below which a listing is not shortened when memory is short, bytes.
const LIST_SMALL: u32 = 8 << 10;

/// Protocol dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 9P2000, of Plan 9.
    Plan9,
    /// 9P2000.L, of Linux.
    Linux,
}

/// Connection state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for `Tversion`; there are no fids.
    New,
    /// Waiting for messages of a dialect, and for replies.
    Ready(Dialect),
    /// Waiting for outstanding replies, which are still sent; the server shuts down.
    Parting(Dialect),
    /// Waiting for outstanding replies, which are discarded.
    Closing,
}

/// Offset of the type in a message.
const TYPE: usize = 4;

/// The session automaton.
#[derive(Debug)]
pub struct Session {
    state: State,
    export: Export,
    identity: Identity,
    /// Whether the kernel has verified the identity of the client.
    may_command: bool,
    msize: u32,
    /// Received bytes, not yet processed: whole messages only while no more can be parked, or the
    /// unsent bytes are at their limit.
    input: Buf,
    /// Capacity of the input while it is lent out for a receive.
    lent: usize,
    /// Messages that wait for calls to end.
    parked: Parked,
    fids: Fids,
    calls: Slab<Call>,
    /// Calls by tag; abandoned ones have none.
    tags: BTreeMap<u16, CallId>,
    /// Number of calls with a tag that wait for a lock: they may wait long and do not count against
    /// the limit.
    waiting: usize,
    /// Bytes requested by calls with a tag.
    outstanding: usize,
    /// Bytes requested by abandoned calls.
    given_up: usize,
    /// Bytes queued and not yet sent.
    unsent: usize,
    /// Memory that the node has left.
    room: Room,
    /// Remaining messages that may be started in this turn.
    quota: usize,
    /// Whether messages remain for the next turn.
    goes_on: bool,
}

impl Session {
    /// Permits administrative access on request: the kernel has verified the identity of the
    /// client.
    pub fn allow_admin(&mut self) {
        self.may_command = true;
    }

    /// Creates a session for an accepted connection.
    pub fn new(export: Export, identity: Identity) -> Session {
        let msize = export.limits.msize;
        assert!(msize >= MSIZE_MIN, "messages of {msize} bytes hold nothing");
        let fids = Fids::new(export.limits.fids);
        Session {
            state: State::New,
            msize: export.limits.msize,
            room: Room::ALL,
            quota: 0,
            goes_on: false,
            export,
            identity,
            may_command: false,
            input: Buf::default(),
            lent: 0,
            parked: Parked::default(),
            fids,
            calls: Slab::new(),
            tags: BTreeMap::new(),
            waiting: 0,
            outstanding: 0,
            given_up: 0,
            unsent: 0,
        }
    }

    /// Returns whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        let whole = frame_size(&self.input).is_some_and(|size| size <= self.input.len());
        matches!(self.state, State::New | State::Ready(_)) && !whole && self.may_say()
    }

    /// Sets the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        self.fids.set_most(room.handles_max(self.handles()).max(crate::HANDLES_FEW));
        self.fids.set_spare(room.spare);
        self.room = room;
        self.quota = self.quota.min(room.messages.max(1));
    }

    /// Returns the bytes held: requested, unsent, parked, received of a large message, or of
    /// attributes.
    pub fn bytes(&self) -> usize {
        let received = (self.input.capacity() + self.lent).saturating_sub(RECEIVE_FREE);
        let begun =
            self.outstanding + self.given_up + self.parked.bytes() + self.fids.attr_excess();
        begun + self.unsent + received
    }

    /// Returns the bytes queued and not yet sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns whether the client owes the rest of a message or of an extended attribute.
    pub fn owes_bytes(&self) -> bool {
        let has_begun = self.lent > 0 || self.fids.attr_excess() > 0;
        has_begun || frame_size(&self.input).is_some_and(|size| size > self.input.len())
    }

    /// Returns whether the client holds no fid and nothing is in progress.
    pub fn is_idle(&self) -> bool {
        self.fids.len() == 0 && !self.has_begun()
    }

    /// Returns whether the client has no file open and nothing is in progress.
    pub fn is_resting(&self) -> bool {
        self.fids.opens() == 0 && !self.has_begun()
    }

    /// Returns whether anything is in progress for the client.
    pub fn has_begun(&self) -> bool {
        !self.calls.is_empty() || self.bytes() > 0
    }

    /// Returns whether the first waiting message lacks memory only.
    pub fn lacks_room(&self) -> bool {
        let whole = frame_size(&self.input).is_some_and(|size| size <= self.input.len());
        let input = whole.then_some(&*self.input);
        let first = self.parked.first().or(input);
        matches!(self.state, State::New | State::Ready(_))
            && first.is_some_and(|first| self.few_calls() && !self.has_room(first))
    }

    /// Returns memory to receive into. The buffer of a large message grows with its received bytes:
    /// a size that is only claimed costs next to nothing.
    pub fn receive_into(&mut self) -> ReceiveBuf {
        assert_eq!(self.lent, 0, "one receive at a time");
        let size = frame_size(&self.input).unwrap_or_default();
        let missing = size.saturating_sub(self.input.len());
        if missing < RECEIVE_INTO_MIN {
            return ReceiveBuf::Default;
        }
        self.input.reserve(missing.min(RECEIVE_FREE.max(self.input.len())));
        self.lent = self.input.capacity();
        ReceiveBuf::Append(mem::take(&mut self.input))
    }

    /// Returns whether nothing is outstanding, so that the session can be dropped.
    pub fn is_over(&self) -> bool {
        self.state == State::Closing && self.calls.is_empty() && !self.fids.is_leaving()
    }

    /// Returns the state as one word, for `/.upcall/`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::New => "new",
            State::Ready(Dialect::Plan9) => "9P2000",
            State::Ready(Dialect::Linux) => "9P2000.L",
            State::Parting(_) => "parting",
            State::Closing => "closing",
        }
    }

    /// Returns the state of each call, for `/.upcall/`.
    pub fn awaits(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.calls.iter().map(|(_, call)| call.awaits.name())
    }

    /// Returns the number of nodes and open files held by the client's fids and calls.
    pub fn handles(&self) -> usize {
        self.fids.handles()
    }

    /// Returns the number of the client's fids.
    pub fn fids(&self) -> usize {
        self.fids.len()
    }

    /// Returns whether this message may become a call.
    fn is_within_limits(&self, message: &[u8]) -> bool {
        self.few_calls() && self.has_room(message)
    }

    /// Returns whether the connection's own limits permit one more call.
    fn few_calls(&self) -> bool {
        let Limits { calls, bytes, .. } = self.export.limits;
        let (wanted, all) = (self.tags.len() - self.waiting, self.calls.len() - self.waiting);
        let outstanding = self.outstanding + self.unsent;
        let few = wanted < calls && all < calls.saturating_mul(2);
        let small = self.given_up == 0 || outstanding + self.given_up < bytes.saturating_mul(2);
        few && small && (outstanding == 0 || outstanding < bytes)
    }

    /// Returns whether there is memory for the reply to a message; the message itself is held
    /// already.
    fn has_room(&self, message: &[u8]) -> bool {
        let mut need = wire::ninep::wanted(message).min(self.msize) as usize;
        if wire::ninep::lists(message) {
            // A listing is shortened instead of waiting.
            need = need.min(LIST_SMALL as usize) * LISTED;
        }
        // Those that wait for locks do not count.
        let is_only = self.tags.len() == self.waiting && self.unsent == 0;
        self.room.admits(self.bytes(), need, is_only)
    }

    /// Returns the size of a listing to request: `count` bytes, or fewer if memory is short.
    fn listed(&self, count: u32) -> u32 {
        let fits = self.room.fits(self.bytes(), count as usize * LISTED);
        if fits { count } else { count.min(LIST_SMALL) }
    }

    /// Returns whether the client takes its replies, so that messages may be answered at once.
    fn may_say(&self) -> bool {
        self.room.lets_send(self.unsent, self.export.limits.bytes)
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        if let Input::Received(_) = input {
            self.lent = 0;
        }
        if let Input::Received(_) | Input::Tick = input {
            self.quota = self.room.messages.max(1);
        }
        self.fids.release(out);
        self.state = match (self.state, input) {
            (State::New | State::Ready(_), Input::Received(bytes)) => {
                self.gather(bytes);
                self.take_messages(out)
            }
            (State::New | State::Ready(_), Input::Answered(id, reply)) => {
                self.answered(id, reply, out);
                self.take_messages(out)
            }
            (State::New | State::Ready(_), Input::Sent(bytes)) => {
                assert!(bytes <= self.unsent, "more bytes were sent than queued");
                self.unsent -= bytes;
                self.take_messages(out)
            }
            (State::New | State::Ready(_), Input::Tick) => self.take_messages(out),
            (State::New, Input::Drain) => self.give_up("the server ends", out),
            (State::Ready(dialect), Input::Drain) => self.part(dialect, out),
            (State::Parting(dialect), Input::Answered(id, reply)) => {
                self.answered(id, reply, out);
                self.part(dialect, out)
            }
            (State::New | State::Ready(_) | State::Parting(_), Input::Ended | Input::Lost) => {
                self.give_up("the client left", out)
            }
            (State::Closing, Input::Answered(id, reply)) => {
                self.answered(id, reply, out);
                State::Closing
            }
            (state @ (State::Parting(_) | State::Closing), Input::Sent(bytes)) => {
                assert!(bytes <= self.unsent, "more bytes were sent than queued");
                self.unsent -= bytes;
                state
            }
            (
                state @ (State::Parting(_) | State::Closing),
                Input::Received(_) | Input::Tick | Input::Drain,
            )
            | (state @ State::Closing, Input::Ended | Input::Lost) => state,
            (_, Input::Claimed(..)) => unreachable!("claims are of NFS calls"),
            (_, Input::Locks(_)) => unreachable!("locks are of WebDAV"),
        };
    }

    fn deadline(&self) -> Option<Instant> {
        let exchanges = matches!(self.state, State::New | State::Ready(_));
        (self.goes_on && exchanges || self.fids.is_leaving()).then_some(Instant(0))
    }

    fn check(&self) {
        assert!(self.waiting <= self.tags.len());
        for (tag, id) in &self.tags {
            assert_eq!(self.calls[id.0 as usize].tag, Some(*tag));
            assert!(!self.parked.contains(*tag));
        }
        let (wanted, given_up): (Vec<&Call>, Vec<&Call>) =
            self.calls.iter().map(|(_, call)| call).partition(|call| call.tag.is_some());
        assert_eq!(self.tags.len(), wanted.len());
        assert_eq!(self.outstanding, wanted.iter().map(|call| call.bytes).sum::<usize>());
        assert_eq!(self.given_up, given_up.iter().map(|call| call.bytes).sum::<usize>());
        self.parked.check();
        let has_node = self.calls.iter().filter(|(_, call)| call.has_node).count();
        self.fids.check(has_node);
        match self.state {
            State::New => assert!(self.fids.len() == 0 && self.parked.is_empty()),
            State::Ready(_) => {
                let first = self.parked.first();
                let waits = first.is_none_or(|first| !self.is_within_limits(first));
                assert!(waits || self.goes_on, "messages wait for a reason");
            }
            State::Parting(_) | State::Closing => assert!(self.parked.is_empty()),
        }
        let locks = |call: &&Call| call.tag.is_some() && matches!(call.awaits, Await::Lock);
        let locks = self.calls.iter().filter(|(_, call)| locks(call)).count();
        assert_eq!(self.waiting, locks, "each lock request that waits is counted");
        for (_, call) in &self.calls {
            assert!(call.flushes.len() <= FLUSHES_MAX, "few flushes wait for one answer");
            let is_given_up = matches!(call.awaits, Await::GivenUp);
            assert!(call.tag.is_none() || !is_given_up, "a tag waits for something");
        }
        assert!(self.lent == 0 || self.input.is_empty(), "a lent buffer is not here");
        assert!(self.msize <= self.export.limits.msize, "no more is agreed than is allowed");
    }
}

impl Session {
    fn gather(&mut self, bytes: Buf) {
        if self.input.is_empty() {
            self.input = bytes;
        } else {
            self.input.extend(&bytes);
        }
    }

    /// Takes parked messages, then whole messages off the input.
    fn take_messages(&mut self, out: &mut Vec<Output>) -> State {
        self.goes_on = false;
        let mut input = mem::take(&mut self.input);
        if let Err(reason) = self.take_input(&mut input, out) {
            return self.give_up(reason, out);
        }
        if !input.is_empty() {
            let large = frame_size(&input).is_some_and(|size| size >= RECEIVE_INTO_MIN);
            self.input = if large { input } else { Buf::from(&*input) };
        }
        self.state
    }

    fn take_input(&mut self, input: &mut Buf, out: &mut Vec<Output>) -> Result<(), &'static str> {
        self.unpark(out)?;
        while self.may_say() {
            let Some(size) = frame_size(input) else { break };
            if size < HEADER_SIZE || size > self.size_max() {
                return Err("a message of a size that was not agreed");
            }
            if input.len() < size {
                break;
            }
            if !self.has_turn() {
                self.goes_on = true;
                break;
            }
            if self.is_due(input) {
                self.take_first(input, size, out)?;
                self.unpark(out)?;
            } else if self.parked.has_room(size, self.msize as usize) {
                self.park(input, size)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether messages may be started in this step. Files of fids from before `Tversion`
    /// are released first: they count against the limits.
    fn has_turn(&self) -> bool {
        self.quota > 0 && !self.fids.is_leaving()
    }

    fn size_max(&self) -> usize {
        match self.state {
            State::New => NEW_SIZE_MAX,
            State::Ready(_) | State::Parting(_) | State::Closing => self.msize as usize,
        }
    }

    /// Takes parked messages within the limits.
    fn unpark(&mut self, out: &mut Vec<Output>) -> Result<(), &'static str> {
        while self.parked.first().is_some_and(|first| self.is_within_limits(first)) {
            if !self.has_turn() {
                self.goes_on = true;
                break;
            }
            let mut message = self.parked.pop().expect("it was looked at");
            let size = message.len();
            self.take_first(&mut message, size, out)?;
        }
        Ok(())
    }

    /// Returns whether the first message of the input may be processed now.
    fn is_due(&self, input: &[u8]) -> bool {
        const TVERSION: u8 = 100;
        const TFLUSH: u8 = 108;
        let free = self.parked.is_empty() && self.is_within_limits(input);
        free || self.state == State::New || matches!(input[4], TVERSION | TFLUSH)
    }

    fn take_first(
        &mut self,
        input: &mut Buf,
        size: usize,
        out: &mut Vec<Output>,
    ) -> Result<(), &'static str> {
        assert!(size <= input.len(), "the message is whole");
        assert!(self.quota > 0, "others have their turn");
        self.quota = self.quota.saturating_sub(cost(&input[..size]));
        self.state = if input.len() == size && is_large_write(input) {
            self.take_write(mem::take(input), out)?
        } else {
            let state = self.take_message(&input[..size], out)?;
            input.consume(size);
            state
        };
        Ok(())
    }

    fn park(&mut self, input: &mut Buf, size: usize) -> Result<(), &'static str> {
        assert!(size <= input.len(), "the message is whole");
        if self.is_used(tag_of(input)) {
            return Err("a tag was used twice");
        }
        if input.len() == size && size >= RECEIVE_INTO_MIN {
            self.parked.push(mem::take(input));
        } else {
            self.parked.push(Buf::from(&input[..size]));
            input.consume(size);
        }
        Ok(())
    }

    /// Returns whether a message with this tag is outstanding.
    fn is_used(&self, tag: u16) -> bool {
        self.tags.contains_key(&tag) || self.parked.contains(tag)
    }

    fn take_message(&mut self, bytes: &[u8], out: &mut Vec<Output>) -> Result<State, &'static str> {
        let (tag, message) = match Tmessage::decode(bytes) {
            Ok(decoded) => decoded,
            Err(_) => return self.refuse(tag_of(bytes), out),
        };
        let dialect = match (self.state, message) {
            (_, Tmessage::Version { msize, version }) => {
                return Ok(self.version(tag, msize, version, out));
            }
            (State::Ready(_), Tmessage::Flush { oldtag }) => {
                return self.flush(tag, oldtag, out);
            }
            (State::Ready(_), _) if self.is_used(tag) => {
                return Err("a tag was used twice");
            }
            (State::Ready(dialect), message) => {
                let next = self.start(dialect, tag, message, out);
                self.proceed(None, tag, next, out);
                dialect
            }
            (State::New | State::Parting(_) | State::Closing, _) => {
                return Err("a message before Tversion");
            }
        };
        Ok(State::Ready(dialect))
    }

    /// Takes a large `Twrite` that fills the input alone, without copying its data.
    fn take_write(&mut self, bytes: Buf, out: &mut Vec<Output>) -> Result<State, &'static str> {
        let State::Ready(_) = self.state else { return Err("a message before Tversion") };
        let Ok((tag, fid, offset, count)) = wire::ninep::decode_write(&bytes) else {
            return self.refuse(tag_of(&bytes), out);
        };
        if self.is_used(tag) {
            return Err("a tag was used twice");
        }
        let mut data = bytes;
        data.consume(data.len() - count);
        let next = self.write(tag, fid, offset, data);
        self.proceed(None, tag, next, out);
        Ok(self.state)
    }

    /// Responds to an undecodable message; before the negotiation, disconnects.
    fn refuse(&mut self, tag: u16, out: &mut Vec<Output>) -> Result<State, &'static str> {
        match self.state {
            State::Ready(_) if !self.is_used(tag) => {
                self.proceed(None, tag, Err(Error::Invalid), out);
                Ok(self.state)
            }
            State::Ready(_) | State::New | State::Parting(_) | State::Closing => {
                Err("a message that cannot be understood")
            }
        }
    }

    /// Negotiates the dialect and resets the session (version(5)).
    fn version(&mut self, tag: u16, msize: u32, version: &[u8], out: &mut Vec<Output>) -> State {
        self.forget_all(out);
        self.msize = msize.min(self.export.limits.msize);
        // The part behind a dot is an extension, which a server need not support (version(5)).
        let extends = |base: &[u8]| {
            let rest = version.strip_prefix(base);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        };
        let (state, name): (State, &[u8]) = match () {
            () if msize < MSIZE_MIN => (State::New, b"unknown"),
            () if extends(b"9P2000.L") => (State::Ready(Dialect::Linux), b"9P2000.L"),
            () if extends(b"9P2000") => (State::Ready(Dialect::Plan9), b"9P2000"),
            () => (State::New, b"unknown"),
        };
        if state == State::New {
            self.msize = self.export.limits.msize;
        }
        self.send(call::encode(tag, &Rmessage::Version { msize: self.msize, version: name }), out);
        state
    }

    /// Flushes a call (flush(5)).
    fn flush(
        &mut self,
        tag: u16,
        oldtag: u16,
        out: &mut Vec<Output>,
    ) -> Result<State, &'static str> {
        let Some(&id) = self.tags.get(&oldtag) else {
            let parked = self.parked.remove(oldtag);
            parked.iter().for_each(|message| self.drop_parked(message, out));
            self.send(call::encode(tag, &Rmessage::Flush {}), out);
            return Ok(self.state);
        };
        let call = &mut self.calls[id.0 as usize];
        // The first flush has cancelled it already.
        if call.flushes.is_empty() {
            out.push(Output::Cancel(id));
        }
        if call.awaits.only_looks() {
            call.tag = None;
            let known = self.tags.remove(&oldtag);
            assert_eq!(known, Some(id), "a tag has one call");
            self.outstanding -= call.bytes;
            self.given_up += call.bytes;
            mem::replace(&mut call.awaits, Await::GivenUp).end(&mut self.fids, out);
            self.send(call::encode(tag, &Rmessage::Flush {}), out);
        } else {
            if call.flushes.len() >= FLUSHES_MAX {
                return Err("a tag was flushed too often");
            }
            call.flushes.push(tag);
        }
        Ok(self.state)
    }

    /// Drops a parked message that was flushed. The fid of a clunk or remove is gone in any case
    /// (clunk(5)): clients go on to use its number for another file.
    fn drop_parked(&mut self, message: &[u8], out: &mut Vec<Output>) {
        if let Ok((_, Tmessage::Clunk { fid } | Tmessage::Remove { fid })) =
            Tmessage::decode(message)
            && let Ok(file) = self.fids.remove(fid)
        {
            file.forget(out);
        }
    }

    fn answered(&mut self, id: CallId, reply: Result<Reply, Error>, out: &mut Vec<Output>) {
        let mut call = self.calls.remove(id.0 as usize);
        if call.has_node {
            self.fids.end_node();
        }
        let Some(tag) = call.tag else {
            self.given_up -= call.bytes;
            call.awaits.end(&mut self.fids, out);
            return crate::discard(reply, out);
        };
        self.outstanding -= call.bytes;
        self.waiting -= usize::from(matches!(call.awaits, Await::Lock));
        let known = self.tags.remove(&tag);
        assert_eq!(known, Some(id), "a tag has one call");
        let flushed = !call.flushes.is_empty();
        if flushed && reply.as_ref().is_err_and(|error| *error == Error::Cancelled) {
            self.answer_flushes(&call.flushes, out);
            return call.awaits.end(&mut self.fids, out);
        }
        let awaits = mem::replace(&mut call.awaits, Await::GivenUp);
        let next = self.resume(tag, awaits, reply, out);
        self.proceed(Some(call), tag, next, out);
    }

    /// Performs the next step of a call: another request, or the response.
    fn proceed(
        &mut self,
        call: Option<Call>,
        tag: u16,
        next: Result<Next, Error>,
        out: &mut Vec<Output>,
    ) {
        match next {
            Ok(Next::Ask(awaits, caller, ask)) => {
                let flushes = call.map_or_else(Vec::new, |call| call.flushes);
                let bytes = awaits.bytes(&ask);
                self.outstanding += bytes;
                self.waiting += usize::from(matches!(awaits, Await::Lock));
                let has_node = awaits.has_node();
                if has_node {
                    self.fids.expect_node();
                }
                let call = Call { tag: Some(tag), awaits, flushes, bytes, has_node };
                let id = self.calls.insert(call);
                let id = CallId(u32::try_from(id).expect("calls are limited"));
                let before = self.tags.insert(tag, id);
                assert!(before.is_none(), "a tag has one call");
                out.push(Output::Ask(id, Request { caller, ask }));
            }
            Ok(Next::Respond(message)) => self.finish(call, [message], out),
            Ok(Next::SayPieces(header, pieces)) => {
                let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
                self.finish(call, iter::once(header).chain(pieces), out);
            }
            Err(error) => {
                let message = self.error(tag, error);
                self.finish(call, [message], out);
            }
        }
    }

    fn finish(
        &mut self,
        call: Option<Call>,
        message: impl IntoIterator<Item = Buf>,
        out: &mut Vec<Output>,
    ) {
        let mut parts = message.into_iter();
        parts.next().into_iter().for_each(|head| self.send(head, out));
        parts.for_each(|piece| self.send_piece(piece, out));
        if let Some(call) = call {
            self.answer_flushes(&call.flushes, out);
        }
    }

    fn answer_flushes(&mut self, tags: &[u16], out: &mut Vec<Output>) {
        for tag in tags {
            self.send(call::encode(*tag, &Rmessage::Flush {}), out);
        }
    }

    fn error(&self, tag: u16, error: Error) -> Buf {
        match self.state {
            State::Ready(Dialect::Linux) | State::Parting(Dialect::Linux) => {
                call::encode(tag, &Rmessage::Lerror { ecode: wire::ninep::errno(error) })
            }
            State::Ready(Dialect::Plan9)
            | State::Parting(Dialect::Plan9)
            | State::New
            | State::Closing => {
                call::encode(tag, &Rmessage::Error { ename: error.text().as_bytes() })
            }
        }
    }

    /// Sends a message, or its beginning.
    fn send(&mut self, message: Buf, out: &mut Vec<Output>) {
        out.push(Output::Replied(message[TYPE]));
        self.send_piece(message, out);
    }

    fn send_piece(&mut self, piece: Buf, out: &mut Vec<Output>) {
        assert!(!piece.is_empty(), "a reply has text");
        self.unsent += piece.len();
        out.push(Output::Send(piece));
    }

    /// Shuts down: answers outstanding calls, then hangs up.
    fn part(&mut self, dialect: Dialect, out: &mut Vec<Output>) -> State {
        self.parked = Parked::default();
        if self.tags.len() > self.waiting {
            return State::Parting(dialect);
        }
        self.give_up("the server ends", out)
    }

    /// Closes the connection: cancels every call, and releases every fid.
    fn give_up(&mut self, reason: &'static str, out: &mut Vec<Output>) -> State {
        self.forget_all(out);
        self.input = Buf::default();
        out.push(Output::Hangup(reason));
        State::Closing
    }

    fn forget_all(&mut self, out: &mut Vec<Output>) {
        for (id, call) in &mut self.calls {
            // Flushed ones are cancelled already.
            if call.tag.take().is_some() {
                out.push(Output::Cancel(CallId(u32::try_from(id).expect("calls are limited"))));
            }
        }
        self.tags.clear();
        self.parked = Parked::default();
        self.given_up += mem::take(&mut self.outstanding);
        self.waiting = 0;
        self.fids.forget_all();
        self.fids.release(out);
    }

    fn caller(&self, fid: u32) -> Result<Caller, Error> {
        self.fids.get(fid).map(|fid| fid.caller.clone())
    }
}

/// Returns the tag of a whole message.
fn tag_of(message: &[u8]) -> u16 {
    assert!(message.len() >= HEADER_SIZE, "a whole message has a tag");
    u16::from_le_bytes([message[5], message[6]])
}

fn is_large_write(message: &[u8]) -> bool {
    const TWRITE: u8 = 118;
    message.len() >= RECEIVE_INTO_MIN && message[4] == TWRITE
}
