//! End-to-end tests of the binary: its output, its exit codes, its refusals.
#![allow(clippy::disallowed_methods, reason = "a test of a real process waits in real time")]

mod bombs;
mod closed_outputs;
mod compiling;
mod copying;
mod full;
mod growing;
mod in_use;
mod instrument;
mod interrupts;
mod library;
mod memory;
mod messages;
mod moving;
mod nfs;
mod ninep;
mod quotas;
mod recording;
mod remote;
mod replicas;
mod rolling_back;
mod root;
mod server;
mod spaces;
mod storelets;
mod strange;
mod subtrees;
mod volumes;
mod watching;

use server::{Scratch, Server, get, upcall};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[test]
fn it_says_what_it_serves_and_answers_at_once() {
    for form in ["uring", "threads"] {
        let dir = Scratch::new("greeting");
        std::fs::write(dir.path().join("hello"), "hello\n").unwrap();
        let started = Instant::now();
        let server = Server::start(dir.path(), &["--reactor", form]);
        assert!(started.elapsed() < Duration::from_secs(60));
        let text = server.greeting();
        assert!(text.contains(&format!("serving  {}, read-write", dir.path().display())), "{text}");
        assert!(text.contains(&format!("reactor  {form}, as requested")), "{text}");
        assert!(text.contains("mount -t 9p -o trans=tcp,port="), "{text}");
        assert!(text.contains("curl http://127.0.0.1:"), "{text}");
        let answer = get(server.http(), "/hello");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn unservable_paths_are_refused_with_a_next_step() {
    let dir = Scratch::new("refusals");
    let path = dir.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    std::fs::write(dir.path().join("file"), "").unwrap();
    std::fs::write(dir.path().join("bad.toml"), "dir = \".\"\ncolour = 1\n").unwrap();
    let file = format!("{path}/file");
    let config = format!("{path}/bad.toml");
    let root = rustix::process::geteuid().is_root();
    let nobody = if root { "no user has this number; name another one" } else { "needs root" };
    let cases: [(&[&str], &str); 9] = [
        (&[path, "--9p", &port, "--http", "none"], "choose another address, with --9p ADDR"),
        (&["/no/such/directory"], "name a directory that exists"),
        (&[&file], "is not a volume, or one of another version: name a volume"),
        (&["/dev/null"], "neither a directory nor a file"),
        (
            &[path, "--http", "nonsense"],
            "http: cannot understand the address 'nonsense': write HOST:PORT, unix:PATH or none",
        ),
        (&[path, "--9p", "none", "--http", "none"], "nothing to listen on"),
        (&[path, "--msize", "1"], "use a size from 4096 to 1048576"),
        (&["--config", &config], "bad.toml line 2: unknown field `colour`"),
        (&[path, "--as", "4294967295"], nobody),
    ];
    for (args, advice) in cases {
        let (status, text) = upcall(args);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(advice), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let (status, text) = upcall(&["--colour"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("unexpected argument '--colour'"), "{text}");
}

/// Waits until the server accepts no connection.
fn await_refusal(server: &Server) {
    while TcpStream::connect(server.http()).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_lets_what_is_under_way_end_and_a_second_one_does_not() {
    let dir = Scratch::new("draining");
    let big = vec![7; 64 << 20];
    std::fs::write(dir.path().join("big"), &big).unwrap();
    let mut server = Server::start(dir.path(), &[]);
    let mut client = TcpStream::connect(server.http()).unwrap();
    client.write_all(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 100];
    client.read_exact(&mut first).unwrap();
    server.interrupt();
    await_refusal(&server);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&big[..1000]) && rest.len() > big.len());
    assert_eq!(server.wait(), Some(0));

    let mut server = Server::start(dir.path(), &[]);
    let mut client = TcpStream::connect(server.http()).unwrap();
    client.write_all(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    client.read_exact(&mut first).unwrap();
    let started = Instant::now();
    server.interrupt();
    await_refusal(&server);
    server.interrupt();
    assert_eq!(server.wait(), Some(0));
    assert!(started.elapsed() < node::DRAIN_TIME);
}

#[test]
fn a_file_says_the_same_as_flags_and_a_unix_socket_serves() {
    let dir = Scratch::new("config");
    std::fs::write(dir.path().join("hello"), "hello\n").unwrap();
    let (socket, config) = (dir.path().join("http.sock"), dir.path().join("upcall.toml"));
    let text = format!(
        "dir = {:?}\n9p = \"127.0.0.1:0\"\nread-only = true\n\
         http = [\"127.0.0.1:0\", \"unix:{}\"]\n",
        dir.path(),
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let server = Server::with(&["--config", config.to_str().unwrap()]);
    assert!(server.greeting().contains("read-only"), "{}", server.greeting());
    let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    client.write_all(b"GET /hello HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
    assert_eq!(server.end(), Some(0));
    assert!(!socket.exists(), "the socket's name goes with the server");
}

#[test]
fn nothing_outside_can_be_read() {
    let (dir, outside) = (Scratch::new("inside"), Scratch::new("outside"));
    std::fs::write(outside.path().join("secret"), "secret\n").unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("absolute")).unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    std::os::unix::fs::symlink(format!("../{name}"), dir.path().join("relative")).unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("open"), "open\n").unwrap();
    std::os::unix::fs::symlink("../open", dir.path().join("sub/within")).unwrap();
    for form in ["uring", "threads"] {
        let server = Server::start(dir.path(), &["--reactor", form]);
        for link in ["absolute", "relative"] {
            let answer = get(server.http(), &format!("/{link}/secret"));
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        }
        assert!(get(server.http(), "/sub/within").ends_with("open\n"));
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn without_leave_nothing_is_written_over_http() {
    let dir = Scratch::new("writing");
    let put = |address: &str| {
        let mut client = TcpStream::connect(address).unwrap();
        let text = "PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\
                    Connection: close\r\n\r\nabc";
        client.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let server = Server::start(dir.path(), &[]);
    assert!(put(server.http()).starts_with("HTTP/1.1 405 "));
    assert_eq!(server.end(), Some(0));
    let server = Server::start(dir.path(), &["--http-write", "--read-only"]);
    assert!(put(server.http()).starts_with("HTTP/1.1 405 "));
    assert_eq!(server.end(), Some(0));
    let server = Server::start(dir.path(), &["--http-write"]);
    let answer = put(server.http());
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(std::fs::read(dir.path().join("new")).unwrap(), b"abc");
    assert_eq!(server.end(), Some(0));
}
