//! The attacks.

use super::kind::{
    IDLE_ALL, IDLE_EACH, Kind, Mute, PLAIN, TATTACH, TCLUNK, TLCREATE, TLOCK, TLOPEN, TREAD,
    TREADDIR, TREMOVE, TVERSION, TWALK, TWRITE, TXATTRCREATE, unread,
};
use super::{Target, programs};
use anyhow::{Result, ensure};
use rig::client::{Client, Message, ROOT};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum memory of open files of replicated services, KiB ("services" in the queues).
const SERVICES_KIB: u64 = 256 << 10;

/// Memory of all storelets, MiB; of modules that are received or await compilation, and of code
/// that is loaded or cached, KiB.
pub(super) const STORELETS_MIB: u64 = 256;
const STORELETS_KIB: u64 = STORELETS_MIB << 10;
const MODULES_KIB: u64 = (256 + 256) << 10;

/// Contents of open service files, KiB.
const SERVICE_FILES_KIB: u64 = 16 << 10;

/// Ranges locked by each attacker, and conflicting lock requests left pending.
const LOCKS: u64 = 600;
const LOCK_WAITS: u16 = 40;

/// Files opened by each attacker.
const OPENS: u32 = 5_000;

/// Extents of each file that is freed.
const EXTENTS: u64 = 500;

/// Returns all kinds.
pub(super) fn all() -> impl Iterator<Item = &'static Kind> {
    let streams = super::watches::KINDS.iter().chain(super::subtrees::KINDS);
    let streams = streams.chain(super::webdav::KINDS);
    KINDS.iter().chain(super::nfs::KINDS).chain(super::spaces::KINDS).chain(streams)
}

