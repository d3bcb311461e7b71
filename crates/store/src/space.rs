//! The segment manager: allocation and freeing of blocks.
//!
//! A block is *busy* from its allocation until a superblock is durable that does not refer to it,
//! and *live* while the present tree or a snapshot contains it. The maps on the disk record live
//! blocks; there are two, written alternately, so that the one of the newest superblock is never
//! touched. Each map has a block of bits for each segment, and an index of their checksums whose
//! own checksum is in the superblock.

use crate::segment::{self, Segment};
use crate::sum::sum;
use crate::{Error, Layout};
use base::{Automaton, Block, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Purpose of an allocation: each has an open segment of its own, so that pages stay near pages and
/// data near data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Pages,
    Data,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) count: u32,
}

/// The segment manager.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    layout: Layout,
    busy: Vec<u64>,
    live: Vec<u64>,
    /// Number of blocks of each segment that are not busy.
    free: Vec<u32>,
    free_total: u64,
    segments: Vec<Segment>,
    /// Segments that are not closed.
    open: BTreeSet<usize>,
    /// Segments whose bits changed since the write of map 0, or map 1.
    changed: [BTreeSet<usize>; 2],
    /// Checksums of the segments' bits as of the last written map.
    sums: Vec<u64>,
    /// Blocks no longer live, but still referred to by the superblock on the disk.
    releasing: Vec<Run>,
    /// Blocks unknown to the superblock on the disk, because the volume is growing.
    grown: Range<u64>,
    /// Positions of the next search, for pages and for data.
    cursors: [u64; 2],
}

impl Space {
    /// Returns the state of a volume without blocks in use.
    pub(crate) fn empty(layout: &Layout) -> Space {
        let segments = layout.segments() as usize;
        let words = segments * layout.segment as usize / 64;
        let blocks = layout.blocks - layout.data_at;
        let mut space = Space {
            layout: *layout,
            busy: vec![0; words],
            live: vec![0; words],
            free: vec![layout.segment as u32; segments],
            free_total: segments as u64 * layout.segment,
            segments: vec![Segment::default(); segments],
            open: BTreeSet::new(),
            changed: [(0..segments).collect(), (0..segments).collect()],
            sums: vec![0; segments],
            releasing: Vec::new(),
            grown: 0..0,
            cursors: [0, blocks / 2 / layout.segment * layout.segment],
        };
        // Blocks missing in the last segment are busy for ever, and so are maps among the data.
        for bit in blocks..segments as u64 * layout.segment {
            space.set_busy(bit);
        }
        for at in layout.maps_in_data() {
            space.set_busy(at - layout.data_at);
        }
        space
    }

    /// Grows the volume. The new blocks, and those of the former maps, can be allocated when the
    /// next superblock is durable, which is the first that includes them.
    pub(crate) fn grow(&mut self, layout: &Layout) {
        let before = self.layout;
        assert!(layout.data_at == before.data_at && layout.blocks > before.blocks, "it grows");
        let (segments, known) = (layout.segments() as usize, self.segments.len());
        let words = segments * layout.segment as usize / 64;
        self.layout = *layout;
        self.live.resize(words, 0);
        self.busy.resize(words, u64::MAX);
        self.free.resize(segments, 0);
        self.segments.resize(segments, Segment::default());
        self.sums.resize(segments, 0);
        let moves = layout.map_at != before.map_at;
        let unwritten = if moves { 0 } else { known };
        self.changed.iter_mut().for_each(|changed| changed.extend(unwritten..segments));
        self.grown = before.blocks..layout.blocks;
        if moves {
            let maps = before.maps_in_data();
            let count = u32::try_from(maps.end - maps.start).expect("maps are small");
            let run = Run { at: maps.start, count };
            self.releasing.extend((count > 0).then_some(run));
        }
    }

