#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the variants it is about")]

mod access;
mod bounds;
mod dav;
mod delete;
mod directories;
mod drawing;
mod pipelined;
mod post;
mod service;

use post::begin_post;
use service::begin_operation;

use super::answer::etag;
use super::*;
use base::drawing::{Drawing, variant};
use base::rng::{Rng, seeded};
use base::{Expected, Kind, Stat, Time};
use expect_test::expect;
use tree::{NodeId, OpenId, Request as TreeRequest};
use wire::storelet::Frame;

fn export() -> Export {
    Export {
        root: NodeId(0),
        device: 1,
        path: Vec::new(),
        wall: Time::from_secs(0),
        limits: crate::Limits::default(),
        web: crate::Web { write: true, ..crate::Web::default() },
        nfs: crate::Nfs::default(),
        services: [base::Name::new(b"hits").expect("a name")].into(),
    }
}

fn session() -> Session {
    Session::new(export(), Caller::Server, true)
}

fn file(size: u64) -> Stat {
    Stat { kind: Kind::File, inode: 7, size, mode: 0o644, ..Stat::default() }
}

/// A client and a tree in one: sends requests, replies to the session, and records the trace.
struct Lab {
    session: Session,
    locks: webdav::Locks,
    text: String,
    sent: usize,
}

impl Lab {
    fn new() -> Lab {
        let locks = webdav::Locks::default();
        Lab { session: session(), locks, text: String::new(), sent: 0 }
    }

    fn step(&mut self, label: &str, input: Input) {
        let mut out = Vec::new();
        self.session.step(Instant(0), input, &mut out);
        self.session.check();
        answer_locks(&mut self.session, &mut self.locks, &mut out);
        self.sent += out.iter().map(length).sum::<usize>();
        // Accounting has tests of its own.
        let others = out.iter().filter(|output| !matches!(output, Output::Account(_)));
        let out: Vec<String> = others.map(show).collect();
        self.text += &format!("{label}: {}\n", out.join(", "));
    }

    fn send(&mut self, text: &str) {
        let label = text.lines().next().unwrap_or_default().to_string();
        self.step(&label, Input::Received(Buf::from(text.as_bytes())));
    }

    fn get(&mut self, fields: &str) {
        self.send(&format!("GET /f HTTP/1.1\r\nHost: localhost:8080\r\n{fields}\r\n"));
    }

    fn answer(&mut self, reply: Result<Reply, Error>) {
        let label = reply.as_ref().map_or_else(|error| format!("{error:?}"), variant);
        self.step(&format!("<- {label}"), Input::Answered(CALL, reply));
    }

    fn take(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        self.step("sent", Input::Sent(sent));
    }
}

/// Passes the requests to the locks.
fn answer_locks(session: &mut Session, locks: &mut webdav::Locks, out: &mut Vec<Output>) {
    while let Some(at) = out.iter().position(|output| matches!(output, Output::Locks(..))) {
        let Output::Locks(caller, request) = out.remove(at) else { unreachable!() };
        let client = (base::op::ClientKey(1), &caller);
        if let Some(reply) = locks.handle(Instant(0), client, request) {
            session.step(Instant(0), Input::Locks(reply), out);
        }
        locks.check();
        session.check();
    }
}

fn show(output: &Output) -> String {
    match output {
        Output::Ask(call, request) => match &request.ask {
            Ask::Read { offset, count, .. } => format!("ask {} Read {offset}+{count}", call.0),
            ask => format!("ask {} {}", call.0, variant(ask)),
        },
        Output::Send(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            let first = text.lines().next().unwrap_or_default();
            if first.starts_with("HTTP/") {
                let body = text.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
                format!("say \"{}\" +{body}", &first[9..])
            } else {
                format!("say {} bytes", bytes.len())
            }
        }
        Output::Release(node) => format!("release {}", node.0),
        Output::Close(open) => format!("close {}", open.0),
        Output::Abandon(open) => format!("abandon {}", open.0),
        Output::Cancel(call) => format!("cancel {}", call.0),
        Output::Finish => "finish".to_string(),
        Output::Account(account) => format!("account {account:?}"),
        Output::Locks(..) => "locks".to_string(),
        Output::Replied(_) | Output::Called(..) | Output::Claim(..) | Output::Settle(..) => {
            unreachable!("{output:?} of HTTP")
        }
        Output::Hangup(reason) => format!("hang up: {reason}"),
    }
}

