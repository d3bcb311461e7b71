//! Membership of a service, and its changes.
//!
//! An operation is final when *every* member has it, so all must agree on the members. These change
//! from one [`Membership`] to the next by a [`Change`], which an administrator requests from any
//! member. There is no majority vote: *every* member seals the change, except those that the
//! administrator declares lost.
//!
//! ```text
//!   member ──adopts a change──▶ sealed ──all have, what counts is here──▶ member of the next
//! ```
//!
//! A member that has sealed a change ignores the lost members, and accepts no client requests if it
//! leaves. So the participants receive no more operations of removed members than one of them had
//! when it sealed: once each has sealed, the greatest numbers reported by any of them bound what
//! counts forever. A participant that has all of these operations becomes a member of the next
//! epoch. It no longer trusts earlier messages, and finality requires every member of the new
//! epoch.
//!
//! Several changes of one membership are *joined*: the union of their removals and of their
//! additions. So the sealed change only grows, and all seal the same in the end. Some members may
//! have entered the next epoch by a part of it before: then the whole never completes, as that
//! needs them, and the others follow them, having received nothing meanwhile of the members removed
//! by that part. If the others have sealed that those first members are lost, they continue without
//! them; the first members had finalized nothing in their epoch, as that needs everybody.
//!
//! A strict answer agrees with the eventual order as long as no change loses two replicas: the
//! answer may show non-strict operations that only its replica and one other have yet.

use super::{Message, ReplicaId, SANE_MAX, Vector};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum members of a service.
pub const MEMBERS_MAX: usize = 64;

/// Maximum members over the lifetime of a service: each has a number in every token.
pub const ORIGINS_MAX: usize = 128;

/// Identifier of a membership.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// Number of the preceding membership plus one.
    pub number: u64,
    /// First half of the SHA-256 digest of the change that led to it.
    pub by: u128,
}

/// Set of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Identifier.
    pub epoch: Epoch,
    /// Replicas with their addresses, which are opaque here.
    pub members: BTreeMap<ReplicaId, String>,
    /// Members that are new in this epoch.
    pub came: BTreeSet<ReplicaId>,
    /// Former members, with the number of their operations that count. Their identifiers are never
    /// reused.
    pub retired: BTreeMap<ReplicaId, u64>,
}

/// Change of a membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Membership that ends.
    pub from: Epoch,
    /// Members of the next one.
    pub members: BTreeMap<ReplicaId, String>,
    /// Members excluded from the change, because they will never return.
    pub lost: BTreeSet<ReplicaId>,
    /// Whether it is permitted to lose most members.
    pub forced: bool,
}

/// Membership state of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipState {
    /// Current membership.
    pub membership: Arc<Membership>,
    /// Sealed change.
    pub change: Option<Arc<Change>>,
}

/// Change requested by an administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRequest {
    /// New members and their addresses.
    pub add: BTreeMap<ReplicaId, String>,
    /// Members that leave after sending everything that they know.
    pub remove: BTreeSet<ReplicaId>,
    /// Members that will never return. Operations that only they had are lost.
    pub lost: BTreeSet<ReplicaId>,
    /// Whether it is permitted to lose most members.
    pub forced: bool,
}

/// Reason to reject a requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// Empty change.
    Nothing,
    /// The replica that received the request is not a member, or would be lost.
    Outside,
    /// These are not members.
    Unknown(BTreeSet<ReplicaId>),
    /// These are or were members.
    Known(BTreeSet<ReplicaId>),
    /// No remaining member would have the data.
    Nobody,
    /// Most members would be lost. Only an administrator who knows that they do not continue on
    /// their own may force this.
    Most,
    /// The members to be lost may have completed the change in progress, and continue without the
    /// others.
    Split,
    /// More than [`MEMBERS_MAX`] members, or more than [`ORIGINS_MAX`] in all.
    Many,
}

impl Membership {
    /// Creates the first membership of a service.
    pub fn first(members: BTreeMap<ReplicaId, String>) -> Membership {
        let epoch = Epoch { number: 1, ..Epoch::default() };
        Membership { epoch, members, came: BTreeSet::new(), retired: BTreeMap::new() }
    }

