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

use crate::hosted::Hosted;
use crate::peer::{HEARTBEAT, Peer};
use base::Instant;
use base::op::Address;
use replica::service::{Input, ReplicaId};
use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;
use tree::Output;
use tree::remote::{Remote, news::QUIET};

/// Time without a reply after which a connected member is silent.
pub const SILENT: Duration = Duration::from_secs(6);

/// Interval between two turns that indicates a suspension of this replica itself.
const ASLEEP: Duration = Duration::from_secs(3);

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
    fn note_reply(&mut self, now: Instant) {
        (self.replied, self.received) = (Some(now), Some(now));
        if mem::take(&mut self.is_silent) && mem::take(&mut self.is_announced) {
            // A pending announcement is dropped instead of retracted.
            self.news = self.news.take().is_none().then_some(true);
        }
    }

    /// Records a use of the member's own file here.
    fn note_use(&mut self, now: Instant) {
        self.received = Some(now);
    }

    /// Updates the silence of the member; `asleep` is the duration of a suspension.
    fn note_silence(&mut self, now: Instant, asleep: Option<Duration>) {
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
    fn silent_since(&self) -> Option<Instant> {
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

impl Hosted {
    /// Updates the silent members, and reports those unheard for longer than the service permits.
    pub(crate) fn note_silence(&mut self, now: Instant, out: &mut Vec<Output>) {
        let slept = now.since(self.turned);
        let asleep = (slept >= ASLEEP).then_some(slept);
        self.turned = now;
        self.links.values_mut().for_each(|link| link.note_silence(now, asleep));
        let Some(most) = self.settings.remove_after else { return };
        let since = || self.links.values().filter_map(PeerLink::silent_since);
        if asleep.is_some() || since().filter(|since| now >= *since + SILENT).count() > 1 {
            self.alone_since = now;
        }
        // With a failed journal the removal could not be stored.
        let may = self.joining.is_none() && self.journal.failed().is_none();
        let is_unresponsive = |link: &PeerLink| {
            let since = link.silent_since().map(|since| since.max(self.alone_since));
            may && since.is_some_and(|since| now >= since + most)
        };
        let silent = self.links.iter().filter(|(_, link)| is_unresponsive(link)).map(|(id, _)| *id);
        let silent: BTreeSet<ReplicaId> = silent.collect();
        if silent != self.silent {
            self.silent.clone_from(&silent);
            self.step_replica(now, Input::Silent(silent), out);
        }
    }

    /// Informs the operator that all others report a member as silent, so that its removal begins.
    pub(crate) fn notify_removal(&mut self, id: ReplicaId) {
        let seconds = self.settings.remove_after.unwrap_or_default().as_secs_f64();
        let service = &self.settings.service;
        self.notify_news(format!(
            "{service}: replica {}: silent at every member for {seconds} s: asking the others to \
             remove it",
            id.0
        ));
    }

    /// Returns the operator message of a replica that `id` reports as removed.
    pub(crate) fn farewell(&self, id: ReplicaId) -> String {
        let (id, me) = (id.0, self.settings.me);
        // A replica that leaves regularly has sent all its operations.
        let change = self.replica.member_state().change.as_ref();
        let leaves = change.is_some_and(|change| !change.members.contains_key(&me));
        let most = self.settings.remove_after.filter(|_| !leaves);
        match most.map(|most| most.as_secs_f64()) {
            None => format!(
                "this replica is no member any more, so replica {id} says: when 'upcall replica \
                 remove' reports it too, its file is not needed"
            ),
            Some(seconds) => format!(
                "this replica is no member any more, so replica {id} says: an administrator has \
                 removed it with --lost, or it was silent for {seconds} s. Operations that it \
                 answered and that no other replica has are lost. Its file is not needed; make \
                 another replica with 'upcall replica join'"
            ),
        }
    }

    /// Returns the time of the next turn without other events: regular turns show that this replica
    /// runs.
    pub(crate) fn awake_deadline(&self) -> Option<Instant> {
        let has_links = self.links.values().any(|link| !link.is_closed);
        has_links.then(|| self.turned + HEARTBEAT)
    }

    /// Records a reply of a member.
    pub(crate) fn note_reply(&mut self, now: Instant, of: ReplicaId, is_well: bool) {
        let link = self.links.get_mut(&of).filter(|link| is_well && link.peer.is_up());
        link.into_iter().for_each(|link| link.note_reply(now));
    }

    /// Records a use of a file `peer`: its member is alive, if it is authenticated.
    pub(crate) fn note_use(&mut self, now: Instant, open: usize) {
        let Some(crate::files::Opened::PeerAcceptor(acceptor)) = self.opens.get(open) else {
            return;
        };
        let link = acceptor.peer().and_then(|peer| self.links.get_mut(&peer));
        link.into_iter().for_each(|link| link.note_use(now));
    }

    /// Reports a problem with a peer link to the operator, unless it was the last one reported.
    pub(crate) fn complain(&mut self, of: ReplicaId, complaint: String) {
        let link = self.links.get_mut(&of).expect("it is complained of");
        if link.complaint.as_ref() != Some(&complaint) {
            let news = format!("{}: {complaint}", self.settings.service);
            link.complaint = Some(complaint);
            self.notify_news(news);
        }
    }
}
