//! Clocks and randomness of the commands.
#![allow(clippy::disallowed_methods, reason = "a command is where the clocks are read")]

use base::{Instant, Reactor as _, Time};
use reactor::World;
use std::io::Read as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// A monotonic clock, counting from its creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: std::time::Instant::now() }
    }

    /// Returns the current time, which never goes back and is never zero.
    pub(crate) fn now(&self) -> Instant {
        Instant(1) + self.start.elapsed()
    }
}

/// Returns the wall-clock time.
pub(crate) fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

/// Returns the wall-clock time when the world's clock was zero.
pub(crate) fn wall_at_zero(world: &World) -> Time {
    Time::from_nanos(world.wall().as_nanos() - world.now().0.cast_signed())
}

/// Returns an unpredictable number.
pub(crate) fn random() -> std::io::Result<u64> {
    Ok(u64::from_le_bytes(random_bytes()?))
}

/// Returns `N` unpredictable bytes.
pub(crate) fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Formats a date as ISO 8601: `2026-11-20T07:55:07Z`.
pub(crate) fn iso(time: Time) -> String {
    let (days, secs) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    // Days to a date, after Howard Hinnant's `civil_from_days`: years begin in March.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + later;
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_calendars() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_161_307, "2026-11-20T07:55:07Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(iso(Time::from_secs(secs)), text);
        }
    }
}
