//! `POST /services/NAME/ops`: operations on a replicated service.
//!
//! The body is written to that file: JSON objects, or operations as commands, one a line. The
//! responses are read from it, a line of JSON for each. Its open file is retained for the next
//! request on this connection, and the token of each service used, so a connection is a session. A
//! client continues a session on another connection by passing its token in a cookie, as browsers
//! and `curl -b` do automatically. The service reports an invalid cookie.
//!
//! Responses are gathered up to [`GATHERED_MAX`]; longer ones are streamed at the pace of the
//! client, without a cookie: each response contains the token. Each byte is scanned once.

use super::answer::{Head, status};
use super::body::Remaining;
use super::exchange::{AHEAD, Context, Exchange, Stay};
use super::transfer::frame;
use super::{BODY_TIME, CALL, FEED, State};
use crate::CallId;
use base::{Access, Buf, Error, Instant, Name};
use serde_json::value::RawValue;
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Body, Request, refusal};

/// Directory of the services, and the file of a service that accepts operations.
const PLACE: &[u8] = b"services";
pub(super) const FILE: &[u8] = b"ops";

/// Maximum size of a body, bytes.
const BODY_MAX: usize = 8 << 20;

/// Bytes of a body that are split into lines in one turn.
const CUT: usize = 8 << 10;

/// Size of a read, bytes.
const PIECE: u32 = 16 << 10;

/// Maximum size of a response gathered before sending, bytes.
const GATHERED_MAX: usize = 256 << 10;

/// Number of bytes at the end of the scanned text that are scanned again with the next piece: no
/// token or reason is longer.
const OVERLAP: usize = 512;

/// Prefix of a token's cookie, in front of the service name.
const COOKIE: &str = "upcall-";

/// An operation file that stays open.
#[derive(Debug)]
pub(super) struct Kept {
    service: Name,
    pub(super) open: OpenId,
}

/// An operation request.
#[derive(Debug)]
pub(super) struct Operate {
    step: Step,
    service: Name,
    /// Token from a cookie.
    token: Option<String>,
    body: Vec<u8>,
    left: Remaining,
    /// Number of expected responses, and number of responses received.
    expected: usize,
    received: usize,
    /// Gathered responses.
    replies: Vec<u8>,
    scan: Scan,
    /// Whether the head was sent, so that responses are streamed.
    streams: bool,
}

/// Properties of the responses, found incrementally.
#[derive(Debug, Default)]
struct Scan {
    tail: Vec<u8>,
    token: Option<String>,
    lost: bool,
    token_refused: bool,
}

impl Scan {
    fn feed(&mut self, data: &[u8]) {
        let mut window = std::mem::take(&mut self.tail);
        window.extend_from_slice(data);
        if let Some(token) = last_token(&window) {
            self.token = Some(token.to_string());
        }
        self.lost |= has_reason(&window, LOST);
        self.token_refused |= has_reason(&window, "token");
        window.drain(..window.len().saturating_sub(OVERLAP));
        self.tail = window;
    }
}

/// State of an operation request.
#[derive(Debug)]
enum Step {
    /// Waiting for the rest of the body, until the given time.
    Filling(Instant),
    /// Waiting for the next turn, to split the body into lines.
    Cutting(Lines),
    /// Waiting for the file.
    Finding,
    /// Waiting for the open of the file.
    Opening(NodeId),
    /// Waiting for the write of the operations of this size, and for the first responses, which are
    /// stored here if they arrive first. Both are requested at once: the service may be on another
    /// thread.
    Asking { open: OpenId, size: usize, first: Option<Result<Reply, Error>> },
    /// Waiting for the end of the read, after the write has failed.
    Failing(OpenId, Error),
    /// Waiting for responses; or for the client to take the last ones, if no read is in flight.
    Reading(OpenId, bool),
}

