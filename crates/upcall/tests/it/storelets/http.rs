//! The same over HTTP.

use super::{Lab, guests};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Returns the head of a request.
fn head(query: &str, fields: &str) -> String {
    format!(
        "POST /.upcall/storelets{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         {fields}\r\n"
    )
}

/// Posts a body; returns the whole response.
fn post(lab: &Lab, query: &str, body: &[u8]) -> String {
    let head = head(query, &format!("Content-Length: {}\r\n", body.len()));
    send(lab, &[head.as_bytes(), body].concat())
}

fn send(lab: &Lab, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(lab.server.http()).unwrap();
    client.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Decodes a chunked body.
pub(super) fn body(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked"), "{answer}");
    let mut body = String::new();
    loop {
        let (length, chunk) = rest.split_once("\r\n").unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return body;
        }
        body += &chunk[..length];
        rest = chunk[length..].strip_prefix("\r\n").unwrap();
    }
}

#[test]
fn a_posted_program_answers_and_how_it_ended_follows() {
    let lab = Lab::new(&[]);
    let answer = post(&lab, "?arg=a&arg=b%20c%0A&env=A=1", &guests::ARGS.wasm());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(body(&answer), "a\0b c\n\0", "{answer}");
    let printed = ["\r\nUpcall-End: exit\r\n", "\r\nUpcall-Exit: 0\r\n", "\r\nUpcall-Report: {"];
    assert!(printed.iter().all(|line| answer.contains(line)), "{answer}");
    assert!(answer.contains("\r\nUpcall-Complaint: A%3D1%00\r\n"), "{answer}");
    let answer = post(&lab, "?arg=a&env=A=1&errors", &guests::ARGS.wasm());
    assert_eq!(body(&answer).len(), "a\0A=1\0".len(), "{answer}");
    assert!(post(&lab, "", &guests::EXIT.wasm()).contains("\r\nUpcall-Exit: 7\r\n"));
    let answer = post(&lab, "?cpu=50ms", &guests::SPIN.wasm());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nUpcall-End: killed\r\n"), "{answer}");
    assert!(answer.contains("its processor time is used up"), "{answer}");
    let answer = post(&lab, "", &guests::TRAP.wasm());
    assert!(answer.contains("\r\nUpcall-End: trap\r\n"), "{answer}");
}

#[test]
fn metrics_count_storelets_that_have_ended() {
    let lab = Lab::new(&[]);
    post(&lab, "?arg=a", &guests::ARGS.wasm());
    post(&lab, "", &guests::EXIT.wasm());
    post(&lab, "?cpu=50ms", &guests::SPIN.wasm());
    post(&lab, "", &guests::TRAP.wasm());
    assert_eq!(body(&post(&lab, "", &guests::CAT.wasm())), "");
    let query = format!("?module={}", guests::CAT.hash());
    assert_eq!(body(&post(&lab, &query, b"hello\n")), "hello\n");
    let metrics = crate::server::get(lab.server.http(), "/.upcall/metrics");
    let value = |row: &str| {
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(row));
        let value: f64 = lines.next().expect(row).trim().parse().expect("a number");
        value
    };
    assert_eq!(value("upcall_storelets_ended_total{end=\"exit\"}"), 4.0, "{metrics}");
    assert_eq!(value("upcall_storelets_ended_total{end=\"killed\"}"), 1.0, "{metrics}");
    assert_eq!(value("upcall_storelets_ended_total{end=\"trap\"}"), 1.0, "{metrics}");
    // The budget of the spinning one covers both.
    let cpu = |kind| value(&format!("upcall_storelet_cpu_seconds_total{{kind=\"{kind}\"}}"));
    assert!(cpu("own") > 0.0 && cpu("own") + cpu("server") >= 0.05, "{metrics}");
    assert!(cpu("compile") > 0.0, "{metrics}");
    assert!(value("upcall_storelet_waited_seconds_total") > 0.0, "{metrics}");
    assert_eq!(value("upcall_storelet_bytes_total{kind=\"input\"}"), 6.0, "{metrics}");
    // "a" with its zero, and the line.
    assert_eq!(value("upcall_storelet_bytes_total{kind=\"output\"}"), 8.0, "{metrics}");
}

