//! Filaments: the automata that say what is to be done, and when (paper, §4.1).
//!
//! A filament is called with an event, and answers with requests: I/Os, timers and messages, each
//! with the time at which it is to happen. It never waits and never reads a clock, so the same
//! filament runs against a real target ([`crate::core`]) and in virtual time
//! ([`crate::simulated`]), where the same seed gives the same run to the nanosecond.
//!
//! One filament is called by one thread at a time. What it asks for ahead of time is issued at its
//! time whatever the filament does meanwhile: who knows the future should say so early.
//!
//! ```
//! use base::{Automaton, Instant};
//! use load::{Event, Io, Kind, Request};
//! use std::time::Duration;
//!
//! /// Reads a block each millisecond, a thousand times; whether they come back does not matter.
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
use base::op::Parcel;
use base::{Automaton, Instant};

/// The number of a filament, in the order in which they were given.
pub type FilamentId = u32;

/// What happens to a filament.
#[derive(Debug)]
pub enum Event {
    /// The run begins; comes once, first.
    Started,
    /// The time of a timer has come; with its tag.
    Timer(u64),
    /// An I/O that it wanted to hear of has ended.
    Ended(Ended),
    /// Another filament said something.
    Message {
        /// Who.
        from: FilamentId,
        /// What.
        parcel: Parcel,
    },
}

/// An I/O has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What was given with the request.
    pub tag: u64,
    /// When it was to be issued.
    pub scheduled: Instant,
    /// When it was issued.
    pub issued: Instant,
    /// When it ended.
    pub ended: Instant,
    /// How.
    pub outcome: Outcome,
}

/// What a filament asks for. Times in the past mean *now*, and count as late from then on.
#[derive(Debug)]
pub enum Request {
    /// Issue this.
    Io {
        /// When.
        at: Instant,
        /// What.
        io: Io,
        /// Whether to be told when it ends, and with which tag.
        tell: Option<u64>,
    },
    /// Call again.
    Timer {
        /// When.
        at: Instant,
        /// Comes back with the event.
        tag: u64,
    },
    /// Say something to another filament.
    Send {
        /// To whom.
        to: FilamentId,
        /// When it arrives.
        at: Instant,
        /// What.
        parcel: Parcel,
    },
}

impl Request {
    /// Issue this; how it ends is for the statistics only.
    pub fn io(at: Instant, io: Io) -> Request {
        Request::Io { at, io, tell: None }
    }

    /// Issue this, and tell how it ends.
    pub fn asked(at: Instant, io: Io, tag: u64) -> Request {
        Request::Io { at, io, tell: Some(tag) }
    }

    /// When it is to happen.
    pub fn at(&self) -> Instant {
        match self {
            Request::Io { at, .. } | Request::Timer { at, .. } | Request::Send { at, .. } => *at,
        }
    }
}

/// An automaton that makes load.
pub trait Filament: Automaton<Input = Event, Output = Request> + Send {}

impl<A: Automaton<Input = Event, Output = Request> + Send> Filament for A {}
