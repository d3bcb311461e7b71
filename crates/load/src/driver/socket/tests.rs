//! Connections that end and servers that disappear, with a scripted HTTP server.
#![allow(clippy::disallowed_methods, reason = "the server waits, in threads of its own")]

use crate::driver::server::Server;
use crate::driver::{Driver, Http, Target, Troubles, Url};
use crate::{Io, Kind, Outcome};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Serves this many requests on each connection, then closes it; a polite server announces that in
/// its last response.
fn server(listener: TcpListener, each: usize, polite: bool) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream, each, polite));
        }
    });
}

fn answer(mut stream: &TcpStream, each: usize, polite: bool) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    for number in 1..=each {
        if !lines.by_ref().any(|line| line.is_empty()) {
            return;
        }
        let close = if polite && number == each { "Connection: close\r\n" } else { "" };
        let text = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 4\r\n\r\nbody");
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
    // An impolite one reads the next request and closes.
    let _ = polite || lines.any(|line| line.is_empty());
}

fn target(listener: &TcpListener) -> Http {
    let port = listener.local_addr().expect("it listens").port();
    let server = Server::Tcp("127.0.0.1".to_string(), port);
    let url = Url { server, host: "here".to_string(), path: "/".to_string() };
    Http { url, connections: 2, io_max: 4, troubles: Troubles::default() }
}

/// Returns the outcome of one more I/O.
fn one(driver: &mut dyn Driver) -> Outcome {
    let mut ended = Vec::new();
    let late = Instant::now() + Duration::from_secs(60);
    while driver.room() == 0 {
        assert!(Instant::now() < late, "no connection was made or given up");
        driver.wait(Duration::from_secs(1));
        driver.poll(&mut ended);
    }
    driver.issue(1, &Io { kind: Kind::Read, file: 0, offset: 0, len: 4 });
    driver.flush();
    driver.poll(&mut ended);
    while ended.is_empty() {
        assert!(Instant::now() < late, "an I/O did not end");
        driver.wait(Duration::from_secs(1));
        driver.poll(&mut ended);
    }
    ended[0].1
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port is free")
}

#[test]
fn connections_that_a_server_ends_are_made_again() {
    let listener = listener();
    let target = target(&listener);
    server(listener, 3, true);
    let mut driver = target.driver(0, 1).expect("it connects");
    let all: Vec<Outcome> = (0..30).map(|_| one(&mut *driver)).collect();
    assert!(all.iter().all(|outcome| *outcome == Outcome::Done(4)), "{all:?}");
    let printed = target.troubles().join("; ");
    assert!(printed.contains("as announced"), "{printed}");
}

#[test]
fn a_lost_connection_fails_only_its_own_ios() {
    let listener = listener();
    let target = target(&listener);
    server(listener, 4, false);
    let mut driver = target.driver(0, 1).expect("it connects");
    let all: Vec<Outcome> = (0..50).map(|_| one(&mut *driver)).collect();
    let lost = all.iter().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
    let done = all.iter().filter(|outcome| **outcome == Outcome::Done(4)).count();
    // One of five on each; their distribution over the two depends on the reconnection time.
    assert!((9..=10).contains(&lost) && lost + done == 50, "{all:?}");
}

#[test]
fn io_to_a_server_that_is_gone_fails_until_it_is_back() {
    let listener = listener();
    let target = target(&listener);
    let mut driver = target.driver(0, 1).expect("it connects");
    let address = listener.local_addr().expect("it listens");
    let streams: Vec<_> = (0..2).map(|_| listener.accept().expect("two come").0).collect();
    drop((listener, streams));
    let all: Vec<Outcome> = (0..5).map(|_| one(&mut *driver)).collect();
    assert!(all.iter().all(|outcome| matches!(outcome, Outcome::Failed(_))), "{all:?}");
    let printed = target.troubles().join("; ");
    assert!(printed.contains("is the server running there?"), "{printed}");

    let back = TcpListener::bind(address).expect("the port is still ours");
    server(back, usize::MAX, true);
    let late = Instant::now() + Duration::from_secs(60);
    while one(&mut *driver) != Outcome::Done(4) {
        assert!(Instant::now() < late, "the server is back");
    }
}