#[test]
fn a_post_body_is_standard_input() {
    let lab = Lab::new(&[]);
    let query = format!("?module={}", guests::CAT.hash());
    let answer = post(&lab, &query, b"hello");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(body(&post(&lab, "", &guests::CAT.wasm())), "");
    assert_eq!(body(&post(&lab, &query, b"hello\n")), "hello\n");
    assert_eq!(body(&post(&lab, &query, b"")), "");
    let large = "0123456789abcdef".repeat(100_000);
    assert!(body(&post(&lab, &query, large.as_bytes())) == large);
    let chunked =
        head(&query, "Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(body(&send(&lab, chunked.as_bytes())), "abcde");
    // Output arrives before all input is sent.
    let mut client = TcpStream::connect(lab.server.http()).unwrap();
    client.write_all(head(&query, "Transfer-Encoding: chunked\r\n").as_bytes()).unwrap();
    client.write_all(b"3\r\none\r\n").unwrap();
    let mut printed = Vec::new();
    while !printed.ends_with(b"3\r\none\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        printed.push(byte[0]);
    }
    client.write_all(b"0\r\n\r\n").unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("0\r\nUpcall-End: exit\r\n"), "{rest}");
}

#[test]
fn one_connection_runs_one_program_after_the_other() {
    let lab = Lab::new(&[]);
    let wasm = guests::EXIT.wasm();
    let length = wasm.len();
    let one = format!(
        "POST /.upcall/storelets HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    );
    let get = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let post = [one.as_bytes(), &wasm].concat();
    let answer = send(&lab, &[&post[..], &post, get.as_bytes()].concat());
    assert_eq!(answer.matches("\r\nUpcall-Exit: 7\r\n").count(), 2, "{answer}");
    assert!(answer.ends_with("\r\n\r\nx\n"), "{answer}");
}

#[test]
fn unrunnable_requests_get_a_status_code() {
    let lab = Lab::new(&[]);
    let exit = guests::EXIT.wasm();
    let is = |answer: String, code: u32, words: &str| {
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        assert!(answer.contains(words), "{answer}");
    };
    is(post(&lab, "", b"#!/bin/sh\necho\n"), 422, "does not begin as WebAssembly does");
    is(post(&lab, "?colour=red", &exit), 422, "no such word");
    is(post(&lab, "?memory=4G", &exit), 422, "memory exceeds this server's maximum");
    is(post(&lab, "?write", &exit), 403, "--http-write");
    let chunked = head("", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n";
    is(send(&lab, chunked.as_bytes()), 411, "send a program with its length");
    is(send(&lab, head("", "").as_bytes()), 411, "?module=sha256:HASH");
    let elsewhere = head("", "Content-Length: 0\r\n").replacen("storelets", "elsewhere", 1);
    is(send(&lab, elsewhere.as_bytes()), 405, "post it to /.upcall/storelets");
    let from = head("", "Origin: http://evil.example\r\nContent-Length: 0\r\n");
    is(send(&lab, from.as_bytes()), 403, "");
    lab.await_none();

    let lab = Lab::new(&["--http-write"]);
    let answer = post(&lab, "?write", &guests::create("new").wasm());
    assert!(answer.contains("\r\nUpcall-Exit: 0\r\n"), "{answer}");
    assert!(lab.served.path().join("new").exists());
    let lab = Lab::new(&["--storelet-threads", "0"]);
    is(post(&lab, "", &exit), 404, "this server runs no programs");
}

#[test]
fn a_disconnect_ends_the_run() {
    let lab = Lab::new(&[]);
    for guest in [&guests::SPIN, &guests::SLEEP, &guests::FLOOD] {
        let wasm = guest.wasm();
        let head = head("?cpu=10m&time=10m", &format!("Content-Length: {}\r\n", wasm.len()));
        let mut client = TcpStream::connect(lab.server.http()).unwrap();
        client.write_all(&[head.as_bytes(), &wasm].concat()).unwrap();
        let mut first = [0; 15];
        client.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        lab.await_state("running", 1);
        drop(client);
        lab.await_none();
    }
    // In the middle of a program, and of its input.
    let wasm = guests::CAT.wasm();
    let half = head("", &format!("Content-Length: {}\r\n", wasm.len() + 1));
    let mut client = TcpStream::connect(lab.server.http()).unwrap();
    client.write_all(&[half.as_bytes(), &wasm].concat()).unwrap();
    lab.await_state("received", 1);
    drop(client);
    lab.await_none();
    post(&lab, "", &wasm);
    let input = head(&format!("?module={}", guests::CAT.hash()), "Content-Length: 100\r\n");
    let mut client = TcpStream::connect(lab.server.http()).unwrap();
    client.write_all(&[input.as_bytes(), b"abc"].concat()).unwrap();
    lab.await_state("running", 1);
    drop(client);
    lab.await_none();
}
