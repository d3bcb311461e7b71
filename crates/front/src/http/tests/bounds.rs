//! Limits of memory and work of a session, and responses whose outcome differs from their start.

use super::*;
use crate::Room;
use crate::http::room::HANDLES;

fn entries(from: u64, count: u64) -> Vec<base::op::Entry> {
    let entry = |number: u64| base::op::Entry {
        cookie: number + 1,
        inode: number,
        device: None,
        kind: Kind::File,
        name: Name::new(format!("file-{number:08}").as_bytes()).expect("plain"),
        stat: Some(file(3)),
        handle: None,
    };
    (from..from + count).map(entry).collect()
}

/// Replies to all requests for a directory of this many entries, while the client takes nothing.
fn list(lab: &mut Lab, count: u64) -> usize {
    let (mut next, mut peak) = (0, 0);
    loop {
        let mut out = Vec::new();
        let reply = Reply::Entries(entries(next, (count - next).min(400)));
        next += (count - next).min(400);
        lab.session.step(Instant(0), Input::Answered(CALL, Ok(reply)), &mut out);
        lab.sent += out.iter().map(length).sum::<usize>();
        peak = peak.max(lab.session.held_bytes());
        if !out.iter().any(|output| matches!(output, Output::Ask(..))) {
            return peak;
        }
    }
}

#[test]
fn a_listing_that_nobody_reads_holds_little() {
    let mut lab = Lab::new();
    lab.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let stat = Stat { kind: Kind::Directory, ..file(0) };
    lab.answer(Ok(Reply::Fetched(stat, Buf::default(), Some(OpenId(1)))));
    let peak = list(&mut lab, 200_000);
    assert!(peak < 600 << 10, "{peak} bytes are held");
    assert_eq!(lab.session.state_name(), "listing", "the client reads on");
}

