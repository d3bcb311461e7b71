//! A client that repeatedly reads a file unrelated to the replica: whatever the replica's load,
//! replies are as fast as the network allows.

use super::ledger::Ledger;
use super::stream::{Access, Stream, StreamEvent};
use crate::client::{Client, Io};
use base::Instant;
use base::op::Listener;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of reads.
const READS_MAX: u32 = 500;

/// Maximum response time beyond that of the network.
const TURNS: Duration = Duration::from_millis(10);

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the time to connect.
    Away,
    /// Waiting for the file to be open.
    Opening,
    /// Waiting for the time to read.
    Open,
    /// Waiting for the bytes, since this time.
    Reading(Instant),
    /// Done.
    Done,
}

/// The client.
#[derive(Debug)]
pub(super) struct Bystander {
    listener: Listener,
    /// Number of its server.
    number: usize,
    ledger: Rc<RefCell<Ledger>>,
    /// Maximum response time, excluding frozen servers.
    most: Duration,
    state: State,
    stream: Stream,
    /// Number of reads.
    reads: u32,
}

impl Bystander {
    /// Returns a client of this server, with a maximum network latency of `net_us` microseconds.
    pub(super) fn new(
        (number, listener): (usize, Listener),
        net_us: u64,
        ledger: Rc<RefCell<Ledger>>,
    ) -> Bystander {
        let stream = Stream::new(&[".upcall", "names"], Access::Read);
        let most = TURNS + Duration::from_micros(8 * net_us);
        Bystander { listener, number, ledger, most, state: State::Away, stream, reads: 0 }
    }
}

impl Client for Bystander {
    fn wake(&mut self, io: &mut Io<'_>) {
        if self.ledger.borrow().is_quiet || self.reads == READS_MAX {
            self.state = State::Done;
            return io.abandon();
        }
        self.state = match self.state {
            State::Away if self.stream.open(io, self.listener) => State::Opening,
            State::Open => {
                self.stream.seek(0, 0);
                self.stream.read(io);
                State::Reading(io.now())
            }
            state @ (State::Away | State::Opening | State::Reading(_) | State::Done) => state,
        };
        io.wake_in(PAUSE);
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for arrived in self.stream.received(io, bytes) {
            self.state = match (self.state, arrived) {
                (State::Opening, StreamEvent::Opened) => State::Open,
                (State::Reading(since), StreamEvent::Data(data)) => {
                    assert!(!data.is_empty(), "the file was there");
                    let took = io.now().since(since);
                    let stood = self.ledger.borrow().stood_still(self.number, since);
                    let (number, most) = (self.number, self.most);
                    assert!(stood || took <= most, "{took:?} for a read at {number}, not {most:?}");
                    io.judged();
                    self.reads += 1;
                    State::Open
                }
                (state, arrived) => panic!("{arrived:?} while {state:?}"),
            };
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        io.abandon();
        self.stream.close();
        self.state = State::Away;
    }

    fn closed(&mut self, _io: &mut Io<'_>) {}

    fn finish(&mut self, _io: &mut Io<'_>) {}

    fn is_done(&self) -> bool {
        self.state == State::Done
    }
}
