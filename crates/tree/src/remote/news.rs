//! Events of a remote server for the operator: connections, losses, and their reasons.
//!
//! A server that comes and goes, or that fails with the same error again and again, does not
//! deserve a line each time: the same reason for a loss is not reported twice within a minute. The
//! state at the end of the minute is reported then, if it differs from the last report. A new
//! connection is reported at once if a loss was.

use base::Instant;
use session::Dialect;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Time during which the same event is not reported again.
pub const QUIET: Duration = Duration::from_secs(60);

/// A state of the connection, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Connected, with this dialect and message size, bytes.
    Up(Dialect, u32),
    /// Not connected, for this reason.
    Down(&'static str),
}

impl LinkState {
    /// Returns whether there is a connection.
    pub fn is_up(self) -> bool {
        matches!(self, LinkState::Up(..))
    }

    /// Returns the key of events that count as the same, whatever was negotiated.
    fn topic(self) -> Option<&'static str> {
        match self {
            LinkState::Up(..) => None,
            LinkState::Down(why) => Some(why),
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkState::Up(Dialect::Linux, msize) => write!(f, "connected, 9P2000.L, {msize} bytes"),
            LinkState::Up(Dialect::Plan9, msize) => write!(f, "connected, 9P2000, {msize} bytes"),
            LinkState::Down(why) => write!(f, "not connected: {why}"),
        }
    }
}

/// Maximum number of queued events.
const QUEUED_MAX: usize = 16;

/// The current and the reported states, and events to be taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Newsfeed {
    is: Option<LinkState>,
    last: Option<LinkState>,
    /// Time of the last report of each topic. Bounded by the number of reasons.
    last_reported: BTreeMap<Option<&'static str>, Instant>,
    queue: VecDeque<LinkState>,
}

impl Newsfeed {
    /// Records a new state.
    pub(super) fn note(&mut self, news: LinkState) {
        self.is = Some(news);
    }

    /// Queues the event to report now.
    pub(super) fn report(&mut self, now: Instant) {
        let Some(news) = self.is.filter(|_| self.deadline().is_some_and(|at| now >= at)) else {
            return;
        };
        self.last_reported.insert(news.topic(), now);
        self.last = Some(news);
        if self.queue.len() == QUEUED_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(news);
    }

    /// Takes the next queued event.
    pub(super) fn next(&mut self) -> Option<LinkState> {
        self.queue.pop_front()
    }

    /// Returns the time of the next report.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let news = self.is.filter(|news| self.last != Some(*news))?;
        if news.is_up() && self.last.is_some_and(|last| !last.is_up()) {
            return Some(Instant(0));
        }
        Some(self.last_reported.get(&news.topic()).map_or(Instant(0), |at| *at + QUIET))
    }
}
