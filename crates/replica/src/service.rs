//! Replica of a service: the optimised algorithm (paper 001, 4.3), extended by the paper's future
//! work (chapter 6): unreliable channels, crashes and bounded memory.
//!
//! Each operation belongs to the replica that accepted it from its client (its *origin*). The
//! origin numbers its operations without gaps and gives each its only label. So sets of operations
//! are [`Vector`]s: the operations done at a replica, those known to be at others, the predecessors
//! of an operation, and the operations seen by a client (its *token*). Operations done everywhere
//! are applied to the stable state and dropped.
//!
//! *Nothing leaves a replica before it is in its journal*: its gossip, its vector, and the answers
//! to its own operations wait for [`Input::Persisted`]. (A strict answer may show operations of
//! others that are not in this journal yet: they are in the journals of all replicas that have
//! reported them.) After a crash a replica restarts from its journal, and no other replica has seen
//! more.
//!
//! *Channels may lose, duplicate and reorder.* A message carries operations and the vector of
//! everything durable at its sender, which acknowledges all earlier messages. Operations are
//! received in the order of their numbers; early ones and duplicates are dropped, and
//! unacknowledged ones are retransmitted by any replica that has them.
//!
//! *Strict answers take two hops*: an operation at all replicas is final, with all before it.
//!
//! Proof that an operation `x` done at every replica is final, with all before it: a replica that
//! labels an operation after it has done `x` chooses a greater label (Lamport's rule). Everything
//! that replica `i` labelled before is in `i`'s vector as soon as that includes `x`; and such a
//! vector is trusted only by replicas that have all of `i`'s own operations in it.
//!
//! The set of replicas may change: see `members.rs`.

mod checks;
mod kept;
mod limits;
mod members;
mod order;
mod origins;
mod peers;
mod receiving;
mod serving;
mod silence;
mod vector;
mod waiting;
mod writing;

#[cfg(test)]
mod tests;

pub use kept::{Record, Snapshot};
pub use limits::{Amount, Config, Limits};
pub use members::{
    Change, ChangeRequest, Epoch, MEMBERS_MAX, Membership, MembershipState, ORIGINS_MAX, Objection,
};
pub use silence::Vote;
pub use vector::{ReplicaId, Vector};
pub use waiting::Refusal;
pub use writing::Writing;

use crate::data::DataType;
use crate::work::{self, Meter};
use base::{Automaton, Instant};
use members::Members;
use order::Order;
use origins::Origins;
use peers::{LocalContents, Peer, Peers};
use serde::{Deserialize, Serialize};
use silence::Silence;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use waiting::{Blocked, Waiting, why_never};

/// Exclusive bound of valid counters and numbers; a greater one is not from a correct replica.
const SANE_MAX: u64 = 1 << 62;

/// Place in the order of operations: smaller is earlier. Labels are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Counter greater than that of every label known at its creation (Lamport's rule).
    pub counter: u64,
    /// Origin of the operation.
    pub origin: ReplicaId,
}

/// Operation with its place in the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<O> {
    /// Number among the operations of its origin, from 1, without gaps.
    pub number: u64,
    /// Place in the order.
    pub label: Label,
    /// Predecessors, beside the operations of its origin with smaller numbers.
    pub after: Vector,
    /// Whether its client waits for an answer that agrees with the eventual order.
    pub strict: bool,
    /// Operator to apply.
    pub operator: O,
}

impl<O> Entry<O> {
    /// Reports whether it can never be done: its predecessors include itself or a successor.
    fn waits_for_itself(&self) -> bool {
        self.after.get(self.label.origin) >= self.number
    }
}

/// Identifier of a client's request, chosen by the caller and returned with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message<O> {
    /// Operations, those of each origin by ascending number.
    pub entries: Vec<Arc<Entry<O>>>,
    /// Operations durable at the sender.
    pub has: Vector,
    /// Whether the sender requests the receiver's vector even if that is unchanged.
    pub asks: bool,
    /// Epoch of the sender.
    pub epoch: Epoch,
    /// Change sealed by the sender.
    pub change: Option<Arc<Change>>,
    /// Membership of the sender's epoch, if the receiver is known to be in an earlier one.
    pub reached: Option<Arc<Membership>>,
}