impl Exchange for Operate {
    fn name(&self) -> &'static str {
        "operating"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        match (&mut self.step, reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                let access = Access { read: true, write: true, ..Access::default() };
                cx.ask(Ask::Open { node, access });
                self.step = Step::Opening(node);
                self.stay()
            }
            (Step::Finding, Ok(_) | Err(Error::NotFound | Error::NotDirectory)) => {
                let reason = "unknown service; list /services/";
                cx.fail(refusal(404, reason))
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                cx.release(*node);
                self.write(cx, open)
            }
            (Step::Asking { open, first, .. }, reply) if call == FEED => {
                let (open, first) = (*open, first.take());
                self.written(cx, open, reply, first)
            }
            (Step::Asking { first, .. }, reply) => {
                assert!(first.is_none(), "one read is in flight");
                *first = Some(reply);
                self.stay()
            }
            (Step::Failing(open, error), _) => {
                cx.close(*open);
                cx.fail(status(*error))
            }
            (Step::Reading(open, _), Ok(Reply::Data(data))) if !data.is_empty() => {
                self.step = Step::Reading(*open, false);
                self.gather(cx, &data)
            }
            (Step::Reading(open, _), reply) => {
                cx.close(*open);
                if self.streams {
                    return cx.hang_up("the service has ended");
                }
                let reason = "done or not: the server ends; ask again, or another replica";
                let ended = refusal(503, reason);
                cx.fail(reply.err().map_or(ended, status))
            }
            (_, reply) => {
                if let Step::Opening(node) = self.step {
                    cx.release(node);
                }
                cx.fail(status(reply.err().unwrap_or(Error::Disconnected)))
            }
        }
    }

    /// Handles more of the body.
    fn received(mut self: Box<Self>, cx: &mut Context) -> State {
        if !matches!(self.step, Step::Filling(_)) {
            return self.stay();
        }
        loop {
            let before = cx.session.input.len();
            let data = match self.left.take(&mut cx.session.input) {
                Ok(data) => data,
                Err(refusal) => return cx.refuse(refusal),
            };
            assert!(cx.session.input.len() <= before, "taken entries are gone");
            self.body.extend_from_slice(&data);
            if self.body.len() > BODY_MAX {
                return cx.refuse(refusal(413, "post less at once: at most 8 MiB"));
            }
            if self.left.is_empty() {
                let lines = Lines::new(&self.body, self.behind(cx).as_bytes());
                self.step = Step::Cutting(lines);
                return self.cut(cx);
            }
            if cx.session.input.len() == before || cx.session.input.is_empty() {
                break;
            }
        }
        if cx.session.last_byte_came {
            return cx.hang_up("the client left within a body");
        }
        self.step = Step::Filling(cx.now + BODY_TIME);
        self.stay()
    }

    /// Reads the next responses, if the client has taken the last ones.
    fn sent(mut self: Box<Self>, cx: &mut Context) -> State {
        if let Step::Reading(open, reads @ false) = &mut self.step
            && cx.session.unsent <= AHEAD
        {
            *reads = true;
            cx.ask(Ask::Read { open: *open, offset: 0, count: PIECE, headroom: 0 });
        }
        self.stay()
    }

    fn ticked(self: Box<Self>, cx: &mut Context) -> State {
        match self.step {
            Step::Filling(until) if until <= cx.now => {
                cx.refuse(refusal(408, "the body took too long"))
            }
            Step::Cutting(_) => self.cut(cx),
            Step::Filling(_)
            | Step::Finding
            | Step::Opening(_)
            | Step::Asking { .. }
            | Step::Failing(..)
            | Step::Reading(..) => self.stay(),
        }
    }

    fn finish(self: Box<Self>, cx: &mut Context) -> State {
        self.received(cx)
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        let (reads, writes) = match self.step {
            Step::Filling(_) | Step::Cutting(_) => (false, false),
            Step::Finding => (true, false),
            Step::Opening(node) => {
                cx.release(node);
                (true, false)
            }
            Step::Asking { open, first, .. } => {
                cx.close(open);
                (first.is_none(), true)
            }
            Step::Failing(open, _) => {
                cx.close(open);
                // The read is cancelled already.
                return 1;
            }
            Step::Reading(open, reads) => {
                cx.close(open);
                (reads, false)
            }
        };
        cx.cancel(CALL, reads) + cx.cancel(FEED, writes)
    }

    fn is_hungry(&self, _buffered: usize) -> bool {
        matches!(self.step, Step::Filling(_))
    }

    fn takes_input(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Filling(until) => Some(until),
            Step::Cutting(_) => Some(Instant(0)),
            Step::Finding
            | Step::Opening(_)
            | Step::Asking { .. }
            | Step::Failing(..)
            | Step::Reading(..) => None,
        }
    }

    fn gathered(&self) -> usize {
        let waiting = match &self.step {
            Step::Cutting(lines) => lines.all.capacity(),
            Step::Asking { size, first: Some(Ok(Reply::Data(data))), .. } => size + data.len(),
            Step::Asking { size, .. } => *size,
            Step::Filling(_)
            | Step::Finding
            | Step::Opening(_)
            | Step::Failing(..)
            | Step::Reading(..) => 0,
        };
        self.body.capacity() + waiting + self.replies.capacity() + self.scan.tail.capacity()
    }
}

