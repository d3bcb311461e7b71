//! Targets behind connections: many sockets on one ring, each with a protocol session.
//!
//! A session is an automaton without I/O: it gets requests and received bytes, and returns bytes to
//! send and completions. A lost connection is reestablished while the others are used; if there is
//! no other and none can be established, I/Os fail.

use super::dialer::{Dial, Dialer};
use super::{Driver, Troubles, Waker};
use crate::{Io, Outcome};
use reactor::precise::{self, Finished, Lane};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Receive buffer size, in bytes.
const RECEIVE: usize = 256 << 10;

/// Linux errno for a connection closed by the peer.
const ECONNRESET: u16 = 104;

/// I/Os that fail per connection attempt while no connection can be established: a closed loop
/// would fail as fast as the processor permits.
const FAILS_MAX: usize = 1000;

/// Client side of a protocol.
pub(super) trait Session {
    /// Reports whether it can send another request now.
    fn has_room(&self) -> bool;

    /// Starts an I/O: appends the request bytes.
    fn ask(&mut self, name: u64, io: &Io, out: &mut Vec<u8>);

    /// Processes received bytes. Returns the number consumed, and appends completions; the rest is
    /// passed again with further bytes.
    ///
    /// # Errors
    /// If the peer violates the protocol; the connection is then unusable.
    fn handle(
        &mut self,
        bytes: &[u8],
        ended: &mut Vec<(u64, Outcome)>,
    ) -> Result<usize, &'static str>;

    /// Reports whether the peer has announced the end of the connection here.
    fn is_over(&self) -> bool {
        false
    }

    /// Fails all outstanding requests.
    fn give_up(&mut self, ended: &mut Vec<(u64, Outcome)>, outcome: Outcome);
}

/// Connection, or the slot of one.
struct Line<S> {
    session: S,
    link: Link,
    /// Number of earlier connections in this slot.
    generation: u64,
    /// Bytes to send after the send in flight.
    out: Vec<u8>,
    sending: bool,
    /// Whether it is in the list of those with room.
    free: bool,
}

enum Link {
    Up(OwnedFd),
    /// Lost, with a reconnection in progress.
    Dialling,
    /// Reconnection has failed so far.
    Down,
}

impl<S> Line<S> {
    /// Returns the operation name of the current connection.
    fn name(&self, place: usize) -> u64 {
        self.generation << GENERATION_SHIFT | place as u64
    }
}

/// Connections of one worker.
pub(super) struct Sockets<S> {
    lane: Lane,
    waker: precise::Waker,
    lines: Vec<Line<S>>,
    /// Connections with room, round robin.
    free: VecDeque<usize>,
    /// Number of connections that are down, and below of those that are up.
    down: usize,
    up: usize,
    dialer: Dialer<S>,
    troubles: Troubles,
    /// I/Os that still fail before the next connection attempt.
    fails: usize,
    ended: Vec<(u64, Outcome)>,
    finished: Vec<Finished>,
    /// Connections with bytes to send.
    dirty: Vec<usize>,
}

/// Operation name: slot, send flag, and generation of the connection.
const PLACE: u64 = (1 << 32) - 1;
const SENDS: u64 = 1 << 32;
const GENERATION_SHIFT: u32 = 33;
const GENERATION: u64 = (1 << 28) - 1;

/// Returns the connections of worker `worker` of `workers`, at least one.
fn share(all: usize, worker: usize, workers: usize) -> usize {
    (all / workers + usize::from(worker < all % workers)).max(1)
}

