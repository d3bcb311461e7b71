//! Removal of unresponsive members by all others.
//!
//! A failure detector reports the members not heard from within the service's timeout
//! ([`Input::Silent`](super::Input::Silent)). The replica sends this set to the others in a
//! [`Vote`], periodically while it holds and once more, empty, when it no longer does. When *all*
//! others currently report the same single member, the replica begins a [change](super::Change)
//! that declares it lost, as on an administrator's request.
//!
//! The outcome is decided by that change, so half of the members are never lost: of three members
//! two can remove one, of four or five all others can, and of two none can.
//!
//! Two more conditions keep a replica from removing members that continue without it. *No change is
//! in progress*: such a change may have led others to another membership already. And *every member
//! has confirmed this epoch*, including the silent one: a replica in an epoch that some members
//! never enter (see `members.rs`) does not get their confirmation, and removes none. A restarted
//! replica needs all confirmations anew, so a member that has not started yet is not removed.

use super::{ChangeRequest, Epoch, MEMBERS_MAX, Output, Outputs, Replica, ReplicaId};
use crate::data::DataType;
use base::Instant;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// Interval between repeated votes.
const REPEAT: Duration = Duration::from_secs(2);

/// Validity of a vote.
const VALID: Duration = Duration::from_secs(5);

/// Report of unresponsive members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Epoch of the sender.
    pub epoch: Epoch,
    /// Unresponsive members.
    pub silent: BTreeSet<ReplicaId>,
}

/// Unresponsive members according to this replica and the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Silence {
    /// Members unresponsive here.
    ours: BTreeSet<ReplicaId>,
    /// Votes of the others, with their arrival times.
    theirs: BTreeMap<ReplicaId, (Vote, Instant)>,
    /// Time of the next vote; `None` while there is nothing to report.
    again: Option<Instant>,
    /// Whether to send that the last votes no longer hold.
    is_retracted: bool,
}

impl Silence {
    pub(super) fn set(&mut self, ours: BTreeSet<ReplicaId>) {
        self.is_retracted |= ours.is_empty() && !self.ours.is_empty();
        (self.ours, self.again) = (ours, None);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.again
    }
}

impl<D: DataType> Replica<D> {
    /// Records the vote of another replica.
    pub(super) fn note_vote(&mut self, now: Instant, from: ReplicaId, vote: Vote) {
        if self.peers.get(from).is_some() && vote.silent.len() <= MEMBERS_MAX {
            self.silence.theirs.insert(from, (vote, now));
        }
    }

    /// Sends a vote if due, and begins the removal of a member on which all others agree.
    pub(super) fn keep_silence(&mut self, now: Instant, out: &mut Outputs<D>) {
        let is_retracted = mem::take(&mut self.silence.is_retracted);
        if self.silence.ours.is_empty() && !is_retracted {
            self.silence.again = None;
            return;
        }
        let membership = self.membership().clone();
        if is_retracted {
            self.vote(membership.epoch, &BTreeSet::new(), out);
        }
        let is_member = |id: &ReplicaId| membership.members.contains_key(id);
        let silent: BTreeSet<ReplicaId> =
            self.silence.ours.iter().copied().filter(is_member).collect();
        let may = self.members.is_reported() && !self.members.is_outside() && !self.is_outdated;
        if silent.is_empty() || !may {
            self.silence.again = None;
            return;
        }
        if self.silence.again.is_none_or(|at| at <= now) {
            self.silence.again = Some(now + REPEAT);
            self.vote(membership.epoch, &silent, out);
        }
        if let Some(id) = self.removable(now, &silent)
            && let Ok(change) =
                self.plan(&ChangeRequest { lost: [id].into(), ..ChangeRequest::default() })
        {
            out.push(Output::Removes(id));
            self.seal(&Arc::new(change), out);
        }
    }

    /// Sends a vote to all connected peers.
    fn vote(&self, epoch: Epoch, silent: &BTreeSet<ReplicaId>, out: &mut Outputs<D>) {
        for (id, _) in self.peers.iter().filter(|(_, peer)| peer.is_reached()) {
            out.push(Output::Vote(id, Vote { epoch, silent: silent.clone() }));
        }
    }

    /// Returns the single silent member, if all others currently report it, and no other membership
    /// can exist.
    fn removable(&self, now: Instant, silent: &BTreeSet<ReplicaId>) -> Option<ReplicaId> {
        let id = silent.first().copied().filter(|_| silent.len() == 1)?;
        let member_state = self.members.member_state();
        let epoch = member_state.membership.epoch;
        let agrees = |peer: &ReplicaId| {
            self.silence.theirs.get(peer).is_some_and(|(vote, at)| {
                vote.epoch == epoch && vote.silent == *silent && now.since(*at) < VALID
            })
        };
        let is_settled = member_state.change.is_none() && self.peers.are_in(epoch, |_| false);
        let others = || self.peers.iter().map(|(peer, _)| peer).filter(|peer| *peer != id);
        (is_settled && others().all(|peer| agrees(&peer))).then_some(id)
    }
}
