//! The two clocks of the real world.
#![allow(clippy::disallowed_methods, reason = "the reactor is where the clocks are read")]

use base::{Instant, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Counts from the start of the reactor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// Starts counting.
    pub(crate) fn start() -> Clock {
        Clock { start: std::time::Instant::now() }
    }

    /// The current time; never goes back.
    pub(crate) fn now(&self) -> Instant {
        Instant::default() + self.start.elapsed()
    }

    /// The date on the wall.
    pub(crate) fn wall(&self) -> Time {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => time_from(since),
            Err(_) => Time::default(),
        }
    }
}

/// Waits so long, for straight-line code.
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

fn time_from(since: Duration) -> Time {
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
