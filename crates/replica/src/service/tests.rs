mod at_once;
mod liveness;
mod silence;
mod split;

use super::*;
use crate::data::Value;
use crate::data::counter::{Counter, Operator};
use std::collections::BTreeMap;
use std::time::Duration;

type Counting = Replica<Counter>;
type Out = Output<Operator, Value>;

const A: ReplicaId = ReplicaId(0);
const B: ReplicaId = ReplicaId(1);
const NOW: Instant = Instant(0);

fn replica(me: ReplicaId, members: &[ReplicaId]) -> Counting {
    let config = Config { gossip: Duration::from_millis(10), limits: Limits::default() };
    Replica::new(Counter, me, members, config)
}

fn step(replica: &mut Counting, input: Input<Operator>) -> Vec<Out> {
    let mut out = Vec::new();
    replica.step(NOW, input, &mut out);
    replica.check();
    out
}

fn add(ticket: u64, n: i64, strict: bool, after: &Vector) -> Input<Operator> {
    let (ticket, after, operator) = (Ticket(ticket), after.clone(), Operator::Add(n));
    Input::Request { ticket, after, strict, operator, until: NOW + Duration::from_secs(1) }
}

/// Returns a message of the first epoch without operations.
fn message(has: Vector, asks: bool) -> Message<Operator> {
    let epoch = Membership::first(BTreeMap::new()).epoch;
    Message { entries: Vec::new(), has, asks, epoch, change: None, reached: None }
}

/// Returns the sent messages, in order.
fn sent_messages(out: Vec<Out>) -> Vec<Message<Operator>> {
    let messages = out.into_iter().filter_map(|output| {
        let Output::Send(_, message) = output else { return None };
        Some(message)
    });
    messages.collect()
}

/// Returns the answered tickets with their values, and whether they are final.
fn answered(out: &[Out]) -> Vec<(u64, Value, bool)> {
    let answers = out.iter().filter_map(|output| match output {
        Output::Answer { ticket, value, is_final, .. } => {
            Some((ticket.0, value.clone(), *is_final))
        }
        Output::Send(..)
        | Output::Refuse(..)
        | Output::Distrust(_)
        | Output::Outdated(_)
        | Output::Final(..)
        | Output::Persist(..)
        | Output::Vote(..)
        | Output::Removes(_)
        | Output::Members(_) => None,
    });
    answers.collect()
}

#[test]
fn an_answer_waits_for_the_journal() {
    let mut alone = replica(A, &[A]);
    let out = step(&mut alone, add(1, 5, false, &Vector::new()));
    assert!(
        matches!(&out[..], [Output::Persist(1, record)] if record.entries.len() == 1),
        "{out:?}"
    );
    let out = step(&mut alone, Input::Persisted(1));
    assert_eq!(answered(&out), [(1, Value::Integer(5), false)]);
    assert_eq!((*alone.stable(), alone.kept()), (5, 0));
}

/// A read needs no place in the order, but the state that it shows must be in the journal.
#[test]
fn queries_get_no_label() {
    let mut alone = replica(A, &[A]);
    let read = |ticket| {
        let (ticket, after, until) = (Ticket(ticket), Vector::new(), NOW + Duration::from_secs(1));
        Input::Request { ticket, after, strict: false, operator: Operator::Read, until }
    };
    assert_eq!(answered(&step(&mut alone, read(1))), [(1, Value::Integer(0), false)]);
    step(&mut alone, add(2, 5, false, &Vector::new()));
    assert_eq!(step(&mut alone, read(3)), [], "what it would show may be lost");
    let out = step(&mut alone, Input::Persisted(1));
    assert_eq!(answered(&out), [(2, Value::Integer(5), false), (3, Value::Integer(5), false)]);
    assert_eq!(alone.done().get(A), 1);
}

/// Nothing is final while a peer is away, and a later read does not apply the whole backlog.
#[test]
fn unqueried_operations_are_applied_in_batches() {
    let mut a = replica(A, &[A, B]);
    let count = 3 * order::LAG_MAX as u64;
    for number in 1..=count {
        let (ticket, after, operator) = (Ticket(number), Vector::new(), Operator::AddBlind(1));
        let until = NOW + Duration::from_secs(1);
        a.step(
            NOW,
            Input::Request { ticket, after, strict: false, operator, until },
            &mut Vec::new(),
        );
        assert!(a.order.lag < order::LAG_MAX);
    }
    let out = step(&mut a, Input::Persisted(count));
    assert_eq!(answered(&out).len() as u64, count);
    assert_eq!((*a.stable(), *a.current()), (0, i128::from(count)));
}