/// Returns the service whose file of this name a request is for.
pub(super) fn service_of<'a>(
    request: &'a Request,
    file: &[u8],
    services: &[Name],
) -> Option<&'a Name> {
    match &request.target.path[..] {
        [place, service, name] if place.as_bytes() == PLACE && name.as_bytes() == file => {
            services.contains(service).then_some(service)
        }
        [..] => None,
    }
}

impl Operate {
    /// Starts an operation request.
    pub(super) fn begin(cx: &mut Context, request: &Request, service: Name) -> State {
        match request.body {
            Body::None => return cx.fail(refusal(411, "post operations")),
            Body::Length(length) if length > BODY_MAX as u64 => {
                return cx.refuse(refusal(413, "post less at once: at most 8 MiB"));
            }
            Body::Length(_) | Body::Chunked => {}
        }
        if request.expects_continue && cx.session.input.is_empty() {
            cx.send_continue();
        }
        let token = request.cookie.as_deref().and_then(|cookies| token_in(cookies, &service));
        let operate = Operate {
            step: Step::Filling(cx.now + BODY_TIME),
            service,
            token,
            body: Vec::new(),
            left: Remaining::of(request.body),
            expected: 0,
            received: 0,
            replies: Vec::new(),
            scan: Scan::default(),
            streams: false,
        };
        Box::new(operate).received(cx)
    }

    /// Splits a part of the body; sends the operations after the last one.
    fn cut(mut self: Box<Self>, cx: &mut Context) -> State {
        let Step::Cutting(lines) = &mut self.step else { unreachable!("it is not being cut") };
        let ended = lines.cut(&self.body);
        let (count, expected) = (lines.count, lines.answered);
        match ended {
            Ok(true) if count > 0 => {}
            Ok(false) => return self.stay(),
            Ok(true) | Err(_) => {
                let reason = "post JSON objects like {\"op\": …}, or operations in words, one a \
                              line";
                return cx.fail(refusal(400, reason));
            }
        }
        if expected == 0 {
            return cx.fail(refusal(400, "post an operation behind the token"));
        }
        assert!(self.expected == 0 && self.received == 0, "it is requested once");
        (self.body, self.expected) = (std::mem::take(&mut lines.all), expected);
        match cx.session.kept.take() {
            Some(Kept { service, open }) if service == self.service => self.write(cx, open),
            other => {
                cx.close(other.map(|kept| kept.open));
                let names = [PLACE, self.service.as_bytes(), FILE];
                let names = names.map(|name| Name::new(name).expect("a name of the request"));
                cx.ask(Ask::Walk { from: cx.session.export.root, names: names.into() });
                self.step = Step::Finding;
                self.stay()
            }
        }
    }

    /// Returns the lines with the tokens that the client has seen: an open file already has the
    /// token of its own responses.
    fn behind(&self, cx: &Context) -> String {
        let is_open = cx.session.kept.as_ref().is_some_and(|kept| kept.service == self.service);
        let seen = cx.session.tokens.get(&self.service).filter(|_| !is_open);
        seen.into_iter().chain(&self.token).map(|token| format!("after {token}\n")).collect()
    }

    fn write(mut self: Box<Self>, cx: &mut Context, open: OpenId) -> State {
        assert!(!self.body.is_empty() && self.expected > 0, "something is requested");
        let data = Buf::from(std::mem::take(&mut self.body));
        let size = data.len();
        cx.ask_as(FEED, Ask::Write { open, offset: 0, data });
        cx.ask(Ask::Read { open, offset: 0, count: PIECE, headroom: 0 });
        self.step = Step::Asking { open, size, first: None };
        self.stay()
    }

    /// Handles the result of the write; the first responses may have arrived before.
    fn written(
        mut self: Box<Self>,
        cx: &mut Context,
        open: OpenId,
        written: Result<Reply, Error>,
        first: Option<Result<Reply, Error>>,
    ) -> State {
        let error = match written {
            Ok(Reply::Written(_)) => {
                self.step = Step::Reading(open, true);
                return match first {
                    Some(first) => self.answered(cx, CALL, first),
                    None => self.stay(),
                };
            }
            other => other.err().unwrap_or(Error::Disconnected),
        };
        if first.is_none() {
            cx.cancel(CALL, true);
            self.step = Step::Failing(open, error);
            return self.stay();
        }
        cx.close(open);
        cx.fail(status(error))
    }

