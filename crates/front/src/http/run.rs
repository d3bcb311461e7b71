//! `POST /.upcall/storelets`: runs a program of the client beside the data.
//!
//! The body is the program, or its input if the query names one that the server has. The output of
//! the program is streamed as the response; its outcome follows in trailers. The program is an open
//! file of the tree of storelets, so closing the file when the client disconnects ends it. A client
//! that closes its sending direction counts as disconnected: nothing else would reveal the loss of
//! a client while its program is silent.
//!
//! `GET /logs/x?storelet=wc` runs the storelet installed under that name, with the file as its
//! input. It is read-only, as a `GET` must be. `POST /.upcall/storelets/install` installs a
//! storelet.

use super::answer::{Head, status};
use super::body::Remaining;
use super::transfer::frame;
use super::{CALL, FEED, Session, State};
use crate::{CallId, Output};
use base::{Access, Buf, Caller, Error, Instant, Kind, Name, User};
use serde_json::Value;
use std::mem;
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId, Reply};
use wire::http::{Body, Request, Verdict, encode_component, refusal};
use wire::storelet::{Frame, encode_input};

/// Directory that accepts programs.
pub(super) const PLACE: [&[u8]; 2] = [b".upcall", b"storelets"];
const NEW: &[u8] = b"new";
const INSTALL: &[u8] = b"install";

/// Size of a read of the output, bytes, and maximum number of unsent bytes before it.
const PIECE: u32 = 64 << 10;
const AHEAD: usize = 64 << 10;

/// Maximum number of buffered bytes of a body.
const BODY_MAX: usize = 256 << 10;

/// Maximum number of bytes of standard error reported at the end.
const COMPLAINT_MAX: usize = 2 << 10;

/// Refusal of an installation.
const COMMANDERS: &str =
    "only root and the server's own user install storelets, over a unix socket";

/// Words of an order that the query must not contain, because they are set here.
const OURS: [&str; 5] = ["frames", "input", "stdin", "standing", "check"];

/// A running program.
#[derive(Debug)]
pub(super) struct Run {
    step: Step,
    /// File opened to run it.
    file: &'static [u8],
    run_spec: Vec<u8>,
    /// Whether the body is the program's input.
    feeds: bool,
    /// Whether standard error is part of the response.
    merges: bool,
    left: Remaining,
    /// Whether all of the body was written.
    fed: bool,
    /// Output that is not decoded yet.
    said: Vec<u8>,
    complaint: Vec<u8>,
    /// Whether the head of the response was sent.
    headed: bool,
}

/// State of a program.
#[derive(Debug)]
enum Step {
    /// Waiting for the lookup of the file that is its input.
    Looking,
    /// Waiting for the file that starts programs.
    Finding,
    /// Waiting for the open of that file.
    Opening(NodeId),
    /// Waiting for the last write of input, after the end of the program.
    Ending,
    /// Waiting for output, or for the program to take input; whether a read or write is in flight.
    Talking { open: OpenId, reads: bool, writes: bool },
}

impl Run {
    /// Returns whether the connection should be read, given the number of unwritten bytes: for more
    /// of the body, or to detect that the client has disconnected.
    pub(super) fn is_hungry(&self, buffered: usize) -> bool {
        matches!(self.step, Step::Talking { .. }) && buffered < BODY_MAX
    }

    /// Returns the number of bytes being read.
    pub(super) fn reading(&self) -> usize {
        if let Step::Talking { reads: true, .. } = self.step { PIECE as usize } else { 0 }
    }

    /// Returns the number of bytes gathered.
    pub(super) fn gathered(&self) -> usize {
        self.run_spec.capacity() + self.said.capacity() + self.complaint.capacity()
    }

    /// Releases its resources; returns the number of outstanding replies.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> usize {
        let (reads, writes) = match self.step {
            Step::Looking | Step::Finding => (true, false),
            Step::Ending => (false, true),
            Step::Opening(node) => {
                out.push(Output::Release(node));
                (true, false)
            }
            Step::Talking { open, reads, writes } => {
                out.push(Output::Close(open));
                (reads, writes)
            }
        };
        out.extend(reads.then_some(Output::Cancel(CALL)));
        out.extend(writes.then_some(Output::Cancel(FEED)));
        usize::from(reads) + usize::from(writes)
    }
}

