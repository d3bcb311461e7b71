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
use super::transfer::frame;
use super::{BODY_TIME, CALL, FEED, Session, State};
use crate::{CallId, Output};
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

/// Maximum number of unsent bytes when more is read.
const AHEAD: usize = 64 << 10;

/// Number of bytes at the end of the scanned text that are scanned again with the next piece: no
/// token or reason is longer.
const OVERLAP: usize = 512;

/// Prefix of a token's cookie, in front of the service name.
const COOKIE: &str = "upcall-";

/// An operation file that stays open.
#[derive(Debug)]
pub(super) struct Kept {
    service: Name,
    open: OpenId,
}

impl Kept {
    pub(super) fn close(self, out: &mut Vec<Output>) {
        out.push(Output::Close(self.open));
    }
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
    asked: usize,
    heard: usize,
    /// Gathered responses.
    said: Vec<u8>,
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
    /// Waiting for the write of the operations, and for the first responses, which are stored here
    /// if they arrive first. Both are requested at once: the service may be on another thread.
    Asking(OpenId, Option<Result<Reply, Error>>),
    /// Waiting for the end of the read, after the write has failed.
    Failing(OpenId, Error),
    /// Waiting for responses; or for the client to take the last ones, if no read is in flight.
    Reading(OpenId, bool),
}

impl Operate {
    /// Returns whether the connection should be read, for more of the body.
    pub(super) fn is_hungry(&self) -> bool {
        matches!(self.step, Step::Filling(_))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Filling(until) => Some(until),
            Step::Cutting(_) => Some(Instant(0)),
            Step::Finding
            | Step::Opening(_)
            | Step::Asking(..)
            | Step::Failing(..)
            | Step::Reading(..) => None,
        }
    }

    /// Returns the number of bytes gathered.
    pub(super) fn gathered(&self) -> usize {
        let waiting = match &self.step {
            Step::Cutting(lines) => lines.all.capacity(),
            Step::Asking(_, Some(Ok(Reply::Data(data)))) => data.len(),
            Step::Filling(_)
            | Step::Finding
            | Step::Opening(_)
            | Step::Asking(..)
            | Step::Failing(..)
            | Step::Reading(..) => 0,
        };
        self.body.capacity() + waiting + self.said.capacity() + self.scan.tail.capacity()
    }

    /// Releases its resources and cancels calls in flight; returns the number of outstanding
    /// replies.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> usize {
        let (reads, writes) = match self.step {
            Step::Filling(_) | Step::Cutting(_) => (false, false),
            Step::Finding => (true, false),
            Step::Opening(node) => {
                out.push(Output::Release(node));
                (true, false)
            }
            Step::Asking(open, first) => {
                out.push(Output::Close(open));
                (first.is_none(), true)
            }
            Step::Failing(open, _) => {
                out.push(Output::Close(open));
                // The read is cancelled already.
                return 1;
            }
            Step::Reading(open, reads) => {
                out.push(Output::Close(open));
                (reads, false)
            }
        };
        out.extend(reads.then_some(Output::Cancel(CALL)));
        out.extend(writes.then_some(Output::Cancel(FEED)));
        usize::from(reads) + usize::from(writes)
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

impl Session {
    /// Starts an operation request.
    pub(super) fn operate(
        &mut self,
        now: Instant,
        request: &Request,
        service: Name,
        out: &mut Vec<Output>,
    ) -> State {
        match request.body {
            Body::None => return self.fail(now, refusal(411, "post operations"), out),
            Body::Length(length) if length > BODY_MAX as u64 => {
                return self.refuse(now, refusal(413, "post less at once: at most 8 MiB"), out);
            }
            Body::Length(_) | Body::Chunked => {}
        }
        if request.expects_continue && self.input.is_empty() {
            self.send_continue(out);
        }
        let token = request.cookie.as_deref().and_then(|cookies| token_in(cookies, &service));
        let operate = Operate {
            step: Step::Filling(now + BODY_TIME),
            service,
            token,
            body: Vec::new(),
            left: Remaining::of(request.body),
            asked: 0,
            heard: 0,
            said: Vec::new(),
            scan: Scan::default(),
            streams: false,
        };
        self.operate_on(now, Box::new(operate), out)
    }

