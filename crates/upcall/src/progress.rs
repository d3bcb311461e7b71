//! Progress on a terminal: one line that is overwritten.

use crate::clock::Clock;
use crate::size;
use base::Instant;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// Delay before the progress is shown.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Refresh interval of the line.
const REFRESH: Duration = Duration::from_millis(200);

/// A line on the terminal, if standard error is one.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: Clock,
    terminal: bool,
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn start() -> Progress {
        let terminal = io::stderr().is_terminal();
        Progress { clock: Clock::start(), terminal, shown: None }
    }

    /// Returns whether standard error is a terminal.
    pub(crate) fn is_shown(&self) -> bool {
        self.terminal
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(Instant(1))
    }

    /// Shows a line, if it is due.
    pub(crate) fn show(&mut self, line: impl FnOnce(Duration) -> String) {
        if !self.terminal {
            return;
        }
        let now = self.clock.now();
        let due = self.shown.map_or(Instant(1) + TIMEOUT, |shown| shown + REFRESH);
        if now >= due {
            self.shown = Some(now);
            // A failure means that the terminal is gone.
            let _ = write!(io::stderr(), "\r\x1b[K{}", line(self.elapsed()));
        }
    }

    /// Erases the line.
    pub(crate) fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Formats a rate: `120.5 MiB/s`.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> String {
    let second = elapsed.as_secs_f64().max(0.001);
    format!("{}/s", size::show((bytes as f64 / second) as u64))
}

/// Estimates the remaining time at the present rate; empty if unknown.
pub(crate) fn left(done: u64, all: u64, elapsed: Duration) -> String {
    if done == 0 || done >= all {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (all - done) as f64 / done as f64;
    format!(", {} left", span(seconds as u64 + 1))
}

/// Formats a time: `12 s`, `3 min 5 s`, `2 h 10 min`.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_shown_if_known() {
        assert_eq!(left(0, 10, Duration::from_secs(5)), "");
        assert_eq!(left(5, 10, Duration::from_secs(5)), ", 6 s left");
        assert_eq!(left(1, 101, Duration::from_secs(2)), ", 3 min 21 s left");
        assert_eq!(rate(3 << 20, Duration::from_secs(2)), "1.5 MiB/s");
    }
}
