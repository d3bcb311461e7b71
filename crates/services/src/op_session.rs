//! Operation session on an open file `ops`: requests, and answers in the order of requests.
//!
//! A line that begins with `{` is a JSON object, any other is an operation in words:
//!
//! ```text
//!   {"op": {"add": 5}, "strict": true, "after": "009f03a2-1:7.2:3", "timeout": 2.5}
//!   {"op": ["add", "5"], "session": "8f2c46e0aa0f4b1cb1b7c2a4d5e6f701", "number": 1}
//!   add 5
//! ```
//!
//! Each request is answered by one line of JSON. The file is a session: a request is ordered after
//! everything that earlier answers have shown, so that clients read their own writes. A line
//! `after TOKEN` continues another session, and is not answered. If the token is invalid, the
//! requests after it are rejected until a valid one. A request with a number in a session of the
//! client's own, whose identifier it draws at random, executes once, however often and wherever it
//! is sent ([`replica::data::once`]).

use crate::pieces::{self, Pieces};
use crate::rejection::{Detail, Rejection, Topic};
use base::{Buf, Error};
use replica::data::kind::{JSON_MAX, Operator};
use replica::data::once::{Call, SessionId};
use replica::data::{Kind, Value};
use replica::service::{Refusal, ReplicaId, Ticket, Vector};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::time::Duration;

/// Maximum length of a line, in bytes.
pub(crate) const LINE_MAX: usize = JSON_MAX + 4096;

/// Maximum unanswered requests of one file.
pub(crate) const REQUESTED_MAX: usize = 1024;

/// Bytes of unread answers of one file at which no more requests are processed.
pub(crate) const HELD_MAX: usize = 4 << 20;

/// Length of an answer, with its newline, for which memory is always reserved: at least an error.
/// In bytes.
pub(crate) const ANSWER_RESERVED: usize = pieces::SIZE_MIN;

/// Bytes charged for a request until its answer is readable: a reserved answer, and a slot in a
/// queue that is at least a quarter full.
pub(crate) const QUESTION: usize =
    ANSWER_RESERVED + pieces::OVERHEAD + 4 * size_of::<(Ticket, Option<Vec<u8>>)>();

/// Error without room for an explanation.
const UNEXPLAINED: &str = "not done, and the reason does not fit: too many unread answers of this \
                           replica; read them before sending more";

/// Error without room for an answer.
const UNREAD: &str = "done, but its answer does not fit: too many unread answers of this replica; \
                      read them before sending more";

/// Rejection of requests behind a malformed `after` line, once its error has been sent.
const WRONG_TOKEN: &str = "the line 'after TOKEN' before it is invalid, as its answer explains";

/// Maximum length of a token in bytes, beyond the maximum origins of a service.
const TOKEN_MAX: usize = 4096;

/// Default timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum timeout of a request.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Operation request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpRequest {
    pub(crate) operator: Operator,
    /// Identity for exactly-once execution.
    pub(crate) once: Option<Call>,
    pub(crate) strict: bool,
    pub(crate) after: Vector,
    pub(crate) timeout: Duration,
}

impl OpRequest {
    /// Creates a request with defaults.
    fn plain(operator: Operator, strict: bool) -> OpRequest {
        OpRequest { operator, once: None, strict, after: Vector::new(), timeout: TIMEOUT }
    }
}

/// JSON form of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpLine<'a> {
    #[serde(borrow)]
    op: &'a serde_json::value::RawValue,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    session: Option<SessionId>,
    #[serde(default)]
    number: Option<NonZeroU64>,
}

/// JSON form of an answer.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    value: &'a Value,
    #[serde(rename = "final")]
    is_final: bool,
    token: String,
}

/// JSON form of an error.
#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    replicas: &'a [ReplicaId],
}

/// Operation session.
#[derive(Debug)]
pub(crate) struct OpSession {
    /// Identifier of the service, and the valid origins in tokens; a replica that is not a member
    /// yet does not know them.
    service: u32,
    origins: Option<Vec<ReplicaId>>,
    /// Bytes written but not processed.
    input: Buf,
    /// Length of the first complete line in them, and below the length scanned for it.
    end: Option<usize>,
    scanned: usize,
    /// Work units left in its turn; negative after an expensive line.
    pub(crate) credit: i64,
    /// Turn of the session, if it has lines.
    pub(crate) turn: Option<u64>,
    /// Operations shown by its answers.
    token: Vector,
    /// Error in the token of the last `after` line.
    wrong: Option<String>,
    /// Details already sent.
    explained: Vec<Topic>,
    /// Requests in order, each with its answer if known.
    requested: VecDeque<(Ticket, Option<Vec<u8>>)>,
    /// Readable answers.
    replies: Pieces,
    /// Total bytes of answers.
    answers: usize,
    /// Bytes of answers not yet readable, beyond the reserved length of each.
    early: usize,
}

