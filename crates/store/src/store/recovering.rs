//! Opening of a volume: recovery, replay, and loading of snapshots.

use super::{Job, OWN, Output, Phase, Store, checkpointing, rolling, snapshotting};
use crate::journal::Journal;
use crate::present::Grants;
use crate::recovery;
use crate::{Error, Io, Ticket};
use base::{Automaton, Block, Instant};
use std::mem;

/// Ticket of the fetches of a replay.
const REPLAY: Ticket = Ticket(OWN | 2);
/// Ticket of the fetch of the list of snapshots.
const LOAD: Ticket = Ticket(OWN | 3);

impl Store {
    pub(super) fn begin_recovery(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.step_recovery(now, recovery::Input::Begin, out);
    }

    pub(super) fn recovery_read(
        &mut self,
        now: Instant,
        blocks: Option<Vec<Block>>,
        out: &mut Vec<Output>,
    ) {
        let input = blocks.map_or(recovery::Input::Failed, recovery::Input::Read);
        self.step_recovery(now, input, out);
    }

    pub(super) fn recovery_wrote(&mut self, now: Instant, well: bool, out: &mut Vec<Output>) {
        let input = if well { recovery::Input::Erased } else { recovery::Input::Failed };
        self.step_recovery(now, input, out);
    }

    pub(super) fn recovery_flushed(&mut self, well: bool, out: &mut Vec<Output>) {
        match well {
            _ if !self.is_recovering() => {}
            true => self.opened(out),
            false => self.give_up(self.failures.last(), out),
        }
    }

    /// Returns whether the volume is being recovered, and was not closed meanwhile.
    fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovering(_))
    }

    fn opened(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Open;
        out.push(Output::Opened(Ok(())));
    }

    fn step_recovery(&mut self, now: Instant, input: recovery::Input, out: &mut Vec<Output>) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        let mut outputs = Vec::new();
        recovery.step(now, input, &mut outputs);
        for output in outputs {
            match output {
                recovery::Output::Read(at, count) => {
                    self.submit(Job::Recovery, |id| Io::Read { id, at, count }, out);
                }
                recovery::Output::Erase(at) => {
                    let blocks = vec![Block::zeroed(self.present.layout.block)];
                    let io = |id| Io::Write { id, at, blocks, durable: true };
                    self.submit(Job::Recovery, io, out);
                }
                recovery::Output::Replay(found) => {
                    let layout = self.present.layout;
                    let superblock = &self.superblock;
                    let epoch = superblock.epoch + 1;
                    let tail = superblock.tail.block;
                    self.journal =
                        Journal::new(&layout, superblock.volume, epoch, tail, found.head);
                    self.present.space = found.space;
                    self.recovered = found.records.len();
                    self.replay = found.records;
                    self.replay(now, out);
                }
                recovery::Output::Load => self.load(now, out),
                recovery::Output::Recovered if self.config.read_only => self.opened(out),
                // Replayed batches may be in the disk's cache only, and are acknowledged.
                recovery::Output::Recovered => {
                    self.submit(Job::Recovery, |id| Io::Flush { id }, out);
                }
                recovery::Output::Broken(error) => {
                    self.phase = Phase::Over(error);
                    out.push(Output::Opened(Err(error)));
                }
            }
        }
    }

    /// Applies the records of the journal, as far as the pages are cached.
    fn replay(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some((epoch, mut record)) = self.replay.pop_front() {
            if let Err(missing) = self.present.plan(&record.changes) {
                self.replay.push_front((epoch, record));
                self.fetch(now, REPLAY, missing, out);
                return self.run_own(now, out);
            }
            self.present.epoch = self.present.epoch.max(epoch);
            let mut grants = Grants::replayed(mem::take(&mut record.runs));
            if let Err(error) = self.present.apply(&record.changes, &mut grants) {
                return self.give_up(error, out);
            }
            self.changed_since = Some(now);
        }
        self.journal.set_epoch(self.present.epoch);
        self.step_recovery(now, recovery::Input::Replayed, out);
    }

    /// Loads the list of snapshots, and of those being dropped.
    fn load(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self.load_snapshots() {
            Ok(Some(())) => self.step_recovery(now, recovery::Input::Loaded, out),
            Ok(None) => self.give_up(Error::Damaged, out),
            Err(missing) => {
                self.fetch(now, LOAD, missing, out);
                self.run_own(now, out);
            }
        }
    }

    fn give_up(&mut self, error: Error, out: &mut Vec<Output>) {
        let error = if error == Error::DiskFailed { self.failures.last() } else { error };
        self.phase = Phase::Over(error);
        out.push(Output::Opened(Err(error)));
    }

    /// Records the end of a fetch of the store itself, to be handled when it is safe.
    pub(super) fn own_fetched(&mut self, ticket: Ticket, result: Result<(), Error>) {
        self.snapshotting.fetched.push((ticket, result));
    }

    /// Continues work that waited for pages of the store itself.
    pub(super) fn run_own(&mut self, now: Instant, out: &mut Vec<Output>) {
        for (ticket, result) in mem::take(&mut self.snapshotting.fetched) {
            match (ticket, result) {
                (REPLAY | LOAD, _) if !self.is_recovering() => {}
                (REPLAY | LOAD, Err(error)) => self.give_up(error, out),
                (REPLAY, Ok(())) => self.replay(now, out),
                (LOAD, Ok(())) => self.load(now, out),
                (checkpointing::PREPARE, Ok(())) => self.prepare(now, out),
                // Without that page nothing can be recorded: equivalent to a failed write.
                (checkpointing::PREPARE, Err(_)) => self.fail(now, out),
                // The former state stays on the disk; nothing of the rest may be written.
                (rolling::ROLL, Ok(())) => self.apply_rollback(now, out),
                (rolling::ROLL, Err(_)) => self.fail(now, out),
                (snapshotting::STEP, result) => self.stepped(now, result, out),
                (ticket, _) => unreachable!("{ticket:?} is not the store's own"),
            }
        }
    }
}
