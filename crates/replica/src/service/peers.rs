//! What the other replicas know, and what they were told.

use super::members::{Epoch, Standing};
use super::{Limits, Message, Origins, Output, ReplicaId, Vector};
use crate::work::{self, Meter};
use base::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A peer that does not say for so long that it has more is told again.
const PATIENCE: Duration = Duration::from_millis(200);

/// And after at most this, if it still does not.
const PATIENCE_MAX: Duration = Duration::from_secs(2);

/// An epoch, and the one that is to follow it.
type Stands = (Epoch, Option<Epoch>);

fn stands(standing: &Standing) -> Stands {
    (standing.membership.epoch, standing.change.as_ref().map(|change| change.to()))
}

/// What a peer may be told.
pub(super) struct Ours<'a, O> {
    pub(super) origins: &'a Origins<O>,
    /// What is in the journal.
    pub(super) has: &'a Vector,
    pub(super) standing: &'a Standing,
    pub(super) limits: &'a Limits,
    /// Whether this replica leaves: then it tells the others until they do not hear it any more.
    pub(super) leaves: bool,
}

/// What a peer had said to have at some time, and what was sent to it by then.
#[derive(Clone, Debug)]
struct Mark {
    until: Instant,
    acked: Vector,
    sent: Vector,
}

impl Mark {
    /// Whether it has more now, and of each origin of which more was sent. (Its own operations, and
    /// those of one that reaches it, must not hide that another one does not.)
    fn is_passed(&self, acked: &Vector) -> bool {
        self.acked != *acked && self.still(acked).next().is_none()
    }

    /// The origins of which more was sent, and none came.
    fn still(&self, acked: &Vector) -> impl Iterator<Item = ReplicaId> {
        let awaited = self.acked.lacks(&self.sent).map(|(of, _)| of);
        awaited.filter(|of| acked.get(*of) <= self.acked.get(*of))
    }
}

/// One of the other replicas.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// What it has, for good, as far as it has told.
    acked: Vector,
    /// The same, as far as everything is here that it had labelled then: what is final is found by
    /// this.
    pub(super) knows: Vector,
    /// What it has told, of which something of its own is not here yet.
    unbelieved: Option<Vector>,
    /// What was sent to it, or will be by whose it is.
    sent: Vector,
    /// What this replica has sent of that: what is on its way.
    said: Vector,
    /// What it was last told: what this replica has, and how it stands.
    told: (Vector, Stands),
    /// How it stands, as it has told.
    stands: Option<Stands>,
    /// It is said to be lost: nothing is sent to it.
    is_lost: bool,
    /// Whether we ask it to say how far it is, even if that is nothing new.
    asks: bool,
    /// Whether it has asked that of us.
    pub(super) owes: bool,
    /// Whether messages reach it, as far as is known.
    connected: bool,
    /// When it is told again, unless it gets on.
    again: Option<Mark>,
    patience: Duration,
}

impl Peer {
    fn new() -> Peer {
        Peer {
            acked: Vector::new(),
            knows: Vector::new(),
            unbelieved: None,
            sent: Vector::new(),
            said: Vector::new(),
            told: (Vector::new(), Stands::default()),
            stands: None,
            is_lost: false,
            asks: false,
            owes: false,
            connected: false,
            again: None,
            patience: PATIENCE,
        }
    }

    /// It says how far it is, and how it stands; whether it has our epoch.
    pub(super) fn says(&mut self, vector: &Vector, stands: Stands, ours: Epoch) {
        self.acked.join(vector);
        self.sent.join(vector);
        self.stands = Some(stands);
        if stands.0 == ours {
            self.unbelieved.get_or_insert_default().join(vector);
        }
    }

    /// An epoch begins: what was said before it does not count.
    fn begin_epoch(&mut self) {
        (self.knows, self.unbelieved, self.is_lost) = (Vector::new(), None, false);
        // It is asked until it has said in this epoch what it has.
        self.stands = Some(Stands::default());
        self.rewind();
    }

