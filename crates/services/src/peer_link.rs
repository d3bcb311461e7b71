//! The link to another replica, and its silence.
//!
//! A member that is connected and has not replied for [`SILENT`], neither to what was written nor
//! to a [heartbeat](crate::peer), is *silent*: its process hangs, or its host, or nothing reaches
//! it. The connection stays; when the member goes on, so does the connection. Time in which this
//! replica itself had no turn does not count.
//!
//! For its removal more counts: a member is *heard* when it replies, and also when it writes to or
//! reads its own file `peer` here. And the time for which one must not be heard begins anew as long
//! as a second one is not, and when this replica itself did not run. So when an outage of several
//! connections ends, each has that time to come back.

#[cfg(test)]
mod tests;

use crate::hosted::Hosted;
use crate::peer::{HEARTBEAT, Peer};
use base::Instant;
use replica::service::{Input, ReplicaId};
use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;
use tree::Output;
use tree::remote::{Remote, news::QUIET};

/// Time without a reply after which a member that is connected is silent.
pub const SILENT: Duration = Duration::from_secs(6);

/// Pause between two turns from which on this replica itself did not run.
const ASLEEP: Duration = Duration::from_secs(3);

/// The link to another replica: the protocol, and the connection below it.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) peer: Peer,
    pub(crate) remote: Remote,
    /// The last request; answers of others come too late.
    pub(crate) request: u64,
    /// It leads to nobody any more.
    pub(crate) is_closed: bool,
    /// Last complaint in the log.
    pub(crate) complaint: Option<String>,
    /// The operator was told that it says what it cannot say.
    pub(crate) is_distrusted: bool,
    /// Time of its last reply; that of the first turn, if there was none.
    replied: Option<Instant>,
    /// Time when the member was heard last, by a reply or because it came here itself.
    heard: Option<Instant>,
    /// Connected, and without a reply for [`SILENT`].
    is_silent: bool,
    /// Time of the last message to the operator that it is silent.
    told: Option<Instant>,
    /// The operator was told that it is silent, or is to be, and not that it replies again.
    is_announced: bool,
    /// Message to the operator that is due: whether the member replies again, or is silent.
    news: Option<bool>,
}

impl PeerLink {
    /// A link on which nothing was attempted.
    pub(crate) fn new(peer: Peer, remote: Remote) -> PeerLink {
        PeerLink {
            peer,
            remote,
            request: 0,
            is_closed: false,
            complaint: None,
            is_distrusted: false,
            replied: None,
            heard: None,
            is_silent: false,
            told: None,
            is_announced: false,
            news: None,
        }
    }

    /// State in one word: `down` also if the connection is lost and nothing was said since.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.peer.name() {
            _ if self.peer.is_up() && !self.remote.is_connected() => "down",
            _ if self.is_silent => "silent",
            "checking" => "idle",
            name => name,
        }
    }

    /// Whether it is connected and the member replies.
    pub(crate) fn is_well(&self) -> bool {
        self.peer.is_up() && self.remote.is_connected() && !self.is_silent
    }

    /// Notes a reply.
    fn note_reply(&mut self, now: Instant) {
        (self.replied, self.heard) = (Some(now), Some(now));
        if mem::take(&mut self.is_silent) && mem::take(&mut self.is_announced) {
            // What was not told need not be taken back.
            self.news = self.news.take().is_none().then_some(true);
        }
    }

    /// Notes that the member uses its own file here.
    fn note_use(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Notes whether it is silent, `asleep` after the last turn.
    fn note_silence(&mut self, now: Instant, asleep: Option<Duration>) {
        let later = |at: Option<Instant>| {
            let at = at.unwrap_or(now) + asleep.unwrap_or_default();
            at.min(now)
        };
        let replied = later(self.replied);
        (self.replied, self.heard) = (Some(replied), Some(later(self.heard)));
        let is_up = self.peer.is_up() && !self.is_closed;
        let is_silent = is_up && now >= replied + SILENT;
        if is_silent && !self.is_silent && self.told.is_none_or(|told| now >= told + QUIET) {
            (self.told, self.news, self.is_announced) = (Some(now), Some(false), true);
        }
        // The end of its connection is told by itself.
        self.is_announced &= is_silent;
        self.is_silent = is_silent;
    }

    /// Time since which the member is not heard, if it is to be.
    fn unheard_since(&self) -> Option<Instant> {
        self.heard.filter(|_| !self.is_closed)
    }

    /// Takes the message for the operator that is due, and whether it is a good one.
    pub(crate) fn next_news(&mut self) -> Option<(bool, String)> {
        if let Some(replies) = self.news.take() {
            let text = match replies {
                true => "replies again".to_string(),
                false => format!("silent: no reply for {} s", SILENT.as_secs()),
            };
            return Some((replies, text));
        }
        let news = self.remote.next_news()?;
        Some((news.is_up(), news.to_string()))
    }
}

