//! A request in progress, of any kind, and what it may use of its session.
//!
//! Each kind is a file with one type that implements [`Exchange`]. To add a method, add such a file
//! and its arm in [`Context::begin`].

use super::answer::{Head, allowed, status};
use super::delete::Delete;
use super::get::Fetch;
use super::listen::{self, Listen};
use super::operate::{self, Operate, service_of};
use super::put::Put;
use super::run::{Run, names_storelet};
use super::{CALL, DISCARD_MAX, DISCARD_TIME, IDLE_TIME, Session, State, guard};
use crate::{CallId, Output, webdav};
use base::op::ReceiveBuf;
use base::{Buf, Error, Instant, Name, Time};
use std::fmt::Debug;
use tree::{Ask, NodeId, OpenId, Reply, Request as TreeRequest};
use wire::http::{Body, Method, Refusal, Request, refusal};

/// Maximum number of unsent bytes when more of a stream of output is read.
pub(super) const AHEAD: usize = 64 << 10;

/// A request in progress: the steps from its head to the end of its response.
///
/// The defaults are those of a request without a body whose response is sent at once.
pub(super) trait Exchange: Stay + Debug + Send {
    /// Returns the state as one word, for `/.upcall/` and the drawing.
    fn name(&self) -> &'static str;

    /// Handles the reply to a call.
    fn answered(
        self: Box<Self>,
        cx: &mut Context,
        call: CallId,
        reply: Result<Reply, Error>,
    ) -> State;

    /// Handles the reply of the locks of WebDAV.
    fn locks_answered(self: Box<Self>, _cx: &mut Context, reply: webdav::Reply) -> State {
        unreachable!("{reply:?} was not asked for")
    }

    /// Handles received bytes, which are in the session's input.
    fn received(self: Box<Self>, _cx: &mut Context) -> State {
        self.stay()
    }

    /// Handles the progress of sending: there is space for more output.
    fn sent(self: Box<Self>, _cx: &mut Context) -> State {
        self.stay()
    }

    /// Handles a passed deadline, or a turn.
    fn ticked(self: Box<Self>, _cx: &mut Context) -> State {
        self.stay()
    }

    /// Handles the end of the stream from the client, or the shutdown of the server: this is the
    /// last request.
    fn finish(self: Box<Self>, _cx: &mut Context) -> State {
        self.stay()
    }

    /// Releases its resources and cancels its calls, because the client has left; returns the
    /// number of outstanding replies.
    fn abort(self: Box<Self>, cx: &mut Context) -> usize;

    /// Returns whether the connection should be read, given the number of bytes in the input.
    fn is_hungry(&self, _buffered: usize) -> bool {
        false
    }

    /// Returns memory to receive into.
    fn receive_into(&self) -> ReceiveBuf {
        ReceiveBuf::Default
    }

    /// Returns whether the input is its body, or reveals that the client has disconnected. If not,
    /// the input holds the next requests, which are served also after the end of the stream.
    fn takes_input(&self) -> bool {
        false
    }

    /// Returns whether the client owes the body, so that its input is charged to the request.
    fn is_upload(&self) -> bool {
        false
    }

    /// Returns the deadline.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Returns the maximum number of nodes and open files held.
    fn handles(&self) -> usize {
        2
    }

    /// Returns the number of bytes gathered: neither requested by its call nor queued to be sent.
    fn gathered(&self) -> usize {
        0
    }

    /// Panics if the state contradicts itself or the number of bytes requested by its call.
    fn check(&self, _asked: usize) {}
}

/// Returns whether the query has a key.
pub(super) fn has_key(request: &Request, key: &str) -> bool {
    request.target.query.iter().any(|(it, _)| it == key)
}

/// An exchange as the state of its session: implemented for every [`Exchange`].
pub(super) trait Stay {
    /// Returns the state in which this exchange is in progress.
    fn stay(self: Box<Self>) -> State;
}

impl<T: Exchange + 'static> Stay for T {
    fn stay(self: Box<T>) -> State {
        State::Exchange(self)
    }
}

/// One step of a session: what an exchange may use.
pub(super) struct Context<'a> {
    pub(super) session: &'a mut Session,
    pub(super) now: Instant,
    pub(super) out: &'a mut Vec<Output>,
}

