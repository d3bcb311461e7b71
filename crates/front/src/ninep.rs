//! A 9P connection.
//!
//! Messages are taken off the stream while the connection is within its limits; each becomes a
//! [`call`], and calls are answered in whatever order the name space answers. `Tversion` chooses
//! the dialect and starts afresh. A peer that breaks the protocol is disconnected.
//!
//! *Flush* (flush(5)): a call that only looks is given up at once: its tag is free, its answer is
//! thrown away when it comes. A call that may change something is told to stop, and `Rflush`
//! follows its answer, or stands alone if it was stopped in time.
//!
#![doc = include_str!("ninep/states.md")]

mod call;
mod fid;
mod linux;
mod plan9;
mod shared;
mod translate;

#[cfg(test)]
mod tests;

use crate::{CallId, Export, Identity, Input, Limits, Output};
use base::{Automaton, Buf, Caller, Error, Instant};
use call::{Await, Call, Next};
use fid::Fids;
use slab::Slab;
use std::collections::BTreeMap;
use std::mem;
use tree::{Reply, Request};
use wire::ninep::{HEADER_SIZE, Rmessage, Tmessage, frame_size};

/// Smallest message size that still holds every message but long names and data.
const MSIZE_MIN: u32 = 512;

/// A message that wants at least this much more is received straight into its own buffer.
const RECEIVE_INTO_MIN: usize = 8192;

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Plan 9's own.
    Plan9,
    /// 9P2000.L, Linux's.
    Linux,
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For `Tversion`; no fid is known.
    New,
    /// For messages of a dialect, and for answers.
    Ready(Dialect),
    /// For the answers under way, which are still said; the server ends.
    Parting(Dialect),
    /// For the answers under way, which nobody wants any more.
    Closing,
}

/// The session automaton.
#[derive(Debug)]
pub struct Session {
    state: State,
    export: Export,
    identity: Identity,
    msize: u32,
    /// What has been received and not yet taken: whole messages only while at a limit.
    input: Buf,
    fids: Fids,
    calls: Slab<Call>,
    /// Calls by tag; a call that was given up has none.
    tags: BTreeMap<u16, CallId>,
    /// Calls that wait for a lock: they may wait long and do not count against the limit.
    waiting: usize,
    /// Bytes asked for by calls under way.
    asked: usize,
    /// Bytes said and not yet sent.
    unsent: usize,
    /// How many of both there may be. A connection with nothing under way may always begin.
    allowance: usize,
}

impl Session {
    /// A connection just accepted.
    pub fn new(export: Export, identity: Identity) -> Session {
        let fids = Fids::new(export.limits.fids);
        Session {
            state: State::New,
            msize: export.limits.msize,
            allowance: export.limits.bytes,
            export,
            identity,
            input: Buf::default(),
            fids,
            calls: Slab::new(),
            tags: BTreeMap::new(),
            waiting: 0,
            asked: 0,
            unsent: 0,
        }
    }