    /// Handles more of the body.
    pub(super) fn operate_on(
        &mut self,
        now: Instant,
        mut it: Box<Operate>,
        out: &mut Vec<Output>,
    ) -> State {
        if !it.is_hungry() {
            return State::Operating(it);
        }
        loop {
            let before = self.input.len();
            let data = match it.left.take(&mut self.input) {
                Ok(data) => data,
                Err(refusal) => return self.refuse(now, refusal, out),
            };
            assert!(self.input.len() <= before, "what is taken is gone");
            it.body.extend_from_slice(&data);
            if it.body.len() > BODY_MAX {
                return self.refuse(now, refusal(413, "post less at once: at most 8 MiB"), out);
            }
            if it.left.is_empty() {
                return self.operate_ask(now, it, out);
            }
            if self.input.len() == before || self.input.is_empty() {
                break;
            }
        }
        if self.last_byte_came {
            return self.hang_up("the client left within a body", out);
        }
        it.step = Step::Filling(now + BODY_TIME);
        State::Operating(it)
    }

    /// Handles a deadline, or a turn.
    pub(super) fn operate_late(
        &mut self,
        now: Instant,
        it: Box<Operate>,
        out: &mut Vec<Output>,
    ) -> State {
        match it.step {
            Step::Filling(until) if until <= now => {
                self.refuse(now, refusal(408, "the body took too long"), out)
            }
            Step::Cutting(_) => self.operate_cut(now, it, out),
            Step::Filling(_)
            | Step::Finding
            | Step::Opening(_)
            | Step::Asking(..)
            | Step::Failing(..)
            | Step::Reading(..) => State::Operating(it),
        }
    }

    /// Splits the complete body into lines.
    fn operate_ask(&mut self, now: Instant, mut it: Box<Operate>, out: &mut Vec<Output>) -> State {
        it.step = Step::Cutting(Lines::new(&it.body, self.behind(&it).as_bytes()));
        self.operate_cut(now, it, out)
    }

    /// Splits a part of the body; sends the operations after the last one.
    fn operate_cut(&mut self, now: Instant, mut it: Box<Operate>, out: &mut Vec<Output>) -> State {
        let Step::Cutting(lines) = &mut it.step else { unreachable!("it is not being cut") };
        let ended = lines.cut(&it.body);
        let (count, asked) = (lines.count, lines.answered);
        match ended {
            Ok(true) if count > 0 => {}
            Ok(false) => return State::Operating(it),
            Ok(true) | Err(_) => {
                let reason = "post JSON objects like {\"op\": …}, or operations in words, one a \
                              line";
                return self.fail(now, refusal(400, reason), out);
            }
        }
        if asked == 0 {
            return self.fail(now, refusal(400, "post an operation behind the token"), out);
        }
        assert!(it.asked == 0 && it.heard == 0, "it is asked once");
        (it.body, it.asked) = (std::mem::take(&mut lines.all), asked);
        match self.kept.take() {
            Some(Kept { service, open }) if service == it.service => {
                self.operate_write(it, open, out)
            }
            other => {
                other.into_iter().for_each(|kept| kept.close(out));
                let names = [PLACE, it.service.as_bytes(), FILE];
                let names = names.map(|name| Name::new(name).expect("a name of the request"));
                self.ask(Ask::Walk { from: self.export.root, names: names.into() }, out);
                it.step = Step::Finding;
                State::Operating(it)
            }
        }
    }

    /// Returns the lines with the tokens that the client has seen: an open file already has the
    /// token of its own responses.
    fn behind(&self, it: &Operate) -> String {
        let is_open = self.kept.as_ref().is_some_and(|kept| kept.service == it.service);
        let seen = self.tokens.get(&it.service).filter(|_| !is_open);
        seen.into_iter().chain(&it.token).map(|token| format!("after {token}\n")).collect()
    }

    fn operate_write(
        &mut self,
        mut it: Box<Operate>,
        open: OpenId,
        out: &mut Vec<Output>,
    ) -> State {
        assert!(!it.body.is_empty() && it.asked > 0, "something is asked");
        let data = Buf::from(std::mem::take(&mut it.body));
        self.asked = data.len();
        self.ask_as(FEED, Ask::Write { open, offset: 0, data }, out);
        self.ask(Ask::Read { open, offset: 0, count: PIECE, headroom: 0 }, out);
        it.step = Step::Asking(open, None);
        State::Operating(it)
    }