const KINDS: &[Kind] = &[
    Kind {
        name: "unfinished-writes",
        does: "clients leave a 9P write of 1 MiB without its last byte",
        attack: unfinished_write,
        ..PLAIN
    },
    Kind {
        name: "unread-gets",
        does: "clients get 1 GiB and do not read it",
        attack: |target, _| unread(target, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ..PLAIN
    },
    Kind {
        name: "unread-listings",
        does: "clients get a directory of 20,000 entries and do not read it",
        attack: |target, _| unread(target, b"GET /many/ HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ..PLAIN
    },
    Kind {
        name: "unread-reads",
        does: "clients have 60 9P reads of 64 KiB each and do not read the replies",
        attack: unread_reads,
        ..PLAIN
    },
    Kind {
        name: "unread-directories",
        does: "clients have 60 9P directory reads each and do not read the replies",
        attack: unread_directories,
        ..PLAIN
    },
    Kind {
        name: "pipelines",
        does: "clients send 2,000 HTTP requests at once, over and over",
        attack: pipeline,
        ..PLAIN
    },
    Kind {
        name: "downloads",
        does: "clients get a file of 1 GiB and read it, over and over",
        attack: download,
        ..PLAIN
    },
    Kind {
        name: "uploads",
        does: "clients put files of 1 MiB, over and over",
        attack: upload,
        ..PLAIN
    },
    Kind {
        name: "locks",
        does: "clients hold 600 byte-range locks each, leave 40 requests waiting, unlock and lock",
        attack: locks,
        ..PLAIN
    },
    Kind {
        name: "idle",
        does: "clients open 190 idle connections each",
        connections: IDLE_ALL,
        attack: idle,
        ..PLAIN
    },
    Kind {
        name: "attached",
        does: "clients open 190 connections each, attach, and do nothing",
        connections: IDLE_ALL,
        attack: attached,
        ..PLAIN
    },
    Kind {
        name: "churn",
        does: "clients connect, send half a request and leave, over and over",
        attack: churn,
        ..PLAIN
    },
    Kind {
        name: "open-files",
        does: "clients open 5,000 files each and keep them",
        attack: open_files,
        ..PLAIN
    },
    Kind {
        name: "climbs",
        does: "clients have 60 9P walks each of 16 names up from a directory 992 levels deep",
        attack: climbs,
        ..PLAIN
    },
    Kind {
        name: "walks",
        does: "clients have 200 9P walks of 16 names each; the server has 3 threads",
        threads: 3,
        attack: walks,
        ..PLAIN
    },
    Kind {
        name: "long-paths",
        does: "clients attach to paths of 240 names, over and over",
        attack: long_paths,
        ..PLAIN
    },
    Kind {
        name: "links",
        does: "clients get a file through 39 links of 4,000 bytes, 20 requests at once",
        attack: links,
        ..PLAIN
    },
    Kind {
        name: "trickles",
        does: "clients open 190 connections each, and send a byte of a request every 0.2 s",
        connections: IDLE_ALL,
        attack: trickles,
        ..PLAIN
    },
    Kind {
        name: "freed-files",
        does: "clients write files of 500 extents, and remove them while they are open",
        attack: freed_files,
        ..PLAIN
    },
    Kind {
        name: "service-files",
        does: "clients open the metrics 100 times each and keep them",
        memory_kib: SERVICE_FILES_KIB,
        attack: service_files,
        ..PLAIN
    },
    Kind {
        name: "attributes",
        does: "clients leave 16 extended attributes of 60 KiB unfinished on 10 connections each",
        connections: 1000,
        attack: attributes,
        ..PLAIN
    },
    Kind {
        name: "hung-mount",
        does: "clients ask for files of a file system that does not respond",
        mounts: true,
        attack: |target, _| unread(target, b"GET /hung/f HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ..PLAIN
    },
    Kind {
        name: "half-lines",
        does: "clients open 30 files of a replicated service each and write half a line of 32 KiB",
        memory_kib: SERVICES_KIB,
        attack: half_lines,
        ..PLAIN
    },
    Kind {
        name: "formulas",
        does: "clients have a replicated sheet evaluate expensive formulas",
        memory_kib: SERVICES_KIB,
        attack: formulas,
        ..PLAIN
    },
    Kind {
        name: "rejected-lines",
        does: "clients post 50,000 lines that are no operations",
        memory_kib: SERVICES_KIB,
        attack: rejected_lines,
        ..PLAIN
    },
    Kind {
        name: "long-posts",
        does: "clients post 4 million lines that are no operations",
        memory_kib: SERVICES_KIB,
        attack: long_posts,
        ..PLAIN
    },
    Kind {
        name: "peers",
        does: "clients open the file of other replicas 200 times each and prove nothing",
        memory_kib: SERVICES_KIB,
        attack: peers,
        ..PLAIN
    },
    Kind {
        name: "sleepers",
        does: "clients run storelets that sleep, with as much memory as they may have",
        memory_kib: STORELETS_KIB,
        attack: |target, _| run(target, "memory=100M", programs::sleeper()?),
        ..PLAIN
    },
    Kind {
        name: "spinners",
        does: "clients run storelets that never end",
        memory_kib: STORELETS_KIB,
        attack: |target, _| run(target, "memory=1M", programs::spinner()?),
        ..PLAIN
    },
    Kind {
        name: "readers",
        does: "clients run storelets that read a directory of 20,000 entries over and over",
        memory_kib: STORELETS_KIB,
        attack: |target, _| run(target, "memory=1M", programs::reader()?),
        ..PLAIN
    },
    Kind {
        name: "compilations",
        does: "clients send modules that are slow to compile, each a new one",
        memory_kib: STORELETS_KIB + MODULES_KIB,
        attack: |target, number| run(target, "memory=1M", programs::slow(number)),
        ..PLAIN
    },
];

fn unfinished_write(target: &Target, _number: usize) -> Result<()> {
    let mute = Mute::connect(target.ninep)?;
    let mut bytes = Vec::new();
    Message::new(&mut bytes, TVERSION, !0).u32(1 << 20).text("9P2000.L");
    bytes.extend((1u32 << 20).to_le_bytes());
    bytes.push(TWRITE);
    let length = bytes.len() + (1 << 20) - 6;
    bytes.resize(length, 7);
    mute.send_and_keep(target, &bytes)
}

fn unread_reads(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    client.open(1, &["large"], 0)?;
    client.send(|out| {
        for tag in 0..60 {
            Message::new(out, TREAD, tag).u32(1).u64(u64::from(tag) << 16).u32(65_000);
        }
    })?;
    target.keep(|| client.lives());
    Ok(())
}

fn unread_directories(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    client.open(1, &["many"], 0o200_000)?;
    client.send(|out| {
        for tag in 0..60 {
            Message::new(out, TREADDIR, tag).u32(1).u64(0).u32(65_000);
        }
    })?;
    target.keep(|| client.lives());
    Ok(())
}

fn pipeline(target: &Target, _number: usize) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", target.http))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let one = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // The server stops reading when the responses are not read.
    let sent = stream.write_all(&one.repeat(2000));
    match sent.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
        true => target.hold(Duration::from_millis(50)),
        false => target.note_effect(),
    }
    Ok(())
}

fn download(target: &Target, _number: usize) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", target.http))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    target.arm();
    let mut bytes = vec![0; 1 << 18];
    while !target.over() {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) => target.note_effect(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn upload(target: &Target, number: usize) -> Result<()> {
    let mut raw = crate::Raw::connect(target.http)?;
    let (length, body) = (1 << 20, vec![7; 1 << 20]);
    let head = format!("PUT /put-{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}");
    raw.send(&[head.as_bytes(), b"\r\n\r\n", &body].concat())?;
    target.arm();
    let answer = raw.answer(false)?;
    ensure!(matches!(answer.status, 201 | 204), "{}", answer.head);
    target.note_effect();
    Ok(())
}

fn lock(out: &mut Vec<u8>, tag: u16, kind: u8, blocks: bool, start: u64, owner: u32) {
    let message = Message::new(out, TLOCK, tag).u32(1).bytes(&[kind]).u32(u32::from(blocks));
    message.u64(start).u64(1).u32(owner).text("attacker");
}

fn locks(target: &Target, number: usize) -> Result<()> {
    const READ: u8 = 0;
    const WRITE: u8 = 1;
    const UNLOCK: u8 = 2;
    let mut client = Client::attach(target.ninep, "")?;
    client.open(1, &["locked"], 2)?;
    let owner = u32::try_from(number)?;
    let first = number as u64 * LOCKS * 2;
    for at in 0..LOCKS {
        client.call(|out| lock(out, 0, READ, false, first + at * 2, owner))?;
    }
    client.send(|out| {
        for wait in 0..LOCK_WAITS {
            let start = first + u64::from(wait) * 2;
            lock(out, 1 + wait, WRITE, true, start, 1_000_000 + owner);
        }
    })?;
    target.keep(|| {
        (0..20u64).all(|at| {
            let start = first + (LOCKS - 1 - at) * 2;
            let unlocked = client.ask(|out| lock(out, 0, UNLOCK, false, start, owner));
            let locked = client.ask(|out| lock(out, 0, READ, false, start, owner));
            unlocked.is_ok() && locked.is_ok()
        })
    });
    Ok(())
}

fn idle(target: &Target, number: usize) -> Result<()> {
    let port = if number.is_multiple_of(2) { target.ninep } else { target.http };
    let mut held = Vec::new();
    for _ in 0..IDLE_EACH * 2 {
        held.push(Mute::connect(port)?);
    }
    target.keep(|| held.iter().any(Mute::lives));
    Ok(())
}

fn attached(target: &Target, _number: usize) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..IDLE_EACH * 2 {
        held.push(Client::attach(target.ninep, "")?);
        if target.over() {
            break;
        }
    }
    target.keep(|| true);
    Ok(())
}

fn churn(target: &Target, number: usize) -> Result<()> {
    let (port, half) = match number.is_multiple_of(2) {
        true => (target.ninep, &b"\x15\0\0\0\x64\xff"[..]),
        false => (target.http, &b"GET / HT"[..]),
    };
    for _ in 0..20 {
        Mute::connect(port)?.push(half)?;
        target.note_effect();
    }
    Ok(())
}

fn open_files(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    for fid in 1..OPENS {
        let walked = client.ask(|out| {
            Message::new(out, TWALK, 0).u32(0).u32(fid).u16(1).text("small");
        })?;
        let opened = client.ask(|out| {
            Message::new(out, TLOPEN, 0).u32(fid).u32(0);
        })?;
        // The user's or the server's limit is reached.
        if walked.is_err() || opened.is_err() || target.over() {
            break;
        }
    }
    target.keep(|| client.lives());
    Ok(())
}

fn climbs(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    let walk = |out: &mut Vec<u8>, tag, from, to, names: &[&str]| {
        let count = u16::try_from(names.len()).expect("at most 16");
        let message = Message::new(out, TWALK, tag).u32(from).u32(to).u16(count);
        names.iter().fold(message, |message, name| message.text(name));
    };
    client.call(|out| walk(out, 0, ROOT, 1, &["deep"]))?;
    for _ in 0..super::DEEP / 16 {
        client.call(|out| walk(out, 0, 1, 1, &["d"; 16]))?;
    }
    target.arm();
    while !target.over() {
        client.send(|out| {
            for tag in 0..60 {
                walk(out, tag, 1, 2 + u32::from(tag), &[".."; 16]);
            }
        })?;
        for _ in 0..60 {
            ensure!(client.reply()?.0 == TWALK + 1, "a walk up is refused");
            target.note_effect();
        }
        for fid in 2..62 {
            client.call(|out| _ = Message::new(out, TCLUNK, 0).u32(fid))?;
        }
    }
    Ok(())
}

fn walks(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    let names = (0..16).map(|at| if at == 0 { "deep" } else { "d" });
    target.arm();
    while !target.over() {
        client.send(|out| {
            for tag in 0..200 {
                let message = Message::new(out, TWALK, tag).u32(0).u32(1 + u32::from(tag)).u16(16);
                names.clone().fold(message, |message, name| message.text(name));
            }
        })?;
        for _ in 0..200 {
            ensure!(client.reply()?.0 == TWALK + 1, "a walk is refused");
            target.note_effect();
        }
        for fid in 1..=200 {
            client.call(|out| _ = Message::new(out, TCLUNK, 0).u32(fid))?;
        }
    }
    Ok(())
}

fn long_paths(target: &Target, _number: usize) -> Result<()> {
    let path = "many/../".repeat(120);
    let mut client = Client::attach(target.ninep, "")?;
    target.arm();
    while !target.over() {
        client.call(|out| {
            let message = Message::new(out, TATTACH, 0).u32(1).u32(!0).text("attacker");
            message.text(&path).u32(!0);
        })?;
        client.call(|out| _ = Message::new(out, TCLUNK, 0).u32(1))?;
        target.note_effect();
    }
    Ok(())
}

fn links(target: &Target, _number: usize) -> Result<()> {
    let mut raw = crate::Raw::connect(target.http)?;
    target.arm();
    while !target.over() {
        raw.send(&b"GET /links/0 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20))?;
        for _ in 0..20 {
            let answer = raw.answer(false)?;
            ensure!(answer.status == 200, "{}", answer.head);
            target.note_effect();
        }
    }
    Ok(())
}

fn trickles(target: &Target, _number: usize) -> Result<()> {
    let head = "GET /small HTTP/1.1\r\nHost: localhost\r\nTrickle: ";
    let mut held = Vec::new();
    for _ in 0..IDLE_EACH * 2 {
        let mut mute = Mute::connect(target.http)?;
        mute.push(head.as_bytes())?;
        held.push(mute);
    }
    target.arm();
    while !target.over() {
        held.retain_mut(|mute| mute.push(b"x").is_ok());
        ensure!(!held.is_empty(), "all of them have ended");
        target.note_effect();
        target.hold(Duration::from_millis(200));
    }
    Ok(())
}

fn freed_files(target: &Target, number: usize) -> Result<()> {
    let (mut client, name) = (Client::attach(target.ninep, "")?, format!("freed-{number}"));
    let (block, gid) = ([7; 4096], rustix::process::getgid().as_raw());
    target.arm();
    while !target.over() {
        client.call(|out| _ = Message::new(out, TWALK, 0).u32(ROOT).u32(1).u16(0))?;
        client.call(|out| {
            Message::new(out, TLCREATE, 0).u32(1).text(&name).u32(2).u32(0o644).u32(gid);
        })?;
        for at in 0..EXTENTS {
            client.call(|out| {
                let message = Message::new(out, TWRITE, 0).u32(1).u64(at * 8192);
                message.u32(4096).bytes(&block);
            })?;
        }
        client.call(|out| _ = Message::new(out, TWALK, 0).u32(ROOT).u32(2).u16(1).text(&name))?;
        client.call(|out| _ = Message::new(out, TREMOVE, 0).u32(2))?;
        client.call(|out| _ = Message::new(out, TCLUNK, 0).u32(1))?;
        target.note_effect();
    }
    Ok(())
}

fn service_files(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    for fid in 1..=100 {
        let opened = client.open(fid, &[".upcall", "metrics"], 0);
        // The user's or the server's limit is reached.
        if fid > 1 && opened.is_err() || target.over() {
            break;
        }
        opened?;
    }
    // Other clients can still read.
    if !target.over() {
        let mut raw = crate::Raw::connect(target.http)?;
        raw.send(b"GET /.upcall/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let answer = raw.answer(false)?;
        ensure!(answer.status == 200, "{}", answer.head);
    }
    target.keep(|| client.lives());
    Ok(())
}

fn attributes(target: &Target, _number: usize) -> Result<()> {
    let (mut held, value) = (Vec::new(), vec![b'x'; 60 << 10]);
    for _ in 0..10 {
        let mut client = Client::attach(target.ninep, "")?;
        for fid in 1..=16 {
            let length = u32::try_from(value.len()).expect("some KiB");
            client.call(|out| {
                Message::new(out, TWALK, 0).u32(0).u32(fid).u16(1).text("small");
            })?;
            let begun = client.ask(|out| {
                let message = Message::new(out, TXATTRCREATE, 0).u32(fid).text("user.x");
                message.u64(1 << 16).u32(0);
            })?;
            // The server is short of memory and accepts less.
            if begun.is_err() || target.over() {
                break;
            }
            client.call(|out| {
                Message::new(out, TWRITE, 0).u32(fid).u64(0).u32(length).bytes(&value);
            })?;
        }
        held.push(client);
    }
    target.keep(|| held.iter().any(Client::lives));
    Ok(())
}

fn half_lines(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    let half = vec![b'x'; 32 << 10];
    for fid in 1..30 {
        client.open(fid, &["services", "sheet", "ops"], 2)?;
        let written = client.ask(|out| {
            let length = u32::try_from(half.len()).expect("some KiB");
            Message::new(out, TWRITE, 0).u32(fid).u64(0).u32(length).bytes(&half);
        })?;
        if written.is_err() {
            break;
        }
    }
    target.keep(|| client.lives());
    Ok(())
}

/// Sends a request that keeps the server busy, and receives the response until the server closes,
/// or until the trailer, if given, which must not arrive at once. A request counts as an effect
/// unless it is refused, or closed without a response, within 100 ms.
fn request(target: &Target, request: &[u8], trailer: Option<&[u8]>) -> Result<()> {
    let mut mute = Mute::connect(target.http)?;
    let mut rest = request;
    while !rest.is_empty() && !target.over() {
        rest = mute.push(rest)?;
        target.hold(Duration::from_millis(1));
    }
    let mut printed = Vec::new();
    let mut goes_on = || {
        let is_open = mute.take(&mut printed);
        ensure!(printed.is_empty() || printed.starts_with(b"HTTP/1.1 200 "), "it is refused");
        let has = |trailer: &[u8]| printed.windows(trailer.len()).any(|part| part == trailer);
        Ok((is_open && !trailer.is_some_and(has), !printed.is_empty()))
    };
    let moment = Instant::now() + Duration::from_millis(100);
    let (mut is_open, mut is_answered) = (true, false);
    while is_open && Instant::now() < moment && !target.over() {
        target.hold(Duration::from_millis(10));
        (is_open, is_answered) = goes_on()?;
    }
    ensure!(is_open || trailer.is_none() && is_answered, "it has ended at once");
    target.keep(|| is_open && goes_on().is_ok_and(|(is_open, _)| is_open));
    Ok(())
}

fn post(target: &Target, body: &str) -> Result<()> {
    let head = "POST /services/sheet/ops HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let length = body.len();
    let text = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    request(target, text.as_bytes(), None)
}

fn formulas(target: &Target, number: usize) -> Result<()> {
    let row = number + 1;
    let mut body = format!("set A{row} =SUMPRODUCT(B1:Z9000,B1:Z9000)+SUM(B1:ZZ9000)\n");
    for _ in 0..32 {
        body.push_str(&format!("get A{row}\n"));
    }
    post(target, &body)
}

fn rejected_lines(target: &Target, _number: usize) -> Result<()> {
    post(target, &"x\n".repeat(50_000))
}

fn long_posts(target: &Target, _number: usize) -> Result<()> {
    post(target, &"x\n".repeat(4 << 20))
}

fn peers(target: &Target, _number: usize) -> Result<()> {
    let mut client = Client::attach(target.ninep, "")?;
    for fid in 1..=200 {
        let walked = client.ask(|out| {
            let message = Message::new(out, TWALK, 0).u32(0).u32(fid).u16(3);
            message.text("services").text("sheet").text("peer");
        })?;
        let opened = client.ask(|out| {
            Message::new(out, TLOPEN, 0).u32(fid).u32(2);
        })?;
        if walked.is_err() || opened.is_err() || target.over() {
            ensure!(fid > 1, "the first open is refused");
            break;
        }
        // An invalid proof, which the server may refuse.
        let _ = client.ask(|out| {
            Message::new(out, TWRITE, 0).u32(fid).u64(0).u32(66).bytes(&[1; 66]);
        })?;
    }
    target.keep(|| client.lives());
    Ok(())
}

/// Runs a storelet that does not end by itself, until the server responds.
fn run(target: &Target, budget: &str, module: Vec<u8>) -> Result<()> {
    let length = module.len();
    let head = format!("POST /.upcall/storelets?{budget} HTTP/1.1\r\nHost: localhost\r\n");
    let text = [format!("{head}Content-Length: {length}\r\n\r\n").into_bytes(), module].concat();
    request(target, &text, Some(b"\nUpcall-End:"))
}
