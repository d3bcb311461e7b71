//! Operations on replicated services, and what becomes final in them.

use super::*;

/// Up to the answer to the first operation: not said yet.
pub(super) fn begin_operation(lab: &mut Lab, fields: &str, body: &str) {
    let length = body.len();
    let fields = format!("Host: localhost\r\nContent-Length: {length}\r\n{fields}");
    lab.say(&format!("POST /services/hits/ops HTTP/1.1\r\n{fields}\r\n{body}"));
}

impl Lab {
    fn opened(&mut self) {
        self.answer(Ok(Reply::Walked(vec![file(0); 3], Some(NodeId(5)))));
        self.answer(Ok(Reply::Opened(OpenId(7), file(0))));
    }

    fn written(&mut self) {
        self.answer(Ok(Reply::Written(6)));
    }

    fn line(&mut self, text: &str) {
        self.answer(Ok(Reply::Data(Buf::from(text.as_bytes()))));
    }
}

/// The second one finds the file open; what is wrong with one is a status of its own.
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
        <- Opened: release 5, ask 0 Write
        <- Written: ask 0 Read 0+1048576
        <- Data: ask 0 Read 0+1048576
        <- Data: say "200 OK" +43
        POST /services/hits/ops HTTP/1.1: ask 0 Write
        <- Written: ask 0 Read 0+1048576
        <- Data: say "400 Bad Request" +36
        POST /services/hits/ops HTTP/1.1: ask 0 Write
        <- Written: ask 0 Read 0+1048576
        <- Data: say "200 OK" +43
        gone: hang up: the client left, close 7
    "#]]
    .assert_eq(&lab.text);
}

/// Who listens holds nothing while nothing is told, who posts what came of it.
#[test]
fn what_waits_counts_for_what_is_held() {
    let mut lab = Lab::new();
    lab.say("GET /services/hits/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    lab.opened();
    lab.take();
    assert_eq!((lab.session.bytes(), lab.session.state_name()), (0, "listening"));
    lab.line("{}\n");
    assert_eq!(lab.session.bytes(), lab.sent);
    let mut lab = Lab::new();
    lab.say("POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n");
    lab.say(&"x".repeat(100));
    assert_eq!(lab.session.bytes(), 100);
}

#[test]
fn a_body_comes_in_parts_and_its_client_may_leave() {
    let mut lab = Lab::new();
    lab.say("POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nad");
    lab.say("d 5");
    lab.step("gone", Input::Lost);
    let mut torn = Lab::new();
    torn.say("POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nad");
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

/// What was seen on another connection travels in a cookie, both ways.
#[test]
fn a_token_comes_and_goes_in_a_cookie() {
    let mut session = session();
    let request = "POST /services/hits/ops HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\
                   Cookie: a=b; upcall-hits=7f-1:9\r\n\r\nread";
    let inputs = [
        Input::Received(Buf::from(request.as_bytes())),
        Input::Answered(CALL, Ok(Reply::Walked(vec![file(0); 3], Some(NodeId(5))))),
        Input::Answered(CALL, Ok(Reply::Opened(OpenId(7), file(0)))),
        Input::Answered(CALL, Ok(Reply::Written(20))),
        Input::Answered(CALL, Ok(Reply::Data(Buf::from(&b"{\"token\":\"7f-1:9.2:1\"}\n"[..])))),
    ];
    let mut out = Vec::new();
    inputs.into_iter().for_each(|input| session.step(Instant(0), input, &mut out));
    let written = out.iter().find_map(|output| match output {
        Output::Ask(_, request) => match &request.ask {
            Ask::Write { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
            _other => None,
        },
        _other => None,
    });
    assert_eq!(written.as_deref(), Some("after 7f-1:9\nread\n"));
    let said: Vec<u8> = out
        .iter()
        .flat_map(|output| match output {
            Output::Send(bytes) => bytes.to_vec(),
            _other => Vec::new(),
        })
        .collect();
    let said = String::from_utf8_lossy(&said);
    let cookie = "Set-Cookie: upcall-hits=7f-1:9.2:1; Path=/services/hits; SameSite=Strict";
    assert!(said.contains(cookie), "{said}");
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
        <- Opened: release 5, ask 0 Write
        <- Written: ask 0 Read 0+1048576
        <- Data: close 7, say "503 Service Unavailable" +60
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn who_listens_hears_whole_lines() {
    let mut lab = Lab::new();
    lab.say("GET /services/hits/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
        drain: close 7, hang up: nobody listens
    "#]]
    .assert_eq(&lab.text);
}
