//! Members declared lost that have continued by the change in progress.

use super::*;
use std::collections::BTreeSet;

const D: ReplicaId = ReplicaId(3);
const E: ReplicaId = ReplicaId(4);
const ALL: [ReplicaId; 5] = [A, B, C, D, E];

/// Delivery of a message, by sender and receiver.
type Arrives = fn(ReplicaId, ReplicaId, &Message<Operator>) -> bool;

/// Replicas with immediate delivery and instantaneous journals.
struct Net {
    replicas: BTreeMap<ReplicaId, Counting>,
    now: Instant,
    arrives: Arrives,
    answers: Vec<(ReplicaId, u64)>,
}

impl Net {
    fn new() -> Net {
        let replicas = ALL.iter().map(|id| (*id, replica(*id, &ALL))).collect();
        let (arrives, answers): (Arrives, _) = (|_, _, _| true, Vec::new());
        let mut net = Net { replicas, now: NOW, arrives, answers };
        for at in ALL {
            for to in ALL.iter().filter(|to| **to != at) {
                net.step(at, Input::Connected(*to));
            }
        }
        net
    }

    /// Performs one input and everything that follows from it.
    fn step(&mut self, at: ReplicaId, input: Input<Operator>) {
        let Some(replica) = self.replicas.get_mut(&at) else { return };
        let mut out = Vec::new();
        replica.step(self.now, input, &mut out);
        replica.check();
        for output in out {
            match output {
                Output::Persist(number, _) => self.step(at, Input::Persisted(number)),
                Output::Send(to, message) if (self.arrives)(at, to, &message) => {
                    self.step(to, Input::Received(at, message));
                }
                Output::Members(membership) => {
                    for id in membership.members.keys().filter(|id| **id != at) {
                        self.step(at, Input::Connected(*id));
                    }
                }
                Output::Answer { ticket, .. } => self.answers.push((at, ticket.0)),
                Output::Send(..)
                | Output::Vote(..)
                | Output::Removes(_)
                | Output::Refuse(..)
                | Output::Final(..) => {}
                Output::Distrust(_) | Output::Outdated(_) => panic!("{output:?}"),
            }
        }
    }

    /// Advances the time, for retransmissions.
    fn pass(&mut self) {
        for _ in 0..20 {
            self.now = self.now + Duration::from_secs(1);
            ALL.iter().for_each(|id| self.step(*id, Input::Tick));
        }
    }

    fn plan(&self, at: ReplicaId, change_request: &ChangeRequest) -> Result<Change, Objection> {
        self.replicas[&at].plan(change_request)
    }

    /// Submits a strict operation to a replica; returns whether it is answered.
    fn answers_strict(&mut self, at: ReplicaId, ticket: u64) -> bool {
        let until = self.now + Duration::from_secs(60);
        let (ticket, after) = (Ticket(ticket), Vector::new());
        let operator = Operator::Add(1);
        self.step(at, Input::Request { ticket, after, strict: true, operator, until });
        self.pass();
        self.answers.contains(&(at, ticket.0))
    }
}

fn ids(ids: &[ReplicaId]) -> BTreeSet<ReplicaId> {
    ids.iter().copied().collect()
}

fn remove(these: &[ReplicaId]) -> ChangeRequest {
    ChangeRequest { remove: ids(these), ..ChangeRequest::default() }
}

fn lost(these: &[ReplicaId]) -> ChangeRequest {
    ChangeRequest { lost: ids(these), ..ChangeRequest::default() }
}

