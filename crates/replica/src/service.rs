//! One replica of a service: the optimised algorithm (paper 001, 4.3) with what that leaves to the
//! future (chapter 6): unreliable channels, crashes, and memory that does not grow.
//!
//! Each operation belongs to the replica that its client asked, which numbers its operations
//! without gaps and gives each its only label. So sets of operations are [`Vector`]s: what a
//! replica has done, what it knows that others have, what an operation must come behind, and what a
//! client has seen (its *token*). What is done everywhere is applied to the stable state and
//! forgotten.
//!
//! *Nothing leaves a replica that is not in its journal*: its gossip, its vector, and the answers
//! to its own operations wait for [`Input::Persisted`]. (A strict answer may show operations of
//! others that are not in this journal yet: they are in those of all replicas that have said so.) A
//! replica that crashes begins again with what was persisted, and nobody can tell what was not.
//!
//! *Channels may lose, repeat and reorder.* A message carries operations, and the vector of all
//! that its sender has for good, which acknowledges whatever it was sent. Operations are taken in
//! the order of their numbers; what comes too early or twice is dropped, and what is not
//! acknowledged is sent again, by anybody who has it.
//!
//! *Strict answers take two hops*: an operation that everybody has is final, with all before it.
//!
//! Why an operation `x` that every replica has done is final, with all before it: whoever labels an
//! operation after it has done `x` gives it a greater label (Lamport's rule). Whatever replica `i`
//! labelled before that is in `i`'s vector when that says that `i` has done `x`; and such a vector
//! is believed only by who has all of `i`'s own operations in it.
//!
//! Who the replicas are may change: `members.rs` says how.

mod checks;
mod hearing;
mod kept;
mod limits;
mod members;
mod order;
mod origins;
mod peers;
mod serving;
mod silence;
mod vector;
mod waiting;
mod writing;

#[cfg(test)]
mod tests;

pub use kept::{Record, Snapshot};
pub use limits::{Amount, Config, Limits};
pub use members::{Change, Epoch, MEMBERS_MAX, Membership, ORIGINS_MAX, Objection, Standing, Wish};
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
use peers::{Ours, Peer, Peers};
use serde::{Deserialize, Serialize};
use silence::Silence;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use waiting::{Blocked, Waiting, why_never};

/// No counter and no number is as great: whoever says so is not one of us.
const SANE_MAX: u64 = 1 << 62;

/// A place in the order of operations: smaller is earlier. No two operations have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Greater than that of every label that was known when this was made (Lamport's rule).
    pub counter: u64,
    /// Whose operation it is.
    pub origin: ReplicaId,
}

/// An operation that has its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<O> {
    /// Its number among the operations of its origin, from 1 on, without gaps.
    pub number: u64,
    /// Its place.
    pub label: Label,
    /// What must be done before it, beside the operations of its origin that have smaller numbers.
    pub after: Vector,
    /// Whether its client waits for an answer that agrees with the eventual order.
    pub strict: bool,
    /// What is to be done.
    pub operator: O,
}

impl<O> Entry<O> {
    /// Whether it could never be done: it must come behind itself, or what follows it.
    fn waits_for_itself(&self) -> bool {
        self.after.get(self.label.origin) >= self.number
    }
}

/// Names a request of a client; chosen by who asks, and given back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What replicas say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message<O> {
    /// Operations, those of each origin in the order of their numbers.
    pub entries: Vec<Arc<Entry<O>>>,
    /// What the sender has for good.
    pub has: Vector,
    /// Whether the sender wants to hear how far the receiver is, even if that is nothing new.
    pub asks: bool,
    /// The epoch that the sender is in.
    pub epoch: Epoch,
    /// The change that it has sealed.
    pub change: Option<Arc<Change>>,
    /// The membership of its epoch, if the receiver is not that far, as far as is known.
    pub reached: Option<Arc<Membership>>,
}

