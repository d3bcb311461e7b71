//! Messages that wait for a tag.
//!
//! Parties are served round robin: a client with many messages delays the first one of another by
//! one message. Messages of one party are sent in their order.

use super::{Message, Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Source of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::remote) enum Party {
    /// Clunks of fids without a user.
    Cleanup,
    /// Recovery of fids.
    Recovery,
    /// Pending requests of a caller, by its number.
    Asker(u32),
}

/// The queued messages.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Messages by number, with their parties.
    messages: BTreeMap<u64, (Party, Owner, Message)>,
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

impl Line {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of the next message to be queued.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn push(&mut self, party: Party, owner: Owner, message: Message) {
        let number = self.next;
        self.next += 1;
        self.by_party.insert((party, number));
        if let Owner::Pending(slot, _) = owner {
            self.by_request.insert((slot, number));
        }
        if !message.frees_fid() {
            self.optional.insert(number);
        }
        self.messages.insert(number, (party, owner, message));
    }

    /// Removes the first message of the next party.
    pub(super) fn pop(&mut self) -> Option<(Owner, Message)> {
        let behind = self.last.map(|last| (last, u64::MAX));
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.by_party.range((behind, Bound::Unbounded)).next();
        let (party, number) = *next.or_else(|| self.by_party.first())?;
        self.last = Some(party);
        Some(self.remove(number))
    }

    /// Removes the first message with a number below `end` that may be given up.
    pub(super) fn give_up_first(&mut self, end: u64) -> Option<Owner> {
        let number = *self.optional.first().filter(|number| **number < end)?;
        Some(self.remove(number).0)
    }

    /// Removes the messages of a pending request; returns their number.
    pub(super) fn drop_request(&mut self, slot: usize) -> u32 {
        let mut dropped = 0;
        while let Some((_, number)) = self.by_request.range((slot, 0)..=(slot, u64::MAX)).next() {
            let (owner, _) = self.remove(*number);
            assert!(matches!(owner, Owner::Pending(of, _) if of == slot));
            dropped += 1;
        }
        dropped
    }

    fn remove(&mut self, number: u64) -> (Owner, Message) {
        let (party, owner, message) = self.messages.remove(&number).expect("it is queued");
        self.by_party.remove(&(party, number));
        self.optional.remove(&number);
        if let Owner::Pending(slot, _) = owner {
            self.by_request.remove(&(slot, number));
        }
        (owner, message)
    }

    pub(super) fn check(&self) {
        assert_eq!(self.by_party.len(), self.messages.len());
        let (mut optional, mut of_requests) = (0, 0);
        for (number, (party, owner, message)) in &self.messages {
            assert!(*number < self.next && self.by_party.contains(&(*party, *number)));
            optional += usize::from(!message.frees_fid());
            of_requests += usize::from(matches!(owner, Owner::Pending(..)));
        }
        assert_eq!((self.optional.len(), self.by_request.len()), (optional, of_requests));
    }
}
