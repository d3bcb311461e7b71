//! Journal on a disk that loses power after every operation.

use super::lab::{
    DATA, ME, NOW, fetch, formatted, formatted_as, kept, open, perform, settings, settle,
};
use super::reading::Reading;
use super::*;
use crate::Data;
use base::rng::{Rng, seeded};
use replica::data::kind::Operator as Plain;
use replica::data::{DataType as _, log, once};
use replica::service::{
    Config, Input, Limits, Membership, Record, Replica, Ticket as Requested, Vector,
};
use std::ops::ControlFlow;
use std::time::Duration;
use store::drive::Memory;
use store::{Geometry, View};

/// Replica and its journal on a disk.
struct Lab {
    disk: Memory,
    journal: Journal,
    replica: Replica<Data>,
    /// Outputs of the journal yet to be performed.
    to_do: VecDeque<Output>,
    requested: u64,
    rng: Rng,
}

impl Lab {
    /// Starts a replica from the contents of a disk.
    fn on(mut disk: Memory, seed: u64) -> Lab {
        let (store, kept) = kept(&mut disk);
        let journal = Journal::new(0, File(0), store, &kept);
        assert_eq!(kept.settings, settings());
        let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
        let alone = Membership::first([(ME, String::new())].into());
        let snapshot = kept.snapshot.unwrap_or_else(|| Snapshot::empty(&DATA, alone));
        let replica = Replica::recover(DATA, ME, config, snapshot, kept.records);
        let requested = replica.has().get(ME);
        Lab { disk, journal, replica, to_do: VecDeque::new(), requested, rng: seeded(seed) }
    }

    /// Returns a random operation on a log.
    fn operator(&mut self) -> Operator {
        // Some take several parts or several transactions.
        let length = match self.rng.u32(0..20) {
            0 => self.rng.usize(100_000..900_000),
            1..=3 => self.rng.usize(1000..20_000),
            4.. => self.rng.usize(0..100),
        };
        append(length)
    }

    /// Performs operations in one turn.
    fn ask(&mut self, operators: Vec<Operator>) {
        let (mut record, mut last) = (Record::default(), 0);
        for operator in operators {
            self.requested += 1;
            let (ticket, after) = (Requested(self.requested), Vector::new());
            let until = NOW + Duration::from_secs(1);
            let input = Input::Request { ticket, after, strict: false, operator, until };
            let mut outputs = Vec::new();
            self.replica.step(NOW, input, &mut outputs);
            for output in outputs {
                if let replica::service::Output::Persist(number, some) = output {
                    record.entries.extend(some.entries);
                    last = number;
                }
            }
        }
        self.journal.append(last, &record);
        self.tick();
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.journal.tick(NOW, &mut out);
        self.to_do.extend(out);
        self.journal.check();
    }

    /// Performs the journal's next output and notifies the replica. Returns whether there was one.
    fn go_on(&mut self) -> bool {
        if self.to_do.is_empty() {
            self.tick();
        }
        let mut out = Vec::new();
        match self.to_do.pop_front() {
            Some(Output::Do(op)) => {
                let (id, done) = perform(&mut self.disk, op);
                self.journal.done(NOW, id.0, done, &mut out);
            }
            Some(Output::Persisted(number)) => {
                self.replica.step(NOW, Input::Persisted(number), &mut Vec::new());
            }
            Some(Output::Failed(error)) => panic!("{error}"),
            // Callers check that themselves.
            Some(Output::Full) => {}
            None => return false,
        }
        self.to_do.extend(out);
        true
    }

    /// Appends this many bytes as a server does, and performs everything that follows.
    fn append(&mut self, length: usize) {
        self.ask(vec![append(length)]);
        if self.journal.wants_snapshot(usize::MAX) {
            self.journal.replace(&self.replica.snapshot());
        }
        while self.go_on() {}
    }

    /// Appends until the journal is full.
    fn fill(&mut self) {
        while !self.journal.is_full() {
            let length = self.rng.usize(0..60_000);
            self.append(length);
        }
    }

    /// Returns the number of acknowledged operations, and that of the done ones.
    fn counts(&self) -> (u64, u64) {
        (self.replica.has().get(ME), self.replica.done().get(ME))
    }
}

