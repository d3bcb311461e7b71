//! Who the replicas of a service are, and how that changes.
//!
//! What is final is what *every* member has, so all must agree who the members are. They change
//! from one [`Membership`] to the next, by a [`Change`] that an administrator asks of any member.
//! It is no vote: *every* member seals the change, but those that the administrator says are lost.
//!
//! ```text
//!   member ──adopts a change──▶ sealed ──all have, what counts is here──▶ member of the next
//! ```
//!
//! Who has sealed a change hears nothing more of who is lost, and does nothing more for clients if
//! it leaves. So no more operations of those who go come to any of those who take part than one of
//! them had when it sealed: the most that any of them says to have, once each has sealed, are all
//! that count for ever. Whoever has them becomes a member of the next epoch; what it was told
//! before that is not believed any more, and what is final needs every member of that epoch.
//!
//! Several changes of one membership are *joined*: whoever goes by any of them goes, whoever comes
//! by any of them comes. So what is sealed only grows, and all come to seal the same. Some may have
//! become members by a part of it before: then the whole never comes about, as that needs them, and
//! the others follow, to whom nothing came meanwhile of those who go by that part. Unless these
//! have sealed that the first are lost: then they go on without them, and what the first said to be
//! final in their epoch was nothing, as that needs everybody.
//!
//! A strict answer agrees with the eventual order as long as no two replicas are lost in one
//! change: it may show operations, not strict ones, that only its replica and another have yet.

use super::{Message, ReplicaId, SANE_MAX, Vector};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many members a service has at most.
pub const MEMBERS_MAX: usize = 64;

/// How many it has at most in all its time: each has a number in every token.
pub const ORIGINS_MAX: usize = 128;

/// Names a membership.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// One more than that of the membership before it.
    pub number: u64,
    /// Which of several changes has led to it: the first half of the SHA-256 digest of that.
    pub by: u128,
}

/// Who the replicas are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Its name.
    pub epoch: Epoch,
    /// The replicas, each with where it is: words that only those understand who connect them.
    pub members: BTreeMap<ReplicaId, String>,
    /// Those that were none in the epoch before.
    pub came: BTreeSet<ReplicaId>,
    /// Those that were members, with how many of their operations count. Their names are never
    /// given again.
    pub retired: BTreeMap<ReplicaId, u64>,
}

/// What is to become of a membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The membership that ends.
    pub from: Epoch,
    /// The members of the one that follows.
    pub members: BTreeMap<ReplicaId, String>,
    /// Members that take no part in the change, because they will never be heard again.
    pub lost: BTreeSet<ReplicaId>,
    /// Even if most members are lost.
    pub forced: bool,
}

/// How a replica stands to a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The membership that it is in.
    pub membership: Arc<Membership>,
    /// The change that it has sealed.
    pub change: Option<Arc<Change>>,
}

/// What an administrator wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// New members, and where they are.
    pub add: BTreeMap<ReplicaId, String>,
    /// Members that are to leave, having told all that they know.
    pub remove: BTreeSet<ReplicaId>,
    /// Members that will never be heard again. What only they had is lost.
    pub lost: BTreeSet<ReplicaId>,
    /// Even if most members are lost.
    pub forced: bool,
}

/// Why a wish cannot be granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// It wants nothing.
    Nothing,
    /// The replica that was asked is no member, or would be lost.
    Outside,
    /// These are no members.
    Unknown(BTreeSet<ReplicaId>),
    /// These are members, or were.
    Known(BTreeSet<ReplicaId>),
    /// Nobody would be left who has the data.
    Nobody,
    /// Most members would be lost: only who is sure that they do not go on without us wants that.
    Most,
    /// The members to be lost may have completed the change that is under way, and go on without
    /// the others.
    Split,
    /// There would be more than [`MEMBERS_MAX`], or more than [`ORIGINS_MAX`] in all.
    Many,
}

impl Membership {
    /// The first one of a service.
    pub fn first(members: BTreeMap<ReplicaId, String>) -> Membership {
        let epoch = Epoch { number: 1, ..Epoch::default() };
        Membership { epoch, members, came: BTreeSet::new(), retired: BTreeMap::new() }
    }

