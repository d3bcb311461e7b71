//! Layout of a volume, and limits on sizes.
//!
//! ```text
//! | superblocks | journal ring | map A | map B | pages and data ...            |
//! 0             8 × 4 KiB
//! ```
//!
//! A volume that has grown may need larger maps than fit before its data. They are at its former
//! end then; everything else stays in place.

use crate::Error;
use std::ops::Range;

/// Number of superblocks.
pub(crate) const SUPERBLOCKS: u64 = 8;

/// Distance of superblocks, bytes: at least the atomic write unit of every disk.
pub(crate) const SUPERBLOCK_STRIDE: u64 = 4096;

/// Size of the beginning of a volume that identifies it, bytes.
pub const HEAD_BYTES: usize = (SUPERBLOCKS * SUPERBLOCK_STRIDE) as usize;

/// Maximum number of blocks of one extent's record.
const EXTENT_BLOCKS_MAX: usize = 32;

/// Maximum size of a map that a volume may grow to unless its segments are the largest, bytes. A
/// map that moves is built in memory and written as a whole, and read at each opening of the
/// volume.
const GROWN_MAP_MAX: u64 = 256 << 20;

/// Parameters of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a block, and of a page: 512, 1024, 2048 or 4096 bytes.
    pub block: usize,
    /// Total number of blocks.
    pub blocks: u64,
    /// Number of blocks of the journal ring.
    pub journal: u64,
    /// Number of blocks of a segment: a multiple of 64, at most the number of bits of a block.
    pub segment: u64,
}

/// Layout of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of a block, bytes.
    pub block: usize,
    /// Total number of blocks.
    pub blocks: u64,
    /// First block of the journal ring.
    pub journal_at: u64,
    /// Number of blocks of the journal ring.
    pub journal: u64,
    /// First block of the first of two maps.
    pub map_at: u64,
    /// Number of blocks of one map's index; the map itself has one block for each segment.
    pub index: u64,
    /// Number of segments that each map has room for.
    pub map_segments: u64,
    /// First block that can be allocated.
    pub data_at: u64,
    /// Number of blocks of a segment. The last may be shorter.
    pub segment: u64,
}

impl Geometry {
    /// Returns suitable parameters for a volume of this size, bytes: blocks of 4 KiB, a journal of
    /// a 128th, but at least 4 MiB and at most 128 MiB.
    pub fn for_bytes(bytes: u64) -> Geometry {
        let blocks = bytes / 4096;
        let segment = Geometry::segment_for(4096, blocks);
        Geometry { block: 4096, blocks, journal: (blocks / 128).clamp(1024, 32_768), segment }
    }

    /// Returns a suitable number of blocks of a segment for a volume of this number of blocks: a
    /// 16th, rounded down to a power of two, but at least 1024 and at most the number of bits of a
    /// block. So the volume can grow 2048 times.
    pub fn segment_for(block: usize, blocks: u64) -> u64 {
        let most = (block as u64 * 8).max(1024);
        1 << (blocks / 16).clamp(1024, most).ilog2()
    }

    /// Returns the layout.
    ///
    /// # Errors
    /// `TooLarge` if it is invalid, or nothing would be left for data.
    pub fn layout(&self) -> Result<Layout, Error> {
        let fair = [512, 1024, 2048, 4096].contains(&self.block)
            && self.blocks < 1 << 48
            && self.journal >= 8
            && self.segment >= 64
            && self.segment.is_multiple_of(64)
            && self.segment <= self.block as u64 * 8;
        let journal_at = SUPERBLOCKS * SUPERBLOCK_STRIDE / (self.block as u64).max(1);
        let map_at = journal_at.checked_add(self.journal).ok_or(Error::TooLarge)?;
        let Some(rest) = self.blocks.checked_sub(map_at).filter(|rest| fair && *rest >= 32) else {
            return Err(Error::TooLarge);
        };
        // A few segments too many are included, those of the maps themselves.
        let (map_segments, index) = self.map_of(rest);
        let data_at = map_at + 2 * (index + map_segments);
        if data_at + 16 > self.blocks {
            return Err(Error::TooLarge);
        }
        let Geometry { block, blocks, journal, segment } = *self;
        Ok(Layout {
            block,
            blocks,
            journal_at,
            journal,
            map_at,
            index,
            map_segments,
            data_at,
            segment,
        })
    }