fn fetched(size: u64, data: usize, open: Option<u64>) -> Result<Reply, Error> {
    let mut buf = Buf::with_room(HEADROOM as usize, data);
    buf.extend(&vec![b'x'; data]);
    Ok(Reply::Fetched(file(size), buf, open.map(OpenId)))
}

fn data(count: usize) -> Result<Reply, Error> {
    Ok(Reply::Data(Buf::from(vec![b'y'; count])))
}

#[test]
fn a_small_file_leaves_with_its_head_and_pipelined_requests_in_order() {
    let mut lab = Lab::new();
    let two = "GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    lab.send(&two);
    lab.answer(fetched(3, 3, None));
    lab.answer(Err(Error::NotFound));
    lab.step("end", Input::Ended);
    expect![[r#"
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +3, ask 0 Fetch
        <- NotFound: say "404 Not Found" +22
        end: hang up: idle
    "#]]
    .assert_eq(&lab.text);
    assert!(lab.session.is_over());
}

#[test]
fn a_large_file_follows_in_pieces_as_the_client_takes_them() {
    let mut lab = Lab::new();
    lab.get("");
    lab.answer(fetched(600_000, 65_536, Some(4)));
    lab.answer(data(262_144));
    lab.take();
    lab.answer(data(262_144));
    lab.take();
    lab.answer(data(10_176));
    lab.step("idle", Input::Tick);
    expect![[r#"
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +65536, ask 0 Read 65536+262144
        <- Data: say 262144 bytes
        sent: ask 0 Read 327680+262144
        <- Data: say 262144 bytes, ask 0 Read 589824+10176
        sent: 
        <- Data: say 10176 bytes, close 4
        idle: 
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    let mut lab = Lab::new();
    lab.get("");
    lab.answer(fetched(100_000, 65_536, Some(4)));
    lab.answer(data(0));
    assert!(lab.text.ends_with("close 4, hang up: the file changed while it was sent\n"));
}

#[test]
fn conditions_and_ranges() {
    let mut lab = Lab::new();
    let tag = answer::etag(&file(10));
    lab.get(&format!("If-None-Match: {tag}\r\n"));
    lab.answer(fetched(10, 0, Some(1)));
    lab.get("Range: bytes=2-5\r\n");
    lab.answer(fetched(10, 0, Some(2)));
    lab.answer(data(4));
    lab.get("Range: bytes=0-1,8-\r\n");
    lab.answer(fetched(10, 0, Some(3)));
    lab.answer(data(2));
    lab.answer(data(2));
    lab.get("Range: bytes=90-\r\n");
    lab.answer(fetched(10, 0, Some(4)));
    lab.get("If-Match: \"other\"\r\n");
    lab.answer(fetched(10, 0, Some(5)));
    expect![[r#"
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: close 1, say "304 Not Modified" +0
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: ask 0 Read 2+4
        <- Data: say "206 Partial Content" +4, close 2
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "206 Partial Content" +104, ask 0 Read 0+2
        <- Data: say 2 bytes, say 104 bytes, ask 0 Read 8+2
        <- Data: say 2 bytes, say 35 bytes, close 3
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: close 4, say "416 Range Not Satisfiable" +0
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: close 5, say "412 Precondition Failed" +42
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_file_that_says_it_is_empty_is_sent_as_far_as_it_goes() {
    let mut lab = Lab::new();
    lab.get("");
    lab.answer(fetched(0, 100, None));
    lab.get("If-None-Match: \"x\"\r\n");
    lab.answer(fetched(0, 0, None));
    lab.answer(fetched(0, 0, None));
    lab.get("");
    lab.answer(fetched(0, 4096, Some(3)));
    lab.answer(data(16));
    lab.answer(data(0));
    lab.get("");
    lab.answer(fetched(3, 5, None));
    lab.send("GET /f HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
    lab.answer(fetched(0, 4096, Some(4)));
    lab.answer(data(0));
    expect![[r#"
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +100
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: ask 0 Fetch
        <- Fetched: say "200 OK" +0
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +4104, ask 0 Read 4096+262144
        <- Data: say 22 bytes, ask 0 Read 4112+262144
        <- Data: say 5 bytes, close 3
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +3
        GET /f HTTP/1.0: ask 0 Fetch
        <- Fetched: say "200 OK" +4096, ask 0 Read 4096+262144
        <- Data: close 4, finish
    "#]]
    .assert_eq(&lab.text);
}

/// Returns all bytes sent in response to `request`, for a file of this length whose reads are
/// served by `read`.
fn on_the_wire(
    request: &str,
    size: u64,
    ahead: usize,
    read: impl Fn(u64, usize) -> Reply,
) -> Vec<u8> {
    let mut session = session();
    let mut wire = Vec::new();
    let mut inputs = vec![Input::Received(Buf::from(request.as_bytes()))];
    while let Some(input) = inputs.pop() {
        let mut out = Vec::new();
        session.step(Instant(0), input, &mut out);
        session.check();
        let mut sent = 0;
        for output in out {
            match output {
                Output::Send(bytes) => {
                    wire.extend_from_slice(&bytes);
                    sent += bytes.len();
                }
                Output::Ask(_, TreeRequest { ask: Ask::Fetch { .. }, .. }) => {
                    inputs.push(Input::Answered(CALL, fetched(size, ahead, Some(1))));
                }
                Output::Ask(_, TreeRequest { ask: Ask::Read { offset, count, .. }, .. }) => {
                    inputs.push(Input::Answered(CALL, Ok(read(offset, count as usize))));
                }
                Output::Close(_) | Output::Abandon(_) | Output::Finish => {}
                Output::Replied(_) | Output::Called(..) | Output::Account(_) => {}
                Output::Claim(..) | Output::Settle(..) => unreachable!("of NFS"),
                other => panic!("{other:?}"),
            }
        }
        if sent > 0 {
            inputs.push(Input::Sent(sent));
        }
    }
    wire
}

#[test]
fn data_in_pieces_is_the_same_on_the_wire() {
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    let part = |offset: u64, count: usize| {
        let rest = &bytes[bytes.len().min(offset as usize)..];
        &rest[..rest.len().min(count)]
    };
    let whole = |offset: u64, count: usize| {
        let mut buf = Buf::with_room(HEADROOM as usize, count);
        buf.extend(part(offset, count));
        Reply::Data(buf)
    };
    let pieces = |offset: u64, count: usize| {
        let chunks = part(offset, count).chunks(4096);
        let block = |chunk: &[u8]| base::Block::from_bytes(chunk, 4096);
        Reply::Pieces(chunks.map(|chunk| Buf::shared(block(chunk), 0..chunk.len())).collect())
    };
    let get = |fields: &str| format!("GET /f HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let plain = "GET /f HTTP/1.0\r\nHost: localhost\r\n\r\n".to_string();
    let samples = [
        (get(""), 300_000, 65_536),
        (get(""), 300_000, 0),
        (get("Range: bytes=5000-290000\r\n"), 300_000, 0),
        (get("Range: bytes=0-9,4090-4100,299999-\r\n"), 300_000, 0),
        (get(""), 0, 4096),
        (get(""), 0, 0),
        (plain.clone(), 0, 4096),
        (plain, 0, 0),
    ];
    for (request, size, ahead) in samples {
        let expected = on_the_wire(&request, size, ahead, whole);
        assert!(expected.starts_with(b"HTTP/1.1 20") && expected.len() > 300, "{request}");
        assert!(on_the_wire(&request, size, ahead, pieces) == expected, "{request}");
    }
}

/// A block's bytes are not copied for sending, also when a head or a chunk size precedes them.
#[test]
fn pieces_leave_as_they_are() {
    for size in [8192, 0] {
        let mut session = session();
        let request = Buf::from(&b"GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n"[..]);
        let block = base::Block::zeroed(8192);
        let pieces =
            vec![Buf::shared(block.clone(), 0..4096), Buf::shared(block.clone(), 4096..8192)];
        let mut out = Vec::new();
        for input in [
            Input::Received(request),
            Input::Answered(CALL, fetched(size, 0, Some(1))),
            Input::Answered(CALL, Ok(Reply::Pieces(pieces))),
        ] {
            session.step(Instant(0), input, &mut out);
        }
        let sent = |o: &Output| matches!(o, Output::Send(b) if b.as_ptr() == block.as_ptr());
        assert_eq!(out.iter().filter(|output| sent(output)).count(), 1, "{out:?}");
        assert_eq!(session.unsent, out.iter().map(length).sum::<usize>());
    }
}

fn length(output: &Output) -> usize {
    if let Output::Send(bytes) = output { bytes.len() } else { 0 }
}

/// Statistics of the server itself arrive completely and without an open file.
#[test]
fn parts_of_what_was_read_are_not_read_again() {
    let mut lab = Lab::new();
    lab.get("Range: bytes=2-5\r\n");
    lab.answer(fetched(10, 10, None));
    lab.get("Range: bytes=0-1,8-\r\n");
    lab.answer(fetched(10, 10, None));
    assert!(lab.text.contains("206 Partial Content\" +4\n"), "{}", lab.text);
    assert!(!lab.text.contains("Read"), "{}", lab.text);
}

#[test]
fn an_answer_to_head_has_no_body() {
    type Sample = (&'static str, Result<Reply, Error>, &'static str);
    let fifo = Stat { kind: Kind::Fifo, ..file(0) };
    let samples: [Sample; 5] = [
        ("", fetched(10, 0, Some(1)), "200 OK"),
        ("If-Match: \"x\"\r\n", fetched(10, 0, Some(1)), "412 Precondition Failed"),
        ("", Ok(Reply::Fetched(fifo, Buf::default(), None)), "403 Forbidden"),
        ("", Err(Error::NotFound), "404 Not Found"),
        ("Content-Length: 3\r\n", Err(Error::Io), "400 Bad Request"),
    ];
    for (fields, reply, line) in samples {
        let mut lab = Lab::new();
        lab.send(&format!("HEAD /f HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        if !fields.starts_with("Content") {
            lab.answer(reply);
        }
        assert!(lab.text.contains(&format!("{line}\" +0")), "{}", lab.text);
    }
    for nonsense in ["HEAD /f HTTP/1.1\r\n\r\n", "HEAD /f HTTP/1.1\r\nHost: evil.example\r\n\r\n"] {
        let mut lab = Lab::new();
        lab.send(nonsense);
        assert!(lab.text.contains("\" +0"), "{}", lab.text);
    }
}

#[test]
fn http_1_0_keep_alive_is_announced() {
    let mut session = session();
    let text = "GET /f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let mut out = Vec::new();
    session.step(Instant(0), Input::Received(Buf::from(text.as_bytes())), &mut out);
    session.step(Instant(0), Input::Answered(CALL, fetched(3, 3, None)), &mut out);
    let [.., Output::Send(bytes), Output::Account(_)] = &out[..] else { panic!("{out:?}") };
    assert!(String::from_utf8_lossy(bytes).contains("\r\nConnection: keep-alive\r\n"));
}

const PUT: &str = "PUT /d/f HTTP/1.1\r\nHost: localhost\r\n";

/// Advances an upload to its body.
fn begin_put(lab: &mut Lab, fields: &str) {
    lab.send(&format!("{PUT}{fields}\r\n"));
    lab.answer(Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))));
    lab.answer(Err(Error::NotFound));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), file(0))));
}

#[test]
fn an_upload_is_durable_before_it_is_acknowledged() {
    let mut lab = Lab::new();
    begin_put(&mut lab, "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n");
    lab.send("3\r\nabc\r\n0\r\n\r\n");
    lab.answer(Ok(Reply::Written(3)));
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Opened(OpenId(8), file(0))));
    lab.answer(Ok(Reply::Stat(file(3))));
    lab.answer(Ok(Reply::Done));
    expect![[r#"
        PUT /d/f HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Walk
        <- NotFound: ask 0 CreateUnnamed
        <- Created: say "100 Continue" +0
        3: ask 0 Write
        <- Written: ask 0 Sync
        <- Done: ask 0 Open
        <- Opened: ask 0 Replace
        <- Stat: close 7, release 6, ask 0 Sync
        <- Done: close 8, release 5, say "201 Created" +0
    "#]]
    .assert_eq(&lab.text);
}

/// Returns the entity tag of a response.
fn tag_in(out: &[Output]) -> Option<String> {
    out.iter().find_map(|output| match output {
        Output::Send(bytes) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let tag = text.lines().find_map(|line| line.strip_prefix("ETag: "))?;
            Some(tag.to_string())
        }
        _ => None,
    })
}

fn step(lab: &mut Lab, reply: Reply) -> Vec<Output> {
    let mut out = Vec::new();
    lab.session.step(Instant(0), Input::Answered(CALL, Ok(reply)), &mut out);
    out
}

fn replaced(out: &[Output]) -> Option<Expected> {
    out.iter().find_map(|output| match output {
        Output::Ask(_, TreeRequest { ask: Ask::Replace { expected, .. }, .. }) => Some(*expected),
        _ => None,
    })
}

#[test]
fn the_tag_of_an_upload_is_the_one_that_is_shown_afterwards() {
    let mut lab = Lab::new();
    begin_put(&mut lab, "");
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Opened(OpenId(8), file(0))));
    let after = Stat { changed: Time::from_secs(9), ..file(0) };
    lab.answer(Ok(Reply::Stat(after.clone())));
    let out = step(&mut lab, Reply::Done);
    assert_eq!(tag_in(&out), Some(etag(&after)));
    let mut lab = Lab::new();
    lab.get("");
    let out = step(&mut lab, Reply::Fetched(after.clone(), Buf::default(), None));
    assert_eq!(tag_in(&out), Some(etag(&after)));
}

#[test]
fn conditions_are_judged_by_what_is_there_when_the_file_gets_its_name() {
    let version = |stat: &Stat| Expected::Version(stat.file_version());
    for (fields, wanted) in [("If-None-Match: *\r\n", Expected::Absent), ("", Expected::PlainFile)]
    {
        let mut lab = Lab::new();
        begin_put(&mut lab, fields);
        lab.answer(Ok(Reply::Done));
        let out = step(&mut lab, Reply::Opened(OpenId(8), file(0)));
        assert_eq!(replaced(&out), Some(wanted));
    }
    // Another client was faster, but the file is one of those that may be replaced.
    let (one, two) = (file(1), file(2));
    let mut lab = Lab::new();
    let tags = format!("If-Match: {}, {}\r\n", etag(&one), etag(&two));
    lab.send(&format!("{PUT}{tags}\r\n"));
    lab.answer(Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))));
    lab.answer(Ok(Reply::Walked(vec![one.clone()], Some(NodeId(9)))));
    lab.answer(Ok(Reply::Stat(one.clone())));
    lab.answer(Err(Error::NoAttribute));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), file(0))));
    lab.answer(Ok(Reply::Done));
    let out = step(&mut lab, Reply::Opened(OpenId(8), file(0)));
    assert_eq!(replaced(&out), Some(version(&one)));
    let out = step(&mut lab, Reply::Unexpected(Some(two.clone())));
    assert_eq!(replaced(&out), Some(version(&two)));
    lab.text.clear();
    lab.answer(Ok(Reply::Unexpected(None)));
    let given_back = "close 8, close 7, release 6, release 5, say \"412 Precondition Failed\"";
    assert!(lab.text.contains(given_back), "{}", lab.text);
}

