//! The pool in virtual time: only existing files are read, and none is left.

use super::*;
use crate::Record;
use crate::simulated::{Device, Instantly, Queueing, run};
use std::collections::BTreeMap;
use std::time::Duration;

fn records(setup: &Setup, device: &mut dyn Device) -> Vec<Record> {
    run(vec![Box::new(PostMark::new(setup.clone(), 7, Lifetime::default()))], device).records
}

fn count(records: &[Record], kind: Kind) -> usize {
    records.iter().filter(|r| r.io.kind == kind).count()
}

/// Checks the records: no operation on a file precedes its creation, follows its removal or exceeds
/// its end; none is left, and operations on one file do not overlap.
fn check(setup: &Setup, records: &[Record]) {
    let mut by_issue: Vec<&Record> = records.iter().collect();
    by_issue.sort_by_key(|r| (r.issued_ns, r.completed_ns));
    // By number: size, and the end of the last operation.
    let mut files: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut removed: BTreeMap<u32, u64> = BTreeMap::new();
    for record in by_issue {
        let Io { kind, file, offset, len } = record.io;
        assert!(file < setup.numbers());
        let free_at = files.get(&file).map_or(removed.get(&file).copied(), |(_, at)| Some(*at));
        assert!(free_at.unwrap_or(0) <= record.issued_ns, "nobody else has it: {record:?}");
        let done = record.completed_ns;
        match kind {
            Kind::Create => {
                assert!((setup.min..=setup.max).contains(&len));
                assert_eq!(files.insert(file, (u64::from(len), done)), None);
            }
            Kind::Remove => {
                files.remove(&file).expect("it was there");
                removed.insert(file, done);
            }
            Kind::Read | Kind::Write => {
                let (size, at) = files.get_mut(&file).expect("it is there");
                if kind == Kind::Write {
                    assert_eq!(offset, *size, "it is appended to");
                    *size += u64::from(len);
                }
                assert!(offset + u64::from(len) <= *size && *size <= u64::from(setup.max));
                *at = done;
            }
            Kind::Sync | Kind::Trim => unreachable!("nobody asks for them"),
        }
    }
    assert_eq!(files.len(), 0, "nothing is left");
}

#[test]
fn one_user_makes_changes_and_removes() {
    let setup = Setup { transactions: 20_000, block: 0, ..Setup::default() };
    let mut device = Queueing::new(1, Duration::from_micros(100), Duration::from_micros(1));
    let records = records(&setup, &mut device);
    check(&setup, &records);
    assert!(records[..500].iter().all(|r| r.io.kind == Kind::Create));
    let (reads, appends) = (count(&records, Kind::Read), count(&records, Kind::Write));
    // A few files are full and are read instead.
    assert!(reads + appends == 20_000 && (9_800..11_500).contains(&reads), "{reads} {appends}");
    let (made, removed) = (count(&records, Kind::Create), count(&records, Kind::Remove));
    assert_eq!(made, removed);
    assert!((9_700..10_300).contains(&(made - 500)), "{made}");
}

#[test]
fn many_users_never_meet_at_a_file() {
    let shapes = [(10, 10, 5), (100, 40, 5), (50, 50, 9), (50, 20, 0), (1, 1, 5)];
    for (files, users, creates) in shapes {
        let (transactions, block) = (3000, 512);
        let setup = Setup { files, users, creates, transactions, block, ..Setup::default() };
        let mut device = Queueing::new(7, Duration::from_micros(50), Duration::from_micros(9));
        check(&setup, &records(&setup, &mut device));
    }
}

#[test]
fn reads_are_of_whole_files_in_blocks() {
    let setup = Setup { min: 1000, max: 1000, block: 512, reads: 10, ..Setup::default() };
    let records = records(&setup, &mut Instantly);
    let reads: Vec<(u64, u32)> = records
        .iter()
        .filter(|r| r.io.kind == Kind::Read)
        .map(|r| (r.io.offset, r.io.len))
        .collect();
    assert_eq!(reads.len(), 1000);
    assert!(reads.chunks(2).all(|pair| *pair == [(0, 512), (512, 488)]));
}

#[test]
fn at_its_end_it_removes() {
    let setup = Setup { transactions: u64::MAX, ..Setup::default() };
    let end = Duration::from_millis(300);
    let life = Lifetime { end, ..Lifetime::default() };
    let mut device = Queueing::new(1, Duration::from_micros(100), Duration::ZERO);
    let postmark = PostMark::new(setup.clone(), 7, life);
    let records = run(vec![Box::new(postmark)], &mut device).records;
    check(&setup, &records);
    let late = records.iter().filter(|r| r.issued_ns > 301_000_000);
    assert!(late.clone().count() > 100 && late.clone().all(|r| r.io.kind == Kind::Remove));
}

/// Device that fails every n-th I/O.
struct Refusing(u32, u32);

impl Device for Refusing {
    fn issue(&mut self, now: Instant, io: Io) -> (Instant, Outcome) {
        self.0 = (self.0 + 1) % self.1;
        let outcome = if self.0 == 0 { Outcome::Failed(5) } else { Outcome::Done(io.len) };
        (now, outcome)
    }
}

#[test]
fn a_target_that_refuses_does_not_stop_it() {
    for every in [1, 2, 3, 7] {
        let setup = Setup { users: 4, ..Setup::default() };
        let records = records(&setup, &mut Refusing(0, every));
        assert!(count(&records, Kind::Create) >= 500);
        let failed = |r: &&Record| r.io.kind == Kind::Create && r.outcome != Outcome::Failed(5);
        if every == 1 {
            assert_eq!(records.iter().filter(failed).count(), 0);
            assert_eq!(count(&records, Kind::Read), 0, "only entries that were made are read");
        }
    }
}