impl Session {
    /// Starts a program.
    pub(super) fn run(&mut self, now: Instant, request: Request, out: &mut Vec<Output>) -> State {
        let path = || request.target.path.iter().map(Name::as_bytes);
        let installs = path().eq(PLACE.into_iter().chain([INSTALL]));
        if !path().eq(PLACE) && !installs {
            let reason = "POST starts a program: post it to /.upcall/storelets";
            return self.refuse(now, refusal(405, reason), out);
        }
        let query = match installs {
            true => Query::of_install(&request),
            false => Query::parse(&request),
        };
        let Some(query) = query else {
            let reason = "send a program with its length, or name one: ?module=sha256:HASH";
            return self.refuse(now, refusal(411, reason), out);
        };
        if query.writes && !self.export.web.write {
            let reason = "this server does not write over HTTP: start it with --http-write";
            return self.refuse(now, refusal(403, reason), out);
        }
        let file = if installs { INSTALL } else { NEW };
        self.find_file(file, out);
        if request.expects_continue && self.input.is_empty() {
            self.send_continue(out);
        }
        State::Running(Box::new(query.run(Step::Finding, file)))
    }

    /// Runs an installed storelet with a file as its input.
    pub(super) fn run_named(
        &mut self,
        now: Instant,
        request: &Request,
        out: &mut Vec<Output>,
    ) -> State {
        // The output of a program has no version that a client could know.
        if request.conditions.judge(request.method, None) == Verdict::Failed {
            let reason = "the output of a program has no entity tag; send the request without \
                          If-Match";
            return self.fail(now, refusal(412, reason), out);
        }
        let query = Query::of_named(request, self.manner.head_only);
        let path = request.target.path.clone();
        self.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 }, out);
        State::Running(Box::new(query.run(Step::Looking, NEW)))
    }

    /// Continues after the lookup of the input file.
    fn run_looked(
        &mut self,
        now: Instant,
        mut run: Box<Run>,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        let stat = match reply {
            Ok(Reply::Fetched(stat, _, open)) => {
                out.extend(open.map(Output::Close));
                stat
            }
            Ok(other) => unreachable!("{other:?} answers no fetch"),
            Err(error) => return self.fail(now, status(error), out),
        };
        match stat.kind {
            Kind::File => {}
            Kind::Directory => return self.fail(now, status(Error::IsDirectory), out),
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                return self.fail(now, status(Error::Unsupported), out);
            }
        }
        self.find_file(NEW, out);
        run.step = Step::Finding;
        State::Running(run)
    }

    fn find_file(&mut self, file: &'static [u8], out: &mut Vec<Output>) {
        let names = PLACE.iter().copied().chain([file]);
        let names = names.map(|name| Name::new(name).expect("a plain name")).collect();
        self.ask(Ask::Walk { from: self.export.root, names }, out);
    }

    /// Opens a file. To install, the caller needs administrative rights, and an identity verified
    /// by the kernel.
    fn open_file(&mut self, node: NodeId, file: &[u8], out: &mut Vec<Output>) {
        let access = Access { read: true, write: true, ..Access::default() };
        let caller = match self.caller.clone() {
            Caller::User(user) if file == INSTALL && self.commands => {
                Caller::User(Arc::new(User { commands: true, ..(*user).clone() }))
            }
            caller @ (Caller::User(_) | Caller::Server) => caller,
        };
        out.push(Output::Ask(CALL, tree::Request { caller, ask: Ask::Open { node, access } }));
    }

    pub(super) fn run_answered(
        &mut self,
        now: Instant,
        call: CallId,
        mut run: Box<Run>,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        if let Step::Talking { reads, writes, .. } = run.step {
            let waits = if call == FEED { writes } else { reads };
            assert!(waits, "only what was asked for is answered");
        }
        match (mem::replace(&mut run.step, Step::Looking), reply) {
            (Step::Looking, reply) => self.run_looked(now, run, reply, out),
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                self.open_file(node, run.file, out);
                run.step = Step::Opening(node);
                State::Running(run)
            }
            (Step::Finding, _) => {
                let reason = "this server runs no programs: start it with --storelet-threads 1";
                self.refuse(now, refusal(404, reason), out)
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                out.push(Output::Release(node));
                let data = Buf::from(mem::take(&mut run.run_spec));
                self.ask_as(FEED, Ask::Write { open, offset: 0, data }, out);
                run.step = Step::Talking { open, reads: false, writes: true };
                self.run_on(run, out)
            }
            (Step::Opening(node), reply) => {
                out.push(Output::Release(node));
                let error = reply.err().unwrap_or(Error::Invalid);
                let refused = match (run.file, error) {
                    (INSTALL, Error::NotPermitted) => refusal(403, COMMANDERS),
                    (_, error) => status(error),
                };
                self.refuse(now, refused, out)
            }
            (Step::Ending, _) => self.done(now, out),
            (Step::Talking { open, reads, .. }, _) if call == FEED => {
                // The report has the error of the order.
                run.step = Step::Talking { open, reads, writes: false };
                self.run_on(run, out)
            }
            (Step::Talking { open, writes, .. }, Ok(Reply::Data(data))) if !data.is_empty() => {
                run.step = Step::Talking { open, reads: false, writes };
                run.said.extend_from_slice(&data);
                self.run_heard(now, run, out)
            }
            (Step::Talking { open, writes, .. }, _) => {
                run.step = Step::Talking { open, reads: false, writes };
                self.run_lost(*run, "the program was lost", out)
            }
        }
    }

    /// Starts the reads and writes that are possible now.
    pub(super) fn run_on(&mut self, mut run: Box<Run>, out: &mut Vec<Output>) -> State {
        let Step::Talking { open, mut reads, mut writes } = run.step else {
            return State::Running(run);
        };
        if self.last_byte_came {
            return self.run_lost(*run, "the client left", out);
        }
        if !reads && self.unsent <= AHEAD {
            reads = true;
            self.asked = PIECE as usize;
            self.ask(Ask::Read { open, offset: 0, count: PIECE, headroom: 0 }, out);
        }
        if !writes && !run.fed {
            match self.next_body(&mut run) {
                Ok(data) if !data.is_empty() => {
                    writes = true;
                    self.ask_as(FEED, Ask::Write { open, offset: 0, data: Buf::from(data) }, out);
                }
                Ok(_) => {}
                Err(()) => {
                    run.step = Step::Talking { open, reads, writes };
                    return self.run_lost(*run, "the program's input makes no sense", out);
                }
            }
        }
        run.step = Step::Talking { open, reads, writes };
        State::Running(run)
    }

    /// Takes the next part of the body, encoded for the program's file.
    fn next_body(&mut self, run: &mut Run) -> Result<Vec<u8>, ()> {
        let data = run.left.take(&mut self.input).map_err(drop)?;
        run.fed = run.left.is_empty();
        let mut bytes = match (run.feeds, data.is_empty()) {
            (true, false) => encode_input(&data),
            (false, false) => data.to_vec(),
            (_, true) => Vec::new(),
        };
        if run.fed && run.feeds {
            bytes.extend(encode_input(b""));
        }
        Ok(bytes)
    }

    /// Handles output of the program.
    fn run_heard(&mut self, now: Instant, mut run: Box<Run>, out: &mut Vec<Output>) -> State {
        let said = mem::take(&mut run.said);
        let mut rest = &said[..];
        loop {
            let (kind, body) = match Frame::decode(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return self.run_lost(*run, "invalid frame from the program", out),
            };
            rest = &rest[wire::storelet::FRAME_HEAD + body.len()..];
            match kind {
                Frame::State if body == b"running" => self.run_head(now, &mut run, out),
                Frame::State => {}
                Frame::Error if !run.merges => {
                    run.complaint.extend_from_slice(body);
                    let excess = run.complaint.len().saturating_sub(COMPLAINT_MAX);
                    run.complaint.drain(..excess);
                }
                Frame::Output | Frame::Error if body.is_empty() => {}
                Frame::Output | Frame::Error => {
                    let chunk = frame(Buf::from(body), self.manner.is_1_1);
                    self.say(chunk, out);
                }
                Frame::Report => return self.run_end(now, *run, body, out),
            }
        }
        run.said = rest.to_vec();
        self.run_on(run, out)
    }

    /// Starts the response to a running program.
    fn run_head(&mut self, now: Instant, run: &mut Run, out: &mut Vec<Output>) {
        let head = self.safe(run_fields(Head::new(200)));
        let head = match self.manner.is_1_1 {
            true => head
                .field("Trailer", "Upcall-End, Upcall-Exit, Upcall-Complaint, Upcall-Report")
                .field("Transfer-Encoding", "chunked"),
            false => head,
        };
        self.last |= !self.manner.is_1_1;
        run.headed = true;
        let head = self.end(now, head);
        self.say(Buf::from(head), out);
    }

    /// Handles the end of the program.
    fn run_end(&mut self, now: Instant, run: Run, report: &[u8], out: &mut Vec<Output>) -> State {
        let Step::Talking { open, writes, .. } = run.step else {
            unreachable!("who does not talk says nothing")
        };
        out.push(Output::Close(open));
        let text = String::from_utf8_lossy(report);
        let report: Value = serde_json::from_str(&text).unwrap_or_default();
        if run.headed {
            if self.manner.is_1_1 {
                self.say(Buf::from(trailers(&text, &report, &run.complaint).into_bytes()), out);
            }
        } else if report["reason"].is_null() {
            self.run_filed(now, &report, out);
        } else {
            let code = match report["end"].as_str() {
                Some("failed") => 500,
                Some("unknown") => 404,
                Some("refused") => 422,
                Some(_) | None => 503,
            };
            let reason = report["reason"].as_str().unwrap_or_default();
            self.send_error_text(now, code, reason, out);
        }
        // The rest of the body must not be parsed as a request.
        self.last |= !run.fed;
        if writes {
            let step = Step::Ending;
            return State::Running(Box::new(Run { step, ..run }));
        }
        self.done(now, out)
    }

    /// Responds to an installation or a check.
    fn run_filed(&mut self, now: Instant, report: &Value, out: &mut Vec<Output>) {
        let name = report["name"].as_str().unwrap_or_default();
        let version = report["version"].as_u64().map(|version| format!("@{version}"));
        let (code, text) = match report["end"].as_str() {
            Some("installed") => (201, format!("{name}{}\n", version.unwrap_or_default())),
            Some("checked") => {
                let head = self.safe(run_fields(Head::new(200)));
                let head = self.end(now, head);
                return self.say(Buf::from(head), out);
            }
            end => {
                let version = version.unwrap_or_default();
                (200, format!("{name}{version} {}\n", end.unwrap_or_default()))
            }
        };
        let head = Head::new(code)
            .field("Content-Type", "text/plain; charset=utf-8")
            .field("Content-Length", text.len());
        let mut bytes = self.end(now, head);
        bytes.extend_from_slice(text.as_bytes());
        self.say(Buf::from(bytes), out);
    }

    /// Aborts the response, which can only be signalled by an early end.
    fn run_lost(&mut self, run: Run, why: &'static str, out: &mut Vec<Output>) -> State {
        (self.asked, self.input) = (0, Buf::default());
        let asked = run.forget(out);
        out.push(Output::Hangup(why));
        State::Closing { asked }
    }
}