/// Input of a replica.
#[derive(Clone, Debug)]
pub enum Input<O> {
    /// Client request for an operation.
    Request {
        /// Identifier.
        ticket: Ticket,
        /// Predecessors.
        after: Vector,
        /// Whether the answer must agree with the eventual order.
        strict: bool,
        /// Operator to apply.
        operator: O,
        /// Time at which the client gives up.
        until: Instant,
    },
    /// Change of members requested by an administrator and planned by [`Replica::plan`].
    Change(Change),
    /// Report of another replica that it is in a membership without this one and accepts no more
    /// messages of it.
    Removed(ReplicaId),
    /// Cancellation of the wait for an answer. The operation may still be done.
    Forget(Ticket),
    /// Whether final operations are reported in [`Output::Final`].
    Watch(bool),
    /// Connection in both directions established; earlier messages may be lost.
    Connected(ReplicaId),
    /// Connection lost.
    Disconnected(ReplicaId),
    /// Message of another replica.
    Received(ReplicaId, Message<O>),
    /// Complete set of members not heard from within the service's timeout.
    Silent(BTreeSet<ReplicaId>),
    /// Same set as reported by another replica.
    Voted(ReplicaId, Vote),
    /// All records up to this number are durable in the journal.
    Persisted(u64),
    /// Timer.
    Tick,
}

/// Output of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<O, V> {
    /// Answer to a request.
    Answer {
        /// Identifier of the request.
        ticket: Ticket,
        /// Result.
        value: V,
        /// Whether the result is permanent: it agrees with the eventual order.
        is_final: bool,
        /// Operations that the client has seen with it, to be named as predecessors of later ones.
        token: Vector,
    },
    /// A request that cannot be answered in time.
    Refuse(Ticket, Refusal),
    /// A newly final operation and its permanent value; sent if [watched](Input::Watch).
    Final(Arc<Entry<O>>, V),
    /// Send a message to another replica.
    Send(ReplicaId, Message<O>),
    /// Send a vote on silent members to another replica.
    Vote(ReplicaId, Vote),
    /// All others report this member as silent: a change without it begins.
    Removes(ReplicaId),
    /// This replica sent a message that no correct replica can send: ignore it from now on.
    Distrust(ReplicaId),
    /// The named replica knows more of this replica's operations than this replica does: it was
    /// restored from an older copy of its journal. It stops, because it may have reused numbers.
    Outdated(ReplicaId),
    /// Write a record to the journal; [`Input::Persisted`] follows with its number.
    Persist(u64, Record<O>),
    /// Current members.
    Members(Arc<Membership>),
}

/// Replica of a service.
#[derive(Clone, Debug)]
pub struct Replica<D: DataType> {
    data: D,
    me: ReplicaId,
    config: Config,
    clock: u64,
    order: Order<D>,
    origins: Origins<D::Operator>,
    members: Members,
    peers: Peers,
    waiting: Waiting<D>,
    silence: Silence,
    /// Records not yet durable in the journal.
    unwritten: VecDeque<Unwritten>,
    /// Number of the last record.
    written: u64,
    /// Operations durable in the journal.
    has: Vector,
    /// Time of the next gossip; `None` without news.
    gossip_at: Option<Instant>,
    /// Whether more is final than could be applied in one step.
    lags: bool,
    /// Whether more operations can be placed than could be in one step.
    places: bool,
    /// Operations done everywhere and to be dropped, and whether all of them are dropped.
    forgettable: (Vector, bool),
    /// Whether the members or their planned change are new, so that some requests may be
    /// impossible.
    changes: bool,
    /// Work counter of a step.
    meter: Meter,
    /// Whether others have more of this replica's own operations than it has.
    is_outdated: bool,
    /// Whether final operations are reported.
    is_watched: bool,
}

/// Record not yet durable in the journal.
#[derive(Clone, Debug)]
struct Unwritten {
    number: u64,
    /// Operations done with this record.
    done: Vector,
    /// Membership state from this record on, if changed.
    member_state: Option<MembershipState>,
    /// Whether peers are to receive it immediately.
    urgent: bool,
}

