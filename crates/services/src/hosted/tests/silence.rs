//! Unresponsive members, and their report to the others.

use super::members::Writer;
use super::*;
use crate::journal::lab::formatted_of;

const THIRD: ReplicaId = ReplicaId(3);
const MOST: Duration = Duration::from_secs(10);

/// Returns one of three replicas that remove unresponsive members after [`MOST`], and the open
/// files of the other two.
fn one_of_three() -> (Lab, [Writer; 2]) {
    let mut settings = Settings { remove_after: Some(MOST), ..settings() };
    settings.members.insert(THIRD, "127.0.0.1:3".to_string());
    let mut lab = Lab::on(formatted_of(&settings));
    lab.hosted.add_link(THIRD, vec![Address::Unix(b"/nowhere".to_vec())]);
    let others = [OTHER, THIRD].map(|id| lab.admit(id).expect("a member"));
    (lab, others)
}

/// Runs a turn at this time after these were heard; returns the members unresponsive for too long.
fn turn(lab: &mut Lab, seconds: u64, received: &[&Writer]) -> Vec<ReplicaId> {
    let now = NOW + Duration::from_secs(seconds);
    received.iter().for_each(|writer| lab.hosted.note_use(now, writer.open.local()));
    lab.hosted.tick(now, &mut Vec::new());
    lab.hosted.silent.iter().copied().collect()
}

/// All were partitioned, and one returns before the other.
#[test]
fn the_time_of_silence_begins_when_only_one_is_not_heard() {
    let (mut lab, [second, third]) = one_of_three();
    for now in 0..30 {
        assert_eq!(turn(&mut lab, now, &[]), [], "after {now} s");
    }
    for now in 30..35 {
        assert_eq!(turn(&mut lab, now, &[&second]), [], "after {now} s");
    }
    for now in 35..40 {
        assert_eq!(turn(&mut lab, now, &[&second, &third]), [], "after {now} s");
    }
    for now in 40..60 {
        let silent = turn(&mut lab, now, &[&second]);
        assert_eq!(!silent.is_empty(), now >= 49, "after {now} s: {silent:?}");
    }
    assert_eq!(turn(&mut lab, 60, &[&second, &third]), []);
}

/// Its process was suspended, and receives the backlog gradually.
#[test]
fn the_time_of_silence_begins_when_this_replica_goes_on() {
    let (mut lab, [second, third]) = one_of_three();
    turn(&mut lab, 0, &[&second, &third]);
    for now in 1..=9 {
        assert_eq!(turn(&mut lab, now, &[&second]), [], "after {now} s");
    }
    for now in 100..120 {
        let silent = turn(&mut lab, now, &[&second]);
        assert_eq!(!silent.is_empty(), now >= 110, "after {now} s: {silent:?}");
    }
}

/// It could not store the removal.
#[test]
fn a_replica_with_a_failed_journal_removes_nobody() {
    let (mut lab, [second, _]) = one_of_three();
    for now in 0..20 {
        turn(&mut lab, now, &[&second]);
    }
    assert_eq!(turn(&mut lab, 20, &[&second]), [THIRD]);
    lab.is_broken = true;
    let ops = lab.open("ops");
    lab.write(ops, 0, b"append a\n").expect("taken");
    assert!(lab.hosted.journal.failed().is_some());
    for now in 20..60 {
        assert_eq!(turn(&mut lab, now, &[&second]), [], "after {now} s");
    }
}

/// A replica that leaves regularly has sent all its operations.
#[test]
fn only_who_was_given_up_hears_that_operations_are_lost() {
    let (mut lab, [mut second, _]) = one_of_three();
    assert!(lab.hosted.farewell(OTHER).contains("are lost"));
    let change_request =
        ChangeRequest { remove: [settings().me].into(), ..ChangeRequest::default() };
    let change = Some(Arc::new(lab.hosted.replica.plan(&change_request).expect("it can")));
    let leave = PeerMessage::Gossip(Message { change, ..message(Vec::new()) });
    lab.send(&mut second, &leave).expect("taken");
    let outputs = lab.hosted.farewell(OTHER);
    assert!(outputs.contains("no member any more") && !outputs.contains("lost"), "{outputs}");
}
