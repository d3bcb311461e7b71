//! An HTTP/1.1 connection.
//!
//! Requests are served one at a time, in order; pipelined ones wait in the input buffer or, beyond
//! that, in the network. The first bytes of a file are fetched together with its attributes in one
//! request to the name space, and are sent in one buffer with the response head; the rest follows
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
mod delete;
mod get;
mod guard;
mod listen;
mod listing;
mod operate;
mod put;
mod room;
mod run;
mod transfer;

#[cfg(test)]
mod tests;

use crate::{CallId, Export, Input, Output};
use access::Access;
use base::op::ReceiveBuf;
use base::{Automaton, Buf, Caller, Error, Instant, Name, Time};
use delete::Delete;
use listen::Listen;
use listing::Listing;
use operate::{Kept, Operate, service_of};
use put::Put;
use run::{Run, names_storelet};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use transfer::Transfer;
use tree::{Ask, OpenId, Reply, Request as TreeRequest};
use wire::http::{Body, HEAD_MAX, Method, Refusal, Request, parse, refusal};

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
/// Call for the cleanup of a session that ends early.
const CLEANUP: CallId = CallId(1);
/// Call that feeds input to a program or a service, beside the one that reads its output.
const FEED: CallId = CallId(2);

/// Connection state.
#[derive(Debug)]
enum State {
    /// Waiting for a request head, until the given time.
    Head { until: Instant },
    /// Waiting for the requested file; whether with its first bytes; the open directory, if that
    /// file is its index page.
    Fetching { request: Box<Request>, reads: bool, directory: Option<OpenId> },
    /// Waiting for the next piece of a file, or for the client to take the last one.
    Sending(Transfer),
    /// Waiting for directory entries, or for the client to take the last ones.
    Listing(Listing),
    /// Waiting for the next step of a `PUT`.
    Putting(Put),
    /// Waiting for the next step of a `DELETE`.
    Deleting(Delete),
    /// Waiting for output of a program, or for the program to take input.
    Running(Box<Run>),
    /// Waiting for the next step of an operation on a service.
    Operating(Box<Operate>),
    /// Waiting for events of a service.
    Listening(Listen),
    /// Waiting for the client to take the last response and to close, until the given time (known
    /// once the response is sent) or for this many bytes; with the reason for the log.
    Discarding { until: Instant, left: usize, reason: &'static str },
    /// Waiting for this many replies to discard.
    Closing { asked: usize },
}

/// Form of the current response.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Whether there is no body in any case (`HEAD`).
    head_only: bool,
    /// Whether the client speaks HTTP/1.1.
    is_1_1: bool,
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
    /// Bytes requested or being written by the call in flight.
    asked: usize,
    /// Bytes queued and not yet sent.
    unsent: usize,
    /// Bytes of a buffer that is lent out for a receive.
    lent: usize,
    allowance: usize,
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
            manner: Manner { head_only: false, is_1_1: true },
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
            asked: 0,
            unsent: 0,
            lent: 0,
            allowance,
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

