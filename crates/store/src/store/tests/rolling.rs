//! Rollbacks to snapshots, and crashes meanwhile.

use super::*;
use crate::rollback::{self, Rollback};
use crate::snapshots::DEAD;

type Models = BTreeMap<Vec<u8>, Model>;

impl Rig {
    fn close(&mut self) {
        let checked = self.close_and_check();
        assert_eq!((&checked.findings[..], checked.journaled), (&[][..], 0));
    }

    fn make_snapshot(&mut self, models: &mut Models) {
        let (ticket, name) = (Ticket(1 << 44 | self.next), self.next.to_be_bytes().to_vec());
        self.next += 1;
        self.store.snapshot(Instant(self.now), ticket, &name, Time::default(), &mut self.out);
        let model = self.model.clone();
        self.committed(ticket);
        models.insert(name, model);
    }

    fn drop_snapshot(&mut self, models: &mut Models, name: &[u8]) {
        let ticket = Ticket(1 << 44 | self.next);
        self.next += 1;
        self.store.drop_snapshot(Instant(self.now), ticket, name, &mut self.out);
        self.committed(ticket);
        models.remove(name);
    }

    fn plan(&self, name: &[u8]) -> Result<Rollback, Error> {
        let disk = &self.disk;
        let mut read = |at: u64, count: u32| {
            Some((at..at + u64::from(count)).map(|at| disk.read(at)).collect::<Vec<_>>())
        };
        rollback::plan(&mut read, &disk.head(), name)
    }

    /// Starts a rollback to a snapshot, without a snapshot of the present state.
    fn begin_rollback(&mut self, name: &[u8]) -> Ticket {
        self.close();
        let plan = self.plan(name).unwrap();
        self.reopen();
        let ticket = Ticket(1 << 45 | self.next);
        self.next += 1;
        self.store.roll_back(Instant(self.now), ticket, plan, &mut self.out);
        self.sort_out();
        ticket
    }

    /// Rolls back to a snapshot, after making one of the present state. Returns `true` if power
    /// failed meanwhile.
    fn roll_back(&mut self, models: &mut Models, name: &[u8]) -> bool {
        self.make_snapshot(models);
        let ticket = self.begin_rollback(name);
        let target = models[name].clone();
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

    fn compare_snapshots(&mut self, models: &Models) {
        let found: Vec<_> =
            self.store.snapshots().map(|(name, id, _)| (name.to_vec(), id)).collect();
        assert_eq!(found.len(), models.len());
        for (name, id) in found {
            let model = loop {
                match look(&self.store, View::Snapshot(id)) {
                    Ok(model) => break model,
                    Err(missing) => self.fetch(missing),
                }
            };
            assert!(model == models[&name], "a snapshot stays as it is");
        }
    }

    fn any_name(&mut self, models: &Models) -> Option<Vec<u8>> {
        let nth = self.rng.usize(0..models.len().max(1));
        models.keys().nth(nth).cloned()
    }
}

#[test]
fn a_rollback_is_there_or_not_and_no_snapshot_changes() {
    let (mut done, mut crashed) = (0, [0; 2]);
    for seed in 0..30 {
        let mut rig = Rig::new(seed);
        let mut models = Models::new();
        for _ in 0..250 {
            rig.random_commit();
            match rig.rng.u8(0..60) {
                0..3 if models.len() < 5 => rig.make_snapshot(&mut models),
                3 | 4 => {
                    let name = rig.any_name(&models);
                    name.iter().for_each(|name| rig.drop_snapshot(&mut models, name));
                }
                5..7 if models.len() < 6 => {
                    let Some(name) = rig.any_name(&models) else { continue };
                    let before = rig.model.clone();
                    if rig.roll_back(&mut models, &name) {
                        crashed[usize::from(rig.model != before)] += 1;
                    } else {
                        done += 1;
                    }
                    rig.compare_snapshots(&models);
                }
                7 => rig.crash(),
                _ => {}
            }
        }
        rig.compare_snapshots(&models);
        rig.close();
        rig.reopen();
        while let Some(name) = rig.any_name(&models) {
            rig.drop_snapshot(&mut models, &name);
        }
        // Blocks that only they contained are freed: otherwise the check reports them as unused.
        rig.settle();
        assert!(rig.store.snapshotting.dropping_is_over(), "seed {seed}");
        rig.close();
        rig.reopen();
        assert!(rig.look() == rig.model, "seed {seed}");
    }
    assert!(done > 50 && crashed.iter().all(|count| *count > 10), "{done} and {crashed:?}");
}

impl Rig {
    /// Writes to fifty objects: offset, and number of bytes. Five blocks at once become one extent.
    fn write_objects(&mut self, pieces: &[(u64, usize)]) {
        for object in 10..60 {
            for (offset, length) in pieces.iter().copied() {
                let data = vec![self.rng.u8(1..); length];
                assert!(self.try_commit(Change::Write { table: RAW, object, offset, data }));
            }
        }
    }

