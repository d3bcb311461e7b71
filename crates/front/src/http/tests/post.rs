//! Programs run beside the data.

use super::*;

pub(super) const POST: &str = "POST /.upcall/storelets";

/// Advances a run to the program's first output; its body is `body`.
pub(super) fn begin_post(lab: &mut Lab, query: &str, body: &str) {
    let length = body.len();
    let fields = format!("Host: localhost\r\nContent-Length: {length}\r\n");
    lab.send(&format!("{POST}{query} HTTP/1.1\r\n{fields}\r\n{body}"));
    lab.answer(Ok(Reply::Walked(vec![file(0); 3], Some(NodeId(5)))));
    lab.answer(Ok(Reply::Opened(OpenId(7), file(0))));
}

impl Lab {
    fn fed(&mut self) {
        self.step("<- fed", Input::Answered(FEED, Ok(Reply::Written(1))));
    }

    fn shows(&mut self, frames: &[(Frame, &str)]) {
        let frames = frames.iter().map(|(frame, text)| frame.encode(text.as_bytes()));
        self.answer(Ok(Reply::Data(Buf::from(frames.collect::<Vec<_>>().concat()))));
    }
}

#[test]
fn a_program_is_sent_and_answers() {
    let mut lab = Lab::new();
    begin_post(&mut lab, "?arg=a", "abc");
    lab.fed();
    lab.fed();
    lab.shows(&[(Frame::State, "compiling"), (Frame::State, "running"), (Frame::Output, "one")]);
    lab.shows(&[(Frame::Error, "hm"), (Frame::Output, "two")]);
    lab.shows(&[(Frame::Report, r#"{"end":"exit","exit":3}"#)]);
    lab.get("");
    expect![[r#"
        POST /.upcall/storelets?arg=a HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 2 Write, ask 0 Read 0+65536
        <- fed: ask 2 Write
        <- fed: 
        <- Data: say "200 OK" +0, say 8 bytes, ask 0 Read 0+65536
        <- Data: say 8 bytes, ask 0 Read 0+65536
        <- Data: close 7, say 101 bytes
        GET /f HTTP/1.1: ask 0 Fetch
    "#]]
    .assert_eq(&lab.text);
}

/// Returns all bytes sent for a program with these frames.
fn output_of(frames: &[(Frame, &str)], query: &str) -> String {
    let mut session = session();
    let request =
        format!("{POST}{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    let frames = frames.iter().map(|(frame, text)| frame.encode(text.as_bytes()));
    let frames = Buf::from(frames.collect::<Vec<_>>().concat());
    let inputs = [
        Input::Received(Buf::from(request.as_bytes())),
        Input::Answered(CALL, Ok(Reply::Walked(vec![file(0); 3], Some(NodeId(5))))),
        Input::Answered(CALL, Ok(Reply::Opened(OpenId(7), file(0)))),
        Input::Answered(FEED, Ok(Reply::Written(1))),
        Input::Answered(FEED, Ok(Reply::Written(1))),
        Input::Answered(CALL, Ok(Reply::Data(frames))),
    ];
    let mut out = Vec::new();
    for input in inputs {
        session.step(Instant(0), input, &mut out);
        session.check();
    }
    let bytes = out.iter().filter_map(|output| match output {
        Output::Send(bytes) => Some(&bytes[..]),
        _ => None,
    });
    String::from_utf8(bytes.collect::<Vec<_>>().concat()).unwrap()
}

#[test]
fn the_end_of_a_program_follows_its_output() {
    let running = (Frame::State, "running");
    let report = r#"{"end":"killed","reason":"its \"time\" is over","time_ns":5}"#;
    let frames =
        [running, (Frame::Error, "a\r\nb"), (Frame::Output, "out"), (Frame::Report, report)];
    let outputs = output_of(&frames, "");
    let end = format!(
        "\r\n\r\n3\r\nout\r\n0\r\nUpcall-End: killed\r\nUpcall-Complaint: a%0D%0Ab\r\n\
         Upcall-Report: {report}\r\n\r\n"
    );
    assert!(outputs.starts_with("HTTP/1.1 200 OK\r\n") && outputs.ends_with(&end), "{outputs}");
    let outputs = output_of(&frames, "?errors");
    assert!(outputs.contains("\r\n\r\n4\r\na\r\nb\r\n3\r\nout\r\n0\r\n"), "{outputs}");
    for (end, code) in [("unknown", 404), ("refused", 422), ("killed", 503)] {
        let report = format!(r#"{{"end":"{end}","reason":"so it is"}}"#);
        let outputs = output_of(&[(Frame::State, "compiling"), (Frame::Report, &report)], "");
        assert!(outputs.starts_with(&format!("HTTP/1.1 {code} ")), "{outputs}");
        assert!(outputs.contains("so it is"), "{outputs}");
    }
}

#[test]
fn a_program_ends_with_its_client() {
    for (label, input) in [("lost", Input::Lost), ("end", Input::Ended)] {
        let mut lab = Lab::new();
        begin_post(&mut lab, "", "abc");
        lab.fed();
        assert!(lab.session.is_hungry(), "nothing else tells that the client is gone");
        lab.text.clear();
        lab.step(label, input);
        lab.answer(Err(Error::Cancelled));
        assert!(!lab.session.is_over());
        lab.fed();
        assert!(lab.session.is_over());
        let close = "close 7, cancel 0, cancel 2, hang up: the client left\n";
        assert!(lab.text.starts_with(&format!("{label}: {close}")), "{}", lab.text);
    }
}

#[test]
fn invalid_posts_are_refused() {
    let cases = [
        ("POST /else HTTP/1.1\r\nContent-Length: 1\r\n", "405 Method Not Allowed"),
        ("POST /.upcall/storelets HTTP/1.1\r\n", "411 Length Required"),
        ("POST /.upcall/storelets HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "411 "),
        ("POST /.upcall/storelets?write HTTP/1.1\r\nContent-Length: 1\r\n", "403 Forbidden"),
    ];
    for (head, line) in cases {
        let mut lab = Lab::new();
        lab.session.export.web.write = false;
        lab.send(&format!("{head}Host: localhost\r\n\r\n"));
        assert!(lab.text.contains(&format!("say \"{line}")), "{}", lab.text);
        assert!(lab.text.ends_with("finish\n"), "{}", lab.text);
    }
    let mut lab = Lab::new();
    lab.send("POST /.upcall/storelets?module=x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(Err(Error::NotFound));
    assert!(lab.text.contains("404 Not Found"), "{}", lab.text);
}

/// Bookkeeping: outstanding requests, open resources, and output.
#[derive(Default)]
struct Books {
    requested: std::collections::BTreeMap<u32, Ask>,
    held: Vec<u64>,
    made: u64,
    unsent: usize,
}

impl Books {
    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Ask(call, request) => {
                    let is_new = self.requested.insert(call.0, request.ask).is_none();
                    assert!(is_new, "{call:?} twice");
                }
                Output::Release(NodeId(id)) | Output::Close(OpenId(id)) => {
                    let index = self.held.iter().position(|held| *held == id);
                    self.held.swap_remove(index.expect("given back once, and only what was given"));
                }
                Output::Cancel(call) => assert!(self.requested.contains_key(&call.0), "{call:?}"),
                Output::Send(bytes) => self.unsent += bytes.len(),
                Output::Abandon(_) => panic!("nothing is abandoned"),
                Output::Finish | Output::Hangup(_) | Output::Account(_) => {}
                Output::Replied(_)
                | Output::Called(..)
                | Output::Locks(..)
                | Output::Claim(..)
                | Output::Settle(..) => unreachable!("of HTTP"),
            }
        }
    }

    fn new_id(&mut self) -> u64 {
        self.made += 1;
        self.held.push(self.made);
        self.made
    }

    fn reply(&mut self, ask: &Ask, rng: &mut Rng) -> Result<Reply, Error> {
        if rng.u8(0..12) == 0 {
            return Err(Error::Io);
        }
        let frames = [
            Frame::State.encode(b"compiling"),
            Frame::State.encode(b"running"),
            Frame::Output.encode(&vec![7; rng.usize(1..200_000)]),
            Frame::Error.encode(b"hm"),
            Frame::Report.encode(br#"{"end":"exit","exit":0}"#),
        ];
        Ok(match ask {
            Ask::Walk { .. } => Reply::Walked(vec![file(0); 3], Some(NodeId(self.new_id()))),
            Ask::Open { .. } => Reply::Opened(OpenId(self.new_id()), file(0)),
            Ask::Read { .. } => {
                let frame = &frames[rng.usize(0..frames.len())];
                let cut = if rng.bool() { frame.len() } else { rng.usize(0..frame.len()) };
                // Sometimes a partial frame, after which nothing can be decoded.
                Reply::Data(Buf::from(&frame[..cut]))
            }
            Ask::Write { data, .. } => Reply::Written(data.len() as u32),
            other => panic!("{other:?}"),
        })
    }
}

/// Under random clients and programs, every open file is closed once, and every request is
/// completed.
#[test]
fn no_program_is_kept() {
    for seed in 0..500 {
        let mut rng = seeded(seed);
        let (mut session, mut books) = (session(), Books::default());
        for _ in 0..60 {
            let answer = rng.choice(books.requested.keys().copied().collect::<Vec<_>>());
            let input = match (rng.u8(0..8), answer) {
                (0..4, Some(call)) => {
                    let ask = books.requested.remove(&call).unwrap();
                    Input::Answered(CallId(call), books.reply(&ask, &mut rng))
                }
                (4, _) if books.unsent > 0 => {
                    let sent = rng.usize(1..=books.unsent);
                    books.unsent -= sent;
                    Input::Sent(sent)
                }
                (5, _) => Input::Tick,
                (6, _) if rng.u8(0..10) == 0 => Input::Drain,
                (7, _) if rng.u8(0..10) == 0 => Input::Ended,
                _ if session.is_hungry() => Input::Received(posted(&mut rng)),
                _ => continue,
            };
            let mut out = Vec::new();
            session.step(Instant(0), input, &mut out);
            session.check();
            books.take(out);
        }
        let mut out = Vec::new();
        if !session.is_over() {
            session.step(Instant(0), Input::Lost, &mut out);
            // A session that closes has cancelled its calls where possible.
            out.retain(|output| !matches!(output, Output::Cancel(_)));
        }
        books.take(out);
        while let Some((call, ask)) = books.requested.pop_first() {
            let (mut out, reply) = (Vec::new(), books.reply(&ask, &mut rng));
            session.step(Instant(0), Input::Answered(CallId(call), reply), &mut out);
            books.take(out);
        }
        assert!(session.is_over(), "seed {seed}");
        assert_eq!(books.held, Vec::<u64>::new(), "seed {seed}");
    }
}

/// Random client data: a request, a part of one, or garbage.
fn posted(rng: &mut Rng) -> Buf {
    let heads = [
        "POST /.upcall/storelets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        "POST /.upcall/storelets?module=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        "POST /.upcall/storelets?module=x HTTP/1.1\r\nHost: localhost\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        "POST /.upcall/storelets?module=x&errors HTTP/1.0\r\n\r\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "012345678",
        "zz\r\n",
    ];
    Buf::from(rng.choice(heads).unwrap().as_bytes())
}