    /// Whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        matches!(self.state, State::New | State::Ready(_)) && self.within_limits()
    }

    /// Sets how many bytes may be asked for and unsent; the node shares out what it has.
    pub fn set_allowance(&mut self, bytes: usize) {
        self.allowance = bytes;
    }

    /// How many bytes are asked for or unsent.
    pub fn bytes(&self) -> usize {
        self.asked + self.unsent
    }

    /// A buffer to receive into, if a large message is under way.
    pub fn receive_into(&mut self) -> Option<Buf> {
        let missing = frame_size(&self.input)?.saturating_sub(self.input.len());
        if missing < RECEIVE_INTO_MIN {
            return None;
        }
        self.input.reserve(missing);
        Some(mem::take(&mut self.input))
    }

    /// Whether nothing is left to wait for, so that the session can be forgotten.
    pub fn is_over(&self) -> bool {
        self.state == State::Closing && self.calls.is_empty()
    }

    /// The state in one word, for `/.upcall/`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::New => "new",
            State::Ready(Dialect::Plan9) => "9P2000",
            State::Ready(Dialect::Linux) => "9P2000.L",
            State::Parting(_) => "parting",
            State::Closing => "closing",
        }
    }

    /// What each call under way waits for, for `/.upcall/`.
    pub fn awaits(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.calls.iter().map(|(_, call)| call.awaits.name())
    }

    /// How many fids the client holds.
    pub fn fids(&self) -> usize {
        self.fids.len()
    }

    fn within_limits(&self) -> bool {
        let Limits { calls, bytes, .. } = self.export.limits;
        let busy = self.calls.len() - self.waiting;
        busy < calls && (self.bytes() == 0 || self.bytes() < bytes.min(self.allowance))
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
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
                self.unsent -= bytes;
                state
            }
            (
                state @ (State::Parting(_) | State::Closing),
                Input::Received(_) | Input::Tick | Input::Drain,
            )
            | (state @ State::Closing, Input::Ended | Input::Lost) => state,
        };
    }

    fn check(&self) {
        assert!(self.waiting <= self.calls.len());
        assert!(self.tags.len() <= self.calls.len());
        for (tag, id) in &self.tags {
            assert_eq!(self.calls[id.0 as usize].tag, Some(*tag));
        }
        let asked: usize = self.calls.iter().map(|(_, call)| call.bytes).sum();
        assert_eq!(self.asked, asked);
        if self.state == State::New {
            assert_eq!(self.fids.len(), 0);
        }
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

    /// Takes whole messages off the input while within the limits.
    fn take_messages(&mut self, out: &mut Vec<Output>) -> State {
        let mut input = mem::take(&mut self.input);
        while self.within_limits() {
            let Some(size) = frame_size(&input) else { break };
            if size < HEADER_SIZE || size > self.msize as usize {
                return self.give_up("a message of a size that was not agreed", out);
            }
            if input.len() < size {
                break;
            }
            let whole = input.len() == size;
            let taken = if whole && is_large_write(&input) {
                self.take_write(mem::take(&mut input), out)
            } else {
                let taken = self.take_message(&input[..size], out);
                input.consume(size);
                taken
            };
            match taken {
                Ok(state) => self.state = state,
                Err(reason) => return self.give_up(reason, out),
            }
        }
        if !input.is_empty() {
            let large = frame_size(&input).is_some_and(|size| size >= RECEIVE_INTO_MIN);
            self.input = if large { input } else { Buf::from(&*input) };
        }
        self.state
    }

    fn take_message(&mut self, bytes: &[u8], out: &mut Vec<Output>) -> Result<State, &'static str> {
        let (tag, message) = match Tmessage::decode(bytes) {
            Ok(decoded) => decoded,
            Err(_) => return self.refuse(u16::from_le_bytes([bytes[5], bytes[6]]), out),
        };
        let dialect = match (self.state, message) {
            (_, Tmessage::Version { msize, version }) => {
                return Ok(self.version(tag, msize, version, out));
            }
            (State::Ready(_), Tmessage::Flush { oldtag }) => {
                self.flush(tag, oldtag, out);
                return Ok(self.state);
            }
            (State::Ready(_), _) if self.tags.contains_key(&tag) => {
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

    /// A large `Twrite` that fills the input alone: its data stays where it is.
    fn take_write(&mut self, bytes: Buf, out: &mut Vec<Output>) -> Result<State, &'static str> {
        let State::Ready(_) = self.state else { return Err("a message before Tversion") };
        let Ok((tag, fid, offset, count)) = wire::ninep::decode_write(&bytes) else {
            return self.refuse(u16::from_le_bytes([bytes[5], bytes[6]]), out);
        };
        if self.tags.contains_key(&tag) {
            return Err("a tag was used twice");
        }
        let mut data = bytes;
        data.consume(data.len() - count);
        let next = self.write(tag, fid, offset, data);
        self.proceed(None, tag, next, out);
        Ok(self.state)
    }

    /// Answers a message that cannot be understood; before an agreement there is nobody to tell.
    fn refuse(&mut self, tag: u16, out: &mut Vec<Output>) -> Result<State, &'static str> {
        match self.state {
            State::Ready(_) if !self.tags.contains_key(&tag) => {
                self.proceed(None, tag, Err(Error::Invalid), out);
                Ok(self.state)
            }
            State::Ready(_) | State::New | State::Parting(_) | State::Closing => {
                Err("a message that cannot be understood")
            }
        }
    }

    /// Agrees on a dialect and starts afresh (version(5)).
    fn version(&mut self, tag: u16, msize: u32, version: &[u8], out: &mut Vec<Output>) -> State {
        self.forget_all(out);
        self.msize = msize.min(self.export.limits.msize);
        let base = version.split(|b| *b == b'.').next().unwrap_or_default();
        let (state, name): (State, &[u8]) = match (version, base) {
            _ if msize < MSIZE_MIN => (State::New, b"unknown"),
            (b"9P2000.L", _) => (State::Ready(Dialect::Linux), b"9P2000.L"),
            (_, b"9P2000") => (State::Ready(Dialect::Plan9), b"9P2000"),
            (_, _) => (State::New, b"unknown"),
        };
        if state == State::New {
            self.msize = self.export.limits.msize;
        }
        self.say(call::encode(tag, &Rmessage::Version { msize: self.msize, version: name }), out);
        state
    }

    /// Stops a call (flush(5)).
    fn flush(&mut self, tag: u16, oldtag: u16, out: &mut Vec<Output>) {
        let Some(&id) = self.tags.get(&oldtag) else {
            return self.say(call::encode(tag, &Rmessage::Flush {}), out);
        };
        out.push(Output::Cancel(id));
        let call = &mut self.calls[id.0 as usize];
        if call.awaits.only_looks() {
            call.tag = None;
            self.tags.remove(&oldtag);
            mem::replace(&mut call.awaits, Await::GivenUp).end(&mut self.fids, out);
            self.say(call::encode(tag, &Rmessage::Flush {}), out);
        } else {
            call.flushes.push(tag);
        }
    }

    fn answered(&mut self, id: CallId, reply: Result<Reply, Error>, out: &mut Vec<Output>) {
        let mut call = self.calls.remove(id.0 as usize);
        self.asked -= call.bytes;
        self.waiting -= usize::from(matches!(call.awaits, Await::Lock));
        let Some(tag) = call.tag else {
            call.awaits.end(&mut self.fids, out);
            return call::discard(reply, out);
        };
        self.tags.remove(&tag);
        let flushed = !call.flushes.is_empty();
        if flushed && reply.as_ref().is_err_and(|error| *error == Error::Cancelled) {
            self.answer_flushes(&call.flushes, out);
            return call.awaits.end(&mut self.fids, out);
        }
        let awaits = mem::replace(&mut call.awaits, Await::GivenUp);
        let next = self.resume(tag, awaits, reply, out);
        self.proceed(Some(call), tag, next, out);
    }

    /// Carries out what a call wants next: ask once more, or answer.
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
                self.asked += bytes;
                self.waiting += usize::from(matches!(awaits, Await::Lock));
                let id = self.calls.insert(Call { tag: Some(tag), awaits, flushes, bytes });
                let id = CallId(u32::try_from(id).expect("calls are limited"));
                self.tags.insert(tag, id);
                out.push(Output::Ask(id, Request { caller, ask }));
            }
            Ok(Next::Say(message)) => self.finish(call, message, out),
            Err(error) => {
                let message = self.error(tag, error);
                self.finish(call, message, out);
            }
        }
    }

    fn finish(&mut self, call: Option<Call>, message: Buf, out: &mut Vec<Output>) {
        self.say(message, out);
        if let Some(call) = call {
            self.answer_flushes(&call.flushes, out);
        }
    }

    fn answer_flushes(&mut self, tags: &[u16], out: &mut Vec<Output>) {
        for tag in tags {
            self.say(call::encode(*tag, &Rmessage::Flush {}), out);
        }
    }

    fn error(&self, tag: u16, error: Error) -> Buf {
        match self.state {
            State::Ready(Dialect::Linux) | State::Parting(Dialect::Linux) => {
                call::encode(tag, &Rmessage::Lerror { ecode: translate::errno(error) })
            }
            State::Ready(Dialect::Plan9)
            | State::Parting(Dialect::Plan9)
            | State::New
            | State::Closing => {
                call::encode(tag, &Rmessage::Error { ename: error.text().as_bytes() })
            }
        }
    }

    fn say(&mut self, message: Buf, out: &mut Vec<Output>) {
        self.unsent += message.len();
        out.push(Output::Send(message));
    }

    /// The server ends: answers what is under way, then hangs up.
    fn part(&mut self, dialect: Dialect, out: &mut Vec<Output>) -> State {
        if self.calls.len() > self.waiting {
            return State::Parting(dialect);
        }
        self.give_up("the server ends", out)
    }

    /// Ends the connection: every call is told to stop, every fid is given back.
    fn give_up(&mut self, reason: &'static str, out: &mut Vec<Output>) -> State {
        self.forget_all(out);
        self.input = Buf::default();
        out.push(Output::Hangup(reason));
        State::Closing
    }

    fn forget_all(&mut self, out: &mut Vec<Output>) {
        for (id, call) in &mut self.calls {
            call.tag = None;
            out.push(Output::Cancel(CallId(u32::try_from(id).expect("calls are limited"))));
        }
        self.tags.clear();
        self.fids.forget_all(out);
    }

    fn caller(&self, fid: u32) -> Result<Caller, Error> {
        self.fids.get(fid).map(|fid| fid.caller.clone())
    }
}

fn is_large_write(message: &[u8]) -> bool {
    const TWRITE: u8 = 118;
    message.len() >= RECEIVE_INTO_MIN && message[4] == TWRITE
}
