//! Result of a scan: cells of pages that are shared with the cache, so that nothing is copied.

use super::request::Entry;
use base::Block;
use std::fmt;
use std::ops::Range;
use store::leaf;

/// Entries of a scan, in the requested order.
///
/// Entries are immutable, whatever is written later: a page changed meanwhile is copied first.
#[derive(Clone, Default)]
pub struct ScanBatch {
    parts: Vec<Part>,
    /// First part not taken yet.
    at: usize,
    len: usize,
    reverse: bool,
}

/// Entries stored together, with the range of those not taken yet.
#[derive(Clone)]
struct Part {
    stand: Storage,
    cells: Range<usize>,
}

/// Storage of entries.
#[derive(Clone)]
enum Storage {
    /// A leaf, with inline values.
    Leaf(Block),
    /// A single entry: its key and its value.
    Alone(Vec<u8>, Vec<u8>),
}

impl Part {
    #[inline]
    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        match &self.stand {
            Storage::Leaf(leaf) => {
                let (key, value, _) = leaf::entry(leaf, index);
                (&key[4..], value)
            }
            Storage::Alone(key, value) => (key, value),
        }
    }
}

impl ScanBatch {
    /// Returns an empty result, to be filled forwards or backwards.
    pub(crate) fn new(reverse: bool) -> ScanBatch {
        ScanBatch { reverse, ..ScanBatch::default() }
    }

    /// Adds cells of a leaf, none of which is an extent.
    pub(crate) fn push_cells(&mut self, leaf: &Block, cells: Range<usize>) {
        assert!(cells.end <= leaf::count(leaf), "the cells are there");
        self.len += cells.len();
        if !cells.is_empty() {
            self.parts.push(Part { stand: Storage::Leaf(leaf.clone()), cells });
        }
    }

    /// Adds a single entry.
    pub(crate) fn push(&mut self, key: &[u8], value: Vec<u8>) {
        self.len += 1;
        self.parts.push(Part { stand: Storage::Alone(key.to_vec(), value), cells: 0..1 });
    }

    /// Returns the number of entries not taken yet.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether all entries were taken.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next entry, key and value, without copying.
    #[inline]
    pub fn advance(&mut self) -> Option<(&[u8], &[u8])> {
        while self.parts.get(self.at)?.cells.is_empty() {
            self.at += 1;
        }
        self.len -= 1;
        let part = &mut self.parts[self.at];
        assert!(!part.cells.is_empty(), "taken parts were skipped");
        next(&mut part.cells, self.reverse).map(|index| part.entry(index))
    }

    /// Iterates over the entries not taken yet.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let reverse = self.reverse;
        self.parts[self.at..].iter().flat_map(move |part| {
            let Range { start, end } = part.cells;
            let index = move |step| if reverse { end - 1 - step } else { start + step };
            (0..end - start).map(move |step| part.entry(index(step)))
        })
    }

    /// Returns the last entry.
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        let part = self.parts.last().filter(|part| !part.cells.is_empty())?;
        Some(part.entry(if self.reverse { part.cells.start } else { part.cells.end - 1 }))
    }

    /// Returns copies of the entries not taken yet.
    pub fn to_vec(&self) -> Vec<Entry> {
        self.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }
}

/// Takes the next of some cells.
#[inline]
pub(super) fn next(cells: &mut Range<usize>, reverse: bool) -> Option<usize> {
    if reverse { cells.next_back() } else { cells.next() }
}

impl PartialEq for ScanBatch {
    fn eq(&self, other: &ScanBatch) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ScanBatch {}

impl fmt::Debug for ScanBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanBatch({} entries)", self.len)
    }
}
