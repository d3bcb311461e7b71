//! Open and closed loops.

use super::Arrival;
use super::arrival::Arrivals;
use super::users::Think;
use base::Instant;
use std::time::Duration;

/// Trigger of the next I/O, transaction or session.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Arrivals independent of completions.
    Open(Arrival),
    /// A fixed number of clients, each with a think time between completion and next start.
    Closed {
        /// Number of terminals or connections.
        count: u32,
        /// Think time.
        think: Think,
    },
}

impl Pace {
    /// Returns the arrivals per second of an open loop.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Pace::Open(arrival) => Some(arrival.rate()),
            Pace::Closed { .. } => None,
        }
    }
}

/// Start, end and volume of a filament.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Start time.
    pub begin: Duration,
    /// End of new starts.
    pub end: Duration,
    /// Maximum starts: I/Os, transactions or sessions.
    pub count: u64,
}

impl Default for Lifetime {
    fn default() -> Lifetime {
        Lifetime { begin: Duration::ZERO, end: Duration::MAX, count: u64::MAX }
    }
}

/// Lead time with which the first I/O of an arrival is requested, in ns.
const AHEAD_NS: u64 = 20_000_000;

/// Answer of a [`Calendar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The next arrival.
    At(Instant),
    /// The next arrival is distant: call again then.
    Later(Instant),
    /// No further arrivals.
    Over,
}

/// Arrivals of an open loop, ahead of their times.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    arrivals: Arrivals,
    begin: Instant,
    /// Arrival drawn but not yet returned.
    next: Option<Instant>,
}

impl Calendar {
    /// Starts at `begin`.
    pub(super) fn new(arrival: Arrival, begin: Duration) -> Calendar {
        let begin = Instant::default() + begin;
        Calendar { arrivals: Arrivals::new(arrival), begin, next: None }
    }

    /// Returns the next arrival if it is close, or the time of the next call.
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
