//! `GET /services/NAME/events`: stable operations of a replicated service as server-sent events,
//! each a line of JSON.

use super::answer::{Head, status};
use super::transfer::frame;
use super::{Session, State};
use crate::Output;
use base::{Access, Buf, Error, Instant, Name};
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Request, refusal};

/// File of a service that streams events.
pub(super) const FILE: &[u8] = b"events";

/// Size of a read, bytes, and maximum number of unsent bytes before it.
const PIECE: u32 = 64 << 10;
const AHEAD: usize = 64 << 10;

/// A subscribed client.
#[derive(Debug)]
pub(super) struct Listen {
    step: Step,
    /// Incomplete line.
    said: Vec<u8>,
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

impl Listen {
    /// Returns the number of bytes gathered.
    pub(super) fn gathered(&self) -> usize {
        self.said.capacity()
    }

    /// Releases its resources; returns the number of outstanding replies.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> usize {
        match self.step {
            Step::Finding => 1,
            Step::Opening(node) => {
                out.push(Output::Release(node));
                1
            }
            Step::Reading(open, reads) => {
                out.push(Output::Close(open));
                usize::from(reads)
            }
        }
    }
}

impl Session {
    /// Starts a subscription.
    pub(super) fn listen(&mut self, request: &Request, out: &mut Vec<Output>) -> State {
        let names: Vec<Name> = request.target.path.clone();
        self.ask(Ask::Walk { from: self.export.root, names }, out);
        // Further requests on this connection are not served.
        self.last = true;
        State::Listening(Listen { step: Step::Finding, said: Vec::new() })
    }

    pub(super) fn listen_answered(
        &mut self,
        now: Instant,
        mut it: Listen,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        match (it.step, reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                let access = Access { read: true, ..Access::default() };
                self.ask(Ask::Open { node, access }, out);
                it.step = Step::Opening(node);
                State::Listening(it)
            }
            (Step::Finding, Ok(_) | Err(Error::NotFound | Error::NotDirectory)) => {
                self.refuse(now, refusal(404, "unknown service; list /services/"), out)
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                out.push(Output::Release(node));
                it.step = Step::Reading(open, false);
                self.listen_head(now, out);
                self.listen_on(it, out)
            }
            (Step::Reading(open, _), Ok(Reply::Data(data))) if !data.is_empty() => {
                it.step = Step::Reading(open, false);
                it.said.extend_from_slice(&data);
                self.listen_tell(&mut it, out);
                self.listen_on(it, out)
            }
            (Step::Reading(open, _), _) => {
                it.step = Step::Reading(open, false);
                it.forget(out);
                self.hang_up("the service has ended", out)
            }
            (step, reply) => {
                if let Step::Opening(node) = step {
                    out.push(Output::Release(node));
                }
                self.refuse(now, status(reply.err().unwrap_or(Error::Invalid)), out)
            }
        }
    }

    fn listen_head(&mut self, now: Instant, out: &mut Vec<Output>) {
        let head = Head::new(200)
            .field("Content-Type", "text/event-stream")
            .field("Cache-Control", "no-store");
        let head = match self.manner.is_1_1 {
            true => head.field("Transfer-Encoding", "chunked"),
            false => head,
        };
        let head = self.end(now, head);
        self.say(Buf::from(head), out);
    }

    /// Sends each complete line as an event.
    fn listen_tell(&mut self, it: &mut Listen, out: &mut Vec<Output>) {
        let Some(end) = memchr::memrchr(b'\n', &it.said) else { return };
        let rest = it.said.split_off(end + 1);
        let lines = std::mem::replace(&mut it.said, rest);
        assert!(lines.ends_with(b"\n"), "what is told is whole lines");
        let mut events = Vec::with_capacity(lines.len() + lines.len() / 4);
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            events.extend_from_slice(b"data: ");
            events.extend_from_slice(line);
            events.extend_from_slice(b"\n\n");
        }
        // An empty chunk would end the body.
        if !events.is_empty() {
            let events = frame(Buf::from(events), self.manner.is_1_1);
            self.say(events, out);
        }
    }

    /// Ends the subscription when the client has disconnected, or the server shuts down.
    pub(super) fn listen_end(&mut self, it: Listen, out: &mut Vec<Output>) -> State {
        self.asked = 0;
        let asked = it.forget(out);
        out.push(Output::Hangup("the listener has ended"));
        State::Closing { asked }
    }

    /// Reads more, unless the client is behind.
    pub(super) fn listen_on(&mut self, mut it: Listen, out: &mut Vec<Output>) -> State {
        if let Step::Reading(open, reads @ false) = &mut it.step
            && self.unsent <= AHEAD
        {
            // A pending read holds no memory.
            *reads = true;
            let open = *open;
            self.ask(Ask::Read { open, offset: 0, count: PIECE, headroom: 0 }, out);
        }
        State::Listening(it)
    }
}