#[test]
fn a_listing_is_whole_however_it_is_taken() {
    for count in [0, 1, 900, 5000] {
        let mut lab = Lab::new();
        lab.send("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
        let stat = Stat { kind: Kind::Directory, ..file(0) };
        let (mut next, mut text, mut asks) = (0, Vec::new(), 1);
        let mut input =
            Input::Answered(CALL, Ok(Reply::Fetched(stat, Buf::default(), Some(OpenId(1)))));
        while ["fetching", "listing"].contains(&lab.session.state_name()) {
            let mut out = Vec::new();
            asks -= usize::from(matches!(input, Input::Answered(..)));
            lab.session.step(Instant(0), input, &mut out);
            let mut sent = 0;
            for output in out {
                match output {
                    Output::Send(bytes) => {
                        sent += bytes.len();
                        text.extend_from_slice(&bytes);
                    }
                    Output::Ask(..) => asks += 1,
                    _ => {}
                }
            }
            input = match asks {
                1 => {
                    let more = entries(next, (count - next).min(333));
                    next += more.len() as u64;
                    lab.sent += sent;
                    Input::Answered(CALL, Ok(Reply::Entries(more)))
                }
                _ => Input::Sent(std::mem::take(&mut lab.sent) + sent),
            };
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        for number in 0..count {
            assert_eq!(text.matches(&format!("file-{number:08}\",\"href")).count(), 1, "{number}");
        }
        assert!(text.ends_with("0\r\n\r\n"));
    }
}

#[test]
fn a_file_that_nobody_reads_is_not_read_ahead_where_memory_is_short() {
    let held_with = |allowance: usize, piece: usize| {
        let mut lab = Lab::new();
        lab.session.set_allowance(allowance);
        lab.session.piece = piece;
        lab.get("");
        lab.answer(fetched(1 << 30, 0, Some(1)));
        let mut reads = 0;
        loop {
            let mut out = Vec::new();
            let count = lab.session.outstanding;
            reads += 1;
            lab.session.step(Instant(0), Input::Answered(CALL, data(count)), &mut out);
            if !out.iter().any(|output| matches!(output, Output::Ask(..))) || reads > 100 {
                return lab.session.held_bytes();
            }
        }
    };
    let held = |allowance| held_with(allowance, usize::MAX);
    let few = held_with(32 << 20, 32 << 10);
    assert!(few < 120 << 10, "{few}: where many have large answers");
    assert!(held(1) < 20 << 10, "{}", held(1));
    assert!(held(32 << 20) < 700 << 10, "{}", held(32 << 20));
}

#[test]
fn a_file_of_reported_size_zero_is_sent_whole() {
    for method in ["GET", "HEAD"] {
        let mut lab = Lab::new();
        lab.send(&format!("{method} /f HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-3\r\n\r\n"));
        lab.answer(fetched(0, 0, None));
        lab.text.clear();
        let mut out = Vec::new();
        let first = Input::Answered(CALL, fetched(0, 5, Some(1)));
        lab.session.step(Instant(0), first, &mut out);
        let text = out.iter().find_map(|output| match output {
            Output::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        });
        let text = text.expect("it is answered");
        assert!(text.contains("Transfer-Encoding: chunked"), "{text}");
        assert!(!text.contains("Content-Length"), "{text}");
        if method == "GET" {
            lab.answer(data(7));
            lab.answer(data(0));
            assert!(lab.text.contains("Read 12"), "{}", lab.text);
        }
    }
    // It is really empty.
    let mut lab = Lab::new();
    lab.send("HEAD /f HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(fetched(0, 0, None));
    lab.answer(fetched(0, 0, None));
    assert!(lab.text.ends_with("<- Fetched: say \"200 OK\" +0\n"), "{}", lab.text);
}

#[test]
fn a_read_that_fails_is_reported_while_it_can_be() {
    let mut lab = Lab::new();
    lab.get("Range: bytes=5-8\r\n");
    lab.answer(fetched(100, 0, Some(1)));
    lab.answer(Err(Error::Io));
    assert!(lab.text.contains("close 1, say \"500 Internal Server Error\""), "{}", lab.text);
    let mut lab = Lab::new();
    lab.get("");
    lab.answer(fetched(100, 50, Some(1)));
    lab.answer(Err(Error::Io));
    assert!(lab.text.contains("hang up: the file changed"), "{}", lab.text);
    for error in [Error::NoSpace, Error::QuotaExceeded] {
        let mut lab = Lab::new();
        begin_put(&mut lab, "Content-Length: 3\r\n");
        lab.send("abc");
        lab.answer(Err(error));
        assert!(lab.text.contains("say \"507 Insufficient Storage\""), "{}", lab.text);
    }
}

#[test]
fn a_file_that_shrinks_or_grows_is_not_taken_for_what_was_promised() {
    let mut lab = Lab::new();
    lab.get("");
    lab.answer(fetched(100, 50, Some(1)));
    lab.answer(data(0));
    assert!(lab.text.contains("hang up: the file changed"), "{}", lab.text);
    let mut lab = Lab::new();
    lab.get("");
    lab.answer(fetched(100, 120, None));
    assert!(lab.text.contains("say \"200 OK\" +100\n"), "{}", lab.text);
}

#[test]
fn many_requests_at_once_take_no_more_of_the_stack_than_one() {
    const COUNT: usize = 100_000;
    let run = || {
        let mut session = session();
        session.set_allowance(usize::MAX);
        let text = "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(COUNT);
        let mut out = Vec::new();
        session.step(Instant(0), Input::Received(Buf::from(text.as_bytes())), &mut out);
        out.iter().filter(|output| matches!(output, Output::Send(_))).count()
    };
    let small = std::thread::Builder::new().stack_size(256 << 10);
    let answered = small.spawn(run).expect("a thread").join().expect("no overflow");
    assert_eq!(answered, COUNT);
}

#[test]
fn answers_of_a_service_are_streamed_and_looked_at_once() {
    let mut lab = Lab::new();
    begin_operation(&mut lab, "", &"read\n".repeat(100));
    lab.answer(Ok(Reply::Walked(vec![file(0)], Some(NodeId(5)))));
    lab.answer(Ok(Reply::Opened(OpenId(7), file(0))));
    lab.step("<- Written", Input::Answered(FEED, Ok(Reply::Written(1))));
    let line = format!("{{\"value\":\"{}\",\"token\":\"1-1:1\"}}\n", "x".repeat(1 << 20));
    let mut peak = 0;
    for piece in line.as_bytes().chunks(64 << 10) {
        let mut out = Vec::new();
        let reply = Ok(Reply::Data(Buf::from(piece)));
        lab.session.step(Instant(0), Input::Answered(CALL, reply), &mut out);
        lab.sent += out.iter().map(length).sum::<usize>();
        peak = peak.max(lab.session.held_bytes());
        if !out.iter().any(|output| matches!(output, Output::Ask(..))) {
            lab.take();
        }
    }
    assert!(peak < 800 << 10, "{peak} bytes are held");
    let hits = Name::new(b"hits").expect("a name");
    assert_eq!(lab.session.tokens.get(&hits).map(String::as_str), Some("1-1:1"));
}

#[test]
fn served_pages_run_no_scripts_where_files_can_be_written() {
    for (write, wanted) in [(true, true), (false, false)] {
        let mut session = Session::new(
            Export { web: crate::Web { write, ..crate::Web::default() }, ..export() },
            Caller::Server,
            true,
        );
        let mut out = Vec::new();
        let text = "GET /f.html HTTP/1.1\r\nHost: localhost\r\n\r\n";
        session.step(Instant(0), Input::Received(Buf::from(text.as_bytes())), &mut out);
        session.step(Instant(0), Input::Answered(CALL, fetched(3, 3, None)), &mut out);
        let [.., Output::Send(bytes), Output::Account(_)] = &out[..] else { panic!("{out:?}") };
        let text = String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text.contains("Content-Security-Policy: sandbox\r\n"), wanted, "{text}");
        assert!(text.contains("X-Content-Type-Options: nosniff\r\n"), "{text}");
    }
}

#[test]
fn only_a_whole_authority_names_this_host() {
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]", "[::1]:8080"] {
        let mut lab = Lab::new();
        lab.send(&format!("GET /f HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(lab.text.contains("ask 0 Fetch"), "{host}: {}", lab.text);
    }
    let others =
        ["[::1].evil", "localhost:evil", "[::1]evil", "[::1]:1x", "localhost:1:2", "a@localhost"];
    for host in others.into_iter().chain(["localhost/", "[::1", "localhost:99999", "127.0.0.1.x"]) {
        let mut lab = Lab::new();
        lab.send(&format!("GET /f HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(!lab.text.contains("ask 0 Fetch"), "{host}: {}", lab.text);
    }
}

#[test]
fn a_long_path_counts_as_several_requests_of_a_turn() {
    for (length, left) in [(10, 7), (3000, 5)] {
        let mut lab = Lab::new();
        lab.session.set_room(Room { messages: 8, ..Room::ALL });
        lab.send(&format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "d/".repeat(length / 2)));
        assert_eq!(lab.session.quota, left, "{length} bytes");
    }
}

#[test]
fn an_upload_needs_room_for_its_nodes_and_open_files() {
    let mut lab = Lab::new();
    let room = |client_handles| Room { client_handles, ..Room::ALL };
    let put = "PUT /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n";
    lab.session.set_room(room(HANDLES));
    lab.send(put);
    assert_eq!(lab.session.handles(), HANDLES);
    let mut lab = Lab { text: lab.text, ..Lab::new() };
    lab.session.set_room(room(HANDLES - 1));
    lab.get("");
    lab.answer(fetched(3, 3, None));
    lab.send(put);
    expect![[r#"
        PUT /f HTTP/1.1: ask 0 Walk
        GET /f HTTP/1.1: ask 0 Fetch
        <- Fetched: say "200 OK" +3
        PUT /f HTTP/1.1: say "503 Service Unavailable" +35, finish
    "#]]
    .assert_eq(&lab.text);
}