/// Two hops: the operation, and the vector that acknowledges it.
#[test]
fn a_strict_answer_takes_two_hops() {
    let (mut a, mut b) = (replica(A, &[A, B]), replica(B, &[A, B]));
    let hello = sent_messages(step(&mut a, Input::Connected(B)));
    sent_messages(step(&mut b, Input::Connected(A)));
    assert!(matches!(&hello[..], [Message { asks: true, .. }]), "{hello:?}");
    assert_eq!(answered(&step(&mut a, add(1, 5, true, &Vector::new()))), []);
    let to_b = sent_messages(step(&mut a, Input::Persisted(1)));
    assert_eq!((to_b.len(), to_b[0].entries.len()), (1, 1));
    let out = step(&mut b, Input::Received(A, to_b[0].clone()));
    assert!(out.iter().any(|output| matches!(output, Output::Persist(1, _))), "{out:?}");
    let to_a = sent_messages(step(&mut b, Input::Persisted(1)));
    let out = step(&mut a, Input::Received(B, to_a[0].clone()));
    assert_eq!(answered(&out), [(1, Value::Integer(5), true)]);
    // Here nothing is retained; there it is not yet known that the acknowledgement arrived.
    assert_eq!((*a.stable(), a.kept(), *b.stable(), b.kept()), (5, 0, 5, 0));
}

#[test]
fn missing_predecessors_are_waited_for_and_named() {
    let mut a = replica(A, &[A, B]);
    let after: Vector = [(B, 3)].into_iter().collect();
    assert_eq!(step(&mut a, add(1, 5, false, &after)), []);
    let mut out = Vec::new();
    a.step(NOW + Duration::from_secs(1), Input::Tick, &mut out);
    assert_eq!(out, [Output::Refuse(Ticket(1), Refusal::Behind(vec![B]))]);
}

#[test]
fn impossible_acknowledgements_are_ignored() {
    let nothing = message(Vector::new(), false);
    let entry = |number, counter, origin, after: Vector| Entry {
        number,
        label: Label { counter, origin },
        after,
        strict: false,
        operator: Operator::Add(1),
    };
    let stranger = ReplicaId(7);
    let of_stranger: Vector = [(stranger, 1)].into_iter().collect();
    let entries = [
        entry(1, u64::MAX, B, Vector::new()),
        entry(u64::MAX, 1, B, Vector::new()),
        entry(0, 1, B, Vector::new()),
        entry(1, 1, A, Vector::new()),
        entry(1, 1, stranger, Vector::new()),
        entry(1, 1, B, of_stranger.clone()),
        // Its predecessors include itself.
        entry(1, 1, B, [(B, 1)].into_iter().collect()),
    ];
    let with = |entry| Message { entries: vec![Arc::new(entry)], ..nothing.clone() };
    let vectors =
        [of_stranger, [(A, u64::MAX)].into_iter().collect(), [(B, u64::MAX)].into_iter().collect()];
    let vectors = vectors.map(|has| Message { has, ..nothing.clone() });
    for message in entries.map(with).into_iter().chain(vectors) {
        let mut a = replica(A, &[A, B]);
        let out = step(&mut a, Input::Received(B, message.clone()));
        assert_eq!(out, [Output::Distrust(B)], "{message:?}");
        assert_eq!(*a.done(), Vector::new());
    }
    assert_eq!(
        step(&mut replica(A, &[A, B]), Input::Received(stranger, nothing)),
        [Output::Distrust(stranger)]
    );
}

/// B forwards the operation and stays trusted.
#[test]
fn operations_far_ahead_are_not_accepted() {
    let mut a = replica(A, &[A, B, C]);
    let far = |origin| {
        let label = Label { counter: 1 << 40, origin };
        Arc::new(Entry { label, ..Entry::clone(&nth(origin, 1)) })
    };
    let has = [(B, 1), (C, 1)].into_iter().collect();
    let entries = vec![nth(B, 1), far(C)];
    let out = step(&mut a, Input::Received(B, Message { entries, ..message(has, false) }));
    assert!(matches!(&out[..], [Output::Persist(1, _)]), "{out:?}");
    assert_eq!((a.done().get(B), a.done().get(C)), (1, 0));
}

