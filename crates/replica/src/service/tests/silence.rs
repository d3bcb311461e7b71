//! Unresponsive members are removed by all others, or not at all.

use super::*;

const C: ReplicaId = ReplicaId(2);
const D: ReplicaId = ReplicaId(3);

/// Returns the outputs of a replica at this time.
fn step_at(replica: &mut Counting, seconds: u64, input: Input<Operator>) -> Vec<Out> {
    let mut out = Vec::new();
    replica.step(NOW + Duration::from_secs(seconds), input, &mut out);
    replica.check();
    out
}

fn removes(out: &[Out]) -> Option<ReplicaId> {
    let mut removed = out.iter().filter_map(|output| match output {
        Output::Removes(id) => Some(*id),
        Output::Send(..)
        | Output::Answer { .. }
        | Output::Refuse(..)
        | Output::Distrust(_)
        | Output::Outdated(_)
        | Output::Final(..)
        | Output::Persist(..)
        | Output::Vote(..)
        | Output::Members(_) => None,
    });
    removed.next_back()
}

fn votes(out: &[Out]) -> usize {
    out.iter().filter(|output| matches!(output, Output::Vote(..))).count()
}

fn epoch() -> Epoch {
    Membership::first(BTreeMap::new()).epoch
}

fn voted(from: ReplicaId, silent: &[ReplicaId]) -> Input<Operator> {
    Input::Voted(from, Vote { epoch: epoch(), silent: silent.iter().copied().collect() })
}

fn silent(ids: &[ReplicaId]) -> Input<Operator> {
    Input::Silent(ids.iter().copied().collect())
}

/// Returns a replica connected with all others that has all confirmations of the epoch.
fn settled(members: &[ReplicaId]) -> Counting {
    let mut a = replica(A, members);
    for other in members.iter().copied().filter(|it| *it != A) {
        step(&mut a, Input::Connected(other));
        step(&mut a, Input::Received(other, message(Vector::new(), false)));
    }
    assert!(a.is_settled());
    a
}

#[test]
fn all_others_remove_one_that_is_silent() {
    let mut a = settled(&[A, B, C]);
    let out = step_at(&mut a, 10, silent(&[C]));
    assert_eq!((votes(&out), removes(&out)), (2, None), "{out:?}");
    assert_eq!(removes(&step_at(&mut a, 11, voted(B, &[C]))), Some(C));
    let change = a.member_state().change.clone().expect("it is sealed");
    assert_eq!((change.lost.clone(), change.forced), ([C].into(), false));
    assert_eq!(a.unsealed(), [B]);
    // Its later messages are ignored.
    step_at(&mut a, 12, Input::Received(C, message([(C, 1)].into_iter().collect(), true)));
    assert_eq!(a.knows_of(C).map(|knows| knows.get(C)), Some(0));
}

/// Votes are repeated while the silence lasts, and no longer.
#[test]
fn votes_are_repeated() {
    let mut a = settled(&[A, B, C]);
    assert_eq!(votes(&step_at(&mut a, 10, silent(&[C]))), 2);
    assert_eq!(votes(&step_at(&mut a, 11, Input::Tick)), 0);
    assert!(a.deadline().is_some_and(|at| at <= NOW + Duration::from_secs(12)));
    assert_eq!(votes(&step_at(&mut a, 12, Input::Tick)), 2);
    // The others get the retraction, once.
    let out = step_at(&mut a, 13, silent(&[]));
    let empty = |it: &Out| matches!(it, Output::Vote(_, vote) if vote.silent.is_empty());
    assert_eq!(out.iter().filter(|it| empty(it)).count(), 2, "{out:?}");
    assert_eq!(votes(&step_at(&mut a, 20, Input::Tick)), 0);
    assert_eq!(removes(&step_at(&mut a, 20, voted(B, &[C]))), None, "it replies again");
}

#[test]
fn nobody_is_removed_unless_all_others_agree_now() {
    // Of two members none is removed.
    let mut a = settled(&[A, B]);
    assert_eq!(removes(&step_at(&mut a, 10, silent(&[B]))), None);
    // One of the others hears it, or its vote is too old, or of another epoch.
    let mut a = settled(&[A, B, C, D]);
    step_at(&mut a, 10, silent(&[D]));
    assert_eq!(removes(&step_at(&mut a, 11, voted(B, &[D]))), None);
    assert_eq!(removes(&step_at(&mut a, 12, voted(C, &[]))), None);
    let vote = Vote { epoch: Epoch { number: 2, by: 7 }, silent: [D].into() };
    assert_eq!(removes(&step_at(&mut a, 13, Input::Voted(C, vote))), None);
    assert_eq!(removes(&step_at(&mut a, 16, voted(C, &[D]))), None, "the other vote is old");
    // Two are silent: half of the members.
    step_at(&mut a, 17, silent(&[C, D]));
    assert_eq!(removes(&step_at(&mut a, 17, voted(B, &[C, D]))), None);
    step_at(&mut a, 18, silent(&[D]));
    let out = step_at(&mut a, 18, voted(C, &[D]));
    assert_eq!(removes(&out), None, "B does not hear C either");
    step_at(&mut a, 18, voted(B, &[D]));
    assert_eq!(a.member_state().change.as_ref().map(|it| it.lost.clone()), Some([D].into()));
}

/// Others may be in another membership already: a replica in one that some members never enter must
/// not remove them.
#[test]
fn nobody_is_removed_before_all_have_said_that_they_are_members() {
    let mut a = replica(A, &[A, B, C]);
    step(&mut a, Input::Connected(B));
    step(&mut a, Input::Received(B, message(Vector::new(), false)));
    step_at(&mut a, 10, silent(&[C]));
    assert_eq!(
        removes(&step_at(&mut a, 11, voted(B, &[C]))),
        None,
        "C has not reported its membership"
    );
    // A change is in progress: C may have reached another membership by it.
    let mut a = settled(&[A, B, C]);
    let change_request = ChangeRequest { remove: [B].into(), ..ChangeRequest::default() };
    let change = a.plan(&change_request).expect("it can be");
    step_at(&mut a, 9, Input::Change(change));
    step_at(&mut a, 9, Input::Persisted(1));
    step_at(&mut a, 10, silent(&[C]));
    assert_eq!(removes(&step_at(&mut a, 11, voted(B, &[C]))), None);
    assert_eq!(a.member_state().change.as_ref().map(|it| it.lost.len()), Some(0));
}
