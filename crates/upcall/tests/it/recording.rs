//! Recordings of a server: every file I/O of clients, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::server::{BINARY, Scratch, Server, get, put, upcall};
use crate::volumes::made;
use client::{Client, OpenOptions, Options};
use load::trace::{Format, Notes, Reader};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PORTS: [&str; 4] = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// An I/O of a recording, with its client.
struct Io {
    what: String,
    stream: u32,
}

/// Reads a recording; checks that its times are in order, and that each I/O took some time.
fn read(path: &Path) -> Vec<Io> {
    let mut reader = Reader::open(path, None, load::trace::Options::default()).unwrap();
    assert_eq!(reader.format(), Format::Recording);
    let (mut all, mut last_ns) = (Vec::new(), 0);
    while let Some(record) = reader.next() {
        let record = record.unwrap();
        assert!(record.at_ns >= last_ns && record.took_ns.unwrap() > 0, "{record:?}");
        assert!(Duration::from_nanos(record.took_ns.unwrap()) < Duration::from_secs(60));
        last_ns = record.at_ns;
        let (io, name) = (record.io, &reader.names()[record.io.file as usize]);
        let what = format!("{} {name} {}+{}", io.kind, io.offset, io.len);
        all.push(Io { what, stream: record.stream });
    }
    assert_eq!(reader.notes(), Notes::default());
    all
}

fn client(server: &Server) -> Client {
    Client::connect(&server.ninep().parse().unwrap(), &Options::default()).unwrap()
}

/// Gets a range of a file over HTTP.
fn get_range(address: &str, path: &str, range: &str) {
    let mut client = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={range}\r\n\
         Connection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 206 "), "{answer}");
}

/// Performs the same I/O on each server.
fn exercise(server: &Server) {
    assert!(put(server.http(), "/hello", b"hello\n").unwrap().starts_with("HTTP/1.1 20"));
    assert!(get(server.http(), "/hello").ends_with("\r\n\r\nhello\n"));
    get_range(server.http(), "/hello", "2-3");
    assert!(get(server.http(), "/.upcall/queues").contains("connections"));
    let client = client(server);
    client.create_dir("/dir").unwrap();
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let file = client.open_with("/dir/new", options).unwrap();
    assert_eq!(file.write_at(&[1; 1000], 0).unwrap(), 1000);
    assert_eq!(file.write_at(&[2; 500], 4096).unwrap(), 500);
    file.sync().unwrap();
    assert_eq!(file.read_at(&mut [0; 100], 50).unwrap(), 100);
    assert_eq!(file.read_at(&mut [0; 1000], 4500).unwrap(), 96);
    file.close().unwrap();
    let names = client.read_dir("/dir").unwrap().map(|entry| entry.unwrap().name);
    assert_eq!(names.count(), 1);
    drop(client.open_with("/dir/new", OpenOptions::new().write(true).truncate(true)).unwrap());
    client.remove("/dir/new").unwrap();
    client.remove("/dir").unwrap();
}

const EXERCISE: [&str; 12] = [
    "create /hello 0+0",
    "write /hello 0+6",
    "sync /hello 0+0",
    "read /hello 0+6",
    "read /hello 2+2",
    "create /dir/new 0+0",
    "write /dir/new 0+1000",
    "write /dir/new 4096+500",
    "sync /dir/new 0+0",
    "read /dir/new 50+100",
    "read /dir/new 4500+96",
    "trim /dir/new 0+4596",
];

/// Terminates it as a service manager would.
fn terminate(mut server: Server) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(server.wait(), Some(0));
}

