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
use super::exchange::{AHEAD, Context, Exchange, Stay};
use super::get::safe_file;
use super::transfer::frame;
use super::{CALL, FEED, State};
use crate::{CallId, Output};
use base::{Access, Buf, Caller, Error, Kind, Name, User};
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

/// Size of a read of the output, bytes.
const PIECE: u32 = 64 << 10;

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
    output: Vec<u8>,
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

impl Exchange for Run {
    fn name(&self) -> &'static str {
        "running"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        if let Step::Talking { reads, writes, .. } = self.step {
            let waits = if call == FEED { writes } else { reads };
            assert!(waits, "only what was requested is answered");
        }
        match (mem::replace(&mut self.step, Step::Looking), reply) {
            (Step::Looking, reply) => self.looked(cx, reply),
            (Step::Finding, Ok(Reply::Walked(_, Some(node)))) => {
                open_file(cx, node, self.file);
                self.step = Step::Opening(node);
                self.stay()
            }
            (Step::Finding, _) => {
                let reason = "this server runs no programs: start it with --storelet-threads 1";
                cx.refuse(refusal(404, reason))
            }
            (Step::Opening(node), Ok(Reply::Opened(open, _))) => {
                cx.release(node);
                let data = Buf::from(mem::take(&mut self.run_spec));
                cx.ask_as(FEED, Ask::Write { open, offset: 0, data });
                self.step = Step::Talking { open, reads: false, writes: true };
                self.sent(cx)
            }
            (Step::Opening(node), reply) => {
                cx.release(node);
                let error = reply.err().unwrap_or(Error::Invalid);
                let refused = match (self.file, error) {
                    (INSTALL, Error::NotPermitted) => refusal(403, COMMANDERS),
                    (_, error) => status(error),
                };
                cx.refuse(refused)
            }
            (Step::Ending, _) => cx.done(),
            (Step::Talking { open, reads, .. }, _) if call == FEED => {
                // The report has the error of the order.
                self.step = Step::Talking { open, reads, writes: false };
                self.sent(cx)
            }
            (Step::Talking { open, writes, .. }, Ok(Reply::Data(data))) if !data.is_empty() => {
                self.step = Step::Talking { open, reads: false, writes };
                self.output.extend_from_slice(&data);
                self.arrived(cx)
            }
            (Step::Talking { open, writes, .. }, _) => {
                self.step = Step::Talking { open, reads: false, writes };
                self.lost(cx, "the program was lost")
            }
        }
    }

    fn received(self: Box<Self>, cx: &mut Context) -> State {
        self.sent(cx)
    }

    /// Starts the reads and writes that are possible now.
    fn sent(mut self: Box<Self>, cx: &mut Context) -> State {
        let Step::Talking { open, mut reads, mut writes } = self.step else {
            return self.stay();
        };
        if cx.session.last_byte_came {
            return self.lost(cx, "the client left");
        }
        if !reads && cx.session.unsent <= AHEAD {
            reads = true;
            cx.session.outstanding = PIECE as usize;
            cx.ask(Ask::Read { open, offset: 0, count: PIECE, headroom: 0 });
        }
        if !writes && !self.fed {
            match self.next_body(cx) {
                Ok(data) if !data.is_empty() => {
                    writes = true;
                    cx.ask_as(FEED, Ask::Write { open, offset: 0, data: Buf::from(data) });
                }
                Ok(_) => {}
                Err(()) => {
                    self.step = Step::Talking { open, reads, writes };
                    return self.lost(cx, "the program's input makes no sense");
                }
            }
        }
        self.step = Step::Talking { open, reads, writes };
        self.stay()
    }

    fn finish(self: Box<Self>, cx: &mut Context) -> State {
        self.sent(cx)
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        let (reads, writes) = match self.step {
            Step::Looking | Step::Finding => (true, false),
            Step::Ending => (false, true),
            Step::Opening(node) => {
                cx.release(node);
                (true, false)
            }
            Step::Talking { open, reads, writes } => {
                cx.close(open);
                (reads, writes)
            }
        };
        cx.cancel(CALL, reads) + cx.cancel(FEED, writes)
    }

    /// For more of the body, or to detect that the client has disconnected.
    fn is_hungry(&self, buffered: usize) -> bool {
        matches!(self.step, Step::Talking { .. }) && buffered < BODY_MAX
    }

    fn takes_input(&self) -> bool {
        true
    }

    fn gathered(&self) -> usize {
        self.run_spec.capacity() + self.output.capacity() + self.complaint.capacity()
    }

    fn check(&self, requested: usize) {
        let reads = matches!(self.step, Step::Talking { reads: true, .. });
        assert_eq!(requested, if reads { PIECE as usize } else { 0 }, "bytes read are counted");
    }
}

