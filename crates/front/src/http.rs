//! An HTTP/1.1 connection.
//!
//! Requests are served one at a time, in order; pipelined ones wait in the input buffer or, beyond
//! that, in the network. The first bytes of a file are fetched together with its attributes in one
//! request to the namespace, and are sent in one buffer with the response head; the rest follows
//! in pieces, at most two in flight. A request that cannot be parsed unambiguously is refused, and
//! the connection closed.
//!
//! Web pages must not reach a server on this host through the browser of their reader: on loopback
//! only requests to a loopback host are served (DNS rebinding), and only from pages of this server
//! itself (`Origin`, `Sec-Fetch-Site`), or through a link.
//!
#![doc = include_str!("http/states.md")]

mod access;
mod answer;
mod body;
mod dav;
mod delete;
mod exchange;
mod get;
mod guard;
mod listen;
mod listing;
mod operate;
mod page;
mod put;
mod removal;
mod room;
mod run;
mod transfer;

#[cfg(test)]
mod tests;

use crate::{CallId, Export, Input, Output, webdav};
use access::Access;
use base::op::ReceiveBuf;
use base::{Automaton, Buf, Caller, Error, Instant, Name};
use exchange::{Context, Exchange};
use operate::Kept;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use tree::{Ask, Reply};
use wire::http::{HEAD_MAX, parse, refusal};

/// Timeout of a request head, from its first byte to its last.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// Idle timeout between requests.
pub const IDLE_TIME: Duration = Duration::from_secs(75);
/// Timeout for a pause of the client within a body.
pub const BODY_TIME: Duration = Duration::from_secs(30);
/// Time and number of bytes for which the client is still read after the last response: a close
/// with unread bytes is a reset, and many clients send a whole body before they read.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_MAX: usize = 64 << 20;

/// Maximum number of bytes of a file fetched with its attributes.
const FETCH_MAX: u32 = 64 << 10;
/// Headroom for the response head in front of the first bytes.
const HEADROOM: u32 = 512;

/// Call of the current request.
const CALL: CallId = CallId(0);
/// One reply outstanding, of the locks.
const DISCARDED: usize = 1;
/// Call for the cleanup of a session that ends early.
const CLEANUP: CallId = CallId(1);
/// Call for giving back a name in a session that ends early.
const RESTORE: CallId = CallId(3);
/// Call that feeds input to a program or a service, beside the one that reads its output.
const FEED: CallId = CallId(2);

/// Connection state.
#[derive(Debug)]
enum State {
    /// Waiting for a request head, until the given time.
    Head { until: Instant },
    /// Waiting for what the request in progress waits for.
    Exchange(Box<dyn Exchange>),
    /// Waiting for the client to take the last response and to close, until the given time (known
    /// once the response is sent) or for this many bytes; with the reason for the log.
    Discarding { until: Instant, left: usize, reason: &'static str },
    /// Waiting for this many replies to discard.
    Closing { outstanding: usize },
}

/// Form of the current response.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Whether there is no body in any case (`HEAD`).
    head_only: bool,
    /// Whether the client speaks HTTP/1.1.
    is_1_1: bool,
    /// Whether errors are problem details.
    wants_problem: bool,
}

/// The session automaton.
#[derive(Debug)]
pub struct Session {
    state: State,
    manner: Manner,
    /// Accounting of the current request.
    access: Access,
    export: Export,
    caller: Caller,
    /// Whether the client is connected through loopback: guarded against web pages.
    local: bool,
    /// Whether the kernel has verified the client's identity, for administrative access.
    commands: bool,
    /// Received bytes, not yet processed. Bounded by [`HEAD_MAX`] and one receive.
    input: Buf,
    /// Open operation file of the last service used.
    kept: Option<Kept>,
    /// Tokens of what the client has seen, by service.
    tokens: BTreeMap<Name, String>,
    /// Whether the input may hold another request, to be started in the session's next turn.
    goes_on: bool,
    /// Remaining requests that may be started in this turn.
    quota: usize,
    /// Maximum number of requests started in a turn.
    messages: usize,
    /// Whether no further request will be read.
    last: bool,
    /// Whether the client has closed its sending direction.
    last_byte_came: bool,
    /// Number of the session, unique within the process.
    number: u64,
    /// Number of temporary names used so far.
    temporaries: u64,
    /// The current change, registered with the locks.
    change: Option<webdav::Begun>,
    /// Bytes requested or being written by the call in flight.
    outstanding: usize,
    /// Bytes queued and not yet sent.
    unsent: usize,
    /// Bytes of a buffer that is lent out for a receive.
    lent: usize,
    allowance: usize,
    /// Maximum number of nodes and open files.
    handles_max: usize,
    /// Maximum number of bytes of a file read at once.
    piece: usize,
}

