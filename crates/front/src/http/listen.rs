//! `GET /services/NAME/events`: stable operations of a replicated service as server-sent events,
//! each a line of JSON.

use super::answer::{Head, status};
use super::exchange::{AHEAD, Context, Exchange, Stay};
use super::transfer::frame;
use super::{CALL, State};
use crate::CallId;
use base::{Access, Buf, Error};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Request, refusal};

/// File of a service that streams events.
pub(super) const FILE: &[u8] = b"events";

/// Size of a read, bytes.
const PIECE: u32 = 64 << 10;

/// A subscribed client.
#[derive(Debug)]
pub(super) struct Listen {
    step: Step,
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
    /// Waiting for events, or for the client to take them; whether a read is in flight.
    Reading(OpenId, bool),
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
                let access = Access { read: true, ..Access::default() };
                cx.ask(Ask::Open { node, access });
                self.step = Step::Opening(node);
                self.stay()
            }
            (Step::Finding, Ok(_) | Err(Error::NotFound | Error::NotDirectory)) => {
                cx.refuse(refusal(404, "unknown service; list /services/"))
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                cx.release(node);
                self.step = Step::Reading(open, false);
                let head = Head::new(200)
                    .field("Content-Type", "text/event-stream")
                    .field("Cache-Control", "no-store");
                let head = cx.stream(head);
                cx.send_head(head, b"");
                self.sent(cx)
            }
            (Step::Reading(open, _), Ok(Reply::Data(data))) if !data.is_empty() => {
                self.step = Step::Reading(open, false);
                self.lines.extend_from_slice(&data);
                self.send_events(cx);
                self.sent(cx)
            }
            (Step::Reading(open, _), _) => {
                cx.close(open);
                cx.hang_up("the service has ended")
            }
            (step, reply) => {
                if let Step::Opening(node) = step {
                    cx.release(node);
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
        self.lines.capacity()
    }
}

impl Listen {
    /// Starts a subscription.
    pub(super) fn begin(cx: &mut Context, request: &Request) -> State {
        let names = request.target.path.clone();
        cx.ask(Ask::Walk { from: cx.session.export.root, names });
        // Further requests on this connection are not served.
        cx.session.last = true;
        Box::new(Listen { step: Step::Finding, lines: Vec::new() }).stay()
    }

    /// Releases its resources; returns whether a call is in flight.
    fn release(&self, cx: &mut Context) -> bool {
        match self.step {
            Step::Finding => true,
            Step::Opening(node) => {
                cx.release(node);
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
        assert!(lines.ends_with(b"\n"), "what is told is whole lines");
        let mut events = Vec::with_capacity(lines.len() + lines.len() / 4);
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            events.extend_from_slice(b"data: ");
            events.extend_from_slice(line);
            events.extend_from_slice(b"\n\n");
        }
        // An empty chunk would end the body.
        if !events.is_empty() {
            cx.say(frame(Buf::from(events), cx.session.manner.is_1_1));
        }
    }
}