    /// Whether it has said in this epoch that it has all of this. What it said before does not
    /// count, and its first message of the epoch may be an old one.
    fn has_said(&self, vector: &Vector) -> bool {
        let said = |of| self.unbelieved.as_ref().map_or(0, |said| said.get(of));
        vector.iter().all(|(of, number)| self.knows.get(of).max(said(of)) >= number)
    }

    /// Only who has all of its own operations knows what is before those that it has done.
    pub(super) fn believe(&mut self, id: ReplicaId, done: &Vector) {
        if let Some(vector) = self.unbelieved.take_if(|vector| done.get(id) >= vector.get(id)) {
            self.knows.join(&vector);
        }
    }

    /// The origin of this operation tells it to this peer, if that has all before it.
    pub(super) fn presume(&mut self, origin: ReplicaId, number: u64) {
        if self.sent.get(origin).checked_add(1) == Some(number) {
            self.sent.raise(origin, number);
        }
    }

    /// Tells it what it has not been sent, and how far this replica is, if any of that is news.
    pub(super) fn tell<O, V>(
        &mut self,
        id: ReplicaId,
        ours: &Ours<'_, O>,
        meter: &mut Meter,
        out: &mut Vec<Output<O, V>>,
    ) {
        let Ours { origins, has, standing, limits, .. } = ours;
        while meter.has_left() {
            let room = limits.window.without(origins.amount(&self.acked, &self.said));
            let entries = origins.between(&self.sent, has, room.min(limits.message));
            let is_known = self.told.0 == **has && self.told.1 == stands(standing);
            if entries.is_empty() && is_known && !self.owes && !self.asks {
                return;
            }
            meter.spend(1);
            for entry in &entries {
                let bytes = origins.size(entry.label.origin, entry.number);
                meter.spend(1 + work::of_bytes(bytes));
                self.sent.raise(entry.label.origin, entry.number);
                self.said.raise(entry.label.origin, entry.number);
            }
            self.told = ((*has).clone(), stands(standing));
            self.owes = false;
            let asks = std::mem::take(&mut self.asks);
            let epoch = standing.membership.epoch;
            let lags = self.stands.is_some_and(|theirs| theirs.0.number < epoch.number);
            let reached = lags.then(|| standing.membership.clone());
            let change = standing.change.clone();
            let has = (*has).clone();
            out.push(Output::Say(id, Message { entries, has, asks, epoch, change, reached }));
        }
    }

    /// Whether it waits to be told: it has asked, or we have, or it was told of more than it was
    /// sent, and there is room now.
    pub(super) fn waits<O>(&self, ours: &Ours<'_, O>) -> bool {
        let on_their_way = || ours.origins.amount(&self.acked, &self.said);
        let has_room = || on_their_way().is_below(ours.limits.window);
        self.owes || self.asks || !self.sent.covers(&self.told.0) && has_room()
    }

    /// Sees to it that it is told again, if it does not get on with what it has not said to have,
    /// or does not stand as this replica does.
    pub(super) fn watch<O>(&mut self, now: Instant, ours: &Ours<'_, O>) {
        let (has, stood) = (ours.has, stands(ours.standing));
        // One that was never heard is not asked how it stands before anything changes.
        let is_level = match self.stands {
            Some(theirs) => theirs == stood,
            None => ours.standing.change.is_none(),
        };
        if self.has_said(has) && is_level && !ours.leaves {
            (self.again, self.patience) = (None, PATIENCE);
            return;
        }
        match &self.again {
            Some(mark) if !mark.is_passed(&self.acked) => return,
            Some(_) => self.patience = (self.patience / 2).max(PATIENCE),
            None => {}
        }
        let (acked, sent) = (self.acked.clone(), self.sent.clone());
        self.again = Some(Mark { until: now + self.patience, acked, sent });
    }

