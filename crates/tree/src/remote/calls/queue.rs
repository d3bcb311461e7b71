//! Messages that wait for a tag.
//!
//! Parties are served round robin: a client with many messages delays the first one of another by
//! one message. Messages of one party are sent in their order.

use crate::remote::message::{Message, Owner, Party};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A queued message.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    /// A call of an owner.
    Call(Owner, Message),
    /// The clunk of a fid.
    Clunk(u32),
}

impl Queued {
    /// Returns the pending request that it is from.
    fn request(&self) -> Option<usize> {
        match self {
            Queued::Call(Owner::Pending(slot, _), _) => Some(*slot),
            Queued::Call(Owner::Recovery(_), _) | Queued::Clunk(_) => None,
        }
    }

    /// Returns whether it may be given up: it frees no fid.
    fn is_optional(&self) -> bool {
        match self {
            Queued::Call(_, message) => !message.frees_fid(),
            Queued::Clunk(_) => false,
        }
    }
}

/// The queued messages.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Messages by number, with their parties.
    messages: BTreeMap<u64, (Party, Queued)>,
    by_party: BTreeSet<(Party, u64)>,
    /// Numbers of the messages of each pending request.
    by_request: BTreeSet<(usize, u64)>,
    /// Messages that may be given up: they free no fid.
    optional: BTreeSet<u64>,
    /// Number of the next message.
    next: u64,
    /// Party served last.
    last: Option<Party>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of the next message to be queued.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn push(&mut self, party: Party, queued: Queued) {
        let number = self.next;
        self.next += 1;
        self.by_party.insert((party, number));
        self.by_request.extend(queued.request().map(|slot| (slot, number)));
        if queued.is_optional() {
            self.optional.insert(number);
        }
        self.messages.insert(number, (party, queued));
    }

    /// Records that a party was served.
    pub(super) fn serve(&mut self, party: Party) {
        self.last = Some(party);
    }

    /// Removes the first message of the next party.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        let behind = self.last.map(|last| (last, u64::MAX));
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.by_party.range((behind, Bound::Unbounded)).next();
        let (party, number) = *next.or_else(|| self.by_party.first())?;
        self.serve(party);
        Some(self.remove(number))
    }

    /// Removes the first message with a number below `end` that may be given up.
    pub(super) fn give_up_first(&mut self, end: u64) -> Option<Owner> {
        let number = *self.optional.first().filter(|number| **number < end)?;
        let Queued::Call(owner, _) = self.remove(number) else {
            unreachable!("a clunk is not optional")
        };
        Some(owner)
    }

    /// Removes the messages of a pending request; returns their number.
    pub(super) fn drop_request(&mut self, slot: usize) -> u32 {
        let mut dropped = 0;
        while let Some((_, number)) = self.by_request.range((slot, 0)..=(slot, u64::MAX)).next() {
            let queued = self.remove(*number);
            assert_eq!(queued.request(), Some(slot), "it is indexed by its request");
            dropped += 1;
        }
        dropped
    }

    fn remove(&mut self, number: u64) -> Queued {
        let (party, queued) = self.messages.remove(&number).expect("it is queued");
        self.by_party.remove(&(party, number));
        self.optional.remove(&number);
        if let Some(slot) = queued.request() {
            self.by_request.remove(&(slot, number));
        }
        queued
    }

    pub(super) fn check(&self) {
        assert_eq!(self.by_party.len(), self.messages.len());
        let (mut optional, mut of_requests) = (0, 0);
        for (number, (party, queued)) in &self.messages {
            assert!(*number < self.next && self.by_party.contains(&(*party, *number)));
            optional += usize::from(queued.is_optional());
            of_requests += usize::from(queued.request().is_some());
        }
        assert_eq!((self.optional.len(), self.by_request.len()), (optional, of_requests));
    }
}