    /// Everybody whose operations count: the members, and those that were.
    pub fn origins(&self) -> impl Iterator<Item = ReplicaId> {
        self.members.keys().chain(self.retired.keys()).copied()
    }

    /// Whether any service can have it: nobody is a member and gone, and there are not too many.
    pub(super) fn is_sound(&self) -> bool {
        let numbers = || self.retired.values().chain([&self.epoch.number]);
        numbers().all(|number| *number < SANE_MAX)
            && (1..=MEMBERS_MAX).contains(&self.members.len())
            && self.origins().count() <= ORIGINS_MAX
            && self.came.iter().all(|id| self.members.contains_key(id))
            && self.members.keys().all(|id| !self.retired.contains_key(id))
    }

    /// Whether a change of `old` can lead to it: who was a member is one or has gone, who was none
    /// has come, and of those who had gone before as much counts.
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
    /// The membership that it leads to.
    pub fn to(&self) -> Epoch {
        let digest: [u8; 32] = Sha256::digest(crate::binary::write(self)).into();
        let (first, _) = digest.split_first_chunk().expect("it is longer");
        let by = u128::from_le_bytes(*first);
        Epoch { number: self.from.number.saturating_add(1), by }
    }

    /// Whether this replica takes part in it: a member that is not lost.
    fn takes(&self, id: ReplicaId, old: &Membership) -> bool {
        old.members.contains_key(&id) && !self.lost.contains(&id)
    }

    /// Both this one and another of the same membership.
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

    /// Whether members that it gives up may go on by themselves, by what `sealed` leads to.
    ///
    /// They may have completed `sealed`, or a part of it, and be in the membership *M* that this
    /// leads to, with those that it adds. To go on without the others they must be more than half
    /// of *M*. Those that stay by this change are in *M* as well, and whoever takes part in it does
    /// not go on with the lost. So as long as the lost and the added are not more than those that
    /// stay, only this change can be completed.
    fn may_split(&self, sealed: &Change, old: &Membership) -> bool {
        let stay = self.members.keys().filter(|id| self.takes(**id, old)).count();
        let added = sealed.members.keys().filter(|id| !old.members.contains_key(id)).count();
        self.lost != sealed.lost && self.lost.len() + added > stay
    }

    /// Whether it can be: some stay, most are not lost, and nobody comes again.
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

/// A membership and what it changes to, as one member sees it.
#[derive(Clone, Debug)]
pub(super) struct Members {
    me: ReplicaId,
    standing: Standing,
    /// The same, as far as it is in the journal for good: what others are told.
    said: Standing,
    /// What those have who have sealed the change as well.
    seals: BTreeMap<ReplicaId, Vector>,
    /// What somebody has become a member of by this change.
    reached: Option<Arc<Membership>>,
    /// Why it cannot be joined with another one that was heard of.
    clash: Option<Objection>,
    /// Those that are in a membership without this replica, as they say.
    removers: BTreeSet<ReplicaId>,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// A member of our epoch.
    Peer,
    /// One that is lost, was a member, or will be.
    Other,
    /// Nobody that is known.
    Stranger,
}

impl Members {
    pub(super) fn new(me: ReplicaId, standing: Standing) -> Members {
        Members {
            me,
            said: standing.clone(),
            standing,
            seals: BTreeMap::new(),
            reached: None,
            clash: None,
            removers: BTreeSet::new(),
        }
    }