impl Session {
    /// Creates a session for an accepted connection; `local`: through loopback.
    pub fn new(export: Export, caller: Caller, local: bool) -> Session {
        let allowance = export.limits.bytes;
        let state = State::Head { until: Instant(u64::MAX) };
        Session {
            state,
            manner: Manner { head_only: false, is_1_1: true, wants_problem: false },
            access: Access::default(),
            export,
            caller,
            local,
            commands: false,
            input: Buf::default(),
            kept: None,
            tokens: BTreeMap::new(),
            goes_on: false,
            quota: 0,
            messages: usize::MAX,
            last: false,
            last_byte_came: false,
            number: 0,
            temporaries: 0,
            change: None,
            outstanding: 0,
            unsent: 0,
            lent: 0,
            allowance,
            handles_max: usize::MAX,
            piece: usize::MAX,
        }
    }

    /// Sets the number of the session, unique within the process: part of temporary names.
    pub fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// Permits administrative access: the kernel has verified the identity of the client.
    pub fn allow_admin(&mut self) {
        self.commands = true;
    }

    /// Returns the request in progress.
    fn exchange(&self) -> Option<&dyn Exchange> {
        if let State::Exchange(exchange) = &self.state { Some(&**exchange) } else { None }
    }

    /// Returns whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        let wanted = match &self.state {
            State::Head { .. } => self.unsent < self.allowance && self.input.len() < HEAD_MAX,
            State::Exchange(exchange) => exchange.is_hungry(self.input.len()),
            State::Discarding { .. } => true,
            State::Closing { .. } => false,
        };
        wanted && !self.last_byte_came
    }

    /// Returns memory to receive into: more than the default for a large body.
    pub fn receive_into(&mut self) -> ReceiveBuf {
        assert_eq!(self.lent, 0, "one receive at a time");
        let into = self.exchange().map_or(ReceiveBuf::Default, Exchange::receive_into);
        self.lent = into.held();
        into
    }

    /// Returns whether nothing is outstanding, so that the session can be dropped.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closing { outstanding: 0 })
    }

    /// Sets the maximum number of unsent bytes.
    pub fn set_allowance(&mut self, bytes: usize) {
        self.allowance = bytes.max(1);
    }

    /// Returns the maximum number of nodes and open files of the current request and last service.
    pub fn handles(&self) -> usize {
        let of_request = self.exchange().map_or(0, Exchange::handles);
        of_request + if self.kept.is_some() { 2 } else { 0 }
    }

    /// Returns the bytes held: requested, gathered, received of a body, lent to receive, or unsent.
    pub fn bytes(&self) -> usize {
        let is_upload = self.exchange().is_some_and(Exchange::is_upload);
        self.own_bytes() + if is_upload { self.input.capacity() } else { 0 }
    }

    fn own_bytes(&self) -> usize {
        let gathered = self.exchange().map_or(0, Exchange::gathered);
        self.outstanding + gathered + self.lent + self.unsent
    }

    /// Returns the bytes queued and not yet sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns the memory held for the client in any state, bytes, including unprocessed input and
    /// state of services. For accounting.
    pub fn held_bytes(&self) -> usize {
        let reported =
            self.tokens.iter().map(|(name, token)| name.as_bytes().len() + token.capacity());
        let state = size_of::<Session>() + self.exchange().map_or(0, size_of_val);
        state + self.own_bytes() + self.input.capacity() + reported.sum::<usize>()
    }

    /// Returns the state as one word, for `/.upcall/`.
    pub fn state_name(&self) -> &'static str {
        match &self.state {
            State::Head { .. } => "idle",
            State::Exchange(exchange) => exchange.name(),
            State::Discarding { .. } => "discarding",
            State::Closing { .. } => "closing",
        }
    }

    /// Returns the state of the call in flight, for `/.upcall/`.
    pub fn awaits(&self) -> impl Iterator<Item = &'static str> + '_ {
        let idle = matches!(
            self.state,
            State::Head { .. } | State::Discarding { .. } | State::Closing { outstanding: 0 }
        );
        (!idle).then(|| self.state_name()).into_iter()
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Closing { outstanding: 0 });
        if let Input::Received(_) | Input::Tick = input {
            self.quota = self.messages;
        }
        let mut cx = Context { session: self, now, out };
        let mut state = cx.next_state(state, input);
        // Requests are served one by one, however many are buffered.
        while let (true, State::Head { until }) =
            (cx.session.goes_on && cx.session.quota > 0, &state)
        {
            cx.session.goes_on = false;
            state = cx.next_request(*until);
        }
        if let State::Closing { .. } = state {
            cx.account();
            let kept = cx.session.kept.take();
            cx.close(kept.map(|kept| kept.open));
        }
        self.goes_on &= matches!(state, State::Head { .. }) && !self.input.is_empty();
        self.state = state;
    }

    fn check(&self) {
        assert!(!self.goes_on || self.quota == 0, "requests are begun until the turn ends");
        match &self.state {
            State::Head { .. } => assert!(!self.last, "another request may come"),
            State::Exchange(exchange) => exchange.check(self.outstanding),
            State::Discarding { left, .. } => {
                assert!(*left <= DISCARD_MAX && self.last, "no request follows");
            }
            State::Closing { outstanding } => {
                assert!(*outstanding <= 3, "as many as there are calls");
                assert!(self.kept.is_none(), "kept blocks are returned");
                assert!(self.input.is_empty(), "nobody looks at what came");
            }
        }
        if self.awaits().next().is_none() {
            assert_eq!(self.outstanding, 0, "nothing is requested: {:?}", self.state);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Head { .. } if self.goes_on => Some(Instant(0)),
            State::Head { until } | State::Discarding { until, .. } => {
                Some(*until).filter(|until| until.0 < u64::MAX)
            }
            State::Exchange(exchange) => exchange.deadline(),
            State::Closing { .. } => None,
        }
    }
}