    /// Returns the replicas whose operations count: members and former members.
    pub fn origins(&self) -> impl Iterator<Item = ReplicaId> {
        self.members.keys().chain(self.retired.keys()).copied()
    }

    /// Reports whether it is valid for any service: members are not retired, and limits hold.
    pub(super) fn is_sound(&self) -> bool {
        let numbers = || self.retired.values().chain([&self.epoch.number]);
        numbers().all(|number| *number < SANE_MAX)
            && (1..=MEMBERS_MAX).contains(&self.members.len())
            && self.origins().count() <= ORIGINS_MAX
            && self.came.iter().all(|id| self.members.contains_key(id))
            && self.members.keys().all(|id| !self.retired.contains_key(id))
    }

    /// Reports whether a change of `old` can lead to it: old members stay or retire, other members
    /// are new, and the counts of those retired before are unchanged.
    fn follows(&self, old: &Membership) -> bool {
        let stays = |id: &ReplicaId| self.members.contains_key(id);
        let came = self.members.keys().filter(|id| !old.members.contains_key(id));
        let gone = old.members.keys().filter(|id| !stays(id));
        let retired: BTreeSet<&ReplicaId> = old.retired.keys().chain(gone).collect();
        self.retired.keys().eq(retired)
            && self.came.iter().eq(came)
            && old.members.keys().any(stays)
            && old.retired.iter().all(|(id, count)| self.retired.get(id) == Some(count))
    }
}

impl Change {
    /// Returns the epoch that it leads to.
    pub fn to(&self) -> Epoch {
        let digest: [u8; 32] = Sha256::digest(crate::binary::write(self)).into();
        let (first, _) = digest.split_first_chunk().expect("it is longer");
        let by = u128::from_le_bytes(*first);
        Epoch { number: self.from.number.saturating_add(1), by }
    }

    /// Reports whether a replica participates: it is a member and not lost.
    fn takes(&self, id: ReplicaId, old: &Membership) -> bool {
        old.members.contains_key(&id) && !self.lost.contains(&id)
    }

    /// Combines two changes of the same membership.
    fn join(&self, other: &Change, old: &Membership) -> Change {
        assert_eq!(self.from, other.from, "changes of one membership are joined");
        let mut members = self.members.clone();
        for (id, place) in &other.members {
            let ours = members.entry(*id).or_default();
            *ours = place.max(ours).clone();
        }
        let stays = |id: &ReplicaId| {
            let goes = |change: &Change| !change.members.contains_key(id);
            !(old.members.contains_key(id) && (goes(self) || goes(other)))
        };
        members.retain(|id, _| stays(id));
        let lost = self.lost.union(&other.lost).copied().collect();
        Change { from: self.from, members, lost, forced: self.forced || other.forced }
    }

    /// Reports whether its lost members may continue on their own, by completing `sealed`.
    ///
    /// The lost members may have completed `sealed`, or a part of it, and be in the resulting
    /// membership *M* with its new members. To continue without the others they must be more than
    /// half of *M*. The members that stay in this change are in *M* as well, and its participants
    /// do not continue with the lost ones. So as long as the lost and the new members do not
    /// outnumber the staying ones, only this change can complete.
    fn may_split(&self, sealed: &Change, old: &Membership) -> bool {
        let stay = self.members.keys().filter(|id| self.takes(**id, old)).count();
        let added = sealed.members.keys().filter(|id| !old.members.contains_key(id)).count();
        self.lost != sealed.lost && self.lost.len() + added > stay
    }

    /// Checks that some members stay, most are not lost, and no former one returns.
    fn object(&self, old: &Membership) -> Result<(), Objection> {
        let (all, lost) = (old.members.len(), self.lost.len());
        let stay = |id: &ReplicaId| self.takes(*id, old);
        let again = |id: &&ReplicaId| old.retired.contains_key(id) || self.lost.contains(id);
        let known: BTreeSet<ReplicaId> = self.members.keys().filter(again).copied().collect();
        let unknown = self.lost.iter().filter(|id| !old.members.contains_key(id));
        let unknown: BTreeSet<ReplicaId> = unknown.copied().collect();
        let come = self.members.keys().filter(|id| !old.members.contains_key(id)).count();
        let many = self.members.len() > MEMBERS_MAX || come + old.origins().count() > ORIGINS_MAX;
        match () {
            () if !unknown.is_empty() => Err(Objection::Unknown(unknown)),
            () if !known.is_empty() => Err(Objection::Known(known)),
            () if !self.members.keys().any(stay) => Err(Objection::Nobody),
            () if !self.forced && 2 * lost >= all => Err(Objection::Most),
            () if many && come > 0 => Err(Objection::Many),
            () => Ok(()),
        }
    }
}