/// C and D leave, to which all agree; A and B are in the next membership with E, which has not
/// learned that all have agreed. Then A and B are partitioned from the rest.
fn divided() -> Net {
    let mut net = Net::new();
    net.arrives = |from, to, message| {
        let is_ahead = message.epoch.number > 1 && [A, B].contains(&from);
        !(is_ahead && [C, D, E].contains(&to) || (from, to) == (B, E))
    };
    let change = net.plan(A, &remove(&[C, D])).expect("it can be");
    net.step(A, Input::Change(change.clone()));
    net.pass();
    for id in ALL {
        let member_state = net.replicas[&id].member_state();
        let (number, sealed) =
            (member_state.membership.epoch.number, member_state.change.as_deref());
        let expected = if [A, B].contains(&id) { (2, None) } else { (1, Some(&change)) };
        assert_eq!((number, sealed), expected, "{id:?}");
    }
    net.arrives = |from, to, _| [A, B].contains(&from) == [A, B].contains(&to);
    net
}

#[test]
fn members_that_may_have_continued_are_removed_only_by_force() {
    let mut net = divided();
    assert_eq!(net.plan(E, &lost(&[A, B])), Err(Objection::Split));
    // Not one after the other either.
    let one = net.plan(E, &lost(&[A])).expect("one is not more than those that stay");
    net.step(E, Input::Change(one));
    assert_eq!(net.plan(E, &lost(&[B])), Err(Objection::Split));
    net.pass();
    assert!(!net.answers_strict(E, 1), "B has gone on");
}

/// Two administrators each declare one member lost.
#[test]
fn nor_by_two_changes_that_are_joined() {
    let mut net = divided();
    let one = net.plan(E, &lost(&[A])).expect("one is not more than those that stay");
    let other = net.plan(D, &lost(&[B])).expect("nor is the other");
    net.step(E, Input::Change(one.clone()));
    net.step(D, Input::Change(other));
    assert_eq!(net.replicas[&D].clash(), Some(&Objection::Split));
    assert_eq!(net.replicas[&D].member_state().change.as_deref(), Some(&one));
    net.pass();
    assert!(!net.answers_strict(E, 1), "B has gone on");
}

/// Force promises that the lost do not continue; if that is wrong, both partitions answer.
#[test]
fn force_divides_a_service() {
    let mut net = divided();
    let change_request = ChangeRequest { forced: true, ..lost(&[A, B]) };
    let change = net.plan(E, &change_request).expect("forced");
    net.step(E, Input::Change(change));
    let change = net.plan(A, &lost(&[E])).expect("one of three");
    net.step(A, Input::Change(change));
    net.pass();
    assert!(net.answers_strict(E, 1) && net.answers_strict(A, 2));
}

/// Returns a replica in a later membership of these.
fn member(me: ReplicaId, members: &BTreeMap<ReplicaId, String>) -> Counting {
    let epoch = Epoch { number: 2, by: 1 };
    let first = Membership::first(members.clone());
    let snapshot = Snapshot::empty(&Counter, Membership { epoch, ..first });
    let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
    Replica::recover(Counter, me, config, snapshot, [])
}

fn subsets(of: &[ReplicaId]) -> Vec<BTreeSet<ReplicaId>> {
    let choose = |mask: u32| {
        let chosen = of.iter().enumerate().filter(|(at, _)| mask & 1 << at != 0);
        chosen.map(|(_, id)| *id).collect()
    };
    (0..1 << of.len()).map(choose).collect()
}

/// Reports whether the lost and the new members can complete, on their own, a change of a
/// membership that was reached by the first change.
fn can_go_on(first: &Change, second: &Change, old: &[ReplicaId]) -> bool {
    let is_new = |id: &ReplicaId| !old.contains(id);
    let goes_on = |id: &&ReplicaId| second.lost.contains(id) || is_new(id);
    let rivals: Vec<ReplicaId> = first.members.keys().filter(goes_on).copied().collect();
    let Some(begun) = rivals.iter().find(|id| !is_new(id)) else { return false };
    let others = first.members.keys().filter(|id| !rivals.contains(id)).copied();
    member(*begun, &first.members).plan(&lost(&others.collect::<Vec<_>>())).is_ok()
}

