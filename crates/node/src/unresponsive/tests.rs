//! Messages to the operator.

use super::{ByNode, Level, merge};
use base::Instant;
use base::op::Unresponsive;

/// Returns the texts of the messages.
fn changes(now: Instant, before: &[Unresponsive], after: &[Unresponsive]) -> Vec<String> {
    let lines = super::changes(now, before, after);
    let is_level = |(level, text): &(Level, String)| {
        let again = text.ends_with("responds again");
        *level == if again { Level::Info } else { Level::Warn }
    };
    assert!(lines.iter().all(is_level), "{lines:?}");
    lines.into_iter().map(|(_, text)| text).collect()
}

fn unresponsive(name: &str) -> Unresponsive {
    Unresponsive { name: name.into(), since: Instant(0), running: 4, waiting: 7 }
}

#[test]
fn each_file_system_is_reported_when_it_stops_and_when_it_responds_again() {
    let (a, b, now) = (unresponsive("/a (nfs4)"), unresponsive("/b (fuse)"), Instant(11 << 30));
    let stopped = changes(now, &[], std::slice::from_ref(&a));
    let text = "/a (nfs4) has not responded for 11 s: 4 requests in progress, 7 waiting; check its \
                server, or unmount it with umount -f -l";
    assert_eq!(stopped, [text]);
    let both = changes(now, std::slice::from_ref(&a), &[a.clone(), b.clone()]);
    assert!(both.len() == 1 && both[0].starts_with("/b (fuse) has not responded"), "{both:?}");
    assert_eq!(changes(now, &[a.clone(), b.clone()], &[b]), ["/a (nfs4) responds again"]);
    assert_eq!(changes(now, std::slice::from_ref(&a), std::slice::from_ref(&a)), [""; 0]);
}

/// The replicas have a node of their own, and their volumes may be on the same file system.
#[test]
fn a_file_system_that_two_nodes_wait_for_is_reported_once() {
    let mut by_node = ByNode::from([(0, vec![unresponsive("/a (nfs4)")])]);
    let before = merge(&by_node);
    by_node.insert(3, vec![unresponsive("/a (nfs4)"), unresponsive("/b (fuse)")]);
    let after = merge(&by_node);
    let counts = after.iter().map(|one| (&*one.name, one.running, one.waiting));
    assert!(counts.eq([("/a (nfs4)", 8, 14), ("/b (fuse)", 4, 7)]));
    let now = Instant(11 << 30);
    let lines = changes(now, &before, &after);
    assert!(lines.len() == 1 && lines[0].starts_with("/b (fuse) has not responded"), "{lines:?}");
    by_node.insert(0, Vec::new());
    assert_eq!(changes(now, &after, &merge(&by_node)), [""; 0]);
}
