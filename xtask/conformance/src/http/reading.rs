//! GET and HEAD: exact responses.

use super::super::ground::Ground;
use super::super::raw::Raw;
use super::{Case, ask, expect, request};
use anyhow::{Context, Result, ensure};
use rig::server::Server;

pub(super) const CASES: &[Case] = &[
    ("head_is_get_without_body", head),
    ("fields", fields),
    ("one_range", one_range),
    ("several_ranges", several_ranges),
    ("unsatisfiable_ranges", unsatisfiable),
    ("if_none_match", if_none_match),
    ("if_match", if_match),
    ("if_range", if_range),
    ("keep_alive", keep_alive),
    ("http_1_0", http_1_0),
    ("pipelining", pipelining),
    ("slow_bytes", slow_bytes),
    ("listing_html", listing_html),
    ("listing_json", listing_json),
    ("directory_without_slash", without_slash),
    ("not_found", not_found),
    ("methods", methods),
    ("errors_for_programs", errors_for_programs),
];

fn head(server: &Server, _: &Ground) -> Result<String> {
    let get = expect(server, ("GET", "/digits"), "", 200)?;
    let head = expect(server, ("HEAD", "/digits"), "", 200)?;
    for name in ["content-length", "etag", "last-modified", "content-type", "accept-ranges"] {
        ensure!(head.field(name) == get.field(name), "{name} differs");
    }
    ensure!(get.text() == "0123456789", "got {:?}", get.text());
    let empty = expect(server, ("GET", "/empty"), "", 200)?;
    ensure!(empty.field("content-length") == Some("0"), "{}", empty.head);
    Ok(String::new())
}

fn fields(server: &Server, _: &Ground) -> Result<String> {
    let page = expect(server, ("GET", "/page.html"), "", 200)?;
    let kind = page.field("content-type").context("no Content-Type")?;
    ensure!(kind.starts_with("text/html"), "{kind}");
    let bin = expect(server, ("GET", "/big.bin"), "", 200)?;
    let kind = bin.field("content-type").context("no Content-Type")?;
    ensure!(kind == "application/octet-stream", "{kind}");
    ensure!(bin.field("accept-ranges") == Some("bytes"), "{}", bin.head);
    ensure!(bin.field("date").is_some_and(|date| date.ends_with(" GMT")), "{}", bin.head);
    ensure!(bin.field("last-modified").is_some_and(|d| d.ends_with(" GMT")), "{}", bin.head);
    ensure!(bin.field("etag").is_some_and(|etag| etag.ends_with('"')), "{}", bin.head);
    ensure!(bin.field("x-content-type-options") == Some("nosniff"), "{}", bin.head);
    Ok(String::new())
}

/// Problem details (RFC 9457) for clients that prefer JSON.
fn errors_for_programs(server: &Server, _: &Ground) -> Result<String> {
    for accept in ["application/problem+json", "application/json", "*/*;q=0.1, application/json"] {
        let fields = format!("Accept: {accept}\r\n");
        let answer = expect(server, ("GET", "/no-such-file"), &fields, 404)?;
        let kind = answer.field("content-type");
        ensure!(kind == Some("application/problem+json"), "{accept}: {}", answer.head);
        ensure!(answer.field("vary") == Some("Accept"), "a cache may give it to others");
        let details: serde_json::Value = serde_json::from_str(&answer.text())?;
        ensure!(details["status"] == 404 && details["title"] == "Not Found", "{details}");
        ensure!(details["detail"] == "there is no such file", "{details}");
    }
    for accept in ["*/*", "text/html, application/json;q=0.5"] {
        let answer = expect(server, ("GET", "/no"), &format!("Accept: {accept}\r\n"), 404)?;
        let kind = answer.field("content-type").context("no Content-Type")?;
        ensure!(kind.starts_with("text/plain"), "{accept}: {kind}");
    }
    Ok(String::new())
}

fn one_range(server: &Server, _: &Ground) -> Result<String> {
    for (range, body, at) in [
        ("0-0", "0", "bytes 0-0/10"),
        ("3-5", "345", "bytes 3-5/10"),
        ("8-99", "89", "bytes 8-9/10"),
        ("-2", "89", "bytes 8-9/10"),
        ("-99", "0123456789", "bytes 0-9/10"),
    ] {
        let field = format!("Range: bytes={range}\r\n");
        let answer = expect(server, ("GET", "/digits"), &field, 206)?;
        ensure!(answer.text() == body, "{range}: {:?}", answer.text());
        ensure!(answer.field("content-range") == Some(at), "{range}: {}", answer.head);
    }
    // An invalid range of bytes is ignored.
    for range in ["lines=1-2", "bytes=5-3", "bytes=a-b", "bytes="] {
        let answer = ask(server, "GET", "/digits", &format!("Range: {range}\r\n"))?;
        ensure!([200, 416].contains(&answer.status), "{range}: {}", answer.status);
    }
    Ok(String::new())
}