impl Run {
    /// Starts a program.
    pub(super) fn begin(cx: &mut Context, request: &Request) -> State {
        let path = || request.target.path.iter().map(Name::as_bytes);
        let installs = path().eq(PLACE.into_iter().chain([INSTALL]));
        if !path().eq(PLACE) && !installs {
            let reason = "POST starts a program: post it to /.upcall/storelets";
            return cx.refuse(refusal(405, reason));
        }
        let query = match installs {
            true => Query::of_install(request),
            false => Query::parse(request),
        };
        let Some(query) = query else {
            let reason = "send a program with its length, or name one: ?module=sha256:HASH";
            return cx.refuse(refusal(411, reason));
        };
        if query.writes && !cx.session.export.web.write {
            let reason = "this server does not write over HTTP: start it with --http-write";
            return cx.refuse(refusal(403, reason));
        }
        let file = if installs { INSTALL } else { NEW };
        find_file(cx, file);
        if request.expects_continue && cx.session.input.is_empty() {
            cx.send_continue();
        }
        Box::new(query.run(Step::Finding, file)).stay()
    }

    /// Runs an installed storelet with a file as its input.
    pub(super) fn begin_named(cx: &mut Context, request: &Request) -> State {
        // The output of a program has no version that a client could know.
        if request.conditions.judge(request.method, None) == Verdict::Failed {
            let reason = "the output of a program has no entity tag; send the request without \
                          If-Match";
            return cx.fail(refusal(412, reason));
        }
        let query = Query::of_named(request, cx.session.manner.head_only);
        let path = request.target.path.clone();
        cx.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 });
        Box::new(query.run(Step::Looking, NEW)).stay()
    }

    /// Continues after the lookup of the input file.
    fn looked(mut self: Box<Self>, cx: &mut Context, reply: Result<Reply, Error>) -> State {
        let stat = match reply {
            Ok(Reply::Fetched(stat, _, open)) => {
                cx.close(open);
                stat
            }
            Ok(other) => unreachable!("{other:?} answers no fetch"),
            Err(error) => return cx.fail(status(error)),
        };
        match stat.kind {
            Kind::File => {}
            Kind::Directory => return cx.fail(status(Error::IsDirectory)),
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                return cx.fail(status(Error::Unsupported));
            }
        }
        find_file(cx, NEW);
        self.step = Step::Finding;
        self.stay()
    }

    /// Takes the next part of the body, encoded for the program's file.
    fn next_body(&mut self, cx: &mut Context) -> Result<Vec<u8>, ()> {
        let data = self.left.take(&mut cx.session.input).map_err(drop)?;
        self.fed = self.left.is_empty();
        let mut bytes = match (self.feeds, data.is_empty()) {
            (true, false) => encode_input(&data),
            (false, false) => data.to_vec(),
            (_, true) => Vec::new(),
        };
        if self.fed && self.feeds {
            bytes.extend(encode_input(b""));
        }
        Ok(bytes)
    }

    /// Handles output of the program.
    fn arrived(mut self: Box<Self>, cx: &mut Context) -> State {
        let output = mem::take(&mut self.output);
        let mut rest = &output[..];
        loop {
            let (kind, body) = match Frame::decode(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return self.lost(cx, "invalid frame from the program"),
            };
            rest = &rest[wire::storelet::FRAME_HEAD + body.len()..];
            match kind {
                Frame::State if body == b"running" => self.head(cx),
                Frame::State => {}
                Frame::Error if !self.merges => {
                    self.complaint.extend_from_slice(body);
                    let excess = self.complaint.len().saturating_sub(COMPLAINT_MAX);
                    self.complaint.drain(..excess);
                }
                Frame::Output | Frame::Error if body.is_empty() => {}
                Frame::Output | Frame::Error => {
                    cx.send(frame(Buf::from(body), cx.session.manner.is_1_1));
                }
                Frame::Report => return self.end(cx, body),
            }
        }
        self.output = rest.to_vec();
        self.sent(cx)
    }

    /// Starts the response to a running program.
    fn head(&mut self, cx: &mut Context) {
        self.headed = true;
        let mut head = safe_file(cx, run_fields(Head::new(200)));
        if cx.session.manner.is_1_1 {
            let trailer = "Upcall-End, Upcall-Exit, Upcall-Complaint, Upcall-Report";
            head = head.field("Trailer", trailer);
        }
        let head = cx.stream(head);
        cx.send_head(head, b"");
    }

    /// Handles the end of the program.
    fn end(mut self: Box<Self>, cx: &mut Context, report: &[u8]) -> State {
        let Step::Talking { open, writes, .. } = self.step else {
            unreachable!("only a stream has output")
        };
        cx.close(open);
        let text = String::from_utf8_lossy(report);
        let report: Value = serde_json::from_str(&text).unwrap_or_default();
        if self.headed {
            if cx.session.manner.is_1_1 {
                cx.send(Buf::from(trailers(&text, &report, &self.complaint).into_bytes()));
            }
        } else if report["reason"].is_null() {
            filed(cx, &report);
        } else {
            let code = match report["end"].as_str() {
                Some("failed") => 500,
                Some("unknown") => 404,
                Some("refused") => 422,
                Some(_) | None => 503,
            };
            let reason = report["reason"].as_str().unwrap_or_default();
            cx.send_error_text(code, reason);
        }
        // The rest of the body must not be parsed as a request.
        cx.session.last |= !self.fed;
        if writes {
            self.step = Step::Ending;
            return self.stay();
        }
        cx.done()
    }

    /// Aborts the response, which can only be signalled by an early end.
    fn lost(self: Box<Self>, cx: &mut Context, why: &'static str) -> State {
        let requested = self.abort(cx);
        cx.hang_up_after(requested, why)
    }
}