    pub(super) fn membership(&self) -> &Arc<Membership> {
        &self.standing.membership
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// What others may be told.
    pub(super) fn said(&self) -> &Standing {
        &self.said
    }

    /// Whether all of how this replica stands is in the journal.
    pub(super) fn is_said(&self) -> bool {
        self.said == self.standing
    }

    /// This is in the journal. The membership, if that is a new one.
    pub(super) fn persisted(&mut self, standing: Standing) -> Option<Arc<Membership>> {
        let before = std::mem::replace(&mut self.said, standing).membership.epoch;
        let now = &self.said.membership;
        (now.epoch != before).then(|| now.clone())
    }

    /// Whether this replica takes nothing more from clients: it is no member, or is leaving.
    pub(super) fn is_outside(&self) -> bool {
        let leaves =
            self.standing.change.as_ref().is_some_and(|c| !c.members.contains_key(&self.me));
        self.is_removed() || leaves || !self.membership().members.contains_key(&self.me)
    }

    /// Whether there is a membership without this replica. One that only replicas have come to
    /// that are lost or retired does not count: the others go on without it, and need this one.
    pub(super) fn is_removed(&self) -> bool {
        self.removers.iter().any(|id| !self.is_gone(*id))
    }

    /// Whether a replica is said to be lost, or was a member and is none any more.
    pub(super) fn is_gone(&self, id: ReplicaId) -> bool {
        self.is_lost(id) || self.membership().retired.contains_key(&id)
    }

    /// There is a membership without this replica: so says one that is in it.
    pub(super) fn remove(&mut self, by: ReplicaId) {
        self.removers.insert(by);
    }

    /// The members, but this one.
    pub(super) fn peers(&self) -> impl Iterator<Item = ReplicaId> {
        self.membership().members.keys().copied().filter(|id| *id != self.me)
    }

    /// Everybody whose operations count. Those of new members do as soon as they are members here.
    pub(super) fn origins(&self) -> impl Iterator<Item = ReplicaId> {
        self.membership().origins()
    }

    /// Who this is.
    pub(super) fn speaker(&self, id: ReplicaId) -> Speaker {
        let now = self.membership();
        let comes = self.standing.change.as_ref().is_some_and(|it| it.members.contains_key(&id));
        match now.members.contains_key(&id) {
            _ if id == self.me => Speaker::Stranger,
            true if !self.is_lost(id) => Speaker::Peer,
            true => Speaker::Other,
            false if comes || now.retired.contains_key(&id) => Speaker::Other,
            false => Speaker::Stranger,
        }
    }

    /// Whether the change that is sealed says that this replica is lost.
    pub(super) fn is_lost(&self, id: ReplicaId) -> bool {
        self.standing.change.as_ref().is_some_and(|change| change.lost.contains(&id))
    }

    /// The change that does what somebody wants, and all that is sealed.
    pub(super) fn plan(&self, wish: &Wish) -> Result<Change, Objection> {
        let now = self.membership();
        if self.is_removed() || !now.members.contains_key(&self.me) || wish.lost.contains(&self.me)
        {
            return Err(Objection::Outside);
        }
        let sealed = self.standing.change.as_deref();
        let mut members = sealed.map_or(&now.members, |change| &change.members).clone();
        // Who has gone already need not be asked for.
        let still = |id: &&ReplicaId| !now.retired.contains_key(id);
        let lost: BTreeSet<ReplicaId> = wish.lost.iter().filter(still).copied().collect();
        let gone: BTreeSet<ReplicaId> =
            wish.remove.iter().filter(still).chain(&lost).copied().collect();
        let known = |id: &&ReplicaId| now.members.contains_key(id) || members.contains_key(id);
        let unknown: BTreeSet<ReplicaId> =
            gone.iter().filter(|id| !now.members.contains_key(id)).copied().collect();
        let again: BTreeSet<ReplicaId> = wish.add.keys().filter(known).copied().collect();
        if !unknown.is_empty() {
            return Err(Objection::Unknown(unknown));
        }
        if !again.is_empty() {
            return Err(Objection::Known(again));
        }
        members.retain(|id, _| !gone.contains(id));
        members.extend(wish.add.clone());
        let mut change = Change { from: now.epoch, members, lost, forced: wish.forced };
        if let Some(sealed) = sealed {
            change = change.join(sealed, now);
        }
        change.object(now)?;
        if sealed.is_some_and(|sealed| change.may_split(sealed, now)) && !wish.forced {
            return Err(Objection::Split);
        }
        let is_nothing = match sealed {
            Some(sealed) => *sealed == change,
            None => change.members == now.members,
        };
        if is_nothing { Err(Objection::Nothing) } else { Ok(change) }
    }

    /// Seals a change, with all that is sealed, if it is one of our membership. Whether that is
    /// news.
    pub(super) fn adopt(&mut self, change: &Arc<Change>) -> bool {
        let (now, sealed) = (self.membership(), &self.standing.change);
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
        // What cannot be by itself clashes with nothing.
        self.clash = objection.filter(|_| change.object(now).is_ok());
        if fits {
            self.standing.change = Some(joined);
            // Who is not lost by this one tells again what it has reached.
            (self.seals, self.reached) = (BTreeMap::new(), None);
        }
        fits
    }

    /// Why the change that is sealed and another one that was heard of cannot both be.
    pub(super) fn clash(&self) -> Option<&Objection> {
        self.clash.as_ref()
    }

    /// Whether this can be a membership of this service that this replica is told of, as far as it
    /// can tell: it is in it (who is none any more hears that in another way), and the next one
    /// follows from this one.
    pub(super) fn can_be(&self, reached: &Membership) -> bool {
        let now = self.membership();
        reached.is_sound()
            && match reached.epoch.number.checked_sub(now.epoch.number) {
                None | Some(0) => true,
                Some(1) => reached.follows(now) && reached.members.contains_key(&self.me),
                Some(_) => reached.members.contains_key(&self.me),
            }
    }

    /// Notes what a peer says of its standing.
    pub(super) fn hear<O>(&mut self, from: ReplicaId, message: &Message<O>) {
        let now = self.membership().epoch.number;
        let later = message.reached.as_ref().filter(|reached| reached.epoch.number > now);
        if let Some(reached) = later {
            let change = self.standing.change.as_ref();
            let ours = change.is_some_and(|change| change.takes(from, self.membership()));
            if ours && reached.epoch.number == now + 1 {
                self.reached = Some(reached.clone());
            }
        }
        let Some(change) = &self.standing.change else { return };
        if message.change.as_ref() == Some(change) || message.epoch == change.to() {
            self.seals.entry(from).or_default().join(&message.has);
        }
    }

    /// The next membership, as soon as it is known, and all is here that counts of those who are
    /// gone.
    pub(super) fn next(&self, done: &Vector) -> Option<Arc<Membership>> {
        let (now, change) = (self.membership(), self.standing.change.as_ref()?);
        let all_here = |membership: &Membership| {
            membership.retired.iter().all(|(id, count)| done.get(*id) >= *count)
        };
        if let Some(reached) = self.reached.as_ref().filter(|reached| all_here(reached)) {
            return Some(reached.clone());
        }
        if !self.is_said() || !change.members.contains_key(&self.me) {
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

    /// Who has not sealed the change yet, as far as is known.
    pub(super) fn unsealed(&self) -> Vec<ReplicaId> {
        let Some(change) = &self.standing.change else { return Vec::new() };
        let now = self.membership();
        let takes = self.peers().filter(|id| change.takes(*id, now));
        takes.filter(|id| !self.seals.contains_key(id)).collect()
    }

    /// This is the membership from now on.
    pub(super) fn install(&mut self, membership: Arc<Membership>) {
        assert!(
            membership.epoch.number > self.membership().epoch.number,
            "epochs follow each other"
        );
        self.standing = Standing { membership, change: None };
        (self.seals, self.reached, self.clash) = (BTreeMap::new(), None, None);
    }

    /// Asserts that what is known of a change belongs to the one that is sealed.
    pub(super) fn check(&self) {
        let (now, change) = (self.membership(), self.standing.change.as_ref());
        assert!(change.is_none_or(|change| change.from == now.epoch), "it is one of this epoch");
        assert!(change.is_some() || self.seals.is_empty(), "only a change is sealed");
        assert!(change.is_some() || self.reached.is_none(), "only a change is reached");
        let said = self.said.membership.epoch.number;
        assert!(said <= now.epoch.number, "nothing is said before it is so");
        assert!(!self.seals.contains_key(&self.me), "it knows of itself");
        assert!(now.members.len() <= MEMBERS_MAX, "members are limited");
        assert!(now.members.keys().all(|id| !now.retired.contains_key(id)), "nobody comes again");
    }

    /// Of these, the retired ones of which fewer operations count.
    pub(super) fn lost_of(&self, after: &Vector) -> Vec<ReplicaId> {
        let counts = |id| self.membership().retired.get(&id).copied();
        after
            .iter()
            .filter(|(id, n)| counts(*id).is_some_and(|c| c < *n))
            .map(|(id, _)| id)
            .collect()
    }
}