impl OpSession {
    /// Creates a session with this service.
    pub(crate) fn new(service: u32, origins: Option<Vec<ReplicaId>>) -> OpSession {
        let (token, wrong, requested) = (Vector::new(), None, VecDeque::new());
        let (input, replies) = (Buf::default(), Pieces::default());
        OpSession {
            service,
            origins,
            input,
            end: None,
            scanned: 0,
            credit: 0,
            turn: None,
            token,
            wrong,
            explained: Vec::new(),
            requested,
            replies,
            answers: 0,
            early: 0,
        }
    }

    /// Accepts written bytes.
    ///
    /// # Errors
    /// If earlier lines are still pending, or a line is too long.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        if self.has_lines() {
            return Err(Error::Busy);
        }
        self.input.extend(data);
        self.find_end();
        if self.input.len() > LINE_MAX && !self.has_lines() {
            (self.input, self.scanned) = (Buf::default(), 0);
            return Err(Error::FileTooLarge);
        }
        Ok(())
    }

    /// Scans new bytes for the end of the first line.
    fn find_end(&mut self) {
        if self.end.is_none() {
            let found = memchr::memchr(b'\n', &self.input[self.scanned..]);
            self.end = found.map(|at| self.scanned + at);
            self.scanned = self.end.unwrap_or(self.input.len());
        }
    }

    /// Reports whether a complete line is pending.
    pub(crate) fn has_lines(&self) -> bool {
        self.end.is_some()
    }

    /// Reports whether a line can be processed: one is complete, and there is room for its answer.
    pub(crate) fn can_go_on(&self) -> bool {
        self.has_lines() && self.requested.len() < REQUESTED_MAX && self.answers < HELD_MAX
    }

    /// Returns the bytes held: lines, requests and answers.
    pub(crate) fn held(&self) -> usize {
        let wrong = self.wrong.as_ref().map_or(0, String::len);
        let questions = self.requested.len() * QUESTION + self.early;
        self.input.capacity() + wrong + questions + self.replies.memory()
    }

    /// Takes the next complete line, if there is room for its answer.
    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        if !self.can_go_on() {
            return None;
        }
        let end = self.end.take()?;
        let line = self.input[..end].to_vec();
        self.input.consume(end + 1);
        self.input.shrink();
        self.scanned = 0;
        self.find_end();
        Some(line)
    }

    /// Sets the valid origins in tokens.
    pub(crate) fn know(&mut self, origins: &[ReplicaId]) {
        self.token = self.token.iter().filter(|(id, _)| origins.contains(id)).collect();
        self.origins = Some(origins.to_vec());
    }

    /// Resets the session: operations seen are forgotten.
    pub(crate) fn forget(&mut self) {
        self.token = Vector::new();
    }

    /// Processes a line `after TOKEN`. Returns whether it was one.
    pub(crate) fn remember(&mut self, line: &[u8]) -> bool {
        let Some(token) = line.strip_prefix(b"after ") else { return false };
        let token = String::from_utf8_lossy(token);
        match read_token(self.service, self.origins.as_deref(), token.trim()) {
            Ok(token) => {
                self.token.join(&token);
                self.wrong = None;
            }
            Err(why) => {
                self.wrong = Some(why);
                self.explained.retain(|topic| *topic != Topic::Token);
            }
        }
        true
    }

    /// Parses an operation request, ordered after everything that the session has seen.
    ///
    /// # Errors
    /// A rejection, if the line or the `after` line before it is malformed.
    pub(crate) fn op_request(&self, kind: Kind, line: &[u8]) -> Result<OpRequest, Rejection> {
        if let Some(why) = &self.wrong {
            let detail = Some(Detail::Token(why.clone()));
            return Err(Rejection { detail, ..Rejection::token(WRONG_TOKEN) });
        }
        let text = str::from_utf8(line).map_err(|_| "a line is not UTF-8".to_string())?.trim();
        let mut op_request = match text.as_bytes().first() {
            Some(b'{') => self.read_json(kind, text)?,
            Some(b'"') => OpRequest::plain(kind.read_json(text.as_bytes())?, false),
            Some(_) | None => read_words(kind, text)?,
        };
        op_request.after.join(&self.token);
        Ok(op_request)
    }

    fn read_json(&self, kind: Kind, text: &str) -> Result<OpRequest, Rejection> {
        let requested: OpLine<'_> = serde_json::from_str(text)
            .map_err(|error| format!("{error}; write {{\"op\": …, \"strict\": true}}"))?;
        let op = requested.op.get();
        let operator = match op.starts_with('[') {
            true => {
                let words: Vec<String> = serde_json::from_str(op)
                    .map_err(|error| format!("{error}; \"op\" in words is an array of strings"))?;
                kind.read_words(&words)
            }
            false => kind.read_json(op.as_bytes()),
        };
        let operator = operator?;
        let read = |token: &str| read_token(self.service, self.origins.as_deref(), token);
        let after = requested
            .after
            .as_deref()
            .map(read)
            .transpose()
            .map_err(|why| Rejection::token(&why))?;
        let after = after.unwrap_or_default();
        let timeout = match requested.timeout {
            None => TIMEOUT,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|timeout| *timeout <= TIMEOUT_MAX)
                .ok_or_else(|| "\"timeout\" is a number of seconds, at most 3600".to_string())?,
        };
        let once = match (requested.session, requested.number) {
            (Some(session), Some(number)) => Some(Call { session, number }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let text = "\"session\" and \"number\" belong together: give both, or none";
                return Err(text.to_string().into());
            }
        };
        Ok(OpRequest { operator, once, strict: requested.strict, after, timeout })
    }

    /// Returns the text of a rejection, and the detail in it, unless that was sent before.
    pub(crate) fn explain(&self, rejection: Rejection) -> (String, Option<Topic>) {
        let detail = rejection.detail.filter(|it| !self.explained.contains(&it.topic()));
        detail.map_or((rejection.text, None), |it| (it.text(), Some(it.topic())))
    }

    /// Records that a detail was sent.
    pub(crate) fn explained(&mut self, topic: Topic) {
        assert!(!self.explained.contains(&topic), "a detail is sent once");
        self.explained.push(topic);
    }

    /// Adds an unanswered request.
    pub(crate) fn ask(&mut self, ticket: Ticket) {
        assert!(self.requested.back().is_none_or(|(last, _)| *last < ticket), "tickets grow");
        self.requested.push_back((ticket, None));
    }

    /// Formats the answer to a request.
    pub(crate) fn line(&self, value: &Value, is_final: bool, token: &Vector) -> Vec<u8> {
        let mut shown = self.token.clone();
        shown.join(token);
        let token = show_token(self.service, &shown);
        let line = serde_json::to_vec(&Answer { value, is_final, token });
        line.expect("values are JSON")
    }

    /// Answers a request with this line, which shows the operations of `token`.
    pub(crate) fn answer(&mut self, ticket: Ticket, line: Vec<u8>, token: &Vector) {
        self.token.join(token);
        self.put(ticket, line);
    }

    /// Answers a request whose operation is done, but whose result has no room.
    pub(crate) fn answer_none(&mut self, ticket: Ticket) {
        self.put(ticket, complaint(UNREAD, "unread", &[]));
    }

    /// Answers a request with an error: with this line, if there was room for it.
    pub(crate) fn complain(&mut self, ticket: Ticket, line: Option<Vec<u8>>) {
        self.put(ticket, line.unwrap_or_else(|| complaint(UNEXPLAINED, "unread", &[])));
    }

    fn put(&mut self, ticket: Ticket, mut line: Vec<u8>) {
        line.push(b'\n');
        let requested = self.requested.binary_search_by_key(&ticket, |(requested, _)| *requested);
        let place = requested.expect("nothing is answered twice");
        assert!(self.requested[place].1.is_none(), "a question has one answer");
        self.answers += line.len();
        self.early += beyond_reserve(&line);
        if place > 0 {
            line.shrink_to_fit();
        }
        self.requested[place].1 = Some(line);
        while let Some((_, Some(line))) = self.requested.pop_front_if(|(_, line)| line.is_some()) {
            self.early -= beyond_reserve(&line);
            self.replies.extend(&line);
        }
        if self.requested.capacity() > 4 * self.requested.len() {
            self.requested.shrink_to(2 * self.requested.len());
        }
    }

    /// Reads up to `count` bytes of answers; `None` if none is ready yet, empty if no request is
    /// pending.
    pub(crate) fn read(&mut self, count: usize) -> Option<Vec<u8>> {
        if self.replies.len() == 0 && (!self.requested.is_empty() || self.has_lines()) {
            return None;
        }
        let some = self.replies.take(count);
        self.answers -= some.len();
        Some(some)
    }

    pub(crate) fn check(&self) {
        let early = || self.requested.iter().filter_map(|(_, line)| line.as_deref());
        assert_eq!(self.answers, self.replies.len() + early().map(<[u8]>::len).sum::<usize>());
        let early_beyond = early().map(beyond_reserve).sum::<usize>();
        assert_eq!(self.early, early_beyond);
        assert!(
            self.requested.capacity() <= 4 * self.requested.len(),
            "entries of the queue are counted"
        );
        assert!(
            self.requested.iter().is_sorted_by(|a, b| a.0 < b.0),
            "questions are in their order"
        );
        let first = self.requested.front();
        assert!(
            first.is_none_or(|(_, line)| line.is_none()),
            "a complete reply at the front is written"
        );
        assert!(self.scanned <= self.input.len());
        assert!(self.end.is_none_or(|end| end == self.scanned), "nobody looks behind a line");
    }

    /// Returns the unanswered requests.
    pub(crate) fn open(&self) -> impl Iterator<Item = Ticket> {
        self.requested.iter().filter(|(_, answer)| answer.is_none()).map(|(ticket, _)| *ticket)
    }
}

