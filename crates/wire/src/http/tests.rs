use super::*;
use base::rng::seeded;

fn get(extra: &str) -> Result<Request, Refusal> {
    let text = format!("GET /a%20b/c?q HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n");
    parse(text.as_bytes()).map(|parsed| parsed.unwrap().0)
}

#[test]
fn a_head_becomes_a_request() {
    let request = get("Range: bytes=0-4,-2\r\nAccept: application/json\r\n").unwrap();
    assert_eq!(request.target.encoded(), "/a%20b/c");
    assert!(request.keep_alive && request.preference.json && !request.target.slash);
    let resolved = request.ranges.unwrap().resolve(10);
    assert_eq!(resolved, Resolved::Parts(vec![0..5, 8..10]));
    assert_eq!(parse(b"GET / HT"), Ok(None));
}

#[test]
fn ambiguous_framing_is_refused() {
    let status = |extra: &str| get(extra).unwrap_err().status;
    assert_eq!(status("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400);
    assert_eq!(status("Content-Length: 3\r\nContent-Length: 3\r\n"), 400);
    assert_eq!(status("Content-Length: +3\r\n"), 400);
    assert_eq!(status("Transfer-Encoding: gzip, chunked\r\n"), 501);
    assert_eq!(status("Transfer-Encoding : chunked\r\n"), 400);
    assert_eq!(status("X: a\r\n b\r\n"), 400);
    assert_eq!(status("Host: other\r\n"), 400);
    assert_eq!(status("Transfer-Encoding: \u{a0}chunked\r\n"), 501);
    assert_eq!(status("Content-Length: \u{2003}3\r\n"), 400);
    assert_eq!(status("X: a\nY: b\r\n"), 400);
    let parse = |text: &str| super::parse(text.as_bytes()).unwrap_err().status;
    assert_eq!(parse("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(parse("GET / HTTP/1.1\nHost: x\n\n"), 400);
    assert_eq!(parse("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
    assert_eq!(parse("GET http://x/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), 400);
    assert_eq!(parse("GET http://x/ HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(parse("GET http:/// HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
    assert_eq!(parse("GET * HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
    assert!(super::parse(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").is_ok());
    assert_eq!(parse("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_eq!(parse("BREW / HTTP/1.1\r\nHost: x\r\n\r\n"), 501);
    assert_eq!(parse("GET / HTTP/3.1\r\nHost: x\r\n\r\n"), 505);
    assert_eq!(parse(&format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(HEAD_MAX))), 431);
}

#[test]
fn tricks_with_paths_are_refused() {
    for path in ["/../x", "/a/%2e%2e/b", "/a%2fb", "/a%00", "x", "/.", "/a#b"] {
        let text = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(parse(text.as_bytes()).unwrap_err().status, 400, "{path}");
    }
    let text = b"GET http://h:1//a/ HTTP/1.1\r\nHost: ignored\r\n\r\n";
    let (request, _) = parse(text).unwrap().unwrap();
    assert_eq!(request.host.as_deref(), Some("h:1"));
    assert_eq!((request.target.encoded().as_str(), request.target.slash), ("/a", true));
}

#[test]
fn fields_of_webdav_are_parsed_for_its_methods() {
    let parse = |method: &str, fields: &str| {
        let text = format!("{method} /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        parse(text.as_bytes()).map(|parsed| parsed.unwrap().0)
    };
    assert_eq!(parse("GET", "Depth: x\r\n").unwrap().dav, None);
    let dav = parse("PROPFIND", "Depth: Infinity\r\n").unwrap().dav.unwrap();
    assert_eq!((dav.depth, dav.overwrite, dav.destination), (Some(Depth::Infinity), true, None));
    let to = |text: &str| {
        let fields = format!("Destination: {text}\r\nOverwrite: F\r\n");
        let dav = parse("MOVE", &fields)?.dav.unwrap();
        assert!(!dav.overwrite);
        let Destination { target, authority } = dav.destination.unwrap();
        Ok::<_, Refusal>((target.encoded(), authority))
    };
    assert_eq!(to("/b%20c/"), Ok(("/b%20c".to_string(), None)));
    for scheme in ["http", "https", "HTTP"] {
        let there = to(&format!("{scheme}://h:1/b"));
        assert_eq!(there, Ok(("/b".to_string(), Some("h:1".to_string()))));
    }
    for bad in ["b", "https:///b", "ftp://h/b", "/a/../b", "/b#c", ""] {
        assert_eq!(to(bad).unwrap_err().status, 400, "{bad}");
    }
    let long = std::time::Duration::MAX;
    let dav = parse("LOCK", "Timeout: Infinite, Second-9\r\n").unwrap().dav.unwrap();
    assert_eq!(dav.timeout, Some(long));
    let fields = "Timeout: x, Second-9\r\nLock-Token: <a:b>\r\n";
    let dav = parse("UNLOCK", fields).unwrap().dav.unwrap();
    assert_eq!(dav.timeout, Some(std::time::Duration::from_secs(9)));
    assert_eq!(dav.lock_token.as_deref(), Some("a:b"));
    for bad in ["Lock-Token: a", "If:", "If: (", "If: ()", "If: (x)", "If: <x> (<a>)", "If: </a>"] {
        assert_eq!(parse("PUT", &format!("{bad}\r\n")).unwrap_err().status, 400, "{bad}");
    }
    for bad in ["Depth: 2", "Overwrite: yes", "Depth: 0\r\nDepth: 1"] {
        assert_eq!(parse("COPY", &format!("{bad}\r\n")).unwrap_err().status, 400, "{bad}");
    }
}

#[test]
fn states_are_lists_of_tokens_and_tags() {
    let states = "(<t:1> [\"e\"]) <http://h/b> (Not <t:2>)(nOt[W/\"x\"])";
    let text = format!("PUT /a HTTP/1.1\r\nHost: h\r\nIf: {states}\r\n\r\n");
    let request = super::parse(text.as_bytes()).unwrap().unwrap().0;
    let token = |text: &str| ResourceState::Token(text.to_string());
    let tag = |text: &str| ResourceState::Tag(text.to_string());
    let list = |path: Option<&str>, conditions: Vec<(bool, ResourceState)>| StateList {
        path: path.map(|name| vec![base::Name::new(name.as_bytes()).unwrap()].into()),
        conditions: conditions
            .into_iter()
            .map(|(is_not, state)| StateCondition { is_not, state })
            .collect(),
    };
    let expected = vec![
        list(None, vec![(false, token("t:1")), (false, tag("\"e\""))]),
        list(Some("b"), vec![(true, token("t:2"))]),
        list(Some("b"), vec![(true, tag("W/\"x\""))]),
    ];
    assert_eq!(request.dav.unwrap().states, expected);
    let many = format!("PUT /a HTTP/1.1\r\nHost: h\r\nIf: ({})\r\n\r\n", "<a>".repeat(65));
    assert_eq!(super::parse(many.as_bytes()).unwrap_err().status, 400);
    let mut conditions = Conditions::default();
    let there = Some(("\"e\"", Time::from_secs(1)));
    assert!(conditions.is_empty());
    conditions.require_one_of(vec![vec![(false, "\"x\"".into())], vec![(true, "\"x\"".into())]]);
    assert_eq!(conditions.judge(Method::Put, there), Verdict::Go);
    conditions.require_one_of(vec![vec![(false, "\"e\"".into()), (true, "\"e\"".into())]]);
    assert_eq!(conditions.judge(Method::Put, there), Verdict::Failed);
    assert!(!conditions.is_empty());
}

#[test]
fn ranges_that_ask_for_too_much_get_everything() {
    let ranges = |text: &str| Ranges::parse(text).map(|ranges| ranges.resolve(100));
    assert_eq!(ranges("bytes=200-"), Some(Resolved::Unsatisfiable));
    assert_eq!(ranges("bytes=0-1,90-200"), Some(Resolved::Parts(vec![0..2, 90..100])));
    assert_eq!(ranges("bytes=0-,0-"), Some(Resolved::Whole));
    assert_eq!(ranges("bytes=5-2"), None);
    assert_eq!(ranges("lines=1-2"), None);
    assert_eq!(ranges(&format!("bytes={}", "0-0,".repeat(65))), None);
}

#[test]
fn conditions_are_judged_in_the_rfcs_order() {
    let there = Some(("\"t\"", Time::from_secs(1_000_000_000)));
    let judge = |extra: &str, method| get(extra).unwrap().conditions.judge(method, there);
    let same = "If-None-Match: W/\"t\"\r\n";
    assert_eq!(judge(same, Method::Get), Verdict::NotModified);
    assert_eq!(judge(same, Method::Put), Verdict::Failed);
    assert_eq!(judge("If-Match: W/\"t\"\r\n", Method::Get), Verdict::Failed);
    assert_eq!(judge("If-Match: \"x\", \"t\"\r\n", Method::Put), Verdict::Go);
    let since = "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT\r\n";
    assert_eq!(judge(since, Method::Get), Verdict::NotModified);
    let other = format!("If-None-Match: \"x\"\r\n{since}");
    assert_eq!(judge(&other, Method::Get), Verdict::Go);
    let none = get("If-None-Match: *\r\n").unwrap().conditions;
    assert_eq!(none.judge(Method::Put, None), Verdict::Go);
}

fn unchunk(mut bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let (mut place, mut data) = (Chunks::Size, Vec::new());
    loop {
        let (piece, next) = place.next(bytes)?;
        place = next;
        match piece {
            Piece::Framing(n) => bytes = &bytes[n..],
            Piece::Data(n) => {
                data.extend(&bytes[..n]);
                bytes = &bytes[n..];
            }
            Piece::Incomplete | Piece::End => return Ok(data),
        }
    }
}

#[test]
fn chunks_are_joined() {
    assert_eq!(unchunk(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n").unwrap(), b"abcde");
    assert_eq!(unchunk(b"3\r\nabcX\r\n").unwrap_err().status, 400);
    for wrong in [
        &b"zz\r\n"[..],
        b"\r\n",
        b";x\r\n",
        b" 3\r\nabc",
        b"3;x\ny\r\nabc",
        b"3;\0\r\nabc",
        b"3\nabc\r\n",
        b"0\r\nA: b\nC: d\r\n\r\n",
        b"0\r\nA: \0\r\n\r\n",
        b"0\r\nA: \rb\r\n\r\n",
        b"0\r\n\n",
    ] {
        assert_eq!(unchunk(wrong).unwrap_err().status, 400, "{wrong:?}");
    }
    assert_eq!(unchunk(b"3;\tx=\xc3\xa9\r\nabc\r\n0\r").unwrap(), b"abc");
}

/// Any bytes parse to a request, to `None` for an incomplete head, or to a refusal; never to a
/// panic.
#[test]
fn nothing_makes_the_parsers_panic() {
    let seeds: [&[u8]; 3] = [
        b"PUT /a%20/b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nIf-Match: \"a\"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=1-2,-3\r\nIf-Range: \"q\"\r\n\r\n",
        b"5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
    ];
    for seed in 0..20_000 {
        let mut rng = seeded(seed);
        let mut bytes = seeds[rng.usize(0..3)].to_vec();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(0..bytes.len());
            match rng.u8(0..3) {
                0 => bytes[at] = rng.u8(..),
                1 => bytes.truncate(at.max(1)),
                _insert => bytes.insert(at, rng.u8(..)),
            }
        }
        if let Ok(Some((request, length))) = parse(&bytes) {
            assert!(length <= bytes.len());
            assert!(request.target.path.iter().all(base::Name::plain));
        }
        let _ = unchunk(&bytes);
    }
}

#[test]
fn json_is_preferred_by_weight_and_then_by_the_more_specific_range() {
    let cases = [
        ("application/json", true),
        ("*/*", false),
        ("application/json, text/plain, */*", true),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
        ("application/json;q=0.5, text/html", false),
        ("text/html;q=0.5, application/json;q=0.6", true),
        ("application/*, text/html;q=0.9", true),
        ("application/json;q=0", false),
        ("application/json; Q = 0.3, text/*;q=0.2", true),
        ("application/json;q=x, */*;q=0.1", false),
        ("", false),
    ];
    for (accept, wanted) in cases {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        let (request, _) = parse(head.as_bytes()).unwrap().unwrap();
        assert_eq!(request.preference.json, wanted, "{accept}");
    }
}
