//! The drawing of the state machine.

use super::*;

/// Brings a session into each state by regular inputs.
fn sample(state: &str) -> Session {
    let mut lab = Lab::new();
    match state {
        "fetching" => lab.get(""),
        "sending" => {
            lab.get("");
            lab.answer(fetched(900_000, 0, Some(1)));
        }
        "listing" => {
            lab.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
            let stat = Stat { kind: Kind::Directory, ..file(0) };
            lab.answer(Ok(Reply::Fetched(stat, Buf::default(), Some(OpenId(1)))));
        }
        "putting" => begin_put(&mut lab, "Content-Length: 10\r\n"),
        "running" => begin_post(&mut lab, "", "abc"),
        "operating" => begin_operation(&mut lab, "", "add 5"),
        "listening" => {
            lab.send("GET /services/hits/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        "deleting" => lab.send("DELETE /f HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "receiving" => {
            let fields = "Host: localhost\r\nContent-Length: 10\r\nDepth: 0\r\n";
            lab.send(&format!("PROPFIND / HTTP/1.1\r\n{fields}\r\n"));
        }
        "describing" => dav::begin(&mut lab, "PROPFIND", "Depth: 0\r\n", ""),
        "patching" => dav::begin(&mut lab, "PROPPATCH", "", dav::SET),
        "permitting" => {
            let mut out = Vec::new();
            let text = "DELETE /f HTTP/1.1\r\nHost: localhost\r\n\r\n";
            lab.session.step(Instant(0), Input::Received(Buf::from(text.as_bytes())), &mut out);
        }
        "locking" => dav::begin(&mut lab, "LOCK", "Depth: 0\r\n", dav::LOCK),
        "making" => dav::begin(&mut lab, "MKCOL", "", ""),
        "relocating" => dav::begin(&mut lab, "COPY", "Destination: /b\r\n", ""),
        "discarding" => lab.send("nonsense\r\n\r\n"),
        "closing" => {
            lab.get("");
            lab.step("lost", Input::Lost);
        }
        _idle => {}
    }
    assert_eq!(lab.session.state_name(), state);
    lab.session
}

#[test]
fn states_md_is_fresh() {
    let states = [
        "idle",
        "fetching",
        "sending",
        "listing",
        "putting",
        "deleting",
        "running",
        "operating",
        "listening",
        "receiving",
        "describing",
        "patching",
        "permitting",
        "locking",
        "making",
        "relocating",
        "discarding",
        "closing",
    ];
    let request = "GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n";
    type Sample = (&'static str, Box<dyn Fn() -> Input>);
    let samples: Vec<Sample> = vec![
        ("Request", Box::new(move || Input::Received(Buf::from(request.as_bytes())))),
        ("Nonsense", Box::new(|| Input::Received(Buf::from(&b"\0\0\r\n\r\n"[..])))),
        ("Found", Box::new(|| Input::Answered(CALL, fetched(3, 3, None)))),
        ("Failed", Box::new(|| Input::Answered(CALL, Err(Error::Io)))),
        ("Sent", Box::new(|| Input::Sent(0))),
        ("Tick", Box::new(|| Input::Tick)),
        ("Ended", Box::new(|| Input::Ended)),
        ("Lost", Box::new(|| Input::Lost)),
        ("Drain", Box::new(|| Input::Drain)),
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for (label, input) in &samples {
            let name = |session: &Session| session.state_name().to_string();
            drawing.sample_as(label, sample(state), input(), name);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/states.md"));
}
