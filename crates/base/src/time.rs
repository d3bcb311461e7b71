//! Time: an input, never read from a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the reactor started. Only differences are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Returns the time since `earlier`; zero if that is in the future.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, span: Duration) -> Instant {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

/// A timestamp of a file: seconds since 1970 (negative before) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub secs: i64,
    /// Nanoseconds within the second, below 10⁹.
    pub nanos: u32,
}

impl Time {
    /// Returns the timestamp of a whole second.
    pub fn from_secs(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    /// Returns the timestamp of this number of nanoseconds since 1970.
    pub fn from_nanos(ns: i64) -> Time {
        let nanos = u32::try_from(ns.rem_euclid(SECOND_NS)).expect("it is below a second");
        Time { secs: ns.div_euclid(SECOND_NS), nanos }
    }

    /// Returns nanoseconds since 1970, saturating.
    pub fn as_nanos(self) -> i64 {
        self.secs.saturating_mul(SECOND_NS).saturating_add(self.nanos.into())
    }
}