/// What can happen to a replica.
#[derive(Clone, Debug)]
pub enum Input<O> {
    /// A client asks for an operation.
    Request {
        /// Its name.
        ticket: Ticket,
        /// What must come before it.
        after: Vector,
        /// Whether the answer must agree with the eventual order.
        strict: bool,
        /// What is to be done.
        operator: O,
        /// When the client gives up.
        until: Instant,
    },
    /// An administrator wants other members: [`Replica::plan`] has made this of it.
    Change(Change),
    /// There is a membership without this replica: so another one says, and takes nothing more.
    Removed(ReplicaId),
    /// Nobody wants the answer any more. The operation may be done all the same.
    Forget(Ticket),
    /// Whether somebody wants to hear of everything that becomes final.
    Watch(bool),
    /// Messages of this replica may arrive from now on, and ours there; those before may be lost.
    Connected(ReplicaId),
    /// They do not any more.
    Disconnected(ReplicaId),
    /// Another replica says this.
    Heard(ReplicaId, Message<O>),
    /// These members were not heard for as long as the service allows; no others.
    Silent(BTreeSet<ReplicaId>),
    /// The same, as another replica tells.
    Voted(ReplicaId, Vote),
    /// All records up to this number are in the journal for good.
    Persisted(u64),
    /// It is time.
    Tick,
}

/// What a replica can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<O, V> {
    /// Answer a request.
    Answer {
        /// Which.
        ticket: Ticket,
        /// With what.
        value: V,
        /// Whether the answer will always be this: it agrees with the eventual order.
        is_final: bool,
        /// What the client has seen with it: whatever is to come behind it names this.
        token: Vector,
    },
    /// A request cannot be answered in time.
    Refuse(Ticket, Refusal),
    /// This is final now, and has this value for ever; said if somebody watches.
    Final(Arc<Entry<O>>, V),
    /// Say this to another replica.
    Say(ReplicaId, Message<O>),
    /// Tell another replica which members are silent.
    Vote(ReplicaId, Vote),
    /// All others say that this member is silent: a change begins without it.
    Removes(ReplicaId),
    /// This replica says what none of us can say: do not listen to it any more.
    Distrust(ReplicaId),
    /// This replica began with less than it had told this one: with an older copy of its journal.
    /// It does nothing more, because it may have given numbers twice.
    Outdated(ReplicaId),
    /// Write this into the journal; [`Input::Persisted`] follows with its number.
    Persist(u64, Record<O>),
    /// These are the members from now on.
    Members(Arc<Membership>),
}

/// One replica.
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
    /// The records that are not yet in the journal for good.
    unwritten: VecDeque<Unwritten>,
    /// The number of the last record.
    written: u64,
    /// What is in the journal for good.
    has: Vector,
    /// When others are to be told what has gathered; nothing has, if never.
    gossip_at: Option<Instant>,
    /// More is final than could be applied in one step.
    lags: bool,
    /// More can be placed than could be in one step.
    places: bool,
    /// Forgets operations that are done everywhere; whether all of them are forgotten.
    forgettable: (Vector, bool),
    /// The members are others, or will be: some who wait may wait in vain.
    changes: bool,
    /// Counts the work of a step.
    meter: Meter,
    /// Others have more of this replica's own operations than it has.
    is_outdated: bool,
    /// Somebody wants to hear of everything that becomes final.
    is_watched: bool,
}

/// A record that is not yet in the journal for good.
#[derive(Clone, Debug)]
struct Unwritten {
    number: u64,
    /// What is done when it is.
    done: Vector,
    /// How this replica stands then, if that is news.
    standing: Option<Standing>,
    /// Whether somebody waits for the others to be told of it.
    urgent: bool,
}

impl<D: DataType> Replica<D> {
    /// A replica among `members`, itself one of them, before all operations.
    pub fn new(data: D, me: ReplicaId, members: &[ReplicaId], config: Config) -> Replica<D> {
        let members = members.iter().map(|id| (*id, String::new())).collect();
        let nothing = Snapshot::empty(&data, Membership::first(members));
        Replica::recover(data, me, config, nothing, [])
    }