/// Returns an operation that appends this many bytes.
fn append(length: usize) -> Operator {
    let operator = Plain::Log(log::Operator::Append(vec![b'x'; length].into()));
    once::Operator { stamp: 0, once: None, forgets: false, operator }
}

/// Returns the durable operations and the state of a replica started from a disk.
fn found(mut disk: Memory) -> (u64, <Data as replica::data::DataType>::State) {
    disk.lose_power();
    let mut lab = Lab::on(disk, 0);
    (lab.counts().0, lab.replica.current().clone())
}

#[test]
fn whenever_the_power_fails_what_was_acknowledged_is_there() {
    for seed in 0..6 {
        let (mut lab, mut disks) = (Lab::on(formatted(), seed), Vec::new());
        for _ in 0..25 {
            let count = lab.rng.usize(1..5);
            let operators = (0..count).map(|_| lab.operator()).collect();
            lab.ask(operators);
            if lab.rng.u32(0..5) == 0 && !lab.journal.is_writing() {
                lab.journal.replace(&lab.replica.snapshot());
                lab.tick();
            }
            // The rest is performed in later turns, so that records and snapshots interleave.
            let most = if lab.rng.bool() { usize::MAX } else { lab.rng.usize(0..30) };
            for _ in 0..most {
                if lab.rng.u32(0..16) == 0 {
                    disks.push((lab.disk.clone(), lab.counts()));
                }
                if !lab.go_on() {
                    break;
                }
            }
        }
        while lab.go_on() {}
        let (kept, done) = lab.counts();
        assert_eq!(kept, done, "all is kept");
        disks.push((lab.disk.clone(), (done, done)));
        for (disk, (kept, done)) in disks {
            let (found, mut state) = found(disk);
            assert!((kept..=done).contains(&found), "seed {seed}: {found} of {kept}..{done}");
            let size = once::Operator { operator: Plain::Log(log::Operator::Size), ..append(0) };
            let count = DATA.apply(&mut state, &size);
            assert_eq!(count, replica::data::Value::Integer(found.into()), "each once");
        }
        // The recovered replica continues from there.
        let mut disk = lab.disk;
        disk.lose_power();
        let mut again = Lab::on(disk, seed + 100);
        assert_eq!((again.requested, again.replica.current()), (done, lab.replica.current()));
        again.ask(vec![append(100_000)]);
        while again.go_on() {}
        assert_eq!(found(again.disk).0, done + 1);
    }
}

/// Snapshot bytes written before a concurrent operation is acknowledged do not grow with the
/// snapshot.
#[test]
fn nobody_waits_for_a_large_snapshot() {
    let mut lab = Lab::on(formatted(), 0);
    for _ in 0..10 {
        lab.ask(vec![append(900_000)]);
        while lab.go_on() {}
    }
    lab.journal.replace(&lab.replica.snapshot());
    lab.tick();
    let (mut written_max, mut requested) = (0, 0);
    while lab.journal.is_writing() {
        lab.ask(vec![append(10)]);
        requested += 1;
        let mut written = 0;
        while lab.counts().0 < lab.requested {
            if let Some(Output::Do(Op::WriteBlocks { blocks, .. })) = lab.to_do.front() {
                written += blocks.len() * 4096;
            }
            assert!(lab.go_on(), "it is acknowledged");
        }
        written_max = written.max(written_max);
    }
    assert!(requested > 3, "{requested} were acknowledged meanwhile");
    assert!(written_max < 4 << 20, "{written_max} bytes of 9 MB came first");
    while lab.go_on() {}
    assert_eq!(found(lab.disk).0, lab.requested);
}

/// The journal does not grow forever, however long the store is busy with checkpoints.
#[test]
fn a_snapshot_that_is_late_is_written_beside_a_checkpoint() {
    let mut lab = Lab::on(formatted(), 0);
    lab.ask(vec![append(900_000)]);
    while lab.go_on() {}
    assert_eq!(lab.journal.chores_max(), CHORES);
    while !lab.journal.store.is_pressed() {
        lab.ask(vec![append(900_000)]);
    }
    assert_eq!(lab.journal.chores_max(), 0);
    lab.journal.grown = 33 << 20;
    assert_eq!(lab.journal.chores_max(), 1);
}

