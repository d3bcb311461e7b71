//! Records in the order of their issue, from a file in the order of completion.

use crate::io::{Outcome, Record};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// So many records wait for one that was issued earlier: 24 MiB.
pub(super) const WINDOW: usize = 1 << 18;

/// A record with the order of its issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Issued(Record);

impl Ord for Issued {
    fn cmp(&self, other: &Issued) -> Ordering {
        let key =
            |Issued(record): &Issued| (record.issued_ns, record.scheduled_ns, record.io.offset);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Issued {
    fn partial_cmp(&self, other: &Issued) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The records that were issued, in order. One that completes more than [`WINDOW`] records after
/// others that were issued later comes too late; those are counted.
#[derive(Debug)]
pub(super) struct Ordered<I> {
    from: I,
    waiting: BinaryHeap<Reverse<Issued>>,
    last_ns: u64,
    /// Records that came too late.
    pub(super) displaced: u64,
    /// Records that were not issued.
    pub(super) skipped: u64,
}

impl<E, I: Iterator<Item = Result<Record, E>>> Ordered<I> {
    pub(super) fn new(from: I) -> Ordered<I> {
        Ordered { from, waiting: BinaryHeap::new(), last_ns: 0, displaced: 0, skipped: 0 }
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Option<Record>, E> {
        while self.waiting.len() < WINDOW {
            match self.from.next().transpose()? {
                Some(record) if record.outcome == Outcome::Skipped => self.skipped += 1,
                Some(record) => self.waiting.push(Reverse(Issued(record))),
                None => break,
            }
        }
        let Some(Reverse(Issued(record))) = self.waiting.pop() else { return Ok(None) };
        self.displaced += u64::from(record.issued_ns < self.last_ns);
        self.last_ns = self.last_ns.max(record.issued_ns);
        Ok(Some(record))
    }
}