/// Formats an error: text for people, code for programs, and the replicas at fault.
pub(crate) fn complaint(error: &str, reason: &'static str, replicas: &[ReplicaId]) -> Vec<u8> {
    serde_json::to_vec(&ErrorBody { error, reason, replicas }).expect("words are JSON")
}

/// Returns the bytes of an answer beyond its reserved length.
fn beyond_reserve(line: &[u8]) -> usize {
    line.len().saturating_sub(ANSWER_RESERVED)
}

fn read_words(kind: Kind, text: &str) -> Result<OpRequest, Rejection> {
    let mut words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
    let strict = words.first().is_some_and(|word| word == "strict");
    words.drain(..usize::from(strict));
    Ok(OpRequest::plain(kind.read_words(&words)?, strict))
}

/// Formats a token: the service, then replicas with numbers, such as `009f03a2-1:12.3:7`.
pub(crate) fn show_token(service: u32, token: &Vector) -> String {
    let mut text = String::with_capacity(32);
    write!(text, "{service:08x}-").expect("a string");
    write_vector(&mut text, token, ".");
    text
}

/// Formats a vector: replicas with numbers.
pub(crate) fn show_vector(vector: &Vector, between: &str) -> String {
    let mut text = String::new();
    write_vector(&mut text, vector, between);
    text
}

