//! Serialises changes of one directory entry where a change takes more than one step.
//!
//! A change waits in the queue of each entry that it changes (at most two) and runs when it is at
//! the head of all of them. It joins all its queues at once, so the order is the same everywhere
//! and there is no deadlock. The cost of a change is logarithmic in the number of entries queued
//! for, whatever the length of a queue.

use base::Name;
use std::collections::{BTreeMap, BTreeSet};

/// A directory, by the tree's key of it, and a name in it.
pub(crate) type EntryKey = ((u64, u64), Name);

/// A position in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The queues. `T` is a queued request.
#[derive(Debug)]
pub(crate) struct EntryQueue<T> {
    next: u64,
    queues: BTreeMap<EntryKey, BTreeSet<Ticket>>,
    /// The entries of each change, running or queued.
    keys: BTreeMap<Ticket, [Option<EntryKey>; 2]>,
    waiting: BTreeMap<Ticket, T>,
}

impl<T> Default for EntryQueue<T> {
    fn default() -> EntryQueue<T> {
        let (queues, keys, waiting) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        EntryQueue { next: 0, queues, keys, waiting }
    }
}

impl<T> EntryQueue<T> {
    /// Joins the queues of these entries; returns whether the change may run at once.
    pub(crate) fn join(&mut self, keys: [Option<EntryKey>; 2]) -> (Ticket, bool) {
        let ticket = Ticket(self.next);
        self.next += 1;
        for key in keys.iter().flatten() {
            self.queues.entry(key.clone()).or_default().insert(ticket);
        }
        self.keys.insert(ticket, keys);
        (ticket, self.is_first(ticket))
    }

    /// Stores a request until its turn.
    pub(crate) fn wait(&mut self, ticket: Ticket, waiting: T) {
        assert!(!self.is_first(ticket), "the first ticket runs");
        self.waiting.insert(ticket, waiting);
    }

    /// Removes a queued request after its cancellation; its ticket still has to leave the queues.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<T> {
        self.waiting.remove(&ticket)
    }

    /// Leaves the queues; returns the requests that may run now, with their tickets.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Vec<(Ticket, T)> {
        let keys = self.keys.remove(&ticket).expect("a ticket leaves once");
        let mut heads = BTreeSet::new();
        for key in keys.iter().flatten() {
            let Some(queue) = self.queues.get_mut(key) else { continue };
            queue.remove(&ticket);
            match queue.first() {
                Some(head) => _ = heads.insert(*head),
                None => _ = self.queues.remove(key),
            }
        }
        let free = heads.into_iter().filter(|head| self.is_first(*head)).collect::<Vec<_>>();
        free.into_iter().filter_map(|head| Some((head, self.waiting.remove(&head)?))).collect()
    }

    fn is_first(&self, ticket: Ticket) -> bool {
        let mut keys = self.keys[&ticket].iter().flatten();
        keys.all(|key| self.queues[key].first() == Some(&ticket))
    }

    /// Iterates over the queued requests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.values()
    }

    /// Returns the number of queued changes.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn check(&self) {
        assert!(self.waiting.keys().all(|ticket| self.keys.contains_key(ticket)));
        assert!(self.queues.values().all(|queue| !queue.is_empty()));
        for ticket in self.keys.keys() {
            assert!(
                self.is_first(*ticket) || self.waiting.contains_key(ticket),
                "only the first of all its queues runs"
            );
        }
        for (ticket, keys) in &self.keys {
            let stands = |key: &EntryKey| self.queues[key].contains(ticket);
            assert!(keys.iter().flatten().all(stands), "a change stands in its queues");
            assert!(ticket.0 < self.next, "tickets are given in order");
        }
        for (key, queue) in &self.queues {
            let knows = |ticket: &Ticket| self.keys[ticket].contains(&Some(key.clone()));
            assert!(queue.iter().all(knows), "a queued change is of that entry");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dir: u64, name: &str) -> Option<EntryKey> {
        Some(((0, dir), Name::new(name.as_bytes()).expect("plain")))
    }

    #[test]
    fn changes_of_an_entry_run_one_after_the_other_in_their_order() {
        let mut queue = EntryQueue::default();
        let (a, runs) = queue.join([key(1, "x"), None]);
        assert!(runs);
        let (b, runs) = queue.join([key(1, "x"), key(1, "y")]);
        assert!(!runs);
        queue.wait(b, "b");
        let (c, runs) = queue.join([key(1, "y"), None]);
        assert!(!runs, "b came first");
        queue.wait(c, "c");
        let (d, runs) = queue.join([key(2, "x"), None]);
        assert!(runs, "another directory");
        queue.check();
        assert_eq!(queue.leave(d), []);
        assert_eq!(queue.leave(a), [(b, "b")]);
        assert_eq!(queue.leave(b), [(c, "c")]);
        assert_eq!(queue.leave(c), []);
        assert!(queue.queues.is_empty() && queue.keys.is_empty());
    }

    #[test]
    fn one_that_gives_up_lets_the_next_run() {
        let mut queue = EntryQueue::default();
        let (a, _) = queue.join([key(1, "x"), None]);
        let (b, _) = queue.join([key(1, "x"), None]);
        queue.wait(b, 2);
        let (c, _) = queue.join([key(1, "x"), None]);
        queue.wait(c, 3);
        assert_eq!(queue.take(b), Some(2));
        assert_eq!(queue.leave(b), []);
        assert_eq!(queue.leave(a), [(c, 3)]);
        assert_eq!(queue.waiting(), 0);
    }
}