impl Context<'_> {
    /// Begins the exchange of a request.
    pub(super) fn begin(&mut self, request: Request) -> State {
        assert!(!self.session.last, "no request is begun behind the last");
        self.session.last |= !request.keep_alive;
        self.session.manner.is_1_1 = request.is_1_1;
        self.session.manner.wants_problem = request.preference.problem;
        let web = &self.session.export.web;
        if let Err(refusal) = guard::check(&request, self.session.local, &web.hosts) {
            return self.refuse(refusal);
        }
        if !self.session.lets_hold(&request) {
            return self.refuse(status(Error::TooManyOpen));
        }
        let writes = web.write;
        if self.session.last_byte_came && self.needs_client(&request) {
            return self.hang_up("the client left");
        }
        match request.method {
            Method::Get | Method::Head | Method::Delete | Method::Options
                if request.body != Body::None =>
            {
                self.refuse(refusal(400, "this method takes no body here"))
            }
            Method::Get | Method::Head if names_storelet(&request) => {
                Run::begin_named(self, &request)
            }
            Method::Get if self.is_about(&request, listen::FILE).is_some() => {
                Listen::begin(self, &request)
            }
            Method::Get if has_key(&request, listen::WATCH) => Listen::begin_watch(self, &request),
            Method::Get | Method::Head => Fetch::begin(self, request),
            // Some clients expect that a server with WebDAV says so twice (`MS-Author-Via`).
            Method::Options => self.respond(
                Head::new(204)
                    .field("Allow", allowed(writes))
                    .field("DAV", "1, 2")
                    .field("MS-Author-Via", "DAV"),
            ),
            method if (method.changes() || method.is_lock()) && !writes => {
                let reason = "this server does not write over HTTP: start it with --http-write";
                self.refuse(refusal(405, reason))
            }
            // RFC 9110 §14.5: a partial PUT must not be taken for a complete one.
            Method::Put if request.is_partial => {
                self.refuse(refusal(400, "put the whole file: parts are not joined here"))
            }
            Method::Put
            | Method::Delete
            | Method::Proppatch
            | Method::Mkcol
            | Method::Copy
            | Method::Move => self.begin_change(request),
            Method::Propfind | Method::Lock | Method::Unlock => self.begin_dav(request),
            Method::Post => match self.is_about(&request, operate::FILE).cloned() {
                Some(service) => Operate::begin(self, &request, service),
                None => Run::begin(self, &request),
            },
        }
    }

    /// Begins a change that the locks permit, or a method of WebDAV that changes nothing.
    pub(super) fn begin_permitted(&mut self, request: Request) -> State {
        if request.method == Method::Put {
            return Put::begin(self, request);
        }
        if request.method == Method::Delete {
            return Delete::begin(self, request);
        }
        self.begin_dav(request)
    }

    /// Returns whether the end of the stream aborts the response to a request.
    fn needs_client(&self, request: &Request) -> bool {
        let is_events =
            self.is_about(request, listen::FILE).is_some() || has_key(request, listen::WATCH);
        is_events || names_storelet(request) || request.method == Method::Post
    }

    /// Returns the service whose file of this name the request is for.
    fn is_about<'a>(&self, request: &'a Request, file: &[u8]) -> Option<&'a Name> {
        service_of(request, file, &self.session.export.services)
    }

    /// Sends a request to the namespace.
    pub(super) fn ask(&mut self, ask: Ask) {
        self.ask_as(CALL, ask);
    }

    pub(super) fn ask_as(&mut self, call: CallId, ask: Ask) {
        let caller = self.session.caller.clone();
        self.out.push(Output::Ask(call, TreeRequest { caller, ask }));
    }

    /// Cancels a call, if it is in flight; returns the number of outstanding replies.
    pub(super) fn cancel(&mut self, call: CallId, in_flight: bool) -> usize {
        self.out.extend(in_flight.then_some(Output::Cancel(call)));
        usize::from(in_flight)
    }

    pub(super) fn release(&mut self, node: NodeId) {
        self.out.push(Output::Release(node));
    }

    pub(super) fn close(&mut self, open: impl Into<Option<OpenId>>) {
        self.out.extend(open.into().map(Output::Close));
    }

    /// Sends bytes to the client.
    pub(super) fn send(&mut self, bytes: Buf) {
        assert!(!bytes.is_empty(), "a reply has text");
        self.session.unsent += bytes.len();
        self.session.access.add_sent(bytes.len());
        self.out.push(Output::Send(bytes));
    }

    /// Ends a response: continues with the next request, or closes.
    pub(super) fn done(&mut self) -> State {
        self.account();
        let was_last = self.session.last_byte_came && self.session.input.is_empty();
        if self.session.last || was_last {
            return self.part("done");
        }
        self.session.goes_on = true;
        State::Head { until: self.now + IDLE_TIME }
    }

    /// Responds with an error; the connection continues.
    pub(super) fn fail(&mut self, refusal: Refusal) -> State {
        self.send_error(refusal);
        self.done()
    }

    /// Responds with an error that ends the connection.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> State {
        self.session.last = true;
        self.send_error(refusal);
        self.account();
        self.part("refused")
    }

    /// After the last response: closes the sending direction, and waits for the client.
    fn part(&mut self, reason: &'static str) -> State {
        if self.session.last_byte_came {
            return self.hang_up(reason);
        }
        self.session.input = Buf::default();
        self.out.push(Output::Finish);
        let all_sent = self.session.unsent == 0;
        let until = if all_sent { self.now + DISCARD_TIME } else { Instant(u64::MAX) };
        State::Discarding { until, left: DISCARD_MAX, reason }
    }

    /// Closes the connection when everything is sent.
    pub(super) fn hang_up(&mut self, reason: &'static str) -> State {
        self.hang_up_after(0, reason)
    }

    /// Closes the connection, and waits for this many replies to discard.
    pub(super) fn hang_up_after(&mut self, outstanding: usize, reason: &'static str) -> State {
        (self.session.outstanding, self.session.input) = (0, Buf::default());
        self.out.push(Output::Hangup(reason));
        State::Closing { outstanding }
    }

    /// Returns the wall-clock time.
    pub(super) fn wall(&self) -> Time {
        Time::from_secs(self.session.export.wall.secs + (self.now.0 / 1_000_000_000).cast_signed())
    }
}