/// Parameters of the query.
struct Query {
    run_spec: Vec<u8>,
    feeds: bool,
    merges: bool,
    /// Whether the program may change files.
    writes: bool,
    left: Remaining,
}

impl Query {
    /// Parses the query. `None`: it has neither a program nor the name of one.
    fn parse(request: &Request) -> Option<Query> {
        let left = Remaining::of(request.body);
        let pairs = &request.target.query;
        let named = pairs.iter().any(|(key, _)| key == "module");
        let mut run_spec = match (named, request.body) {
            (true, _) => b"frames\ninput\n".to_vec(),
            (false, Body::Length(length)) => format!("frames\nmodule {length}\n").into_bytes(),
            (false, Body::None | Body::Chunked) => return None,
        };
        let (mut merges, mut writes) = (false, false);
        for (key, value) in pairs {
            match key.as_str() {
                "errors" => merges = true,
                key if OURS.contains(&key) => {}
                key => {
                    writes |= key == "write";
                    let (key, value) = (encode_component(key.as_bytes()), encode_component(value));
                    run_spec.extend_from_slice(format!("{key} {value}\n").as_bytes());
                }
            }
        }
        run_spec.push(b'\n');
        Some(Query { run_spec, feeds: named, merges, writes, left })
    }

    /// Parses the query of a run of installed storelets, with the file of the request as input.
    /// Parameters of a storelet follow its name; those before the first name apply to the last one.
    fn of_named(request: &Request, is_check: bool) -> Query {
        let path = request.target.path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/');
        let check = if is_check { "check\n" } else { "" };
        let mut run_spec =
            format!("frames\n{check}stdin /{}\n", encode_component(&path)).into_bytes();
        let (mut merges, mut early) = (false, Vec::new());
        let pairs = &request.target.query;
        let first = pairs.iter().position(|(key, _)| key == "storelet");
        for (place, (key, value)) in pairs.iter().enumerate() {
            match key.as_str() {
                "errors" => merges = true,
                "storelet" => {
                    for name in value.split(|byte| *byte == b'|') {
                        let name = encode_component(name.trim_ascii());
                        run_spec
                            .extend_from_slice(format!("standing {name}\nread-only\n").as_bytes());
                    }
                }
                key if OURS.contains(&key) => {}
                key => {
                    let (key, value) = (encode_component(key.as_bytes()), encode_component(value));
                    let line = format!("{key} {value}\n").into_bytes();
                    let before = first.is_none_or(|first| place < first);
                    if before { early.extend(line) } else { run_spec.extend(line) }
                }
            }
        }
        run_spec.extend(early);
        run_spec.push(b'\n');
        Query { run_spec, feeds: false, merges, writes: false, left: Remaining::Length(0) }
    }

