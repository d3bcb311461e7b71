//! Closed-loop clients, each on a connection of its own: request, reply, next request.
//!
//! All of them share one thread: a system call for a request, one for its reply, and one to find
//! the readable connections, which leaves the processors to the servers. An [`Exchange`] builds
//! the requests and checks the replies.

use anyhow::{Result, ensure};
use rustix::event::epoll;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One client's side of a protocol.
pub(super) trait Exchange {
    /// Appends the next request.
    fn ask(&mut self, out: &mut Vec<u8>);

    /// Returns the length of the reply, bytes; `None` if it is incomplete.
    ///
    /// # Errors
    /// Fails if the reply is not the expected one.
    fn check(&mut self, input: &[u8]) -> Result<Option<usize>>;

    /// Returns the number of operations in one request.
    fn operations(&self) -> u64 {
        1
    }
}

/// End of a measurement.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// After this time.
    Time(Duration),
    /// After this number of operations.
    Count(u64),
}

/// Results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Number of operations, and operations per second.
    pub(super) operations: u64,
    pub(super) rate: f64,
    /// Latency of a request, microseconds: median and 99th percentile.
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// One connection.
struct Client<T> {
    stream: TcpStream,
    message: T,
    input: Vec<u8>,
    output: Vec<u8>,
    requested: Instant,
}

impl<T: Exchange> Client<T> {
    fn connect(port: u16, message: T) -> Result<Client<T>> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let (input, output) = (Vec::new(), Vec::new());
        Ok(Client { stream, message, input, output, requested: Instant::now() })
    }

    fn ask(&mut self) -> Result<()> {
        self.output.clear();
        self.message.ask(&mut self.output);
        self.requested = Instant::now();
        self.stream.write_all(&self.output)?;
        Ok(())
    }

    /// Receives bytes; returns the latency, if the reply is complete.
    fn hear(&mut self, room: &mut [u8]) -> Result<Option<Duration>> {
        let count = self.stream.read(room)?;
        ensure!(count > 0, "the server hung up");
        self.input.extend_from_slice(&room[..count]);
        let Some(length) = self.message.check(&self.input)? else { return Ok(None) };
        ensure!(length == self.input.len(), "there is more than was requested");
        self.input.clear();
        Ok(Some(self.requested.elapsed()))
    }
}

/// Runs one client for each port.
pub(super) fn run<T: Exchange>(
    ports: &[u16],
    until: Until,
    make: impl Fn(usize) -> T,
) -> Result<Seen> {
    let mut clients = Vec::new();
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, port) in ports.iter().enumerate() {
        let client = Client::connect(*port, make(index))?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poll, &client.stream, data, epoll::EventFlags::IN)?;
        clients.push(client);
    }
    let start = Instant::now();
    let (mut operations, mut open, mut took) = (0, 0, Vec::new());
    for client in &mut clients {
        client.ask()?;
        operations += client.message.operations();
        open += 1;
    }
    let (mut room, mut events) = (vec![0; 1 << 18], Vec::with_capacity(ports.len().max(1)));
    while open > 0 {
        wait(&poll, clients.len(), &mut events)?;
        for event in events.drain(..) {
            let client = &mut clients[usize::try_from(event.data.u64())?];
            let Some(time) = client.hear(&mut room)? else { continue };
            took.push(time);
            let over = match until {
                Until::Time(time) => start.elapsed() >= time,
                Until::Count(count) => operations >= count,
            };
            if over {
                open -= 1;
            } else {
                client.ask()?;
                operations += client.message.operations();
            }
        }
    }
    Ok(seen(operations, start.elapsed(), took))
}

/// Waits for replies. A single connection is read with a blocking call instead.
fn wait(poll: &rustix::fd::OwnedFd, clients: usize, events: &mut Vec<epoll::Event>) -> Result<()> {
    if clients == 1 {
        let (flags, data) = (epoll::EventFlags::IN, epoll::EventData::new_u64(0));
        events.push(epoll::Event { flags, data });
        return Ok(());
    }
    let timeout = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    let room = rustix::buffer::spare_capacity(events);
    let count = epoll::wait(poll, room, Some(&timeout))?;
    ensure!(count > 0, "nothing was answered for {} s", timeout.tv_sec);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
fn seen(operations: u64, elapsed: Duration, mut took: Vec<Duration>) -> Seen {
    took.sort_unstable();
    let part = |percent: usize| {
        let at = (took.len() * percent / 100).min(took.len().saturating_sub(1));
        took.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    let rate = operations as f64 / elapsed.as_secs_f64();
    Seen { operations, rate, p50: part(50), p99: part(99) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A byte for a byte.
    struct Echo;

    impl Exchange for Echo {
        fn ask(&mut self, out: &mut Vec<u8>) {
            out.push(7);
        }

        fn check(&mut self, input: &[u8]) -> Result<Option<usize>> {
            ensure!(input.first() == Some(&7), "another byte");
            Ok(Some(1))
        }

        fn operations(&self) -> u64 {
            2
        }
    }

    #[test]
    fn each_client_asks_again_when_it_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let echo = |stream: TcpStream| {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream))
            };
            let all: Vec<_> = listener.incoming().take(4).map(|it| echo(it.unwrap())).collect();
            all.into_iter().map(|echo| echo.join().unwrap().unwrap()).sum::<u64>()
        });
        let alone = run(&[port], Until::Count(10), |_| Echo).unwrap();
        let three = run(&[port; 3], Until::Count(100), |_| Echo).unwrap();
        assert_eq!((alone.operations, three.operations), (10, 100));
        assert!(three.rate > 0.0 && three.p50 <= three.p99);
        assert_eq!(server.join().unwrap(), 55, "requests of two operations");
    }

    #[test]
    fn shares_of_times_are_of_their_order() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let seen = seen(200, Duration::from_secs(2), times);
        assert_eq!((seen.rate, seen.p50, seen.p99), (100.0, 101_000.0, 199_000.0));
    }
}
