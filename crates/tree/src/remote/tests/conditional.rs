//! Conditional changes of entries.

use super::*;
use base::Expected;
use base::op::Replacement;

#[test]
fn a_conditional_change_looks_when_those_before_it_are_over() {
    let mut lab = Lab::up(b"9P2000.L");
    let root = lab.remote.root();
    let (_, stat) = words::stat_of_getattr(&getattr(), 0).expect("attributes");
    let change = |by: &str| Ask::Replace {
        dir: root,
        name: name("f"),
        by: Replacement::Entry(root, name(by)),
        expected: Expected::Version(stat.file_version()),
    };
    let found = || Rmessage::Walk { qids: [qid(5, Qid::FILE)].into_iter().collect() };
    lab.ask(1, change("a"));
    lab.ask(2, change("b"));
    lab.send(&found());
    lab.send(&getattr());
    lab.send(&Rmessage::Renameat {});
    // The first one's fid is clunked, and the second one starts.
    lab.send(&Rmessage::Clunk {});
    lab.send(&Rmessage::Error { ename: b"" });
    let text = std::mem::take(&mut lab.text);
    assert!(text.contains("asks Replace\nsays Walk"), "it waits: {text}");
    assert!(text.contains("hears Renameat"), "{text}");
    assert!(text.contains("reply 1 Done"), "{text}");
    assert_eq!(text.matches("hears Walk").count(), 2, "{text}");
    assert_eq!(text.matches("hears Renameat").count(), 1, "{text}");
}
