//! PUT and DELETE.

use super::super::ground::Ground;
use super::super::raw::{Raw, once};
use super::{Case, ask, expect, request};
use anyhow::{Context, Result, ensure};
use rig::server::Server;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Case] = &[
    ("put_creates_and_replaces", put),
    ("put_in_chunks", put_in_chunks),
    ("put_with_conditions", put_with_conditions),
    ("put_with_a_digest", put_with_a_digest),
    ("put_where_it_cannot", put_where_it_cannot),
    ("put_cut_off", put_cut_off),
    ("expect_100_continue", expect_continue),
    ("delete", delete),
];

/// Path of the server's metrics.
const METRICS: &str = "/.upcall/metrics";
/// Counter of the bytes received over HTTP.
const RECEIVED: &str = "upcall_received_bytes_total{protocol=\"http\"} ";
/// Number of open connections.
const CONNECTIONS: &str = "upcall_queue_length{queue=\"connections\"} ";

/// Returns the value of one of the server's metrics.
fn metric(server: &Server, name: &str) -> Result<u64> {
    let metrics = ask(server, "GET", METRICS, "")?.text();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(value.with_context(|| format!("no metric {name}"))?.parse()?)
}

/// Waits until a condition holds.
fn await_state(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so()? {
        ensure!(started.elapsed() < Duration::from_secs(300), "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn put_body(path: &str, body: &str, fields: &str) -> String {
    format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn put(server: &Server, ground: &Ground) -> Result<String> {
    let first = once(server.http, &put_body("/put", "one", ""))?;
    ensure!(first.status == 201, "a new file: {}", first.status);
    ensure!(ground.text(server, "put")? == "one", "the host reads something else");
    let second = once(server.http, &put_body("/put", "x", ""))?;
    ensure!([200, 204].contains(&second.status), "an old file: {}", second.status);
    ensure!(ground.text(server, "put")? == "x", "the old bytes shine through");
    once(server.http, &put_body("/put-empty", "", ""))?;
    ensure!(ground.read(server, "put-empty")?.is_empty(), "not empty");
    Ok(String::new())
}

fn put_in_chunks(server: &Server, ground: &Ground) -> Result<String> {
    let mut raw = Raw::connect(server.http)?;
    raw.send(b"PUT /chunks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    raw.send(b"3\r\nabc\r\n5;name=value\r\ndefgh\r")?;
    raw.send(b"\n0\r\nTrailer: ignored\r\n\r\n")?;
    ensure!(raw.answer(false)?.status == 201, "not created");
    ensure!(ground.text(server, "chunks")? == "abcdefgh", "the bytes differ");
    raw.send(request(server, "GET", "/chunks", "").as_bytes())?;
    ensure!(raw.answer(false)?.text() == "abcdefgh", "the next request was not understood");
    Ok("extensions and trailers".into())
}

fn put_with_conditions(server: &Server, ground: &Ground) -> Result<String> {
    let put = |fields: &str, body: &str| once(server.http, &put_body("/conditional", body, fields));
    let created = put("If-None-Match: *\r\n", "first")?;
    ensure!(created.status == 201, "create only: {}", created.status);
    let again = put("If-None-Match: *\r\n", "second")?;
    ensure!(again.status == 412, "create only, again: {}", again.status);
    let etag = ask(server, "HEAD", "/conditional", "")?;
    let etag = etag.field("etag").context("no ETag")?.to_owned();
    let wrong = put("If-Match: \"other\"\r\n", "third")?;
    ensure!(wrong.status == 412, "another ETag: {}", wrong.status);
    ensure!(ground.text(server, "conditional")? == "first", "it was written to");
    let right = put(&format!("If-Match: {etag}\r\n"), "fourth")?;
    ensure!([200, 204].contains(&right.status), "its ETag: {}", right.status);
    let stale = put(&format!("If-Match: {etag}\r\n"), "fifth")?;
    ensure!(stale.status == 412, "a stale ETag: {}", stale.status);
    Ok("a lost update is refused".into())
}

/// SHA-256 of "hello world", in Base64.
const HELLO_WORLD: &str = "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=";

fn put_with_a_digest(server: &Server, ground: &Ground) -> Result<String> {
    let put = |fields: &str, body: &str| once(server.http, &put_body("/digest", body, fields));
    let right = format!("Content-Digest: sha-256=:{HELLO_WORLD}:, sha-512=:AAAA:\r\n");
    let damaged = put(&right, "hello worle")?;
    ensure!(damaged.status == 400 && damaged.text().contains("SHA-256"), "{}", damaged.head);
    ensure!(ask(server, "GET", "/digest", "")?.status == 404, "a damaged file is there");
    ensure!(put(&right, "hello world")?.status == 201, "the right digest");
    let same = format!("Repr-Digest: sha-256=:{HELLO_WORLD}:\r\n");
    ensure!(put(&same, "other")?.status == 400, "a digest of the representation");
    ensure!(ground.text(server, "digest")? == "hello world", "it was replaced");
    for wrong in ["sha-256=x", "sha-256=:AAAA:", "sha-256=:****:", "sha-256"] {
        let expected = if wrong.contains('=') { 400 } else { 204 };
        let answer = put(&format!("Content-Digest: {wrong}\r\n"), "hello world")?;
        ensure!(answer.status == expected, "{wrong}: {}", answer.status);
    }
    let mut raw = Raw::connect(server.http)?;
    let chunked = format!("Transfer-Encoding: chunked\r\n{right}\r\n6\r\nhello \r\n");
    raw.send(format!("PUT /digest HTTP/1.1\r\nHost: localhost\r\n{chunked}").as_bytes())?;
    raw.send(b"5\r\nworld\r\n0\r\n\r\n")?;
    ensure!(raw.answer(false)?.status == 204, "in chunks");
    Ok("a damaged upload is refused".into())
}

fn put_where_it_cannot(server: &Server, _: &Ground) -> Result<String> {
    let put = |path| once(server.http, &put_body(path, "x", ""));
    for (path, allowed) in [
        ("/nowhere/file", [404, 409]),
        ("/dir", [405, 409]),
        ("/dir/", [405, 409]),
        ("/", [405, 409]),
        ("/digits/below", [404, 409]),
    ] {
        let status = put(path)?.status;
        ensure!(allowed.contains(&status) || status == 400, "PUT {path}: {status}");
    }
    let mut raw = Raw::connect(server.http)?;
    raw.send(b"PUT /range HTTP/1.1\r\nHost: localhost\r\nContent-Range: bytes 0-1/5\r\n")?;
    raw.send(b"Content-Length: 2\r\n\r\nab")?;
    ensure!((400..500).contains(&raw.answer(false)?.status), "PUT with Content-Range");
    Ok(String::new())
}

/// Tests that a client that disconnects in the middle leaves the old file, or none, but no partial
/// one.
fn put_cut_off(server: &Server, ground: &Ground) -> Result<String> {
    const BODY: &str = "beginning";
    ground.write(server, "whole", "whole")?;
    for path in ["/whole", "/half"] {
        let before = metric(server, RECEIVED)?;
        let mut raw = Raw::connect(server.http)?;
        let head =
            format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n");
        let sent = head.len() + BODY.len();
        raw.send((head + BODY).as_bytes())?;
        // The requests for the metric are counted, too.
        let requested = request(server, "GET", METRICS, "").len();
        let mut questions = 0;
        await_state("the beginning arrives", || {
            questions += 1;
            let received = metric(server, RECEIVED)? - before;
            Ok(received >= (sent + questions * requested) as u64)
        })?;
        ensure!(ground.text(server, "whole")? == "whole", "an incomplete file is visible");
        drop(raw);
    }
    await_state("all are disconnected", || Ok(metric(server, CONNECTIONS)? == 1))?;
    ensure!(ground.text(server, "whole")? == "whole", "the old file is damaged");
    ensure!(!ground.has(server, "half")?, "half a file was left");
    for name in ground.names(server)? {
        ensure!(!name.contains("tmp") && !name.starts_with(".upcall"), "left behind: {name}");
    }
    Ok(String::new())
}

fn expect_continue(server: &Server, _: &Ground) -> Result<String> {
    let mut raw = Raw::connect(server.http)?;
    raw.send(b"PUT /waited HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n")?;
    raw.send(b"Content-Length: 3\r\n\r\n")?;
    let go = raw.answer(false)?;
    ensure!(go.status == 100, "{}", go.head);
    raw.send(b"abc")?;
    ensure!(raw.answer(false)?.status == 201, "not created");
    let mut raw = Raw::connect(server.http)?;
    raw.send(b"PUT /nowhere/file HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n")?;
    raw.send(b"Content-Length: 3\r\n\r\n")?;
    let mut answer = raw.answer(false)?;
    if answer.status == 100 {
        raw.send(b"abc")?;
        answer = raw.answer(false)?;
    }
    ensure!((400..500).contains(&answer.status), "{}", answer.head);
    Ok(String::new())
}

fn delete(server: &Server, ground: &Ground) -> Result<String> {
    ground.write(server, "doomed", "x")?;
    expect(server, ("DELETE", "/doomed"), "If-Match: \"other\"\r\n", 412)?;
    let gone = ask(server, "DELETE", "/doomed", "")?;
    ensure!([200, 204].contains(&gone.status), "{}", gone.status);
    ensure!(!ground.has(server, "doomed")?, "still there");
    expect(server, ("DELETE", "/doomed"), "", 404)?;
    ground.make_dir(server, "full")?;
    ground.write(server, "full/file", "x")?;
    let full = ask(server, "DELETE", "/full/", "")?;
    // A directory is removed with all below it (RFC 4918 §9.6.1), as far as the user may.
    let (is_left, status) = (ground.has(server, "full/file")?, full.status);
    let is_right = if is_left { [207, 403, 409].contains(&status) } else { status == 204 };
    ensure!(is_right, "{status}, and the file is {}", if is_left { "left" } else { "removed" });
    Ok(String::new())
}

/// Tests that without `--http-write` nothing can be changed.
pub(super) fn refused(server: &Server, ground: &Ground) -> Result<String> {
    let answer = once(server.http, &put_body("/not-written", "x", ""))?;
    ensure!([403, 405].contains(&answer.status), "PUT: {}", answer.status);
    ensure!(!ground.has(server, "not-written")?, "it was written");
    let answer = ask(server, "DELETE", "/digits", "")?;
    ensure!([403, 405].contains(&answer.status), "DELETE: {}", answer.status);
    ensure!(ground.has(server, "digits")?, "it was removed");
    Ok(String::new())
}
