//! Creation and dropping of snapshots.

use super::committing::Claim;
use super::{OWN, Output, Phase, Refusal, SnapshotEntry, Store};
use crate::missing::{Missing, Want};
use crate::snapshots::{self, DEAD, DROPPING, SNAPSHOTS, SNAPSHOTS_MAX, Snapshot, Snapshots};
use crate::{Change, Durability, Error, SnapshotId, Ticket};
use base::{Instant, Time};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;

/// Ticket of the fetches of a step.
pub(super) const STEP: Ticket = Ticket(OWN | 4);

/// Maximum number of dead list entries processed in one turn.
const STEPS: usize = 16;

/// A requested snapshot.
#[derive(Debug)]
struct SnapshotRequest {
    ticket: Ticket,
    name: Vec<u8>,
    date: Time,
}

/// A step that waits for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Recording of the coming snapshot.
    Make,
    /// Dropping of the first snapshot to be dropped.
    Drop,
    /// Freeing of blocks that only dropped snapshots contained.
    Reap,
}

/// State of the creation and dropping of snapshots.
#[derive(Debug, Default)]
pub(super) struct Snapshotting {
    /// Requests that wait for a checkpoint to begin.
    requested: VecDeque<SnapshotRequest>,
    /// The snapshot whose checkpoint is in progress, or durable and not yet recorded.
    coming: Option<(SnapshotRequest, SnapshotId)>,
    /// Snapshots to be dropped.
    drops: VecDeque<(Ticket, Vec<u8>)>,
    /// Epochs of dropped snapshots whose blocks are being freed.
    dropping: BTreeSet<u64>,
    /// The step that waits for pages.
    waiting: Option<Step>,
    /// Time of the next attempt to free blocks after a failure; earlier after a checkpoint.
    resting: Option<Instant>,
    /// Ended fetches of the store itself, not handled yet.
    pub(super) fetched: Vec<(Ticket, Result<(), Error>)>,
}

impl Snapshotting {
    pub(super) fn is_asked(&self) -> bool {
        !self.requested.is_empty()
    }

    pub(super) fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// Returns whether all blocks of dropped snapshots are freed.
    #[cfg(test)]
    pub(super) fn dropping_is_over(&self) -> bool {
        self.dropping.is_empty()
    }

    /// Makes a frozen checkpoint the first requested snapshot.
    pub(super) fn frozen(&mut self, id: SnapshotId, snapshots: &mut Snapshots) {
        if let Some(wanted) = self.requested.pop_front() {
            assert!(self.coming.is_none(), "snapshots are made one after the other");
            self.coming = Some((wanted, id));
            snapshots.expect(id);
        }
    }

    /// Resumes freeing after a checkpoint, which has made space.
    pub(super) fn wake(&mut self) {
        self.resting = None;
    }
}

impl Store {
    /// Creates a snapshot of the present state; [`Output::Committed`] follows, with `Exists` if the
    /// name is taken, `TooLarge` if it is too long, `NoSpace` if there are too many.
    pub fn snapshot(
        &mut self,
        now: Instant,
        ticket: Ticket,
        name: &[u8],
        date: Time,
        out: &mut Vec<Output>,
    ) {
        let coming = self.snapshotting.coming.iter().map(|(wanted, _)| wanted);
        let mut to_come = self.snapshotting.requested.iter().chain(coming);
        let all = self.snapshots.len() + to_come.clone().count();
        let taken =
            self.snapshots.named(name).is_some() || to_come.any(|wanted| wanted.name == name);
        let long = name.is_empty() || name.len() > self.present.layout.snapshot_name_max();
        let result = match self.expect_writable() {
            Err(error) => Err(error),
            Ok(()) if taken => Err(Error::Exists),
            Ok(()) if long => Err(Error::TooLarge),
            Ok(()) if all >= SNAPSHOTS_MAX => Err(Error::NoSpace),
            Ok(()) => Ok(()),
        };
        match result {
            Err(error) => out.push(Output::Committed(ticket, Err(error))),
            Ok(()) => {
                self.snapshotting.requested.push_back(SnapshotRequest {
                    ticket,
                    name: name.to_vec(),
                    date,
                });
                self.begin_checkpoint(now, out);
            }
        }
    }

    /// Drops a snapshot; [`Output::Committed`] follows, with `NotFound` if there is none of that
    /// name. Blocks that only it contained become free in steps.
    pub fn drop_snapshot(
        &mut self,
        now: Instant,
        ticket: Ticket,
        name: &[u8],
        out: &mut Vec<Output>,
    ) {
        self.snapshotting.drops.push_back((ticket, name.to_vec()));
        self.step_snapshots(now, out);
    }

