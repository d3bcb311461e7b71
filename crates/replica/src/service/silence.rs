//! Members that are silent, and their removal by all others.
//!
//! A failure detector reports the members not heard for as long as the service allows
//! ([`Input::Silent`](super::Input::Silent)). The replica sends them to the others in a [`Vote`],
//! again and again as long as it is so, and an empty one when it is so no more. When *all* others
//! have just said the same of one member, and of no other one, it begins a
//! [change](super::Change) in which that one is lost, as an administrator would ask for it.
//!
//! So it is that change which decides, and half of the members are never lost: of three members
//! two can remove one, of four or five members all others can, and of two nobody can.
//!
//! Two more conditions keep a replica from removing those who go on without it. *No change is under
//! way*: one that is may have led others to another membership already. And *every member has said
//! that it is in this epoch*, the silent one too: who is in an epoch that not all others come to
//! (`members.rs` says when) never hears them say so, and removes nobody. A replica that began again
//! has to hear all of them first, so none is removed that has not begun yet.

use super::{Epoch, MEMBERS_MAX, Output, Outputs, Replica, ReplicaId, Wish};
use crate::data::DataType;
use base::Instant;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two votes for the same.
const REPEAT: Duration = Duration::from_secs(2);

/// Time for which a vote counts.
const VALID: Duration = Duration::from_secs(5);

/// Members that a replica has not heard for as long as the service allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The epoch of the replica.
    pub epoch: Epoch,
    /// These members.
    pub silent: BTreeSet<ReplicaId>,
}

/// Unresponsive members, as this replica and the others report them.
#[derive(Clone, Debug, Default)]
pub(super) struct Silence {
    /// Members that this replica does not hear.
    ours: BTreeSet<ReplicaId>,
    /// Votes of the others, with the times of their arrival.
    theirs: BTreeMap<ReplicaId, (Vote, Instant)>,
    /// Time of the next vote; none was sent, if never.
    again: Option<Instant>,
    /// The last votes do not hold any more, and the others are to hear that.
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
    /// Notes the vote of another replica.
    pub(super) fn note_vote(&mut self, now: Instant, from: ReplicaId, vote: Vote) {
        if self.peers.get(from).is_some() && vote.silent.len() <= MEMBERS_MAX {
            self.silence.theirs.insert(from, (vote, now));
        }
    }

    /// Votes, if it is time, and begins to remove a member of which all others say the same.
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
        let may = self.members.is_said() && !self.members.is_outside() && !self.is_outdated;
        if silent.is_empty() || !may {
            self.silence.again = None;
            return;
        }
        if self.silence.again.is_none_or(|at| at <= now) {
            self.silence.again = Some(now + REPEAT);
            self.vote(membership.epoch, &silent, out);
        }
        if let Some(id) = self.removable(now, &silent)
            && let Ok(change) = self.plan(&Wish { lost: [id].into(), ..Wish::default() })
        {
            out.push(Output::Removes(id));
            self.seal(&Arc::new(change), out);
        }
    }

    /// Sends a vote to all who can be reached.
    fn vote(&self, epoch: Epoch, silent: &BTreeSet<ReplicaId>, out: &mut Outputs<D>) {
        for (id, _) in self.peers.iter().filter(|(_, peer)| peer.is_reached()) {
            out.push(Output::Vote(id, Vote { epoch, silent: silent.clone() }));
        }
    }

    /// The only one of these silent members, if all others have just said that it is silent, and
    /// it is known that nobody goes on without them.
    fn removable(&self, now: Instant, silent: &BTreeSet<ReplicaId>) -> Option<ReplicaId> {
        let id = silent.first().copied().filter(|_| silent.len() == 1)?;
        let standing = self.members.standing();
        let epoch = standing.membership.epoch;
        let agrees = |peer: &ReplicaId| {
            self.silence.theirs.get(peer).is_some_and(|(vote, at)| {
                vote.epoch == epoch && vote.silent == *silent && now.since(*at) < VALID
            })
        };
        let is_settled = standing.change.is_none() && self.peers.are_in(epoch, |_| false);
        let others = || self.peers.iter().map(|(peer, _)| peer).filter(|peer| *peer != id);
        (is_settled && others().all(|peer| agrees(&peer))).then_some(id)
    }
}
