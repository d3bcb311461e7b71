//! Received messages: validation and processing.

use super::members::SenderRole;
use super::origins::Receipt;
use super::{Entry, Message, ORIGINS_MAX, Output, Outputs, Replica, ReplicaId, SANE_MAX, Vector};
use crate::data::DataType;
use crate::work;
use std::sync::Arc;

/// Maximum operations in a message.
const ENTRIES_MAX: usize = 1 << 14;

/// Maximum lead of a counter over all received ones: replicas would have sent, or would retain, the
/// operations between.
const AHEAD_MAX: u64 = 1 << 32;

impl<D: DataType> Replica<D> {
    pub(super) fn handle(
        &mut self,
        from: ReplicaId,
        message: Message<D::Operator>,
        out: &mut Outputs<D>,
    ) {
        let theirs = message.has.get(self.me);
        match self.members.speaker(from) {
            SenderRole::Peer if theirs > self.has.get(self.me) && theirs < SANE_MAX => {
                self.is_outdated = true;
                self.peers.iter_mut().for_each(|(_, peer)| peer.disconnect());
                return out.push(Output::Outdated(from));
            }
            SenderRole::Peer if self.is_sane(&message) => {}
            SenderRole::Other => return,
            SenderRole::Peer | SenderRole::Stranger => return out.push(Output::Distrust(from)),
        }
        if let Some(change) = &message.change {
            self.seal(change, out);
        }
        self.members.handle(from, &message);
        self.meter.spend(self.work_of(&message));
        let mut owes = message.asks;
        let mut arrived = self.clock.max(self.origins.last_counter());
        for entry in message.entries {
            // The sender may be honest and only forward a forged operation.
            if entry.label.counter > arrived.saturating_add(AHEAD_MAX) {
                continue;
            }
            arrived = arrived.max(entry.label.counter);
            // The sender of a known operation has missed our acknowledgement.
            let (bytes, early) = (self.size(&entry), self.config.limits.early);
            owes |= self.origins.receive(entry, bytes, early) == Receipt::Known;
        }
        let stands = (message.epoch, message.change.map(|change| change.to()));
        let peer = self.peers.get_mut(from).expect("it is a member");
        peer.owes |= owes;
        peer.shows(&message.has, stands, self.members.membership().epoch);
        self.place(out);
    }

    /// Work to process a message: operations and their bytes.
    fn work_of(&self, message: &Message<D::Operator>) -> u64 {
        let each = |entry: &Arc<Entry<D::Operator>>| 1 + work::of_bytes(self.size(entry));
        1 + message.entries.iter().map(each).sum::<u64>()
    }

    /// Places ready operations as far as the meter allows, with all consequences.
    pub(super) fn place(&mut self, out: &mut Outputs<D>) {
        let placed = self.place_ready(out);
        if !placed.is_empty() {
            self.persist(placed, None, out);
        }
        let done = self.origins.done();
        self.peers.iter_mut().for_each(|(id, peer)| peer.believe(id, done));
        self.become_member(out);
        self.advance(out);
    }

    /// Places operations whose predecessors are done. (Invariant I8: operations that became final
    /// while this one waited are before it, or its origin has claimed operations that it did not
    /// have.)
    fn place_ready(&mut self, out: &mut Outputs<D>) -> Vec<Arc<Entry<D::Operator>>> {
        let mut placed = Vec::new();
        self.places = false;
        while let Some(entry) = self.origins.first_ready() {
            if !self.meter.has_left() {
                self.places = true;
                break;
            }
            let (origin, number) = (entry.label.origin, entry.number);
            if Some(entry.label) <= self.order.commit_point() {
                self.origins.drop_early(origin);
                out.push(Output::Distrust(origin));
                continue;
            }
            self.origins.place(origin, number);
            self.clock = self.clock.max(entry.label.counter);
            // Its origin sends it to the others.
            if self.members.speaker(origin) == SenderRole::Peer {
                self.peers.iter_mut().for_each(|(_, peer)| peer.presume(origin, number));
            }
            self.order.place(entry.clone(), &mut self.meter);
            placed.push(entry);
        }
        placed
    }

    /// Reports whether a correct replica can send this message. A new operation is after everything
    /// final, and after the earlier operations of its origin. During a change some origins may be
    /// unknown here.
    fn is_sane(&self, message: &Message<D::Operator>) -> bool {
        let Message { epoch, change, reached, .. } = message;
        let change = change.iter().map(|change| change.from.number);
        let is_much = message.entries.len() > ENTRIES_MAX;
        if is_much || !change.chain([epoch.number]).all(|number| number < SANE_MAX) {
            return false;
        }
        if !reached.iter().all(|reached| self.members.can_be(reached)) {
            return false;
        }
        let changes = message.change.is_some() || self.members.member_state().change.is_some();
        let knows = |id| self.origins.knows(id) || changes || message.reached.is_some();
        let is_vector = |vector: &Vector| {
            let member = |(id, number)| knows(id) && number < SANE_MAX;
            vector.iter().count() <= ORIGINS_MAX && vector.iter().all(member)
        };
        let mut last = self.origins.last_labels();
        let possible = |entry: &Arc<Entry<D::Operator>>| {
            let Entry { number, label, after, .. } = &**entry;
            let sane = *number > 0 && *number < SANE_MAX && label.counter < SANE_MAX;
            if !sane || !knows(label.origin) || !is_vector(after) || entry.waits_for_itself() {
                return false;
            }
            let known = *number <= self.origins.received(label.origin);
            let before = if known { None } else { last.insert(label.origin, *label) };
            let ours = label.origin == self.me;
            known || !ours && before < Some(*label) && self.order.commit_point() < Some(*label)
        };
        is_vector(&message.has) && message.entries.iter().all(possible)
    }
}
