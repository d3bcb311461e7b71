//! All pending requests, indexed by what they wait for unless that is a message: the cost of a turn
//! does not depend on their number.

#[cfg(test)]
mod tests;

use super::pending::Pending;
use super::step::Step;
use crate::request::{Ask, OpenId, RequestId};
use base::Instant;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::{Index, IndexMut};

/// Pending requests, by number. Their steps change only here.
#[derive(Debug, Default)]
pub(super) struct PendingTable {
    slab: Slab<Pending>,
    of: BTreeMap<RequestId, usize>,
    /// Those that wait for a connection.
    queued: BTreeSet<usize>,
    /// Those that wait for the end of a pause.
    paused: BTreeSet<(Instant, usize)>,
    /// Number of readers of each open directory.
    readers: BTreeMap<OpenId, u32>,
    /// Those that wait for these readers.
    behind: BTreeMap<OpenId, BTreeSet<usize>>,
    /// Those whose wait for readers is over.
    due: BTreeSet<usize>,
}

impl PendingTable {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Pending> {
        self.slab.get(slot)
    }

    pub(super) fn iter(&self) -> slab::Iter<'_, Pending> {
        self.slab.iter()
    }

    /// Returns the numbers of all.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.slab.iter().map(|(slot, _)| slot).collect()
    }

    pub(super) fn insert(&mut self, slot: Pending) -> usize {
        let request = slot.request;
        let number = self.slab.insert(slot);
        let before = self.of.insert(request, number);
        assert!(before.is_none(), "{request:?} is in flight already");
        self.enter(number);
        number
    }

    pub(super) fn remove(&mut self, slot: usize) -> Pending {
        self.leave(slot);
        let it = self.slab.remove(slot);
        let known = self.of.remove(&it.request);
        assert_eq!(known, Some(slot), "a request is answered once");
        it
    }

    /// Returns the number of the pending request with this id.
    pub(super) fn of(&self, request: RequestId) -> Option<usize> {
        self.of.get(&request).copied()
    }

    /// Sets the step of a pending request; returns the previous one.
    pub(super) fn wait(&mut self, slot: usize, step: Step) -> Step {
        self.leave(slot);
        let before = mem::replace(&mut self.slab[slot].step, step);
        self.enter(slot);
        before
    }

    /// Returns at most `max` of those that wait for a connection.
    pub(super) fn queued(&self, max: usize) -> Vec<usize> {
        self.queued.iter().take(max).copied().collect()
    }

    pub(super) fn is_any_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Returns the end of the first pause.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        let due = self.due.first().map(|_| Instant(0));
        due.or_else(|| self.paused.first().map(|(until, _)| *until))
    }

    /// Returns one whose pause or wait for readers is over, with the step set to `Queued`.
    pub(super) fn wake(&mut self, now: Instant) -> Option<usize> {
        let paused = self.paused.first().filter(|(until, _)| now >= *until);
        let slot = self.due.first().copied().or_else(|| paused.map(|(_, slot)| *slot))?;
        self.wait(slot, Step::Queued);
        Some(slot)
    }

    /// Returns whether this directory has a reader.
    pub(super) fn is_read(&self, directory: OpenId) -> bool {
        self.readers.contains_key(&directory)
    }

    fn enter(&mut self, slot: usize) {
        let it = &self.slab[slot];
        match it.step {
            Step::Queued => {
                self.queued.insert(slot);
            }
            Step::Paused(until) => {
                self.paused.insert((until, slot));
            }
            Step::Behind => match it.ask {
                Ask::List { open, .. } if self.is_read(open) => {
                    self.behind.entry(open).or_default().insert(slot);
                }
                _ => {
                    self.due.insert(slot);
                }
            },
            Step::Entries(_) => {
                if let Ask::List { open, .. } = it.ask {
                    *self.readers.entry(open).or_default() += 1;
                }
            }
            Step::Recovering(_)
            | Step::Walk(_)
            | Step::Link
            | Step::Look
            | Step::Present(_)
            | Step::Compare
            | Step::Opening(_)
            | Step::Regard(..)
            | Step::Reading(_)
            | Step::Writing(_)
            | Step::Syncing(_)
            | Step::Stats(_)
            | Step::Own(_) => {}
        }
    }

    fn leave(&mut self, slot: usize) {
        let it = &self.slab[slot];
        if let Some(until) = it.step.paused_until() {
            self.paused.remove(&(until, slot));
        }
        self.queued.remove(&slot);
        self.due.remove(&slot);
        let Ask::List { open, .. } = it.ask else { return };
        if let (Step::Behind, Some(behind)) = (&it.step, self.behind.get_mut(&open)) {
            behind.remove(&slot);
            if behind.is_empty() {
                self.behind.remove(&open);
            }
        }
        if let (Step::Entries(_), Some(readers)) = (&it.step, self.readers.get_mut(&open)) {
            *readers -= 1;
            if *readers == 0 {
                self.readers.remove(&open);
                self.due.extend(self.behind.remove(&open).unwrap_or_default());
            }
        }
    }

    pub(super) fn check(&self) {
        assert_eq!(self.of.len(), self.slab.len());
        let (mut queued, mut paused, mut reading, mut behind) = (0, 0, 0, 0);
        for (number, it) in &self.slab {
            assert_eq!(self.of(it.request), Some(number));
            let until = it.step.paused_until();
            assert_eq!(self.queued.contains(&number), matches!(it.step, Step::Queued));
            assert!(until.is_none_or(|until| self.paused.contains(&(until, number))));
            queued += usize::from(matches!(it.step, Step::Queued));
            paused += usize::from(until.is_some());
            behind += usize::from(matches!(it.step, Step::Behind));
            if let (Step::Entries(_), Ask::List { open, .. }) = (&it.step, &it.ask) {
                assert!(self.is_read(*open));
                reading += 1;
            }
        }
        assert_eq!((self.queued.len(), self.paused.len()), (queued, paused));
        assert_eq!(self.readers.values().sum::<u32>(), reading);
        let waiting = self.behind.values().map(BTreeSet::len).sum::<usize>() + self.due.len();
        assert_eq!(waiting, behind);
        assert!(self.behind.keys().all(|open| self.is_read(*open)));
    }
}

impl Index<usize> for PendingTable {
    type Output = Pending;

    fn index(&self, slot: usize) -> &Pending {
        &self.slab[slot]
    }
}

impl IndexMut<usize> for PendingTable {
    fn index_mut(&mut self, slot: usize) -> &mut Pending {
        &mut self.slab[slot]
    }
}
