//! Rollbacks to snapshots, and crashes meanwhile.

use super::*;
use crate::rollback::{self, Rollback};

type Kept = BTreeMap<Vec<u8>, Model>;

impl Rig {
    fn close(&mut self) {
        let checked = self.close_and_check();
        assert_eq!((&checked.findings[..], checked.journaled), (&[][..], 0));
    }

    fn make_snapshot(&mut self, kept: &mut Kept) {
        let (ticket, name) = (Ticket(1 << 44 | self.next), self.next.to_be_bytes().to_vec());
        self.next += 1;
        self.store.snapshot(Instant(self.now), ticket, &name, Time::default(), &mut self.out);
        let model = self.model.clone();
        self.committed(ticket);
        kept.insert(name, model);
    }

    fn drop_snapshot(&mut self, kept: &mut Kept, name: &[u8]) {
        let ticket = Ticket(1 << 44 | self.next);
        self.next += 1;
        self.store.drop_snapshot(Instant(self.now), ticket, name, &mut self.out);
        self.committed(ticket);
        kept.remove(name);
    }

    fn plan(&self, name: &[u8]) -> Result<Rollback, Error> {
        let disk = &self.disk;
        let mut read = |at: u64, count: u32| {
            Some((at..at + u64::from(count)).map(|at| disk.read(at)).collect::<Vec<_>>())
        };
        rollback::plan(&mut read, &disk.head(), name, &mut |_, _| {})
    }

    /// Goes back to a snapshot; the state before is kept. `true`: power failed meanwhile.
    fn roll_back(&mut self, kept: &mut Kept, name: &[u8]) -> bool {
        self.make_snapshot(kept);
        self.close();
        let plan = self.plan(name).unwrap();
        self.reopen();
        let ticket = Ticket(1 << 45 | self.next);
        self.next += 1;
        self.store.roll_back(Instant(self.now), ticket, plan, &mut self.out);
        self.sort_out();
        let target = kept[name].clone();
        if self.rng.u8(0..3) == 0 {
            (self.history, self.durable) = (vec![self.model.clone(), target], 0);
            (0..self.rng.usize(0..30)).for_each(|_| self.progress());
            self.crash();
            return true;
        }
        self.committed(ticket);
        assert!(self.look() == target, "the snapshot is the present state");
        (self.model, self.history, self.durable) = (target.clone(), vec![target], 0);
        false
    }

    fn compare_kept(&mut self, kept: &Kept) {
        let found: Vec<_> =
            self.store.snapshots().map(|(name, id, _)| (name.to_vec(), id)).collect();
        assert_eq!(found.len(), kept.len());
        for (name, id) in found {
            let model = loop {
                match look(&self.store, View::Snapshot(id)) {
                    Ok(model) => break model,
                    Err(missing) => self.fetch(missing),
                }
            };
            assert!(model == kept[&name], "a snapshot stays as it is");
        }
    }

    fn any_name(&mut self, kept: &Kept) -> Option<Vec<u8>> {
        let nth = self.rng.usize(0..kept.len().max(1));
        kept.keys().nth(nth).cloned()
    }
}

#[test]
fn a_rollback_is_there_or_not_and_no_snapshot_changes() {
    let (mut done, mut crashed) = (0, [0; 2]);
    for seed in 0..30 {
        let mut rig = Rig::new(seed);
        let mut kept = Kept::new();
        for _ in 0..250 {
            rig.random_commit();
            match rig.rng.u8(0..60) {
                0..3 if kept.len() < 5 => rig.make_snapshot(&mut kept),
                3 | 4 => {
                    let name = rig.any_name(&kept);
                    name.iter().for_each(|name| rig.drop_snapshot(&mut kept, name));
                }
                5..7 if kept.len() < 6 => {
                    let Some(name) = rig.any_name(&kept) else { continue };
                    let before = rig.model.clone();
                    if rig.roll_back(&mut kept, &name) {
                        crashed[usize::from(rig.model != before)] += 1;
                    } else {
                        done += 1;
                    }
                    rig.compare_kept(&kept);
                }
                7 => rig.crash(),
                _ => {}
            }
        }
        rig.compare_kept(&kept);
        rig.close();
        rig.reopen();
        while let Some(name) = rig.any_name(&kept) {
            rig.drop_snapshot(&mut kept, &name);
        }
        // What only they had is given back: else the check says that nobody uses it.
        rig.settle();
        assert!(rig.store.snapshotting.dropping_is_over(), "seed {seed}");
        rig.close();
        rig.reopen();
        assert!(rig.look() == rig.model, "seed {seed}");
    }
    assert!(done > 50 && crashed.iter().all(|count| *count > 10), "{done} and {crashed:?}");
}

#[test]
fn a_plan_is_refused_that_is_not_of_this_state() {
    let mut rig = Rig::new(2);
    let mut kept = Kept::new();
    rig.random_commit();
    rig.make_snapshot(&mut kept);
    let name = kept.keys().next().unwrap().clone();
    (0..20).for_each(|_| rig.random_commit());
    rig.close();
    assert_eq!(rig.plan(b"another").err(), Some(Error::NotFound));
    let plan = rig.plan(&name).unwrap();
    rig.reopen();
    rig.commit(&[super::tight::put(1, 10)], Durability::Durable);
    let mut out = Vec::new();
    rig.store.roll_back(Instant(rig.now), Ticket(7), plan, &mut out);
    assert!(matches!(out[..], [Output::Committed(Ticket(7), Err(Error::ReadOnly))]), "{out:?}");
    rig.close();
    rig.reopen();
    assert!(rig.look() == rig.model);
}
