//! All errands, and which of them wait for anything but a message: a turn looks at those that it
//! is about, however many there are.

#[cfg(test)]
mod tests;

use super::errand::{Errand, Step};
use crate::request::{Ask, OpenId, RequestId};
use base::Instant;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::{Index, IndexMut};

/// All of them, by number. Their steps change only here.
#[derive(Debug, Default)]
pub(super) struct Errands {
    slab: Slab<Errand>,
    of: BTreeMap<RequestId, usize>,
    /// Those that wait for a connection.
    queued: BTreeSet<usize>,
    /// Those that wait for nothing but time.
    paused: BTreeSet<(Instant, usize)>,
    /// How many wait for entries of each open directory.
    readers: BTreeMap<OpenId, u32>,
}

impl Errands {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn get(&self, errand: usize) -> Option<&Errand> {
        self.slab.get(errand)
    }

    pub(super) fn iter(&self) -> slab::Iter<'_, Errand> {
        self.slab.iter()
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.slab.iter().map(|(errand, _)| errand).collect()
    }

    pub(super) fn insert(&mut self, errand: Errand) -> usize {
        let request = errand.request;
        let number = self.slab.insert(errand);
        self.of.insert(request, number);
        self.enter(number);
        number
    }

    pub(super) fn remove(&mut self, errand: usize) -> Errand {
        self.leave(errand);
        let it = self.slab.remove(errand);
        self.of.remove(&it.request);
        it
    }

    /// Whose request this is.
    pub(super) fn of(&self, request: RequestId) -> Option<usize> {
        self.of.get(&request).copied()
    }

    /// The errand waits for something else from now on; gives what it waited for.
    pub(super) fn wait(&mut self, errand: usize, step: Step) -> Step {
        self.leave(errand);
        let before = mem::replace(&mut self.slab[errand].step, step);
        self.enter(errand);
        before
    }

    /// Those that wait for a connection.
    pub(super) fn queued(&self) -> Vec<usize> {
        self.queued.iter().copied().collect()
    }

    pub(super) fn is_any_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// When the first pause ends.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused.first().map(|(until, _)| *until)
    }

    /// One whose pause is over, and that waits for nothing then.
    pub(super) fn wake(&mut self, now: Instant) -> Option<usize> {
        let &(_, errand) = self.paused.first().filter(|(until, _)| now >= *until)?;
        self.wait(errand, Step::Queued);
        Some(errand)
    }

    /// Whether anybody waits for entries of this directory.
    pub(super) fn is_read(&self, directory: OpenId) -> bool {
        self.readers.contains_key(&directory)
    }

    fn enter(&mut self, errand: usize) {
        let it = &self.slab[errand];
        match it.step {
            Step::Queued => {
                self.queued.insert(errand);
            }
            Step::Paused(until) => {
                self.paused.insert((until, errand));
            }
            Step::Entries(_) => {
                if let Ask::List { open, .. } = it.ask {
                    *self.readers.entry(open).or_default() += 1;
                }
            }
            Step::Seeking(_)
            | Step::Walk(_)
            | Step::Link
            | Step::Look
            | Step::Clone(_)
            | Step::Child(_)
            | Step::Free(_)
            | Step::Opening(_)
            | Step::Regard(..)
            | Step::Reading(_)
            | Step::Writing(_)
            | Step::AttrSize(_)
            | Step::AttrRoom(_)
            | Step::Stats(_)
            | Step::Last => {}
        }
    }

    fn leave(&mut self, errand: usize) {
        let it = &self.slab[errand];
        if let Some(until) = it.step.paused_until() {
            self.paused.remove(&(until, errand));
        }
        self.queued.remove(&errand);
        if let (Step::Entries(_), Ask::List { open, .. }) = (&it.step, &it.ask)
            && let Some(readers) = self.readers.get_mut(open)
        {
            *readers -= 1;
            if *readers == 0 {
                self.readers.remove(open);
            }
        }
    }

    pub(super) fn check(&self) {
        assert_eq!(self.of.len(), self.slab.len());
        let (mut queued, mut paused, mut reading) = (0, 0, 0);
        for (number, it) in &self.slab {
            assert_eq!(self.of(it.request), Some(number));
            let until = it.step.paused_until();
            assert_eq!(self.queued.contains(&number), matches!(it.step, Step::Queued));
            assert!(until.is_none_or(|until| self.paused.contains(&(until, number))));
            queued += usize::from(matches!(it.step, Step::Queued));
            paused += usize::from(until.is_some());
            if let (Step::Entries(_), Ask::List { open, .. }) = (&it.step, &it.ask) {
                assert!(self.is_read(*open));
                reading += 1;
            }
        }
        assert_eq!((self.queued.len(), self.paused.len()), (queued, paused));
        assert_eq!(self.readers.values().sum::<u32>(), reading);
    }
}

impl Index<usize> for Errands {
    type Output = Errand;

    fn index(&self, errand: usize) -> &Errand {
        &self.slab[errand]
    }
}

impl IndexMut<usize> for Errands {
    fn index_mut(&mut self, errand: usize) -> &mut Errand {
        &mut self.slab[errand]
    }
}