    /// Returns whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        if self.last_byte_came {
            return false;
        }
        match &self.state {
            State::Head { .. } => self.unsent < self.allowance && self.input.len() < HEAD_MAX,
            State::Putting(put) => put.is_hungry(self.input.len()),
            State::Running(run) => run.is_hungry(self.input.len()),
            State::Operating(it) => it.is_hungry(),
            // To detect that the client has disconnected.
            State::Listening(_) => self.input.is_empty(),
            State::Discarding { .. } => true,
            State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Deleting(_)
            | State::Closing { .. } => false,
        }
    }

    /// Returns memory to receive into: more than the default for a large body.
    pub fn receive_into(&mut self) -> ReceiveBuf {
        assert_eq!(self.lent, 0, "one receive at a time");
        match &self.state {
            State::Putting(put) => {
                let into = put.receive_into();
                self.lent = into.held();
                into
            }
            State::Head { .. }
            | State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Operating(_)
            | State::Listening(_)
            | State::Discarding { .. }
            | State::Closing { .. } => ReceiveBuf::Default,
        }
    }

    /// Returns whether nothing is outstanding, so that the session can be dropped.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closing { asked: 0 })
    }

    /// Sets the maximum number of unsent bytes.
    pub fn set_allowance(&mut self, bytes: usize) {
        self.allowance = bytes.max(1);
    }

    /// Returns the maximum number of nodes and open files of the current request and last service.
    pub fn handles(&self) -> usize {
        let of_request = match &self.state {
            State::Head { .. } | State::Discarding { .. } | State::Closing { .. } => 0,
            State::Sending(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Operating(_)
            | State::Listening(_) => 2,
            // With the directory of an index page, the target of a link, or the directory of an
            // upload, also opened.
            State::Fetching { .. } | State::Listing(_) | State::Putting(_) => 4,
        };
        of_request + if self.kept.is_some() { 2 } else { 0 }
    }

    /// Returns the bytes held: requested, gathered, received of a body, lent to receive, or unsent.
    pub fn bytes(&self) -> usize {
        let gathered = match &self.state {
            State::Listing(listing) => listing.gathered(),
            State::Putting(_) => self.input.capacity(),
            State::Operating(it) => it.gathered(),
            State::Running(run) => run.gathered(),
            State::Listening(it) => it.gathered(),
            State::Head { .. }
            | State::Fetching { .. }
            | State::Sending(_)
            | State::Deleting(_)
            | State::Discarding { .. }
            | State::Closing { .. } => 0,
        };
        self.asked + gathered + self.lent + self.unsent
    }

    /// Returns the bytes queued and not yet sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns the memory held for the client in any state, bytes, including unprocessed input and
    /// state of services. For accounting.
    pub fn held_bytes(&self) -> usize {
        let input = match &self.state {
            State::Putting(_) => 0,
            State::Head { .. }
            | State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Operating(_)
            | State::Listening(_)
            | State::Discarding { .. }
            | State::Closing { .. } => self.input.capacity(),
        };
        let told = self.tokens.iter().map(|(name, token)| name.as_bytes().len() + token.capacity());
        size_of::<Session>() + self.bytes() + input + told.sum::<usize>()
    }

    /// Returns the state as one word, for `/.upcall/`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Head { .. } => "idle",
            State::Fetching { .. } => "fetching",
            State::Sending(_) => "sending",
            State::Listing(_) => "listing",
            State::Putting(_) => "putting",
            State::Deleting(_) => "deleting",
            State::Running(_) => "running",
            State::Operating(_) => "operating",
            State::Listening(_) => "listening",
            State::Discarding { .. } => "discarding",
            State::Closing { .. } => "closing",
        }
    }

    /// Returns the state of the call in flight, for `/.upcall/`.
    pub fn awaits(&self) -> impl Iterator<Item = &'static str> + '_ {
        let idle = matches!(
            self.state,
            State::Head { .. } | State::Discarding { .. } | State::Closing { asked: 0 }
        );
        (!idle).then(|| self.state_name()).into_iter()
    }
}

