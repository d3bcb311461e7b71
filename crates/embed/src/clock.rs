//! Clocks and randomness of the embedded library.
#![allow(clippy::disallowed_methods, reason = "a driver is where the clocks are read")]

use base::{Instant, Time};
use std::fs::File;
use std::io::{self, Read};
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

/// Returns an unpredictable number. The journal accepts batches that carry the number of their
/// volume: a caller that writes foreign data must not be able to forge one.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_all_different_in_each_of_their_bytes() {
        let numbers: Vec<u64> = (0..64).map(|_| random().expect("every Linux has one")).collect();
        for byte in 0..8 {
            let first = numbers[0] >> (8 * byte) & 0xff;
            assert!(numbers.iter().any(|number| number >> (8 * byte) & 0xff != first));
        }
    }
}
