//! Many requests at once: no turn handles all of them.

use super::*;
use crate::remote::calls::LINE_MAX;

fn stat(lab: &mut Lab, id: u64) {
    lab.ask(id, Ask::Stat { node: NodeId::new(3, 0) });
}

fn count(lab: &Lab, what: &str) -> usize {
    lab.text.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn a_long_line_is_given_up_in_many_turns() {
    let mut lab = Lab::up_as(Config { calls_max: 1, ..Config::default() }, b"9P2000.L");
    let all = 3 * REQUESTS_MAX as u64;
    (0..=all).for_each(|id| stat(&mut lab, id));
    lab.remote.now = lab.remote.now + LINE_MAX;
    for turn in 1..=3 {
        lab.tick();
        assert_eq!(count(&lab, "Busy"), turn * REQUESTS_MAX);
        assert!(lab.remote.deadline() <= Some(lab.remote.now), "it goes on at once");
    }
    // Requests that came later have their own time.
    stat(&mut lab, all + 1);
    lab.tick();
    assert_eq!(count(&lab, "Busy"), 3 * REQUESTS_MAX);
    assert_eq!(lab.remote.deadline(), Some(lab.remote.now + LINE_MAX));
    lab.remote.now = lab.remote.now + LINE_MAX;
    lab.tick();
    assert_eq!(count(&lab, "Busy"), 3 * REQUESTS_MAX + 1);
}

#[test]
fn requests_that_wait_for_a_connection_begin_in_many_turns() {
    let config = Config { calls_max: 10_000, ..Config::default() };
    let mut lab = Lab::new(config);
    let all = 2 * REQUESTS_MAX + 1;
    (0..all as u64).for_each(|id| stat(&mut lab, id));
    lab.connect();
    lab.send(&Rmessage::Version { msize: 8192, version: b"9P2000.L" });
    assert_eq!(count(&lab, "Getattr"), 0);
    let mut out = Vec::new();
    let attach = Rmessage::Attach { qid: qid(1, Qid::DIR) };
    let mut bytes = Vec::new();
    attach.encode(lab.tags.pop_front().unwrap(), &mut bytes);
    let id = OpId(NodeId::new(3, 1).0);
    let received = Input::Done(id, Done::Received(Ok(Buf::from(bytes))));
    lab.remote.step(lab.remote.now, received, &mut out);
    assert_eq!(lab.remote.pending.queued(all).len(), all - REQUESTS_MAX);
    lab.show(out);
    for _ in 0..2 {
        assert!(lab.remote.deadline() <= Some(lab.remote.now), "it goes on at once");
        lab.tick();
    }
    assert!(!lab.remote.pending.is_any_queued());
    assert_eq!(count(&lab, "Getattr"), all);

    // A loss for good ends them likewise.
    lab.hang_up();
    lab.remote.now = lab.remote.now + Duration::from_secs(3600);
    for _ in 0..3 {
        lab.tick();
    }
    assert_eq!(count(&lab, "Disconnected"), all);
}