impl Automaton for Session {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Closing { asked: 0 });
        if let Input::Received(_) | Input::Tick = input {
            self.quota = self.messages;
        }
        let mut state = match input {
            Input::Received(bytes) => {
                self.lent = 0;
                self.received(now, state, bytes, out)
            }
            Input::Answered(call, reply) => self.answered(now, call, state, reply, out),
            Input::Sent(bytes) => {
                assert!(bytes <= self.unsent, "no more is sent than was said");
                self.unsent -= bytes;
                self.sent(now, state, out)
            }
            Input::Tick => self.ticked(now, state, out),
            Input::Ended => {
                self.last_byte_came = true;
                if self.has_more(&state) { state } else { self.finish(now, state, out) }
            }
            Input::Drain => self.finish(now, state, out),
            Input::Lost => self.lose(state, out),
        };
        // Requests are served one by one, however many are buffered.
        while let (true, State::Head { until }) = (self.goes_on && self.quota > 0, &state) {
            self.goes_on = false;
            state = self.next_request(now, *until, out);
        }
        self.goes_on &= matches!(state, State::Head { .. }) && !self.input.is_empty();
        self.state = state;
        if let State::Closing { .. } = self.state {
            self.account(now, out);
            self.kept.take().into_iter().for_each(|kept| kept.close(out));
        }
    }

    fn check(&self) {
        assert!(!self.goes_on || self.quota == 0, "requests are begun until the turn ends");
        match &self.state {
            State::Head { .. } | State::Discarding { .. } | State::Closing { asked: 0 } => {
                assert_eq!(self.asked, 0, "nothing is asked for: {:?}", self.state);
            }
            State::Closing { asked } => assert!(*asked <= 3, "as many as there are calls"),
            State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Putting(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Operating(_)
            | State::Listening(_) => {}
        }
        let is_closing = matches!(self.state, State::Closing { .. });
        assert!(!is_closing || self.kept.is_none(), "what was kept is given back");
        match &self.state {
            State::Putting(put) => {
                assert_eq!(self.asked, put.writing(), "what is written is counted")
            }
            State::Running(run) => assert_eq!(self.asked, run.reading(), "what is read is counted"),
            State::Discarding { left, .. } => {
                assert!(*left <= DISCARD_MAX && self.last, "no request follows");
            }
            State::Head { .. } => assert!(!self.last, "another request may come"),
            State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Deleting(_)
            | State::Operating(_)
            | State::Listening(_)
            | State::Closing { .. } => {}
        }
        assert!(!is_closing || self.input.is_empty(), "nobody looks at what came");
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Head { .. } if self.goes_on => Some(Instant(0)),
            State::Head { until } if until.0 < u64::MAX => Some(*until),
            State::Discarding { until, .. } if until.0 < u64::MAX => Some(*until),
            State::Putting(put) => put.deadline(),
            State::Operating(it) => it.deadline(),
            State::Listing(listing) => listing.deadline(),
            State::Head { .. }
            | State::Fetching { .. }
            | State::Sending(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Listening(_)
            | State::Discarding { .. }
            | State::Closing { .. } => None,
        }
    }
}

/// One function for each input, from every state to the next.
impl Session {
    fn received(&mut self, now: Instant, state: State, bytes: Buf, out: &mut Vec<Output>) -> State {
        match state {
            State::Head { until } => {
                self.gather(bytes);
                self.goes_on = true;
                State::Head { until }
            }
            State::Putting(put) => {
                self.gather(bytes);
                self.put_on(now, put, out)
            }
            State::Running(run) => {
                self.gather(bytes);
                self.run_on(run, out)
            }
            State::Operating(it) => {
                self.gather(bytes);
                self.operate_on(now, it, out)
            }
            State::Discarding { until, left, reason } if bytes.len() < left => {
                State::Discarding { until, left: left - bytes.len(), reason }
            }
            State::Discarding { reason, .. } => self.hang_up(reason, out),
            // Received before reading was paused.
            state @ (State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Listening(_)
            | State::Deleting(_)) => {
                self.gather(bytes);
                state
            }
            state @ State::Closing { .. } => state,
        }
    }