    /// Returns the number of segments in this number of blocks, and of blocks of the index of their
    /// map.
    fn map_of(&self, blocks: u64) -> (u64, u64) {
        let segments = blocks.div_ceil(self.segment);
        (segments, (segments * 8).div_ceil(self.block as u64))
    }

    /// Returns the layout with data from one block on, and maps from another one on, behind it.
    ///
    /// # Errors
    /// `TooLarge` if it is invalid.
    pub(crate) fn layout_with(&self, map_at: u64, data_at: u64) -> Result<Layout, Error> {
        let usual = self.layout()?;
        let rest = self.blocks.checked_sub(data_at).filter(|rest| *rest >= 16);
        let rest = rest.filter(|_| data_at >= usual.journal_at + usual.journal);
        let (map_segments, index) = self.map_of(rest.ok_or(Error::TooLarge)?);
        let layout = Layout { map_at, index, map_segments, data_at, ..usual };
        let end = map_at.checked_add(layout.map_blocks());
        let fits = map_at >= data_at && end.is_some_and(|end| end <= self.blocks);
        if fits { Ok(layout) } else { Err(Error::TooLarge) }
    }
}

impl Layout {
    /// Returns the geometry of the layout.
    pub fn geometry(&self) -> Geometry {
        let Layout { block, blocks, journal, segment, .. } = *self;
        Geometry { block, blocks, journal, segment }
    }

    /// Returns the number of segments, counted from the first block that can be allocated.
    pub fn segments(&self) -> u64 {
        (self.blocks - self.data_at).div_ceil(self.segment)
    }

    /// Returns the first block of the index of map 0 or 1; its segments' blocks follow the index.
    pub(crate) fn map(&self, which: u64) -> u64 {
        assert!(which < 2, "there are two maps");
        self.map_at + which * (self.index + self.map_segments)
    }

    /// Returns the number of blocks of both maps.
    fn map_blocks(&self) -> u64 {
        2 * (self.index + self.map_segments)
    }

    /// Returns the number of blocks for pages and data.
    pub(crate) fn data_blocks(&self) -> u64 {
        let maps = self.maps_in_data();
        self.blocks - self.data_at - (maps.end - maps.start)
    }

    /// Returns whether the maps are among the data, because the volume has grown.
    pub(crate) fn is_moved(&self) -> bool {
        self.map_at >= self.data_at
    }

    /// Returns the blocks of the maps among the data: both maps are written alternately, so they
    /// need storage even where the rest is sparse.
    pub fn maps_in_data(&self) -> Range<u64> {
        let blocks = if self.is_moved() { self.map_blocks() } else { 0 };
        self.map_at..self.map_at + blocks
    }

    /// Returns the layout of the volume when it has grown to this number of blocks. Superblocks,
    /// journal, data and the start of segments stay in place; the maps go behind the present end if
    /// there are more segments than they have room for.
    ///
    /// # Errors
    /// `TooLarge` if it is not larger than before, there is no room for its maps, or it would have
    /// more blocks than [`Layout::grown_max`].
    pub fn grown(&self, blocks: u64) -> Result<Layout, Error> {
        let geometry = Geometry { blocks, ..self.geometry() };
        if blocks <= self.blocks {
            return Err(Error::TooLarge);
        }
        let usual = geometry.layout()?;
        if !self.is_moved() && usual.data_at == self.data_at {
            return Ok(usual);
        }
        let same = geometry.layout_with(self.map_at, self.data_at);
        let same = same.ok().filter(|same| same.map_segments == self.map_segments);
        if let Some(same) = same.filter(|_| self.is_moved()) {
            return Ok(same);
        }
        if blocks > self.grown_max() {
            return Err(Error::TooLarge);
        }
        geometry.layout_with(self.blocks, self.data_at)
    }