impl<D: DataType> Replica<D> {
    /// Creates a replica among `members`, itself one of them, before all operations.
    pub fn new(data: D, me: ReplicaId, members: &[ReplicaId], config: Config) -> Replica<D> {
        let members = members.iter().map(|id| (*id, String::new())).collect();
        let nothing = Snapshot::empty(&data, Membership::first(members));
        Replica::recover(data, me, config, nothing, [])
    }

    /// Recovers a replica from its journal: a snapshot, and the records after it.
    pub fn recover(
        data: D,
        me: ReplicaId,
        config: Config,
        snapshot: Snapshot<D>,
        records: impl IntoIterator<Item = Record<D::Operator>>,
    ) -> Replica<D> {
        let members = Members::new(me, snapshot.member_state);
        let mut replica = Replica {
            me,
            config,
            clock: snapshot.commit_point.map_or(0, |label| label.counter),
            order: Order::new(data.clone(), snapshot.state, snapshot.commit_point),
            origins: Origins::new(members.origins(), &snapshot.base),
            peers: Peers::new([]),
            members,
            waiting: Waiting::new(),
            silence: Silence::default(),
            unwritten: VecDeque::new(),
            written: 0,
            has: Vector::new(),
            gossip_at: None,
            lags: false,
            places: false,
            forgettable: (Vector::new(), true),
            changes: false,
            meter: Meter::unlimited(),
            is_outdated: false,
            is_watched: false,
            data,
        };
        let rest = Record { entries: snapshot.rest, member_state: None };
        for record in std::iter::once(rest).chain(records) {
            // Within a turn, operations may precede the record that admits their origin.
            if let Some(member_state) = record.member_state {
                replica.members = Members::new(me, member_state);
                replica.origins.admit(replica.members.origins());
            }
            for entry in record.entries {
                replica.again(entry);
            }
        }
        replica.peers = Peers::new(replica.members.peers());
        replica.peers.seal(|id| replica.members.is_lost(id));
        replica.has = replica.origins.done().clone();
        // A single replica gets no message that would make this final; no requests are pending yet.
        replica.advance(&mut Vec::new());
        replica.forget();
        replica
    }

    /// Replays an operation of the journal.
    fn again(&mut self, entry: Arc<Entry<D::Operator>>) {
        self.clock = self.clock.max(entry.label.counter);
        self.origins.append(entry.clone(), self.size(&entry));
        // Operations after the base of a snapshot may already be in its state.
        if Some(entry.label) > self.order.commit_point() {
            self.order.place(entry, &mut self.meter);
        }
    }

    /// Returns a snapshot for journal compaction: the new journal is the snapshot and all later
    /// records.
    pub fn snapshot(&self) -> Snapshot<D> {
        self.snapshot_of(self.origins.done(), self.members.member_state().clone())
    }

    /// Returns the initial snapshot of a new member, once all others that are not lost have reached
    /// the epoch that admits it: no competing membership can complete then. Operations of other
    /// replicas in it may be missing from this journal: they are in theirs.
    pub fn join_snapshot(&self, to: ReplicaId) -> Option<Snapshot<D>> {
        let (has, member_state) = self.join_snapshot_of(to)?;
        Some(self.snapshot_of(&has, member_state))
    }

    /// Returns the operations in the join snapshot, and the membership state of its receiver.
    fn join_snapshot_of(&self, to: ReplicaId) -> Option<(Vector, MembershipState)> {
        let membership = self.members.membership();
        let are_members = [to, self.me].iter().all(|id| membership.members.contains_key(id));
        let need_not = |id| membership.came.contains(&id) || self.members.is_lost(id);
        let all = self.peers.are_in(membership.epoch, need_not);
        // A replica with known operations has already started.
        let has_begun = self.origins.done().get(to) > 0;
        let stands = self.members.is_reported() && !self.members.is_removed();
        if !are_members || !all || has_begun || !stands {
            return None;
        }
        let has = self.origins.done().clone().up_to(self.me, self.has.get(self.me));
        let member_state = MembershipState { membership: membership.clone(), change: None };
        Some((has, member_state))
    }