fn write_vector(text: &mut String, vector: &Vector, between: &str) {
    let mut space = "";
    for (id, number) in vector.iter().filter(|(_, number)| *number > 0) {
        write!(text, "{space}{}:{number}", id.0).expect("a string");
        space = between;
    }
}

/// Parses a token, which may name only valid origins, or any replica if those are unknown.
///
/// # Errors
/// An explanation of the problem.
pub(crate) fn read_token(
    service: u32,
    origins: Option<&[ReplicaId]>,
    text: &str,
) -> Result<Vector, String> {
    if text.len() > TOKEN_MAX {
        return Err("the token is too long; use the token of an answer".to_string());
    }
    let wrong = || format!("'{text}' is not a token; use the token of an answer");
    let (id, parts) = text.split_once('-').ok_or_else(wrong)?;
    let id = u32::from_str_radix(id, 16).map_err(|_| wrong())?;
    if id != service {
        return Err(format!("'{text}' is a token of another service; omit it"));
    }
    let part = |part: &str| {
        let (id, number) = part.split_once(':').ok_or_else(wrong)?;
        let id = ReplicaId(id.parse().map_err(|_| wrong())?);
        if origins.is_some_and(|origins| !origins.contains(&id)) {
            return Err(wrong());
        }
        Ok((id, number.parse().map_err(|_| wrong())?))
    };
    parts.split('.').filter(|part| !part.is_empty()).map(part).collect()
}

