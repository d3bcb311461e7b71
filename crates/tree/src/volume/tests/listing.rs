//! Directories that change during a listing.

use super::*;
use base::op::Detail;
use std::collections::BTreeSet;

#[test]
fn stable_entries_are_listed_once_during_changes() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    for n in 0..200 {
        lab.create(&format!("/d/stays{n}"), 0o644).unwrap();
        lab.create(&format!("/d/goes{n}"), 0o644).unwrap();
    }
    let open = lab.open("/d", Access::READ).unwrap();
    let (mut seen, mut cookie, mut n) = (BTreeSet::new(), 0, 0);
    loop {
        let entries = lab.list_open(open, cookie, 300);
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in &entries {
            assert!(entry.cookie > 0 && i64::try_from(entry.cookie).is_ok());
            assert!(seen.insert(entry.name.to_string()), "{} twice", entry.name);
        }
        let _gone = lab.remove(&format!("/d/goes{n}"));
        lab.create(&format!("/d/comes{n}"), 0o644).unwrap();
        n += 1;
    }
    lab.close(open);
    assert!((0..200).all(|n| seen.contains(&format!("stays{n}"))));
    lab.verify();
}

#[test]
fn cookies_stay_the_same_for_other_readers_and_later() {
    let mut lab = Lab::new();
    for n in 0..20 {
        lab.create(&format!("/f{n}"), 0o644).unwrap();
    }
    let open = lab.open("/", Access::READ).unwrap();
    let all = lab.list_open(open, 0, 10_000);
    lab.close(open);
    lab.remove("/f3").unwrap();
    let mut lab = lab.reopen();
    let open = lab.open("/", Access::READ).unwrap();
    let again = lab.list_open(open, 0, 10_000);
    assert!(again.iter().all(|entry| all.contains(entry)));
    assert_eq!(again.len(), 19);
    // At least one, however small the limit; and none behind the last.
    assert_eq!(lab.list_open(open, 0, 1).len(), 1);
    assert_eq!(lab.list_open(open, u64::MAX, 100).len(), 0);
    lab.close(open);
    lab.verify();
}

#[test]
fn attributes_come_with_the_entries_if_the_caller_may_look() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o640).unwrap();
    lab.symlink("/d/l", "f").unwrap();
    let list = |lab: &mut Lab| {
        let open = lab.open("/d", Access::READ).unwrap();
        let ask = Ask::List { open, cookie: 0, bytes_max: 1000, detail: Detail::Stat };
        let Ok(Reply::Entries(entries)) = lab.ask(ask) else { panic!() };
        lab.close(open);
        entries
    };
    for entry in list(&mut lab) {
        let stat = entry.stat.unwrap();
        assert_eq!((stat.inode, stat.kind), (entry.inode, entry.kind));
    }
    lab.chmod("/d", 0o744).unwrap();
    lab.caller = user(5, &[]);
    assert!(list(&mut lab).iter().all(|entry| entry.stat.is_none()));
    lab.verify();
}