    fn snapshot_of(&self, has: &Vector, member_state: MembershipState) -> Snapshot<D> {
        let base = self.origins.forgotten();
        let everything = Amount { operations: usize::MAX, bytes: usize::MAX };
        Snapshot {
            state: self.order.stable().clone(),
            commit_point: self.order.commit_point(),
            rest: self.origins.between(&base, has, everything),
            base,
            member_state,
        }
    }

    /// Plans the change requested by an administrator.
    ///
    /// # Errors
    /// Returns the reason why the change is impossible.
    pub fn plan(&self, change_request: &ChangeRequest) -> Result<Change, Objection> {
        self.members.plan(change_request)
    }

    /// Returns the membership that is durable in the journal.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.members.announced().membership
    }

    /// Returns the current membership and the sealed change.
    pub fn member_state(&self) -> &MembershipState {
        self.members.member_state()
    }

    /// Reports whether all members have confirmed its epoch and no change is in progress.
    pub fn is_settled(&self) -> bool {
        let member_state = self.members.member_state();
        let epoch = member_state.membership.epoch;
        let is_quiet = member_state.change.is_none() && self.members.is_reported();
        is_quiet && self.peers.are_in(epoch, |_| false)
    }

    /// Returns the members not known to have sealed the current change.
    pub fn unsealed(&self) -> Vec<ReplicaId> {
        self.members.unsealed()
    }

    /// Returns the conflict between the sealed change and one sealed elsewhere. The members do not
    /// change until an administrator requests both at once.
    pub fn clash(&self) -> Option<&Objection> {
        self.members.clash()
    }

    /// Reports whether there is a membership without it.
    pub fn is_removed(&self) -> bool {
        self.members.is_removed()
    }

    /// Reports whether it accepts no client requests: it is not a member, or is leaving.
    pub fn is_outside(&self) -> bool {
        self.members.is_outside()
    }

    /// Returns the state after everything done here.
    pub fn current(&mut self) -> &D::State {
        self.order.refresh(&mut Meter::unlimited());
        self.order.current().expect("everything is applied")
    }

    /// Applies placed operations as far as the allowance permits. Returns whether all are applied.
    pub fn refresh(&mut self) -> bool {
        self.order.refresh(&mut self.meter)
    }

    /// Reports whether all placed operations are applied.
    pub fn is_applied(&self) -> bool {
        self.order.current().is_some()
    }

    /// Sets the work that may begin from now on, in units. Unfinished work continues in the next
    /// step; [`Automaton::deadline`] requests it.
    pub fn set_allowance(&mut self, units: u64) {
        self.meter = Meter::new(units);
    }

    /// Work since the allowance was set, in units.
    pub fn spent(&self) -> u64 {
        self.meter.spent()
    }

    /// Reports whether requested work is unfinished.
    pub fn is_busy(&self) -> bool {
        let lags = self.lags && self.members.is_reported();
        let forgets = !self.forgettable.1 && !self.origins.is_pinned();
        lags || self.places
            || self.waiting.has_ready()
            || self.waiting.has_durable()
            || self.order.lags()
            || forgets
    }

    /// Reports whether a request waits only for its turn: callers should not add more.
    pub fn is_behind(&self) -> bool {
        self.waiting.has_ready()
    }

    /// Returns the final state.
    pub fn stable(&self) -> &D::State {
        self.order.stable()
    }

    /// Label of the last final operation.
    pub fn commit_point(&self) -> Option<Label> {
        self.order.commit_point()
    }

    /// Operations done here.
    pub fn done(&self) -> &Vector {
        self.origins.done()
    }

    /// Operations durable in the journal.
    pub fn has(&self) -> &Vector {
        &self.has
    }

    /// Reports whether everything done here is durable in the journal.
    pub fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Returns the operations known to be durable at another replica.
    pub fn knows_of(&self, peer: ReplicaId) -> Option<&Vector> {
        self.peers.get(peer).map(|peer| &peer.knows)
    }

    /// Returns the operations done here and not final, in order.
    pub fn suffix(&self) -> impl ExactSizeIterator<Item = &Arc<Entry<D::Operator>>> {
        self.order.suffix()
    }

    /// Reports whether others have more of this replica's own operations than it has: it was
    /// restored from an older copy of its journal.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Number of operations retained for retransmission.
    pub fn kept(&self) -> usize {
        self.origins.kept().operations
    }

    /// Approximate size of an operation, in bytes.
    fn size(&self, entry: &Entry<D::Operator>) -> usize {
        size_of::<Entry<D::Operator>>() + self.data.size(&entry.operator) + entry.after.size()
    }
}