fn several_ranges(server: &Server, _: &Ground) -> Result<String> {
    let answer = expect(server, ("GET", "/digits"), "Range: bytes=0-1,4-5,-1\r\n", 206)?;
    let kind = answer.field("content-type").context("no Content-Type")?.to_owned();
    let (kind, boundary) = kind.split_once("boundary=").context("no boundary")?;
    ensure!(kind.starts_with("multipart/byteranges"), "{kind}");
    let text = answer.text();
    let parts: Vec<_> = text.split(&format!("--{}", boundary.trim_matches('"'))).collect();
    ensure!(parts.len() == 5 && parts[4].starts_with("--"), "{} parts: {text}", parts.len());
    for (part, (at, body)) in
        parts[1..4].iter().zip([("0-1/10", "01"), ("4-5/10", "45"), ("9-9/10", "9")])
    {
        ensure!(part.contains(&format!("bytes {at}")), "{part}");
        ensure!(part.trim_end().ends_with(&format!("\r\n\r\n{body}")), "{part}");
    }
    let many = format!("Range: bytes={}0-0\r\n", "0-9,".repeat(2000));
    let answer = ask(server, "GET", "/digits", &many)?;
    ensure!(answer.body.len() < 100_000, "{} bytes for 10", answer.body.len());
    Ok("and two thousand overlapping ones cost little".into())
}

fn unsatisfiable(server: &Server, _: &Ground) -> Result<String> {
    let answer = expect(server, ("GET", "/digits"), "Range: bytes=10-\r\n", 416)?;
    ensure!(answer.field("content-range") == Some("bytes */10"), "{}", answer.head);
    expect(server, ("GET", "/digits"), "Range: bytes=99999999999999999999-\r\n", 416).or_else(
        |_| expect(server, ("GET", "/digits"), "Range: bytes=99999999999999999999-\r\n", 200),
    )?;
    Ok(String::new())
}

fn if_none_match(server: &Server, _: &Ground) -> Result<String> {
    let first = expect(server, ("GET", "/digits"), "", 200)?;
    let etag = first.field("etag").context("no ETag")?;
    for field in [etag.to_owned(), format!("\"other\", {etag}"), "*".into()] {
        let answer =
            expect(server, ("GET", "/digits"), &format!("If-None-Match: {field}\r\n"), 304)?;
        ensure!(answer.field("etag") == Some(etag), "304 has no ETag");
    }
    expect(server, ("GET", "/digits"), "If-None-Match: \"other\"\r\n", 200)?;
    let both = "If-None-Match: \"other\"\r\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n";
    expect(server, ("GET", "/digits"), both, 200)?;
    Ok(String::new())
}

fn if_match(server: &Server, _: &Ground) -> Result<String> {
    let first = expect(server, ("GET", "/digits"), "", 200)?;
    let etag = first.field("etag").context("no ETag")?;
    let changed = first.field("last-modified").context("no Last-Modified")?;
    expect(server, ("GET", "/digits"), &format!("If-Match: {etag}\r\n"), 200)?;
    expect(server, ("GET", "/digits"), "If-Match: \"other\"\r\n", 412)?;
    expect(server, ("GET", "/digits"), &format!("If-Unmodified-Since: {changed}\r\n"), 200)?;
    let old = "If-Unmodified-Since: Mon, 01 Jan 1990 00:00:00 GMT\r\n";
    expect(server, ("GET", "/digits"), old, 412)?;
    expect(server, ("GET", "/digits"), &format!("If-Modified-Since: {changed}\r\n"), 304)?;
    Ok(String::new())
}

fn if_range(server: &Server, _: &Ground) -> Result<String> {
    let first = expect(server, ("GET", "/digits"), "", 200)?;
    let etag = first.field("etag").context("no ETag")?;
    expect(server, ("GET", "/digits"), &format!("Range: bytes=0-1\r\nIf-Range: {etag}\r\n"), 206)?;
    expect(server, ("GET", "/digits"), "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n", 200)?;
    Ok(String::new())
}

fn keep_alive(server: &Server, _: &Ground) -> Result<String> {
    let mut raw = Raw::connect(server.http)?;
    for _ in 0..100 {
        raw.send(request(server, "GET", "/digits", "").as_bytes())?;
        ensure!(raw.answer(false)?.text() == "0123456789", "another answer");
    }
    raw.send(request(server, "GET", "/digits", "Connection: close\r\n").as_bytes())?;
    let last = raw.answer(false)?;
    ensure!(last.field("connection") == Some("close"), "{}", last.head);
    ensure!(raw.closed()?, "still open");
    Ok("101 requests".into())
}

