//! Duplicate request cache: replies to calls that change something (RFC 1813, 4.5).
//!
//! A client that has lost its connection sends its outstanding calls again over another one. What
//! has been performed must not be performed again: a second REMOVE would report that there is no
//! such file. So every connection claims each such call before it begins, and records its reply;
//! a claim of the same call gets that reply, or none while the first one is in progress.

use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// Memory of a reply beside its bytes.
const ENTRY_SIZE: usize = 192;

/// Identity of a call among those of its client: its number, and a checksum of all of it, because
/// clients use numbers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKey {
    xid: u32,
    sum: u64,
}

impl CallKey {
    /// Returns the key of the call in a record.
    pub(super) fn new(xid: u32, record: &[u8]) -> CallKey {
        let digest = Sha256::digest(record);
        let sum = digest.first_chunk().expect("a digest is longer");
        CallKey { xid, sum: u64::from_be_bytes(*sum) }
    }
}

/// Result of the claim of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It begins now.
    New,
    /// It is in progress for another connection; the client will send it again.
    InProgress,
    /// It was performed, with this reply.
    Replied(Vec<u8>),
}

/// State of a claimed call.
#[derive(Debug)]
enum Entry {
    /// In progress.
    InProgress,
    /// Performed, with this reply; its place in the order of replies.
    Replied(u64, Vec<u8>),
}

/// The cache, for clients identified by a `C`.
#[derive(Debug)]
pub struct Replays<C> {
    entries: BTreeMap<(C, CallKey), Entry>,
    /// Replies in the order of their ends.
    order: BTreeMap<u64, (C, CallKey)>,
    next: u64,
    /// Memory of the replies, bytes.
    bytes: usize,
    bytes_max: usize,
}

impl<C: Clone + Ord> Replays<C> {
    /// Returns an empty cache for replies of this total size.
    pub fn new(bytes_max: usize) -> Replays<C> {
        let (entries, order) = (BTreeMap::new(), BTreeMap::new());
        Replays { entries, order, next: 0, bytes: 0, bytes_max }
    }

    /// Claims a call of a client.
    pub fn claim(&mut self, client: &C, call: CallKey) -> Claim {
        match self.entries.get(&(client.clone(), call)) {
            Some(Entry::InProgress) => Claim::InProgress,
            Some(Entry::Replied(_, reply)) => Claim::Replied(reply.clone()),
            None => {
                self.entries.insert((client.clone(), call), Entry::InProgress);
                Claim::New
            }
        }
    }

    /// Ends a claimed call: with its reply, or without if it has changed nothing. The oldest
    /// replies are forgotten.
    pub fn settle(&mut self, client: &C, call: CallKey, reply: Option<Vec<u8>>) {
        let key = (client.clone(), call);
        let before = self.entries.remove(&key);
        assert!(matches!(before, Some(Entry::InProgress)), "a claim is settled once");
        let Some(reply) = reply else { return };
        self.bytes += ENTRY_SIZE + reply.len();
        self.order.insert(self.next, key.clone());
        self.entries.insert(key, Entry::Replied(self.next, reply));
        self.next += 1;
        while self.bytes > self.bytes_max
            && let Some((place, oldest)) = self.order.pop_first()
        {
            let Some(Entry::Replied(known, reply)) = self.entries.remove(&oldest) else {
                unreachable!("a reply in the order is there");
            };
            assert_eq!(known, place, "a call has one reply");
            self.bytes -= ENTRY_SIZE + reply.len();
        }
    }

    /// Returns the memory of the replies, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether no claimed call is in progress.
    pub fn is_settled(&self) -> bool {
        self.entries.len() == self.order.len()
    }

    /// Asserts that the numbers agree.
    pub fn check(&self) {
        let replies = self.entries.iter().filter_map(|(key, entry)| match entry {
            Entry::InProgress => None,
            Entry::Replied(place, reply) => Some((key, place, reply.len())),
        });
        let (mut bytes, mut count) = (0, 0);
        for (key, place, size) in replies {
            assert!(self.order.get(place) == Some(key), "each reply is in the order");
            bytes += ENTRY_SIZE + size;
            count += 1;
        }
        assert_eq!((self.bytes, self.order.len()), (bytes, count));
        assert!(self.bytes <= self.bytes_max, "within the limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_kept_by_client_number_and_contents_within_a_limit() {
        let mut replays = Replays::new(10 * (ENTRY_SIZE + 8));
        let key = |xid: u32| CallKey::new(xid, b"a call");
        assert_eq!(replays.claim(&1, key(1)), Claim::New);
        assert_eq!(replays.claim(&1, key(1)), Claim::InProgress);
        assert_eq!(replays.claim(&2, key(1)), Claim::New);
        assert_eq!(replays.claim(&1, CallKey::new(1, b"another")), Claim::New);
        replays.settle(&1, key(1), Some(b"replied!".to_vec()));
        replays.settle(&2, key(1), None);
        assert_eq!(replays.claim(&1, key(1)), Claim::Replied(b"replied!".to_vec()));
        assert_eq!(replays.claim(&2, key(1)), Claim::New);
        for xid in 2..=10 {
            assert_eq!(replays.claim(&1, key(xid)), Claim::New);
            replays.settle(&1, key(xid), Some(vec![0; 8]));
            replays.check();
        }
        assert!(matches!(replays.claim(&1, key(1)), Claim::Replied(_)), "the tenth");
        replays.settle(&2, key(1), Some(vec![0; 8]));
        assert_eq!(replays.claim(&1, key(1)), Claim::New);
        replays.check();
    }
}
