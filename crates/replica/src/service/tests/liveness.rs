//! Retransmission of lost and late messages.

use super::*;

/// Steps a replica at its own deadline; returns its messages.
fn wait(replica: &mut Counting) -> Vec<Message<Operator>> {
    let at = replica.deadline().expect("a deadline, as not everything was sent");
    let mut out = Vec::new();
    replica.step(at, Input::Tick, &mut out);
    replica.check();
    sent_messages(out)
}

/// An acknowledgement of the previous epoch does not count in this one, and the first message of an
/// epoch to arrive may be older than others: requests continue until it has acknowledged everything
/// in this epoch.
#[test]
fn a_late_message_of_an_epoch_does_not_end_the_asking() {
    let mut a = replica(A, &[A, B]);
    step(&mut a, Input::Connected(B));
    let change = Arc::new(a.plan(&add_c()).expect("it can"));
    let next = change.to();
    step(&mut a, Input::Change((*change).clone()));
    step(&mut a, Input::Persisted(1));
    step(&mut a, add(1, 5, true, &Vector::new()));
    step(&mut a, Input::Persisted(2));
    let has: Vector = [(A, 1)].into_iter().collect();
    let sealed = Message { change: Some(change), ..message(has.clone(), false) };
    step(&mut a, Input::Received(B, sealed));
    // The request is lost.
    step(&mut a, Input::Persisted(3));
    assert_eq!(a.member_state().membership.epoch, next);
    let late = Message { epoch: next, ..message(Vector::new(), false) };
    step(&mut a, Input::Received(B, late));
    let reported = wait(&mut a);
    assert!(matches!(&reported[..], [Message { asks: true, .. }]), "{reported:?}");
    let now = Message { epoch: next, ..message(has, false) };
    step(&mut a, Input::Received(B, now));
    assert_eq!(a.deadline(), Some(NOW + Duration::from_secs(1)), "only its client waits");
}

/// A peer never heard from may not have received the change either.
#[test]
fn a_change_is_sent_again_to_a_peer_that_never_replied() {
    let mut a = replica(A, &[A, B]);
    step(&mut a, Input::Connected(B));
    assert_eq!(a.deadline(), None, "nothing changes, and there is nothing to tell");
    let change = a.plan(&add_c()).expect("it can");
    step(&mut a, Input::Change(change.clone()));
    // The first transmission is lost.
    let reported = sent_messages(step(&mut a, Input::Persisted(1)));
    assert!(matches!(&reported[..], [Message { change: Some(_), .. }]), "{reported:?}");
    let reported = wait(&mut a);
    assert_eq!(reported[0].change.as_deref(), Some(&change));
}

/// A membership without this replica is void for those that have sealed its members as lost: they
/// need the operations of this replica.
#[test]
fn a_leaver_goes_on_without_the_lost_that_have_removed_it() {
    let members = [A, B, C];
    let (mut a, b, c) = (replica(A, &members), replica(B, &members), replica(C, &members));
    step(&mut a, Input::Connected(C));
    step(&mut a, add(1, 5, false, &Vector::new()));
    step(&mut a, Input::Persisted(1));
    let remove = ChangeRequest { remove: [A].into(), ..ChangeRequest::default() };
    let reports =
        |change| Message { change: Some(Arc::new(change)), ..message(Vector::new(), false) };
    step(&mut a, Input::Received(B, reports(b.plan(&remove).expect("it can"))));
    step(&mut a, Input::Persisted(2));
    step(&mut a, Input::Removed(B));
    assert!(a.is_removed());
    let without = ChangeRequest { lost: [B].into(), ..remove };
    step(&mut a, Input::Received(C, reports(c.plan(&without).expect("it can"))));
    // The following message is lost.
    step(&mut a, Input::Persisted(3));
    assert!(!a.is_removed());
    let reported = wait(&mut a);
    assert!(reported.iter().any(|message| message.entries.len() == 1), "{reported:?}");
    step(&mut a, Input::Removed(C));
    assert!(a.is_removed());
}

/// The same after the others have reached a membership with this replica and without the lost one.
#[test]
fn a_member_of_the_next_membership_is_not_removed_by_a_retired_one() {
    let members = [A, B, C];
    let (mut a, c) = (replica(A, &members), replica(C, &members));
    step(&mut a, Input::Connected(C));
    step(&mut a, Input::Removed(B));
    assert!(a.is_removed());
    let change_request =
        ChangeRequest { lost: [B].into(), remove: [B].into(), ..ChangeRequest::default() };
    let change = Arc::new(c.plan(&change_request).expect("it can"));
    let next = change.to();
    let sealed = Message { change: Some(change), ..message(Vector::new(), false) };
    step(&mut a, Input::Received(C, sealed));
    step(&mut a, Input::Persisted(1));
    step(&mut a, Input::Persisted(2));
    assert_eq!(a.member_state().membership.epoch, next);
    assert!(!a.is_removed());
    step(&mut a, Input::Removed(B));
    assert!(!a.is_removed());
}
