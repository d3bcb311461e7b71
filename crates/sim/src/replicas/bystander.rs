//! A client that reads a file which is none of the replica's, again and again: whatever the replica
//! has to do, it is answered as fast as the network allows.

use super::ledger::Ledger;
use super::stream::{Access, Heard, Stream};
use crate::client::{Client, Io};
use base::Instant;
use base::op::Listener;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(100);

/// Most reads.
const READS_MAX: u32 = 500;

/// Longest response time besides that of the network.
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
    /// Waiting for the bytes, since then.
    Reading(Instant),
    /// Waiting for nothing.
    Done,
}

/// The client.
#[derive(Debug)]
pub(super) struct Bystander {
    listener: Listener,
    /// Number of its server.
    number: usize,
    ledger: Rc<RefCell<Ledger>>,
    /// Longest response time of a server that does not stand still.
    most: Duration,
    state: State,
    stream: Stream,
    /// How often it has read.
    reads: u32,
}

impl Bystander {
    /// One of this server's, where a message takes at most so many microseconds.
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
        for heard in self.stream.received(io, bytes) {
            self.state = match (self.state, heard) {
                (State::Opening, Heard::Opened) => State::Open,
                (State::Reading(since), Heard::Data(data)) => {
                    assert!(!data.is_empty(), "the file was there");
                    let took = io.now().since(since);
                    let stood = self.ledger.borrow().stood_still(self.number, since);
                    let (number, most) = (self.number, self.most);
                    assert!(stood || took <= most, "{took:?} for a read at {number}, not {most:?}");
                    io.judged();
                    self.reads += 1;
                    State::Open
                }
                (state, heard) => panic!("{heard:?} while {state:?}"),
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
