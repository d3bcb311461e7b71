//! Memory that clients make the server hold, measured from outside.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use crate::ninep::Client;
use crate::server::{BINARY, Scratch, Server, get};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Memory for all connections, MiB.
const MEMORY_MAX: u64 = 64;

/// Memory of the process without clients, and of each connection beyond the limit, KiB.
const BESIDES: u64 = 96 << 10;
const EACH: u64 = 128;

/// Attackers, each with a connection of its own.
const ATTACKERS: u64 = 400;

/// Returns the resident memory of the process, KiB.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn start(dir: &Scratch) -> Server {
    std::fs::write(dir.path().join("small"), "well\n").unwrap();
    let files = std::fs::File::create(dir.path().join("large")).unwrap();
    files.set_len(1 << 30).unwrap();
    let memory = MEMORY_MAX.to_string();
    Server::start(dir.path(), &["--memory-max", &memory])
}

/// Asserts that a new client gets the file.
fn expect_served(server: &Server) {
    let answer = get(server.http(), "/small");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("well\n"), "{answer}");
}

/// Asserts that the server has stayed within its memory limit and serves others.
fn judge(server: &Server) {
    expect_served(server);
    assert_eq!(Client::connect(server.ninep()).read("small").unwrap(), b"well\n");
    let most = (MEMORY_MAX << 10) + BESIDES + ATTACKERS * EACH;
    let has = resident(server);
    assert!(has <= most, "{has} KiB in memory, {most} allowed");
}

/// Sends as much as the server accepts before it closes the connection.
fn push(stream: &mut TcpStream, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) if count > 0 => rest = &rest[count..],
            Ok(_) => return,
            // The socket's buffers are full: the server does not read.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => return,
        }
    }
}