    /// A replica that begins again, with what its journal has: a snapshot, and the records behind
    /// it.
    pub fn recover(
        data: D,
        me: ReplicaId,
        config: Config,
        snapshot: Snapshot<D>,
        records: impl IntoIterator<Item = Record<D::Operator>>,
    ) -> Replica<D> {
        let members = Members::new(me, snapshot.standing);
        let mut replica = Replica {
            me,
            config,
            clock: snapshot.frontier.map_or(0, |label| label.counter),
            order: Order::new(data.clone(), snapshot.state, snapshot.frontier),
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
        let rest = Record { entries: snapshot.rest, standing: None };
        for record in std::iter::once(rest).chain(records) {
            // Of one turn, operations may stand in front of what lets their replicas in.
            if let Some(standing) = record.standing {
                replica.members = Members::new(me, standing);
                replica.origins.admit(replica.members.origins());
            }
            for entry in record.entries {
                replica.again(entry);
            }
        }
        replica.peers = Peers::new(replica.members.peers());
        replica.peers.seal(|id| replica.members.is_lost(id));
        replica.has = replica.origins.done().clone();
        // Who is alone hears nothing that would tell it that all this is final; nobody waits yet.
        replica.advance(&mut Vec::new());
        replica.forget();
        replica
    }

    /// Does again what its journal has.
    fn again(&mut self, entry: Arc<Entry<D::Operator>>) {
        self.clock = self.clock.max(entry.label.counter);
        self.origins.append(entry.clone(), self.size(&entry));
        // What follows the base of a snapshot may be in its state.
        if Some(entry.label) > self.order.frontier() {
            self.order.place(entry, &mut self.meter);
        }
    }

    /// What is to be kept of it, if its journal is written anew now: the journal is this, and the
    /// records that follow.
    pub fn snapshot(&self) -> Snapshot<D> {
        self.snapshot_of(self.origins.done(), self.members.standing().clone())
    }

    /// What a new member begins with, as soon as all who are not lost have reached the epoch of
    /// which it is a member: then there is no other that they could reach. Of what others have done
    /// there may be some that is not in this journal yet: it is in theirs.
    pub fn gift(&self, to: ReplicaId) -> Option<Snapshot<D>> {
        let (has, standing) = self.gift_of(to)?;
        Some(self.snapshot_of(&has, standing))
    }

    /// Its contents, and the state of its receiver.
    fn gift_of(&self, to: ReplicaId) -> Option<(Vector, Standing)> {
        let membership = self.members.membership();
        let are_members = [to, self.me].iter().all(|id| membership.members.contains_key(id));
        let need_not = |id| membership.came.contains(&id) || self.members.is_lost(id);
        let all = self.peers.are_in(membership.epoch, need_not);
        // One of which something is known has begun before.
        let has_begun = self.origins.done().get(to) > 0;
        let stands = self.members.is_said() && !self.members.is_removed();
        if !are_members || !all || has_begun || !stands {
            return None;
        }
        let has = self.origins.done().clone().up_to(self.me, self.has.get(self.me));
        let standing = Standing { membership: membership.clone(), change: None };
        Some((has, standing))
    }

    fn snapshot_of(&self, has: &Vector, standing: Standing) -> Snapshot<D> {
        let base = self.origins.forgotten();
        let everything = Amount { operations: usize::MAX, bytes: usize::MAX };
        Snapshot {
            state: self.order.stable().clone(),
            frontier: self.order.frontier(),
            rest: self.origins.between(&base, has, everything),
            base,
            standing,
        }
    }

    /// The change that does what an administrator wants.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn plan(&self, wish: &Wish) -> Result<Change, Objection> {
        self.members.plan(wish)
    }