fn http_1_0(server: &Server, _: &Ground) -> Result<String> {
    let mut raw = Raw::connect(server.http)?;
    raw.send(
        format!("GET /digits HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n", server.http).as_bytes(),
    )?;
    ensure!(raw.answer(false)?.text() == "0123456789", "another answer");
    ensure!(raw.closed()?, "still open");
    Ok(String::new())
}

fn pipelining(server: &Server, _: &Ground) -> Result<String> {
    let mut raw = Raw::connect(server.http)?;
    let paths = ["/digits", "/page.html", "/nowhere", "/empty", "/dir/inner.txt"];
    let all: String = (0..40).map(|n| request(server, "GET", paths[n % 5], "")).collect();
    raw.send(all.as_bytes())?;
    for number in 0..40 {
        let answer = raw.answer(false)?;
        let (status, body) = match number % 5 {
            0 => (200, Some("0123456789")),
            1 => (200, Some("<p>hello</p>\n")),
            2 => (404, None),
            3 => (200, Some("")),
            _ => (200, Some("inner\n")),
        };
        ensure!(answer.status == status, "answer {number}: {}", answer.status);
        ensure!(body.is_none_or(|body| answer.text() == body), "answer {number} is another's");
    }
    let upload = "PUT /piped HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    raw.send((upload.to_owned() + &request(server, "GET", "/piped", "")).as_bytes())?;
    ensure!([201, 204].contains(&raw.answer(false)?.status), "PUT in a pipeline");
    ensure!(raw.answer(false)?.text() == "abc", "GET sees the PUT before it");
    Ok("40 requests in one write, answers in order".into())
}

fn slow_bytes(server: &Server, _: &Ground) -> Result<String> {
    let mut raw = Raw::connect(server.http)?;
    for byte in request(server, "GET", "/digits", "").bytes() {
        raw.send(&[byte])?;
    }
    ensure!(raw.answer(false)?.text() == "0123456789", "another answer");
    Ok("one byte a segment".into())
}

fn listing_html(server: &Server, _: &Ground) -> Result<String> {
    let page = expect(server, ("GET", "/"), "Accept: text/html\r\n", 200)?;
    let kind = page.field("content-type").unwrap_or_default();
    ensure!(kind.starts_with("text/html"), "{kind}");
    let text = page.text();
    ensure!(text.contains("digits") && text.contains("dir/"), "{text}");
    ensure!(!text.contains("<mark>"), "a name is not escaped");
    ensure!(text.contains("with%20space"), "a link is not encoded");
    ensure!(text.contains("viewport"), "not for telephones");
    Ok(format!("{} bytes", text.len()))
}

fn listing_json(server: &Server, _: &Ground) -> Result<String> {
    let page = expect(server, ("GET", "/"), "Accept: application/json\r\n", 200)?;
    let kind = page.field("content-type").unwrap_or_default();
    ensure!(kind.starts_with("application/json"), "{kind}");
    let value: serde_json::Value = serde_json::from_str(&page.text()).context("not JSON")?;
    let text = value.to_string();
    ensure!(text.contains("\"with space & <mark>.txt\""), "{text}");
    Ok(format!("{} bytes", text.len()))
}

fn without_slash(server: &Server, _: &Ground) -> Result<String> {
    let answer = ask(server, "GET", "/dir", "")?;
    ensure!([301, 302, 307, 308].contains(&answer.status), "{}", answer.status);
    let to = answer.field("location").unwrap_or_default();
    ensure!(to == "./dir/", "Location: {to}");
    expect(server, ("GET", "/dir/"), "", 200)?;
    // A target that begins with two slashes must not redirect a browser to another host.
    let answer = ask(server, "GET", "//dir", "")?;
    let to = answer.field("location").unwrap_or_default();
    ensure!(!to.starts_with("//"), "Location: {to}");
    Ok(String::new())
}

fn not_found(server: &Server, _: &Ground) -> Result<String> {
    let answer = expect(server, ("GET", "/nowhere"), "", 404)?;
    ensure!(answer.text().trim().lines().count() == 1, "the reason: {:?}", answer.text());
    expect(server, ("GET", "/digits/below"), "", 404)?;
    expect(server, ("GET", "/dir/nowhere/else"), "", 404)?;
    Ok(answer.text().trim().to_owned())
}

fn methods(server: &Server, _: &Ground) -> Result<String> {
    for method in ["POST", "PATCH", "BREW"] {
        let answer = ask(server, method, "/digits", "Content-Length: 0\r\n")?;
        ensure!([405, 501].contains(&answer.status), "{method}: {}", answer.status);
    }
    Ok(String::new())
}