/// One function for each input, from every state to the next.
impl Context<'_> {
    fn next_state(&mut self, state: State, input: Input) -> State {
        match input {
            Input::Received(bytes) => self.received(state, bytes),
            Input::Answered(call, reply) => self.answered(call, state, reply),
            Input::Sent(bytes) => {
                assert!(bytes <= self.session.unsent, "more bytes were sent than queued");
                self.session.unsent -= bytes;
                self.sent(state)
            }
            Input::Tick => self.ticked(state),
            Input::Ended => {
                self.session.last_byte_came = true;
                if self.has_more(&state) { state } else { self.finish(state) }
            }
            Input::Drain => self.finish(state),
            Input::Lost => self.lose(state),
            Input::Locks(reply) => self.locks_answered(state, reply),
            Input::Claimed(..) => unreachable!("claims are of NFS calls"),
        }
    }

    fn received(&mut self, state: State, bytes: Buf) -> State {
        self.session.lent = 0;
        match state {
            State::Head { until } => {
                self.gather(bytes);
                self.session.goes_on = true;
                State::Head { until }
            }
            State::Exchange(exchange) => {
                self.gather(bytes);
                exchange.received(self)
            }
            State::Discarding { until, left, reason } if bytes.len() < left => {
                State::Discarding { until, left: left - bytes.len(), reason }
            }
            State::Discarding { reason, .. } => self.hang_up(reason),
            // Received before reading was paused.
            state @ State::Closing { .. } => state,
        }
    }

    fn answered(&mut self, call: CallId, state: State, reply: Result<Reply, Error>) -> State {
        if call == CALL {
            self.session.outstanding = 0;
        }
        match state {
            State::Exchange(exchange) => exchange.answered(self, call, reply),
            State::Closing { outstanding } => {
                assert!(outstanding > 0, "only what was requested is answered");
                let more = self.tidy(reply);
                State::Closing { outstanding: outstanding - 1 + more }
            }
            // No call is in flight in these states.
            state @ (State::Head { .. } | State::Discarding { .. }) => {
                unreachable!("{reply:?} in {state:?}")
            }
        }
    }

    fn locks_answered(&mut self, state: State, reply: webdav::Reply) -> State {
        match state {
            State::Exchange(exchange) => exchange.locks_answered(self, reply),
            State::Closing { outstanding } => {
                assert!(outstanding > 0, "only what was requested is answered");
                let more = self.discard_locks(reply);
                State::Closing { outstanding: outstanding - 1 + more }
            }
            // Nothing is outstanding in these states.
            state @ (State::Head { .. } | State::Discarding { .. }) => {
                unreachable!("{reply:?} in {state:?}")
            }
        }
    }

    fn sent(&mut self, state: State) -> State {
        match state {
            State::Head { until } => {
                self.session.goes_on = !self.session.input.is_empty();
                State::Head { until }
            }
            State::Exchange(exchange) => exchange.sent(self),
            State::Discarding { until, left, reason } if self.session.unsent == 0 => {
                State::Discarding { until: until.min(self.now + DISCARD_TIME), left, reason }
            }
            state @ (State::Discarding { .. } | State::Closing { .. }) => state,
        }
    }

    fn ticked(&mut self, state: State) -> State {
        match state {
            State::Head { until } if until <= self.now && !self.session.goes_on => self.time_out(),
            State::Head { until } => {
                self.session.goes_on = true;
                State::Head { until }
            }
            State::Exchange(exchange) => exchange.ticked(self),
            State::Discarding { until, reason, .. } if until <= self.now => self.hang_up(reason),
            state @ (State::Discarding { .. } | State::Closing { .. }) => state,
        }
    }

    /// Returns whether pipelined requests remain at the end of the stream.
    fn has_more(&self, state: &State) -> bool {
        let session = &self.session;
        let is_next = match state {
            State::Head { .. } => session.goes_on || session.unsent >= session.allowance,
            State::Exchange(exchange) => !exchange.takes_input(),
            State::Discarding { .. } | State::Closing { .. } => false,
        };
        is_next && !session.last && !session.input.is_empty()
    }

    /// Handles the end of the stream, or the shutdown: completes the current request.
    fn finish(&mut self, state: State) -> State {
        self.session.last = true;
        match state {
            State::Head { .. } => self.hang_up("idle"),
            State::Exchange(exchange) => exchange.finish(self),
            State::Discarding { reason, .. } => self.hang_up(reason),
            state @ State::Closing { .. } => state,
        }
    }

    /// Handles the loss of the connection: releases the resources of the current request.
    fn lose(&mut self, state: State) -> State {
        let outstanding = match state {
            State::Exchange(exchange) => exchange.abort(self),
            State::Closing { outstanding } => {
                self.cancel(CALL, outstanding > 0);
                outstanding
            }
            State::Head { .. } | State::Discarding { .. } => 0,
        };
        assert!(outstanding <= 3, "as many as there are calls");
        self.hang_up_after(outstanding, "the client left")
    }
}

