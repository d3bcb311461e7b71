//! Read-ahead of a volume: data written together is read together, in small pieces.

use crate::volume::file::FileDisk;
use base::Block;
use base::op::BLOCKS_MAX;
use std::collections::VecDeque;
use store::drive::Disk as _;

/// Maximum gap after an earlier read that still counts as sequential, blocks.
const GAP_MAX: u64 = 64;

/// Maximum number of sequential streams.
const PLACES_MAX: usize = 8;

/// A disk with read-ahead.
#[derive(Debug)]
pub(super) struct Prefetch<'a> {
    disk: &'a mut FileDisk,
    /// Blocks of the volume.
    blocks: u64,
    /// Windows read ahead: first block, and blocks; the newest last.
    windows: VecDeque<(u64, Vec<Block>)>,
    /// Ends of the last reads.
    ends: VecDeque<u64>,
}

impl<'a> Prefetch<'a> {
    pub(super) fn new(disk: &'a mut FileDisk, blocks: u64) -> Prefetch<'a> {
        Prefetch { disk, blocks, windows: VecDeque::new(), ends: VecDeque::new() }
    }

    /// Reads blocks; `None` if they cannot be read.
    pub(super) fn read(&mut self, at: u64, count: u32) -> Option<Vec<Block>> {
        if let Some(blocks) = self.known(at, count as usize) {
            return Some(blocks);
        }
        let goes_on = self.ends.iter().any(|end| at.wrapping_sub(*end) < GAP_MAX);
        let prefetch = self.blocks.saturating_sub(at).min(BLOCKS_MAX as u64) as u32;
        // Blocks that cannot be read as part of a window are read individually.
        let window =
            (goes_on && prefetch > count).then(|| self.disk.read(at, prefetch).ok()).flatten();
        let Some(window) = window else {
            keep(&mut self.ends, at + u64::from(count));
            return self.disk.read(at, count).ok();
        };
        keep(&mut self.ends, at + u64::from(prefetch));
        keep(&mut self.windows, (at, window));
        self.known(at, count as usize)
    }

    fn known(&self, at: u64, count: usize) -> Option<Vec<Block>> {
        self.windows.iter().find_map(|(from, blocks)| {
            let first = usize::try_from(at.checked_sub(*from)?).ok()?;
            Some(blocks.get(first..first.checked_add(count)?)?.to_vec())
        })
    }
}

/// Adds an element, dropping the oldest.
fn keep<T>(few: &mut VecDeque<T>, new: T) {
    if few.len() == PLACES_MAX {
        few.pop_front();
    }
    few.push_back(new);
}
