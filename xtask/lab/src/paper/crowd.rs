//! Many 9P2000.L clients in one thread, each with one message in flight.

use anyhow::{Context, Result, bail, ensure};
use rig::client::{Message, ROOT};
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

/// The way of all clients in a run.
pub(crate) struct Tour<'a> {
    /// Paths of the servers, which every client visits in this order, again and again.
    pub(crate) places: &'a [String],
    /// Number of visits that every client makes at least.
    pub(crate) reach: usize,
    /// Minimum duration.
    pub(crate) time: Duration,
    /// Whether client n begins at server n; otherwise all begin at the first one.
    pub(crate) spread: bool,
}

impl Tour<'_> {
    /// Returns a tour on which every client visits every server, and at least this long.
    pub(crate) fn whole(places: &[String], time: Duration) -> Tour<'_> {
        Tour { places, reach: places.len(), time, spread: false }
    }
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) latency: Latency,
    /// Number of servers that every client has visited.
    pub(crate) reached: usize,
}

/// Visits of all clients.
struct Visits {
    counts: Vec<usize>,
    /// Visits that every client must make.
    reach: usize,
    /// Number of clients that have made fewer.
    lacking: usize,
}

impl Visits {
    fn new(clients: usize, reach: usize) -> Visits {
        let reach = reach.max(1);
        Visits { counts: vec![0; clients], reach, lacking: clients }
    }

    /// Records that a client has finished the suite at a server.
    fn add(&mut self, client: usize) {
        self.counts[client] += 1;
        self.lacking -= usize::from(self.counts[client] == self.reach);
    }

    fn are_complete(&self) -> bool {
        self.lacking == 0
    }

    /// Returns the smallest number of visits of a client.
    fn least(&self) -> usize {
        self.counts.iter().copied().min().unwrap_or(0)
    }
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

    /// Runs the suite on all clients, at each path in turn. All go on until every client has
    /// visited as many servers as it must and the time is over; then all finish their suites.
    pub(crate) fn run(&mut self, tour: &Tour<'_>) -> Result<Outcome> {
        let Tour { places, reach, time, spread } = *tour;
        let mut latencies: Vec<u32> = Vec::new();
        let mut visits = Visits::new(self.members.len(), reach);
        let start = Instant::now();
        let end = start + time;
        let mut busy = 0;
        for member in &mut self.members {
            member.place = if spread { member.number % places.len() } else { 0 };
            member.send(places)?;
            busy += 1;
        }
        let mut events = Vec::with_capacity(1024);
        while busy > 0 {
            events.clear();
            let timeout = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))?;
            ensure!(!events.is_empty(), "nothing was answered for a minute");
            for event in &events {
                let member = &mut self.members[event.data.u64() as usize];
                let Some(latency) = member.receive()? else { continue };
                latencies.push(u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX));
                member.next(places);
                if member.step == 0 {
                    visits.add(member.number);
                }
                // Ends only after a whole suite, so that the next run finds all fids free.
                if visits.are_complete() && Instant::now() >= end && member.step == 0 {
                    busy -= 1;
                } else {
                    member.send(places)?;
                }
            }
        }
        let reached = visits.least().min(places.len());
        Ok(Outcome { latency: Latency::of(latencies, start.elapsed()), reached })
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

#[cfg(test)]
mod tests {
    use super::Visits;

    #[test]
    fn visits_are_complete_when_every_client_has_made_them() {
        let mut visits = Visits::new(2, 3);
        (0..5).for_each(|_| visits.add(0));
        assert!(!visits.are_complete() && visits.least() == 0);
        visits.add(1);
        visits.add(1);
        assert!(!visits.are_complete());
        visits.add(1);
        assert!(visits.are_complete() && visits.least() == 3);
    }
}
