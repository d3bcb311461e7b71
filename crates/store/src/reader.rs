//! Readers of a volume, as far as it is in memory.

use crate::btree;
use crate::btree::extent::View as ExtentView;
use crate::btree::look::{self, Bounds};
use crate::cache::Cache;
use crate::keys::{after_table, full_key};
use crate::missing::{Missing, Want};
use crate::page::{self, Ptr};
use crate::{Layout, Table};
use base::Block;
use std::borrow::Cow;
use std::ops::{ControlFlow, Deref, Range};

/// Maximum number of leaves behind a missing one that are fetched together with it.
pub const AHEAD: usize = 7;

/// A value in memory.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Bytes in its page.
    Inline(&'a [u8]),
    /// Blocks of its own, with the length of the value, bytes.
    Blocks(Vec<Block>, usize),
}

impl<'a> Value<'a> {
    /// Returns the bytes.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self {
            Value::Inline(bytes) => Cow::Borrowed(bytes),
            Value::Blocks(blocks, length) => {
                let mut bytes = Vec::with_capacity(*length);
                blocks.iter().for_each(|block| bytes.extend_from_slice(block));
                bytes.truncate(*length);
                Cow::Owned(bytes)
            }
        }
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Value::Inline(bytes) => bytes.len(),
            Value::Blocks(_, length) => *length,
        }
    }

    /// Returns whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A piece of a raw object's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A range of a block, shared with the cache.
    Data(Block, Range<usize>),
    /// Bytes stored in a page.
    Inline(Vec<u8>),
    /// This number of zeros.
    Hole(usize),
}

impl Piece {
    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Data(_, range) => range.len(),
            Piece::Inline(bytes) => bytes.len(),
            Piece::Hole(count) => *count,
        }
    }

    /// Returns whether the piece is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads one state of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) root: Ptr,
    pub(crate) layout: &'a Layout,
}

/// A key of the tree for short use: it allocates no memory, unless it is long.
pub(crate) struct BriefKey {
    short: [u8; BRIEF],
    length: usize,
    long: Vec<u8>,
}

/// Maximum size of a short key, bytes.
const BRIEF: usize = 64;

impl BriefKey {
    #[inline]
    pub(crate) fn new(table: Table, key: &[u8]) -> BriefKey {
        let (length, mut short) = (4 + key.len(), [0; BRIEF]);
        if length > BRIEF {
            return BriefKey { short, length: 0, long: full_key(table, key) };
        }
        short[..4].copy_from_slice(&table.0.to_be_bytes());
        short[4..length].copy_from_slice(key);
        BriefKey { short, length, long: Vec::new() }
    }
}

impl Deref for BriefKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.length] } else { &self.long }
    }
}

/// Returns the key of a raw object's cell for a block.
pub(crate) fn raw_key(table: Table, object: u64, block: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..12].copy_from_slice(&object.to_be_bytes());
    key[12..].copy_from_slice(&block.to_be_bytes());
    key
}

/// Returns the block number in a raw object's key.
pub(crate) fn raw_block(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[12..20].try_into().expect("raw keys have twenty bytes"))
}