/// Formats replicas with their addresses, for people.
fn name_all(ids: &[ReplicaId], members: &BTreeMap<ReplicaId, String>) -> String {
    let name = |id: &ReplicaId| match members.get(id) {
        Some(address) => format!("{} ({address})", id.0),
        None => format!("{} (which is none of the members)", id.0),
    };
    let names: Vec<String> = ids.iter().map(name).collect();
    let noun = if ids.len() == 1 { "replica" } else { "replicas" };
    format!("{noun} {}", names.join(" and "))
}

/// Explains a refusal: text for people, code for programs, and the replicas at fault.
pub(crate) fn explain(
    refusal: Refusal,
    members: &BTreeMap<ReplicaId, String>,
) -> (String, &'static str, Vec<ReplicaId>) {
    let all = |ids: &[ReplicaId]| name_all(ids, members);
    let all_have = |ids: &[ReplicaId]| match ids.len() {
        1 => format!("{} has", all(ids)),
        _ => format!("{} have", all(ids)),
    };
    let runs = |ids: &[ReplicaId]| match ids.len() {
        1 => "it runs and can be reached",
        _ => "they run and can be reached",
    };
    match refusal {
        Refusal::Behind(ids) => {
            let text = format!(
                "not done: its predecessors have not arrived from {}; check whether {}",
                all(&ids),
                runs(&ids)
            );
            (text, "behind", ids)
        }
        Refusal::NotFinal(ids) => {
            let text = format!(
                "done, but not known to be final: {} not acknowledged it; check whether {}",
                all_have(&ids),
                runs(&ids)
            );
            (text, "not-final", ids)
        }
        Refusal::Full(ids) => {
            let text = format!(
                "not done: too many operations are kept for others: {} not acknowledged them; \
                 check whether {}",
                all_have(&ids),
                runs(&ids)
            );
            (text, "full", ids)
        }
        Refusal::Busy => {
            let text = "not done: too many operations wait for others, or for the journal; try \
                        again later";
            (text.to_string(), "busy", Vec::new())
        }
        Refusal::Unwritten => {
            let text = "done or not: the journal of this replica had not written it when the time \
                        was over; ask again, with more time, or look at its disk";
            (text.to_string(), "unwritten", Vec::new())
        }
        Refusal::Lost(ids) => {
            let text = format!(
                "not done: operations that this session has seen were lost with {}, which was \
                 removed; a new session begins here: check the value and send it again",
                all(&ids)
            );
            (text, "lost", ids)
        }
        Refusal::Outside => {
            let text = "not done: this replica is no member of its service yet, or any more, or is \
                        leaving it: ask another one";
            (text.to_string(), "outside", Vec::new())
        }
        Refusal::Outdated => {
            let text = "not done: this replica is an older copy of itself, and would give numbers \
                        twice: end its server, and find its newest file";
            (text.to_string(), "outdated", Vec::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [ReplicaId; 3] = [ReplicaId(1), ReplicaId(2), ReplicaId(3)];

    fn answer(op_session: &mut OpSession, ticket: u64, value: &Value, token: &Vector) {
        let line = op_session.line(value, false, token);
        op_session.answer(Ticket(ticket), line, token);
    }

    #[test]
    fn a_token_is_what_it_says() {
        let token = read_token(0x7f, Some(&MEMBERS), "7f-1:12.3:7").expect("a token");
        assert_eq!(show_token(0x7f, &token), "0000007f-1:12.3:7");
        assert_eq!(
            read_token(0x7f, Some(&MEMBERS), &show_token(0x7f, &Vector::new())),
            Ok(Vector::new())
        );
        let wrong =
            ["", "7f", "7e-1:12", "7f-1", "7f-1:", "7f-:1", "7f-1:2:3", "7f-x:1", "7f-1:-1"];
        for wrong in wrong.into_iter().chain(["7f-70000:1", "7f-4:1"]) {
            assert!(read_token(0x7f, Some(&MEMBERS), wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answers_come_in_the_order_of_questions() {
        let mut op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
        assert_eq!(op_session.write(b"add 1\nread"), Ok(()));
        assert_eq!(op_session.next_line().as_deref(), Some(&b"add 1"[..]));
        assert_eq!((op_session.next_line(), op_session.write(b"\n")), (None, Ok(())));
        assert_eq!(op_session.next_line().as_deref(), Some(&b"read"[..]));
        let op_request = op_session.op_request(Kind::Counter, b"strict read").expect("a question");
        assert!(op_request.strict && op_request.after == Vector::new());
        op_session.ask(Ticket(1));
        op_session.ask(Ticket(2));
        assert_eq!(op_session.read(100), None);
        let token = read_token(0x7f, Some(&MEMBERS), "7f-1:2").expect("a token");
        answer(&mut op_session, 2, &Value::Integer(1), &token);
        assert_eq!(op_session.read(100), None, "the first is not answered");
        op_session.complain(Ticket(1), Some(complaint("no", "busy", &[])));
        let replies = op_session.read(1000).expect("answers");
        assert_eq!(
            String::from_utf8_lossy(&replies),
            "{\"error\":\"no\",\"reason\":\"busy\"}\n\
             {\"value\":1,\"final\":false,\"token\":\"0000007f-1:2\"}\n"
        );
        assert_eq!(op_session.read(100), Some(Vec::new()), "nothing was requested");
        let next = op_session.op_request(Kind::Counter, b"{\"op\": \"read\"}").expect("a question");
        assert_eq!(next.after, token, "the session carries its token");
        assert_eq!(op_session.write(&vec![b'x'; LINE_MAX + 1]), Err(Error::FileTooLarge));
    }

    #[test]
    fn a_token_that_makes_no_sense_is_not_passed_over() {
        let mut op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
        let read = |op_session: &OpSession| op_session.op_request(Kind::Counter, b"\"read\"");
        for wrong in ["after x", "after ", "after 7e-1:2", "after 7f-9:1"] {
            assert!(op_session.remember(wrong.as_bytes()), "it is no question");
            let replies = |op_session: &OpSession| {
                op_session.explain(read(op_session).expect_err("it is wrong"))
            };
            let Rejection { reason, .. } = read(&op_session).expect_err("it is wrong");
            let (text, topic) = replies(&op_session);
            assert!(text.contains("use the token") || text.contains("omit it"), "{text}");
            assert_eq!(reason, "token");
            assert_eq!(topic, Some(Topic::Token));
            op_session.explained(Topic::Token);
            assert_eq!(replies(&op_session), (format!("not done: {WRONG_TOKEN}"), None));
        }
        assert!(op_session.remember(b"after \xff") && read(&op_session).is_err());
        assert!(op_session.remember(b"after 7f-1:2\r") && read(&op_session).is_ok());
        // An invalid token in the request itself is rejected as well.
        let beside = b"{\"op\": \"read\", \"after\": \"x\"}";
        let wrong = op_session.op_request(Kind::Counter, beside).expect_err("it is wrong");
        assert!(wrong.reason == "token" && wrong.text.starts_with("not done: "), "{wrong:?}");
        assert!(!op_session.remember(b"afternoon"));
    }

    #[test]
    fn all_operations_are_listed_once_in_a_session() {
        let mut op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
        let replies = |op_session: &OpSession, line: &str| {
            op_session.explain(
                op_session.op_request(Kind::Counter, line.as_bytes()).expect_err("it is wrong"),
            )
        };
        let (list, long) = replies(&op_session, "x");
        assert!(
            list.contains("\noperations on a counter:\n") && long == Some(Topic::Words),
            "{list}"
        );
        op_session.explained(Topic::Words);
        assert_eq!(replies(&op_session, "x"), ("unknown operation \"x\"".to_string(), None));
        // The JSON syntax is another list.
        let (list, long) = replies(&op_session, "\"x\"");
        assert!(
            list.contains("\noperations on a counter:\n") && long == Some(Topic::Json),
            "{list}"
        );
        op_session.explained(Topic::Json);
        for line in ["\"x\"", "{\"op\": \"x\"}", "{\"op\": [\"x\"]}", "x"] {
            let (brief, long) = replies(&op_session, line);
            assert!(!brief.contains('\n') && long.is_none(), "{brief}");
        }
    }

    #[test]
    fn all_that_is_allocated_for_answers_is_counted() {
        let allocated = |op_session: &OpSession| {
            let places = op_session.requested.capacity() * size_of::<(Ticket, Option<Vec<u8>>)>();
            let early = op_session.requested.iter().filter_map(|(_, line)| line.as_ref());
            let early = early.map(|line| line.capacity() + 16).sum::<usize>();
            let replies =
                op_session.replies.each().map(|piece| piece.capacity() + pieces::OVERHEAD);
            places + early + replies.sum::<usize>()
        };
        for len in [10, 255, 256, 300, 5000] {
            let mut op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
            (0..REQUESTED_MAX as u64).for_each(|number| op_session.ask(Ticket(number)));
            for number in (0..REQUESTED_MAX as u64).rev() {
                let before = op_session.held();
                op_session.put(Ticket(number), vec![b'x'; len]);
                // Only the part beyond the reserve needs room.
                assert!(op_session.held() <= before + (len + 1).saturating_sub(ANSWER_RESERVED));
                assert!(allocated(&op_session) <= op_session.held(), "{len}: {number}");
                op_session.check();
            }
            while op_session.held() > 0 {
                assert!(op_session.read(777).is_some_and(|some| !some.is_empty()));
                assert!(allocated(&op_session) <= op_session.held(), "{len}");
            }
            assert_eq!(allocated(&op_session), 0);
        }
    }

    /// Above the limit, requests are deferred and further writes fail.
    #[test]
    fn there_is_room_for_so_many_questions() {
        let mut op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
        assert_eq!(op_session.write(&b"read\n".repeat(100_000)), Ok(()));
        for number in 0..REQUESTED_MAX as u64 {
            assert!(op_session.next_line().is_some());
            op_session.ask(Ticket(number));
        }
        assert_eq!((op_session.next_line(), op_session.write(b"read\n")), (None, Err(Error::Busy)));
        answer(&mut op_session, 0, &Value::Nothing, &Vector::new());
        assert!(op_session.next_line().is_some());
    }

    /// Even while the first request is unanswered.
    #[test]
    fn there_is_room_for_so_many_answers() {
        let mut op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
        assert_eq!(op_session.write(&b"read\n".repeat(20)), Ok(()));
        let large = Value::Bytes(vec![b'x'; 1 << 20].into());
        let answer =
            |op_session: &mut OpSession, number| answer(op_session, number, &large, &Vector::new());
        let mut requested = 0;
        while op_session.next_line().is_some() {
            op_session.ask(Ticket(requested));
            if requested > 0 {
                answer(&mut op_session, requested);
            }
            requested += 1;
        }
        assert_eq!((requested, op_session.read(100)), (5, None));
        answer(&mut op_session, 0);
        assert_eq!(op_session.read(3 << 20).map(|replies| replies.len()), Some(3 << 20));
        assert!(op_session.next_line().is_some());
        while op_session.read(1 << 20).is_some_and(|replies| !replies.is_empty()) {}
        assert_eq!(op_session.answers, 0);
    }

    /// However small the writes are, no byte is scanned twice for the end of a line.
    #[test]
    fn a_line_in_many_pieces_is_looked_through_once() {
        let mut op_session = OpSession::new(0x7f, None);
        for written in 1..=3 * (1 << 20) {
            assert_eq!(op_session.write(b"x"), Ok(()));
            assert_eq!(op_session.scanned, written);
        }
        assert_eq!(op_session.write(b"\nab"), Ok(()));
        assert_eq!(op_session.next_line().map(|line| line.len()), Some(3 << 20));
        assert_eq!((op_session.has_lines(), op_session.scanned, op_session.held()), (false, 2, 2));
    }

    #[test]
    fn invalid_requests_are_refused_with_a_reason() {
        let op_session = OpSession::new(0x7f, Some(MEMBERS.to_vec()));
        let wrong = [
            "",
            "{",
            "{}",
            "fly",
            "{\"op\": \"fly\"}",
            "{\"op\": \"read\", \"after\": \"x\"}",
            "{\"op\": \"read\", \"timeout\": -1}",
            "{\"op\": \"read\", \"timeout\": 1e9}",
            "{\"op\": \"read\", \"strikt\": true}",
        ];
        for line in wrong {
            assert!(op_session.op_request(Kind::Counter, line.as_bytes()).is_err(), "{line}");
        }
        assert!(op_session.op_request(Kind::Counter, b"\xff").is_err());
    }
}
