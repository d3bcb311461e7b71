//! Sessions fed with server responses, in pieces.

use super::*;

fn session() -> HttpSession {
    let server = Server::Tcp("host".to_string(), 80);
    HttpSession::new(
        Url { server, host: "host".to_string(), path: "/d/{}".to_string() },
        crate::driver::pattern(64),
    )
}

/// Returns the completions of one response, split into pieces of `cut` bytes.
fn answer(kind: Kind, text: &str, cut: usize) -> Result<Vec<(u64, Outcome)>, &'static str> {
    let (mut session, mut out, mut ended) = (session(), Vec::new(), Vec::new());
    session.ask(5, &Io { kind, file: 3, offset: 10, len: 20 }, &mut out);
    let mut pending = Vec::new();
    for piece in text.as_bytes().chunks(cut) {
        pending.extend_from_slice(piece);
        let arrived = session.handle(&pending, &mut ended)?;
        pending.drain(..arrived);
    }
    Ok(ended)
}

#[test]
fn requests_are_written_as_in_rfc_9110() {
    let mut printed = String::new();
    for kind in [Kind::Read, Kind::Create, Kind::Remove] {
        let (mut session, mut out) = (session(), Vec::new());
        session.ask(1, &Io { kind, file: 3, offset: 10, len: 4 }, &mut out);
        printed +=
            &String::from_utf8_lossy(&out[..out.len() - if kind == Kind::Create { 4 } else { 0 }]);
    }
    expect_test::expect![[r#"
        GET /d/3 HTTP/1.1
        Host: host
        Range: bytes=10-13

        PUT /d/3 HTTP/1.1
        Host: host
        Content-Length: 4

        DELETE /d/3 HTTP/1.1
        Host: host

    "#]]
    .assert_eq(&printed.replace('\r', ""));
}

#[test]
fn answers_end_where_they_say_however_they_are_cut() {
    for cut in [1, 2, 7, 1000] {
        let plain = "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(answer(Kind::Read, plain, cut), Ok(vec![(5, Outcome::Done(5))]));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(answer(Kind::Read, chunked, cut), Ok(vec![(5, Outcome::Done(5))]));
        let nothing = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(answer(Kind::Write, nothing, cut), Ok(vec![(5, Outcome::Done(20))]), "sent");
        let gone = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(answer(Kind::Read, gone, cut), Ok(vec![(5, Outcome::Failed(404))]));
    }
}

#[test]
fn answers_without_end_or_question_are_refused() {
    assert!(answer(Kind::Read, "HTTP/1.1 200 OK\r\n\r\n", 99).is_err());
    assert!(answer(Kind::Read, "SMTP ready\r\n\r\n", 99).is_err());
    let twice = "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert!(answer(Kind::Read, twice, 99).is_err());
    let mut session = session();
    assert!(session.handle(b"HTTP/1.1 204 No Content\r\n\r\n", &mut Vec::new()).is_err());
}

#[test]
fn whatever_comes_nothing_panics() {
    let mut random = fastrand::Rng::with_seed(4);
    let good = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for _ in 0..20_000 {
        let (mut session, mut out, mut ended) = (session(), Vec::new(), Vec::new());
        session.ask(1, &Io { len: 4, ..Io::default() }, &mut out);
        let mut bytes = good.to_vec();
        (0..random.usize(..5)).for_each(|_| {
            let place = random.usize(..bytes.len());
            bytes[place] = random.u8(..);
        });
        bytes.truncate(random.usize(..=bytes.len()));
        let arrived = session.handle(&bytes, &mut ended);
        assert!(arrived.is_err() || arrived <= Ok(bytes.len()));
        session.give_up(&mut ended, Outcome::Failed(104));
        assert_eq!(ended.len(), 1, "it ends once");
    }
}
