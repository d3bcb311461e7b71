//! Operations on replicated services, and their event streams.

use super::*;

/// Advances to the response to the first operation, which is not sent yet.
pub(super) fn begin_operation(lab: &mut Lab, fields: &str, body: &str) {
    let length = body.len();
    let fields = format!("Host: localhost\r\nContent-Length: {length}\r\n{fields}");
    lab.send(&format!("POST /services/hits/ops HTTP/1.1\r\n{fields}\r\n{body}"));
}

impl Lab {
    fn opened(&mut self) {
        self.answer(Ok(Reply::Walked(vec![file(0); 3], Some(NodeId(5)))));
        self.answer(Ok(Reply::Opened(OpenId(7), file(0))));
    }

    fn written(&mut self) {
        self.step("<- Written", Input::Answered(FEED, Ok(Reply::Written(6))));
    }

    fn line(&mut self, text: &str) {
        self.answer(Ok(Reply::Data(Buf::from(text.as_bytes()))));
    }
}

/// The second operation finds the file open; an error of a single one determines the status.
#[test]
fn a_connection_is_a_session() {
    let mut lab = Lab::new();
    begin_operation(&mut lab, "", "add 5");
    lab.opened();
    lab.written();
    lab.line("{\"value\":5,\"final\":false,");
    lab.line("\"token\":\"7f-1:1\"}\n");
    begin_operation(&mut lab, "", "fly");
    lab.written();
    lab.line("{\"error\":\"no\",\"reason\":\"malformed\"}\n");
    begin_operation(&mut lab, "", "{\"op\":\"read\"}\n{\"op\":\"read\"}");
    lab.written();
    lab.line("{\"error\":\"no\",\"reason\":\"busy\"}\n{\"value\":1}\n");
    lab.step("gone", Input::Lost);
    expect![[r#"
        POST /services/hits/ops HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 2 Write, ask 0 Read 0+16384
        <- Written: 
        <- Data: ask 0 Read 0+16384
        <- Data: say "200 OK" +43
        POST /services/hits/ops HTTP/1.1: ask 2 Write, ask 0 Read 0+16384
        <- Written: 
        <- Data: say "400 Bad Request" +36
        POST /services/hits/ops HTTP/1.1: ask 2 Write, ask 0 Read 0+16384
        <- Written: 
        <- Data: say "200 OK" +43
        gone: hang up: the client left, close 7
    "#]]
    .assert_eq(&lab.text);
}

/// A pending subscription holds no memory; an operation holds its responses.
#[test]
fn a_waiting_response_counts_the_memory_it_holds() {
    let mut lab = Lab::new();
    lab.send("GET /services/hits/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.opened();
    lab.take();
    assert_eq!((lab.session.bytes(), lab.session.state_name()), (0, "listening"));
    lab.line("{}\n");
    assert_eq!(lab.session.bytes(), lab.sent);
    let mut lab = Lab::new();
    lab.send("POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n");
    lab.send(&"x".repeat(100));
    assert_eq!(lab.session.bytes(), 100);
}

#[test]
fn a_body_comes_in_parts_and_its_client_may_leave() {
    let mut lab = Lab::new();
    lab.send("POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nad");
    lab.send("d 5");
    lab.step("gone", Input::Lost);
    let mut torn = Lab::new();
    torn.send("POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nad");
    torn.step("ended", Input::Ended);
    lab.text += &torn.text;
    expect![[r#"
        POST /services/hits/ops HTTP/1.1: 
        d 5: ask 0 Walk
        gone: cancel 0, hang up: the client left
        POST /services/hits/ops HTTP/1.1: 
        ended: hang up: the client left within a body
    "#]]
    .assert_eq(&lab.text);
}

/// Records the data written to services, and all output.
#[derive(Default)]
struct Books {
    written: Vec<String>,
    outputs: String,
}

impl Books {
    /// Steps a session with a request and the replies of the tree; an error is that of the file.
    fn step(&mut self, session: &mut Session, request: &str, replies: Vec<Result<Reply, Error>>) {
        let received = Input::Received(Buf::from(request.as_bytes()));
        let answers = replies.into_iter().flat_map(|reply| match reply {
            Ok(Reply::Written(_)) => vec![Input::Answered(FEED, reply)],
            Ok(_) => vec![Input::Answered(CALL, reply)],
            Err(error) => [CALL, FEED].map(|call| Input::Answered(call, Err(error))).into(),
        });
        let mut out = Vec::new();
        [received].into_iter().chain(answers).for_each(|it| session.step(Instant(0), it, &mut out));
        for output in out {
            match output {
                Output::Ask(_, TreeRequest { ask: Ask::Write { data, .. }, .. }) => {
                    self.written.push(String::from_utf8_lossy(&data).into_owned());
                }
                Output::Send(bytes) => self.outputs += &String::from_utf8_lossy(&bytes),
                _other => {}
            }
        }
    }
}

fn request(service: &str, fields: &str) -> String {
    format!(
        "POST /services/{service}/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\
         {fields}\r\nread"
    )
}

/// Replies of the tree up to the response to the operation.
fn replies(is_open: bool, answer: &str) -> Vec<Result<Reply, Error>> {
    let walked = Ok(Reply::Walked(vec![file(0); 3], Some(NodeId(5))));
    let opened = Ok(Reply::Opened(OpenId(7), file(0)));
    let found = if is_open { Vec::new() } else { vec![walked, opened] };
    let answer = Ok(Reply::Data(Buf::from(format!("{answer}\n").as_bytes())));
    found.into_iter().chain([Ok(Reply::Written(20)), answer]).collect()
}

/// State seen on another connection is transferred in a cookie, both ways.
#[test]
fn a_token_comes_and_goes_in_a_cookie() {
    let (mut session, mut books) = (session(), Books::default());
    let cookie = request("hits", "Cookie: a=b; upcall-hits=7f-1:9\r\n");
    books.step(&mut session, &cookie, replies(false, "{\"token\":\"7f-1:9.2:1\"}"));
    assert_eq!(books.written, ["after 7f-1:9\nread\n"]);
    let cookie = "Set-Cookie: upcall-hits=7f-1:9.2:1; Path=/services/hits; SameSite=Strict";
    assert!(books.outputs.contains(cookie), "{}", books.outputs);
}

/// A connection is a session with each service, also when requests to several alternate.
#[test]
fn a_connection_knows_what_it_has_seen_of_each_service() {
    let names = ["hits", "plan"].map(|name| Name::new(name.as_bytes()).expect("a name"));
    let export = Export { services: names.into(), ..export() };
    let (mut session, mut books) = (Session::new(export, Caller::Server, true), Books::default());
    let (hits, plan) = (request("hits", ""), request("plan", ""));
    books.step(&mut session, &hits, replies(false, "{\"token\":\"7f-1:1\"}"));
    books.step(&mut session, &plan, replies(false, "{\"token\":\"8-1:5\"}"));
    books.step(&mut session, &hits, replies(false, "{\"token\":\"7f-1:2\"}"));
    // A file that fails is closed; the tokens are retained.
    books.step(&mut session, &hits, vec![Err(Error::Io)]);
    books.step(&mut session, &hits, replies(false, "{\"token\":\"7f-1:3\"}"));
    books.step(&mut session, &hits, replies(true, "{\"error\":\"\",\"reason\":\"busy\"}"));
    let expected =
        ["read\n", "read\n", "after 7f-1:1\nread\n", "read\n", "after 7f-1:2\nread\n", "read\n"];
    assert_eq!(books.written, expected);
}

/// A session that has seen a lost operation is over, on both sides.
#[test]
fn a_session_that_has_seen_what_is_lost_begins_anew() {
    let (mut session, mut books) = (session(), Books::default());
    let lost = "{\"error\":\"not done\",\"reason\":\"lost\"}";
    books.step(&mut session, &request("hits", ""), replies(false, "{\"token\":\"7f-3:9\"}"));
    books.step(&mut session, &request("hits", ""), replies(true, lost));
    let cookie = "Set-Cookie: upcall-hits=; Path=/services/hits; Max-Age=0; SameSite=Strict";
    assert!(books.outputs.contains(cookie), "{}", books.outputs);
    // The file fails, and another one is opened: no token precedes the operations.
    books.step(&mut session, &request("hits", ""), vec![Err(Error::Io)]);
    books.step(&mut session, &request("hits", ""), replies(false, "{\"value\":1}"));
    assert_eq!(books.written.last().map(String::as_str), Some("read\n"));
}

#[test]
fn a_cookie_that_makes_no_sense_is_an_error() {
    let (mut session, mut books) = (session(), Books::default());
    let answer = "{\"error\":\"not done: 'x y' is no token\",\"reason\":\"token\"}";
    books.step(
        &mut session,
        &request("hits", "Cookie: upcall-hits=x y\r\n"),
        replies(false, answer),
    );
    assert_eq!(books.written, ["after x y\nread\n"]);
    assert!(books.outputs.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{}", books.outputs);
    assert!(books.outputs.ends_with(&format!("{answer}\n")), "{}", books.outputs);
    // Without the token the connection continues, with another file.
    books.step(&mut session, &request("hits", ""), replies(false, "{\"value\":1}"));
    assert_eq!(books.written.last().map(String::as_str), Some("read\n"));
    assert!(books.outputs.contains("HTTP/1.1 200 OK"), "{}", books.outputs);
}

/// The write of the operations and the read of the responses are concurrent, so either may end
/// first.
#[test]
fn answers_may_come_before_the_operations_are_taken() {
    let mut lab = Lab::new();
    begin_operation(&mut lab, "", "add 5");
    lab.opened();
    lab.line("{\"value\":5}\n");
    lab.written();
    // Not accepted: the read is cancelled, and ends before the next request.
    begin_operation(&mut lab, "", "add 6");
    lab.step("<- not taken", Input::Answered(FEED, Err(Error::NoMemory)));
    lab.answer(Err(Error::Cancelled));
    begin_operation(&mut lab, "", "add 7");
    lab.opened();
    lab.answer(Err(Error::Io));
    lab.step("<- not taken", Input::Answered(FEED, Err(Error::Io)));
    for leaves in ["at once", "after the first"] {
        let mut other = Lab::new();
        begin_operation(&mut other, "", "add 8");
        other.opened();
        if leaves == "after the first" {
            other.line("{\"value\":5}\n");
        }
        other.text.clear();
        other.step(leaves, Input::Lost);
        assert!(!other.session.is_over());
        if leaves == "at once" {
            other.answer(Err(Error::Cancelled));
        }
        other.written();
        assert!(other.session.is_over());
        lab.text += &other.text;
    }
    expect![[r#"
        POST /services/hits/ops HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 2 Write, ask 0 Read 0+16384
        <- Data: 
        <- Written: say "200 OK" +12
        POST /services/hits/ops HTTP/1.1: ask 2 Write, ask 0 Read 0+16384
        <- not taken: cancel 0
        <- Cancelled: close 7, say "503 Service Unavailable" +30
        POST /services/hits/ops HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 2 Write, ask 0 Read 0+16384
        <- Io: 
        <- not taken: close 7, say "500 Internal Server Error" +16
        at once: close 7, cancel 0, cancel 2, hang up: the client left
        <- Cancelled: 
        <- Written: 
        after the first: close 7, cancel 2, hang up: the client left
        <- Written: 
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_large_body_is_cut_in_turns() {
    let body = "add 5\n".repeat(20_000);
    let begun = || {
        let mut lab = Lab::new();
        begin_operation(&mut lab, "", &body);
        assert!(lab.text.ends_with("HTTP/1.1: \n"), "{}", lab.text);
        assert_eq!(lab.session.deadline(), Some(Instant(0)), "it has more to do");
        assert!(lab.session.bytes() >= 2 * body.len());
        lab.text.clear();
        lab
    };
    let mut lab = begun();
    while lab.session.deadline() == Some(Instant(0)) {
        lab.step("turn", Input::Tick);
    }
    assert!(lab.text.ends_with("turn: \nturn: ask 0 Walk\n"), "{}", lab.text);
    // The client disconnects, or the server shuts down.
    for input in [Input::Lost, Input::Ended, Input::Drain] {
        let mut lab = begun();
        let is_lost = matches!(input, Input::Lost);
        lab.step("", input);
        assert_eq!(lab.session.is_over(), is_lost, "{}", lab.text);
        while lab.session.deadline() == Some(Instant(0)) {
            lab.step("turn", Input::Tick);
        }
        assert_eq!(lab.text.contains("ask 0 Walk"), !is_lost, "{}", lab.text);
    }
    // The error may be far behind.
    let mut lab = Lab::new();
    begin_operation(&mut lab, "", &("{\"op\": 1}\n".repeat(10_000) + "{"));
    lab.text.clear();
    while lab.session.deadline() == Some(Instant(0)) {
        lab.step("turn", Input::Tick);
    }
    assert!(lab.text.ends_with("say \"400 Bad Request\" +71\n"), "{}", lab.text);
}

#[test]
fn an_answer_that_does_not_come_any_more_is_an_error_that_says_so() {
    let mut lab = Lab::new();
    begin_operation(&mut lab, "", "add 5");
    lab.opened();
    lab.written();
    lab.line("");
    expect![[r#"
        POST /services/hits/ops HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 2 Write, ask 0 Read 0+16384
        <- Written: 
        <- Data: close 7, say "503 Service Unavailable" +60
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn changes_of_a_directory_are_server_sent_events() {
    let mut lab = Lab::new();
    lab.send("GET /a%20b/?watch=all HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.opened();
    lab.answer(Ok(Reply::Written(8)));
    lab.line("{\"change\":\"watching\",\"path\":\"/a b\"}\n");
    // A beat of its file is a comment.
    lab.line("\n");
    lab.step("drain", Input::Drain);
    expect![[r#"
        GET /a%20b/?watch=all HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 0 Write
        <- Written: ask 0 Read 0+65536
        <- Data: say "200 OK" +0, say 49 bytes, ask 0 Read 0+65536
        <- Data: say 8 bytes, ask 0 Read 0+65536
        drain: close 7, hang up: the listener has ended
    "#]]
    .assert_eq(&lab.text);
    let mut lab = Lab::new();
    lab.send("GET /missing?watch HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.opened();
    lab.answer(Ok(Reply::Written(8)));
    lab.line("{\"change\":\"error\",\"path\":\"/missing\",\"error\":\"x\"}\n");
    expect![[r#"
        GET /missing?watch HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, ask 0 Write
        <- Written: ask 0 Read 0+65536
        <- Data: close 7, say "404 Not Found" +47, finish
    "#]]
    .assert_eq(&lab.text);
    let mut lab = Lab::new();
    lab.send("GET /many?watch=all HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.answer(Ok(Reply::Walked(Vec::new(), Some(NodeId(1)))));
    lab.answer(Ok(Reply::Opened(OpenId(2), file(0))));
    lab.answer(Ok(Reply::Written(1)));
    lab.line("{\"change\":\"error\",\"path\":\"/many/1\",\"error\":\"too many open files\"}\n");
    assert!(lab.text.contains("say \"503 Service Unavailable\""), "{}", lab.text);
    let mut lab = Lab::new();
    lab.send("GET /a%0Ab?watch HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect![[r#"
        GET /a%0Ab?watch HTTP/1.1: say "404 Not Found" +43, finish
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn event_listeners_receive_whole_lines() {
    let mut lab = Lab::new();
    lab.send("GET /services/hits/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.opened();
    lab.line("{\"number\":1}\n{\"num");
    lab.line("ber\":2}\n");
    lab.step("drain", Input::Drain);
    expect![[r#"
        GET /services/hits/events HTTP/1.1: ask 0 Walk
        <- Walked: ask 0 Open
        <- Opened: release 5, say "200 OK" +0, ask 0 Read 0+65536
        <- Data: say 26 bytes, ask 0 Read 0+65536
        <- Data: say 26 bytes, ask 0 Read 0+65536
        drain: close 7, hang up: the listener has ended
    "#]]
    .assert_eq(&lab.text);
}