impl Context<'_> {
    fn gather(&mut self, bytes: Buf) {
        if self.session.input.is_empty() {
            self.session.input = bytes;
        } else {
            self.session.input.extend(&bytes);
        }
    }

    /// Takes the next request off the input, if it is complete.
    fn next_request(&mut self, until: Instant) -> State {
        let session = &mut *self.session;
        if session.unsent >= session.allowance {
            return State::Head { until };
        }
        while session.input.starts_with(b"\r\n") {
            session.input.consume(2);
        }
        let head_only = session.input.starts_with(b"HEAD ");
        session.manner = Manner { head_only, is_1_1: true, wants_problem: false };
        match parse(&session.input) {
            Ok(None) if session.last_byte_came => self.hang_up("the client left"),
            Ok(None) => self.await_head(until),
            Ok(Some((request, length))) => {
                session.access.begin(request.method);
                self.log();
                self.session.input.consume(length);
                self.session.spend(length);
                self.begin(request)
            }
            Err(refusal) => self.refuse_head(refusal),
        }
    }

    /// Waits for the rest of a head, timed from its first byte; or for a first byte.
    fn await_head(&mut self, until: Instant) -> State {
        let begun = !self.session.input.is_empty();
        self.session.input = Buf::from(&*self.session.input);
        let limit = self.now + if begun { HEAD_TIME } else { IDLE_TIME };
        State::Head { until: limit.min(if begun { until } else { limit }) }
    }

    fn time_out(&mut self) -> State {
        if self.session.input.is_empty() {
            return self.hang_up("idle for too long");
        }
        self.refuse_head(refusal(408, "the request head took too long"))
    }

    /// Discards a reply of the locks after the client has left; returns the number of replies that
    /// are outstanding because of it.
    fn discard_locks(&mut self, reply: webdav::Reply) -> usize {
        match reply {
            webdav::Reply::Begun(begun) => {
                self.ask_locks(webdav::Request::End(begun.number));
                0
            }
            webdav::Reply::Granted(lock) => {
                let webdav::Lock { path, token, .. } = *lock;
                self.ask_locks(webdav::Request::Unlock(path, token));
                DISCARDED
            }
            webdav::Reply::Refused(..)
            | webdav::Reply::Busy
            | webdav::Reply::Locked(_)
            | webdav::Reply::Missing
            | webdav::Reply::Full
            | webdav::Reply::Done
            | webdav::Reply::Found(_) => 0,
        }
    }

    /// Discards a reply after the client has left; returns the number of replies still outstanding.
    /// A created file is an upload's temporary file, to be removed.
    fn tidy(&mut self, reply: Result<Reply, Error>) -> usize {
        if let Ok(Reply::Created(node, open, stat)) = reply {
            let is_named = stat.links > 0;
            self.close(open);
            if is_named {
                self.ask_as(CLEANUP, Ask::RemoveNode { node });
            }
            self.release(node);
            return usize::from(is_named);
        }
        crate::discard(reply, self.out);
        0
    }
}
