//! What a volume says, as far as it is in memory.

use crate::btree;
use crate::btree::extent::View as ExtentView;
use crate::btree::look::{self, Bounds};
use crate::cache::Cache;
use crate::locks::after_table;
use crate::page::{self, Ptr};
use crate::{Layout, Table};
use base::Block;
use std::borrow::Cow;
use std::ops::{ControlFlow, Deref, Range};

/// How many leaves behind a missing one are asked for together with it, at most.
pub(crate) const AHEAD: usize = 7;

/// Something that has to be read before an answer can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A page.
    Page {
        ptr: Ptr,
        /// The level it must have, if that is known.
        level: Option<u8>,
    },
    /// A block of data.
    Data { at: u64, sum: u64 },
    /// That a checkpoint makes room: in the journal, in memory, or on the disk.
    Room,
}

/// What a plan needs and the cache has not: to be given to [`crate::Store::fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub(crate) Vec<Want>);

impl Missing {
    /// Both, to be fetched together.
    #[must_use]
    pub fn merge(mut self, other: Missing) -> Missing {
        self.0.extend(other.0);
        self
    }
}

impl From<Want> for Missing {
    fn from(want: Want) -> Missing {
        Missing(vec![want])
    }
}

/// A value, where it is in memory.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// It stands in its page.
    Inline(&'a [u8]),
    /// It has blocks of its own: these, and so many bytes of them.
    Blocks(Vec<Block>, usize),
}

impl<'a> Value<'a> {
    /// The bytes.
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

    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Value::Inline(bytes) => bytes.len(),
            Value::Blocks(_, length) => *length,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of a raw object, one piece behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A range of a block, shared with the cache.
    Data(Block, Range<usize>),
    /// Bytes that stand in a page.
    Inline(Vec<u8>),
    /// So many zeros.
    Hole(usize),
}

impl Piece {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Data(_, range) => range.len(),
            Piece::Inline(bytes) => bytes.len(),
            Piece::Hole(count) => *count,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Looks at one state of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) root: Ptr,
    pub(crate) layout: &'a Layout,
}

/// A key as the tree has it: its table's number in front.
pub(crate) fn full_key(table: Table, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(4 + key.len());
    full.extend(table.0.to_be_bytes());
    full.extend(key);
    full
}

/// The same for who needs it but for a moment: it takes no memory of its own, unless it is long.
pub(crate) struct BriefKey {
    short: [u8; BRIEF],
    length: usize,
    long: Vec<u8>,
}

/// Keys up to here are short.
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

/// The key of a raw object's cell for a block.
pub(crate) fn raw_key(table: Table, object: u64, block: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..12].copy_from_slice(&object.to_be_bytes());
    key[12..].copy_from_slice(&block.to_be_bytes());
    key
}

/// The block number in a raw object's key.
pub(crate) fn raw_block(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[12..20].try_into().expect("raw keys have twenty bytes"))
}

/// A cell of a raw object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawCell<'a> {
    /// The first bytes of its first block; the rest of that is zeros.
    Inline(&'a [u8]),
    /// Blocks from this one of the object on.
    Extent(u64, ExtentView<'a>),
}

impl<'a> Reader<'a> {
    /// The value of a key.
    ///
    /// # Errors
    /// What has to be fetched first.
    #[inline]
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value<'a>>, Missing> {
        let full = BriefKey::new(table, key);
        match btree::find(self.cache, self.root, &full)? {
            Some((page, index)) => self.value(page, index).map(Some),
            None => Ok(None),
        }
    }

    /// The first entry of a table with this key or a greater one.
    ///
    /// # Errors
    /// What has to be fetched first.
    pub fn seek(&self, table: Table, key: &[u8]) -> Result<Option<Entry<'a>>, Missing> {
        match btree::seek(self.cache, self.root, &full_key(table, key))? {
            Some((page, index)) => self.entry(table, page, index),
            None => Ok(None),
        }
    }

    /// The last entry of a table with this key or a lesser one.
    ///
    /// # Errors
    /// What has to be fetched first.
    pub fn seek_back(&self, table: Table, key: &[u8]) -> Result<Option<Entry<'a>>, Missing> {
        match btree::last_at_or_before(self.cache, self.root, &full_key(table, key))? {
            Some((page, index)) => self.entry(table, page, index),
            None => Ok(None),
        }
    }

    /// The last entry of a table.
    ///
    /// # Errors
    /// What has to be fetched first.
    pub fn last(&self, table: Table) -> Result<Option<Entry<'a>>, Missing> {
        self.seek_back(table, &vec![0xff; self.layout.key_max()])
    }

    /// Visits the entries of a table from a key on, in order, until told to stop.
    ///
    /// # Errors
    /// What has to be fetched first; what was visited before is as good as not visited.
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

    /// Visits the keys of a table, in order, until told to stop; whether it was. Fetches no values.
    ///
    /// # Errors
    /// What has to be fetched first; what was visited before is as good as not visited.
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

    /// Visits leaves, each with the cells that are meant, until told to stop.
    pub(crate) fn leaves(
        &self,
        bounds: &Bounds<'_>,
        visit: look::Visit<'_, 'a>,
    ) -> Result<(), Missing> {
        look::leaves(self.cache, self.root, bounds, visit)
    }

    /// Bytes of a raw object. It knows no size: behind its last byte is a hole without end.
    ///
    /// # Errors
    /// What has to be fetched first, all of it.
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

    /// What somebody who reads on will need of a raw object, and up to where that is all: behind
    /// that place it is only the page that has to be fetched before more can be said. The next
    /// such page up to `behind` is among it, so that the range after this one can be foreseen.
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

    /// Adds what a read wants of one block of an object, and the hole before it.
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

    /// How many blocks of a range of a raw object (bytes) take space.
    ///
    /// # Errors
    /// What has to be fetched first.
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

    /// How far a raw object has `most` blocks that take space, from a byte on; `None`: it has no
    /// more than so many to its end. Holes cost nothing, however long they are.
    ///
    /// # Errors
    /// What has to be fetched first.
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

    /// Visits the cells of a raw object that have bytes of a range, in order.
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

    /// The value of a leaf's cell.
    #[inline]
    pub(crate) fn value(&self, page: &'a [u8], index: usize) -> Result<Value<'a>, Missing> {
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

    /// A block of data, if it is cached.
    pub(crate) fn data(&self, at: u64, sum: u64) -> Result<Block, Want> {
        self.cache.data(at).cloned().ok_or(Want::Data { at, sum })
    }
}

/// Which blocks of an extent have bytes of a range, when the first of them is `first`.
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