    fn answered(
        &mut self,
        now: Instant,
        call: CallId,
        state: State,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        if call != FEED && !matches!(state, State::Operating(_)) {
            self.asked = 0;
        }
        match state {
            State::Running(run) => self.run_answered(now, call, run, reply, out),
            State::Operating(it) => self.operate_answered(now, call, it, reply, out),
            State::Listening(it) => self.listen_answered(now, it, reply, out),
            State::Fetching { request, directory: Some(directory), .. } => {
                self.index_fetched(now, *request, directory, reply, out)
            }
            State::Fetching { request, reads, directory: None } => {
                self.fetched(now, *request, reads, reply, out)
            }
            State::Sending(transfer) => self.piece(now, transfer, reply, out),
            State::Listing(listing) => self.listed(now, listing, reply, out),
            State::Putting(put) => self.put_answered(now, put, reply, out),
            State::Deleting(delete) => self.delete_answered(now, delete, reply, out),
            State::Closing { asked } => {
                assert!(asked > 0, "only what was asked for is answered");
                let more = self.tidy(reply, out);
                State::Closing { asked: asked - 1 + more }
            }
            // No call is in flight in these states.
            state @ (State::Head { .. } | State::Discarding { .. }) => {
                unreachable!("{reply:?} in {state:?}")
            }
        }
    }

