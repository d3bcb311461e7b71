//! State of the peers: their acknowledgements and the transmissions to them.

use super::members::{Epoch, MembershipState};
use super::{Limits, Message, Origins, Output, ReplicaId, Vector};
use crate::work::{self, Meter};
use base::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Initial retransmission timeout of a peer without progress.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum retransmission timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// Current epoch, and the epoch of the sealed change.
type Epochs = (Epoch, Option<Epoch>);

fn stands(member_state: &MembershipState) -> Epochs {
    (member_state.membership.epoch, member_state.change.as_ref().map(|change| change.to()))
}

/// Contents available for messages to peers.
pub(super) struct LocalContents<'a, O> {
    pub(super) origins: &'a Origins<O>,
    /// Operations in the journal.
    pub(super) has: &'a Vector,
    pub(super) member_state: &'a MembershipState,
    pub(super) limits: &'a Limits,
    /// Whether this replica leaves: then it retransmits until the others ignore it.
    pub(super) leaves: bool,
}

/// State of a peer's acknowledgements when its retransmission timer was started.
#[derive(Clone, Debug)]
struct AckMark {
    until: Instant,
    acked: Vector,
    sent: Vector,
}

impl AckMark {
    /// Reports progress for every origin with outstanding operations. (The peer's own operations,
    /// and those of an origin connected to it, must not hide that another origin is not.)
    fn is_passed(&self, acked: &Vector) -> bool {
        self.acked != *acked && self.still(acked).next().is_none()
    }

    /// Returns the origins with outstanding operations and without progress.
    fn still(&self, acked: &Vector) -> impl Iterator<Item = ReplicaId> {
        let awaited = self.acked.lacks(&self.sent).map(|(of, _)| of);
        awaited.filter(|of| acked.get(*of) <= self.acked.get(*of))
    }
}

/// Peer replica.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Operations durable at the peer, as acknowledged.
    acked: Vector,
    /// Acknowledged operations, as of vectors whose operations labelled by the peer are all here;
    /// finality is derived from this.
    pub(super) knows: Vector,
    /// Vector not yet trusted: some of the peer's own operations in it are not here.
    unbelieved: Option<Vector>,
    /// Operations sent to the peer, by this replica or presumably by their origin.
    sent: Vector,
    /// Operations of these sent by this replica: in flight.
    in_flight: Vector,
    /// Vector and membership state last sent to it.
    last_sent: (Vector, Epochs),
    /// Membership state reported by it.
    stands: Option<Epochs>,
    /// Whether it is declared lost: nothing is sent to it.
    is_lost: bool,
    /// Whether to request its vector, even if unchanged.
    asks: bool,
    /// Whether it has requested ours.
    pub(super) owes: bool,
    /// Whether a connection is established.
    connected: bool,
    /// Retransmission timer.
    again: Option<AckMark>,
    timeout: Duration,
}

impl Peer {
    fn new() -> Peer {
        Peer {
            acked: Vector::new(),
            knows: Vector::new(),
            unbelieved: None,
            sent: Vector::new(),
            in_flight: Vector::new(),
            last_sent: (Vector::new(), Epochs::default()),
            stands: None,
            is_lost: false,
            asks: false,
            owes: false,
            connected: false,
            again: None,
            timeout: TIMEOUT,
        }
    }

    /// Records its vector and membership state. A vector of our epoch awaits trust.
    pub(super) fn shows(&mut self, vector: &Vector, stands: Epochs, ours: Epoch) {
        self.acked.join(vector);
        self.sent.join(vector);
        self.stands = Some(stands);
        if stands.0 == ours {
            self.unbelieved.get_or_insert_default().join(vector);
        }
    }

    /// Begins an epoch: vectors of earlier ones do not count.
    fn begin_epoch(&mut self) {
        (self.knows, self.unbelieved, self.is_lost) = (Vector::new(), None, false);
        // Its vector is requested until it has sent it in this epoch.
        self.stands = Some(Epochs::default());
        self.rewind();
    }

    /// Reports whether it has confirmed all of this in the current epoch. Earlier vectors do not
    /// count, and the first message of an epoch may be an old one.
    fn has_announced(&self, vector: &Vector) -> bool {
        let in_flight = |of| self.unbelieved.as_ref().map_or(0, |in_flight| in_flight.get(of));
        vector.iter().all(|(of, number)| self.knows.get(of).max(in_flight(of)) >= number)
    }

    /// Trusts its vector once all of its own operations in that are here: then everything before
    /// the operations that it has done is known.
    pub(super) fn believe(&mut self, id: ReplicaId, done: &Vector) {
        if let Some(vector) = self.unbelieved.take_if(|vector| done.get(id) >= vector.get(id)) {
            self.knows.join(&vector);
        }
    }

    /// Presumes that an operation's origin sends it to this peer, if the peer has all before it.
    pub(super) fn presume(&mut self, origin: ReplicaId, number: u64) {
        if self.sent.get(origin).checked_add(1) == Some(number) {
            self.sent.raise(origin, number);
        }
    }