/// Membership and its change in progress, as seen by one member.
#[derive(Clone, Debug)]
pub(super) struct Members {
    me: ReplicaId,
    member_state: MembershipState,
    /// Part of it that is durable in the journal, and therefore sent to others.
    announced: MembershipState,
    /// Operations of each other member that has sealed the same change.
    seals: BTreeMap<ReplicaId, Vector>,
    /// Membership that another participant has reached by this change.
    reached: Option<Arc<Membership>>,
    /// Reason why the sealed change cannot be joined with another one received.
    clash: Option<Objection>,
    /// Replicas that report a membership without this one.
    removers: BTreeSet<ReplicaId>,
}

/// Role of a message's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SenderRole {
    /// Member of our epoch that is not lost.
    Peer,
    /// Lost, former or future member.
    Other,
    /// Unknown replica.
    Stranger,
}

impl Members {
    pub(super) fn new(me: ReplicaId, member_state: MembershipState) -> Members {
        Members {
            me,
            announced: member_state.clone(),
            member_state,
            seals: BTreeMap::new(),
            reached: None,
            clash: None,
            removers: BTreeSet::new(),
        }
    }

    pub(super) fn membership(&self) -> &Arc<Membership> {
        &self.member_state.membership
    }

    pub(super) fn member_state(&self) -> &MembershipState {
        &self.member_state
    }

    /// Returns the membership state that may be sent to others.
    pub(super) fn announced(&self) -> &MembershipState {
        &self.announced
    }

    /// Reports whether the whole membership state is in the journal.
    pub(super) fn is_reported(&self) -> bool {
        self.announced == self.member_state
    }

    /// Records a durable membership state. Returns the membership, if it is new.
    pub(super) fn persisted(&mut self, member_state: MembershipState) -> Option<Arc<Membership>> {
        let before = std::mem::replace(&mut self.announced, member_state).membership.epoch;
        let now = &self.announced.membership;
        (now.epoch != before).then(|| now.clone())
    }

    /// Reports whether this replica accepts no client requests: it is not a member, or is leaving.
    pub(super) fn is_outside(&self) -> bool {
        let leaves =
            self.member_state.change.as_ref().is_some_and(|c| !c.members.contains_key(&self.me));
        self.is_removed() || leaves || !self.membership().members.contains_key(&self.me)
    }

    /// Reports whether there is a membership without this replica. One that only lost or retired
    /// replicas have reached does not count: the others continue without it, and need this one.
    pub(super) fn is_removed(&self) -> bool {
        self.removers.iter().any(|id| !self.is_gone(*id))
    }

    /// Reports whether a replica is declared lost, or is a former member.
    pub(super) fn is_gone(&self, id: ReplicaId) -> bool {
        self.is_lost(id) || self.membership().retired.contains_key(&id)
    }

    /// Records the report of a replica that it is in a membership without this one.
    pub(super) fn remove(&mut self, by: ReplicaId) {
        self.removers.insert(by);
    }

    /// Returns the members except this one.
    pub(super) fn peers(&self) -> impl Iterator<Item = ReplicaId> {
        self.membership().members.keys().copied().filter(|id| *id != self.me)
    }

    /// Returns the replicas whose operations count. Those of new members count from their admission
    /// here.
    pub(super) fn origins(&self) -> impl Iterator<Item = ReplicaId> {
        self.membership().origins()
    }

