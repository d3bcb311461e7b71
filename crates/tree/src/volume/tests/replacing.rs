//! Unnamed files that replace an entry in one step with the check of it.

use super::*;
use base::Expected;
use base::op::Replacement;

fn unnamed(lab: &mut Lab, bytes: &[u8]) -> (NodeId, OpenId) {
    let access = Access { write: true, ..Access::READ };
    let ask = Ask::CreateUnnamed { dir: lab.volume.root(), name: name("f"), access, mode: 0o640 };
    let Ok(Reply::Created(node, open, stat)) = lab.ask(ask) else { panic!("it is made") };
    assert_eq!((stat.links, stat.mode), (0, 0o640));
    lab.write_open(open, 0, bytes).unwrap();
    (node, open)
}

fn replace(lab: &mut Lab, node: NodeId, expected: Expected) -> Reply {
    let by = Replacement::Unnamed(node);
    let ask = Ask::Replace { dir: lab.volume.root(), name: name("f"), by, expected };
    lab.ask(ask).unwrap()
}

#[test]
fn a_file_without_a_name_takes_the_place_of_what_was_expected_and_of_nothing_else() {
    let mut lab = Lab::new();
    let (one, open) = unnamed(&mut lab, b"one");
    let Reply::Stat(first) = replace(&mut lab, one, Expected::Absent) else { panic!("no stat") };
    assert_eq!(lab.stat("/f").unwrap().file_version(), first.file_version());
    lab.verify();
    let (two, other) = unnamed(&mut lab, &[2; 100_000]);
    for wrong in [Expected::Absent, Expected::Version(lab.stat("/").unwrap().file_version())] {
        let reply = replace(&mut lab, two, wrong);
        assert!(matches!(reply, Reply::Unexpected(Some(stat)) if stat == first), "{wrong:?}");
    }
    let version = Expected::Version(first.file_version());
    let Reply::Stat(second) = replace(&mut lab, two, version) else { panic!("no stat") };
    assert_eq!(lab.stat("/f").unwrap().file_version(), second.file_version());
    assert_eq!((second.links, second.size), (1, 100_000));
    assert!(matches!(replace(&mut lab, one, version), Reply::Unexpected(Some(_))));
    for open in [open, other] {
        lab.close(open);
    }
    lab.release(one);
    lab.verify();
    let remove = |expected| Ask::Replace {
        dir: NodeId::new(0, 0),
        name: name("f"),
        by: Replacement::Nothing,
        expected,
    };
    assert!(matches!(lab.ask(remove(version)).unwrap(), Reply::Unexpected(Some(_))));
    let version = Expected::Version(second.file_version());
    assert!(matches!(lab.ask(remove(version)).unwrap(), Reply::Done));
    assert!(matches!(lab.ask(remove(version)).unwrap(), Reply::Unexpected(None)));
    lab.release(two);
    lab.verify();
    assert_eq!((lab.blocks(), lab.volume.counts().orphans), (0, 0));
}

#[test]
fn links_and_directories_are_not_replaced() {
    let mut lab = Lab::new();
    lab.symlink("/f", "elsewhere").unwrap();
    let (node, open) = unnamed(&mut lab, b"x");
    let reply = replace(&mut lab, node, Expected::PlainFile);
    assert!(matches!(reply, Reply::Unexpected(Some(stat)) if stat.kind == Kind::Symlink));
    lab.close(open);
    lab.release(node);
    lab.verify();
    assert_eq!(lab.list("/"), ["f"]);
}

#[test]
fn a_crash_takes_what_had_no_name_yet() {
    let mut lab = Lab::new();
    let _never_given_back = unnamed(&mut lab, &[7; 2_000_000]);
    let mut lab = lab.reopen();
    lab.verify();
    assert_eq!((lab.blocks(), lab.list("/").len()), (0, 0));
}

#[test]
fn a_number_that_was_lost_in_a_crash_is_not_used_again() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let lost = lab.stat("/f").unwrap().inode;
    lab = lab.crash();
    assert_eq!(lab.stat("/f"), Err(Error::NotFound));
    lab.create("/g", 0o644).unwrap();
    let first = lab.stat("/g").unwrap().inode;
    assert!(first > lost);
    lab.create("/h", 0o644).unwrap();
    assert_eq!(lab.stat("/h").unwrap().inode, first + 1);
    lab.check_disk();
}
