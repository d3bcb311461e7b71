//! Silent members: what a replica does about them.

use crate::hosted::Hosted;
use crate::opened::Opened;
use crate::peer::HEARTBEAT;
use crate::peer_link::{PeerLink, SILENT};
use base::Instant;
use replica::service::{Input, ReplicaId};
use std::collections::BTreeSet;
use std::time::Duration;
use tree::Output;

/// Interval between two turns that indicates a suspension of this replica itself.
const ASLEEP: Duration = Duration::from_secs(3);

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
        let Some(Opened::PeerAcceptor(acceptor)) = self.opens.get(open) else {
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