type Outputs<D> = Vec<Output<<D as DataType>::Operator, <D as DataType>::Value>>;

impl<D: DataType> Replica<D> {
    /// Places an operation of a local client.
    fn perform(&mut self, request: Blocked<D::Operator>, out: &mut Outputs<D>) {
        self.meter.spend(work::of_bytes(request.bytes));
        self.clock += 1;
        let label = Label { counter: self.clock, origin: self.me };
        let number = self.origins.done().get(self.me) + 1;
        let Blocked { ticket, after, strict, operator, bytes, until } = request;
        let entry = Arc::new(Entry { number, label, after, strict, operator });
        self.origins.append(entry.clone(), size_of::<Entry<D::Operator>>() + bytes);
        if strict {
            self.order.append(entry.clone());
            self.waiting.expect_final(number, ticket, until);
        } else {
            let value = self.order.answer(entry.clone(), &mut self.meter);
            let is_final = self.data.is_free(&entry.operator);
            let token = self.origins.done().clone();
            let value = self.sized(value);
            self.waiting.answer_when(self.written + 1, (ticket, until), value, is_final, token);
        }
        self.persist(vec![entry], None, out);
    }

    /// Returns the refusal of further requests: some replica has not acknowledged everything.
    fn full(&self) -> Refusal {
        let lags = self.peers.iter().filter(|(_, peer)| !peer.knows.covers(&self.has));
        let lags: Vec<ReplicaId> = lags.map(|(id, _)| id).collect();
        if lags.is_empty() { Refusal::Unwritten } else { Refusal::Full(lags) }
    }

    fn persist(
        &mut self,
        entries: Vec<Arc<Entry<D::Operator>>>,
        member_state: Option<MembershipState>,
        out: &mut Outputs<D>,
    ) {
        let news = !entries.is_empty() || member_state.is_some();
        assert!(news, "a record has something to keep");
        self.written += 1;
        let urgent = member_state.is_some() || entries.iter().any(|entry| entry.strict);
        let (number, done) = (self.written, self.origins.done().clone());
        self.unwritten.push_back(Unwritten {
            number,
            done,
            member_state: member_state.clone(),
            urgent,
        });
        out.push(Output::Persist(number, Record { entries, member_state }));
    }

    /// Seals a change. As soon as it is in the journal, every message of this replica carries it,
    /// and messages of lost members are ignored.
    fn seal(&mut self, change: &Arc<Change>, out: &mut Outputs<D>) {
        if self.members.adopt(change) {
            self.changes = true;
            let members = &self.members;
            let lost = members.membership().members.keys().filter(|id| members.is_lost(**id));
            lost.for_each(|id| self.origins.drop_early(*id));
            self.peers.seal(|id| members.is_lost(id));
            self.persist(Vec::new(), Some(self.members.member_state().clone()), out);
        }
    }

    /// Records a membership without this replica, as reported by a member that ignores this one.
    fn removed(&mut self, by: ReplicaId) {
        if self.members.is_gone(by) {
            return;
        }
        self.members.remove(by);
        self.changes = true;
        for (id, peer) in self.peers.iter_mut() {
            peer.forget_time();
            if id == by {
                peer.disconnect();
            }
        }
    }

    /// Enters the next epoch, if everything that requires is here.
    fn become_member(&mut self, out: &mut Outputs<D>) {
        let Some(membership) = self.members.next(self.origins.done()) else { return };
        let epoch = self.members.membership().epoch.number;
        assert!(membership.epoch.number > epoch, "epochs follow each other");
        self.members.install(membership);
        self.changes = true;
        self.origins.admit(self.members.origins());
        self.peers.begin_epoch(&self.members.peers().collect());
        self.persist(Vec::new(), Some(self.members.member_state().clone()), out);
    }