    /// It is not told again.
    pub(super) fn forget_time(&mut self) {
        self.again = None;
    }

    /// Whatever was sent may be lost.
    fn rewind(&mut self) {
        (self.sent, self.said) = (self.acked.clone(), Vector::new());
        self.asks = true;
        self.again = None;
    }

    /// When it is told again, unless it gets on.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again.as_ref().map(|mark| mark.until).filter(|_| self.is_reached())
    }

    /// Whether it is worth while to tell it something.
    pub(super) fn is_reached(&self) -> bool {
        self.connected && !self.is_lost
    }

    /// It was silent for too long, at least of some origins.
    pub(super) fn lose_patience(&mut self) {
        for of in self.again.take().iter().flat_map(|mark| mark.still(&self.acked)) {
            let has = self.acked.get(of);
            self.sent = std::mem::take(&mut self.sent).up_to(of, has);
            self.said = std::mem::take(&mut self.said).up_to(of, has);
        }
        self.asks = true;
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        assert!(self.patience >= PATIENCE, "patience grows");
    }

    fn check(&self) {
        assert!(self.sent.covers(&self.acked), "it has been sent what it has");
        assert!(self.sent.covers(&self.said), "what is on its way was sent");
        assert!(self.acked.covers(&self.knows), "what it knows it has told");
        if let Some(unbelieved) = &self.unbelieved {
            assert!(self.acked.covers(unbelieved), "what it said it has told");
        }
        assert!((PATIENCE..=PATIENCE_MAX).contains(&self.patience), "{:?}", self.patience);
    }

    pub(super) fn connect(&mut self) {
        self.rewind();
        (self.connected, self.patience) = (true, PATIENCE);
    }

    pub(super) fn disconnect(&mut self) {
        self.rewind();
        self.connected = false;
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Peers(BTreeMap<ReplicaId, Peer>);

impl Peers {
    pub(super) fn new(ids: impl IntoIterator<Item = ReplicaId>) -> Peers {
        Peers(ids.into_iter().map(|id| (id, Peer::new())).collect())
    }

    /// These are the peers of the epoch that begins.
    pub(super) fn begin_epoch(&mut self, ids: &BTreeSet<ReplicaId>) {
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            self.0.entry(*id).or_insert_with(Peer::new).begin_epoch();
        }
    }

    /// A change is sealed, and says who is lost. What these would have told, others must.
    pub(super) fn seal(&mut self, is_lost: impl Fn(ReplicaId) -> bool) {
        for (id, peer) in &mut self.0 {
            peer.is_lost = is_lost(*id);
            peer.rewind();
        }
    }

    /// Whether all have said that they are in this epoch who must.
    pub(super) fn are_in(&self, epoch: Epoch, need_not: impl Fn(ReplicaId) -> bool) -> bool {
        let is_in = |peer: &Peer| peer.stands.is_some_and(|stands| stands.0 == epoch);
        self.0.iter().all(|(id, peer)| need_not(*id) || is_in(peer))
    }

    pub(super) fn get(&self, id: ReplicaId) -> Option<&Peer> {
        self.0.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ReplicaId) -> Option<&mut Peer> {
        self.0.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ReplicaId, &Peer)> {
        self.0.iter().map(|(id, peer)| (*id, peer))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ReplicaId, &mut Peer)> {
        self.0.iter_mut().map(|(id, peer)| (*id, peer))
    }

    /// Asserts what holds of each.
    pub(super) fn check(&self) {
        self.0.values().for_each(Peer::check);
    }

    /// What everybody has.
    pub(super) fn all_know(&self, mine: &Vector) -> Vector {
        let least = |of: ReplicaId, most: u64| {
            self.0.values().map(|peer| peer.knows.get(of)).fold(most, u64::min)
        };
        mine.iter().map(|(of, most)| (of, least(of, most))).collect()
    }
}
