//! Server-sent events, each a line of JSON: `GET /services/NAME/events`, the stable operations of a
//! replicated service, and `GET PATH?watch`, the changes of a directory or a file.

use super::answer::{Head, status};
use super::exchange::{AHEAD, Context, Exchange, Stay};
use super::transfer::frame;
use super::{CALL, State};
use crate::CallId;
use base::{Access, Buf, Error, Name};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Refusal, Request, refusal};

/// File of a service that streams events.
pub(super) const FILE: &[u8] = b"events";

/// Key of the query that asks for changes, and its value for everything beneath a directory.
pub(super) const WATCH: &str = "watch";
const BENEATH: &[u8] = b"all";

/// The file of watches.
const WATCHES: [&[u8]; 2] = [b".upcall", b"watch"];

/// Beginning of the line of a path that cannot be watched.
const FAILED: &[u8] = b"{\"change\":\"error\"";

/// Size of a read, bytes.
const PIECE: u32 = 64 << 10;

/// A subscribed client.
#[derive(Debug)]
pub(super) struct Listen {
    step: Step,
    /// Path to watch, as the line that the file of watches takes; empty for a service.
    path: Vec<u8>,
    /// Whether the head was sent.
    streams: bool,
    /// Events received: an incomplete line.
    lines: Vec<u8>,
}

/// State of a subscription.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Waiting for the file.
    Finding,
    /// Waiting for the open of the file.
    Opening(NodeId),
    /// Waiting for the write of the path.
    Writing(OpenId),
    /// Waiting for events, or for the client to take them; whether a read is in flight.
    Reading(OpenId, bool),
}

/// Returns the refusal for a first line with an error.
fn refused(lines: &[u8]) -> Refusal {
    let full = format!("\"error\":\"{}\"}}", Error::TooManyOpen);
    let line = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match line.ends_with(full.as_bytes()) {
        true => refusal(503, "too many directories are watched; watch fewer, or end other watches"),
        false => refusal(404, "cannot watch it: it is missing or not readable"),
    }
}

impl Exchange for Listen {
    fn name(&self) -> &'static str {
        "listening"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (self.step, reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                let write = !self.path.is_empty();
                let access = Access { read: true, write, ..Access::default() };
                cx.ask(Ask::Open { node, access });
                self.step = Step::Opening(node);
                self.stay()
            }
            (Step::Finding, Ok(_) | Err(Error::NotFound | Error::NotDirectory)) => {
                cx.refuse(self.missing())
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                cx.release(node);
                if self.path.is_empty() {
                    self.begin_stream(cx);
                    self.step = Step::Reading(open, false);
                    return self.sent(cx);
                }
                let data = Buf::from(std::mem::take(&mut self.path));
                cx.ask(Ask::Write { open, offset: 0, data });
                self.step = Step::Writing(open);
                self.stay()
            }
            (Step::Writing(open), Ok(Reply::Written(_))) => {
                self.step = Step::Reading(open, false);
                self.sent(cx)
            }
            (Step::Reading(open, _), Ok(Reply::Data(data))) if !data.is_empty() => {
                self.step = Step::Reading(open, false);
                self.lines.extend_from_slice(&data);
                if !self.streams {
                    if self.lines.starts_with(FAILED) {
                        cx.close(open);
                        return cx.refuse(refused(&self.lines));
                    }
                    self.begin_stream(cx);
                }
                self.send_events(cx);
                self.sent(cx)
            }
            (Step::Reading(open, _), _) => {
                cx.close(open);
                cx.hang_up("the stream has ended")
            }
            (step, reply) => {
                match step {
                    Step::Opening(node) => cx.release(node),
                    Step::Writing(open) => cx.close(open),
                    Step::Finding | Step::Reading(..) => {}
                }
                cx.refuse(status(reply.err().unwrap_or(Error::Invalid)))
            }
        }
    }

    /// Reads more, unless the client is behind.
    fn sent(mut self: Box<Self>, cx: &mut Context) -> State {
        if let Step::Reading(open, reads @ false) = &mut self.step
            && cx.session.unsent <= AHEAD
        {
            // A pending read holds no memory.
            *reads = true;
            cx.ask(Ask::Read { open: *open, offset: 0, count: PIECE, headroom: 0 });
        }
        self.stay()
    }

    fn finish(self: Box<Self>, cx: &mut Context) -> State {
        let in_flight = self.release(cx);
        cx.hang_up_after(usize::from(in_flight), "the listener has ended")
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        let in_flight = self.release(cx);
        cx.cancel(CALL, in_flight)
    }

    /// To detect that the client has disconnected.
    fn is_hungry(&self, buffered: usize) -> bool {
        buffered == 0
    }

    fn takes_input(&self) -> bool {
        true
    }

    fn gathered(&self) -> usize {
        self.lines.capacity() + self.path.capacity()
    }
}

