//! Requests that must be refused: path traversal, ambiguous lengths, foreign hosts, and slow
//! clients.

use super::super::ground::Ground;
use super::super::raw::{Raw, once};
use super::{Case, ask, expect};
use anyhow::{Result, ensure};
use rig::server::Server;

pub(super) const CASES: &[Case] = &[
    ("paths_stay_inside", paths),
    ("links_stay_inside", links),
    ("foreign_host", foreign_host),
    ("foreign_origin", foreign_origin),
    ("smuggling", smuggling),
    ("oversize_head", oversize),
    ("malformed_heads", malformed),
    ("garbage_does_not_kill", garbage),
    ("slow_heads_do_not_block_others", slow),
];

fn paths(server: &Server, _: &Ground) -> Result<String> {
    let tricks = [
        "/../http.secret",
        "/../../../../../../etc/passwd",
        "/dir/../../http.secret",
        "/%2e%2e/http.secret",
        "/%2e%2e%2fhttp.secret",
        "/..%2fhttp.secret",
        "/dir/%2e%2e/%2e%2e/http.secret",
        "/....//http.secret",
        "/.%00./http.secret",
        "/digits%00.html",
        "/%c0%ae%c0%ae/http.secret",
        "//etc/passwd",
        "/./../http.secret",
        "/..\\http.secret",
        "http://127.0.0.1/../http.secret",
    ];
    for path in tricks {
        let answer = ask(server, "GET", path, "")?;
        let text = answer.text();
        ensure!(!text.contains("outside") && !text.contains("root:"), "{path} escapes");
        ensure!((400..500).contains(&answer.status), "{path}: {}", answer.status);
    }
    // Inside the tree a `..` may be resolved or refused, but not misinterpreted.
    let answer = ask(server, "GET", "/dir/../digits", "")?;
    ensure!(answer.status != 200 || answer.text() == "0123456789", "{}", answer.text());
    for path in ["/%", "/%4", "/%zz"] {
        let answer = ask(server, "GET", path, "")?;
        ensure!([400, 404].contains(&answer.status), "{path}: {}", answer.status);
    }
    Ok(format!("{} tricks", tricks.len()))
}

fn links(server: &Server, ground: &Ground) -> Result<String> {
    for path in ["/escape", "/absolute"] {
        let answer = ask(server, "GET", path, "")?;
        ensure!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        let put = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
        let _ = once(server.http, &put)?;
    }
    let secret = std::fs::read_to_string(ground.dir.with_extension("secret"))?;
    ensure!(secret == "outside\n", "a PUT wrote through a link");
    Ok(String::new())
}

/// Tests DNS rebinding: a name that an attacker's DNS resolves to 127.0.0.1 must not reach the
/// files.
fn foreign_host(server: &Server, _: &Ground) -> Result<String> {
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.net"]
    {
        let answer = once(server.http, &format!("GET /digits HTTP/1.1\r\nHost: {host}\r\n\r\n"))?;
        ensure!([400, 403, 421].contains(&answer.status), "Host {host}: {}", answer.status);
    }
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        let line = format!("GET /digits HTTP/1.1\r\nHost: {host}:{}\r\n\r\n", server.http);
        let answer = once(server.http, &line)?;
        ensure!(answer.status == 200, "Host {host}: {}", answer.status);
    }
    let none = once(server.http, "GET /digits HTTP/1.1\r\n\r\n")?;
    ensure!(none.status == 400, "no Host: {}", none.status);
    let two = "GET /digits HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    ensure!(once(server.http, two)?.status == 400, "two Hosts");
    let absolute = "GET http://evil.example/digits HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = once(server.http, absolute)?;
    ensure!((400..500).contains(&answer.status), "a foreign absolute target: {}", answer.status);
    Ok(String::new())
}

fn foreign_origin(server: &Server, ground: &Ground) -> Result<String> {
    for origin in ["http://evil.example", "null", "https://127.0.0.1.evil.example"] {
        let put = format!(
            "PUT /crossed HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n\
             Content-Length: 1\r\n\r\nx"
        );
        let answer = once(server.http, &put)?;
        ensure!(answer.status == 403, "Origin {origin}: {}", answer.status);
        let answer = ask(server, "GET", "/digits", &format!("Origin: {origin}\r\n"))?;
        let open = answer.field("access-control-allow-origin").is_some();
        ensure!(answer.status == 403 && !open, "GET, Origin {origin}: {}", answer.status);
    }
    ensure!(!ground.has(server, "crossed")?, "it was written");
    let own = format!("Origin: http://127.0.0.1:{}\r\n", server.http);
    expect(server, ("GET", "/digits"), &own, 200)?;
    Ok(String::new())
}

