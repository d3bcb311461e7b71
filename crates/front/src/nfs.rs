//! An NFS connection: version 3 (RFC 1813) with its MOUNT protocol on the same port.
//!
//! Each record is a [`call`]; calls are answered in the order in which they end. A client has no
//! session: it sends file handles, and the connection only remembers which [`files`] it uses.
//! Calls that arrive while the connection is at a limit wait in the input buffer.
//!
#![doc = include_str!("nfs/states.md")]

mod call;
mod directory;
mod entries;
mod files;
mod io;
mod look;
mod make;
mod mount;
mod prepare;
mod record;
mod replays;
mod secret;
mod translate;
mod users;

#[cfg(test)]
mod tests;

pub use replays::{CallKey, Claim, Replays};
pub use secret::{Key, key_of, seal};

use crate::{CallId, Export, Identity, Input, Limits, Output, Room};
use base::op::ReceiveBuf;
use base::{Automaton, Buf, Caller, Error, Instant};
use call::{Await, Call, Context, Next, Procedure};
use files::{Files, Pin};
use io::Write;
use record::{Begin, Record, Refusal, Work};
use slab::Slab;
use std::mem;
use tree::{Ask, Reply, Request};
use users::Users;
use wire::nfs::{CALL_OVERHEAD, Status};
use wire::rpc::{self, MARK_SIZE, Outcome};

/// Missing bytes from which a record is received directly into its own buffer.
const RECEIVE_INTO_MIN: usize = 8192;

/// Initial size of a record's receive buffer, which grows as bytes arrive. This much input does not
/// count: every connection can always receive a small call.
const RECEIVE_FREE: usize = 16 << 10;

/// Connection state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for calls, and for replies.
    Ready,
    /// Waiting for outstanding replies, which are still sent; the server shuts down.
    Parting,
    /// Waiting for outstanding replies, which are discarded.
    Closing,
}

/// The session automaton.
#[derive(Debug)]
pub struct Session {
    state: State,
    export: Export,
    identity: Identity,
    /// Whether the client's address is not allowed.
    is_refused: bool,
    users: Users,
    /// Received bytes, not yet processed.
    input: Buf,
    /// Earlier fragments of the record being received.
    fragments: Vec<u8>,
    /// Capacity of the input while it is lent out for a receive.
    lent: usize,
    files: Files,
    calls: Slab<Call>,
    /// Bytes requested by calls.
    outstanding: usize,
    /// Bytes queued and not yet sent.
    unsent: usize,
    /// Memory that the node has left.
    room: Room,
    /// Maximum number of nodes and open files.
    handles_max: usize,
    /// Remaining calls that may be started in this turn.
    quota: usize,
    /// Whether calls remain for the next turn.
    goes_on: bool,
}

impl Session {
    /// Creates a session for an accepted connection.
    pub fn new(export: Export, identity: Identity) -> Session {
        Session {
            state: State::Ready,
            handles_max: export.limits.handles,
            export,
            identity,
            is_refused: false,
            users: Users::default(),
            input: Buf::default(),
            fragments: Vec::new(),
            lent: 0,
            files: Files::new(),
            calls: Slab::new(),
            outstanding: 0,
            unsent: 0,
            room: Room::ALL,
            quota: 0,
            goes_on: false,
        }
    }

