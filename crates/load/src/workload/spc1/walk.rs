//! A random walk with hierarchical reuse: what was used lately, and what lies beside it, is used
//! again (McNutt, *The Fractal Structure of Data Reference*, 2000).
//!
//! The blocks of a region are the leaves of a binary tree, eight to a leaf. From the leaf of its
//! last step, a walk climbs at least six levels, and one more each time with a likelihood of 0.44;
//! then it goes down to any leaf below where it is. So most steps are short, and a few go far.
//!
//! A read takes the leaf's blocks in turn. A write goes to the first leaf of eight, half of the
//! time to the block that was read last there, otherwise to any; and the next write of 15 in 100
//! goes to the same block again.

use crate::Kind;

/// Blocks of a leaf.
const LEAF: u64 = 8;

/// So many levels are always climbed.
const LEVELS_MIN: u32 = 6;

/// Of a hundred times, so often another one is.
const CLIMBS: u32 = 44;

/// Most leaves of a region (512 GiB); what is behind them is not used.
const LEAVES_MAX: u64 = 1 << 24;

/// A region that walks share.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its first block.
    first: u64,
    /// Levels of a tree: its leaves are a power of two, at most those of the region.
    levels: u32,
    /// Of each leaf: which of its blocks is read next.
    next: Vec<u8>,
}

impl Region {
    /// The region of so many blocks from this one on.
    pub fn new(first: u64, blocks: u64) -> Region {
        let leaves = (blocks / LEAF).clamp(1, LEAVES_MAX);
        Region { first, levels: leaves.ilog2(), next: vec![0; leaves as usize] }
    }
}

/// Where a walk is.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The first leaf of its tree, which is a part of the region.
    tree: u64,
    /// The leaf of its last step, within the tree.
    leaf: u64,
    /// The block that is written again.
    again: Option<u64>,
}

impl Walk {
    /// A walk that begins anywhere, in a tree anywhere in the region.
    pub fn new(region: &Region, random: &mut fastrand::Rng) -> Walk {
        let leaves = 1 << region.levels;
        let tree = random.u64(..=region.next.len() as u64 - leaves);
        Walk { tree, leaf: random.u64(..leaves), again: None }
    }

    /// The block of the next step.
    pub fn step(&mut self, region: &mut Region, kind: Kind, random: &mut fastrand::Rng) -> u64 {
        let writes = kind == Kind::Write;
        if writes && let Some(block) = self.again.take() {
            return block;
        }
        let mut level = LEVELS_MIN.min(region.levels);
        while level < region.levels && random.u32(..100) < CLIMBS {
            level += 1;
        }
        self.leaf = (self.leaf >> level << level) + random.u64(..1 << level);
        if writes {
            self.leaf -= self.leaf % 8;
        }
        let leaf = self.tree + self.leaf;
        let next = &mut region.next[leaf as usize];
        let within = if !writes {
            let here = *next;
            *next = (here + 1) % LEAF as u8;
            here
        } else if random.bool() {
            random.u8(..LEAF as u8)
        } else {
            (*next + LEAF as u8 - 1) % LEAF as u8
        };
        let block = region.first + leaf * LEAF + u64::from(within);
        if writes && random.u32(..100) < 15 {
            self.again = Some(block);
        }
        block
    }
}
