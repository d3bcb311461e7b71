//! Timestamps.

use super::*;
use base::SetTime;

fn times(set: [Option<SetTime>; 2]) -> SetStat {
    SetStat { accessed: set[0], modified: set[1], ..SetStat::default() }
}

const AT: SetTime = SetTime::At(Time { secs: -5, nanos: 7 });

#[test]
fn every_change_has_its_own_date_also_when_the_clock_stands() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    let mut versions = std::collections::BTreeSet::new();
    for n in 0..50u8 {
        let now = lab.now;
        lab.write_open(open, 0, &[n]).unwrap();
        let stat = lab.stat("/f").unwrap();
        assert_eq!(stat.modified, stat.changed);
        assert!(versions.insert((stat.changed, stat.version())));
        // The clock goes back.
        lab.now = now;
    }
    lab.close(open);
    lab.verify();
}

#[test]
fn each_operation_dates_what_it_changes() {
    let mut lab = Lab::new();
    lab.make_dir("/d", 0o755).unwrap();
    lab.create("/d/f", 0o644).unwrap();
    type Step = fn(&mut Lab);
    let steps: [(&str, Step, [bool; 2], [bool; 2]); 7] = [
        // The changed times: of the directory and of the file, each of contents and attributes.
        ("write", |lab| lab.write("/d/f", 0, b"x").unwrap(), [false; 2], [true; 2]),
        ("chmod", |lab| lab.chmod("/d/f", 0o600).unwrap(), [false; 2], [false, true]),
        ("chown", |lab| lab.chown("/d/f", 1, 1).unwrap(), [false; 2], [false, true]),
        ("resize", |lab| lab.resize("/d/f", 1).unwrap(), [false; 2], [true; 2]),
        ("link", |lab| lab.link("/d/f", "/d/g").unwrap(), [true; 2], [false, true]),
        ("rename", |lab| lab.rename("/d/g", "/d/h").unwrap(), [true; 2], [false, true]),
        ("remove", |lab| lab.remove("/d/h").unwrap(), [true; 2], [false, true]),
    ];
    for (what, step, dir, file) in steps {
        let before = (lab.stat("/d").unwrap(), lab.stat("/d/f").unwrap());
        step(&mut lab);
        let after = (lab.stat("/d").unwrap(), lab.stat("/d/f").unwrap());
        let moved = |a: &Stat, b: &Stat| [a.modified < b.modified, a.changed < b.changed];
        assert_eq!(moved(&before.0, &after.0), dir, "{what}");
        assert_eq!(moved(&before.1, &after.1), file, "{what}");
    }
    lab.verify();
}

#[test]
fn dates_are_set_by_owners_and_now_by_writers() {
    let mut lab = Lab::new();
    lab.create("/f", 0o666).unwrap();
    lab.create("/g", 0o644).unwrap();
    let before = lab.stat("/f").unwrap();
    lab.set("/f", times([Some(AT), None])).unwrap();
    let stat = lab.stat("/f").unwrap();
    assert_eq!((stat.accessed, stat.modified), (Time { secs: -5, nanos: 7 }, before.modified));
    assert!(stat.changed > before.changed);
    lab.caller = user(10, &[]);
    assert_eq!(lab.set("/f", times([Some(AT), None])), Err(Error::NotPermitted));
    assert_eq!(lab.set("/f", times([Some(SetTime::Now), Some(AT)])), Err(Error::NotPermitted));
    lab.set("/f", times([Some(SetTime::Now), Some(SetTime::Now)])).unwrap();
    assert_eq!(lab.set("/g", times([Some(SetTime::Now); 2])), Err(Error::Denied));
    assert!(lab.stat("/f").unwrap().accessed > before.accessed);
    lab.verify();
}

#[test]
fn the_last_read_is_dated_if_that_says_something_new() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, b"x").unwrap();
    let accessed = |lab: &mut Lab| lab.stat("/f").unwrap().accessed;
    let before = accessed(&mut lab);
    lab.read("/f").unwrap();
    let first = accessed(&mut lab);
    assert!(first > before && first > lab.stat("/f").unwrap().modified);
    lab.read("/f").unwrap();
    assert_eq!(accessed(&mut lab), first);
    lab.now += 25 * 3600 * 1_000_000_000;
    lab.read("/f").unwrap();
    let later = accessed(&mut lab);
    assert!(later > first);
    let changed = lab.stat("/f").unwrap().changed;
    lab.write("/f", 0, b"y").unwrap();
    lab.read("/f").unwrap();
    assert!(accessed(&mut lab) > later && changed < lab.stat("/f").unwrap().changed);
    lab.verify();
}