    /// Reads the next responses, if the client has taken the last ones.
    pub(super) fn operate_read(&mut self, mut it: Box<Operate>, out: &mut Vec<Output>) -> State {
        if let Step::Reading(open, reads @ false) = &mut it.step
            && self.unsent <= AHEAD
        {
            *reads = true;
            let open = *open;
            self.ask(Ask::Read { open, offset: 0, count: PIECE, headroom: 0 }, out);
        }
        State::Operating(it)
    }

    pub(super) fn operate_answered(
        &mut self,
        now: Instant,
        call: CallId,
        mut it: Box<Operate>,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        match (&mut it.step, reply) {
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                let access = Access { read: true, write: true, ..Access::default() };
                self.ask(Ask::Open { node, access }, out);
                it.step = Step::Opening(node);
                State::Operating(it)
            }
            (Step::Finding, Ok(_) | Err(Error::NotFound | Error::NotDirectory)) => {
                let reason = "unknown service; list /services/";
                self.fail(now, refusal(404, reason), out)
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                out.push(Output::Release(*node));
                self.operate_write(it, open, out)
            }
            (Step::Asking(open, first), reply) if call == FEED => {
                let (open, first) = (*open, first.take());
                self.operate_taken(now, it, open, (reply, first), out)
            }
            (Step::Asking(_, first), reply) => {
                assert!(first.is_none(), "one read is under way");
                *first = Some(reply);
                State::Operating(it)
            }
            (Step::Failing(open, error), _) => {
                out.push(Output::Close(*open));
                self.fail(now, status(*error), out)
            }
            (Step::Reading(open, _), Ok(Reply::Data(data))) if !data.is_empty() => {
                it.step = Step::Reading(*open, false);
                self.operate_heard(now, it, &data, out)
            }
            (Step::Reading(open, _), reply) => {
                out.push(Output::Close(*open));
                if it.streams {
                    return self.hang_up("the service has ended", out);
                }
                let reason = "done or not: the server ends; ask again, or another replica";
                let ended = refusal(503, reason);
                self.fail(now, reply.err().map_or(ended, status), out)
            }
            (_, reply) => {
                if let Step::Opening(node) = it.step {
                    out.push(Output::Release(node));
                }
                self.fail(now, status(reply.err().unwrap_or(Error::Disconnected)), out)
            }
        }
    }

    /// Handles the result of the write; the first responses may have arrived before.
    fn operate_taken(
        &mut self,
        now: Instant,
        mut it: Box<Operate>,
        open: OpenId,
        (taken, first): (Result<Reply, Error>, Option<Result<Reply, Error>>),
        out: &mut Vec<Output>,
    ) -> State {
        self.asked = 0;
        let error = match taken {
            Ok(Reply::Written(_)) => {
                it.step = Step::Reading(open, true);
                return match first {
                    Some(first) => self.operate_answered(now, CALL, it, first, out),
                    None => State::Operating(it),
                };
            }
            taken => taken.err().unwrap_or(Error::Disconnected),
        };
        if first.is_none() {
            out.push(Output::Cancel(CALL));
            it.step = Step::Failing(open, error);
            return State::Operating(it);
        }
        out.push(Output::Close(open));
        self.fail(now, status(error), out)
    }

    /// Gathers responses, or streams them.
    fn operate_heard(
        &mut self,
        now: Instant,
        mut it: Box<Operate>,
        data: &[u8],
        out: &mut Vec<Output>,
    ) -> State {
        assert!(!data.is_empty(), "no bytes are the end");
        assert!(matches!(it.step, Step::Reading(_, false)), "the read has ended");
        it.heard += memchr::memchr_iter(b'\n', data).count();
        it.scan.feed(data);
        self.see(&it);
        it.said.extend_from_slice(data);
        let ends = it.heard >= it.asked;
        if !ends && !it.streams && it.said.len() <= self.at_most(GATHERED_MAX) {
            return self.operate_read(it, out);
        }
        if it.streams || !ends {
            self.operate_stream(now, &mut it, out);
        }
        if !ends {
            return self.operate_read(it, out);
        }
        if let Step::Reading(open, _) = it.step {
            let kept = Kept { service: it.service.clone(), open };
            match it.scan.token_refused {
                // A new file forgets the invalid token.
                true => kept.close(out),
                false => self.kept = Some(kept),
            }
        }
        match it.streams {
            true if self.manner.is_1_1 => self.say(Buf::from(&b"0\r\n\r\n"[..]), out),
            true => {}
            false => self.operate_say(now, &it, out),
        }
        self.done(now, out)
    }

    /// Streams the gathered responses, behind a head that does not reveal the outcome.
    fn operate_stream(&mut self, now: Instant, it: &mut Operate, out: &mut Vec<Output>) {
        let chunked = self.manner.is_1_1;
        if !it.streams {
            it.streams = true;
            self.last |= !chunked;
            let head = Head::new(200)
                .field("Content-Type", "application/x-ndjson")
                .field("Cache-Control", "no-store");
            let head = match chunked {
                true => head.field("Transfer-Encoding", "chunked"),
                false => head,
            };
            let head = self.end(now, head);
            self.say(Buf::from(head), out);
        }
        let said = frame(Buf::from(std::mem::take(&mut it.said)), chunked);
        self.say(said, out);
    }

    /// Records the token that the client sees.
    fn see(&mut self, it: &Operate) {
        if let Some(token) = &it.scan.token {
            self.tokens.insert(it.service.clone(), token.clone());
        } else if it.scan.lost {
            self.tokens.remove(&it.service);
        }
    }

    /// Sends the responses. The error of a single operation determines the status, too.
    fn operate_say(&mut self, now: Instant, it: &Operate, out: &mut Vec<Output>) {
        assert!(!it.streams, "a head is said once");
        assert!(it.heard >= it.asked, "all answers have come");
        let failed = it.said.starts_with(b"{\"error\"") && it.asked == 1;
        let code = match failed {
            false => 200,
            true if BAD.iter().any(|reason| has_reason(&it.said, reason)) => 400,
            true => 503,
        };
        let kind = if it.asked == 1 { "application/json" } else { "application/x-ndjson" };
        let mut head = Head::new(code)
            .field("Content-Type", kind)
            .field("Cache-Control", "no-store")
            .field("Content-Length", it.said.len());
        let token = it.scan.token.as_deref();
        // A session that has seen a lost operation is over.
        if token.is_some() || it.scan.lost {
            let service = String::from_utf8_lossy(it.service.as_bytes());
            let (token, age) =
                (token.unwrap_or(""), if token.is_some() { "" } else { "; Max-Age=0" });
            let cookie = format!("{COOKIE}{service}={token}; Path=/services/{service}{age}");
            head = head.field("Set-Cookie", format_args!("{cookie}; SameSite=Strict; HttpOnly"));
        }
        let mut bytes = self.end(now, head);
        bytes.extend_from_slice(&it.said);
        self.say(Buf::from(bytes), out);
    }
}