#[test]
fn unfinished_messages_of_many_clients_stay_within_the_memory() {
    let dir = Scratch::new("unfinished");
    let server = start(&dir);
    let mut version = vec![21, 0, 0, 0, 100, 0xff, 0xff];
    version.extend((1u32 << 20).to_le_bytes());
    version.extend([8, 0]);
    version.extend(b"9P2000.L");
    // A Twrite of maximum size, whose last byte never arrives.
    let mut write = (1u32 << 20).to_le_bytes().to_vec();
    write.push(118);
    write.resize((1 << 20) - 1, 7);
    let mut attackers = Vec::new();
    for _ in 0..ATTACKERS {
        let mut stream = TcpStream::connect(server.ninep()).unwrap();
        stream.write_all(&version).unwrap();
        let mut answer = [0; 21];
        stream.read_exact(&mut answer).unwrap();
        stream.set_nonblocking(true).unwrap();
        push(&mut stream, &write);
        attackers.push(stream);
    }
    judge(&server);
    drop(attackers);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn responses_that_nobody_reads_stay_within_the_memory() {
    let dir = Scratch::new("unread");
    let server = start(&dir);
    let mut attackers = Vec::new();
    for _ in 0..ATTACKERS {
        let mut stream = TcpStream::connect(server.http()).unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // The response has begun; the rest is never read.
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        attackers.push(stream);
    }
    judge(&server);
    drop(attackers);
    server.kill();
}

#[test]
fn idle_connections_give_way_to_newcomers() {
    let dir = Scratch::new("idle");
    std::fs::write(dir.path().join("small"), "well\n").unwrap();
    let server = Server::start(dir.path(), &["--connections-max", "64"]);
    let idle: Vec<TcpStream> = (0..64)
        .map(|n| TcpStream::connect(if n % 2 == 0 { server.http() } else { server.ninep() }))
        .map(Result::unwrap)
        .collect();
    expect_served(&server);
    drop(idle);
    assert_eq!(server.end(), Some(0));
}

/// Idle connections of the client with most of them are closed for others; one with an open file
/// stays.
#[test]
fn a_client_with_most_places_does_not_keep_others_out() {
    let dir = Scratch::new("crowd");
    std::fs::write(dir.path().join("small"), "well\n").unwrap();
    let server = Server::start(dir.path(), &["--connections-max", "64"]);
    let mut works = Client::connect(server.ninep());
    assert_eq!(works.read("/small").unwrap(), b"well\n");
    let crowd: Vec<Client> = (1..64).map(|_| Client::connect(server.ninep())).collect();
    expect_served(&server);
    assert_eq!(works.read("/small").unwrap(), b"well\n", "its file is open");
    drop(crowd);
    assert_eq!(server.end(), Some(0));
}

/// Also if all of its connections have a file open.
#[test]
fn a_client_with_open_files_on_most_connections_does_not_keep_others_out() {
    let dir = Scratch::new("openers");
    std::fs::write(dir.path().join("small"), "well\n").unwrap();
    let server = Server::start(dir.path(), &["--connections-max", "64"]);
    let mut crowd: Vec<Client> = (0..64).map(|_| Client::connect(server.ninep())).collect();
    for client in &mut crowd {
        assert_eq!(client.read("/small").unwrap(), b"well\n");
    }
    // Each listener may accept one more when only one connection is left.
    let newcomers = [(); 3].map(|()| Client::connect(server.ninep()).read("/small"));
    assert!(newcomers.iter().all(|it| it.as_deref() == Ok(b"well\n")));
    expect_served(&server);
    drop(crowd);
    assert_eq!(server.end(), Some(0));
}

/// Starts a server with 2,000 open files; `args`: more arguments.
fn start_with_few_files(dir: &Scratch, args: &[&str]) -> Server {
    std::fs::write(dir.path().join("small"), "well\n").unwrap();
    let mut command = Command::new("sh");
    // Root could raise the limit again.
    let limited = "ulimit -n 2000 && if [ $(id -u) = 0 ]; \
                   then exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource \"$@\"; \
                   else exec \"$@\"; fi";
    let ports = ["--9p", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    command.args(["-c", limited, "sh", BINARY, "serve"]).arg(dir.path()).args(ports).args(args);
    Server::run(&mut command)
}

/// Each connection may hold 64 nodes and open files. Many connections could hold all.
#[test]
fn handles_of_many_connections_give_way_to_newcomers() {
    let dir = Scratch::new("handles");
    let server = start_with_few_files(&dir, &[]);
    let mut crowd: Vec<Client> = (0..60).map(|_| Client::connect(server.ninep())).collect();
    let opened: usize = crowd.iter_mut().map(|it| it.hold("/small", 40)).sum();
    assert!(opened > 400, "{opened} files were opened: they do not use up anything");
    // Recently opened files are protected for a second.
    let newcomer = || Client::try_connect(server.ninep())?.read("/small");
    let read = std::iter::repeat_with(newcomer).find_map(Result::ok);
    assert_eq!(read.unwrap(), b"well\n");
    expect_served(&server);
    drop(crowd);
    assert_eq!(server.end(), Some(0));
}

/// A client's unfinished uploads leave open files to other clients, from the first moment on.
#[test]
fn unfinished_uploads_leave_open_files_to_other_clients() {
    let dir = Scratch::new("uploads");
    let sockets = Scratch::new("sockets");
    let path = sockets.path().join("http");
    let http = format!("unix:{}", path.display());
    let server = start_with_few_files(&dir, &["--http-write", "--http", &http]);
    let begin = |number| {
        let mut stream = TcpStream::connect(server.http()).unwrap();
        let head = format!(
            "PUT /{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\
             Expect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        (stream, first.ends_with(b"100"))
    };
    let uploads: Vec<(TcpStream, bool)> = (0..600).map(begin).collect();
    // Without a byte for a second, an upload gives way to the next.
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let end = stream.read_to_end(&mut Vec::new());
        end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let open = uploads.iter().filter(|(stream, is_begun)| *is_begun && is_open(stream)).count();
    assert!(open > 100 && open < uploads.len(), "{open} uploads are open");
    for _ in 0..20 {
        let mut other = UnixStream::connect(&path).unwrap();
        other.write_all(b"GET /small HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    drop(uploads);
    assert_eq!(server.end(), Some(0));
}

/// Fids and open files are counted in the memory: half of it holds 819 of them.
#[test]
fn fids_and_open_files_stay_within_the_memory() {
    let dir = Scratch::new("fids");
    std::fs::write(dir.path().join("small"), "well\n").unwrap();
    let server = Server::start(dir.path(), &["--memory-max", "1"]);
    let mut client = Client::connect(server.ninep());
    let opened = client.hold("/small", 1000);
    assert!((100..410).contains(&opened), "{opened} files were opened");
    expect_served(&server);
    drop(client);
    assert_eq!(server.end(), Some(0));
}
