//! Random walk with hierarchical reuse: recently used blocks and their neighbours are used again
//! (McNutt, *The Fractal Structure of Data Reference*, 2000).
//!
//! The blocks of a region are the leaves of a binary tree, eight to a leaf. From the leaf of its
//! last step, a walk climbs at least six levels, and each further one with a probability of 0.44;
//! then it descends to a random leaf below. So most steps are short, and a few go far.
//!
//! A read takes the leaf's blocks in turn. A write goes to the first leaf of eight: half of the
//! time to the block read last there, otherwise to a random one. 15 of 100 writes are repeated by
//! the next write to the same block.

use crate::Kind;

/// Blocks of a leaf.
const LEAF: u64 = 8;

/// Levels always climbed.
const LEVELS_MIN: u32 = 6;

/// Percentage of further climbs.
const CLIMBS: u32 = 44;

/// Maximum leaves of a region (512 GiB); the rest is unused.
const LEAVES_MAX: u64 = 1 << 24;

/// Region shared by walks.
#[derive(Clone, Debug)]
pub struct Region {
    /// First block.
    first: u64,
    /// Levels of a tree, which has a power of two leaves, at most those of the region.
    levels: u32,
    /// Next block to read of each leaf.
    next: Vec<u8>,
}

impl Region {
    /// Creates a region of `blocks` blocks from `first`.
    pub fn new(first: u64, blocks: u64) -> Region {
        let leaves = (blocks / LEAF).clamp(1, LEAVES_MAX);
        Region { first, levels: leaves.ilog2(), next: vec![0; leaves as usize] }
    }
}

/// Position of a walk.
#[derive(Clone, Debug)]
pub struct Walk {
    /// First leaf of its tree, which is a part of the region.
    tree: u64,
    /// Leaf of its last step, within the tree.
    leaf: u64,
    /// Block to be written again.
    again: Option<u64>,
}

impl Walk {
    /// Starts a walk at a random leaf of a random tree in the region.
    pub fn new(region: &Region, random: &mut fastrand::Rng) -> Walk {
        let leaves = 1 << region.levels;
        let tree = random.u64(..=region.next.len() as u64 - leaves);
        Walk { tree, leaf: random.u64(..leaves), again: None }
    }

    /// Returns the block of the next step.
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