fn own_user() -> String {
    let output = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Serves and records this tree, performs the I/O, stops the server; returns the recording.
fn recorded(what: &str, file: &Path, args: &[&str]) -> Vec<Io> {
    let user = own_user();
    let record = ["--record", file.to_str().unwrap(), "--http-write", "--as", &user];
    let server = Server::with(&[&[what][..], &PORTS, &record, args].concat());
    assert!(server.greeting().contains("\nrecord   every I/O of files into "));
    exercise(&server);
    terminate(server);
    read(file)
}

fn check(all: &[Io]) {
    let what: Vec<&str> = all.iter().map(|io| io.what.as_str()).collect();
    let expected: Vec<&str> = EXERCISE.into_iter().chain(["remove /dir/new 0+0"]).collect();
    assert_eq!(what, expected);
}

#[test]
fn ios_of_directories_and_volumes_are_recorded() {
    let scratch = Scratch::new("recording");
    let dir = scratch.path().join("served");
    std::fs::create_dir(&dir).unwrap();
    let volume = made(&scratch, &[]);
    for form in ["uring", "threads"] {
        for (what, name) in [(dir.to_str().unwrap(), "dir"), (&volume, "volume")] {
            let file = scratch.path().join(format!("{form}-{name}"));
            check(&recorded(what, &file, &["--reactor", form]));
        }
    }
}

#[test]
fn ios_of_all_threads_are_recorded_with_their_client() {
    let scratch = Scratch::new("recording-threads");
    let (dir, file) = (scratch.path().join("served"), scratch.path().join("recording"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("hello"), "hello\n").unwrap();
    let args = ["--threads", "3", "--record", file.to_str().unwrap()];
    let server = Server::start(&dir, &args);
    let clients: Vec<Client> = (0..60).map(|_| client(&server)).collect();
    for client in &clients {
        assert_eq!(client.open("/hello").unwrap().read_at(&mut [0; 3], 1).unwrap(), 3);
    }
    let machines = get(server.http(), "/.upcall/machines");
    assert!(machines.contains("\nrecorder    Recording   1\n"), "{machines}");
    // A batch is handed out within a tenth of a second on an idle machine.
    let begun = Instant::now();
    let metrics = loop {
        let metrics = get(server.http(), "/.upcall/metrics");
        if metrics.contains("\nupcall_recorded_total 60\n") {
            break metrics;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{metrics}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(metrics.contains("\nupcall_recording_lost_total 0\n"), "{metrics}");
    terminate(server);
    let all = read(&file);
    assert!(all.len() == 60 && all.iter().all(|io| io.what == "read /hello 1+3"));
    let streams: BTreeSet<u32> = all.iter().map(|io| io.stream).collect();
    assert_eq!(streams.len(), 60);
    // The threads' numbers are in the bits above those of their connections.
    assert!(streams.iter().map(|stream| stream >> 24).collect::<BTreeSet<_>>().len() > 1);
}

#[test]
fn a_recording_is_gone_on_with_and_nothing_else_is_written_to() {
    let scratch = Scratch::new("recording-again");
    let (dir, file) = (scratch.path().join("served"), scratch.path().join("recording"));
    std::fs::create_dir(&dir).unwrap();
    for round in 1..=2 {
        let all = recorded(dir.to_str().unwrap(), &file, &[]);
        assert_eq!(all.len(), round * (EXERCISE.len() + 1));
        check(&all[all.len() - EXERCISE.len() - 1..]);
    }
    let other = scratch.path().join("other");
    std::fs::write(&other, "precious").unwrap();
    let args = [dir.to_str().unwrap(), "--record", other.to_str().unwrap()];
    let (status, text) = upcall(&args);
    assert_eq!((status, text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("is no recording"), "{text}");
    assert_eq!(std::fs::read(&other).unwrap(), b"precious");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_server() {
    let scratch = Scratch::new("recording-full");
    let (dir, file) = (scratch.path().join("served"), scratch.path().join("recording"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("hello"), "hello\n").unwrap();
    // A limit on the size of its files acts as a full disk, when the signal is ignored: in blocks
    // of 512 bytes, four times the size of one write.
    let script = "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, BINARY, "serve", dir.to_str().unwrap()]).args(PORTS);
    let server = Server::run(command.args(["--record", file.to_str().unwrap()]));
    let ended = |server: &Server| {
        get(server.http(), "/.upcall/machines").contains("\nrecorder    Ended       1\n")
    };
    while !ended(&server) {
        for _ in 0..10 {
            assert!(get(server.http(), "/hello").ends_with("\r\n\r\nhello\n"));
        }
    }
    assert!(get(server.http(), "/hello").ends_with("\r\n\r\nhello\n"));
    terminate(server);
    assert!(!read(&file).is_empty());
}
