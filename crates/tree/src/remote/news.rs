//! What the operator hears of a server: whether it is there, and what is wrong with it.
//!
//! A server that comes and goes, or that is left for the same mistake again and again, is not
//! worth a line each time: that it is not connected is not said twice within a minute for the same
//! reason. What is so when the minute is over is said then, if it was not what was said last. That
//! it is connected again is said at once, if it was said that it was not.

use super::Dialect;
use base::Instant;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// For how long the same is not said again.
pub const QUIET: Duration = Duration::from_secs(60);

/// What the operator may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// There is a connection, with this dialect and message size.
    Up(Dialect, u32),
    /// There is none any more, and why.
    Down(&'static str),
}

impl News {
    /// Whether there is a connection.
    pub fn is_up(self) -> bool {
        matches!(self, News::Up(..))
    }

    /// What is the same news, whatever was agreed on.
    fn topic(self) -> Option<&'static str> {
        match self {
            News::Up(..) => None,
            News::Down(why) => Some(why),
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Up(Dialect::Linux, msize) => write!(f, "connected, 9P2000.L, {msize} bytes"),
            News::Up(Dialect::Plan9, msize) => write!(f, "connected, 9P2000, {msize} bytes"),
            News::Down(why) => write!(f, "not connected: {why}"),
        }
    }
}

/// What is so, and what was said of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    is: Option<News>,
    last: Option<News>,
    /// When each was said last. Bounded: there are only so many reasons.
    said: BTreeMap<Option<&'static str>, Instant>,
}

impl Told {
    /// This is so from now on.
    pub(super) fn note(&mut self, news: News) {
        self.is = Some(news);
    }

    /// What is to be said now.
    pub(super) fn next(&mut self, now: Instant) -> Option<News> {
        let news = self.is.filter(|_| self.deadline().is_some_and(|at| now >= at))?;
        self.said.insert(news.topic(), now);
        self.last = Some(news);
        Some(news)
    }

    /// When there is something to say.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let news = self.is.filter(|news| self.last != Some(*news))?;
        if news.is_up() && self.last.is_some_and(|last| !last.is_up()) {
            return Some(Instant(0));
        }
        Some(self.said.get(&news.topic()).map_or(Instant(0), |at| *at + QUIET))
    }
}