/// Returns the parts of a change with these leaving members and any of its new ones: some members
/// may have completed each of them.
fn parts(sealed: &Change, old: &[ReplicaId], leave: &BTreeSet<ReplicaId>) -> Vec<Change> {
    let new = || sealed.members.iter().filter(|(id, _)| !old.contains(id));
    let leave: Vec<ReplicaId> = leave.iter().copied().collect();
    let part = |leave: &BTreeSet<ReplicaId>, come| {
        let stay = old.iter().filter(|id| !leave.contains(id)).map(|id| (*id, String::new()));
        let come = new().take(come).map(|(id, place)| (*id, place.clone()));
        Change { members: stay.chain(come).collect(), ..sealed.clone() }
    };
    let leaves = subsets(&leave).into_iter();
    leaves.flat_map(|leave| (0..=new().count()).map(move |come| part(&leave, come))).collect()
}

/// Returns the sealed outcomes when one or two administrators declare members lost at a replica
/// that has sealed a change, and the number of refusals.
fn given_up(sealed: &Counting, old: &[ReplicaId]) -> (Vec<Change>, usize) {
    let change_requests = subsets(&old[1..]).into_iter().filter(|it| !it.is_empty());
    let change_requests =
        change_requests.map(|lost| ChangeRequest { lost, ..ChangeRequest::default() });
    let (mut allowed, mut refused) = (Vec::new(), 0);
    for change_request in change_requests {
        match sealed.plan(&change_request) {
            Ok(change) => allowed.push(change),
            Err(Objection::Split) => refused += 1,
            Err(Objection::Most | Objection::Nobody) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    let mut all = BTreeMap::new();
    for (one, other) in allowed.iter().flat_map(|one| allowed.iter().map(move |it| (one, it))) {
        let mut replica = sealed.clone();
        step(&mut replica, Input::Change(one.clone()));
        step(&mut replica, Input::Change(other.clone()));
        refused += usize::from(replica.clash() == Some(&Objection::Split));
        let change = replica.member_state().change.clone().expect("it is sealed");
        all.insert(change.lost.clone(), Change::clone(&change));
    }
    (all.into_values().collect(), refused)
}

/// Of up to five members some leave and others join; then some are lost. Every change permitted
/// without force leaves the lost no way to continue, whichever part of the first change they have
/// completed.
#[test]
fn no_two_changes_without_force_divide_a_service() {
    let (mut allowed, mut refused) = (0, 0);
    for count in 1..=ALL.len() {
        let old = &ALL[..count];
        for (leave, come) in subsets(old).iter().flat_map(|it| (0..=2).map(move |n| (it, n))) {
            let add = (10..10 + come).map(|id| (ReplicaId(id), String::new())).collect();
            let change_request =
                ChangeRequest { add, remove: leave.clone(), ..ChangeRequest::default() };
            let mut a = replica(A, old);
            let Ok(sealed) = a.plan(&change_request) else { continue };
            step(&mut a, Input::Change(sealed.clone()));
            let (changes, objections) = given_up(&a, old);
            (allowed, refused) = (allowed + changes.len(), refused + objections);
            let parts = parts(&sealed, old, leave);
            for change in changes {
                let divides = parts.iter().find(|part| can_go_on(part, &change, old));
                assert_eq!(divides, None, "{change:?}");
            }
        }
    }
    assert!(allowed > 100 && refused > 100, "{allowed} allowed, {refused} refused");
}

#[test]
fn one_that_does_not_agree_is_given_up_without_force() {
    let three = &ALL[..3];
    let new = ChangeRequest { add: [(D, String::new())].into(), ..ChangeRequest::default() };
    for (members, first, second) in [
        // A leaving member is lost.
        (three, remove(&[C]), lost(&[C])),
        (&ALL[..], remove(&[D, E]), lost(&[E])),
        (&ALL[..], remove(&[C, D, E]), lost(&[E])),
        // A new member joins, and a member is lost.
        (three, new, lost(&[C])),
    ] {
        let mut a = replica(A, members);
        let change = a.plan(&first).expect("it can be");
        step(&mut a, Input::Change(change));
        let change = a.plan(&second).expect("it can be, without force");
        assert_eq!(change.lost, second.lost);
    }
}