/// Tests heads with an ambiguous body length.
fn smuggling(server: &Server, ground: &Ground) -> Result<String> {
    let bodies = [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "Content-Length: +3\r\n\r\nabc",
        "Content-Length: 0x3\r\n\r\nabc",
        "Content-Length: 3, 4\r\n\r\nabcd",
        "Content-Length: -1\r\n\r\nabc",
        "Content-Length: 99999999999999999999999\r\n\r\nabc",
        "Content-Length : 3\r\n\r\nabc",
        "Transfer-Encoding: identity, chunked, gzip\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n",
        "X: y\r\n folded: z\r\nContent-Length: 1\r\n\r\nx",
    ];
    for body in bodies {
        let mut raw = Raw::connect(server.http)?;
        let smuggled = "GET /digits HTTP/1.1\r\nHost: localhost\r\n\r\n";
        raw.send(
            format!("PUT /smuggled HTTP/1.1\r\nHost: localhost\r\n{body}{smuggled}").as_bytes(),
        )?;
        let answer = raw.answer(false)?;
        let status = answer.status;
        ensure!([400, 413, 501].contains(&status), "{body:?}: {status}");
        ensure!(raw.closed()?, "{body:?}: the connection lives on");
    }
    ensure!(!ground.has(server, "smuggled")?, "something was written");
    Ok(format!("{} heads", bodies.len()))
}

fn oversize(server: &Server, _: &Ground) -> Result<String> {
    let long = "x".repeat(200_000);
    for head in [
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(30_000)),
    ] {
        let mut raw = Raw::connect(server.http)?;
        // The server may respond and close during the send.
        let _ = raw.send(head.as_bytes());
        match raw.answer(false) {
            Ok(answer) => {
                let refused = [400, 414, 431].contains(&answer.status);
                ensure!(refused, "{}", answer.status);
            }
            Err(error) => ensure!(format!("{error:#}").contains("closed"), "{error:#}"),
        }
    }
    Ok(String::new())
}

fn malformed(server: &Server, _: &Ground) -> Result<String> {
    for head in [
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n: empty\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x01b\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET digits HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut raw = Raw::connect(server.http)?;
        raw.send(head.as_bytes())?;
        match raw.answer(false) {
            Ok(answer) => {
                let refused = (400..600).contains(&answer.status);
                ensure!(refused, "{head:?}: {}", answer.status);
            }
            Err(error) => ensure!(format!("{error:#}").contains("closed"), "{head:?}: {error:#}"),
        }
    }
    Ok(String::new())
}

/// Sends bytes that are not HTTP, the same on every run.
fn garbage(server: &Server, _: &Ground) -> Result<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..100 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend_from_slice(&state.to_be_bytes()[..4]);
        }
        let mut raw = Raw::connect(server.http)?;
        let _ = raw.send(&bytes);
    }
    expect(server, ("GET", "/digits"), "", 200)?;
    Ok("200 connections".into())
}

fn slow(server: &Server, _: &Ground) -> Result<String> {
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut raw = Raw::connect(server.http)?;
        raw.send(b"GET /digits HTTP/1.1\r\nHost: loc")?;
        idle.push(raw);
    }
    let start = std::time::Instant::now();
    for _ in 0..50 {
        ensure!(ask(server, "GET", "/digits", "")?.status == 200, "refused beside slow ones");
    }
    let took = start.elapsed().as_millis();
    ensure!(took < 2000, "50 requests took {took} ms beside 200 slow heads");
    for raw in &mut idle {
        raw.send(b"alhost\r\n\r\n")?;
    }
    let last = idle.last_mut().map(|raw| raw.answer(false)).transpose()?;
    ensure!(last.is_some_and(|answer| answer.status == 200), "a slow head is not served");
    Ok(format!("50 requests in {took} ms beside 200 slow heads"))
}