impl Listen {
    /// Starts a subscription to a service.
    pub(super) fn begin(cx: &mut Context, request: &Request) -> State {
        Listen::begin_at(cx, request.target.path.clone(), Vec::new())
    }

    /// Starts a watch of the path of a request.
    pub(super) fn begin_watch(cx: &mut Context, request: &Request) -> State {
        let names = WATCHES.map(|name| Name::new(name).expect("a plain name"));
        let mut path = Vec::new();
        for name in &request.target.path {
            path.extend_from_slice(&[b"/", name.as_bytes()].concat());
        }
        let is_deep = request.target.query.iter().any(|(key, it)| key == WATCH && it == BENEATH);
        path.extend_from_slice(if is_deep { b"/**" } else { b"/" });
        if path.contains(&b'\n') {
            return cx.refuse(refusal(404, "a path with a line break cannot be watched"));
        }
        path.push(b'\n');
        Listen::begin_at(cx, names.to_vec(), path)
    }

    fn begin_at(cx: &mut Context, names: Vec<Name>, path: Vec<u8>) -> State {
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        // Further requests on this connection are not served.
        cx.session.last = true;
        let (step, lines) = (Step::Finding, Vec::new());
        Box::new(Listen { step, path, streams: false, lines }).stay()
    }

    /// Returns the response when its file is missing.
    fn missing(&self) -> Refusal {
        match self.path.is_empty() {
            true => refusal(404, "unknown service; list /services/"),
            false => refusal(404, "this server reports no changes: it has no /.upcall/"),
        }
    }

    fn begin_stream(&mut self, cx: &mut Context) {
        self.streams = true;
        let head = Head::new(200)
            .field("Content-Type", "text/event-stream")
            .field("Cache-Control", "no-store");
        let head = cx.stream(head);
        cx.send_head(head, b"");
    }

    /// Releases its resources; returns whether a call is in flight.
    fn release(&self, cx: &mut Context) -> bool {
        match self.step {
            Step::Finding => true,
            Step::Opening(node) => {
                cx.release(node);
                true
            }
            Step::Writing(open) => {
                cx.close(open);
                true
            }
            Step::Reading(open, reads) => {
                cx.close(open);
                reads
            }
        }
    }

    /// Sends each complete line as an event.
    fn send_events(&mut self, cx: &mut Context) {
        let Some(end) = memchr::memrchr(b'\n', &self.lines) else { return };
        let rest = self.lines.split_off(end + 1);
        let lines = std::mem::replace(&mut self.lines, rest);
        assert!(lines.ends_with(b"\n"), "lines are reported whole");
        let mut events = Vec::with_capacity(lines.len() + lines.len() / 4);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            // An empty line is a heartbeat, for proxies and to find out that the client is gone.
            events.extend_from_slice(if line == b"\n" { b":" } else { b"data: " });
            events.extend_from_slice(line);
            events.push(b'\n');
        }
        // An empty chunk would end the body.
        if !events.is_empty() {
            cx.send(frame(Buf::from(events), cx.session.manner.is_1_1));
        }
    }
}