#[test]
fn links_are_neither_followed_nor_replaced() {
    let link = Stat { kind: Kind::Symlink, ..file(3) };
    let mut lab = Lab::new();
    lab.send(&format!("{PUT}\r\n"));
    lab.answer(Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))));
    lab.answer(Ok(Reply::Walked(vec![link.clone()], Some(NodeId(9)))));
    lab.answer(Ok(Reply::Stat(link.clone())));
    assert!(lab.text.contains("release 9, release 5, say \"409 Conflict\""), "{}", lab.text);
    let mut lab = Lab::new();
    begin_put(&mut lab, "");
    lab.answer(Ok(Reply::Done));
    lab.answer(Ok(Reply::Opened(OpenId(8), file(0))));
    lab.answer(Ok(Reply::Unexpected(Some(link))));
    assert!(lab.text.contains("release 5, say \"409 Conflict\""), "{}", lab.text);
}

#[test]
fn an_upload_without_o_tmpfile_uses_a_unique_temporary_name() {
    let name_for = |number: u64, put: &str| {
        let mut lab = Lab::new();
        lab.session.set_number(number);
        lab.send(&format!("{put}\r\n"));
        lab.answer(Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))));
        lab.answer(Err(Error::NotFound));
        let mut out = Vec::new();
        let answer = Input::Answered(CALL, Err(Error::Unsupported));
        lab.session.step(Instant(0), answer, &mut out);
        let name = out.iter().find_map(|output| match output {
            Output::Ask(_, TreeRequest { ask: Ask::Create { name, .. }, .. }) => Some(name),
            _ => None,
        });
        name.expect("it is made with a name").clone()
    };
    let name = |number| name_for(number, PUT);
    assert_ne!(name(1), name(2), "in the same turn");
    // A client may have seen the names, and guess the next one.
    let next = String::from_utf8(name(1).as_bytes().to_vec()).unwrap();
    let put = PUT.replace("/d/f", &format!("/d/{next}"));
    assert_ne!(name_for(1, &put).as_bytes(), next.as_bytes());
}

