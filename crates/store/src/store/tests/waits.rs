//! What waits, for pages and for room, and in which order it goes on.

use super::tight::put;
use super::*;

#[test]
fn what_was_replayed_waits_for_its_checkpoint_like_any_change() {
    let mut rig = Rig::new(1);
    (0..2000).for_each(|number| assert!(rig.try_commit(put(number, 40))));
    rig.settle();
    assert!(rig.try_commit(put(700, 41)));
    rig.settle_journal();
    rig.reopen();
    assert_eq!(rig.store.recovered(), 1);
    let due = rig.store.deadline().expect("a checkpoint is to come");
    assert!(due.0 > rig.now, "it is due at {due:?}, and it is {}", rig.now);
}
