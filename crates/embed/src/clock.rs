//! The clocks of the embedded library.
#![allow(clippy::disallowed_methods, reason = "a driver is where the clocks are read")]

use base::{Instant, Time};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts from its own beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: std::time::Instant::now() }
    }

    /// The current time; never goes back, and is never the very beginning.
    pub(crate) fn now(&self) -> Instant {
        Instant(1) + self.start.elapsed()
    }
}

/// The date on the wall.
pub(crate) fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

/// Tells volumes apart that are made on the same machine.
pub(crate) fn volume_id() -> u64 {
    let wall = wall();
    let pid = u64::from(std::process::id());
    (wall.secs as u64) << 32 ^ u64::from(wall.nanos) ^ pid << 40
}