    /// Gathers responses, or streams them.
    fn gather(mut self: Box<Self>, cx: &mut Context, data: &[u8]) -> State {
        assert!(!data.is_empty(), "no bytes are the end");
        assert!(matches!(self.step, Step::Reading(_, false)), "the read has ended");
        self.received += memchr::memchr_iter(b'\n', data).count();
        self.scan.feed(data);
        self.see(cx);
        self.replies.extend_from_slice(data);
        let ends = self.received >= self.expected;
        if !ends && !self.streams && self.replies.len() <= cx.at_most(GATHERED_MAX) {
            return self.sent(cx);
        }
        if self.streams || !ends {
            self.stream(cx);
        }
        if !ends {
            return self.sent(cx);
        }
        if let Step::Reading(open, _) = self.step {
            let kept = Kept { service: self.service.clone(), open };
            match self.scan.token_refused {
                // A new file forgets the invalid token.
                true => cx.close(open),
                false => cx.session.kept = Some(kept),
            }
        }
        match self.streams {
            true if cx.session.manner.is_1_1 => cx.send(Buf::from(&b"0\r\n\r\n"[..])),
            true => {}
            false => self.respond(cx),
        }
        cx.done()
    }

    /// Streams the gathered responses, behind a head that does not reveal the outcome.
    fn stream(&mut self, cx: &mut Context) {
        let chunked = cx.session.manner.is_1_1;
        if !self.streams {
            self.streams = true;
            let head = Head::new(200)
                .field("Content-Type", "application/x-ndjson")
                .field("Cache-Control", "no-store");
            let head = cx.stream(head);
            cx.send_head(head, b"");
        }
        let replies = frame(Buf::from(std::mem::take(&mut self.replies)), chunked);
        cx.send(replies);
    }

    /// Records the token that the client sees.
    fn see(&self, cx: &mut Context) {
        if let Some(token) = &self.scan.token {
            cx.session.tokens.insert(self.service.clone(), token.clone());
        } else if self.scan.lost {
            cx.session.tokens.remove(&self.service);
        }
    }

    /// Sends the responses. The error of a single operation determines the status, too.
    fn respond(&self, cx: &mut Context) {
        assert!(!self.streams, "the head was already sent");
        assert!(self.received >= self.expected, "all answers have come");
        let failed = self.replies.starts_with(b"{\"error\"") && self.expected == 1;
        let code = match failed {
            false => 200,
            true if BAD.iter().any(|reason| has_reason(&self.replies, reason)) => 400,
            true => 503,
        };
        let kind = if self.expected == 1 { "application/json" } else { "application/x-ndjson" };
        let mut head = Head::new(code)
            .field("Content-Type", kind)
            .field("Cache-Control", "no-store")
            .field("Content-Length", self.replies.len());
        let token = self.scan.token.as_deref();
        // A session that has seen a lost operation is over.
        if token.is_some() || self.scan.lost {
            let service = String::from_utf8_lossy(self.service.as_bytes());
            let (token, age) =
                (token.unwrap_or(""), if token.is_some() { "" } else { "; Max-Age=0" });
            let cookie = format!("{COOKIE}{service}={token}; Path=/services/{service}{age}");
            head = head.field("Set-Cookie", format_args!("{cookie}; SameSite=Strict; HttpOnly"));
        }
        cx.send_head(head, &self.replies);
    }
}

/// Reasons for which no replica would accept an operation.
const BAD: [&str; 3] = ["malformed", "token", "stale"];

/// Reason for an operation that depends on one lost with a replica.
const LOST: &str = "lost";

/// Returns whether a response has this reason. Inside of a text the quotation marks would be
/// escaped.
fn has_reason(replies: &[u8], reason: &str) -> bool {
    memchr::memmem::find(replies, format!("\"reason\":\"{reason}\"").as_bytes()).is_some()
}

/// Body split into lines incrementally, behind other lines; a JSON object may span several.
#[derive(Debug)]
struct Lines {
    /// Lines cut so far.
    all: Vec<u8>,
    /// Bytes of the body that were split.
    at: usize,
    is_json: bool,
    /// Number of lines of the body, and of those that have a response.
    count: usize,
    answered: usize,
}

impl Lines {
    fn new(body: &[u8], before: &[u8]) -> Lines {
        let is_json = body.trim_ascii_start().starts_with(b"{");
        let mut all = Vec::with_capacity(before.len() + body.len() + 1);
        all.extend_from_slice(before);
        Lines { all, at: 0, is_json, count: 0, answered: 0 }
    }