#[test]
fn an_upload_that_is_torn_leaves_nothing_behind() {
    let mut lab = Lab::new();
    begin_put(&mut lab, "Content-Length: 10\r\n");
    lab.text.clear();
    lab.send("abc");
    lab.answer(Ok(Reply::Written(3)));
    lab.step("end", Input::Ended);
    expect![[r#"
        abc: ask 0 Write
        <- Written: 
        end: close 7, release 6, release 5, say "400 Bad Request" +21, hang up: refused
    "#]]
    .assert_eq(&lab.text);
    let mut lab = Lab::new();
    begin_put(&mut lab, "Content-Length: 10\r\n");
    lab.text.clear();
    lab.send("abc");
    lab.step("lost", Input::Lost);
    lab.answer(Ok(Reply::Written(3)));
    expect![[r#"
        abc: ask 0 Write
        lost: close 7, release 6, release 5, cancel 0, hang up: the client left
        <- Written: 
    "#]]
    .assert_eq(&lab.text);
    assert!(lab.session.is_over());
}

#[test]
fn pages_of_others_and_other_names_of_this_host_are_refused() {
    for fields in ["Host: evil.example", "Host: localhost:1\r\nOrigin: http://evil.example"] {
        let mut lab = Lab::new();
        lab.send(&format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"));
        assert!(lab.text.contains("403 Forbidden"), "{}", lab.text);
    }
    for host in ["localhost:evil", "localhost:80:evil", "[::1].evil", "[::1]evil", "127.0.0.1.evil"]
    {
        let mut lab = Lab::new();
        lab.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let refused = ["400 Bad Request", "403 Forbidden"].iter().any(|it| lab.text.contains(it));
        assert!(refused && !lab.text.contains("ask"), "{host}: {}", lab.text);
    }
    let mut lab = Lab::new();
    lab.send("GET / HTTP/1.1\r\nHost: [::1]:8080\r\nOrigin: http://[::1]:8080\r\n\r\n");
    assert!(lab.text.contains("ask 0 Fetch"), "{}", lab.text);
}

#[test]
fn buffered_output_counts_against_the_limit() {
    let mut lab = Lab::new();
    lab.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let stat = Stat { kind: Kind::Directory, ..file(0) };
    lab.answer(Ok(Reply::Fetched(stat, Buf::default(), Some(OpenId(1)))));
    let requested = lab.session.bytes();
    let name = base::Name::new(b"name").unwrap();
    let entry = base::op::Entry {
        cookie: 1,
        inode: 1,
        device: None,
        kind: Kind::File,
        name,
        stat: Some(file(3)),
        handle: None,
    };
    lab.answer(Ok(Reply::Entries(vec![entry; 50])));
    assert!(lab.session.bytes() > requested + 50 * (112 + 4), "{}", lab.session.bytes());
    lab.answer(Ok(Reply::Entries(Vec::new())));
    assert_eq!(lab.session.bytes(), lab.sent);
    let mut lab = Lab::new();
    begin_put(&mut lab, "Transfer-Encoding: chunked\r\n");
    lab.send("5\r\nabcde\r\n");
    assert_eq!(lab.session.bytes(), 5);
    lab.send(&"x".repeat(1000));
    assert!(lab.session.bytes() > 1000);
}

/// Closing a connection while the client still sends resets it, which loses the response.
#[test]
fn the_last_answer_arrives_before_the_connection_is_closed() {
    let mut lab = Lab::new();
    lab.get("Connection: close\r\n");
    lab.answer(fetched(3, 3, None));
    assert_eq!(lab.session.deadline(), None, "the client has not taken the answer yet");
    lab.get("");
    lab.take();
    assert_eq!(lab.session.deadline(), Some(Instant(0) + DISCARD_TIME));
    lab.step("end", Input::Ended);
    expect![[r#"
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +3, finish
        GET /f HTTP/1.1: 
        sent: 
        end: hang up: done
    "#]]
    .assert_eq(&lab.text);
    assert!(lab.session.is_over());
}

#[test]
fn pages_of_others_may_link_here_and_no_more() {
    let ask = |site: &str, mode: &str, local| {
        let mut lab = Lab::new();
        lab.session.local = local;
        lab.get(&format!("Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: {mode}\r\n"));
        lab.text.contains("ask 0 Fetch")
    };
    for site in ["cross-site", "same-site"] {
        assert!(!ask(site, "no-cors", true) && ask(site, "navigate", true));
        assert!(ask(site, "no-cors", false));
    }
    assert!(ask("same-origin", "cors", true) && ask("none", "navigate", true));
}

#[test]
fn a_head_that_comes_slowly_is_timed_out() {
    let mut session = session();
    let mut out = Vec::new();
    session.step(Instant(0), Input::Received(Buf::from(&b"GET / HT"[..])), &mut out);
    let until = session.deadline().unwrap();
    session.step(Instant(5), Input::Received(Buf::from(&b"TP/1.1\r\n"[..])), &mut out);
    assert_eq!(session.deadline(), Some(until));
    session.step(until, Input::Tick, &mut out);
    assert_eq!(show(&out[0]), "say \"408 Request Timeout\" +31");
    session.step(until, Input::Sent(session.bytes()), &mut out);
    session.step(until + DISCARD_TIME, Input::Tick, &mut out);
    assert!(session.is_over());
}

/// Clients that send a whole body before they read still get the response that refuses it.
#[test]
fn the_body_of_a_refused_request_is_discarded_up_to_a_limit() {
    let mut lab = Lab::new();
    lab.send("PUT /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n");
    let part = "x".repeat(1 << 20);
    for _ in 0..DISCARD_MAX / part.len() - 1 {
        lab.send(&part);
    }
    assert!(lab.text.contains("say \"400 Bad Request\"") && !lab.text.contains("hang up"));
    lab.send(&part);
    assert!(lab.text.contains("hang up: refused"), "{:?}", lab.text.get(..300));
}

/// Sizes reported by a mounted server are not trusted.
#[test]
fn a_file_of_any_size_can_be_asked_for() {
    for size in [u64::MAX, u64::MAX - 600, u64::MAX / 2] {
        for range in ["", "Range: bytes=1-,3-3,5-\r\n", "Range: bytes=-1\r\n"] {
            let mut lab = Lab::new();
            lab.send(&format!("GET /d/f HTTP/1.1\r\nHost: localhost\r\n{range}\r\n"));
            let mut data = Buf::with_room(500, 100);
            data.extend(&[7; 100]);
            lab.answer(Ok(Reply::Fetched(file(size), data, Some(OpenId(7)))));
            let goes_on = lab.text.contains("say \"20") || lab.text.contains("ask 0 Read");
            assert!(goes_on, "{size} {range}: {}", lab.text);
        }
    }
}

#[test]
fn a_temporary_file_is_removed_also_if_the_client_leaves_meanwhile() {
    let mut lab = Lab::new();
    lab.send(&format!("{PUT}Content-Length: 3\r\n\r\n"));
    lab.answer(Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))));
    lab.answer(Err(Error::NotFound));
    lab.answer(Err(Error::Unsupported));
    lab.answer(Ok(Reply::Created(NodeId(6), OpenId(7), Stat { links: 1, ..file(0) })));
    lab.send("abc");
    lab.text.clear();
    lab.answer(Err(Error::NoSpace));
    assert!(lab.text.contains("ask 0 Remove"), "{}", lab.text);
    let mut out = Vec::new();
    lab.session.step(Instant(0), Input::Lost, &mut out);
    assert!(!out.iter().any(|it| matches!(it, Output::Cancel(_))), "{out:?}");
}