    /// Refuses all calls but NULL and those of MOUNT that need no file: the client's address is
    /// not allowed.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Returns whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        self.state == State::Ready && !self.has_fragment() && self.may_send()
    }

    /// Returns whether the input begins with a whole fragment.
    fn has_fragment(&self) -> bool {
        rpc::fragment(&self.input).is_some_and(|(size, _)| size + MARK_SIZE <= self.input.len())
    }

    /// Sets the memory that the node has left.
    pub fn set_room(&mut self, room: Room) {
        let most = room.handles_max(self.handles()).max(crate::HANDLES_FEW);
        self.handles_max = most.min(self.export.limits.handles);
        self.room = room;
        self.quota = self.quota.min(room.messages.max(1));
    }

    /// Returns the bytes held: requested, unsent, received of a large call, or for places of files.
    pub fn bytes(&self) -> usize {
        self.busy_bytes() + self.files.places_bytes()
    }

    /// Returns the bytes held by calls in progress.
    fn busy_bytes(&self) -> usize {
        let received = self.input.capacity() + self.lent + self.fragments.capacity();
        self.outstanding + self.unsent + received.saturating_sub(RECEIVE_FREE)
    }

    /// Returns the bytes queued and not yet sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns whether the client owes the rest of a call.
    pub fn owes_bytes(&self) -> bool {
        let is_begun = !self.input.is_empty() && !self.has_fragment();
        self.lent > 0 || is_begun || !self.fragments.is_empty()
    }

    /// Returns whether nothing is in progress. A client recovers everything by its handles.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.busy_bytes() == 0
    }

    /// Returns whether a waiting call lacks memory only.
    pub fn lacks_room(&self) -> bool {
        let waits = self.state == State::Ready && self.has_fragment() && self.few_calls();
        waits && self.may_send() && !self.goes_on
    }

    /// Returns memory to receive into. The buffer of a large call grows with its received bytes: a
    /// size that is only claimed costs next to nothing.
    pub fn receive_into(&mut self) -> ReceiveBuf {
        assert_eq!(self.lent, 0, "one receive at a time");
        let size = rpc::fragment(&self.input).map_or(0, |(size, _)| size + MARK_SIZE);
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
        self.state == State::Closing && self.calls.is_empty() && !self.files.is_leaving()
    }

    /// Returns the state as one word, for `/.upcall/`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Ready => "ready",
            State::Parting => "parting",
            State::Closing => "closing",
        }
    }

    /// Returns the state of each call, for `/.upcall/`.
    pub fn awaits(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.calls.iter().map(|(_, call)| call.awaits.name())
    }

    /// Returns the number of nodes and open files, held and requested.
    pub fn handles(&self) -> usize {
        self.files.handles() + self.calls.len()
    }

    /// Returns whether the connection's own limits permit one more call.
    fn few_calls(&self) -> bool {
        let Limits { calls, bytes, .. } = self.export.limits;
        self.calls.len() < calls
            && (self.outstanding == 0 || self.outstanding + self.unsent < bytes)
    }

    /// Returns whether there is memory for a call that needs this much.
    fn has_room(&self, need: usize) -> bool {
        let is_only = self.calls.is_empty() && self.unsent == 0;
        self.room.admits(self.bytes(), need, is_only)
    }

    /// Returns whether the client takes its replies, so that calls may be answered at once.
    fn may_send(&self) -> bool {
        self.room.lets_send(self.unsent, self.export.limits.bytes)
    }

    /// Returns the maximum number of places of files: their memory is a part of what is free beyond
    /// one half of all, so that any number of connections leaves that half to calls.
    fn places_max(&self) -> usize {
        self.room.spare.saturating_sub(self.room.reserve * 4) / files::PLACE_SIZE
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        if let Input::Received(_) = input {
            self.lent = 0;
        }
        if let Input::Received(_) | Input::Tick = input {
            self.quota = self.room.messages.max(1);
        }
        // A call needs a node and an open file.
        let most = self.handles_max.saturating_sub(self.calls.len() + 2);
        self.files.expire(now, most, out);
        self.files.forget_places(self.places_max(), out);
        match input {
            Input::Received(bytes) => self.gather(bytes),
            Input::Answered(id, reply) => self.answered(now, id, reply, out),
            Input::Claimed(id, claim) => self.claimed(now, id, claim, out),
            Input::Locks(_) => unreachable!("locks are of WebDAV"),
            Input::Sent(bytes) => {
                assert!(bytes <= self.unsent, "no more is sent than was queued");
                self.unsent -= bytes;
            }
            Input::Ended | Input::Lost => self.give_up("the client left", out),
            Input::Drain if self.state == State::Ready => self.state = State::Parting,
            Input::Tick | Input::Drain => {}
        }
        match self.state {
            State::Ready => {
                if let Err(reason) = self.take_records(now, out) {
                    self.give_up(reason, out);
                }
            }
            State::Parting if self.calls.is_empty() => self.give_up("the server ends", out),
            State::Parting => {}
            State::Closing => {
                self.input = Buf::default();
                self.files.expire(now, 0, out);
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let goes_on = (self.goes_on && self.state == State::Ready).then_some(Instant(0));
        goes_on.or_else(|| self.files.deadline())
    }

    fn check(&self) {
        let pins = self.calls.iter().map(|(_, call)| call.files.iter().flatten().count());
        self.files.check(pins.sum());
        let outstanding: usize = self.calls.iter().map(|(_, call)| call.bytes).sum();
        assert_eq!(self.outstanding, outstanding, "bytes are a call's");
        assert!(self.lent == 0 || self.input.is_empty(), "a lent buffer is not here");
        for (_, call) in &self.calls {
            let is_given_up = call.awaits == Await::GivenUp;
            let is_claim = matches!(call.awaits, Await::Claim(_));
            let ends = self.state == State::Closing && !call.goes_on() && !is_claim;
            assert_eq!(is_given_up, ends, "calls end with the client, or their claim");
            let is_ready = call.awaits == Await::Procedure;
            let handles = call.procedure.handles();
            let known =
                handles.iter().zip(&call.files).all(|(it, pin)| it.is_some() == pin.is_some());
            assert!(!is_ready || known, "a procedure begins with its nodes");
            assert!(!is_ready || call.procedure.access().is_none() || call.open.is_some());
        }
        if self.state == State::Closing {
            assert!(self.input.is_empty() && !self.goes_on);
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

    /// Takes whole records off the input.
    fn take_records(&mut self, now: Instant, out: &mut Vec<Output>) -> Result<(), &'static str> {
        self.goes_on = false;
        let mut input = mem::take(&mut self.input);
        let result = self.take_input(now, &mut input, out);
        if !input.is_empty() {
            let large = rpc::fragment(&input).is_some_and(|(size, _)| size >= RECEIVE_INTO_MIN);
            self.input = if large { input } else { Buf::from(&*input) };
        }
        result
    }

    fn take_input(
        &mut self,
        now: Instant,
        input: &mut Buf,
        out: &mut Vec<Output>,
    ) -> Result<(), &'static str> {
        let most = self.export.limits.msize as usize + CALL_OVERHEAD;
        while self.may_send() {
            let Some((size, is_last)) = rpc::fragment(input) else { break };
            if size + self.fragments.len() > most {
                return Err("a call larger than the maximum size of a write");
            }
            if input.len() < size + MARK_SIZE {
                break;
            }
            if self.quota == 0 {
                self.goes_on = true;
                break;
            }
            if !is_last || !self.fragments.is_empty() {
                if is_last && !self.few_calls() {
                    break;
                }
                self.fragments.extend(&input[MARK_SIZE..MARK_SIZE + size]);
                input.consume(MARK_SIZE + size);
                self.quota -= 1;
                if is_last {
                    let whole = Buf::from(mem::take(&mut self.fragments));
                    self.take_record(now, Record::Owned(whole), true, out)?;
                }
                continue;
            }
            let record = match input.len() == MARK_SIZE + size && size >= RECEIVE_INTO_MIN {
                true => {
                    let mut whole = mem::take(input);
                    whole.consume(MARK_SIZE);
                    Record::Owned(whole)
                }
                false => Record::Borrowed(&input[MARK_SIZE..MARK_SIZE + size]),
            };
            match self.take_record(now, record, false, out)? {
                None => {
                    self.quota -= 1;
                    if !input.is_empty() {
                        input.consume(MARK_SIZE + size);
                    }
                }
                // It waits for calls to end.
                Some(waiting) => {
                    if let Record::Owned(mut whole) = waiting {
                        whole.prepend(&rpc::mark(size));
                        *input = whole;
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Starts the call of a record; returns the record if it must wait, unless it is `due`.
    fn take_record<'a>(
        &mut self,
        now: Instant,
        record: Record<'a>,
        due: bool,
        out: &mut Vec<Output>,
    ) -> Result<Option<Record<'a>>, &'static str> {
        let work = match record::decode(&record, &self.export) {
            Ok(work) => work,
            Err(Refusal::Hangup(reason)) => return Err(reason),
            Err(Refusal::Reply(xid, outcome)) => {
                self.send(reply_head(xid, outcome), Vec::new(), out);
                return Ok(None);
            }
        };
        let may = self.few_calls() && self.has_room(work.need);
        if !may && !due {
            return Ok(Some(record));
        }
        let Work { xid, name, claim, begin, need } = work;
        let caller = match self.users.caller(&self.identity, self.export.nfs.squash, claim) {
            Ok(_) if self.is_refused && !matches!(begin, Begin::Reply(..)) => {
                self.send(reply_head(xid, Outcome::Refused(rpc::TOO_WEAK)), Vec::new(), out);
                return Ok(None);
            }
            Ok(caller) => caller,
            Err(outcome) => {
                self.send(reply_head(xid, outcome), Vec::new(), out);
                return Ok(None);
            }
        };
        let mut claim = None;
        let procedure: Box<dyn Procedure> = match begin {
            Begin::Reply(results, is_done) => {
                out.push(Output::Called(name, is_done));
                let mut head = reply_head(xid, Outcome::Success);
                head.extend(results);
                self.send(head, Vec::new(), out);
                return Ok(None);
            }
            Begin::Procedure(procedure) => {
                claim = procedure.is_change().then(|| CallKey::new(xid, &record));
                procedure
            }
            Begin::Write { handle, offset, stable, length } => {
                let data = record::data(record, length);
                Box::new(Write::new(handle, offset, stable, data))
            }
        };
        let call = Call::new(xid, name, caller, procedure, need);
        match claim {
            Some(key) => {
                let id = self.wait(call, Await::Claim(key));
                out.push(Output::Claim(id, key));
            }
            None => self.advance(now, call, out),
        }
        Ok(None)
    }

    /// Registers a call that waits.
    fn wait(&mut self, mut call: Call, awaits: Await) -> CallId {
        call.awaits = awaits;
        self.outstanding += call.bytes;
        CallId(u32::try_from(self.calls.insert(call)).expect("calls are limited"))
    }

    /// Begins a claimed call, or sends the reply that it had before.
    fn claimed(&mut self, now: Instant, id: CallId, claim: Claim, out: &mut Vec<Output>) {
        let mut call = self.calls.remove(id.0 as usize);
        self.outstanding -= call.bytes;
        match (call.awaits, claim) {
            (Await::Claim(key), Claim::New) => {
                call.claim = Some(key);
                if self.state == State::Closing {
                    return call.give_up(out);
                }
                self.advance(now, call, out);
            }
            (Await::Claim(_), Claim::Replied(reply)) => self.send(reply, Vec::new(), out),
            (Await::Claim(_), Claim::InProgress) => {}
            (awaits, claim) => unreachable!("{awaits:?}: {claim:?} was not awaited"),
        }
    }

    fn ask(&mut self, call: Call, awaits: Await, ask: Ask, out: &mut Vec<Output>) {
        // Who may change a directory need not be able to read it.
        let is_own = matches!(awaits, Await::OpenSync | Await::OpenAny | Await::OpenAnyway);
        let caller = if is_own { Caller::Server } else { call.caller.clone() };
        let id = self.wait(call, awaits);
        out.push(Output::Ask(id, Request { caller, ask }));
    }

    fn answered(
        &mut self,
        now: Instant,
        id: CallId,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        let call = self.calls.remove(id.0 as usize);
        self.outstanding -= call.bytes;
        if call.awaits == Await::GivenUp {
            crate::discard(reply, out);
            return self.release(now, call, out);
        }
        match call.awaits {
            Await::Resolve(_) | Await::Walk(_) | Await::Verify(..) => {
                self.found(now, call, reply, out);
            }
            Await::Open
            | Await::OpenAny
            | Await::Permission
            | Await::OpenAnyway
            | Await::OpenSync => {
                self.opened(now, call, reply, out);
            }
            Await::Procedure => self.step_procedure(now, call, Some(reply), out),
            Await::Claim(_) | Await::GivenUp => unreachable!("it has asked for nothing"),
        }
    }

    /// Begins a procedure, or passes it the reply that it waits for.
    fn step_procedure(
        &mut self,
        now: Instant,
        mut call: Call,
        reply: Option<Result<Reply, Error>>,
        out: &mut Vec<Output>,
    ) {
        let mut body = reply_head(call.xid, Outcome::Success);
        let mut context = Context {
            now,
            export: &self.export,
            identity: &self.identity,
            caller: &call.caller,
            files: &mut self.files,
            pins: call.files,
            open: call.open,
            sync: call.sync.flatten(),
            body: &mut body,
            out,
            found: None,
        };
        let next = match reply {
            None => call.procedure.start(&mut context),
            Some(reply) => call.procedure.answered(reply, &mut context),
        };
        if let Some(pin) = context.found {
            self.files.unpin(pin, now, out);
        }
        match next {
            Next::Ask(ask) => self.ask(call, Await::Procedure, ask, out),
            Next::Reopen => {
                call.open = None;
                self.advance(now, call, out);
            }
            Next::Reply | Next::Data(_) | Next::Fail(_) | Next::FailWith(_) => {
                self.finish(now, call, next, body, out);
            }
        }
    }

    fn fail(&mut self, now: Instant, call: Call, error: Error, out: &mut Vec<Output>) {
        self.finish(now, call, Next::Fail(error), Vec::new(), out);
    }

    /// Sends the reply of a call and releases what it holds.
    fn finish(
        &mut self,
        now: Instant,
        mut call: Call,
        next: Next,
        mut body: Vec<u8>,
        out: &mut Vec<Output>,
    ) {
        let (status, data) = match next {
            Next::Reply => (Status::Ok, Vec::new()),
            Next::Data(data) => (Status::Ok, data),
            Next::Fail(error) => (translate::status(error), Vec::new()),
            Next::FailWith(status) => (status, Vec::new()),
            Next::Ask(_) | Next::Reopen => unreachable!("{next:?} is no end"),
        };
        if status != Status::Ok {
            body = reply_head(call.xid, Outcome::Success);
            call.procedure.put_failure(status, &mut body);
        }
        if status == Status::Stale {
            // Perhaps a node of a file that has gone: the next call finds it again, or not.
            call.files.iter().flatten().for_each(|pin| self.files.forget(*pin, out));
        }
        out.push(Output::Called(call.name, status == Status::Ok));
        if let Some(claim) = call.claim.take() {
            // What failed for a while is tried again.
            let reply = (status != Status::Jukebox).then(|| body.clone());
            out.push(Output::Settle(claim, reply));
        }
        self.send(body, data, out);
        self.release(now, call, out);
    }

    fn release(&mut self, now: Instant, mut call: Call, out: &mut Vec<Output>) {
        call.files.into_iter().flatten().for_each(|pin: Pin| self.files.unpin(pin, now, out));
        let (node, open) = call.procedure.held();
        out.extend(open.map(Output::Close));
        out.extend(node.map(Output::Release));
    }

    /// Sends a record: its beginning, and perhaps data behind it.
    fn send(&mut self, mut head: Vec<u8>, data: Vec<Buf>, out: &mut Vec<Output>) {
        if self.state == State::Closing {
            return;
        }
        let size: usize = data.iter().map(|piece| piece.len()).sum();
        let padding = wire::xdr::padding(size);
        rpc::seal(&mut head, size + padding);
        let mut data = data.into_iter().filter(|piece| !piece.is_empty());
        let mut queue = |piece: Buf| {
            self.unsent += piece.len();
            out.push(Output::Send(piece));
        };
        match data.next() {
            None => queue(Buf::from(head)),
            Some(mut first) if !first.is_shared() && first.headroom() >= head.len() => {
                first.prepend(&head);
                queue(first);
            }
            Some(first) => {
                queue(Buf::from(head));
                queue(first);
            }
        }
        data.for_each(&mut queue);
        if padding > 0 {
            queue(Buf::from(&[0; 3][..padding]));
        }
    }

    /// Closes the connection: cancels every call that has changed nothing, and releases all files.
    fn give_up(&mut self, reason: &'static str, out: &mut Vec<Output>) {
        if self.state == State::Closing {
            return;
        }
        self.state = State::Closing;
        (self.input, self.fragments) = (Buf::default(), Vec::new());
        self.goes_on = false;
        for (id, call) in &mut self.calls {
            if call.goes_on() || matches!(call.awaits, Await::Claim(_)) {
                continue;
            }
            out.push(Output::Cancel(CallId(u32::try_from(id).expect("calls are limited"))));
            call.give_up(out);
        }
        self.files.leave(out);
        out.push(Output::Hangup(reason));
    }
}

/// Returns the header of a reply.
fn reply_head(xid: u32, outcome: Outcome) -> Vec<u8> {
    let mut head = Vec::new();
    rpc::put_reply(xid, outcome, &mut head);
    head
}
