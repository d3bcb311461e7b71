//! Rollback of the present state to a snapshot.
//!
//! The snapshot's root becomes the present tree's in memory, then the changes of the plan are
//! applied to it, and one checkpoint includes all of that: a crash before it leaves the former
//! state. The journal has no record of it, so no commits are possible meanwhile.

use super::{OWN, Output, Phase, Store};
use crate::btree::Tree;
use crate::present::Grants;
use crate::rollback::Rollback;
use crate::{Change, Error, Ticket};
use base::Instant;
use std::collections::VecDeque;

/// Ticket of the fetches of a rollback.
pub(super) const ROLL: Ticket = Ticket(OWN | 5);

/// Number of blocks left free beside those that a rollback may take.
const FLOOR: u64 = 64;

/// A rollback in progress.
#[derive(Debug)]
pub(super) struct RollbackState {
    ticket: Ticket,
    /// Changes not applied yet.
    changes: VecDeque<Change>,
}

impl Store {
    /// Makes the present state that of a snapshot; [`Output::Committed`] follows. The plan must be
    /// of the present state of the volume: opened, and not changed since.
    ///
    /// # Errors
    /// In [`Output::Committed`]: `ReadOnly` if it has changed, or was not closed before; `NoSpace`
    /// if there is no space for the blocks held by snapshots. Nothing is changed in these cases.
    /// `Damaged` or `DiskFailed`: nothing is written any more, and the former state is found when
    /// the volume is opened again.
    pub fn roll_back(
        &mut self,
        now: Instant,
        ticket: Ticket,
        plan: Rollback,
        out: &mut Vec<Output>,
    ) {
        let clean = self.checkpoint.is_idle()
            && self.changed_since.is_none()
            && self.present.tree.freed.is_empty()
            && self.growing.is_none()
            && plan.epoch == self.superblock.epoch;
        let result = match self.expect_writable() {
            Err(error) => Err(error),
            Ok(()) if !clean => Err(Error::ReadOnly),
            Ok(()) if self.present.space.free_blocks() < self.needed(&plan) => Err(Error::NoSpace),
            Ok(()) => Ok(()),
        };
        if let Err(error) = result {
            return out.push(Output::Committed(ticket, Err(error)));
        }
        let Rollback { root, freed, changes, .. } = plan;
        self.present.tree = match root.at {
            0 => Tree::empty(&mut self.present.cache),
            _ => Tree::at(root),
        };
        self.present.tree.freed = freed;
        self.rolling = Some(RollbackState { ticket, changes: changes.into() });
        self.apply_rollback(now, out);
    }

    /// Returns the number of free blocks needed for a rollback.
    fn needed(&self, plan: &Rollback) -> u64 {
        let layout = &self.present.layout;
        plan.blocks(layout) + layout.reserve().min(FLOOR)
    }

    /// Applies the remaining changes, as far as the pages are cached; then the checkpoint is due.
    pub(super) fn apply_rollback(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some(change) = self.rolling.as_mut().and_then(|all| all.changes.pop_front()) {
            if let Err(missing) = self.present.plan(std::slice::from_ref(&change)) {
                if let Some(rolling) = &mut self.rolling {
                    rolling.changes.push_front(change);
                }
                self.fetch(now, ROLL, missing, out);
                return self.run_own(now, out);
            }
            let mut grants = Grants::default();
            if self.present.apply(&[change], &mut grants).is_err() {
                return self.fail(now, out);
            }
        }
        self.changed_since = Some(now);
        self.begin_checkpoint(now, out);
    }

    /// Returns whether changes of a rollback remain to be applied: no checkpoint may begin.
    pub(super) fn is_applying_rollback(&self) -> bool {
        self.rolling.as_ref().is_some_and(|rolling| !rolling.changes.is_empty())
    }

    /// Returns whether all changes of a rollback are applied, and its checkpoint remains.
    pub(super) fn is_rollback_applied(&self) -> bool {
        self.rolling.as_ref().is_some_and(|rolling| rolling.changes.is_empty())
    }

    /// Ends the rollback when its checkpoint is durable.
    pub(super) fn end_rollback(&mut self, out: &mut Vec<Output>) {
        assert!(!self.is_applying_rollback(), "all was changed before the checkpoint");
        let ended = self.rolling.take();
        out.extend(ended.map(|rolling| Output::Committed(rolling.ticket, Ok(()))));
    }

    /// Fails the rollback; its effect is unknown.
    pub(super) fn refuse_rollback(&mut self, error: Error, out: &mut Vec<Output>) {
        let refused = self.rolling.take();
        out.extend(refused.map(|rolling| Output::Committed(rolling.ticket, Err(error))));
        assert!(self.is_broken() || matches!(self.phase, Phase::Over(_)), "nothing is written");
    }
}