/// A cell of a raw object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawCell<'a> {
    /// First bytes of its first block; the rest of that is zeros.
    Inline(&'a [u8]),
    /// Blocks from this one of the object on.
    Extent(u64, ExtentView<'a>),
}

impl<'a> Reader<'a> {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    #[inline]
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value<'a>>, Missing> {
        let full = BriefKey::new(table, key);
        match btree::find(self.cache, self.root, &full)? {
            Some((page, index)) => self.value(page, index).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the first entry of a table with this key or a greater one.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    pub fn seek(&self, table: Table, key: &[u8]) -> Result<Option<Entry<'a>>, Missing> {
        match btree::seek(self.cache, self.root, &full_key(table, key))? {
            Some((page, index)) => self.entry(table, page, index),
            None => Ok(None),
        }
    }

    /// Returns the last entry of a table with this key or a lesser one.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    pub fn seek_back(&self, table: Table, key: &[u8]) -> Result<Option<Entry<'a>>, Missing> {
        match btree::last_at_or_before(self.cache, self.root, &full_key(table, key))? {
            Some((page, index)) => self.entry(table, page, index),
            None => Ok(None),
        }
    }

    /// Returns the last entry of a table.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    pub fn last(&self, table: Table) -> Result<Option<Entry<'a>>, Missing> {
        self.seek_back(table, &vec![0xff; self.layout.key_max()])
    }

    /// Visits the entries of a table from a key on, in order, until `visit` breaks.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first; earlier visits are to be discarded.
    pub fn scan(
        &self,
        table: Table,
        from: &[u8],
        visit: &mut dyn FnMut(&'a [u8], Value<'a>) -> ControlFlow<()>,
    ) -> Result<(), Missing> {
        let (from, to) = (full_key(table, from), after_table(table));
        let bounds = Bounds { from: &from, to: Some(&to), reverse: false, ahead: AHEAD };
        self.leaves(&bounds, &mut |leaf, cells| {
            for index in cells {
                if visit(&page::key(leaf, index)[4..], self.value(leaf, index)?).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Visits the keys of a table, in order, until `visit` breaks; returns whether it did. Fetches
    /// no values.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first; earlier visits are to be discarded.
    pub fn keys(
        &self,
        table: Table,
        visit: &mut dyn FnMut(&'a [u8]) -> ControlFlow<()>,
    ) -> Result<bool, Missing> {
        let (from, to) = (full_key(table, b""), after_table(table));
        let bounds = Bounds { from: &from, to: Some(&to), reverse: false, ahead: AHEAD };
        let mut stopped = false;
        self.leaves(&bounds, &mut |leaf, mut cells| {
            stopped = cells.any(|index| visit(&page::key(leaf, index)[4..]).is_break());
            Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(stopped)
    }

    /// Returns the layout of the volume.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// Visits leaves, each with its cells within the bounds, until `visit` breaks.
    ///
    /// # Errors
    /// `Missing`: the pages to fetch first; earlier visits are to be discarded.
    pub fn leaves(&self, bounds: &Bounds<'_>, visit: look::Visit<'_, 'a>) -> Result<(), Missing> {
        look::leaves(self.cache, self.root, bounds, visit)
    }

    /// Reads bytes of a raw object. It has no size: behind its last byte is an endless hole.
    ///
    /// # Errors
    /// `Missing`: all pages and blocks to fetch first.
    pub fn read(
        &self,
        table: Table,
        object: u64,
        offset: u64,
        count: usize,
    ) -> Result<Vec<Piece>, Missing> {
        let mut pieces = Vec::with_capacity(count / self.layout.block + 2);
        let mut missing = Vec::new();
        let end = offset.saturating_add(count as u64);
        let mut at = offset;
        self.raw_cells(table, object, offset, end, &mut |cell| match cell {
            RawCell::Inline(bytes) => {
                let bytes = bytes.get(offset.min(1 << 32) as usize..).unwrap_or_default();
                let bytes = &bytes[..bytes.len().min(count)];
                at += bytes.len() as u64;
                pieces.push(Piece::Inline(bytes.to_vec()));
            }
            RawCell::Extent(first, extent) => {
                for index in within(first, extent, (at, end), self.layout.block as u64) {
                    let block = self.data(extent.at() + index as u64, extent.sum(index));
                    let number = first + index as u64;
                    self.add_piece(number, block, (&mut at, end), &mut pieces, &mut missing);
                }
            }
        })?;
        if at < end {
            pieces.push(Piece::Hole((end - at) as usize));
        }
        if missing.is_empty() { Ok(pieces) } else { Err(Missing(missing)) }
    }

    /// Returns what a reader that continues will need of a raw object, and the offset up to
    /// which that is complete: behind it, a page must be fetched before more is known. The next
    /// such page up to `behind` is included, so that the range after this one can be prefetched.
    pub fn foresee(
        &self,
        table: Table,
        object: u64,
        range: Range<u64>,
        behind: u64,
    ) -> (Missing, u64) {
        let mut missing = Vec::new();
        let mut at = range.start;
        let seen = self.raw_cells(table, object, range.start, range.end, &mut |cell| {
            let RawCell::Extent(first, extent) = cell else { return };
            let size = self.layout.block as u64;
            for index in within(first, extent, (at, range.end), size) {
                let block = self.data(extent.at() + index as u64, extent.sum(index));
                missing.extend(block.err());
            }
            at = at.max((first + extent.count() as u64) * size);
        });
        let next = || self.raw_cells(table, object, range.end, behind, &mut |_| {});
        missing.extend(seen.and_then(|()| next()).err());
        let reached = if seen.is_ok() { range.end } else { at.min(range.end) };
        (Missing(missing), reached)
    }

    /// Adds the part of a read in one block of an object, with the hole before it.
    fn add_piece(
        &self,
        index: u64,
        block: Result<Block, Want>,
        (at, end): (&mut u64, u64),
        pieces: &mut Vec<Piece>,
        missing: &mut Vec<Want>,
    ) {
        let size = self.layout.block as u64;
        let (start, stop) = (index * size, (index + 1) * size);
        if start > *at {
            pieces.push(Piece::Hole((start - *at) as usize));
            *at = start;
        }
        let range = (*at - start) as usize..(stop.min(end) - start) as usize;
        *at = stop.min(end);
        match block {
            Ok(block) => pieces.push(Piece::Data(block, range)),
            Err(want) => missing.push(want),
        }
    }

    /// Returns the number of allocated blocks in a range of a raw object (bytes).
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    pub fn allocated(&self, table: Table, object: u64, from: u64, to: u64) -> Result<u64, Missing> {
        let size = self.layout.block as u64;
        let (first, last) = (from / size, to.div_ceil(size));
        let mut blocks = 0;
        self.raw_cells(table, object, from, to, &mut |cell| {
            if let RawCell::Extent(start, extent) = cell {
                let end = (start + extent.count() as u64).min(last);
                blocks += end.saturating_sub(start.max(first));
            }
        })?;
        Ok(blocks)
    }

    /// Returns the offset up to which a raw object has `most` allocated blocks, from a byte on;
    /// `None` if it has no more to its end. Holes cost nothing, however long they are.
    ///
    /// # Errors
    /// `Missing`: the pages and blocks to fetch first.
    pub fn reach(
        &self,
        table: Table,
        object: u64,
        from: u64,
        most: u64,
    ) -> Result<Option<u64>, Missing> {
        let size = self.layout.block as u64;
        let first = from / size;
        let start = first.saturating_sub(self.layout.extent_max() as u64 - 1);
        let (start, end) = (raw_key(table, object, start), raw_key(table, object, u64::MAX));
        let bounds = Bounds { from: &start, to: Some(&end), reverse: false, ahead: AHEAD };
        let (mut left, mut reach) = (most, None);
        self.leaves(&bounds, &mut |leaf, cells| {
            for index in cells {
                let (key, (value, is_extent)) = (page::key(leaf, index), page::value(leaf, index));
                if !is_extent || key.len() != 20 {
                    continue;
                }
                let start = raw_block(key).max(first);
                let end = raw_block(key).saturating_add(ExtentView::new(value).count() as u64);
                let blocks = end.saturating_sub(start);
                if blocks > left {
                    reach = Some(start.saturating_add(left).saturating_mul(size));
                    return Ok(ControlFlow::Break(()));
                }
                left -= blocks;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(reach)
    }

    /// Visits the cells of a raw object with bytes of a range, in order.
    pub(crate) fn raw_cells(
        &self,
        table: Table,
        object: u64,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(RawCell<'a>),
    ) -> Result<(), Want> {
        if from >= to {
            return Ok(());
        }
        let size = self.layout.block as u64;
        // The first cell may begin before: at most one extent's length.
        let start = (from / size).saturating_sub(self.layout.extent_max() as u64 - 1);
        let start = raw_key(table, object, start);
        let end = raw_key(table, object, to.div_ceil(size));
        look::scan_range(self.cache, self.root, (&start, &end), &mut |page, index| {
            let key = page::key(page, index);
            if key.len() != 20 {
                return;
            }
            let block = raw_block(key);
            match page::value(page, index) {
                (bytes, false) if block == 0 && from < size => visit(RawCell::Inline(bytes)),
                (_, false) => {}
                (bytes, true) => {
                    let extent = ExtentView::new(bytes);
                    if block.saturating_add(extent.count() as u64).saturating_mul(size) > from {
                        visit(RawCell::Extent(block, extent));
                    }
                }
            }
        })
    }

    fn entry(
        &self,
        table: Table,
        page: &'a [u8],
        index: usize,
    ) -> Result<Option<Entry<'a>>, Missing> {
        let key = page::key(page, index);
        if !key.starts_with(&table.0.to_be_bytes()) {
            return Ok(None);
        }
        Ok(Some((&key[4..], self.value(page, index)?)))
    }

    /// Returns the value of a leaf's cell.
    ///
    /// # Errors
    /// `Missing`: the blocks to fetch first.
    #[inline]
    pub fn value(&self, page: &'a [u8], index: usize) -> Result<Value<'a>, Missing> {
        let (bytes, is_extent) = page::value(page, index);
        if !is_extent {
            return Ok(Value::Inline(bytes));
        }
        let extent = ExtentView::new(bytes);
        let (mut blocks, mut missing) = (Vec::new(), Vec::new());
        for index in 0..extent.count() {
            match self.data(extent.at() + index as u64, extent.sum(index)) {
                Ok(block) => blocks.push(block),
                Err(want) => missing.push(want),
            }
        }
        if missing.is_empty() {
            Ok(Value::Blocks(blocks, extent.bytes()))
        } else {
            Err(Missing(missing))
        }
    }

    /// Returns a data block, if it is cached.
    pub(crate) fn data(&self, at: u64, sum: u64) -> Result<Block, Want> {
        self.cache.data(at).cloned().ok_or(Want::Data { at, sum })
    }
}

/// Returns the blocks of an extent with bytes of a range, when the first of them is `first`.
fn within(first: u64, extent: ExtentView<'_>, (at, end): (u64, u64), size: u64) -> Range<usize> {
    let from = (at / size).saturating_sub(first).min(extent.count() as u64);
    let to = end.div_ceil(size).saturating_sub(first).min(extent.count() as u64);
    from as usize..to as usize
}

/// An entry of a table: its key, without the table's number, and its value.
pub type Entry<'a> = (&'a [u8], Value<'a>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_however_long_it_lasts() {
        for length in 0..3 * BRIEF {
            let key = vec![7; length];
            assert_eq!(&*BriefKey::new(Table(9), &key), full_key(Table(9), &key));
        }
    }
}