    /// Iterates over the snapshots, oldest first.
    pub fn snapshots(&self) -> impl Iterator<Item = SnapshotEntry<'_>> {
        self.snapshots.iter().map(|snapshot| (&snapshot.name[..], snapshot.id, snapshot.date))
    }

    /// Returns the time of the next step that waits for nothing else.
    pub(super) fn next_step(&self) -> Option<Instant> {
        let state = &self.snapshotting;
        let open = matches!(self.phase, Phase::Open) && state.waiting.is_none();
        if open && (self.is_durable() || !state.drops.is_empty()) {
            return Some(Instant(0));
        }
        let reaping = open && !state.dropping.is_empty() && self.may_reap();
        reaping.then(|| state.resting.unwrap_or_default())
    }

    /// Returns whether the checkpoint of the coming snapshot is durable.
    fn is_durable(&self) -> bool {
        let coming = self.snapshotting.coming.as_ref();
        coming.is_some_and(|(_, id)| self.superblock.epoch >= id.0)
    }

    /// Continues creation and dropping, as far as possible without waiting.
    pub(super) fn step_snapshots(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.is_durable() && self.snapshotting.waiting.is_none() {
            self.write_down(now, out);
        }
        while self.snapshotting.waiting.is_none()
            && let Some((ticket, name)) = self.snapshotting.drops.pop_front()
        {
            self.drop_one(now, (ticket, name), out);
        }
        for _ in 0..STEPS {
            let state = &self.snapshotting;
            let rested = state.resting.is_none_or(|until| until <= now);
            let ready = rested && state.waiting.is_none() && self.may_reap();
            let Some(epoch) = state.dropping.first().copied().filter(|_| ready) else { return };
            self.reap(now, epoch, out);
        }
    }

    /// Returns whether dead lists may be processed. Requests that wait for space come first. And
    /// entries recorded by a checkpoint in progress would be missing after a crash, but the journal
    /// would claim that they were processed.
    fn may_reap(&self) -> bool {
        let open = matches!(self.phase, Phase::Open) && self.expect_writable().is_ok();
        open && !self.is_broken() && self.checkpoint.is_idle() && self.fetching.room.is_empty()
    }

    /// Records the name of the coming snapshot, whose checkpoint is durable.
    fn write_down(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Some((wanted, id)) = self.snapshotting.coming.take() else { return };
        let (root, date) = (self.superblock.root, wanted.date);
        let snapshot = Snapshot { name: wanted.name.clone(), id, root, date };
        let changes = [snapshot.to_change()];
        let whose = (wanted.ticket, Claim::Own);
        match self.commit_as(now, whose, &changes, Durability::Durable, out) {
            Ok(()) => self.snapshots.settle(Some(snapshot)),
            Err(Refusal::Missing(missing)) if !missing.0.contains(&Want::Room) => {
                self.snapshotting.coming = Some((wanted, id));
                self.wait(now, Step::Make, missing, out);
            }
            Err(refusal) => {
                // No other checkpoint is possible before this is settled, so a retry would be
                // futile.
                let error = match refusal {
                    Refusal::Failed(error) => error,
                    Refusal::Missing(_) => Error::NoSpace,
                };
                self.unmake((wanted, id), error, out);
            }
        }
    }

    /// Abandons the coming snapshot, and frees the blocks held for it.
    fn unmake(
        &mut self,
        coming: (SnapshotRequest, SnapshotId),
        error: Error,
        out: &mut Vec<Output>,
    ) {
        let (wanted, id) = coming;
        self.snapshots.settle(None);
        self.snapshotting.dropping.insert(id.0);
        out.push(Output::Committed(wanted.ticket, Err(error)));
    }

    fn drop_one(&mut self, now: Instant, drop: (Ticket, Vec<u8>), out: &mut Vec<Output>) {
        let (ticket, name) = drop;
        let Some(id) = self.snapshots.named(&name).map(|snapshot| snapshot.id) else {
            return out.push(Output::Committed(ticket, Err(Error::NotFound)));
        };
        let key = id.0.to_be_bytes().to_vec();
        let changes = [
            Change::Delete { table: SNAPSHOTS, key: name.clone() },
            Change::Put { table: DROPPING, key, value: Vec::new() },
        ];
        match self.commit_as(now, (ticket, Claim::Own), &changes, Durability::Durable, out) {
            Ok(()) => {
                self.snapshots.remove(id);
                self.snapshotting.dropping.insert(id.0);
            }
            Err(Refusal::Failed(error)) => out.push(Output::Committed(ticket, Err(error))),
            Err(Refusal::Missing(missing)) => {
                self.snapshotting.drops.push_front((ticket, name));
                self.wait(now, Step::Drop, missing, out);
            }
        }
    }

    /// Processes one entry of a dead list, or ends the drop.
    fn reap(&mut self, now: Instant, epoch: u64, out: &mut Vec<Output>) {
        let changes = match self.plan_reap(epoch) {
            Ok(changes) => changes,
            Err(missing) => return self.wait(now, Step::Reap, missing, out),
        };
        let over = matches!(changes[..], [Change::Delete { table: DROPPING, .. }]);
        match self.commit_as(now, (STEP, Claim::Own), &changes, Durability::Soon, out) {
            Ok(()) if over => drop(self.snapshotting.dropping.remove(&epoch)),
            Ok(()) => {}
            Err(Refusal::Missing(missing)) => self.wait(now, Step::Reap, missing, out),
            Err(Refusal::Failed(_)) => self.rest(now),
        }
    }

    fn plan_reap(&self, epoch: u64) -> Result<Vec<Change>, Missing> {
        let owner = epoch.to_be_bytes();
        let found = self.present.reader().seek(DEAD, &owner)?;
        let Some((key, value)) = found.filter(|(key, _)| key.starts_with(&owner)) else {
            return Ok(vec![Change::Delete { table: DROPPING, key: owner.to_vec() }]);
        };
        // The blocks of an invalid entry stay in use; a check of the volume reports them.
        let runs = snapshots::decode_dead(&value.bytes()).unwrap_or_default();
        Ok(snapshots::reap(key, &runs, self.snapshots.before(epoch)))
    }

    /// Pauses freeing until there may be more space, or the disk may work again.
    fn rest(&mut self, now: Instant) {
        self.snapshotting.resting = Some(now + self.config.interval);
    }

    fn wait(&mut self, now: Instant, step: Step, missing: Missing, out: &mut Vec<Output>) {
        assert!(self.snapshotting.waiting.is_none(), "one step waits at a time");
        self.snapshotting.waiting = Some(step);
        self.fetch(now, STEP, missing, out);
        self.run_own(now, out);
    }

    /// Loads the snapshots after opening; `None` if the list is invalid.
    pub(super) fn load_snapshots(&mut self) -> Result<Option<()>, Missing> {
        let (mut found, mut dropping) = (Vec::new(), BTreeSet::new());
        let reader = self.present.reader();
        reader.scan(SNAPSHOTS, b"", &mut |name, value| {
            found.push(Snapshot::decode(name, &value.bytes()));
            ControlFlow::Continue(())
        })?;
        reader.scan(DROPPING, b"", &mut |key, _| {
            dropping.extend(key.try_into().map(u64::from_be_bytes));
            ControlFlow::Continue(())
        })?;
        for snapshot in found {
            let Some(snapshot) = snapshot else { return Ok(None) };
            self.snapshots.settle(Some(snapshot));
        }
        self.snapshotting.dropping = dropping;
        Ok(Some(()))
    }

    /// Handles the fetch of a page for a step; a failure concerns that step only.
    pub(super) fn stepped(
        &mut self,
        now: Instant,
        result: Result<(), Error>,
        out: &mut Vec<Output>,
    ) {
        let (step, Err(error)) = (self.snapshotting.waiting.take(), result) else { return };
        match step {
            Some(Step::Make) => {
                if let Some(coming) = self.snapshotting.coming.take() {
                    self.unmake(coming, error, out);
                }
            }
            Some(Step::Drop) => {
                let first = self.snapshotting.drops.pop_front();
                out.extend(first.map(|(ticket, _)| Output::Committed(ticket, Err(error))));
            }
            Some(Step::Reap) => self.rest(now),
            // The disk failed, and all requests were answered.
            None => {}
        }
    }

    /// Asserts that waiting requests agree with the snapshots, while the disk works.
    pub(super) fn check_snapshotting(&self) {
        let state = &self.snapshotting;
        let coming = state.coming.as_ref().map(|(_, id)| *id);
        assert_eq!(self.snapshots.coming(), coming, "later needs are kept");
        match state.waiting {
            Some(Step::Make) => assert!(self.is_durable(), "it is named when it is durable"),
            Some(Step::Drop) => assert!(!state.drops.is_empty(), "one is to be dropped"),
            Some(Step::Reap) => assert!(!state.dropping.is_empty(), "one was dropped"),
            None => {}
        }
        assert!(state.fetched.is_empty(), "a fetch is handled in the same step");
        let wanted = state.requested.len() + usize::from(coming.is_some());
        assert!(wanted <= SNAPSHOTS_MAX, "{wanted} snapshots are wanted");
    }

    /// Fails all pending requests.
    pub(super) fn refuse_snapshots(&mut self, error: Error, out: &mut Vec<Output>) {
        let state = &mut self.snapshotting;
        let coming = state.coming.take().map(|(wanted, _)| wanted.ticket);
        let requested = state.requested.drain(..).map(|wanted| wanted.ticket);
        let drops = state.drops.drain(..).map(|(ticket, _)| ticket);
        let all: Vec<Ticket> = coming.into_iter().chain(requested).chain(drops).collect();
        out.extend(all.into_iter().map(|one| Output::Committed(one, Err(error))));
    }
}
