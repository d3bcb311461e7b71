//! What everything in the world of storelets shares: time, chance, and what is going to happen.

use super::canary::{self, Mistake};
use super::params::Params;
use crate::trace::Trace;
use base::Instant;
use base::op::{Done, Event, Op, OpId, Parcel};
use base::rng::Rng;
use std::collections::BTreeMap;

/// Something that is going to happen.
#[derive(Debug)]
pub(super) enum Happening {
    /// Something for a node.
    Event(usize, Event),
    /// An operation on the disk takes effect.
    Apply(OpId),
    /// A module is compiled, or not.
    Compiled(u64),
    /// A client looks at what it could do.
    Wake(usize),
    /// A person asks the server to end.
    Stop,
}

/// The sky above all.
#[derive(Debug)]
pub(super) struct Sky {
    pub(super) now: Instant,
    pub(super) rng: Rng,
    pub(super) params: Params,
    pub(super) trace: Trace,
    /// Faults that were injected.
    pub(super) faults: u64,
    pub(super) mistake: Option<Mistake>,
    pub(super) occasions: u32,
    queue: BTreeMap<(Instant, u64), Happening>,
    sequence: u64,
    /// When the last parcel of each pair arrives.
    arrivals: BTreeMap<(usize, usize), Instant>,
}

impl Sky {
    pub(super) fn new(params: &Params, trace: Trace, mistake: Option<Mistake>) -> Sky {
        Sky {
            now: Instant(1_000_000),
            rng: base::rng::seeded(params.seed ^ 0x0057_0e1e),
            params: params.clone(),
            trace,
            faults: 0,
            mistake,
            occasions: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            arrivals: BTreeMap::new(),
        }
    }

    /// Whether something happens that happens one in so many times; zero: never.
    pub(super) fn one_in(&mut self, count: u32) -> bool {
        count > 0 && self.rng.u32(..count) == 0
    }

    /// Some time until so many microseconds from now.
    pub(super) fn within(&mut self, most_us: u64) -> Instant {
        Instant(self.now.0 + self.rng.u64(500..=most_us * 1000 + 1000))
    }

    pub(super) fn at(&mut self, at: Instant, happening: Happening) -> (Instant, u64) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), happening);
        (at, self.sequence)
    }

    pub(super) fn remove(&mut self, key: (Instant, u64)) {
        self.queue.remove(&key);
    }

    /// When the next thing happens.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// What happens now.
    pub(super) fn pop(&mut self) -> Option<Happening> {
        let (at, _) = *self.queue.keys().next()?;
        if at > self.now {
            return None;
        }
        self.queue.pop_first().map(|(_, happening)| happening)
    }

    /// One node has told another something at this time: it arrives later, behind what it told
    /// before.
    pub(super) fn post(&mut self, from: usize, sent: Instant, to: usize, parcel: Parcel) {
        for parcel in canary::spoil(self, from, to, parcel) {
            let span = self.rng.u64(500..=self.params.post_us * 1000 + 1000);
            let last = self.arrivals.entry((from, to)).or_insert(sent);
            *last = (*last).max(Instant(sent.0 + span));
            let at = *last;
            let event = Event { id: OpId::UNASKED, done: Done::Parcel(parcel) };
            self.at(at, Happening::Event(to, event));
        }
    }

    /// Sends an operation that can be nothing else.
    pub(super) fn send(&mut self, from: usize, op: Op) {
        let Op::Post { to, parcel } = op else { unreachable!("{op:?} is no letter") };
        self.post(from, self.now, to, parcel);
    }
}
