//! An HTTP/1.1 connection.
//!
//! One request at a time, in the order they came; what the client sends ahead waits in its
//! buffer or, beyond that, in the network. A file's first bytes come with its attributes in one
//! request to the name space, and leave in one buffer with the response's head; the rest follows
//! in pieces, at most two under way. A request that cannot be understood without doubt is
//! refused and the connection closed.
//!
//! Web pages must not reach a server on this host by way of their reader's browser: on loopback
//! only requests to a loopback host are served (DNS rebinding), and only from pages of this
//! server itself (`Origin`, `Sec-Fetch-Site`), or by way of a link.
//!
#![doc = include_str!("http/states.md")]

mod access;
mod answer;
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

/// How long a request head may take from its first byte to its last.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a connection may be idle between requests.
pub const IDLE_TIME: Duration = Duration::from_secs(75);
/// How long the client may pause within a body.
pub const BODY_TIME: Duration = Duration::from_secs(30);
/// How long, once the last answer is sent, and for how many bytes the client is still listened to:
/// a connection that is closed with bytes unread is reset, and the end of the answer may be lost.
const DISCARD_TIME: Duration = Duration::from_secs(2);
const DISCARD_MAX: usize = 1 << 20;

/// How much of a file is fetched with its attributes, bytes.
const FETCH_MAX: u32 = 64 << 10;
/// Room for a response's head in front of the first bytes.
const HEADROOM: u32 = 512;

/// The call of the request under way.
const CALL: CallId = CallId(0);
/// The call by which a session that ends early tidies up behind itself.
const CLEANUP: CallId = CallId(1);
/// The call by which a program or a service is given its input, beside the one that listens to it.
const FEED: CallId = CallId(2);

/// What the connection waits for.
#[derive(Debug)]
enum State {
    /// For a request head, until the given time.
    Head { until: Instant },
    /// For the file that is asked for; whether its first bytes are; the open directory, if that
    /// file is its index page.
    Fetching { request: Box<Request>, reads: bool, directory: Option<OpenId> },
    /// For the next piece of a file, or for the client to take the last.
    Sending(Transfer),
    /// For the next entries of a directory, or for the client to take the last.
    Listing(Listing),
    /// For what a `PUT` needs next.
    Putting(Put),
    /// For what a `DELETE` needs next.
    Deleting(Delete),
    /// For a program to say or to take something.
    Running(Box<Run>),
    /// For what asking a service takes.
    Operating(Box<Operate>),
    /// For something to become final in a service.
    Listening(Listen),
    /// For the client to take the last answer and to go away, until the given time (known when
    /// the answer is sent) or so many bytes; then for the log: why.
    Discarding { until: Instant, left: usize, reason: &'static str },
    /// For so many answers that nobody wants any more.
    Closing { asked: usize },
}

/// How the request under way is to be answered.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Without a body, whatever happens (`HEAD`).
    head_only: bool,
    /// To a client that speaks HTTP/1.1.
    is_1_1: bool,
}

/// The session automaton.
#[derive(Debug)]
pub struct Session {
    state: State,
    manner: Manner,
    /// The account of the request under way.
    access: Access,
    export: Export,
    caller: Caller,
    /// Reached by way of loopback: guarded against web pages.
    local: bool,
    /// The kernel says who the client is, who may be let command the server then.
    commands: bool,
    /// What has been received and not yet taken. Bounded by [`HEAD_MAX`] and one receive.
    input: Buf,
    /// The service that was asked last.
    kept: Option<Kept>,
    /// What the client has seen of each service.
    tokens: BTreeMap<Name, String>,
    /// Whether the input may hold another request, to be begun in the session's next turn.
    goes_on: bool,
    /// Requests that may be begun before the node gives the session its next turn.
    quota: usize,
    /// Requests that may be begun in a turn.
    messages: usize,
    /// No further request is going to be read.
    last: bool,
    /// The client has said that it will send nothing more.
    last_byte_came: bool,
    /// The session's own number among those of the process.
    number: u64,
    /// Temporary names given so far.
    temporaries: u64,
    /// Bytes asked for, or given to be written, by the call under way.
    asked: usize,
    /// Bytes said and not yet sent.
    unsent: usize,
    /// Bytes of a buffer that is lent out to be received into.
    lent: usize,
    allowance: usize,
    /// Bytes of a file that are read at once at most.
    piece: usize,
}

impl Session {
    /// A connection just accepted; `local`: by way of loopback.
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

    /// Sets the session's own number among those of the process: part of temporary names.
    pub fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// The kernel says who the client is: it may command the server, if that user may.
    pub fn let_command(&mut self) {
        self.commands = true;
    }