    fn sent(&mut self, now: Instant, state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Head { until } => {
                self.goes_on = !self.input.is_empty();
                State::Head { until }
            }
            State::Sending(transfer) => self.go_on(now, transfer, out),
            State::Listing(listing) => self.list_on(now, listing, out),
            State::Running(run) => self.run_on(run, out),
            State::Listening(it) => self.listen_on(it, out),
            State::Operating(it) => self.operate_read(it, out),
            State::Discarding { until, left, reason } if self.unsent == 0 => {
                State::Discarding { until: until.min(now + DISCARD_TIME), left, reason }
            }
            state @ (State::Fetching { .. }
            | State::Putting(_)
            | State::Deleting(_)
            | State::Discarding { .. }
            | State::Closing { .. }) => state,
        }
    }

    fn ticked(&mut self, now: Instant, state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Head { until } if until <= now && !self.goes_on => self.time_out(now, out),
            State::Head { until } => {
                self.goes_on = true;
                State::Head { until }
            }
            State::Putting(put) => self.put_late(now, put, out),
            State::Operating(it) => self.operate_late(now, it, out),
            State::Listing(listing) => self.list_late(now, listing, out),
            State::Discarding { until, reason, .. } if until <= now => self.hang_up(reason, out),
            state @ (State::Fetching { .. }
            | State::Sending(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Listening(_)
            | State::Discarding { .. }
            | State::Closing { .. }) => state,
        }
    }

    /// Returns whether pipelined requests remain at the end of the stream.
    fn has_more(&self, state: &State) -> bool {
        match state {
            _any if self.last || self.input.is_empty() => false,
            State::Head { .. } => self.goes_on || self.unsent >= self.allowance,
            State::Fetching { .. } | State::Sending(_) | State::Listing(_) | State::Deleting(_) => {
                true
            }
            State::Putting(_)
            | State::Running(_)
            | State::Operating(_)
            | State::Listening(_)
            | State::Discarding { .. }
            | State::Closing { .. } => false,
        }
    }

    /// Handles the end of the stream, or the shutdown: completes the current request.
    fn finish(&mut self, now: Instant, state: State, out: &mut Vec<Output>) -> State {
        self.last = true;
        match state {
            State::Head { .. } => self.hang_up("idle", out),
            State::Discarding { reason, .. } => self.hang_up(reason, out),
            State::Putting(put) if self.last_byte_came => self.put_torn(now, put, out),
            State::Running(run) => self.run_on(run, out),
            State::Operating(it) => self.operate_on(now, it, out),
            State::Listening(it) => self.listen_end(it, out),
            state @ (State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Putting(_)
            | State::Deleting(_)
            | State::Closing { .. }) => state,
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

    /// Takes the next request off the input, if it is complete.
    fn next_request(&mut self, now: Instant, until: Instant, out: &mut Vec<Output>) -> State {
        if self.unsent >= self.allowance {
            return State::Head { until };
        }
        while self.input.starts_with(b"\r\n") {
            self.input.consume(2);
        }
        let head_only = self.input.starts_with(b"HEAD ");
        self.manner = Manner { head_only, is_1_1: true };
        match parse(&self.input) {
            Ok(None) if self.last_byte_came => self.hang_up("the client left", out),
            Ok(None) => self.await_head(now, until),
            Ok(Some((request, length))) => {
                self.access.begin(request.method);
                self.log(now);
                self.input.consume(length);
                self.spend(length);
                self.begin(now, request, out)
            }
            Err(refusal) => self.refuse_head(now, refusal, out),
        }
    }

    /// Waits for the rest of a head, timed from its first byte; or for a first byte.
    fn await_head(&mut self, now: Instant, until: Instant) -> State {
        let begun = !self.input.is_empty();
        self.input = Buf::from(&*self.input);
        let limit = now + if begun { HEAD_TIME } else { IDLE_TIME };
        State::Head { until: limit.min(if begun { until } else { limit }) }
    }

    fn begin(&mut self, now: Instant, request: Request, out: &mut Vec<Output>) -> State {
        assert!(!self.last, "no request is begun behind the last");
        self.last |= !request.keep_alive;
        self.manner.is_1_1 = request.is_1_1;
        if let Err(refusal) = guard::check(&request, self.local, &self.export.web.hosts) {
            return self.refuse(now, refusal, out);
        }
        if self.last_byte_came && self.needs_client(&request) {
            return self.hang_up("the client left", out);
        }
        match request.method {
            Method::Get | Method::Head | Method::Delete | Method::Options
                if request.body != Body::None =>
            {
                self.refuse(now, refusal(400, "this method takes no body here"), out)
            }
            Method::Get | Method::Head if names_storelet(&request) => {
                self.run_named(now, &request, out)
            }
            Method::Get if self.is_about(&request, listen::FILE).is_some() => {
                self.listen(&request, out)
            }
            Method::Get | Method::Head => self.fetch(request, out),
            Method::Options => {
                self.send_head(now, &answer::options(self.export.web.write), out);
                self.done(now, out)
            }
            Method::Put | Method::Delete if !self.export.web.write => {
                let reason = "this server does not write over HTTP: start it with --http-write";
                self.refuse(now, refusal(405, reason), out)
            }
            // RFC 9110 §14.5: a partial PUT must not be taken for a complete one.
            Method::Put if request.is_partial => {
                self.refuse(now, refusal(400, "put the whole file: parts are not joined here"), out)
            }
            Method::Put => self.put(now, request, out),
            Method::Delete => self.delete(request, out),
            Method::Post => match self.is_about(&request, operate::FILE).cloned() {
                Some(service) => self.operate(now, &request, service, out),
                None => self.run(now, request, out),
            },
        }
    }

    /// Returns whether the end of the stream aborts the response to a request.
    fn needs_client(&self, request: &Request) -> bool {
        let is_events = self.is_about(request, listen::FILE).is_some();
        is_events || names_storelet(request) || request.method == Method::Post
    }

    /// Returns the service whose file of this name the request is for.
    fn is_about<'a>(&self, request: &'a Request, file: &[u8]) -> Option<&'a Name> {
        service_of(request, file, &self.export.services)
    }

    /// Ends a response: continues with the next request, or closes.
    fn done(&mut self, now: Instant, out: &mut Vec<Output>) -> State {
        self.account(now, out);
        let was_last = self.last_byte_came && self.input.is_empty();
        if self.last || was_last {
            return self.part(now, "done", out);
        }
        self.goes_on = true;
        State::Head { until: now + IDLE_TIME }
    }

    /// Responds with an error that ends the connection.
    fn refuse(&mut self, now: Instant, refusal: Refusal, out: &mut Vec<Output>) -> State {
        self.last = true;
        self.send_error(now, refusal, out);
        self.account(now, out);
        self.part(now, "refused", out)
    }

    /// After the last response: closes the sending direction, and waits for the client.
    fn part(&mut self, now: Instant, reason: &'static str, out: &mut Vec<Output>) -> State {
        if self.last_byte_came {
            return self.hang_up(reason, out);
        }
        self.input = Buf::default();
        out.push(Output::Finish);
        let all_sent = self.unsent == 0;
        let until = if all_sent { now + DISCARD_TIME } else { Instant(u64::MAX) };
        State::Discarding { until, left: DISCARD_MAX, reason }
    }

    /// Responds with an error; the connection continues.
    fn fail(&mut self, now: Instant, refusal: Refusal, out: &mut Vec<Output>) -> State {
        self.send_error(now, refusal, out);
        self.done(now, out)
    }

    fn time_out(&mut self, now: Instant, out: &mut Vec<Output>) -> State {
        if self.input.is_empty() {
            return self.hang_up("idle for too long", out);
        }
        self.refuse_head(now, refusal(408, "the request head took too long"), out)
    }

    fn hang_up(&mut self, reason: &'static str, out: &mut Vec<Output>) -> State {
        self.input = Buf::default();
        out.push(Output::Hangup(reason));
        State::Closing { asked: 0 }
    }

    /// Handles the loss of the connection: releases the resources of the current request.
    fn lose(&mut self, state: State, out: &mut Vec<Output>) -> State {
        self.input = Buf::default();
        // A program has two calls, and cancels those in flight. The removal of a temporary file
        // completes.
        let is_removing = matches!(&state, State::Putting(put) if put.is_removing());
        let cancels = !is_removing && !matches!(state, State::Running(_) | State::Operating(_));
        let asked = match state {
            State::Fetching { directory, .. } => {
                out.extend(directory.map(Output::Close));
                1
            }
            State::Sending(transfer) => usize::from(transfer.forget(out)),
            State::Listing(listing) => usize::from(listing.forget(out)),
            State::Putting(put) => put.forget(&self.caller, out),
            State::Deleting(delete) => delete.forget(out),
            State::Running(run) => run.forget(out),
            State::Operating(it) => it.forget(out),
            State::Listening(it) => it.forget(out),
            State::Closing { asked } => asked,
            State::Head { .. } | State::Discarding { .. } => 0,
        };
        self.asked = 0;
        assert!(asked <= 3, "as many as there are calls");
        if cancels && asked > 0 {
            out.push(Output::Cancel(CALL));
        }
        out.push(Output::Hangup("the client left"));
        State::Closing { asked }
    }

    /// Discards a reply after the client has left; returns the number of replies still outstanding.
    /// A created file is an upload's temporary file, to be removed.
    fn tidy(&mut self, reply: Result<Reply, Error>, out: &mut Vec<Output>) -> usize {
        if let Ok(Reply::Created(node, open, stat)) = reply {
            if stat.links == 0 {
                out.extend([Output::Close(open), Output::Release(node)]);
                return 0;
            }
            let request =
                TreeRequest { caller: self.caller.clone(), ask: Ask::RemoveNode { node } };
            out.extend([Output::Close(open), Output::Ask(CLEANUP, request), Output::Release(node)]);
            return 1;
        }
        crate::discard(reply, out);
        0
    }

    fn ask(&mut self, ask: Ask, out: &mut Vec<Output>) {
        self.ask_as(CALL, ask, out);
    }

    fn ask_as(&mut self, call: CallId, ask: Ask, out: &mut Vec<Output>) {
        out.push(Output::Ask(call, TreeRequest { caller: self.caller.clone(), ask }));
    }

    fn say(&mut self, bytes: Buf, out: &mut Vec<Output>) {
        assert!(!bytes.is_empty(), "who says something has words");
        self.unsent += bytes.len();
        self.access.add_sent(bytes.len());
        out.push(Output::Send(bytes));
    }

    fn wall(&self, now: Instant) -> Time {
        Time::from_secs(self.export.wall.secs + (now.0 / 1_000_000_000).cast_signed())
    }
}