    /// Finalizes operations known everywhere and all before them, as far as the meter allows. All
    /// final operations of this replica itself are at every member, so that its answers survive its
    /// loss.
    fn advance(&mut self, out: &mut Outputs<D>) {
        // A replica that crashes now may restart in the previous epoch.
        if !self.members.is_reported() {
            return;
        }
        let everywhere = self.peers.all_know(&self.has);
        // Own operations unknown to others would not be final after a loss of this replica, and
        // operations missing from its journal not after a crash.
        let own = self.origins.label(self.me, everywhere.get(self.me) + 1);
        let unwritten =
            self.origins.done().iter().filter(|(of, number)| self.has.get(*of) < *number);
        let unwritten =
            unwritten.filter_map(|(of, _)| self.origins.label(of, self.has.get(of) + 1));
        // A leaving replica may be the only one, besides a lost one, that has an operation: without
        // it no replica would know that the operation was final.
        let leaves = self.members.is_outside();
        let lacking = self.origins.done().iter().filter(|_| leaves);
        let lacking = lacking.filter_map(|(of, _)| self.origins.label(of, everywhere.get(of) + 1));
        let bound = unwritten.chain(own).chain(lacking).min();
        let (mut last, mut commit_point) = (Vector::new(), None);
        for (of, number) in everywhere.iter() {
            if let Some((number, label)) = self.origins.last_before(bound, of, number) {
                last.raise(of, number);
                commit_point = commit_point.max(Some(label));
            }
        }
        let Some(commit_point) = commit_point else {
            self.lags = false;
            return;
        };
        // Own operations after this one may not be in the journal yet.
        let token = self.origins.done().clone().up_to(self.me, self.has.get(self.me));
        let (me, waiting, watched) = (self.me, &mut self.waiting, self.is_watched);
        let wanted =
            |entry: &Entry<D::Operator>| watched || entry.strict && entry.label.origin == me;
        let data = &self.data;
        let all = self.order.advance(commit_point, &mut self.meter, wanted, |entry, value| {
            let mut bytes = data.value_size(&value);
            if watched {
                bytes += data.size(&entry.operator);
                out.push(Output::Final(entry.clone(), value.clone()));
            }
            let ours = (entry.label.origin == me).then_some(entry.number);
            if let Some(ticket) = ours.and_then(|number| waiting.take_strict(number)) {
                let token = token.clone();
                out.push(Output::Answer { ticket, value, is_final: true, token });
            }
            work::of_bytes(bytes)
        });
        self.lags = !all;
        // Operations not yet final may name the commit point.
        if all {
            self.forgettable.0.join(&last);
            self.forgettable.1 = false;
        }
    }

    /// Drops operations done everywhere, as far as the meter allows.
    fn forget(&mut self) {
        if !self.forgettable.1 {
            self.forgettable.1 = self.origins.forget(&self.forgettable.0, &mut self.meter);
        }
    }

    fn persisted(&mut self, now: Instant, record: u64, out: &mut Outputs<D>) {
        assert!(record <= self.written, "the journal has only what it was given");
        let mut urgent = false;
        while let Some(first) = self.unwritten.pop_front_if(|first| first.number <= record) {
            assert!(first.done.covers(&self.has), "journal records stay");
            self.has = first.done;
            urgent |= first.urgent;
            if let Some(membership) = first.member_state.and_then(|it| self.members.persisted(it)) {
                out.push(Output::Members(membership));
            }
        }
        self.waiting.allow_send(record);
        self.waiting.send_durable(&mut self.meter, out);
        self.become_member(out);
        self.advance(out);
        if urgent {
            self.gossip_at = Some(now);
        }
        self.gossip_at.get_or_insert(now + self.config.gossip);
    }

