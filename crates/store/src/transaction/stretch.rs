//! What a scan found: cells of pages that are shared with the cache, so that nothing is copied.

use super::request::Entry;
use crate::page;
use base::Block;
use std::fmt;
use std::ops::Range;

/// A stretch of entries, in the order asked for.
///
/// They stay as they are, whatever is written later: a page that is changed meanwhile is copied
/// first.
#[derive(Clone, Default)]
pub struct Stretch {
    parts: Vec<Part>,
    /// The first part that was not taken.
    at: usize,
    len: usize,
    reverse: bool,
}

/// Entries that stand together, and which of them were not taken.
#[derive(Clone)]
struct Part {
    stand: Stand,
    cells: Range<usize>,
}

/// Where entries stand.
#[derive(Clone)]
enum Stand {
    /// In a leaf; each has its value beside it.
    Leaf(Block),
    /// A single one by itself: its key and its value.
    Alone(Vec<u8>, Vec<u8>),
}

impl Part {
    #[inline]
    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        match &self.stand {
            Stand::Leaf(leaf) => {
                let (key, value, _) = page::entry(leaf, index);
                (&key[4..], value)
            }
            Stand::Alone(key, value) => (key, value),
        }
    }
}

impl Stretch {
    /// One without entries, to be filled forwards or backwards.
    pub(crate) fn new(reverse: bool) -> Stretch {
        Stretch { reverse, ..Stretch::default() }
    }

    /// Adds cells of a leaf, none of which is an extent.
    pub(crate) fn push_cells(&mut self, leaf: &Block, cells: Range<usize>) {
        assert!(cells.end <= page::count(leaf), "the cells are there");
        self.len += cells.len();
        if !cells.is_empty() {
            self.parts.push(Part { stand: Stand::Leaf(leaf.clone()), cells });
        }
    }

    /// Adds a single entry.
    pub(crate) fn push(&mut self, key: &[u8], value: Vec<u8>) {
        self.len += 1;
        self.parts.push(Part { stand: Stand::Alone(key.to_vec(), value), cells: 0..1 });
    }

    /// How many entries were not taken yet.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no more.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next entry, key and value; nothing is copied.
    #[inline]
    pub fn advance(&mut self) -> Option<(&[u8], &[u8])> {
        while self.parts.get(self.at)?.cells.is_empty() {
            self.at += 1;
        }
        self.len -= 1;
        let part = &mut self.parts[self.at];
        assert!(!part.cells.is_empty(), "what was taken was skipped");
        next(&mut part.cells, self.reverse).map(|index| part.entry(index))
    }

    /// The entries that were not taken yet.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let reverse = self.reverse;
        self.parts[self.at..].iter().flat_map(move |part| {
            let Range { start, end } = part.cells;
            let index = move |step| if reverse { end - 1 - step } else { start + step };
            (0..end - start).map(move |step| part.entry(index(step)))
        })
    }

    /// The last entry.
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        let part = self.parts.last().filter(|part| !part.cells.is_empty())?;
        Some(part.entry(if self.reverse { part.cells.start } else { part.cells.end - 1 }))
    }

    /// The same, where each entry stands by itself.
    pub fn to_vec(&self) -> Vec<Entry> {
        self.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }
}

/// Takes the next one of some cells.
#[inline]
pub(super) fn next(cells: &mut Range<usize>, reverse: bool) -> Option<usize> {
    if reverse { cells.next_back() } else { cells.next() }
}

impl PartialEq for Stretch {
    fn eq(&self, other: &Stretch) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Stretch {}

impl fmt::Debug for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stretch({} entries)", self.len)
    }
}