impl Hosted {
    /// Notes which members are silent, and which one is not heard for as long as the service
    /// allows.
    pub(crate) fn note_silence(&mut self, now: Instant, out: &mut Vec<Output>) {
        let slept = now.since(self.turned);
        let asleep = (slept >= ASLEEP).then_some(slept);
        self.turned = now;
        self.links.values_mut().for_each(|link| link.note_silence(now, asleep));
        let Some(most) = self.settings.remove_after else { return };
        let since = || self.links.values().filter_map(PeerLink::unheard_since);
        if asleep.is_some() || since().filter(|since| now >= *since + SILENT).count() > 1 {
            self.alone_since = now;
        }
        // What a journal that has failed does not keep, nobody can rely on.
        let may = self.joining.is_none() && self.journal.failed().is_none();
        let is_unheard = |link: &PeerLink| {
            let since = link.unheard_since().map(|since| since.max(self.alone_since));
            may && since.is_some_and(|since| now >= since + most)
        };
        let unheard = self.links.iter().filter(|(_, link)| is_unheard(link)).map(|(id, _)| *id);
        let unheard: BTreeSet<ReplicaId> = unheard.collect();
        if unheard != self.unheard {
            self.unheard.clone_from(&unheard);
            self.step_replica(now, Input::Silent(unheard), out);
        }
    }

    /// Tells the operator that a member is to be removed, because all others do not hear it.
    pub(crate) fn tell_removal(&mut self, id: ReplicaId) {
        let seconds = self.settings.remove_after.unwrap_or_default().as_secs_f64();
        let service = &self.settings.service;
        self.tell_news(format!(
            "{service}: replica {}: no member has heard it for {seconds} s: asking the others to \
             remove it",
            id.0
        ));
    }

    /// Message to the operator of a replica that `id` has said to be no member any more.
    pub(crate) fn farewell(&self, id: ReplicaId) -> String {
        let (id, me) = (id.0, self.settings.me);
        // One that leaves as it was asked to has told the others all that it has.
        let change = self.replica.standing().change.as_ref();
        let leaves = change.is_some_and(|change| !change.members.contains_key(&me));
        let most = self.settings.remove_after.filter(|_| !leaves);
        match most.map(|most| most.as_secs_f64()) {
            None => format!(
                "this replica is no member any more, so replica {id} says: when 'upcall replica \
                 remove' has said so too, its file is not needed"
            ),
            Some(seconds) => format!(
                "this replica is no member any more, so replica {id} says: an administrator has \
                 removed it with --lost, or it was silent for {seconds} s. Operations that it \
                 answered and that no other replica has are lost. Its file is not needed; make \
                 another replica with 'upcall replica join'"
            ),
        }
    }

    /// Time of the next turn if nothing happens: this replica is awake as long as it has turns.
    pub(crate) fn awake_deadline(&self) -> Option<Instant> {
        let has_links = self.links.values().any(|link| !link.is_closed);
        has_links.then(|| self.turned + HEARTBEAT)
    }

    /// A member has answered a request, well or not.
    pub(crate) fn note_reply(&mut self, now: Instant, of: ReplicaId, is_well: bool) {
        let link = self.links.get_mut(&of).filter(|link| is_well && link.peer.is_up());
        link.into_iter().for_each(|link| link.note_reply(now));
    }

    /// Somebody uses an open file `peer`: a member is heard, if it has proved that it is one.
    pub(crate) fn note_use(&mut self, now: Instant, open: usize) {
        let Some(crate::files::Opened::Door(door)) = self.opens.get(open) else { return };
        let link = door.peer().and_then(|peer| self.links.get_mut(&peer));
        link.into_iter().for_each(|link| link.note_use(now));
    }
}