    /// Returns the role of a sender.
    pub(super) fn speaker(&self, id: ReplicaId) -> SenderRole {
        let now = self.membership();
        let comes =
            self.member_state.change.as_ref().is_some_and(|it| it.members.contains_key(&id));
        match now.members.contains_key(&id) {
            _ if id == self.me => SenderRole::Stranger,
            true if !self.is_lost(id) => SenderRole::Peer,
            true => SenderRole::Other,
            false if comes || now.retired.contains_key(&id) => SenderRole::Other,
            false => SenderRole::Stranger,
        }
    }

    /// Reports whether the sealed change declares this replica lost.
    pub(super) fn is_lost(&self, id: ReplicaId) -> bool {
        self.member_state.change.as_ref().is_some_and(|change| change.lost.contains(&id))
    }

    /// Plans a change for a request, joined with the sealed one.
    pub(super) fn plan(&self, change_request: &ChangeRequest) -> Result<Change, Objection> {
        let now = self.membership();
        if self.is_removed()
            || !now.members.contains_key(&self.me)
            || change_request.lost.contains(&self.me)
        {
            return Err(Objection::Outside);
        }
        let sealed = self.member_state.change.as_deref();
        let mut members = sealed.map_or(&now.members, |change| &change.members).clone();
        // Former members need not be removed again.
        let still = |id: &&ReplicaId| !now.retired.contains_key(id);
        let lost: BTreeSet<ReplicaId> = change_request.lost.iter().filter(still).copied().collect();
        let gone: BTreeSet<ReplicaId> =
            change_request.remove.iter().filter(still).chain(&lost).copied().collect();
        let known = |id: &&ReplicaId| now.members.contains_key(id) || members.contains_key(id);
        let unknown: BTreeSet<ReplicaId> =
            gone.iter().filter(|id| !now.members.contains_key(id)).copied().collect();
        let again: BTreeSet<ReplicaId> = change_request.add.keys().filter(known).copied().collect();
        if !unknown.is_empty() {
            return Err(Objection::Unknown(unknown));
        }
        if !again.is_empty() {
            return Err(Objection::Known(again));
        }
        members.retain(|id, _| !gone.contains(id));
        members.extend(change_request.add.clone());
        let mut change = Change { from: now.epoch, members, lost, forced: change_request.forced };
        if let Some(sealed) = sealed {
            change = change.join(sealed, now);
        }
        change.object(now)?;
        if sealed.is_some_and(|sealed| change.may_split(sealed, now)) && !change_request.forced {
            return Err(Objection::Split);
        }
        let is_nothing = match sealed {
            Some(sealed) => *sealed == change,
            None => change.members == now.members,
        };
        if is_nothing { Err(Objection::Nothing) } else { Ok(change) }
    }

    /// Seals a change of the current membership, joined with the sealed one. Returns whether the
    /// result is new.
    pub(super) fn adopt(&mut self, change: &Arc<Change>) -> bool {
        let (now, sealed) = (self.membership(), &self.member_state.change);
        if change.from != now.epoch {
            return false;
        }
        let joined = match sealed {
            None => change.clone(),
            Some(sealed) if sealed == change => return false,
            Some(sealed) => Arc::new(sealed.join(change, now)),
        };
        if !joined.takes(self.me, now) || sealed.as_ref() == Some(&joined) {
            return false;
        }
        let splits = |sealed: &Arc<Change>| !joined.forced && joined.may_split(sealed, now);
        let splits = sealed.as_ref().is_some_and(splits).then_some(Objection::Split);
        let objection = joined.object(now).err().or(splits);
        let fits = objection.is_none();
        // An impossible change conflicts with nothing.
        self.clash = objection.filter(|_| change.object(now).is_ok());
        if fits {
            self.member_state.change = Some(joined);
            // Members not lost by the joined change report again what they have reached.
            (self.seals, self.reached) = (BTreeMap::new(), None);
        }
        fits
    }

    /// Returns the reason why the sealed change cannot be joined with another one received.
    pub(super) fn clash(&self) -> Option<&Objection> {
        self.clash.as_ref()
    }