    /// Returns the maximum number of blocks that the volume can grow to. Segments keep their size,
    /// so small ones would need maps far larger than those of a new volume; the largest ones need
    /// no more.
    pub fn grown_max(&self) -> u64 {
        let all = (1 << 48) - 1;
        let segments = GROWN_MAP_MAX / self.block as u64;
        if self.segment == self.block as u64 * 8 {
            return all;
        }
        (self.data_at + segments * self.segment).min(all)
    }

    /// Returns the number of blocks of the smallest volume with at least `blocks` blocks that this
    /// one can grow to: where the maps have to move, the added blocks must have room for them.
    pub fn least_grown(&self, blocks: u64) -> Option<u64> {
        let mut blocks = blocks.max(self.blocks + 1);
        while blocks <= self.grown_max() {
            if self.grown(blocks).is_ok() {
                return Some(blocks);
            }
            let (segments, index) = self.geometry().map_of(blocks - self.data_at);
            blocks = (self.blocks + 2 * (index + segments)).max(blocks + 1);
        }
        None
    }

    /// Returns the maximum length of a key, bytes, without its table's number.
    pub fn key_max(&self) -> usize {
        self.block / 8 - 4
    }

    /// Returns the maximum length of the name of a snapshot, bytes.
    pub fn snapshot_name_max(&self) -> usize {
        self.key_max().min(255)
    }

    /// Returns the maximum total size of key and value stored in a page, bytes.
    pub fn inline_max(&self) -> usize {
        self.block / 4 - 16
    }

    /// Returns the maximum number of blocks of one extent.
    pub(crate) fn extent_max(&self) -> usize {
        EXTENT_BLOCKS_MAX.min((self.block / 8 - 20) / 8)
    }

    /// Returns the maximum size of a value, bytes.
    pub fn value_max(&self) -> usize {
        self.extent_max() * self.block
    }

    /// Returns the size, bytes, from which on placing data before the commit is worthwhile.
    pub fn direct_min(&self) -> usize {
        16 * self.block
    }

    /// Returns the maximum size of a transaction in the journal, bytes.
    pub fn transaction_max(&self) -> usize {
        let ring = usize::try_from(self.journal).unwrap_or(usize::MAX).saturating_mul(self.block);
        (ring / 8).min(16 << 20)
    }

