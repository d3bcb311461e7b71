//! Open or closed: whether the next one comes by itself, or when the last has ended.

use super::Arrival;
use super::arrival::Arrivals;
use super::users::Think;
use base::Instant;
use std::time::Duration;

/// What makes the next one come.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// They come by themselves.
    Open(Arrival),
    /// So many are under way, and each is followed by another after a time to think.
    Closed {
        /// How many: terminals, connections.
        count: u32,
        /// Between the end of one and the beginning of the next.
        think: Think,
    },
}

impl Pace {
    /// How many come a second, if they come by themselves.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Pace::Open(arrival) => Some(arrival.rate()),
            Pace::Closed { .. } => None,
        }
    }
}

/// When a filament begins and ends, and how much it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Nothing is issued before.
    pub begin: Duration,
    /// Nothing new is begun from then on.
    pub end: Duration,
    /// So many are begun at most: I/Os, transactions, sessions.
    pub count: u64,
}

impl Default for Life {
    fn default() -> Life {
        Life { begin: Duration::ZERO, end: Duration::MAX, count: u64::MAX }
    }
}

/// How far ahead of its time the first I/O of what comes by itself is said, ns.
const AHEAD_NS: u64 = 20_000_000;

/// What a [`Calendar`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Another begins then.
    At(Instant),
    /// The next one is far away: ask again then.
    Later(Instant),
    /// No other begins.
    Over,
}

/// The beginnings of what comes by itself, said ahead of their time.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    arrivals: Arrivals,
    begin: Instant,
    /// Drawn, and not said yet.
    next: Option<Instant>,
}

impl Calendar {
    /// From `begin` on.
    pub(super) fn new(arrival: Arrival, begin: Duration) -> Calendar {
        let begin = Instant::default() + begin;
        Calendar { arrivals: Arrivals::new(arrival), begin, next: None }
    }

    /// What is due, in a life that has so many left.
    pub(super) fn due(&mut self, now: Instant, end: Instant, random: &mut fastrand::Rng) -> Due {
        let at = self
            .next
            .take()
            .unwrap_or_else(|| self.begin + Duration::from_nanos(self.arrivals.draw(random)));
        if at >= end {
            return Due::Over;
        }
        if at.0 > now.0.saturating_add(AHEAD_NS) {
            self.next = Some(at);
            return Due::Later(Instant(at.0 - AHEAD_NS / 2));
        }
        Due::At(at)
    }
}
