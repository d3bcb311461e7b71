//! Many 9P2000.L clients in one thread, each with one message in flight.

use crate::bench::{Message, ROOT};
use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Number of messages of the suite, which every client sends at one path after the other: one of
/// each 9P2000.L type that corresponds to the paper's, with two walks.
const STEPS: usize = 12;
const FILE: u32 = 1;
const NEW: u32 = 2;

/// Bytes per read and write.
const BYTES: u32 = 1000;

/// An attached connection.
struct Member {
    number: usize,
    stream: TcpStream,
    input: Vec<u8>,
    /// Index of the suite's message in flight.
    step: usize,
    /// Index of its path.
    place: usize,
    sent: Instant,
}

/// All connections.
pub(crate) struct Crowd {
    members: Vec<Member>,
    epoll: OwnedFd,
}

/// Latencies of messages, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    /// Messages per second over all clients.
    pub(crate) rate: f64,
}

impl Crowd {
    /// Connects and attaches this number of clients.
    pub(crate) fn connect(port: u16, count: usize) -> Result<Crowd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut members = Vec::with_capacity(count);
        for number in 0..count {
            let mut stream = TcpStream::connect(("127.0.0.1", port))
                .with_context(|| format!("connect client {number}"))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            ask(&mut stream, &version)?;
            ask(&mut stream, &attach)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            let (input, sent) = (Vec::new(), Instant::now());
            members.push(Member { number, stream, input, step: 0, place: 0, sent });
        }
        Ok(Crowd { members, epoll })
    }

    /// Runs the suite on all clients, at each path in turn, until the time is over and all replies
    /// have arrived.
    pub(crate) fn run(&mut self, places: &[String], time: Duration) -> Result<Latency> {
        let mut latencies: Vec<u32> = Vec::new();
        let start = Instant::now();
        let end = start + time;
        let mut busy = 0;
        for member in &mut self.members {
            member.send(places)?;
            busy += 1;
        }
        let mut events = Vec::with_capacity(1024);
        while busy > 0 {
            events.clear();
            let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
            ensure!(!events.is_empty(), "nothing was answered for a minute");
            for event in &events {
                let member = &mut self.members[event.data.u64() as usize];
                let Some(latency) = member.receive()? else { continue };
                latencies.push(u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX));
                member.next(places);
                // Ends only after a whole suite, so that the next run finds all fids free.
                if Instant::now() >= end && member.step == 0 {
                    busy -= 1;
                } else {
                    member.send(places)?;
                }
            }
        }
        Ok(Latency::of(latencies, start.elapsed()))
    }
}

impl Latency {
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    fn of(mut latencies: Vec<u32>, time: Duration) -> Latency {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            f64::from(latencies[index.min(latencies.len() - 1)]) / 1e3
        };
        let sum: f64 = latencies.iter().map(|latency| f64::from(*latency)).sum();
        let count = latencies.len() as f64;
        Latency {
            mean: sum / count / 1e3,
            median: at(0.5),
            p99: at(0.99),
            rate: count / time.as_secs_f64(),
        }
    }
}

impl Member {
    fn next(&mut self, places: &[String]) {
        self.step = (self.step + 1) % STEPS;
        if self.step == 0 {
            self.place = (self.place + 1) % places.len();
        }
    }

    fn send(&mut self, places: &[String]) -> Result<()> {
        let place = &places[self.place % places.len()];
        let mut out = Vec::new();
        self.message(place, &mut out);
        self.sent = Instant::now();
        self.stream.write_all(&out).context("the server takes no more")
    }

    /// Appends the next message of the suite.
    fn message(&self, place: &str, out: &mut Vec<u8>) {
        const READ_WRITE: u32 = 2;
        const MODE: u32 = 1;
        let walk = |out, fid: u32, last: Option<&str>| {
            let names: Vec<&str> = place.split('/').filter(|n| !n.is_empty()).chain(last).collect();
            let count = u16::try_from(names.len()).expect("few names");
            let message = Message::new(out, 110, 1).u32(ROOT).u32(fid).u16(count);
            names.into_iter().fold(message, Message::text);
        };
        let name = format!("new-{}", self.number);
        match self.step {
            0 => version(out),
            1 => attach(out),
            2 => walk(out, FILE, Some("file")),
            3 => drop(Message::new(out, 24, 1).u32(FILE).u64(0x7ff)),
            4 => drop(Message::new(out, 12, 1).u32(FILE).u32(0)),
            5 => drop(Message::new(out, 116, 1).u32(FILE).u64(0).u32(BYTES)),
            6 => drop(Message::new(out, 120, 1).u32(FILE)),
            7 => walk(out, NEW, None),
            8 => {
                let create = Message::new(out, 14, 1).u32(NEW).text(&name);
                create.u32(READ_WRITE).u32(0o644).u32(0);
            }
            9 => {
                let write = Message::new(out, 118, 1).u32(NEW).u64(0).u32(BYTES);
                write.bytes(&[7; BYTES as usize]);
            }
            10 => {
                let set = Message::new(out, 26, 1).u32(NEW).u32(MODE).u32(0o600).u32(0).u32(0);
                set.u64(0).u64(0).u64(0).u64(0).u64(0);
            }
            _ => drop(Message::new(out, 122, 1).u32(NEW)),
        }
    }

    /// Returns the latency, if the reply is complete.
    fn receive(&mut self) -> Result<Option<Duration>> {
        let mut chunk = [0; 16_384];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the server hung up"),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let Some(length) = whole(&self.input) else { return Ok(None) };
        ensure!(
            self.input[4] != 7,
            "message {} at place {} failed: errno {}",
            self.step,
            self.place,
            u32::from_le_bytes(*self.input[7..].first_chunk().unwrap_or(&[0; 4]))
        );
        self.input.drain(..length);
        Ok(Some(self.sent.elapsed()))
    }
}

/// Begins a session, which ends an earlier one.
fn version(out: &mut Vec<u8>) {
    Message::new(out, 100, !0).u32(65_536).text("9P2000.L");
}

fn attach(out: &mut Vec<u8>) {
    let user = rustix::process::getuid().as_raw();
    Message::new(out, 104, 0).u32(ROOT).u32(!0).text("").text("").u32(user);
}

fn whole(input: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*input.first_chunk()?) as usize;
    (input.len() >= length).then_some(length)
}

fn ask(stream: &mut TcpStream, build: &dyn Fn(&mut Vec<u8>)) -> Result<()> {
    let (mut out, mut input) = (Vec::new(), Vec::new());
    build(&mut out);
    stream.write_all(&out)?;
    while whole(&input).is_none() {
        let mut chunk = [0; 256];
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "the server hung up");
        input.extend_from_slice(&chunk[..count]);
    }
    ensure!(input[4] != 7, "it is refused");
    Ok(())
}
