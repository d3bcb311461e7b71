//! Records sorted by issue time, from a stream in completion order.

use crate::io::{Outcome, Record};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Number of buffered records: 24 MiB.
pub(super) const WINDOW: usize = 1 << 18;

/// Record ordered by issue time.
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

/// Issued records in order. A record that completes more than [`WINDOW`] records after others
/// issued later is displaced; these are counted.
#[derive(Debug)]
pub(super) struct Ordered<I> {
    from: I,
    waiting: BinaryHeap<Reverse<Issued>>,
    last_ns: u64,
    /// Number of displaced records.
    pub(super) displaced: u64,
    /// Number of skipped records.
    pub(super) skipped: u64,
}

impl<E, I: Iterator<Item = Result<Record, E>>> Ordered<I> {
    pub(super) fn new(from: I) -> Ordered<I> {
        Ordered { from, waiting: BinaryHeap::new(), last_ns: 0, displaced: 0, skipped: 0 }
    }

    /// Returns the next record.
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
