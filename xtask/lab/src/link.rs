//! A link with a delay: a TCP relay that holds every byte for this time in each direction, keeps
//! their order, and has the full bandwidth of the loopback interface.

use crate::bench::table::median;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a piece, and maximum number of pieces in flight in one direction: at 20 ms this is
/// three gigabytes a second.
const PIECE: usize = 64 << 10;
const PIECES: usize = 1024;

/// Number of round trips that measure a link.
const PINGS: usize = 300;

/// Bytes, and the time of their delivery.
type Piece = (Instant, Vec<u8>);

/// Listens on a port and relays to `to`, until this process exits.
pub(crate) fn relay(to: u16, delay: Duration) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen for a relay")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            // An error, such as a disconnect, ends that one connection.
            let _ = join(&client, &server, delay);
        }
    });
    Ok(port)
}

fn join(client: &TcpStream, server: &TcpStream, delay: Duration) -> Result<()> {
    for (from, to) in [(client, server), (server, client)] {
        from.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let (in_flight, arrived) = sync_channel::<Piece>(PIECES);
        thread::spawn(move || take(from, &in_flight, delay));
        thread::spawn(move || give(to, &arrived));
    }
    Ok(())
}

fn take(mut from: TcpStream, in_flight: &SyncSender<Piece>, delay: Duration) {
    let mut bytes = vec![0; PIECE];
    while let Ok(count) = from.read(&mut bytes) {
        let piece = (Instant::now() + delay, bytes[..count].to_vec());
        if in_flight.send(piece).is_err() || count == 0 {
            return;
        }
    }
}

fn give(mut to: TcpStream, arrived: &Receiver<Piece>) {
    // Without this the kernel may coalesce timers and wake up 50 µs late.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    while let Ok((due, piece)) = arrived.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if piece.is_empty() || to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Round-trip time beyond the link's delay: median and 99th percentile, microseconds.
pub(crate) struct Accuracy {
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

/// Sends messages through a relay to an echo server.
pub(crate) fn accuracy(delay: Duration) -> Result<Accuracy> {
    let echo = TcpListener::bind(("127.0.0.1", 0))?;
    let port = relay(echo.local_addr()?.port(), delay)?;
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    let (mut far, _) = echo.accept()?;
    thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok(count @ 1..) = far.read(&mut bytes) {
            if far.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
    });
    client.set_nodelay(true)?;
    let mut more = Vec::new();
    for number in 0..PINGS {
        let message = number.to_le_bytes();
        let (begun, mut back) = (Instant::now(), message);
        client.write_all(&message)?;
        client.read_exact(&mut back)?;
        ensure!(back == message, "a link changes what goes over it");
        let took = begun.elapsed();
        ensure!(took >= 2 * delay, "a link of {delay:?} took {took:?} there and back");
        more.push((took - 2 * delay).as_secs_f64() * 1e6);
    }
    let middle = median(more.iter().copied());
    more.sort_by(f64::total_cmp);
    Ok(Accuracy { median: middle, p99: more[PINGS * 99 / 100] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_holds_every_message_and_keeps_what_is_in_it() {
        let accuracy = accuracy(Duration::from_millis(1)).expect("it is the loopback interface");
        assert!(accuracy.median >= 0.0 && accuracy.p99 >= accuracy.median);
    }
}