    /// Returns the number of blocks reserved for deletions, so that a full volume can be emptied.
    pub(crate) fn reserve(&self) -> u64 {
        ((self.blocks - self.data_at) / 16).clamp(32, 4096)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_place_and_nothing_overlaps() {
        for (block, blocks, journal, segment) in
            [(512, 4096, 64, 64), (4096, 1 << 20, 16384, 8192), (4096, 1 << 40, 65536, 32768)]
        {
            let geometry = Geometry { block, blocks, journal, segment };
            let layout = geometry.layout().unwrap();
            assert!(layout.journal_at as usize * block >= HEAD_BYTES);
            assert_eq!(layout.map_at, layout.journal_at + journal);
            assert!(layout.map(1) + layout.index + layout.segments() <= layout.data_at);
            assert!(layout.map(0) + layout.index + layout.segments() <= layout.map(1));
            assert!(layout.index as usize * block >= layout.segments() as usize * 8);
            assert_eq!(layout.geometry(), geometry);
        }
    }

    #[test]
    fn a_grown_volume_keeps_what_it_has_in_its_place() {
        let mut kinds = [0; 3];
        for blocks in [400, 4096, 5000, 1 << 15] {
            let geometry = Geometry { block: 512, blocks, journal: 64, segment: 64 };
            let old = geometry.layout().unwrap();
            assert_eq!(old.grown(blocks), Err(Error::TooLarge));
            for more in [1, 30, 64, 700, 1 << 20] {
                let Ok(new) = old.grown(blocks + more) else {
                    assert!(more < 2 * (old.map_segments + 3), "{blocks} and {more}");
                    continue;
                };
                let (data, maps) = (new.data_at, new.maps_in_data());
                assert_eq!((data, new.journal_at, new.segment), (old.data_at, 64, 64));
                assert!(new.map_segments >= new.segments());
                assert!(new.index * 512 >= new.map_segments * 8);
                kinds[usize::from(new.is_moved())] += 1;
                assert!(maps.is_empty() || (blocks..=blocks + more).contains(&maps.end));
                let Ok(again) = new.grown(new.blocks + 5) else { continue };
                assert_eq!(again.data_at, old.data_at);
                let stays = again.map_at == new.map_at;
                assert!(stays || again.map_at == new.blocks);
                kinds[2] += usize::from(stays && new.is_moved());
            }
        }
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    }

    #[test]
    fn the_least_size_that_a_volume_can_grow_to_is_known() {
        for blocks in [400, 4096, 5000, 1 << 15] {
            let geometry = Geometry { block: 512, blocks, journal: 64, segment: 64 };
            let mut old = geometry.layout().unwrap();
            for _ in 0..3 {
                let mut least = old.least_grown(0).unwrap();
                for wanted in old.blocks + 1..old.blocks + 3000 {
                    if wanted > least {
                        least = old.least_grown(wanted).unwrap();
                    }
                    assert_eq!(old.grown(wanted).is_ok(), least == wanted, "{wanted} {least}");
                }
                old = old.grown(old.least_grown(old.blocks + 1000).unwrap()).unwrap();
            }
            assert_eq!(old.least_grown(old.grown_max() + 1), None);
        }
    }

    #[test]
    fn a_volume_with_small_segments_grows_until_its_map_has_256_mib() {
        for (block, segment, gib) in [(4096, 1024, 256), (512, 1024, 256), (4096, 16_384, 4096)] {
            let blocks = (1 << 30) / block as u64;
            let geometry = Geometry { block, blocks, journal: 1024, segment };
            let old = geometry.layout().unwrap();
            let most = old.grown_max();
            assert_eq!((most * block as u64) >> 30, gib);
            let new = old.grown(most).unwrap();
            assert_eq!(new.map_segments * block as u64, GROWN_MAP_MAX);
            assert_eq!(old.grown(most + 1), Err(Error::TooLarge));
        }
    }

    #[test]
    fn a_new_volume_can_grow_2048_times() {
        let sizes = [8, 64, 1000, 2048, 5000, 1 << 20];
        for (block, mib) in sizes.into_iter().flat_map(|mib| [(4096, mib), (512, mib)]) {
            let blocks = (mib << 20) / block as u64;
            let segment = Geometry::segment_for(block, blocks);
            let geometry = Geometry { block, blocks, journal: 1024, segment };
            let old = geometry.layout().unwrap();
            assert!(old.grown_max() >= blocks * 2048, "{block} and {mib}");
        }
        let segments =
            [64, 255, 256, 1024, 2048, 4096].map(|mib| Geometry::for_bytes(mib << 20).segment);
        assert_eq!(segments, [1024, 2048, 4096, 16_384, 32_768, 32_768]);
    }

    #[test]
    fn a_volume_with_the_largest_segments_grows_as_far_as_blocks_have_numbers() {
        let geometry = Geometry { block: 4096, blocks: 1 << 20, journal: 8192, segment: 32_768 };
        let old = geometry.layout().unwrap();
        assert!(old.grown(1 << 34).is_ok());
        assert_eq!(old.grown(old.grown_max()).map(|new| new.blocks), Ok(old.grown_max()));
        assert_eq!(old.grown(1 << 48), Err(Error::TooLarge));
    }

    #[test]
    fn nonsense_is_refused() {
        let good = Geometry { block: 4096, blocks: 4096, journal: 64, segment: 1024 };
        assert!(good.layout().is_ok());
        for bad in [
            Geometry { block: 0, ..good },
            Geometry { block: 8192, ..good },
            Geometry { blocks: 80, ..good },
            Geometry { journal: 4096, ..good },
            Geometry { journal: u64::MAX, ..good },
            Geometry { segment: 100, ..good },
            Geometry { segment: 1 << 20, ..good },
        ] {
            assert_eq!(bad.layout(), Err(Error::TooLarge), "{bad:?}");
        }
    }
}