    /// Sends it unsent operations and this replica's vector, if any of that is new.
    pub(super) fn send_gossip<O, V>(
        &mut self,
        id: ReplicaId,
        ours: &LocalContents<'_, O>,
        meter: &mut Meter,
        out: &mut Vec<Output<O, V>>,
    ) {
        let LocalContents { origins, has, member_state, limits, .. } = ours;
        while meter.has_left() {
            let room = limits.window.without(origins.amount(&self.acked, &self.in_flight));
            let entries = origins.between(&self.sent, has, room.min(limits.message));
            let is_known = self.last_sent.0 == **has && self.last_sent.1 == stands(member_state);
            if entries.is_empty() && is_known && !self.owes && !self.asks {
                return;
            }
            meter.spend(1);
            for entry in &entries {
                let bytes = origins.size(entry.label.origin, entry.number);
                meter.spend(1 + work::of_bytes(bytes));
                self.sent.raise(entry.label.origin, entry.number);
                self.in_flight.raise(entry.label.origin, entry.number);
            }
            self.last_sent = ((*has).clone(), stands(member_state));
            self.owes = false;
            let asks = std::mem::take(&mut self.asks);
            let epoch = member_state.membership.epoch;
            let lags = self.stands.is_some_and(|theirs| theirs.0.number < epoch.number);
            let reached = lags.then(|| member_state.membership.clone());
            let change = member_state.change.clone();
            let has = (*has).clone();
            out.push(Output::Send(id, Message { entries, has, asks, epoch, change, reached }));
        }
    }

    /// Reports whether there is something to send: a request of either side, or unsent operations
    /// that now fit the window.
    pub(super) fn waits<O>(&self, ours: &LocalContents<'_, O>) -> bool {
        let on_their_way = || ours.origins.amount(&self.acked, &self.in_flight);
        let has_room = || on_their_way().is_below(ours.limits.window);
        self.owes || self.asks || !self.sent.covers(&self.last_sent.0) && has_room()
    }

    /// Maintains the retransmission timer: it runs while the peer lacks acknowledgements of our
    /// operations, or has another membership state.
    pub(super) fn watch<O>(&mut self, now: Instant, ours: &LocalContents<'_, O>) {
        let (has, stood) = (ours.has, stands(ours.member_state));
        // A peer never heard from is not asked for its membership state before a change begins.
        let is_level = match self.stands {
            Some(theirs) => theirs == stood,
            None => ours.member_state.change.is_none(),
        };
        if self.has_announced(has) && is_level && !ours.leaves {
            (self.again, self.timeout) = (None, TIMEOUT);
            return;
        }
        match &self.again {
            Some(mark) if !mark.is_passed(&self.acked) => return,
            Some(_) => self.timeout = (self.timeout / 2).max(TIMEOUT),
            None => {}
        }
        let (acked, sent) = (self.acked.clone(), self.sent.clone());
        self.again = Some(AckMark { until: now + self.timeout, acked, sent });
    }

    /// Stops the retransmission timer.
    pub(super) fn forget_time(&mut self) {
        self.again = None;
    }

    /// Resets transmission to the acknowledged state: everything else may be lost.
    fn rewind(&mut self) {
        (self.sent, self.in_flight) = (self.acked.clone(), Vector::new());
        self.asks = true;
        self.again = None;
    }

    /// Returns the time of the next retransmission.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again.as_ref().map(|mark| mark.until).filter(|_| self.is_reached())
    }

    /// Reports whether messages to it make sense.
    pub(super) fn is_reached(&self) -> bool {
        self.connected && !self.is_lost
    }

    /// Handles a retransmission timeout: rewinds the stalled origins and doubles the timeout.
    pub(super) fn give_up(&mut self) {
        for of in self.again.take().iter().flat_map(|mark| mark.still(&self.acked)) {
            let has = self.acked.get(of);
            self.sent = std::mem::take(&mut self.sent).up_to(of, has);
            self.in_flight = std::mem::take(&mut self.in_flight).up_to(of, has);
        }
        self.asks = true;
        self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
        assert!(self.timeout >= TIMEOUT, "the timeout never shrinks");
    }

    fn check(&self) {
        assert!(self.sent.covers(&self.acked), "it has been sent what it has");
        assert!(self.sent.covers(&self.in_flight), "messages in flight were sent");
        assert!(self.acked.covers(&self.knows), "it has sent all that it knows");
        if let Some(unbelieved) = &self.unbelieved {
            assert!(self.acked.covers(unbelieved), "its reply follows its report");
        }
        assert!((TIMEOUT..=TIMEOUT_MAX).contains(&self.timeout), "{:?}", self.timeout);
    }

    pub(super) fn connect(&mut self) {
        self.rewind();
        (self.connected, self.timeout) = (true, TIMEOUT);
    }

    pub(super) fn disconnect(&mut self) {
        self.rewind();
        self.connected = false;
    }
}

/// Peers by identifier.
#[derive(Clone, Debug)]
pub(super) struct Peers(BTreeMap<ReplicaId, Peer>);

impl Peers {
    pub(super) fn new(ids: impl IntoIterator<Item = ReplicaId>) -> Peers {
        Peers(ids.into_iter().map(|id| (id, Peer::new())).collect())
    }

    /// Begins an epoch with these peers.
    pub(super) fn begin_epoch(&mut self, ids: &BTreeSet<ReplicaId>) {
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            self.0.entry(*id).or_insert_with(Peer::new).begin_epoch();
        }
    }

    /// Records the lost members of a sealed change. Operations that these would have sent must come
    /// from others.
    pub(super) fn seal(&mut self, is_lost: impl Fn(ReplicaId) -> bool) {
        for (id, peer) in &mut self.0 {
            peer.is_lost = is_lost(*id);
            peer.rewind();
        }
    }

    /// Reports whether all peers have confirmed this epoch, except those for which `need_not`
    /// holds.
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

    /// Asserts the invariants of each peer.
    pub(super) fn check(&self) {
        self.0.values().for_each(Peer::check);
    }

    /// Returns the operations known to be durable at every replica.
    pub(super) fn all_know(&self, mine: &Vector) -> Vector {
        let least = |of: ReplicaId, most: u64| {
            self.0.values().map(|peer| peer.knows.get(of)).fold(most, u64::min)
        };
        mine.iter().map(|(of, most)| (of, least(of, most))).collect()
    }
}