    /// Parses the query of an installation. `None`: the module is missing, or the length of the
    /// body is unknown.
    fn of_install(request: &Request) -> Option<Query> {
        let pairs = &request.target.query;
        let alone = pairs.iter().any(|(key, _)| ["use", "remove"].contains(&key.as_str()));
        let (mut run_spec, left) = match (alone, request.body) {
            (true, Body::None) => (b"frames\n".to_vec(), 0),
            (true, Body::Length(length)) => (b"frames\n".to_vec(), length),
            (false, Body::Length(length)) => {
                (format!("frames\nmodule {length}\n").into_bytes(), length)
            }
            (_, Body::None | Body::Chunked) => return None,
        };
        for (key, value) in pairs.iter().filter(|(key, _)| key != "frames") {
            let (key, value) = (encode_component(key.as_bytes()), encode_component(value));
            run_spec.extend_from_slice(format!("{key} {value}").trim_end().as_bytes());
            run_spec.push(b'\n');
        }
        run_spec.push(b'\n');
        let left = Remaining::Length(left);
        Some(Query { run_spec, feeds: false, merges: false, writes: true, left })
    }

    /// Creates the run of this query.
    fn run(self, step: Step, file: &'static [u8]) -> Run {
        Run {
            step,
            file,
            run_spec: self.run_spec,
            feeds: self.feeds,
            merges: self.merges,
            left: self.left,
            fed: false,
            said: Vec::new(),
            complaint: Vec::new(),
            headed: false,
        }
    }
}

/// Adds the fields common to all responses of programs.
fn run_fields(head: Head) -> Head {
    head.field("Content-Type", "application/octet-stream")
        .field("Cache-Control", "no-store")
        .field("Accept-Ranges", "none")
}

/// Returns whether a request runs a storelet on the file that it names.
pub(super) fn names_storelet(request: &Request) -> bool {
    request.target.query.iter().any(|(key, _)| key == "storelet")
}

/// Returns the trailers: the outcome of the program, and the beginning of standard error.
fn trailers(report_text: &str, report: &Value, complaint: &[u8]) -> String {
    let end = report["end"].as_str().unwrap_or_default();
    let mut text = format!("0\r\nUpcall-End: {end}\r\n");
    let exit = report["exit"].as_u64().map(|code| format!("Upcall-Exit: {code}\r\n"));
    text.extend(exit);
    if !complaint.is_empty() {
        text += &format!("Upcall-Complaint: {}\r\n", encode_component(complaint));
    }
    // A field is ASCII.
    let ascii = report_text.chars().map(|c| if c.is_ascii() { c } else { '?' });
    text + "Upcall-Report: " + &ascii.collect::<String>() + "\r\n\r\n"
}