    /// The members, as far as that is in the journal.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.members.said().membership
    }

    /// How it stands: the members, and what is to become of them.
    pub fn standing(&self) -> &Standing {
        self.members.standing()
    }

    /// Whether all members have said that they are in its epoch, and nothing is to become of that.
    pub fn is_settled(&self) -> bool {
        let standing = self.members.standing();
        let epoch = standing.membership.epoch;
        let is_quiet = standing.change.is_none() && self.members.is_said();
        is_quiet && self.peers.are_in(epoch, |_| false)
    }

    /// Who has not sealed the change that is under way, as far as is known here.
    pub fn unsealed(&self) -> Vec<ReplicaId> {
        self.members.unsealed()
    }

    /// Why the change that is under way and another one, which somebody else was asked for, cannot
    /// both be: nothing changes before an administrator has asked for both at once.
    pub fn clash(&self) -> Option<&Objection> {
        self.members.clash()
    }

    /// Whether there is a membership without it.
    pub fn is_removed(&self) -> bool {
        self.members.is_removed()
    }

    /// Whether it takes nothing from clients: it is no member, or is leaving.
    pub fn is_outside(&self) -> bool {
        self.members.is_outside()
    }

    /// The state after everything that is done here.
    pub fn current(&mut self) -> &D::State {
        self.order.refresh(&mut Meter::unlimited());
        self.order.current().expect("everything is applied")
    }

    /// Applies what is placed and not applied yet, as far as the allowance allows; whether that was
    /// all.
    pub fn refresh(&mut self) -> bool {
        self.order.refresh(&mut self.meter)
    }

    /// Whether everything that is placed is applied.
    pub fn is_applied(&self) -> bool {
        self.order.current().is_some()
    }

    /// Sets how much work may begin from now on, in units. What a step leaves undone the next one
    /// goes on with; [`Automaton::deadline`] says so.
    pub fn set_allowance(&mut self, units: u64) {
        self.meter = Meter::new(units);
    }

    /// Work since the allowance was set.
    pub fn spent(&self) -> u64 {
        self.meter.spent()
    }

    /// Whether some of the work that was asked for is not done yet.
    pub fn is_busy(&self) -> bool {
        let lags = self.lags && self.members.is_said();
        let forgets = !self.forgettable.1 && !self.origins.is_pinned();
        lags || self.places
            || self.waiting.has_ready()
            || self.waiting.has_sayable()
            || self.order.lags()
            || forgets
    }

    /// Whether a request waits for nothing but its turn: none should be added.
    pub fn is_behind(&self) -> bool {
        self.waiting.has_ready()
    }

    /// The state that is final.
    pub fn stable(&self) -> &D::State {
        self.order.stable()
    }

    /// Everything up to here is final.
    pub fn frontier(&self) -> Option<Label> {
        self.order.frontier()
    }

    /// What is done here.
    pub fn done(&self) -> &Vector {
        self.origins.done()
    }

    /// What is in the journal for good.
    pub fn has(&self) -> &Vector {
        &self.has
    }

    /// Whether all of what is done here is in the journal for good.
    pub fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// What another replica has for good, as far as is known here.
    pub fn knows_of(&self, peer: ReplicaId) -> Option<&Vector> {
        self.peers.get(peer).map(|peer| &peer.knows)
    }

    /// What is done here and not final, in order.
    pub fn suffix(&self) -> impl ExactSizeIterator<Item = &Arc<Entry<D::Operator>>> {
        self.order.suffix()
    }

    /// Whether others have more of this replica's own operations than it has: it began with an
    /// older copy of its journal.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// How many operations are kept, because somebody may still ask for them.
    pub fn kept(&self) -> usize {
        self.origins.kept().operations
    }

    /// How many bytes an operation takes, about.
    fn size(&self, entry: &Entry<D::Operator>) -> usize {
        size_of::<Entry<D::Operator>>() + self.data.size(&entry.operator) + entry.after.size()
    }
}

type Outputs<D> = Vec<Output<<D as DataType>::Operator, <D as DataType>::Value>>;

