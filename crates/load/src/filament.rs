//! Filaments: automata that define the load and its timing (paper, §4.1).
//!
//! A filament is called with an event, and returns requests: I/Os, timers and messages, each with
//! its time. It never waits and never reads a clock, so the same filament runs against a real
//! target ([`crate::core`]) and in virtual time ([`crate::simulated`]), where equal seeds give
//! equal runs to the nanosecond.
//!
//! A filament is called by one thread at a time. Requests made ahead of time are issued at their
//! times, even while the filament is busy: a filament that knows the future should request early.
//!
//! ```
//! use base::{Automaton, Instant};
//! use load::{Event, Io, Kind, Request};
//! use std::time::Duration;
//!
//! /// Reads a block each millisecond, a thousand times, regardless of completions.
//! struct Metronome(u64);
//!
//! impl Automaton for Metronome {
//!     type Input = Event;
//!     type Output = Request;
//!
//!     fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
//!         match event {
//!             Event::Started | Event::Timer(_) if self.0 < 1000 => {
//!                 let io = Io { kind: Kind::Read, offset: self.0 * 4096, len: 4096, file: 0 };
//!                 let at = now + Duration::from_millis(1);
//!                 out.extend([Request::io(at, io), Request::Timer { at, tag: 0 }]);
//!                 self.0 += 1;
//!             }
//!             Event::Started | Event::Timer(_) | Event::Ended(_) | Event::Message { .. } => {}
//!         }
//!     }
//! }
//!
//! let run = load::simulated::run(vec![Box::new(Metronome(0))], &mut load::simulated::Instantly);
//! assert_eq!(run.records.len(), 1000);
//! assert_eq!(run.records[999].scheduled_ns, 1_000_000_000);
//! ```

use crate::{Io, Outcome};
use base::op::Envelope;
use base::{Automaton, Instant};

/// Index of a filament, in the order of their creation.
pub type FilamentId = u32;

/// Input of a filament.
#[derive(Debug)]
pub enum Event {
    /// Start of the run; the first event, exactly once.
    Started,
    /// Expiry of a timer, with its tag.
    Timer(u64),
    /// Completion of an I/O that was requested with a tag.
    Ended(Ended),
    /// Message of another filament.
    Message {
        /// Sender.
        from: FilamentId,
        /// Contents.
        envelope: Envelope,
    },
}

/// Completed I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Tag of the request.
    pub tag: u64,
    /// Scheduled time.
    pub scheduled: Instant,
    /// Issue time.
    pub issued: Instant,
    /// Completion time.
    pub ended: Instant,
    /// Outcome.
    pub outcome: Outcome,
}

/// Request of a filament. Times in the past mean *now*, and lateness counts from then on.
#[derive(Debug)]
pub enum Request {
    /// Issue an I/O.
    Io {
        /// Scheduled time.
        at: Instant,
        /// I/O.
        io: Io,
        /// Tag of the completion event; `None` for no event.
        tell: Option<u64>,
    },
    /// Start a timer.
    Timer {
        /// Expiry time.
        at: Instant,
        /// Tag of the event.
        tag: u64,
    },
    /// Send a message to another filament.
    Send {
        /// Receiver.
        to: FilamentId,
        /// Delivery time.
        at: Instant,
        /// Contents.
        envelope: Envelope,
    },
}

impl Request {
    /// Creates an I/O without a completion event.
    pub fn io(at: Instant, io: Io) -> Request {
        Request::Io { at, io, tell: None }
    }

    /// Creates an I/O with a completion event.
    pub fn with_completion(at: Instant, io: Io, tag: u64) -> Request {
        Request::Io { at, io, tell: Some(tag) }
    }

    /// Returns the time of the request.
    pub fn at(&self) -> Instant {
        match self {
            Request::Io { at, .. } | Request::Timer { at, .. } | Request::Send { at, .. } => *at,
        }
    }
}

/// Load-generating automaton.
pub trait Filament: Automaton<Input = Event, Output = Request> + Send {}

impl<A: Automaton<Input = Event, Output = Request> + Send> Filament for A {}