impl<S: Session + Send + 'static> Sockets<S> {
    /// Establishes this worker's share of the connections.
    pub(super) fn connect(
        all: usize,
        (worker, workers): (usize, usize),
        mut dial: Dial<S>,
        troubles: &Troubles,
    ) -> io::Result<Sockets<S>> {
        let count = share(all.max(1), worker, workers);
        let made = (0..count).map(|_| dial()).collect::<io::Result<Vec<_>>>()?;
        let waker = precise::Waker::new()?;
        let mut sockets = Sockets {
            lane: Lane::new(&[], 1, waker.clone())?,
            dialer: Dialer::start(dial, waker.clone(), troubles.clone())?,
            waker,
            lines: Vec::with_capacity(count),
            free: VecDeque::with_capacity(count),
            down: 0,
            up: 0,
            troubles: troubles.clone(),
            fails: 0,
            ended: Vec::new(),
            finished: Vec::new(),
            dirty: Vec::new(),
        };
        for (place, (socket, session)) in made.into_iter().enumerate() {
            sockets.lines.push(Line {
                session,
                link: Link::Dialling,
                generation: 0,
                out: Vec::new(),
                sending: false,
                free: false,
            });
            sockets.raise(place, socket);
        }
        sockets.lane.flush();
        Ok(sockets)
    }

    /// Activates a new connection.
    fn raise(&mut self, place: usize, socket: OwnedFd) {
        let line = &mut self.lines[place];
        if matches!(line.link, Link::Down) {
            self.down -= 1;
        }
        self.up += 1;
        let buffer = Vec::with_capacity(RECEIVE);
        self.lane.receive(line.name(place), socket.as_fd(), buffer);
        line.link = Link::Up(socket);
        self.offer(place);
    }

    /// Processes results of the dialer.
    fn receive_dialer(&mut self) {
        while self.up < self.lines.len()
            && let Some((place, dialled)) = self.dialer.news()
        {
            let line = &mut self.lines[place];
            if let Some((socket, session)) = dialled {
                line.session = session;
                self.raise(place, socket);
                continue;
            }
            if matches!(line.link, Link::Dialling) {
                line.link = Link::Down;
                self.down += 1;
            }
            self.fails = FAILS_MAX;
        }
    }

    /// Adds a connection to those with room, if it has room and is not in the list.
    fn offer(&mut self, place: usize) {
        let line = &mut self.lines[place];
        if !line.free && matches!(line.link, Link::Up(_)) && line.session.has_room() {
            line.free = true;
            self.free.push_back(place);
        }
    }

    fn send(&mut self, place: usize) {
        let line = &mut self.lines[place];
        let name = SENDS | line.name(place);
        if let (Link::Up(socket), false, false) = (&line.link, line.sending, line.out.is_empty()) {
            line.sending = true;
            let out = std::mem::take(&mut line.out);
            self.lane.send(name, socket.as_fd(), out);
        }
    }

    fn sent(&mut self, place: usize, finished: Finished) {
        let line = &mut self.lines[place];
        line.sending = false;
        let mut buffer = finished.buffer.unwrap_or_default();
        match finished.result {
            Ok(count) if (count as usize) < buffer.len() => {
                buffer.drain(..count as usize);
                buffer.append(&mut line.out);
                line.out = buffer;
            }
            Ok(_) if line.out.is_empty() => {
                buffer.clear();
                line.out = buffer;
            }
            Ok(_) => {}
            Err(number) => return self.lose_by(place, number),
        }
        self.send(place);
    }

    fn received(&mut self, place: usize, finished: Finished) {
        let line = &mut self.lines[place];
        let mut buffer = finished.buffer.unwrap_or_default();
        match finished.result {
            Ok(0) => return self.lose(place, ECONNRESET, "the server ended a connection"),
            Err(number) => return self.lose_by(place, number),
            Ok(_) => {}
        }
        let count = match line.session.handle(&buffer, &mut self.ended) {
            Ok(count) => count,
            Err(why) => return self.lose(place, ECONNRESET, why),
        };
        if line.session.is_over() {
            return self.lose(place, ECONNRESET, "the server closed a connection, as announced");
        }
        buffer.drain(..count);
        if buffer.capacity() - buffer.len() < RECEIVE / 2 {
            buffer.reserve(RECEIVE);
        }
        let name = line.name(place);
        if let Link::Up(socket) = &line.link {
            self.lane.receive(name, socket.as_fd(), buffer);
            self.dirty.push(place);
        }
        self.offer(place);
    }

    fn lose_by(&mut self, place: usize, number: u16) {
        let error = io::Error::from_raw_os_error(number.into());
        self.lose(place, number, &format!("a connection was lost: {error}"));
    }

    /// Closes a connection, and requests another one.
    fn lose(&mut self, place: usize, number: u16, why: &str) {
        let line = &mut self.lines[place];
        let Link::Up(socket) = std::mem::replace(&mut line.link, Link::Dialling) else {
            unreachable!("a link that is down receives nothing");
        };
        // Its queued operations must not reach another socket with the same descriptor, and those
        // in flight end.
        self.lane.flush();
        let _ = shutdown(&socket, Shutdown::Both);
        self.up -= 1;
        line.generation = (line.generation + 1) & GENERATION;
        line.out.clear();
        line.sending = false;
        line.session.give_up(&mut self.ended, Outcome::Failed(number));
        if std::mem::take(&mut line.free) {
            self.free.retain(|free| *free != place);
        }
        self.troubles.note(why);
        self.dialer.ask(place);
    }

    fn look(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        self.lane.take(&mut finished);
        for finished in finished.drain(..) {
            let place = (finished.name & PLACE) as usize;
            if finished.name & !SENDS != self.lines[place].name(place) {
                // Completion of an earlier connection.
                continue;
            }
            if finished.name & SENDS != 0 {
                self.sent(place, finished);
            } else {
                self.received(place, finished);
            }
        }
        self.finished = finished;
        self.receive_dialer();
        // New sends and receives.
        self.lane.flush();
    }
}

impl<S: Session + Send + 'static> Driver for Sockets<S> {
    fn issue(&mut self, name: u64, io: &Io) {
        let Some(place) = self.free.pop_front() else {
            // No connection can be established.
            self.fails = self.fails.saturating_sub(1);
            return self.ended.push((name, Outcome::Failed(ECONNRESET)));
        };
        let line = &mut self.lines[place];
        line.free = false;
        line.session.ask(name, io, &mut line.out);
        self.dirty.push(place);
        self.offer(place);
    }

    fn room(&self) -> usize {
        if self.down == self.lines.len() { self.fails } else { self.free.len() }
    }

    fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.drain(..).for_each(|place| self.send(place));
        self.dirty = dirty;
        self.lane.flush();
    }

    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        if self.lane.any_work() {
            self.look();
        }
        ended.append(&mut self.ended);
    }

    fn any_work(&mut self) -> bool {
        !self.ended.is_empty() || self.lane.any_work()
    }

    fn wait(&mut self, timeout: Duration) {
        self.lane.wait(timeout);
    }

    fn waker(&self) -> Waker {
        Waker::Ring(self.waker.clone())
    }
}

#[cfg(test)]
mod tests;
