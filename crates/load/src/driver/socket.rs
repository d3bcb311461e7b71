//! Targets behind connections: many sockets on one ring, each with a session that speaks a
//! protocol.
//!
//! A session is an automaton: it is told what to ask for and what came, and says what to send and
//! what has ended. It touches no socket.

use super::{Driver, Waker};
use crate::{Io, Outcome};
use reactor::precise::{self, Finished, Lane};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Room for what is received at once, bytes.
const RECEIVE: usize = 256 << 10;

/// Linux's number for a connection that the other side ended.
const ECONNRESET: u16 = 104;

/// One side of a protocol.
pub(super) trait Session {
    /// Whether it can ask for one more now.
    fn has_room(&self) -> bool;

    /// Asks for an I/O: appends the bytes to be sent.
    fn ask(&mut self, name: u64, io: &Io, out: &mut Vec<u8>);

    /// Something came. Says how many of these bytes it has understood, and what has ended; the
    /// rest is shown again when more has come.
    ///
    /// # Errors
    /// If the other side does not keep to the protocol; then the connection is of no more use.
    fn hear(
        &mut self,
        bytes: &[u8],
        ended: &mut Vec<(u64, Outcome)>,
    ) -> Result<usize, &'static str>;

    /// What has been asked for and not ended; it never will.
    fn give_up(&mut self, ended: &mut Vec<(u64, Outcome)>, outcome: Outcome);
}

/// A connection.
struct Line<S> {
    /// `None`: it has been lost.
    socket: Option<OwnedFd>,
    session: S,
    /// To be sent when the send under way has ended.
    out: Vec<u8>,
    sending: bool,
    /// It stands among those with room.
    free: bool,
}

/// Connections of one worker.
pub(super) struct Sockets<S> {
    lane: Lane,
    waker: precise::Waker,
    lines: Vec<Line<S>>,
    /// Connections with room, those first whose turn it is.
    free: VecDeque<usize>,
    /// How many are not lost.
    alive: usize,
    ended: Vec<(u64, Outcome)>,
    finished: Vec<Finished>,
    /// Lines with something to send.
    dirty: Vec<usize>,
}

/// Names of sends have this bit; those of receives do not.
const SENDS: u64 = 1 << 32;

impl<S: Session> Sockets<S> {
    /// Connections that have been made, each with its session.
    pub(super) fn new(lines: Vec<(OwnedFd, S)>) -> io::Result<Sockets<S>> {
        let waker = precise::Waker::new()?;
        let mut lane = Lane::new(&[], 1, waker.clone())?;
        let line = |(socket, session)| Line {
            socket: Some(socket),
            session,
            out: Vec::new(),
            sending: false,
            free: true,
        };
        let lines: Vec<Line<S>> = lines.into_iter().map(line).collect();
        for (place, line) in lines.iter().enumerate() {
            let socket = line.socket.as_ref().expect("it was just made");
            lane.receive(place as u64, socket.as_fd(), Vec::with_capacity(RECEIVE));
        }
        lane.flush();
        Ok(Sockets {
            lane,
            waker,
            free: (0..lines.len()).collect(),
            alive: lines.len(),
            lines,
            ended: Vec::new(),
            finished: Vec::new(),
            dirty: Vec::new(),
        })
    }

    /// Puts a connection among those with room, if it has and does not stand there.
    fn offer(&mut self, place: usize) {
        let line = &mut self.lines[place];
        if !line.free && line.socket.is_some() && line.session.has_room() {
            line.free = true;
            self.free.push_back(place);
        }
    }

    fn send(&mut self, place: usize) {
        let line = &mut self.lines[place];
        if let (Some(socket), false, false) = (&line.socket, line.sending, line.out.is_empty()) {
            line.sending = true;
            let out = std::mem::take(&mut line.out);
            self.lane.send(SENDS | place as u64, socket.as_fd(), out);
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
            Err(number) => return self.lose(place, number),
        }
        self.send(place);
    }

    fn received(&mut self, place: usize, finished: Finished) {
        let line = &mut self.lines[place];
        let mut buffer = finished.buffer.unwrap_or_default();
        match finished.result {
            Ok(0) => return self.lose(place, ECONNRESET),
            Err(number) => return self.lose(place, number),
            Ok(_) => {}
        }
        let Ok(count) = line.session.hear(&buffer, &mut self.ended) else {
            return self.lose(place, ECONNRESET);
        };
        buffer.drain(..count);
        if buffer.capacity() - buffer.len() < RECEIVE / 2 {
            buffer.reserve(RECEIVE);
        }
        if let Some(socket) = &line.socket {
            self.lane.receive(place as u64, socket.as_fd(), buffer);
            self.dirty.push(place);
        }
        self.offer(place);
    }

    fn lose(&mut self, place: usize, number: u16) {
        let line = &mut self.lines[place];
        if line.socket.take().is_some() {
            self.alive -= 1;
        }
        line.out.clear();
        line.session.give_up(&mut self.ended, Outcome::Failed(number));
        if std::mem::take(&mut line.free) {
            self.free.retain(|free| *free != place);
        }
    }

    fn look(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        self.lane.take(&mut finished);
        for finished in finished.drain(..) {
            let place = (finished.name & !SENDS) as usize;
            if finished.name & SENDS != 0 {
                self.sent(place, finished);
            } else {
                self.received(place, finished);
            }
        }
        self.finished = finished;
        // New sends and receives.
        self.lane.flush();
    }
}

impl<S: Session> Driver for Sockets<S> {
    fn issue(&mut self, name: u64, io: &Io) {
        let Some(place) = self.free.pop_front() else {
            // All connections are lost.
            return self.ended.push((name, Outcome::Failed(ECONNRESET)));
        };
        let line = &mut self.lines[place];
        line.free = false;
        line.session.ask(name, io, &mut line.out);
        self.dirty.push(place);
        self.offer(place);
    }

    fn room(&self) -> usize {
        if self.alive == 0 { usize::MAX } else { self.free.len() }
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