    /// Creates a snapshot; returns its name.
    fn snapshot_named(&mut self, models: &mut Models) -> Vec<u8> {
        self.make_snapshot(models);
        self.store.snapshots().last().unwrap().0.to_vec()
    }
}

/// Returns the entries of dead lists that a plan changes.
fn changes_of_lists(plan: &Rollback) -> Vec<&[u8]> {
    let keys = plan.changes.iter().filter_map(|change| match change {
        Change::Put { table: DEAD, key, .. } | Change::Delete { table: DEAD, key } => {
            Some(&key[..])
        }
        _ => None,
    });
    keys.collect()
}

#[test]
fn a_list_with_divided_entries_takes_those_of_the_checkpoint() {
    let mut rig = Rig::new(7);
    let mut models = Models::new();
    rig.write_objects(&[(0, 2560)]);
    let whole = rig.snapshot_named(&mut models);
    rig.write_objects(&[(0, 1024), (1536, 1024)]);
    let third_blocks = rig.snapshot_named(&mut models);
    let ticket = rig.begin_rollback(&whole);
    rig.committed(ticket);
    // The newest snapshot's list gets whole extents, of which it contains the third block only.
    for object in (10..60).step_by(2) {
        let cut = Change::Cut { table: RAW, object, from: 0, to: u64::MAX };
        assert!(rig.try_commit(cut));
    }
    rig.close();
    let plan = rig.plan(&third_blocks).unwrap();
    let newest = rig.store.snapshots().last().unwrap().1.0.to_be_bytes();
    let lists = changes_of_lists(&plan);
    let divided = lists.iter().filter(|key| key.starts_with(&newest) && key[16] == 0x80);
    assert!(divided.count() > 5, "{lists:?}");
    assert!(plan.freed.len() > 40, "{} runs leave the present tree", plan.freed.len());
    rig.reopen();
    let ticket = rig.begin_rollback(&third_blocks);
    rig.committed(ticket);
    rig.close();
}

#[test]
fn entries_of_lists_that_both_states_have_stay() {
    let mut rig = Rig::new(8);
    let mut models = Models::new();
    for _ in 0..8 {
        rig.write_objects(&[(0, 2560)]);
        rig.make_snapshot(&mut models);
    }
    let newest = rig.store.snapshots().last().unwrap().0.to_vec();
    rig.write_objects(&[(0, 512)]);
    rig.close();
    // All lists but the newest are equal, and that one is empty in both states.
    let plan = rig.plan(&newest).unwrap();
    assert_eq!(changes_of_lists(&plan), [[0_u8; 0]; 0], "{:?}", plan.changes);
    assert!(plan.pages > 10, "there are lists");
    rig.reopen();
    let ticket = rig.begin_rollback(&newest);
    let mut dirty = 0;
    while !rig.outputs.iter().any(|output| matches!(output, Output::Committed(..))) {
        rig.progress();
        dirty = dirty.max(rig.store.counts().dirty.0);
    }
    rig.committed(ticket);
    assert!(dirty < 30, "{dirty} blocks were changed");
    rig.close();
}

#[test]
fn no_checkpoint_begins_before_all_changes_of_a_rollback_are_applied() {
    let mut rig = Rig::new(9);
    let mut models = Models::new();
    for _ in 0..8 {
        rig.write_objects(&[(0, 512)]);
        rig.make_snapshot(&mut models);
    }
    let newest = rig.store.snapshots().last().unwrap().0.to_vec();
    // The newest has their lists, which must be removed from its state again.
    for name in models.keys().filter(|name| **name != newest).cloned().collect::<Vec<_>>() {
        rig.drop_snapshot(&mut models, &name);
    }
    rig.settle();
    let ticket = rig.begin_rollback(&newest);
    // From now on a checkpoint is due after every change.
    rig.store.config.dirty = 0;
    let mut due = 0;
    while rig.store.is_applying_rollback() {
        assert!(rig.store.checkpoint.is_idle());
        due += u32::from(rig.store.present.cache.dirty() > 0);
        rig.progress();
    }
    assert!(due > 5, "{due} times a checkpoint was due");
    rig.committed(ticket);
    rig.store.config.dirty = config().dirty;
    rig.close();
}

#[test]
fn a_rollback_asks_for_room_for_the_bytes_that_it_writes() {
    let layout = Geometry { block: 4096, ..GEOMETRY }.layout().unwrap();
    let change = |number: u32| Change::Put {
        table: DEAD,
        key: number.to_be_bytes().repeat(5),
        value: vec![0; 80],
    };
    let changes: Vec<Change> = (0..10_000).map(change).collect();
    let root = crate::page::Ptr::default();
    let plan = Rollback { epoch: 1, root, freed: Vec::new(), changes, pages: 0 };
    let blocks = plan.blocks(&layout);
    // 35 entries fit into a page, so 286 pages would suffice.
    assert!((300..700).contains(&blocks), "{blocks} blocks");
}

#[test]
fn a_plan_is_refused_that_is_not_of_this_state() {
    let mut rig = Rig::new(2);
    let mut models = Models::new();
    rig.random_commit();
    rig.make_snapshot(&mut models);
    let name = models.keys().next().unwrap().clone();
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