    /// Whether the connection should be read.
    pub fn is_hungry(&self) -> bool {
        if self.last_byte_came {
            return false;
        }
        match &self.state {
            State::Head { .. } => self.unsent < self.allowance && self.input.len() < HEAD_MAX,
            State::Putting(put) => put.is_hungry(self.input.len()),
            State::Running(run) => run.is_hungry(self.input.len()),
            State::Operating(it) => it.is_hungry(),
            // To hear that the client is gone.
            State::Listening(_) => self.input.is_empty(),
            State::Discarding { .. } => true,
            State::Fetching { .. }
            | State::Sending(_)
            | State::Listing(_)
            | State::Deleting(_)
            | State::Closing { .. } => false,
        }
    }

    /// Memory to receive into: more than the default if a large body is under way.
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

    /// Whether nothing is left to wait for, so that the session can be forgotten.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closing { asked: 0 })
    }

    /// Sets how many bytes may be unsent.
    pub fn set_allowance(&mut self, bytes: usize) {
        self.allowance = bytes.max(1);
    }

    /// Nodes and open files that a request holds at most, and those of the service asked last.
    pub fn handles(&self) -> usize {
        let of_request = match &self.state {
            State::Head { .. } | State::Discarding { .. } | State::Closing { .. } => 0,
            State::Sending(_)
            | State::Deleting(_)
            | State::Running(_)
            | State::Operating(_)
            | State::Listening(_) => 2,
            // With the directory of an index page, the target of a link, or the directory of an
            // upload and that opened.
            State::Fetching { .. } | State::Listing(_) | State::Putting(_) => 4,
        };
        of_request + if self.kept.is_some() { 2 } else { 0 }
    }

    /// Bytes held: asked for, gathered, received of a body, lent to be received into, or unsent.
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

    /// Bytes said and not yet sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Bytes of memory that the session holds for its client, whatever it waits for: with what is
    /// received and not yet taken, and what is remembered of services. To account by.
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

    /// The state in one word, for `/.upcall/`.
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

    /// What the call under way waits for, for `/.upcall/`.
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
        // One request after the other, however many came at once.
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

/// One function for each input: from every state to the next.
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
            // Received before the connection was told to wait.
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
            // There is no call under way in these states.
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

    /// Whether pipelined requests are left to begin at the end of the stream.
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

    /// No further request is going to come, or to be read: answers the one under way.
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

    /// Takes the next request off the input, if there is a whole one.
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

    /// Waits for the rest of a head, whose time runs from its first byte; or for a first byte.
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
                self.say_head(now, &answer::options(self.export.web.write), out);
                self.done(now, out)
            }
            Method::Put | Method::Delete if !self.export.web.write => {
                let reason = "this server does not write over HTTP: start it with --http-write";
                self.refuse(now, refusal(405, reason), out)
            }
            // RFC 9110 §14.5: a server that does not know partial PUT must not take it for a whole.
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

    /// Whether the end of the stream ends the response to a request.
    fn needs_client(&self, request: &Request) -> bool {
        let is_events = self.is_about(request, listen::FILE).is_some();
        is_events || names_storelet(request) || request.method == Method::Post
    }

    /// The service of which a request is about this file.
    fn is_about<'a>(&self, request: &'a Request, file: &[u8]) -> Option<&'a Name> {
        service_of(request, file, &self.export.services)
    }

    /// The response is said: on to the next request, or the end.
    fn done(&mut self, now: Instant, out: &mut Vec<Output>) -> State {
        self.account(now, out);
        let was_last = self.last_byte_came && self.input.is_empty();
        if self.last || was_last {
            return self.part(now, "done", out);
        }
        self.goes_on = true;
        State::Head { until: now + IDLE_TIME }
    }

    /// Answers with an error after which the connection cannot go on.
    fn refuse(&mut self, now: Instant, refusal: Refusal, out: &mut Vec<Output>) -> State {
        self.last = true;
        self.say_error(now, refusal, out);
        self.account(now, out);
        self.part(now, "refused", out)
    }

    /// The last answer is said: tells the client, and waits until it has seen it.
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

    /// Answers with an error after which the connection goes on.
    fn fail(&mut self, now: Instant, refusal: Refusal, out: &mut Vec<Output>) -> State {
        self.say_error(now, refusal, out);
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

    /// The client is gone: gives back what the request under way holds.
    fn lose(&mut self, state: State, out: &mut Vec<Output>) -> State {
        self.input = Buf::default();
        // A program has two calls, and cancels those that are under way. A temporary file that is
        // being removed is removed.
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

    /// Throws an answer away that comes when the client has left; how many more are to come. What
    /// was created is an upload's temporary file, which nobody else knows of.
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