    /// Reports whether a received membership can belong to this service, as far as known: it
    /// includes this replica (removed ones are informed in another way), and the next one follows
    /// from the current one.
    pub(super) fn can_be(&self, reached: &Membership) -> bool {
        let now = self.membership();
        reached.is_sound()
            && match reached.epoch.number.checked_sub(now.epoch.number) {
                None | Some(0) => true,
                Some(1) => reached.follows(now) && reached.members.contains_key(&self.me),
                Some(_) => reached.members.contains_key(&self.me),
            }
    }

    /// Records the membership state of a peer.
    pub(super) fn handle<O>(&mut self, from: ReplicaId, message: &Message<O>) {
        let now = self.membership().epoch.number;
        let later = message.reached.as_ref().filter(|reached| reached.epoch.number > now);
        if let Some(reached) = later {
            let change = self.member_state.change.as_ref();
            let ours = change.is_some_and(|change| change.takes(from, self.membership()));
            if ours && reached.epoch.number == now + 1 {
                self.reached = Some(reached.clone());
            }
        }
        let Some(change) = &self.member_state.change else { return };
        if message.change.as_ref() == Some(change) || message.epoch == change.to() {
            self.seals.entry(from).or_default().join(&message.has);
        }
    }

    /// Returns the next membership, as soon as it is known and all operations of retired members
    /// that count are here.
    pub(super) fn next(&self, done: &Vector) -> Option<Arc<Membership>> {
        let (now, change) = (self.membership(), self.member_state.change.as_ref()?);
        let all_here = |membership: &Membership| {
            membership.retired.iter().all(|(id, count)| done.get(*id) >= *count)
        };
        if let Some(reached) = self.reached.as_ref().filter(|reached| all_here(reached)) {
            return Some(reached.clone());
        }
        if !self.is_reported() || !change.members.contains_key(&self.me) {
            return None;
        }
        let mut all = done.clone();
        for id in now.members.keys().filter(|id| **id != self.me && change.takes(**id, now)) {
            all.join(self.seals.get(id)?);
        }
        let mut retired = now.retired.clone();
        let gone = now.members.keys().filter(|id| !change.members.contains_key(id));
        retired.extend(gone.map(|id| (*id, all.get(*id))));
        let members = change.members.clone();
        let came = members.keys().filter(|id| !now.members.contains_key(id)).copied().collect();
        let next = Membership { epoch: change.to(), members, came, retired };
        all_here(&next).then(|| Arc::new(next))
    }

    /// Returns the participants not known to have sealed the change.
    pub(super) fn unsealed(&self) -> Vec<ReplicaId> {
        let Some(change) = &self.member_state.change else { return Vec::new() };
        let now = self.membership();
        let takes = self.peers().filter(|id| change.takes(*id, now));
        takes.filter(|id| !self.seals.contains_key(id)).collect()
    }

    /// Enters a membership.
    pub(super) fn install(&mut self, membership: Arc<Membership>) {
        assert!(
            membership.epoch.number > self.membership().epoch.number,
            "epochs follow each other"
        );
        self.member_state = MembershipState { membership, change: None };
        (self.seals, self.reached, self.clash) = (BTreeMap::new(), None, None);
    }

    /// Asserts that the knowledge of a change belongs to the sealed one.
    pub(super) fn check(&self) {
        let (now, change) = (self.membership(), self.member_state.change.as_ref());
        assert!(change.is_none_or(|change| change.from == now.epoch), "it is one of this epoch");
        assert!(change.is_some() || self.seals.is_empty(), "only a change is sealed");
        assert!(change.is_some() || self.reached.is_none(), "only a change is reached");
        let announced = self.announced.membership.epoch.number;
        assert!(announced <= now.epoch.number, "an epoch was announced before it began");
        assert!(!self.seals.contains_key(&self.me), "it knows of itself");
        assert!(now.members.len() <= MEMBERS_MAX, "members are limited");
        assert!(now.members.keys().all(|id| !now.retired.contains_key(id)), "nobody comes again");
    }

    /// Returns the retired replicas of which `after` names operations that do not count.
    pub(super) fn lost_of(&self, after: &Vector) -> Vec<ReplicaId> {
        let counts = |id| self.membership().retired.get(&id).copied();
        after
            .iter()
            .filter(|(id, n)| counts(*id).is_some_and(|c| c < *n))
            .map(|(id, _)| id)
            .collect()
    }
}