#[test]
fn watchers_receive_final_operations() {
    let mut alone = replica(A, &[A]);
    let done = |alone: &mut Counting, number| {
        step(alone, add(number, 5, false, &Vector::new()));
        step(alone, Input::Persisted(number))
    };
    let finals = |out: &[Out]| {
        out.iter().filter(|output| matches!(output, Output::Final(..))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(finals(&done(&mut alone, 1)), []);
    step(&mut alone, Input::Watch(true));
    let out = finals(&done(&mut alone, 2));
    assert!(matches!(&out[..], [Output::Final(entry, Value::Integer(10))] if entry.number == 2));
    step(&mut alone, Input::Watch(false));
    assert_eq!(finals(&done(&mut alone, 3)), []);
}

/// A replica restored from an older state cannot know which numbers it has used.
#[test]
fn an_older_copy_of_a_replica_does_nothing_more() {
    let mut a = replica(A, &[A, B]);
    let has = [(A, 1)].into_iter().collect();
    let message = message(has, true);
    assert_eq!(step(&mut a, Input::Received(B, message.clone())), [Output::Outdated(B)]);
    assert!(a.is_outdated());
    let out = step(&mut a, add(1, 5, false, &Vector::new()));
    assert_eq!(out, [Output::Refuse(Ticket(1), Refusal::Outdated)]);
    for input in [Input::Connected(B), Input::Received(B, message), Input::Tick] {
        assert_eq!(step(&mut a, input), []);
    }
}

/// A replica declared lost cannot stop another one.
#[test]
fn a_removed_member_sends_no_outdated_notice() {
    let mut a = replica(A, &[A, B, C]);
    let change = a.plan(&lose(B)).expect("it can");
    step(&mut a, Input::Change(change));
    let has: Vector = [(A, 1)].into_iter().collect();
    assert_eq!(step(&mut a, Input::Received(B, message(has.clone(), true))), []);
    assert_eq!(step(&mut a, Input::Received(C, message(has, true))), [Output::Outdated(C)]);
}

/// The journal of a replica that was alone for long exceeds every limit.
#[test]
fn a_long_journal_is_read_whole() {
    let count = 3 * Limits::default().early.operations as u64;
    let entry = |number| {
        let label = Label { counter: number, origin: A };
        let (after, operator) = (Vector::new(), Operator::Add(1));
        let entry = Entry { number, label, after, strict: false, operator };
        Record { entries: vec![Arc::new(entry)], member_state: None }
    };
    let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
    let nothing = replica(A, &[A, B]).snapshot();
    let mut a = Replica::recover(Counter, A, config, nothing, (1..=count).map(entry));
    assert_eq!((a.has().get(A), *a.current()), (count, i128::from(count)));
    let again = a.snapshot();
    let a = Replica::recover(Counter, A, config, again, []);
    assert_eq!((a.has().get(A), a.kept() as u64), (count, count));
}

/// Every count has a byte limit beside it, and one operation always fits.
#[test]
fn large_operations_count_by_size() {
    let one = size_of::<Entry<Operator>>();
    let few = Amount { operations: usize::MAX, bytes: 2 * one };
    let limits =
        Limits { message: Amount { bytes: 1, ..few }, window: few, kept: few, ..Limits::default() };
    let config = Config { gossip: Duration::ZERO, limits };
    let mut a = Replica::new(Counter, A, &[A, B], config);
    step(&mut a, Input::Connected(B));
    for ticket in 1..=2 {
        step(&mut a, add(ticket, 1, false, &Vector::new()));
    }
    let out = step(&mut a, add(3, 1, false, &Vector::new()));
    assert_eq!(out, [Output::Refuse(Ticket(3), Refusal::Unwritten)], "two are kept");
    let reported = sent_messages(step(&mut a, Input::Persisted(2)));
    let each: Vec<usize> = reported.iter().map(|message| message.entries.len()).collect();
    assert_eq!(each, [1, 1], "one in each message, and two on their way");
    let has = [(A, 1)].into_iter().collect();
    step(&mut a, Input::Received(B, message(has, false)));
    assert_eq!(a.kept(), 1);
    let out = step(&mut a, add(3, 1, false, &Vector::new()));
    assert!(matches!(&out[..], [Output::Persist(3, _)]), "{out:?}");

    let limits = Limits { blocked: few, ..Limits::default() };
    let mut a = Replica::new(Counter, A, &[A, B], Config { gossip: Duration::ZERO, limits });
    let after: Vector = [(B, 1)].into_iter().collect();
    let each = (1..=40).map(|ticket| step(&mut a, add(ticket, 1, false, &after)));
    let refused = each.filter(|out| matches!(&out[..], [Output::Refuse(_, Refusal::Busy)]));
    let each = size_of::<Blocked<Operator>>() + after.size();
    assert_eq!(refused.count(), 40 - few.bytes.div_ceil(each));
}

/// Answers waiting for the journal are limited as well.
#[test]
fn answers_that_wait_for_the_journal_have_an_end() {
    let pending_answers = Amount { operations: 2, bytes: 1 << 20 };
    let limits = Limits { pending_answers, ..Limits::default() };
    let mut a = Replica::new(Counter, A, &[A], Config { gossip: Duration::ZERO, limits });
    for ticket in 1..=2 {
        step(&mut a, add(ticket, 1, false, &Vector::new()));
    }
    let out = step(&mut a, add(3, 1, false, &Vector::new()));
    assert_eq!(out, [Output::Refuse(Ticket(3), Refusal::Busy)]);
    step(&mut a, Input::Forget(Ticket(2)));
    let out = step(&mut a, add(4, 1, false, &Vector::new()));
    assert!(matches!(&out[..], [Output::Persist(3, _)]), "{out:?}");
    assert_eq!(answered(&step(&mut a, Input::Persisted(3))).len(), 2);
    let out = step(&mut a, add(5, 1, false, &Vector::new()));
    assert!(matches!(&out[..], [Output::Persist(4, _)]), "{out:?}");
}

const C: ReplicaId = ReplicaId(2);

fn add_c() -> ChangeRequest {
    ChangeRequest { add: [(C, "there".to_string())].into(), ..ChangeRequest::default() }
}

fn lose(id: ReplicaId) -> ChangeRequest {
    ChangeRequest { lost: [id].into(), ..ChangeRequest::default() }
}

fn add_many(count: usize) -> ChangeRequest {
    let ids = (2..).take(count).map(|id| (ReplicaId(id), String::new()));
    ChangeRequest { add: ids.collect(), ..ChangeRequest::default() }
}

#[test]
fn a_service_has_not_had_more_members_than_a_token_has_numbers() {
    let first = Membership::first([(A, String::new()), (B, String::new())].into());
    let retired = (2..).map(ReplicaId).take(ORIGINS_MAX - 2).map(|id| (id, 1)).collect();
    let old = Membership { retired, ..first };
    let nothing = Snapshot { base: Vector::new(), ..Snapshot::empty(&Counter, old) };
    let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
    let full = Replica::recover(Counter, A, config, nothing, []);
    let next = ReplicaId(u16::try_from(ORIGINS_MAX).expect("small"));
    let add = ChangeRequest { add: [(next, String::new())].into(), ..ChangeRequest::default() };
    assert_eq!(full.plan(&add), Err(Objection::Many));
    // A former member need not leave again.
    let again = ChangeRequest { remove: [ReplicaId(2)].into(), ..ChangeRequest::default() };
    assert_eq!(full.plan(&again), Err(Objection::Nothing));
    // A member may leave.
    assert!(full.plan(&ChangeRequest { remove: [B].into(), ..ChangeRequest::default() }).is_ok());
}

#[test]
fn operations_above_the_limit_are_refused_at_once() {
    let plain = replica(A, &[A, B]).snapshot();
    assert!(plain.is_sound());
    let membership = Membership::clone(&plain.member_state.membership);
    let far = Membership { epoch: Epoch { number: u64::MAX, by: 0 }, ..membership.clone() };
    let gone = Membership { retired: [(C, u64::MAX)].into(), ..membership };
    let of = |it| MembershipState { membership: Arc::new(it), change: None };
    let base: Vector = [(B, u64::MAX)].into_iter().collect();
    for wrong in [
        Snapshot { base, ..plain.clone() },
        Snapshot { member_state: of(far), ..plain.clone() },
        Snapshot { member_state: of(gone), ..plain.clone() },
    ] {
        assert!(!wrong.is_sound(), "{wrong:?}");
    }
}

/// Requests at two replicas may be impossible together.
#[test]
fn conflicting_changes_are_refused_with_a_reason() {
    let d = ReplicaId(3);
    let all = [A, B, C, d];
    let (mut a, b) = (replica(A, &all), replica(B, &all));
    let one = a.plan(&lose(C)).expect("it can");
    let other = b.plan(&lose(d)).expect("it can");
    step(&mut a, Input::Change(one));
    assert_eq!(a.clash(), None);
    let reported = Message { change: Some(Arc::new(other)), ..message(Vector::new(), false) };
    step(&mut a, Input::Received(B, reported.clone()));
    assert_eq!(a.clash(), Some(&Objection::Most));
    // An administrator who is sure requests both.
    assert_eq!(a.plan(&lose(d)), Err(Objection::Most));
    let both = a.plan(&ChangeRequest { forced: true, ..lose(d) }).expect("it can");
    step(&mut a, Input::Change(both.clone()));
    assert_eq!((a.clash(), a.member_state().change.as_deref()), (None, Some(&both)));
    step(&mut a, Input::Received(B, reported));
    assert_eq!(a.clash(), None);
}

#[test]
fn invalid_changes_are_refused_with_a_reason() {
    let two = replica(A, &[A, B]);
    let ids = |ids: &[ReplicaId]| ids.iter().copied().collect();
    let remove =
        |these: &[ReplicaId]| ChangeRequest { remove: ids(these), ..ChangeRequest::default() };
    let add_b = ChangeRequest { add: [(B, String::new())].into(), ..ChangeRequest::default() };
    for (change_request, why) in [
        (ChangeRequest::default(), Objection::Nothing),
        (remove(&[C]), Objection::Unknown(ids(&[C]))),
        (lose(C), Objection::Unknown(ids(&[C]))),
        (add_b, Objection::Known(ids(&[B]))),
        (lose(A), Objection::Outside),
        (lose(B), Objection::Most),
        (remove(&[A, B]), Objection::Nobody),
        (add_many(MEMBERS_MAX - 1), Objection::Many),
    ] {
        assert_eq!(two.plan(&change_request), Err(why), "{change_request:?}");
    }
    assert!(two.plan(&add_many(MEMBERS_MAX - 2)).is_ok());
    assert!(two.plan(&ChangeRequest { forced: true, ..lose(B) }).is_ok());
    assert!(two.plan(&remove(&[B])).is_ok());
    assert!(two.plan(&add_c()).is_ok());
}

/// A single replica needs only its journal; a new member needs its contents.
#[test]
fn a_single_member_accepts_a_second() {
    let mut a = replica(A, &[A]);
    step(&mut a, add(1, 5, false, &Vector::new()));
    let change = a.plan(&add_c()).expect("it can");
    let to = change.to();
    step(&mut a, Input::Change(change));
    assert!(a.join_snapshot(C).is_none(), "it is not a member yet");
    step(&mut a, Input::Persisted(2));
    assert_eq!(a.membership().epoch.number, 1, "the next one is not in the journal");
    let out = step(&mut a, Input::Persisted(3));
    assert!(out.iter().any(|output| matches!(output, Output::Members(it) if it.epoch == to)));
    let join_snapshot = a.join_snapshot(C).expect("it is a member");
    let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
    let mut c = Replica::recover(Counter, C, config, join_snapshot, []);
    assert_eq!((*c.current(), c.membership()), (5, a.membership()));
    // New operations are placed after those of the join snapshot.
    step(&mut c, add(1, 1, false, &Vector::new()));
    assert!(c.suffix().map(|entry| entry.label).is_sorted());
}

/// Two administrators request different changes at different replicas.
#[test]
fn changes_are_joined() {
    let (mut a, mut b) = (replica(A, &[A, B]), replica(B, &[A, B]));
    let remove_b = ChangeRequest { remove: [B].into(), ..ChangeRequest::default() };
    let (one, other) = (a.plan(&add_c()).expect("it can"), b.plan(&remove_b).expect("it can"));
    step(&mut a, Input::Change(one.clone()));
    step(&mut b, Input::Change(other.clone()));
    let has = Vector::new();
    let reported = |change: &Change| Message {
        change: Some(Arc::new(change.clone())),
        ..message(has.clone(), false)
    };
    step(&mut a, Input::Received(B, reported(&other)));
    step(&mut b, Input::Received(A, reported(&one)));
    assert_eq!(a.member_state().change, b.member_state().change);
    let members = &a.member_state().change.as_ref().expect("sealed").members;
    assert_eq!(members.keys().copied().collect::<Vec<_>>(), [A, C]);
    // A leaving member accepts no client requests.
    let out = step(&mut b, add(1, 1, false, &Vector::new()));
    assert_eq!(out, [Output::Refuse(Ticket(1), Refusal::Outside)]);
}

/// An unplaced operation of a lost member may never reach anybody else.
#[test]
fn early_operations_of_removed_members_are_dropped() {
    let mut a = replica(A, &[A, B, C]);
    let entry = |origin, after| {
        let label = Label { counter: 1, origin };
        Arc::new(Entry { number: 1, label, after, strict: false, operator: Operator::Add(1) })
    };
    let of = |id| -> Vector { [(id, 1)].into_iter().collect() };
    let from_b = Message { entries: vec![entry(B, of(C))], ..message(of(B), false) };
    let from_c = Message { entries: vec![entry(C, Vector::new())], ..message(of(C), false) };
    step(&mut a, Input::Received(B, from_b.clone()));
    let change = a.plan(&lose(B)).expect("it can");
    step(&mut a, Input::Change(change));
    step(&mut a, Input::Received(C, from_c));
    step(&mut a, Input::Received(B, from_b));
    assert_eq!((a.done().get(B), a.done().get(C)), (0, 1));
}

/// Messages of the previous epoch do not count in this one, and messages of this one do not before
/// this replica has the epoch in its journal.
#[test]
fn finality_requires_all_members_of_the_epoch() {
    let mut a = replica(A, &[A, B]);
    let change = Arc::new(a.plan(&add_c()).expect("it can"));
    let next = change.to();
    step(&mut a, Input::Change((*change).clone()));
    step(&mut a, Input::Persisted(1));
    step(&mut a, add(1, 5, true, &Vector::new()));
    step(&mut a, Input::Persisted(2));
    let has: Vector = [(A, 1)].into_iter().collect();
    let sealed = Message { change: Some(change), ..message(has.clone(), false) };
    let now = Message { epoch: next, ..message(has.clone(), false) };
    step(&mut a, Input::Received(B, sealed));
    assert_eq!(a.member_state().membership.epoch, next);
    for id in [B, C] {
        let out = step(&mut a, Input::Received(id, now.clone()));
        assert_eq!(answered(&out), [], "its journal does not say that it is in this epoch");
    }
    let out = step(&mut a, Input::Persisted(3));
    assert_eq!(answered(&out), [(1, Value::Integer(5), true)]);

    step(&mut a, add(2, 1, true, &Vector::new()));
    step(&mut a, Input::Persisted(4));
    let has: Vector = [(A, 2)].into_iter().collect();
    let now = Message { has: has.clone(), ..now };
    step(&mut a, Input::Received(C, now.clone()));
    let out = step(&mut a, Input::Received(B, message(has, false)));
    assert_eq!(answered(&out), [], "B may still go another way");
    let out = step(&mut a, Input::Received(B, now));
    assert_eq!(answered(&out), [(2, Value::Integer(6), true)]);
}

/// B claims to have labelled nothing before what is final then, and has.
#[test]
fn a_lying_peer_ends_no_replica() {
    let c = ReplicaId(2);
    let mut a = replica(A, &[A, B, c]);
    let entry = |origin, number, counter, after: &[(ReplicaId, u64)]| {
        let (label, after) = (Label { counter, origin }, after.iter().copied().collect());
        Arc::new(Entry { number, label, after, strict: false, operator: Operator::Add(1) })
    };
    let has = |has: &[(ReplicaId, u64)]| message(has.iter().copied().collect(), false);
    // The operation waits for one that C has not sent yet.
    let early = Message { entries: vec![entry(B, 1, 1, &[(c, 1)])], ..has(&[]) };
    assert_eq!(step(&mut a, Input::Received(B, early)), []);
    step(&mut a, add(1, 5, false, &Vector::new()));
    step(&mut a, add(2, 5, false, &Vector::new()));
    step(&mut a, Input::Persisted(2));
    step(&mut a, Input::Received(B, has(&[(A, 2)])));
    step(&mut a, Input::Received(c, has(&[(A, 2)])));
    assert_eq!((*a.stable(), a.commit_point()), (10, Some(Label { counter: 2, origin: A })));
    let late = Message { entries: vec![entry(c, 1, 3, &[])], ..has(&[(A, 2), (c, 1)]) };
    let out = step(&mut a, Input::Received(c, late));
    assert!(out.contains(&Output::Distrust(B)), "{out:?}");
    assert!(!out.contains(&Output::Distrust(c)), "{out:?}");
    assert_eq!((a.done().get(B), a.done().get(c), *a.current()), (0, 1, 11));
}

/// A and B are members, and D is a former one.
#[test]
fn a_membership_that_no_change_leads_to_is_not_believed() {
    let d = ReplicaId(3);
    let place = |id: &ReplicaId| (*id, String::new());
    let membership = |number, members: &[ReplicaId], came: &[ReplicaId], retired: &[(_, u64)]| {
        let (came, retired) = (came.iter().copied().collect(), retired.iter().copied().collect());
        let epoch = Epoch { number, by: number.into() };
        Membership { epoch, members: members.iter().map(place).collect(), came, retired }
    };
    let old = membership(2, &[A, B], &[], &[(d, 1)]);
    let reaches = |reached: Membership| {
        let nothing = Snapshot::empty(&Counter, old.clone());
        let snapshot = Snapshot { base: [(d, 1)].into_iter().collect(), ..nothing };
        let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
        let mut a = Replica::recover(Counter, A, config, snapshot, []);
        let (epoch, reached) = (reached.epoch, Some(Arc::new(reached)));
        let plain = Message { epoch: old.epoch, ..message(Vector::new(), false) };
        step(&mut a, Input::Received(B, Message { epoch, reached, ..plain }))
    };
    let many: Vec<ReplicaId> = (0..100).map(ReplicaId).filter(|id| *id != d).collect();
    for wrong in [
        // B is neither a member nor retired; then D.
        membership(3, &[A], &[], &[(d, 1)]),
        membership(3, &[A, B], &[], &[]),
        // More operations of D count, or fewer; D returns.
        membership(3, &[A, B], &[], &[(d, 2)]),
        membership(3, &[A, B, d], &[d], &[]),
        membership(3, &[A, B, d], &[d], &[(d, 1)]),
        // C comes, but is not new; it is retired, but was no member.
        membership(3, &[A, B, C], &[], &[(d, 1)]),
        membership(3, &[A, B], &[C], &[(d, 1)]),
        membership(3, &[A, B], &[], &[(C, 0), (d, 1)]),
        // No member stays, or there are too many.
        membership(3, &[], &[], &[(A, 0), (B, 0), (d, 1)]),
        membership(3, &[C], &[C], &[(A, 0), (B, 0), (d, 1)]),
        membership(3, &many, &many[2..], &[(d, 1)]),
        // Later memberships need not derive from the current one.
        membership(5, &[B], &[], &[(d, 1)]),
        // A removed replica is informed in another way.
        membership(3, &[B], &[], &[(A, 1), (d, 1)]),
        membership(5, &[B], &[], &[(A, 1), (d, 1)]),
    ] {
        assert_eq!(reaches(wrong.clone()), [Output::Distrust(B)], "{wrong:?}");
    }
    for right in [
        membership(3, &[A, B, C], &[C], &[(d, 1)]),
        membership(3, &[A], &[], &[(B, 7), (d, 1)]),
        membership(5, &[A], &[], &[(B, 1), (d, 1)]),
    ] {
        assert_eq!(reaches(right.clone()), [], "{right:?}");
    }
}

#[test]
fn numbers_that_nobody_has_reached_are_not_believed() {
    let membership = |number, count| {
        let first = Membership::first([(A, String::new()), (B, String::new())].into());
        let epoch = Epoch { number, by: 0 };
        Some(Arc::new(Membership { epoch, retired: [(ReplicaId(2), count)].into(), ..first }))
    };
    let change = |number| {
        let (from, members) = (Epoch { number, by: 0 }, [(A, String::new())].into());
        Some(Arc::new(Change { from, members, lost: [].into(), forced: false }))
    };
    let plain = message(Vector::new(), false);
    let far = Epoch { number: u64::MAX, by: 0 };
    for wrong in [
        Message { epoch: far, ..plain.clone() },
        Message { change: change(u64::MAX), ..plain.clone() },
        Message { reached: membership(u64::MAX, 1), ..plain.clone() },
        Message { reached: membership(2, u64::MAX), ..plain.clone() },
        Message { has: [(B, u64::MAX)].into_iter().collect(), ..plain.clone() },
    ] {
        let mut a = replica(A, &[A, B]);
        let out = step(&mut a, Input::Received(B, wrong.clone()));
        assert_eq!(out, [Output::Distrust(B)], "{wrong:?}");
        assert_eq!(a.membership().epoch.number, 1);
    }
}

/// Returns operation `number` of this origin.
fn nth(origin: ReplicaId, number: u64) -> Arc<Entry<Operator>> {
    let label = Label { counter: number, origin };
    Arc::new(Entry {
        number,
        label,
        after: Vector::new(),
        strict: false,
        operator: Operator::Add(1),
    })
}

/// A sends to B; C does not get messages of A, but sends many operations itself.
#[test]
fn a_busy_peer_receives_retransmissions() {
    let mut b = replica(B, &[A, B, C]);
    let (mut out, mut written, mut reported) = (Vec::new(), 0, Vec::new());
    for input in [A, C].map(Input::Connected) {
        b.step(NOW, input, &mut out);
    }
    let of_a =
        Message { entries: vec![nth(A, 1)], ..message([(A, 1)].into_iter().collect(), false) };
    b.step(NOW, Input::Received(A, of_a), &mut out);
    for number in 1..=20 {
        let now = NOW + Duration::from_millis(50) * u32::try_from(number).expect("small");
        let has = [(C, number)].into_iter().collect();
        let of_c = Message { entries: vec![nth(C, number)], ..message(has, false) };
        b.step(now, Input::Received(C, of_c), &mut out);
        for output in std::mem::take(&mut out) {
            if let Output::Persist(record, _) = output {
                written = record;
            } else if let Output::Send(C, message) = output {
                reported.extend(message.entries);
            }
        }
        b.step(now, Input::Persisted(written), &mut out);
    }
    assert_eq!(reported.first(), Some(&nth(A, 1)));
}

/// Operations that A sends to C itself do not reduce B's window to C.
#[test]
fn operations_received_from_others_are_not_retransmitted() {
    let most = Amount { operations: 2, bytes: 1 << 20 };
    let limits = Limits { window: most, ..Limits::default() };
    let config = Config { gossip: Duration::ZERO, limits };
    let mut b = Replica::new(Counter, B, &[A, B, C], config);
    step(&mut b, Input::Connected(C));
    let has = [(A, 3)].into_iter().collect();
    let entries = (1..=3).map(|number| nth(A, number)).collect();
    step(&mut b, Input::Received(A, Message { entries, ..message(has, false) }));
    step(&mut b, add(1, 1, false, &Vector::new()));
    let reported = sent_messages(step(&mut b, Input::Persisted(2)));
    let of_b = reported.iter().flat_map(|message| &message.entries);
    assert_eq!(of_b.map(|entry| entry.label.origin).collect::<Vec<_>>(), [B]);
}

/// Work left undone by a step is continued in the next ones. No step exceeds its allowance by more
/// than one piece.
#[test]
fn a_step_does_no_more_work_than_it_may() {
    use crate::work::PIECE_MAX;
    let sheet = |operator| crate::data::kind::Operator::Sheet(operator);
    let config = Config { gossip: Duration::from_millis(10), limits: Limits::default() };
    let mut a = Replica::new(crate::data::Kind::Sheet, A, &[A, B], config);
    let cell = |name: &str| name.parse::<crate::data::sheet::Cell>().expect("a cell");
    let formula = format!("={}", ["SUM(B1:B20000)"; 10].join("+"));
    let cells = (1..=20_000).map(|row| (cell(&format!("B{row}")), "1".to_string()));
    let typed = [
        crate::data::sheet::Operator::Load(cells.collect()),
        crate::data::sheet::Operator::Set(cell("A1"), formula),
    ];
    let looks = (0..100).map(|_| crate::data::sheet::Operator::Get(cell("A1")));
    let (mut out, mut requested) = (Vec::new(), 0);
    for operator in typed.into_iter().chain(looks) {
        requested += 1;
        let (ticket, after) = (Ticket(requested), Vector::new());
        let until = NOW + Duration::from_secs(1);
        let (strict, operator) = (true, sheet(operator));
        let input = Input::Request { ticket, after, strict, operator, until };
        a.step(NOW, input, &mut out);
    }
    // All become final at once: each read costs more than all steps together should.
    a.step(NOW, Input::Persisted(requested), &mut out);
    out.clear();
    let has = [(A, requested)].into_iter().collect();
    let epoch = Membership::first(BTreeMap::new()).epoch;
    let arrived =
        Message { entries: Vec::new(), has, asks: false, epoch, change: None, reached: None };
    let (mut steps, mut most) = (0, 0);
    let mut input = Input::Received(B, arrived);
    loop {
        a.set_allowance(1000);
        a.step(NOW, input, &mut out);
        a.check();
        (steps, most) = (steps + 1, most.max(a.spent()));
        if a.deadline() != Some(Instant(0)) {
            break;
        }
        input = Input::Tick;
    }
    assert!(steps >= 100 && most <= 1000 + PIECE_MAX, "{steps} steps, at most {most} units");
    let answers = out.iter().filter(|output| matches!(output, Output::Answer { .. })).count();
    assert_eq!((answers as u64, a.kept()), (requested, 0));
}

/// The pieces equal the whole encoding, wherever it is cut and whatever happens meanwhile.
#[test]
fn a_snapshot_is_the_same_in_pieces() {
    use crate::binary;
    use crate::data::kind::Operator as Any;
    use crate::data::{Kind, Once, log, map, once, set, sheet, text};
    use crate::work::Meter;
    for kind in Kind::ALL.iter().copied() {
        let config = Config { gossip: Duration::from_millis(10), limits: Limits::default() };
        let mut a = Replica::new(Once(kind), A, &[A, B], config);
        let change = |number: u64| match kind {
            Kind::Counter => Any::Counter(Operator::Add(1)),
            Kind::Text => Any::Text(text::Operator::Append("ab".into())),
            Kind::Register => Any::Register(crate::data::register::Operator::Put("x".into())),
            Kind::Map => {
                Any::Map(map::Operator::Put(format!("{number}").as_str().into(), "v".into()))
            }
            Kind::Set => Any::Set(set::Operator::Add(format!("{number}").as_str().into())),
            Kind::Log => Any::Log(log::Operator::Append("record".into())),
            Kind::Sheet => {
                let cell = format!("C{number}").parse().expect("a cell");
                Any::Sheet(sheet::Operator::Set(cell, "=A1".to_string()))
            }
        };
        let ask = |a: &mut Replica<Once<Kind>>, number: u64| {
            let session = once::SessionId(u128::from(number % 7));
            let call = std::num::NonZeroU64::new(number / 7 + 1);
            let once = call.map(|number| once::Call { session, number });
            let operator =
                once::Operator { stamp: number, once, forgets: false, operator: change(number) };
            let (ticket, after, until) = (Ticket(number), Vector::new(), NOW);
            let input = Input::Request { ticket, after, strict: false, operator, until };
            a.step(NOW, input, &mut Vec::new());
        };
        (1..=50).for_each(|number| ask(&mut a, number));
        a.step(NOW, Input::Persisted(50), &mut Vec::new());
        let epoch = Membership::first(BTreeMap::new()).epoch;
        let arrived = |to: u64| {
            let (entries, has) = (Vec::new(), [(A, to)].into_iter().collect());
            Input::Received(
                B,
                Message { entries, has, asks: false, epoch, change: None, reached: None },
            )
        };
        a.step(NOW, arrived(30), &mut Vec::new());
        for (most, work) in [(1, 1), (10, 3), (100, 1000), (usize::MAX, u64::MAX)] {
            let whole = binary::write(&a.snapshot());
            let (mut writing, mut bytes) = (a.begin_writing(), Vec::new());
            let mut pieces = 1;
            loop {
                let mut some = Vec::new();
                let is_over = a.write(&mut writing, most, &mut Meter::new(work), &mut some);
                bytes.extend(some);
                if is_over {
                    break;
                }
                pieces += 1;
                // The replica continues meanwhile: more is done, and more becomes final.
                if pieces == 3 && most == 1 {
                    ask(&mut a, 51);
                    a.step(NOW, Input::Persisted(51), &mut Vec::new());
                    a.step(NOW, arrived(51), &mut Vec::new());
                    assert_eq!(a.kept(), 21, "unwritten records are kept");
                }
            }
            assert!(most != 1 || pieces > 3, "{kind}: {pieces}");
            assert_eq!(bytes, whole, "{kind}");
            a.end_writing(writing);
            a.step(NOW, Input::Tick, &mut Vec::new());
        }
        assert_eq!(a.kept(), 0);
    }
}
