//! Shared state of the world of storelets: time, randomness, faults and scheduled events.

use super::canary::{self, Mistake};
use super::params::Params;
use crate::event_queue::{EventQueue, Key};
use crate::trace::Trace;
use base::Instant;
use base::op::{Done, Envelope, Event, Op, OpId};
use base::rng::Rng;
use std::collections::BTreeMap;

/// A scheduled event.
#[derive(Debug)]
pub(super) enum ScheduledEvent {
    /// An event for a node.
    Event(usize, Event),
    /// A disk operation takes effect.
    Apply(OpId),
    /// A compilation completes or fails.
    Compiled(u64),
    /// A client may act.
    Wake(usize),
    /// The server is asked to stop.
    Stop,
}

/// The environment of the nodes: time, randomness, faults and scheduled events.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) params: Params,
    pub(super) trace: Trace,
    /// Number of injected faults.
    pub(super) faults: u64,
    pub(super) mistake: Option<Mistake>,
    pub(super) occasions: u32,
    events: EventQueue<ScheduledEvent>,
    /// Arrival time of the last envelope of each pair.
    arrivals: BTreeMap<(usize, usize), Instant>,
}

impl Environment {
    pub(super) fn new(params: &Params, trace: Trace, mistake: Option<Mistake>) -> Environment {
        Environment {
            now: Instant(1_000_000),
            rng: base::rng::seeded(params.seed ^ 0x0057_0e1e),
            params: params.clone(),
            trace,
            faults: 0,
            mistake,
            occasions: 0,
            events: EventQueue::default(),
            arrivals: BTreeMap::new(),
        }
    }

    /// Returns true with probability 1/count; false if `count` is zero.
    pub(super) fn one_in(&mut self, count: u32) -> bool {
        count > 0 && self.rng.u32(..count) == 0
    }

    /// Returns a random time at most this many microseconds from now.
    pub(super) fn within(&mut self, most_us: u64) -> Instant {
        Instant(self.now.0 + self.rng.u64(500..=most_us * 1000 + 1000))
    }

    pub(super) fn schedule(&mut self, at: Instant, scheduled: ScheduledEvent) -> Key {
        self.events.schedule(at, scheduled)
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.events.remove(key);
    }

    /// Returns the time of the next event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.events.next_time()
    }

    /// Takes an event that is due now.
    pub(super) fn pop_due(&mut self) -> Option<ScheduledEvent> {
        self.events.pop_due(self.now)
    }

    /// Sends an envelope between nodes at this time: it arrives later, after all earlier ones of
    /// the pair.
    pub(super) fn post(&mut self, from: usize, sent: Instant, to: usize, envelope: Envelope) {
        let envelopes = match self.mistake {
            Some(mistake) => canary::spoil(mistake, &mut self.occasions, from, to, envelope),
            None => vec![envelope],
        };
        for envelope in envelopes {
            let span = self.rng.u64(500..=self.params.post_us * 1000 + 1000);
            let last = self.arrivals.entry((from, to)).or_insert(sent);
            *last = (*last).max(Instant(sent.0 + span));
            let at = *last;
            let event = Event { id: OpId::UNREQUESTED, done: Done::Envelope(envelope) };
            self.schedule(at, ScheduledEvent::Event(to, event));
        }
    }

    /// Sends a `Post` operation; others cannot occur.
    pub(super) fn send(&mut self, from: usize, op: Op) {
        let Op::Post { to, envelope } = op else { unreachable!("{op:?} is no message") };
        self.post(from, self.now, to, envelope);
    }
}
