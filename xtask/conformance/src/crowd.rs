//! Many clients, some misbehaving: the server keeps serving the others and frees its memory.

use super::raw::Raw;
use super::{TRUST, served};
use anyhow::{Context, Result, ensure};
use rig::client::Client;
use rig::machine::more_files;
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::sh;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const IDLE: u64 = 10_000;
const DROPPED_PER_SECOND: u32 = 1_000;

/// Duration, seconds; a minute with `--long`.
const SECONDS: u32 = 8;
const SECONDS_LONG: u32 = 60;

/// Maximum response time of others, on a machine that is busy.
const OTHERS_MAX: Duration = Duration::from_secs(10);

/// Maximum memory kept after a crowd has left, beyond that before it, KiB.
const KEPT_KIB_MAX: u64 = 16 << 10;

/// Maximum memory kept by the tables of ten thousand connections and the pool of buffers, KiB.
const TABLES_KIB: u64 = 4 << 10;

/// Number of closed connections after which the server returns freed memory to the system: that of
/// fewer stays.
const RETURNED_AFTER: u64 = 1_000;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    more_files();
    let dir = served("crowd")?;
    std::fs::write(dir.join("file"), "here\n")?;
    let mut server = Server::start(kind, &dir, TRUST)?;
    answers(&server).context("before any crowd")?;
    if kind == Kind::Diod {
        report.skip("crowd/idle", "diod has a thread for each connection");
    } else {
        report.case("crowd/idle_9p", || {
            idle(kind, &dir, |server| {
                Client::attach(server.ninep, &server.dir.display().to_string())
            })
        });
        report.case("crowd/idle_http", || {
            idle(kind, &dir, |server| {
                let mut raw = Raw::connect(server.http)?;
                raw.send(
                    format!("GET /file HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", server.http)
                        .as_bytes(),
                )?;
                ensure!(raw.answer(false)?.status == 200, "no answer");
                Ok(raw)
            })
        });
    }
    let seconds = if report.long { SECONDS_LONG } else { SECONDS };
    report.case("crowd/opened_and_dropped", || dropped(&server, seconds));
    report.case("crowd/gone_in_the_middle", || gone(&server));
    report.case("crowd/malformed_9p", || malformed(&server));
    report.case("crowd/silent_9p_sizes", || sizes(&server));
    report.case("crowd/server_lives", || {
        ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        let status = server.stop()?;
        ensure!(status == Some(0), "ended with {status:?}");
        Ok("SIGTERM ends it with 0".into())
    });
    Ok(())
}

/// Measures a whole request on a new connection.
fn answers(server: &Server) -> Result<Duration> {
    let start = Instant::now();
    let mut client = Client::attach(server.ninep, &server.dir.display().to_string())?;
    client.stat_root()?;
    Ok(start.elapsed())
}

/// Tests ten thousand connections that are idle after one request, on a server of their own, twice.
/// A quarter of their memory may stay after they left, however often, plus that of tables and pools
/// ([`TABLES_KIB`]) and of the last that left ([`RETURNED_AFTER`]).
fn idle<C>(kind: Kind, dir: &Path, connect: impl Fn(&Server) -> Result<C>) -> Result<String> {
    let server = Server::start(kind, dir, TRUST)?;
    answers(&server)?;
    let before = server.rss_kib();
    let (mut each, mut kept) = (0, Vec::new());
    for _twice in 0..2 {
        let mut crowd = Vec::new();
        for number in 0..IDLE {
            crowd.push(connect(&server).with_context(|| format!("connection {number}"))?);
        }
        let took = answers(&server).context("beside the idle connections")?;
        ensure!(took < OTHERS_MAX, "a request took {took:?} beside the crowd");
        each = server.rss_kib().saturating_sub(before) * 1024 / IDLE;
        drop(crowd);
        let most = (each * IDLE / 4 + each * RETURNED_AFTER) / 1024 + TABLES_KIB;
        kept.push(returned(&server, before, most)?);
    }
    Ok(format!("{each} bytes resident for each, {kept:?} KiB kept after they left"))
}

/// Waits until memory beyond its earlier size is at most `most`; returns the excess, KiB.
fn returned(server: &Server, before: u64, most: u64) -> Result<u64> {
    let start = Instant::now();
    loop {
        let kept = server.rss_kib().saturating_sub(before);
        if kept <= most {
            return Ok(kept);
        }
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "{kept} KiB stay after the crowd left, which is more than {most}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Opens and drops connections at a steady rate, over both protocols, some with a reset.
fn dropped(server: &Server, seconds: u32) -> Result<String> {
    let before = server.rss_kib();
    let begin = Instant::now();
    let mut worst = Duration::ZERO;
    for number in 0..DROPPED_PER_SECOND * seconds {
        let due = begin + Duration::from_secs(1) * number / DROPPED_PER_SECOND;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let port = if number % 2 == 0 || server.http == 0 { server.ninep } else { server.http };
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        if number % 3 == 0 {
            let _ = stream.write_all(b"GET / HT");
        }
        drop(stream);
        if number % 500 == 0 {
            worst = worst.max(answers(server)?);
        }
    }
    let took = begin.elapsed().as_secs_f64();
    let kept = returned(server, before, KEPT_KIB_MAX)?;
    ensure!(worst < OTHERS_MAX, "others waited {worst:?}");
    Ok(format!("{seconds}000 in {took:.1} s, others waited {worst:?} at most, {kept} KiB kept"))
}

/// Tests clients that send many requests and disconnect before the replies.
fn gone(server: &Server) -> Result<String> {
    for _ in 0..200 {
        let client = Client::attach(server.ninep, &server.dir.display().to_string())?;
        client.ask_and_leave(500)?;
    }
    answers(server)?;
    Ok("200 clients with 500 requests each".into())
}

/// Sends malformed 9P streams, reproducibly: noise, and noise in correctly sized frames.
fn malformed(server: &Server) -> Result<String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()
    };
    for number in 0..600 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.ninep))?;
        let mut bytes = Vec::new();
        if number % 3 == 1 {
            bytes.extend_from_slice(b"\x15\0\0\0\x64\xff\xff\0\0\x01\0\x08\09P2000.L");
        }
        for _ in 0..20 {
            let length = 7 + random()[0] % 200;
            if number % 3 != 0 {
                bytes.extend_from_slice(&[length, 0, 0, 0]);
            }
            bytes.extend((4..length).map(|_| random()[1]));
        }
        let _ = stream.write_all(&bytes);
    }
    answers(server)?;
    Ok("600 streams".into())
}

/// Tests that a size out of range is refused at once, without waiting or allocating.
fn sizes(server: &Server) -> Result<String> {
    let before = server.rss_kib();
    for size in [0_u32, 3, 6, 1 << 24, 1 << 31, u32::MAX] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.ninep))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(&size.to_le_bytes())?;
        stream.write_all(&[100, 0, 0])?;
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error).with_context(|| format!("size {size} was accepted")),
        }
    }
    let kept = returned(server, before, KEPT_KIB_MAX)?;
    Ok(format!("{kept} KiB kept"))
}