/// Reasons for which no replica would accept an operation.
const BAD: [&str; 3] = ["malformed", "token", "stale"];

/// Reason for an operation that depends on one lost with a replica.
const LOST: &str = "lost";

/// Returns whether a response has this reason. Inside of a text the quotation marks would be
/// escaped.
fn has_reason(said: &[u8], reason: &str) -> bool {
    memchr::memmem::find(said, format!("\"reason\":\"{reason}\"").as_bytes()).is_some()
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
fn last_token(said: &[u8]) -> Option<&str> {
    let last = memchr::memmem::find_iter(said, b"\"token\":\"").last();
    let at = last? + b"\"token\":\"".len();
    let token = said[at..].split(|byte| *byte == b'"').next()?;
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
        let said = b"{\"token\":\"a\"}\n{\"token\":\"7-1:2.3:4\"}\n{\"error\":\"x\"}\n";
        assert_eq!(last_token(said), Some("7-1:2.3:4"));
        let hits = Name::new(b"hits").expect("a name");
        let cookies = "x=y; upcall-hits2=3; upcall-hits=7-1:2.3:4; z";
        assert_eq!(token_in(cookies, &hits).as_deref(), Some("7-1:2.3:4"));
        assert_eq!(token_in("upcall-hits=a\nb", &hits).as_deref(), Some("a?b"));
        assert_eq!(token_in("upcall-hits=", &hits).as_deref(), Some(""));
        assert_eq!(token_in("hits=1", &hits), None);
    }
}