fn find_file(cx: &mut Context, file: &'static [u8]) {
    let names = PLACE.iter().copied().chain([file]);
    let names = names.map(|name| Name::new(name).expect("a plain name")).collect();
    cx.ask(Ask::Walk { from: cx.session.export.root, names });
}

/// Opens a file. To install, the caller needs administrative rights, and an identity verified
/// by the kernel.
fn open_file(cx: &mut Context, node: NodeId, file: &[u8]) {
    let access = Access { read: true, write: true, ..Access::default() };
    let caller = match cx.session.caller.clone() {
        Caller::User(user) if file == INSTALL && cx.session.commands => {
            Caller::User(Arc::new(User { commands: true, ..(*user).clone() }))
        }
        caller @ (Caller::User(_) | Caller::Server) => caller,
    };
    cx.out.push(Output::Ask(CALL, tree::Request { caller, ask: Ask::Open { node, access } }));
}

/// Responds to an installation or a check.
fn filed(cx: &mut Context, report: &Value) {
    let name = report["name"].as_str().unwrap_or_default();
    let version = report["version"].as_u64().map(|version| format!("@{version}"));
    let (code, text) = match report["end"].as_str() {
        Some("installed") => (201, format!("{name}{}\n", version.unwrap_or_default())),
        Some("checked") => {
            let head = safe_file(cx, run_fields(Head::new(200)));
            return cx.send_head(head, b"");
        }
        end => {
            let version = version.unwrap_or_default();
            (200, format!("{name}{version} {}\n", end.unwrap_or_default()))
        }
    };
    let head = Head::new(code)
        .field("Content-Type", "text/plain; charset=utf-8")
        .field("Content-Length", text.len());
    cx.send_head(head, text.as_bytes());
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
            output: Vec::new(),
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
    super::exchange::has_key(request, "storelet")
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
