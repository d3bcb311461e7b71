//! Monotonic clock and wall clock.
#![allow(clippy::disallowed_methods, reason = "the reactor is where the clocks are read")]

use base::{Instant, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A monotonic clock, starting with the reactor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// Starts the clock.
    pub(crate) fn start() -> Clock {
        Clock { start: std::time::Instant::now() }
    }

    /// Returns the current time, which never goes back.
    pub(crate) fn now(&self) -> Instant {
        Instant::default() + self.start.elapsed()
    }

    /// Returns the wall-clock time.
    pub(crate) fn wall(&self) -> Time {
        wall()
    }
}

/// Returns the wall-clock time.
pub(crate) fn wall() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => time_from(since),
        Err(_) => Time::default(),
    }
}

/// Sleeps, for straight-line code.
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

fn time_from(since: Duration) -> Time {
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
