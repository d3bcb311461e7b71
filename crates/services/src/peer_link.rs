//! Link to another replica, and detection of its silence.
//!
//! A connected member that has not replied for [`SILENT`], neither to a write nor to a
//! [heartbeat](crate::peer), is *silent*: its process or host hangs, or packets are lost. The
//! connection stays open and resumes with the member. Time in which this replica itself had no turn
//! does not count.
//!
//! Removal requires more. A member is *heard* when it replies, but also when it uses its own file
//! `peer` here. And the removal timeout restarts as long as a second member is unheard, and after a
//! suspension of this replica itself. So after an outage of several connections, each member has
//! the full timeout to return.

#[cfg(test)]
mod tests;

use crate::peer::Peer;
use base::Instant;
use base::op::Address;
use std::mem;
use std::time::Duration;
use tree::remote::{Remote, news::QUIET};

/// Time without a reply after which a connected member is silent.
pub const SILENT: Duration = Duration::from_secs(6);

/// Link to another replica: the protocol, and the connection below it.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) peer: Peer,
    pub(crate) remote: Remote,
    /// Addresses of the member.
    pub(crate) to: Vec<Address>,
    /// Number of the last request; replies to others are late.
    pub(crate) request: u64,
    /// Whether the member is gone and the link closed.
    pub(crate) is_closed: bool,
    /// Last problem reported to the operator.
    pub(crate) complaint: Option<String>,
    /// Whether the operator was informed of invalid messages.
    pub(crate) is_distrusted: bool,
    /// Time of its last reply; initially that of the first turn.
    replied: Option<Instant>,
    /// Time at which the member was last heard: by a reply, or by a use of its file here.
    received: Option<Instant>,
    /// Whether it is connected, and without a reply for [`SILENT`].
    is_silent: bool,
    /// Time of the last operator message about silence.
    reported: Option<Instant>,
    /// Whether the operator was informed of silence, but not of its end.
    is_announced: bool,
    /// Pending operator message: true if the member replies again, false if it is silent.
    news: Option<bool>,
}

impl PeerLink {
    /// Creates a link before its first attempt.
    pub(crate) fn new(peer: Peer, remote: Remote, to: Vec<Address>) -> PeerLink {
        PeerLink {
            peer,
            remote,
            to,
            request: 0,
            is_closed: false,
            complaint: None,
            is_distrusted: false,
            replied: None,
            received: None,
            is_silent: false,
            reported: None,
            is_announced: false,
            news: None,
        }
    }

    /// Returns the name of the state; `down` also if the connection is lost and not yet used again.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.peer.name() {
            _ if self.peer.is_up() && !self.remote.is_connected() => "down",
            _ if self.is_silent => "silent",
            "checking" => "idle",
            name => name,
        }
    }

    /// Reports whether it is connected and the member replies.
    pub(crate) fn is_well(&self) -> bool {
        self.peer.is_up() && self.remote.is_connected() && !self.is_silent
    }

    /// Records a reply.
    pub(crate) fn note_reply(&mut self, now: Instant) {
        (self.replied, self.received) = (Some(now), Some(now));
        if mem::take(&mut self.is_silent) && mem::take(&mut self.is_announced) {
            // A pending announcement is dropped instead of retracted.
            self.news = self.news.take().is_none().then_some(true);
        }
    }

    /// Records a use of the member's own file here.
    pub(crate) fn note_use(&mut self, now: Instant) {
        self.received = Some(now);
    }

    /// Updates the silence of the member; `asleep` is the duration of a suspension.
    pub(crate) fn note_silence(&mut self, now: Instant, asleep: Option<Duration>) {
        let later = |at: Option<Instant>| {
            let at = at.unwrap_or(now) + asleep.unwrap_or_default();
            at.min(now)
        };
        let replied = later(self.replied);
        (self.replied, self.received) = (Some(replied), Some(later(self.received)));
        let is_up = self.peer.is_up() && !self.is_closed;
        let is_silent = is_up && now >= replied + SILENT;
        if is_silent
            && !self.is_silent
            && self.reported.is_none_or(|reported| now >= reported + QUIET)
        {
            (self.reported, self.news, self.is_announced) = (Some(now), Some(false), true);
        }
        // The end of its connection is reported separately.
        self.is_announced &= is_silent;
        self.is_silent = is_silent;
    }

    /// Returns the time since which the member is unheard, unless the link is closed.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.received.filter(|_| !self.is_closed)
    }

    /// Takes the pending operator message, and whether it is good news.
    pub(crate) fn next_report(&mut self) -> Option<(bool, String)> {
        if let Some(replies) = self.news.take() {
            let text = match replies {
                true => "replies again".to_string(),
                false => format!("silent: no reply for {} s", SILENT.as_secs()),
            };
            return Some((replies, text));
        }
        let news = self.remote.next_link_state()?;
        Some((news.is_up(), news.to_string()))
    }
}
