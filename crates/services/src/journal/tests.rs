//! A journal on a disk whose power fails after each operation.

use super::lab::{DATA, ME, NOW, formatted, kept, open, perform, settings, settle};
use super::reading::Reading;
use super::*;
use crate::Data;
use base::rng::{Rng, seeded};
use replica::data::kind::Operator as Plain;
use replica::data::{DataType as _, log, once};
use replica::service::{Config, Input, Limits, Replica, Ticket as Asked, Vector};
use std::time::Duration;
use store::drive::Memory;
use store::{Geometry, View};

/// A replica with its journal, on a disk.
struct Lab {
    disk: Memory,
    journal: Journal,
    replica: Replica<Data>,
    asked: u64,
    rng: Rng,
}

impl Lab {
    /// A replica that begins with what is on a disk.
    fn on(mut disk: Memory, seed: u64) -> Lab {
        let (store, kept) = kept(&mut disk);
        let journal = Journal::new(0, File(0), store, &kept);
        assert_eq!(kept.settings, settings());
        let config = Config { gossip: Duration::ZERO, limits: Limits::default() };
        let snapshot = kept.snapshot.unwrap_or_else(|| Snapshot::empty(&DATA));
        let replica = Replica::recover(DATA, ME, &[ME], config, snapshot, kept.records);
        Lab { disk, journal, replica, asked: 0, rng: seeded(seed) }
    }

    /// What a client of a log asks for.
    fn operator(&mut self) -> Operator {
        self.asked += 1;
        // Now and then one that takes several parts, or several transactions.
        let length = match self.rng.u32(0..20) {
            0 => self.rng.usize(100_000..900_000),
            1..=3 => self.rng.usize(1000..20_000),
            4.. => self.rng.usize(0..100),
        };
        let operator = Plain::Log(log::Operator::Append(vec![b'x'; length].into()));
        once::Operator { stamp: 0, once: None, forgets: false, operator }
    }

    /// Some operations in one turn; the answers go on to the replica as they come. The power may
    /// fail before any operation on the disk: `crash` is asked.
    fn turn(&mut self, crash: &mut dyn FnMut(&Memory)) {
        let (mut entries, mut last) = (Vec::new(), 0);
        for _ in 0..self.rng.u32(1..5) {
            let operator = self.operator();
            let (ticket, after) = (Asked(self.asked), Vector::new());
            let until = NOW + Duration::from_secs(1);
            let input = Input::Request { ticket, after, strict: false, operator, until };
            let mut said = Vec::new();
            self.replica.step(NOW, input, &mut said);
            for output in said {
                if let replica::service::Output::Persist(number, some) = output {
                    entries.extend(some);
                    last = number;
                }
            }
        }
        self.journal.append(last, &entries);
        if self.rng.u32(0..6) == 0 {
            self.journal.replace(&self.replica.snapshot());
        }
        let mut out = Vec::new();
        self.journal.tick(NOW, &mut out);
        let mut to_do = VecDeque::from(out);
        while let Some(output) = to_do.pop_front() {
            let mut more = Vec::new();
            match output {
                Output::Do(op) => {
                    crash(&self.disk);
                    let (id, done) = perform(&mut self.disk, op);
                    self.journal.done(NOW, id.0, done, &mut more);
                }
                Output::Persisted(number) => {
                    self.replica.step(NOW, Input::Persisted(number), &mut Vec::new());
                }
                Output::Failed(error) => panic!("{error}"),
            }
            if more.is_empty() && to_do.is_empty() {
                self.journal.tick(NOW, &mut more);
            }
            to_do.extend(more);
        }
        self.journal.check();
    }
}

/// How many operations a replica has for good that begins with what is on a disk, and its state.
fn found(mut disk: Memory) -> (u64, <Data as replica::data::DataType>::State) {
    disk.lose_power();
    let mut lab = Lab::on(disk, 0);
    (lab.replica.has().get(ME), lab.replica.current().clone())
}

#[test]
fn whenever_the_power_fails_what_was_acknowledged_is_there() {
    for seed in 0..6 {
        let mut lab = Lab::on(formatted(), seed);
        let mut cuts = seeded(seed);
        for _ in 0..25 {
            let acked = lab.replica.has().get(ME);
            let (mut disks, mut rng) = (Vec::new(), cuts.fork());
            lab.turn(&mut |disk: &Memory| {
                if rng.u32(0..12) == 0 {
                    disks.push(disk.clone());
                }
            });
            let done = lab.replica.done().get(ME);
            assert_eq!(lab.replica.has().get(ME), done, "the turn is kept");
            for disk in disks {
                let (found, state) = found(disk);
                assert!((acked..=done).contains(&found), "seed {seed}: {found} of {acked}..{done}");
                let mut state = state;
                let size = once::Operator {
                    stamp: 0,
                    once: None,
                    forgets: false,
                    operator: Plain::Log(log::Operator::Size),
                };
                let count = DATA.apply(&mut state, &size);
                assert_eq!(count, replica::data::Value::Integer(found.into()), "each once");
            }
        }
        // And it goes on from there.
        let (count, state) = found(lab.disk.clone());
        assert_eq!((count, &state), (lab.asked, lab.replica.current()));
        let mut disk = lab.disk;
        disk.lose_power();
        let mut again = Lab::on(disk, seed + 100);
        again.asked = count;
        again.turn(&mut |_| {});
        assert_eq!(found(again.disk).0, again.asked);
    }
}

#[test]
fn another_volume_is_no_replica_and_a_spoilt_one_is_said_to_be() {
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
        let (mut store, mut said) = (open(&mut disk), Vec::new());
        let changes = [spoil.clone()];
        store.commit(NOW, Ticket(0), &changes, Durability::Durable, &mut said).expect("room");
        settle(&mut store, &mut disk, said);
        let reader = store.reader(View::Present).expect("the present");
        let result = Reading::default().go_on(&reader).expect("all is cached");
        assert_eq!(result.unwrap_err(), Unreadable::Damaged, "{spoil:?}");
    }
}