impl<D: DataType> Replica<D> {
    /// Gives an operation of our own its place.
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
            self.waiting.say_when(self.written + 1, (ticket, until), value, is_final, token);
        }
        self.persist(vec![entry], None, out);
    }

    /// Why no more is taken: somebody has not said that it has everything.
    fn full(&self) -> Refusal {
        let lags = self.peers.iter().filter(|(_, peer)| !peer.knows.covers(&self.has));
        let lags: Vec<ReplicaId> = lags.map(|(id, _)| id).collect();
        if lags.is_empty() { Refusal::Unwritten } else { Refusal::Full(lags) }
    }

    fn persist(
        &mut self,
        entries: Vec<Arc<Entry<D::Operator>>>,
        standing: Option<Standing>,
        out: &mut Outputs<D>,
    ) {
        let news = !entries.is_empty() || standing.is_some();
        assert!(news, "a record has something to keep");
        self.written += 1;
        let urgent = standing.is_some() || entries.iter().any(|entry| entry.strict);
        let (number, done) = (self.written, self.origins.done().clone());
        self.unwritten.push_back(Unwritten { number, done, standing: standing.clone(), urgent });
        out.push(Output::Persist(number, Record { entries, standing }));
    }

    /// Seals a change: nobody hears this replica say anything but that any more, once that is in
    /// the journal, and it hears nothing of who is lost.
    fn seal(&mut self, change: &Arc<Change>, out: &mut Outputs<D>) {
        if self.members.adopt(change) {
            self.changes = true;
            let members = &self.members;
            let lost = members.membership().members.keys().filter(|id| members.is_lost(**id));
            lost.for_each(|id| self.origins.drop_early(*id));
            self.peers.seal(|id| members.is_lost(id));
            self.persist(Vec::new(), Some(self.members.standing().clone()), out);
        }
    }

    /// There is a membership without this replica; so says one that hears nothing more from it.
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

    /// Goes on to the next epoch, if all that takes is here.
    fn become_member(&mut self, out: &mut Outputs<D>) {
        let Some(membership) = self.members.next(self.origins.done()) else { return };
        let epoch = self.members.membership().epoch.number;
        assert!(membership.epoch.number > epoch, "epochs follow each other");
        self.members.install(membership);
        self.changes = true;
        self.origins.admit(self.members.origins());
        self.peers.begin_epoch(&self.members.peers().collect());
        self.persist(Vec::new(), Some(self.members.standing().clone()), out);
    }

    /// Operations that everybody has are final, with all before it, as far as the meter allows. Of
    /// its own operations all are everywhere that are final here, so that its answers hold if it is
    /// lost.
    fn advance(&mut self, out: &mut Outputs<D>) {
        // Who crashes now may begin again in the epoch before.
        if !self.members.is_said() {
            return;
        }
        let everywhere = self.peers.all_know(&self.has);
        // What only this replica has of its own would not be final without it, and what is not in
        // its journal not with it.
        let own = self.origins.label(self.me, everywhere.get(self.me) + 1);
        let unwritten =
            self.origins.done().iter().filter(|(of, number)| self.has.get(*of) < *number);
        let unwritten =
            unwritten.filter_map(|(of, _)| self.origins.label(of, self.has.get(of) + 1));
        // A replica that leaves may be the only one, besides one that is lost, that has an
        // operation: after it nobody would know that this was final.
        let leaves = self.members.is_outside();
        let lacking = self.origins.done().iter().filter(|_| leaves);
        let lacking = lacking.filter_map(|(of, _)| self.origins.label(of, everywhere.get(of) + 1));
        let bound = unwritten.chain(own).chain(lacking).min();
        let (mut last, mut frontier) = (Vector::new(), None);
        for (of, number) in everywhere.iter() {
            if let Some((number, label)) = self.origins.last_before(bound, of, number) {
                last.raise(of, number);
                frontier = frontier.max(Some(label));
            }
        }
        let Some(frontier) = frontier else {
            self.lags = false;
            return;
        };
        // Own operations behind this one may not be in the journal yet.
        let token = self.origins.done().clone().up_to(self.me, self.has.get(self.me));
        let (me, waiting, watched) = (self.me, &mut self.waiting, self.is_watched);
        let wanted =
            |entry: &Entry<D::Operator>| watched || entry.strict && entry.label.origin == me;
        let data = &self.data;
        let all = self.order.advance(frontier, &mut self.meter, wanted, |entry, value| {
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
        // What is not yet final may name the frontier.
        if all {
            self.forgettable.0.join(&last);
            self.forgettable.1 = false;
        }
    }

    /// Forgets what may be forgotten, as far as the meter allows.
    fn forget(&mut self) {
        if !self.forgettable.1 {
            self.forgettable.1 = self.origins.forget(&self.forgettable.0, &mut self.meter);
        }
    }

    fn persisted(&mut self, now: Instant, record: u64, out: &mut Outputs<D>) {
        assert!(record <= self.written, "the journal has only what it was given");
        let mut urgent = false;
        while let Some(first) = self.unwritten.pop_front_if(|first| first.number <= record) {
            assert!(first.done.covers(&self.has), "what is in the journal stays there");
            self.has = first.done;
            urgent |= first.urgent;
            if let Some(membership) = first.standing.and_then(|it| self.members.persisted(it)) {
                out.push(Output::Members(membership));
            }
        }
        self.waiting.let_say(record);
        self.waiting.say(&mut self.meter, out);
        self.become_member(out);
        self.advance(out);
        if urgent {
            self.gossip_at = Some(now);
        }
        self.gossip_at.get_or_insert(now + self.config.gossip);
    }

    /// Does whatever it is time for.
    fn keep_time(&mut self, now: Instant, out: &mut Outputs<D>) {
        self.waiting.expire(now, (self.me, &self.has), &self.origins, &self.peers, out);
        let gossips = self.gossip_at.is_some_and(|at| at <= now);
        if gossips {
            self.gossip_at = None;
        }
        let (origins, limits) = (&self.origins, &self.config.limits);
        let (standing, leaves) = (self.members.said(), self.members.is_outside());
        let ours = Ours { origins, has: &self.has, standing, limits, leaves };
        for (id, peer) in self.peers.iter_mut() {
            if peer.again().is_some_and(|at| at <= now) {
                peer.lose_patience();
            }
            if peer.is_reached() && (gossips || peer.waits(&ours)) {
                peer.tell(id, &ours, &mut self.meter, out);
                if !self.meter.has_left() {
                    self.gossip_at = Some(now);
                }
            }
            // Who is no member any more answers, and wants nothing.
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
            Input::Connected(_) | Input::Heard(..) | Input::Change(_) if self.is_outdated => {}
            Input::Change(change) => self.seal(&Arc::new(change), out),
            Input::Removed(by) => self.removed(by),
            Input::Request { ticket, after, strict, operator, until } => {
                let bytes = self.data.size(&operator) + after.size();
                let request = Blocked { ticket, after, strict, operator, bytes, until };
                if let Some(refusal) = why_never(&request, &self.members) {
                    out.push(Output::Refuse(ticket, refusal));
                } else if self.waiting.blocked().is_below(self.config.limits.blocked) {
                    self.waiting.block(request, self.origins.done());
                } else {
                    out.push(Output::Refuse(ticket, Refusal::Busy));
                }
            }
            Input::Forget(ticket) => self.waiting.forget(ticket),
            Input::Watch(watched) => self.is_watched = watched,
            Input::Connected(peer) => self.peers.get_mut(peer).into_iter().for_each(Peer::connect),
            Input::Disconnected(peer) => {
                self.peers.get_mut(peer).into_iter().for_each(Peer::disconnect);
            }
            Input::Heard(from, message) => self.hear(from, message, out),
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
        self.waiting.say(&mut self.meter, out);
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