    /// Handles timeouts: expired requests, gossip and retransmission.
    fn keep_time(&mut self, now: Instant, out: &mut Outputs<D>) {
        self.waiting.expire(now, (self.me, &self.has), &self.origins, &self.peers, out);
        let gossips = self.gossip_at.is_some_and(|at| at <= now);
        if gossips {
            self.gossip_at = None;
        }
        let (origins, limits) = (&self.origins, &self.config.limits);
        let (member_state, leaves) = (self.members.announced(), self.members.is_outside());
        let ours = LocalContents { origins, has: &self.has, member_state, limits, leaves };
        for (id, peer) in self.peers.iter_mut() {
            if peer.again().is_some_and(|at| at <= now) {
                peer.give_up();
            }
            if peer.is_reached() && (gossips || peer.waits(&ours)) {
                peer.send_gossip(id, &ours, &mut self.meter, out);
                if !self.meter.has_left() {
                    self.gossip_at = Some(now);
                }
            }
            // A removed replica answers, and requests nothing.
            if !self.members.is_removed() {
                peer.watch(now, &ours);
            }
        }
    }
}

impl<D: DataType> Automaton for Replica<D> {
    type Input = Input<D::Operator>;
    type Output = Output<D::Operator, D::Value>;

    fn step(&mut self, now: Instant, input: Self::Input, out: &mut Outputs<D>) {
        match input {
            Input::Request { ticket, .. } if self.is_outdated => {
                out.push(Output::Refuse(ticket, Refusal::Outdated));
            }
            Input::Connected(_) | Input::Received(..) | Input::Change(_) if self.is_outdated => {}
            Input::Change(change) => self.seal(&Arc::new(change), out),
            Input::Removed(by) => self.removed(by),
            Input::Request { ticket, after, strict, operator, until } => {
                let bytes = self.data.size(&operator) + after.size();
                let request = Blocked { ticket, after, strict, operator, bytes, until };
                if let Some(refusal) = why_never(&request, &self.members) {
                    out.push(Output::Refuse(ticket, refusal));
                } else if let Some(request) = self.serve_at_once(request, out) {
                    match self.waiting.blocked().is_below(self.config.limits.blocked) {
                        true => self.waiting.block(request, self.origins.done()),
                        false => out.push(Output::Refuse(ticket, Refusal::Busy)),
                    }
                }
            }
            Input::Forget(ticket) => self.waiting.forget(ticket),
            Input::Watch(watched) => self.is_watched = watched,
            Input::Connected(peer) => self.peers.get_mut(peer).into_iter().for_each(Peer::connect),
            Input::Disconnected(peer) => {
                self.peers.get_mut(peer).into_iter().for_each(Peer::disconnect);
            }
            Input::Received(from, message) => self.handle(from, message, out),
            Input::Silent(members) => self.silence.set(members),
            Input::Voted(from, vote) => self.note_vote(now, from, vote),
            Input::Persisted(record) => self.persisted(now, record, out),
            Input::Tick if self.places => self.place(out),
            Input::Tick if self.lags => self.advance(out),
            Input::Tick => {}
        }
        self.keep_silence(now, out);
        if std::mem::take(&mut self.changes) {
            for (ticket, refusal) in self.waiting.refuse_blocked(&self.members) {
                out.push(Output::Refuse(ticket, refusal));
            }
        }
        self.waiting.send_durable(&mut self.meter, out);
        self.waiting.unblock(self.origins.done());
        self.serve(out);
        self.order.keep_up(&mut self.meter);
        self.forget();
        self.keep_time(now, out);
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_busy() {
            return Some(Instant(0));
        }
        let again = self.peers.iter().filter_map(|(_, peer)| peer.again());
        let others = [self.gossip_at, self.waiting.deadline(), self.silence.deadline()];
        again.chain(others.into_iter().flatten()).min()
    }

    fn check(&self) {
        assert!(self.origins.done().covers(&self.has), "I10: the journal has what was not done");
        self.order.check();
        self.waiting.check();
        self.origins.check();
        self.peers.check();
        self.members.check();
        self.check_journal();
        self.check_order();
        let spent = self.meter.spent();
        let most = self.meter.allowance().saturating_add(work::PIECE_MAX);
        assert!(spent <= most, "{spent} units of work in one step: {most} are allowed");
    }
}