/// A failure is reported without a pending commit, too: otherwise a later snapshot would wait
/// forever.
#[test]
fn a_checkpoint_that_fails_is_reported() {
    let mut lab = Lab::on(formatted(), 0);
    lab.ask(vec![append(100)]);
    while lab.go_on() {}
    let (later, mut outputs) = (NOW + Duration::from_secs(60), Vec::new());
    lab.journal.tick(later, &mut outputs);
    let mut reported = Vec::new();
    while let Some(output) = outputs.pop() {
        if let Output::Do(Op::WriteBlocks { id, .. }) = &output {
            let failed = Done::Stored(Err(base::Error::Io));
            lab.journal.done(later, id.0, failed, &mut outputs);
        } else {
            reported.push(output);
        }
    }
    assert!(matches!(reported[..], [Output::Failed(_)]), "{reported:?}");
    assert!(lab.journal.failed().is_some());
}

/// Counts the parts of records and of snapshots on a disk.
fn parts(disk: &Memory) -> (usize, usize) {
    let mut disk = disk.clone();
    let mut store = open(&mut disk);
    let mut count = |table| loop {
        let reader = store.reader(View::Present).expect("the present");
        let mut count = 0;
        let visited = reader.keys(table, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        match visited {
            Ok(_) => return count,
            Err(missing) => fetch(&mut store, &mut disk, missing),
        }
    };
    (count(RECORDS), count(PARTS))
}

/// Power fails with part of a snapshot written; then a replica starts from the disk.
#[test]
fn partial_snapshots_are_removed_after_a_crash() {
    let mut lab = Lab::on(formatted(), 0);
    for _ in 0..2200 {
        lab.ask(vec![append(500)]);
    }
    while lab.go_on() {}
    let (all, mut left) = (parts(&lab.disk), Vec::new());
    for most in 0.. {
        let mut torn = Lab::on(lab.disk.clone(), 0);
        torn.journal.replace(&torn.replica.snapshot());
        torn.tick();
        let ends = (0..most).any(|_| !torn.go_on());
        let mut disk = torn.disk;
        disk.lose_power();
        let now = parts(&disk);
        if !ends && left.last() == Some(&now) {
            continue;
        }
        left.push(now);
        let mut again = Lab::on(disk, 0);
        while again.go_on() {}
        let (records, snapshot) = (parts(&again.disk), again.journal.head);
        let expected = if snapshot.generation == 0 { all } else { (0, snapshot.parts as usize) };
        assert_eq!(records, expected, "after {most} operations on the disk");
        assert_eq!(found(again.disk).0, 2200);
        if ends {
            break;
        }
    }
    let (records, snapshot) = all;
    assert!(left.iter().any(|it| it.0 == records && it.1 > snapshot), "parts without a head");
    assert!(left.iter().any(|it| (1..records).contains(&it.0)), "records before the head's first");
}

/// Operations that every replica has are dropped before a restart would retain too many.
#[test]
fn a_snapshot_is_due_for_superfluous_operations() {
    let mut lab = Lab::on(formatted(), 0);
    lab.ask(vec![append(20)]);
    while lab.go_on() {}
    assert_eq!(lab.journal.operations, 1);
    lab.journal.operations = 7 + SUPERFLUOUS_MAX;
    assert!(!lab.journal.wants_snapshot(7) && lab.journal.wants_snapshot(6));
    lab.journal.replace(&Snapshot::empty(&DATA, Membership::default()));
    assert!(!lab.journal.wants_snapshot(0), "it is being written");
    while lab.go_on() {}
    assert_eq!(lab.journal.operations, 0);
}

/// A volume does not fill up as long as the state is small, whatever the number of operations.
#[test]
fn a_small_volume_takes_much() {
    let mut lab = Lab::on(formatted_as(12 << 20), 0);
    let (mut appended, mut snapshots) = (0, 0);
    while appended < 40 << 20 {
        assert!(!lab.journal.is_full(), "after {appended} bytes");
        lab.ask(vec![append(20_000)]);
        appended += 20_000;
        if lab.journal.wants_snapshot(usize::MAX) {
            // As if the records were not retained in the state.
            lab.journal.replace(&Snapshot::empty(&DATA, Membership::default()));
            snapshots += 1;
        }
        while lab.go_on() {}
    }
    assert!(snapshots > 5, "{snapshots}: there is no room for 8 MiB of records");
}

/// A full volume loses nothing: acknowledged operations are there, and later ones are either stored
/// or never acknowledged.
#[test]
fn a_full_volume_says_so_before_it_is_too_late() {
    for seed in 0..2 {
        let mut lab = Lab::on(formatted_as(16 << 20), seed);
        lab.fill();
        let (kept, done) = lab.counts();
        assert_eq!(kept, done, "the last one found room");
        // Further operations are eventually not acknowledged; the next snapshot still fits.
        for _ in 0..100 {
            lab.append(200_000);
        }
        let (kept, done) = lab.counts();
        assert!(kept < done && lab.journal.is_full() && lab.journal.failed().is_none());
        let (found, _) = found(lab.disk);
        assert!((kept..=done).contains(&found), "{found} of {kept}..{done}");
    }
}

#[test]
fn a_full_volume_goes_on_in_a_larger_one() {
    let mut lab = Lab::on(formatted_as(12 << 20), 0);
    lab.fill();
    let (mut small, mut copying) = (open(&mut lab.disk), Copying::begin());
    let mut bring = |store: &mut Store, missing| {
        fetch(store, &mut lab.disk, missing);
        Ok(())
    };
    let mut large = Memory::formatted(&Geometry::for_bytes(24 << 20)).expect("a disk");
    let mut store = open(&mut large);
    while let Some(changes) = copying.next(&mut small, &mut bring).expect("it can be read") {
        let mut outputs = Vec::new();
        store.commit(NOW, Ticket(0), &changes, Durability::Durable, &mut outputs).expect("room");
        settle(&mut store, &mut large, outputs);
    }
    let mut again = Lab::on(large, 0);
    assert_eq!((again.requested, again.replica.current()), (lab.requested, lab.replica.current()));
    again.ask(vec![append(60_000)]);
    while again.go_on() {}
    assert!(!again.journal.is_full());
    assert_eq!(found(again.disk).0, lab.requested + 1);
}

#[test]
fn another_volume_is_no_replica_and_a_damaged_one_is_reported() {
    let mut disk = Memory::formatted(&Geometry::for_bytes(64 << 20)).expect("a disk");
    let store = open(&mut disk);
    let reader = store.reader(View::Present).expect("the present");
    assert_eq!(
        Reading::default().go_on(&reader).expect("all is cached").unwrap_err(),
        Unreadable::NotAReplica
    );
    let spoils = [
        put(SETTINGS, SETTINGS_KEY, b"{}".to_vec()),
        put(SETTINGS, HEAD_KEY, Vec::new()),
        put(SETTINGS, HEAD_KEY, binary::write(&Head { generation: 1, parts: 1, first: 1 })),
        put(RECORDS, &1u64.to_be_bytes(), vec![LAST, 1, 2, 3]),
        put(RECORDS, &1u64.to_be_bytes(), Vec::new()),
        put(RECORDS, &2u64.to_be_bytes(), vec![LAST]),
    ];
    for spoil in spoils {
        let mut disk = formatted();
        let (mut store, mut outputs) = (open(&mut disk), Vec::new());
        let changes = [spoil.clone()];
        store.commit(NOW, Ticket(0), &changes, Durability::Durable, &mut outputs).expect("room");
        settle(&mut store, &mut disk, outputs);
        let reader = store.reader(View::Present).expect("the present");
        let result = Reading::default().go_on(&reader).expect("all is cached");
        assert_eq!(result.unwrap_err(), Unreadable::Damaged, "{spoil:?}");
    }
}

/// A disk failure is reported as such and not as damage.
#[test]
fn unreadable_blocks_are_not_reported_as_damage() {
    let mut lab = Lab::on(formatted(), 0);
    lab.ask(vec![append(500_000)]);
    while lab.go_on() {}
    // Otherwise everything would be replayed from the volume's journal into memory.
    let mut out = Vec::new();
    lab.journal.close(NOW, &mut out);
    lab.to_do.extend(out);
    while lab.go_on() {}
    let mut store = open(&mut lab.disk);
    for error in [store::Error::DiskFailed, store::Error::Damaged] {
        let kept = read_all(&mut store, &mut |_, _| Err(error));
        assert_eq!(kept.err(), Some(Unreadable::Disk(error)));
    }
}
