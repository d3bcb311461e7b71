//! Checkpoints.

use super::{Job, OWN, Output, Phase, Store};
use crate::checkpoint::{self, freeze};
use crate::journal;
use crate::missing::Missing;
use crate::segment;
use crate::{Io, SnapshotId, Superblock, Ticket};
use base::{Automaton, Instant};

/// Ticket of the fetch of pages before a freeze.
pub(super) const PREPARE: Ticket = Ticket(OWN | 1);

/// A checkpoint in progress.
#[derive(Debug)]
pub(super) struct Sealing {
    superblock: Superblock,
    /// Number of blocks written by the journal before the state was fixed.
    journal: u64,
}

impl Store {
    /// Returns whether a checkpoint should begin.
    pub(super) fn wants_checkpoint(&self, now: Instant) -> bool {
        let waits = self.snapshotting.is_coming() || self.is_applying_rollback();
        if self.config.read_only || self.is_broken() || waits {
            return false;
        }
        let cache = &self.present.cache;
        let (used, ring) = self.journal.fill();
        let late = self.changed_since.is_some_and(|at| at + self.config.interval <= now);
        let closing = matches!(self.phase, Phase::Closing(_)) && self.changed_since.is_some();
        // A quarter is left for changes during the checkpoint.
        used > ring - ring / 4
            || cache.dirty() > self.config.dirty / 2
            || !self.fetching.room.is_empty()
            || self.snapshotting.is_asked()
            || self.is_growth_due()
            || self.is_rollback_applied()
            || closing
            || late
    }

    pub(super) fn begin_checkpoint(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.checkpoint.is_idle() && self.wants_checkpoint(now) {
            self.step_checkpoint(now, true, checkpoint::Input::Begin, out);
        }
    }

    /// Steps the checkpoint machine, and performs its outputs.
    pub(super) fn step_checkpoint(
        &mut self,
        now: Instant,
        well: bool,
        input: checkpoint::Input,
        out: &mut Vec<Output>,
    ) {
        if !well {
            return self.fail(now, out);
        }
        let mut outputs = Vec::new();
        self.checkpoint.step(now, input, &mut outputs);
        for output in outputs {
            match output {
                checkpoint::Output::Prepare => self.prepare(now, out),
                checkpoint::Output::Freeze => self.freeze(now, out),
                checkpoint::Output::Flush => {
                    self.submit(Job::CheckpointFlush, |id| Io::Flush { id }, out);
                }
                checkpoint::Output::Seal => self.seal(out),
                checkpoint::Output::Release => self.release(now, out),
            }
        }
    }

    /// Fetches the pages that freezing will change.
    pub(super) fn prepare(&mut self, now: Instant, out: &mut Vec<Output>) {
        let mut missing = Missing(Vec::new());
        for key in freeze::keys(&self.snapshots, &self.present) {
            let (cache, root) = (&self.present.cache, self.present.tree.root);
            missing.0.extend(crate::btree::way_to(cache, root, &key).err());
        }
        if missing.0.is_empty() {
            self.step_checkpoint(now, true, checkpoint::Input::Prepared, out);
        } else {
            self.fetch(now, PREPARE, missing, out);
            self.run_own(now, out);
        }
    }

    /// Fixes the state to write, and writes it.
    fn freeze(&mut self, now: Instant, out: &mut Vec<Output>) {
        assert!(self.sealing.is_none(), "checkpoints follow each other");
        self.step_journal(now, journal::Input::Seal(self.present.epoch + 1), out);
        let (tail, written) = (self.journal.head(), self.journal.written());
        let map = 1 - self.superblock.map;
        let epoch = self.present.epoch;
        self.begin_growth();
        let frozen = freeze::freeze(&mut self.present, &self.snapshots, map as usize);
        let Ok(frozen) = frozen else { return self.fail(now, out) };
        let (root, index_sum) = (frozen.root, frozen.index_sum);
        let layout = self.present.layout;
        let superblock =
            Superblock { epoch, map, index_sum, root, tail, layout, ..self.superblock.clone() };
        let copies = self.write_copies(&superblock, out);
        self.sealing = Some(Sealing { superblock, journal: written });
        self.changed_since = None;
        self.snapshotting.frozen(SnapshotId(epoch), &mut self.snapshots);
        let writes = self.write_frozen(frozen, out) + copies;
        self.step_checkpoint(now, true, checkpoint::Input::Frozen(writes), out);
    }

    /// Starts the writes; returns the number of segments to close and of other writes.
    fn write_frozen(&mut self, frozen: freeze::Frozen, out: &mut Vec<Output>) -> u32 {
        let mut waits = 0;
        for (segment, runs) in frozen.segments {
            let count = u32::try_from(runs.len()).expect("segments are small");
            self.present.space.step_segment(segment, segment::Input::Close(count));
            waits += 1;
            for (at, blocks) in runs {
                let job = Job::Segment(segment, at, blocks.len());
                self.submit(job, |id| Io::Write { id, at, blocks, durable: false }, out);
            }
        }
        // The others are open, but nothing in them was changed.
        for segment in self.present.space.open_segments() {
            self.present.space.close_unchanged(segment);
        }
        for (at, blocks) in frozen.map {
            waits += 1;
            self.submit(Job::Map, |id| Io::Write { id, at, blocks, durable: false }, out);
        }
        waits
    }

    /// Handles the completion of a write of a segment's blocks.
    pub(super) fn segment_written(
        &mut self,
        now: Instant,
        (segment, at, count): (usize, u64, usize),
        well: bool,
        out: &mut Vec<Output>,
    ) {
        let input = if well { segment::Input::Written } else { segment::Input::Failed };
        if well {
            self.present.cache.written(at, count);
        }
        for output in self.present.space.step_segment(segment, input) {
            match output {
                segment::Output::Closed => {
                    self.step_checkpoint(now, true, checkpoint::Input::Written, out);
                }
                segment::Output::Broken => self.fail(now, out),
                segment::Output::Flush => unreachable!("its writes are in flight"),
            }
        }
    }

    fn seal(&mut self, out: &mut Vec<Output>) {
        let superblock = &self.sealing.as_ref().expect("it was frozen").superblock;
        assert!(superblock.epoch > self.superblock.epoch, "a checkpoint is newer than the last");
        assert_ne!(superblock.map, self.superblock.map, "the map on the disk is not touched");
        let raised = superblock.version() != self.superblock.version();
        let at = if raised { self.superblock.at() } else { superblock.at() };
        let blocks = vec![superblock.encode()];
        self.submit(Job::Superblock, |id| Io::Write { id, at, blocks, durable: true }, out);
    }

    /// Completes the checkpoint when it is durable.
    fn release(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Sealing { superblock, journal } = self.sealing.take().expect("it was frozen");
        assert!(self.checkpoint.is_idle(), "the superblock is durable");
        self.superblock = superblock;
        self.journal.release(journal);
        for run in self.present.space.release() {
            for at in run.at..run.at + u64::from(run.count) {
                self.present.cache.forget(at);
                self.void(at, out);
            }
        }
        self.present.cache.evict();
        self.end_growth(out);
        self.end_rollback(out);
        self.snapshotting.wake();
        if self.fetching.room.is_empty() {
            self.step_snapshots(now, out);
        }
        // The space is for requests that waited for it; the store's own steps follow with the next
        // tick.
        self.give_room(out);
        self.run_own(now, out);
        self.end_closing(out);
    }
}
