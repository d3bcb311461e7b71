//! Raw objects: bytes by offset, without a size.
//!
//! Each cell of an object describes an extent; but the first block is stored in the page itself as
//! long as only its first bytes are not zero, so that a small object needs no extent. A block
//! changed since the last checkpoint is changed in place; any other change gets fresh blocks,
//! because nothing referred to by a checkpoint, a snapshot or the journal is ever overwritten.

use super::{Grants, Present};
use crate::btree::{extent, look};
use crate::cache::State;
use crate::page;
use crate::reader::{raw_block, raw_key};
use crate::space::Run;
use crate::sum::sum;
use crate::{Error, Extent, Table};
use base::Block;

/// One object, about to be changed.
pub(super) struct Raw<'a> {
    pub(super) present: &'a mut Present,
    pub(super) table: Table,
    pub(super) object: u64,
}

/// An extent of the object, from this block of the object on.
struct Cell {
    first: u64,
    extent: Extent,
}

impl Cell {
    fn end(&self) -> u64 {
        self.first + self.extent.sums.len() as u64
    }
}

impl Raw<'_> {
    /// Writes bytes.
    pub(super) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        grants: &mut Grants,
    ) -> Result<(), Error> {
        let end = offset.checked_add(data.len() as u64).ok_or(Error::Damaged)?;
        if end > self.inline_max() || self.covering(0)?.is_some() {
            return self.write_blocks(offset, data, grants);
        }
        let mut bytes = self.inline()?;
        let (start, end) = (offset as usize, end as usize);
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(data);
        self.put_inline(&bytes)
    }

    /// Attaches blocks that are on the disk already.
    pub(super) fn attach(&mut self, offset: u64, extent: &Extent) -> Result<(), Error> {
        if !offset.is_multiple_of(self.block()) {
            return Err(Error::Damaged);
        }
        let first = offset / self.block();
        let count = extent.sums.len();
        self.carve(first, first.saturating_add(count as u64))?;
        let whole = Run { at: extent.at, count: u32::try_from(count).map_err(|_| Error::Damaged)? };
        self.present.space.set_live(whole)?;
        let max = self.present.layout.extent_max();
        for (index, sums) in extent.sums.chunks(max).enumerate() {
            let skip = (index * max) as u64;
            let birth = self.present.epoch;
            let part = Extent { at: extent.at + skip, birth, sums: sums.to_vec() };
            self.put(first + skip, &part);
        }
        Ok(())
    }

    /// Punches a hole.
    pub(super) fn cut(&mut self, from: u64, to: u64, grants: &mut Grants) -> Result<(), Error> {
        if from >= to {
            return Ok(());
        }
        if from < self.inline_max() {
            let mut bytes = self.inline()?;
            let start = from.min(bytes.len() as u64) as usize;
            let end = to.min(bytes.len() as u64) as usize;
            bytes[start..end].fill(0);
            if end == bytes.len() {
                bytes.truncate(start);
            }
            self.put_inline(&bytes)?;
        }
        self.cut_blocks(from, to, grants)
    }

    fn cut_blocks(&mut self, from: u64, to: u64, grants: &mut Grants) -> Result<(), Error> {
        let size = self.block();
        let (first, last) = (from.div_ceil(size), to / size);
        let edges = if first > last {
            // Both ends are in one block.
            vec![(from, to)]
        } else {
            vec![(from, first * size), (last * size, to)]
        };
        for (from, to) in edges {
            let partial = from < to && to != u64::MAX;
            if partial && self.covering(from / size)?.is_some() {
                self.write_blocks(from, &vec![0; (to - from) as usize], grants)?;
            }
        }
        if first < last { self.carve(first, last) } else { Ok(()) }
    }

    /// Returns the bytes of the first block that are stored in the page.
    fn inline(&self) -> Result<Vec<u8>, Error> {
        let key = raw_key(self.table, self.object, 0);
        let found = look::find(&self.present.cache, self.present.tree.root, &key)?;
        let found = found.map(|(page, index)| page::value(page, index));
        let inline = found.filter(|(_, is_extent)| !is_extent);
        Ok(inline.map(|(bytes, _)| bytes.to_vec()).unwrap_or_default())
    }

    fn inline_max(&self) -> u64 {
        self.present.layout.inline_max() as u64 - 20
    }

    fn put_inline(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let key = raw_key(self.table, self.object, 0);
        let had = !self.inline()?.is_empty();
        let (tree, cache) = (&mut self.present.tree, &mut self.present.cache);
        if !bytes.is_empty() {
            tree.put(cache, &key, bytes, false);
        } else if had {
            tree.take(cache, &key);
        }
        Ok(())
    }

    fn block(&self) -> u64 {
        self.present.layout.block as u64
    }

    fn write_blocks(&mut self, offset: u64, data: &[u8], grants: &mut Grants) -> Result<(), Error> {
        let size = self.block();
        let end = (offset + data.len() as u64).div_ceil(size);
        let mut index = offset / size;
        while index < end {
            if let Some(place) = self.in_place(index)? {
                self.change(place, index, offset, data);
                index += 1;
                continue;
            }
            let mut stop = index + 1;
            while stop < end && self.in_place(stop)?.is_none() {
                stop += 1;
            }
            let blocks: Result<Vec<Block>, Error> =
                (index..stop).map(|index| self.patched(index, offset, data)).collect();
            self.replace(index, blocks?, grants)?;
            index = stop;
        }
        Ok(())
    }

    /// Returns the cell and the frame of a block that can be changed in place.
    fn in_place(&self, index: u64) -> Result<Option<(Cell, u32)>, Error> {
        let Some(cell) = self.covering(index)? else { return Ok(None) };
        let at = cell.extent.at + (index - cell.first);
        let frame = self.present.cache.frame_of(at);
        let frame = frame.filter(|frame| {
            cell.extent.birth == self.present.epoch
                && self.present.cache.state(*frame) == State::DirtyData
        });
        Ok(frame.map(|frame| (cell, frame)))
    }

    fn change(&mut self, (cell, frame): (Cell, u32), index: u64, offset: u64, data: &[u8]) {
        let block = self.present.cache.change(frame);
        lay_over(block, index, offset, data);
        let sum = sum(block);
        let key = raw_key(self.table, self.object, cell.first);
        let place = (index - cell.first) as usize;
        assert!(place < cell.extent.sums.len(), "the cell has the block");
        self.present.tree.set_sum(&mut self.present.cache, &key, place, sum);
    }

    /// Returns the new contents of a block: the old ones overlaid with the data.
    fn patched(&self, index: u64, offset: u64, data: &[u8]) -> Result<Block, Error> {
        let size = self.block();
        let covered = offset <= index * size && (index + 1) * size <= offset + data.len() as u64;
        let old = if covered { None } else { self.covering(index)? };
        let mut block = match old {
            None if covered => Block::stale(size as usize),
            None if index == 0 => Block::from_bytes(&self.inline()?, size as usize),
            None => Block::zeroed(size as usize),
            Some(cell) => {
                let place = index - cell.first;
                let sum = cell.extent.sums[place as usize];
                self.present.reader().data(cell.extent.at + place, sum)?
            }
        };
        lay_over(block.bytes_mut(), index, offset, data);
        Ok(block)
    }

    /// Replaces the contents of blocks of the object, in fresh blocks of the volume.
    fn replace(
        &mut self,
        index: u64,
        blocks: Vec<Block>,
        grants: &mut Grants,
    ) -> Result<(), Error> {
        let stop = index + blocks.len() as u64;
        self.carve(index, stop)?;
        let mut index = index;
        let mut blocks = blocks.into_iter();
        while index < stop {
            let max = self.present.layout.extent_max();
            let before = index.checked_sub(1).map(|last| self.covering(last)).transpose()?;
            let before = before.flatten().filter(|cell| {
                cell.extent.birth == self.present.epoch && cell.extent.sums.len() < max
            });
            let room = max - before.as_ref().map_or(0, |cell| cell.extent.sums.len());
            let hint = before.as_ref().map(|cell| cell.extent.at + (cell.end() - cell.first));
            let want = (stop - index).min(room as u64) as u32;
            let run = self.present.take_run(grants, hint, want, false)?;
            let taken = blocks.by_ref().take(run.count as usize).collect();
            let extent = self.present.add_data(run, taken);
            match before {
                Some(mut cell) if hint == Some(run.at) => {
                    cell.extent.sums.extend(extent.sums);
                    self.put(cell.first, &cell.extent);
                }
                Some(_) | None => self.put(index, &extent),
            }
            index += u64::from(run.count);
        }
        assert!(blocks.next().is_none(), "every block found a place");
        Ok(())
    }

    /// Turns blocks of the object into a hole.
    fn carve(&mut self, first: u64, stop: u64) -> Result<(), Error> {
        assert!(first <= stop, "a range does not end before it begins");
        if first == 0 {
            self.put_inline(&[])?;
        }
        let mut from = first;
        while let Some(cell) = self.next(from, stop)? {
            let key = raw_key(self.table, self.object, cell.first);
            self.present.tree.take(&mut self.present.cache, &key);
            let (start, end) = (cell.first.max(first), cell.end().min(stop));
            let part = |from: u64, to: u64| Extent {
                at: cell.extent.at + (from - cell.first),
                birth: cell.extent.birth,
                sums: cell.extent.sums[(from - cell.first) as usize..(to - cell.first) as usize]
                    .to_vec(),
            };
            if cell.first < start {
                self.put(cell.first, &part(cell.first, start));
            }
            if end < cell.end() {
                self.put(end, &part(end, cell.end()));
            }
            let gone = part(start, end);
            self.present.free_blocks(gone.at, gone.sums.len(), gone.birth);
            from = end;
        }
        Ok(())
    }

    /// Returns the extent with a block of the object.
    fn covering(&self, index: u64) -> Result<Option<Cell>, Error> {
        self.next(index, index + 1)
    }

    /// Returns the first extent with one of these blocks of the object.
    fn next(&self, first: u64, stop: u64) -> Result<Option<Cell>, Error> {
        let longest = self.present.layout.extent_max() as u64;
        let from = raw_key(self.table, self.object, (first + 1).saturating_sub(longest));
        let to = raw_key(self.table, self.object, stop);
        let (cache, root) = (&self.present.cache, self.present.tree.root);
        let mut found = None;
        look::scan_range(cache, root, (&from, &to), &mut |page, index| {
            let wanted = |cell: &Cell| cell.end() > first;
            found = found.take().or_else(|| self.cell((page, index)).filter(wanted));
        })?;
        Ok(found)
    }

    fn cell(&self, (page, index): (&[u8], usize)) -> Option<Cell> {
        let own = raw_key(self.table, self.object, 0);
        let key = page::key(page, index);
        let (value, is_extent) = page::value(page, index);
        let ours = key.len() == 20 && key[..12] == own[..12] && is_extent;
        ours.then(|| Cell { first: raw_block(key), extent: extent::View::new(value).to_extent() })
    }

    fn put(&mut self, first: u64, extent: &Extent) {
        assert!(!extent.sums.is_empty(), "an extent has blocks");
        let key = raw_key(self.table, self.object, first);
        let cell = extent::encode(extent, extent.sums.len() * self.present.layout.block);
        self.present.tree.put(&mut self.present.cache, &key, &cell, true);
    }
}

/// Overlays block `index` with the part of `data` (at `offset` of the object) that belongs to it.
fn lay_over(block: &mut [u8], index: u64, offset: u64, data: &[u8]) {
    let start = index * block.len() as u64;
    let from = offset.max(start);
    let to = (offset + data.len() as u64).min(start + block.len() as u64);
    let source = &data[(from - offset) as usize..(to - offset) as usize];
    block[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
}