    /// Makes the new blocks available, when the superblock that includes them is durable.
    fn open_grown(&mut self) {
        let (maps, grown) = (self.layout.maps_in_data(), mem::take(&mut self.grown));
        let before = grown.start..grown.end.min(maps.start);
        let behind = grown.start.max(maps.end)..grown.end;
        let parts = if maps.is_empty() { [grown, 0..0] } else { [before, behind] };
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.clear_all(part.start - self.layout.data_at..part.end - self.layout.data_at);
        }
    }

    /// Clears busy bits, word by word: a volume may grow by billions.
    fn clear_all(&mut self, bits: Range<u64>) {
        let mut bit = bits.start;
        while bit < bits.end {
            let next = ((bit / 64 + 1) * 64).min(bits.end);
            let mask = u64::MAX >> (64 - (next - bit)) << (bit % 64);
            let word = &mut self.busy[(bit / 64) as usize];
            assert_eq!(*word & mask, mask, "only blocks in use are given back");
            *word &= !mask;
            self.free[(bit / self.layout.segment) as usize] += (next - bit) as u32;
            self.free_total += next - bit;
            bit = next;
        }
    }

    /// Loads a segment's bits from the disk.
    ///
    /// # Errors
    /// `Damaged` if bits of nonexistent blocks are set.
    pub(crate) fn load(&mut self, segment: usize, bits: &[u8]) -> Result<(), Error> {
        let words = self.layout.segment as usize / 64;
        for (index, word) in bits.chunks_exact(8).take(words).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let place = segment * words + index;
            if word & self.busy[place] != 0 {
                return Err(Error::Damaged);
            }
            self.live[place] = word;
            self.busy[place] |= word;
            self.free[segment] -= word.count_ones();
            self.free_total -= u64::from(word.count_ones());
        }
        self.sums[segment] = sum(&self.bits(segment));
        Ok(())
    }

    /// Marks map `which` as up to date, after loading.
    pub(crate) fn loaded(&mut self, which: usize) {
        self.changed[which].clear();
    }

    /// Returns the number of blocks that can be allocated.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_total
    }

    /// Returns the number of blocks that become free when the next superblock is durable.
    pub(crate) fn releasing_blocks(&self) -> u64 {
        self.releasing.iter().map(|run| u64::from(run.count)).sum()
    }

    /// Allocates up to `want` blocks in one run.
    pub(crate) fn allocate(&mut self, purpose: Purpose, want: u32) -> Option<Run> {
        assert!(want > 0, "nobody wants no blocks");
        let cursor = self.cursors[purpose as usize];
        let start = self.next_free(cursor).or_else(|| self.next_free(0))?;
        let segment_end = (start / self.layout.segment + 1) * self.layout.segment;
        let mut count = 0;
        while count < want && start + u64::from(count) < segment_end {
            if self.is_busy(start + u64::from(count)) {
                break;
            }
            self.set_busy(start + u64::from(count));
            count += 1;
        }
        assert!(count > 0, "the first block was free");
        self.cursors[purpose as usize] = start + u64::from(count);
        self.tell(start, segment::Input::Open);
        Some(Run { at: start + self.layout.data_at, count })
    }

    /// Allocates exactly `count` blocks in one run.
    pub(crate) fn allocate_exactly(&mut self, count: u32) -> Option<Run> {
        assert!(count > 0, "nobody wants no blocks");
        let cursor = self.cursors[Purpose::Data as usize];
        let start = self.find_run(cursor, count).or_else(|| self.find_run(0, count))?;
        (start..start + u64::from(count)).for_each(|bit| self.set_busy(bit));
        self.cursors[Purpose::Data as usize] = start + u64::from(count);
        self.tell(start, segment::Input::Open);
        Some(Run { at: start + self.layout.data_at, count })
    }

    /// Returns whether there will be a run of `count` free blocks when these runs, and those being
    /// released, are free.
    pub(crate) fn will_have_run(&self, more: impl Iterator<Item = Run>, count: u32) -> bool {
        let bits = |run: Run| self.bit(run.at).map(|bit| (bit, bit + u64::from(run.count)));
        let mut coming: Vec<(u64, u64)> =
            self.releasing.iter().copied().chain(more).filter_map(bits).collect();
        coming.sort_unstable();
        let comes = |bit: u64| {
            let before = coming.partition_point(|(start, _)| *start <= bit);
            coming[..before].last().is_some_and(|(_, end)| bit < *end)
        };
        // It would include a block of one of them, so the search is around each.
        let end = self.layout.blocks - self.layout.data_at;
        coming.iter().any(|(start, stop)| {
            let around = start.saturating_sub(u64::from(count))..(stop + u64::from(count)).min(end);
            let mut length = 0;
            around.into_iter().any(|bit| {
                let ends = bit.is_multiple_of(self.layout.segment);
                length = if ends { 0 } else { length };
                length = if comes(bit) || !self.is_busy(bit) { length + 1 } else { 0 };
                length == count
            })
        })
    }

    /// Allocates this very block, if it is free.
    pub(crate) fn allocate_at(&mut self, at: u64) -> bool {
        let Some(bit) = self.bit(at) else { return false };
        if self.is_busy(bit) {
            return false;
        }
        self.set_busy(bit);
        self.tell(bit, segment::Input::Open);
        true
    }

    /// Marks blocks that have become part of the tree as live. After a crash they may not be
    /// allocated yet.
    ///
    /// # Errors
    /// `Damaged` if there are no such blocks, or they are live already, which only a replayed
    /// record that contradicts the volume can cause.
    pub(crate) fn set_live(&mut self, run: Run) -> Result<(), Error> {
        for at in run.at..run.at + u64::from(run.count) {
            let bit = self.bit(at).filter(|bit| !self.is_live(*bit)).ok_or(Error::Damaged)?;
            if !self.is_busy(bit) {
                self.set_busy(bit);
            }
            self.live[(bit / 64) as usize] |= 1 << (bit % 64);
            self.mark_changed(bit);
        }
        Ok(())
    }

    /// Frees blocks that were allocated and never used.
    pub(crate) fn give_back(&mut self, run: Run) {
        for at in run.at..run.at + u64::from(run.count) {
            let Some(bit) = self.bit(at) else { continue };
            assert!(!self.is_live(bit), "a number in use is not returned");
            self.clear_busy(bit);
        }
    }

    /// Marks blocks that have left the tree: the next map records that, and when its superblock is
    /// durable they are free.
    ///
    /// # Errors
    /// `Damaged` if they were not in use.
    pub(crate) fn retire(&mut self, run: Run) -> Result<(), Error> {
        for at in run.at..run.at + u64::from(run.count) {
            let bit = self.bit(at).filter(|bit| self.is_live(*bit)).ok_or(Error::Damaged)?;
            self.live[(bit / 64) as usize] &= !(1 << (bit % 64));
            self.mark_changed(bit);
        }
        self.releasing.push(run);
        Ok(())
    }

    /// Frees the blocks retired before the superblock that is now durable.
    pub(crate) fn release(&mut self) -> Vec<Run> {
        self.open_grown();
        let runs = mem::take(&mut self.releasing);
        for run in &runs {
            for at in run.at..run.at + u64::from(run.count) {
                let bit = self.bit(at).expect("it was retired");
                assert!(!self.is_live(bit), "a freed block has no readers");
                self.clear_busy(bit);
            }
        }
        runs
    }

    /// Returns the blocks that bring map `which` up to date, with their positions; and the checksum
    /// of its index.
    pub(crate) fn map_writes(&mut self, which: usize) -> (Vec<(u64, Vec<Block>)>, u64) {
        let base = self.layout.map(which as u64);
        let mut writes: Vec<(u64, Vec<Block>)> = Vec::new();
        for segment in mem::take(&mut self.changed[which]) {
            let bits = self.bits(segment);
            self.sums[segment] = sum(&bits);
            let at = base + self.layout.index + segment as u64;
            match writes.last_mut() {
                Some((first, blocks))
                    if *first + blocks.len() as u64 == at
                        && blocks.len() < base::op::BLOCKS_MAX =>
                {
                    blocks.push(bits);
                }
                _ => writes.push((at, vec![bits])),
            }
        }
        assert!(self.changed[which].is_empty(), "the map says everything that is known");
        let index = self.index();
        let index_sum = sum(&index);
        for (chunk, bytes) in index.chunks(self.layout.block * base::op::BLOCKS_MAX).enumerate() {
            let blocks = bytes.chunks(self.layout.block);
            let blocks = blocks.map(|bytes| Block::from_bytes(bytes, self.layout.block));
            writes.push((base + (chunk * base::op::BLOCKS_MAX) as u64, blocks.collect()));
        }
        (writes, index_sum)
    }

    /// Returns the index: the checksum of every segment's bits, in whole blocks.
    fn index(&self) -> Vec<u8> {
        assert_eq!(self.sums.len(), self.segments.len(), "each segment has a checksum");
        let mut bytes: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let whole = self.layout.index as usize * self.layout.block;
        assert!(bytes.len() <= whole, "the index has room");
        bytes.resize(whole, 0);
        bytes
    }

    /// Returns a segment's bits in the disk format.
    fn bits(&self, segment: usize) -> Block {
        let words = self.layout.segment as usize / 64;
        let mut block = Block::zeroed(self.layout.block);
        let bytes = block.bytes_mut();
        for (index, word) in self.live[segment * words..(segment + 1) * words].iter().enumerate() {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        block
    }

    /// Returns whether a block is in use, according to the next map.
    pub(crate) fn is_block_live(&self, at: u64) -> bool {
        self.bit(at).is_some_and(|bit| self.is_live(bit))
    }

    /// Returns the segment of a block.
    pub(crate) fn segment_of(&self, at: u64) -> usize {
        assert!(at >= self.layout.data_at, "superblocks, journal and maps are in no segment");
        assert!(at < self.layout.blocks, "a block is within the volume");
        ((at - self.layout.data_at) / self.layout.segment) as usize
    }

    /// Steps one segment; returns its outputs.
    pub(crate) fn step_segment(
        &mut self,
        index: usize,
        input: segment::Input,
    ) -> Vec<segment::Output> {
        let mut out = Vec::new();
        self.segments[index].step(Instant(0), input, &mut out);
        if self.segments[index].is_open() {
            self.open.insert(index);
        } else {
            self.open.remove(&index);
        }
        out
    }

    /// Closes a segment for which a checkpoint has no writes.
    pub(crate) fn close_unchanged(&mut self, index: usize) {
        if self.segments[index].is_idle() {
            self.step_segment(index, segment::Input::Close(0));
        }
    }

    /// Returns the segments that a checkpoint has to close.
    pub(crate) fn open_segments(&self) -> Vec<usize> {
        self.open.iter().copied().collect()
    }

    /// Returns the number of writes in flight of each segment that has some.
    pub(crate) fn writing(&self) -> BTreeMap<usize, usize> {
        let writes = self.open.iter().map(|index| (*index, self.segments[*index].writes()));
        writes.filter(|(_, writes)| *writes > 0).collect()
    }

    /// Iterates over the states of the segments that are not closed.
    pub(crate) fn states(&self) -> impl Iterator<Item = &'static str> {
        self.open.iter().map(|index| self.segments[*index].state_name())
    }

    fn tell(&mut self, bit: u64, input: segment::Input) {
        self.step_segment((bit / self.layout.segment) as usize, input);
    }

    /// Records that the contents of this block in memory differ from the disk.
    pub(crate) fn note_change(&mut self, at: u64) {
        let index = self.segment_of(at);
        self.step_segment(index, segment::Input::Change);
    }

    fn mark_changed(&mut self, bit: u64) {
        let segment = (bit / self.layout.segment) as usize;
        for changed in &mut self.changed {
            changed.insert(segment);
        }
    }

    fn bit(&self, at: u64) -> Option<u64> {
        at.checked_sub(self.layout.data_at).filter(|_| at < self.layout.blocks)
    }

    fn is_busy(&self, bit: u64) -> bool {
        self.busy[(bit / 64) as usize] & 1 << (bit % 64) != 0
    }

    fn is_live(&self, bit: u64) -> bool {
        self.live[(bit / 64) as usize] & 1 << (bit % 64) != 0
    }

    fn set_busy(&mut self, bit: u64) {
        assert!(!self.is_busy(bit), "a block is given out once");
        self.busy[(bit / 64) as usize] |= 1 << (bit % 64);
        self.free[(bit / self.layout.segment) as usize] -= 1;
        self.free_total -= 1;
    }

    fn clear_busy(&mut self, bit: u64) {
        assert!(self.is_busy(bit), "only a block in use is given back");
        self.busy[(bit / 64) as usize] &= !(1 << (bit % 64));
        self.free[(bit / self.layout.segment) as usize] += 1;
        self.free_total += 1;
    }

    /// Returns the first free bit at or behind one.
    fn next_free(&self, from: u64) -> Option<u64> {
        let mut bit = from;
        let end = self.busy.len() as u64 * 64;
        while bit < end {
            if self.free[(bit / self.layout.segment) as usize] == 0 {
                bit = (bit / self.layout.segment + 1) * self.layout.segment;
                continue;
            }
            let word = !self.busy[(bit / 64) as usize] & u64::MAX << (bit % 64);
            if word != 0 {
                return Some(bit / 64 * 64 + u64::from(word.trailing_zeros()));
            }
            bit = (bit / 64 + 1) * 64;
        }
        None
    }

    /// Returns the first run of `count` free bits within one segment, at or behind `from`.
    fn find_run(&self, from: u64, count: u32) -> Option<u64> {
        let mut at = from;
        loop {
            let start = self.next_free(at)?;
            let segment = start / self.layout.segment;
            let end = (segment + 1) * self.layout.segment;
            if self.free[segment as usize] < count {
                at = end;
                continue;
            }
            let length = (start..end).take_while(|bit| !self.is_busy(*bit)).take(count as usize);
            let length = length.count() as u64;
            if length == u64::from(count) {
                return Some(start);
            }
            at = start + length;
        }
    }

    /// Asserts all invariants.
    pub(crate) fn check(&self) {
        let zeros: u64 = self.busy.iter().map(|word| u64::from(word.count_zeros())).sum();
        assert_eq!(zeros, self.free_total);
        assert!(self.live.iter().zip(&self.busy).all(|(live, busy)| live & !busy == 0));
        self.segments.iter().for_each(Automaton::check);
        let words = self.layout.segment as usize / 64;
        for (index, busy) in self.busy.chunks(words).enumerate() {
            let zeros: u32 = busy.iter().map(|word| word.count_zeros()).sum();
            assert_eq!(zeros, self.free[index], "blocks of segment {index} are counted");
            let open = self.segments[index].is_open();
            assert_eq!(self.open.contains(&index), open, "segment {index} is listed if it is open");
        }
        for run in &self.releasing {
            let mut bits = (run.at..run.at + u64::from(run.count)).filter_map(|at| self.bit(at));
            let waits = |bit| self.is_busy(bit) && !self.is_live(bit);
            assert!(bits.all(waits), "a retired block is neither in a tree nor free");
        }
        let known = self.segments.len();
        assert!(self.changed.iter().flatten().all(|segment| *segment < known));
    }
}