    /// Splits the next part; returns whether it was the last one.
    ///
    /// # Errors
    /// If a body that begins like JSON is not valid JSON.
    fn cut(&mut self, body: &[u8]) -> Result<bool, serde_json::Error> {
        let until = self.at.saturating_add(CUT);
        while self.at < body.len() {
            if self.at >= until {
                return Ok(false);
            }
            let rest = &body[self.at..];
            if self.is_json {
                let mut objects = serde_json::Deserializer::from_slice(rest).into_iter();
                let object: Option<Result<&RawValue, _>> = objects.next();
                let Some(object) = object.transpose()? else { break };
                self.at += objects.byte_offset();
                self.add(object.get().as_bytes());
            } else {
                let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
                self.at += line.len() + 1;
                if !line.trim_ascii().is_empty() {
                    self.add(line);
                }
            }
        }
        Ok(true)
    }

    fn add(&mut self, line: &[u8]) {
        let from = self.all.len();
        self.all.extend_from_slice(line);
        // In JSON a newline is mere white space.
        self.all[from..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        self.all.push(b'\n');
        self.count += 1;
        self.answered += usize::from(!line.starts_with(b"after "));
    }
}

/// Returns the token of the last response. All of its characters are valid in a cookie.
fn last_token(replies: &[u8]) -> Option<&str> {
    let last = memchr::memmem::find_iter(replies, b"\"token\":\"").last();
    let at = last? + b"\"token\":\"".len();
    let token = replies[at..].split(|byte| *byte == b'"').next()?;
    str::from_utf8(token).ok()
}

/// Returns the token of a service among cookies, valid or not.
fn token_in(cookies: &str, service: &Name) -> Option<String> {
    let service = str::from_utf8(service.as_bytes()).ok()?;
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    let token = pairs.find(|(name, _)| name.strip_prefix(COOKIE) == Some(service))?.1;
    // The token must not end the line.
    Some(token.replace(|c: char| c.is_control(), "?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> Option<Vec<String>> {
        let mut lines = Lines::new(body.as_bytes(), b"");
        while !lines.cut(body.as_bytes()).ok()? {}
        (lines.count > 0).then_some(())?;
        let text = String::from_utf8(lines.all).expect("text");
        Some(text.split_inclusive('\n').map(str::to_string).collect())
    }

    #[test]
    fn a_body_is_cut_into_operations() {
        assert_eq!(text("add 5"), Some(vec!["add 5\n".to_string()]));
        assert_eq!(text("a\n\n b\r\n").map(|lines| lines.len()), Some(2));
        let objects = text("{\"op\":\n \"read\"}{\"op\": 1}\n").expect("two");
        assert_eq!(objects, ["{\"op\":  \"read\"}\n", "{\"op\": 1}\n"]);
        for nothing in ["", " \n ", "{", "{\"op\": 1} x"] {
            assert_eq!(text(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_body_is_cut_a_part_at_a_time() {
        for line in ["x\n", "{\"op\": 1}\n"] {
            let count = 200_000;
            let body = line.repeat(count).into_bytes();
            let (mut lines, mut parts) = (Lines::new(&body, b"after t\n"), 1);
            while !lines.cut(&body).expect("it is JSON or words") {
                assert!(lines.at <= parts * (CUT + line.len()), "{} after {parts}", lines.at);
                parts += 1;
            }
            assert!(parts >= body.len() / (CUT + line.len()));
            assert_eq!((lines.count, lines.answered), (count, count));
            assert_eq!(lines.all, [b"after t\n", &body[..]].concat());
        }
    }

    #[test]
    fn tokens_travel_in_cookies() {
        let replies = b"{\"token\":\"a\"}\n{\"token\":\"7-1:2.3:4\"}\n{\"error\":\"x\"}\n";
        assert_eq!(last_token(replies), Some("7-1:2.3:4"));
        let hits = Name::new(b"hits").expect("a name");
        let cookies = "x=y; upcall-hits2=3; upcall-hits=7-1:2.3:4; z";
        assert_eq!(token_in(cookies, &hits).as_deref(), Some("7-1:2.3:4"));
        assert_eq!(token_in("upcall-hits=a\nb", &hits).as_deref(), Some("a?b"));
        assert_eq!(token_in("upcall-hits=", &hits).as_deref(), Some(""));
        assert_eq!(token_in("hits=1", &hits), None);
    }
}
