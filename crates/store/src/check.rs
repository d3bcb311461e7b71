//! Checks a volume on its disk: every checksum, the use of every block, every order of keys.
//!
//! Straight-line code over a function that reads blocks. It repairs nothing. The journal is checked
//! but not applied, so a volume that was not closed is opened and closed first.

use crate::btree::extent;
use crate::journal::{batch, record};
use crate::layout::{HEAD_BYTES, SUPERBLOCK_STRIDE};
use crate::little_endian::u64_at;
use crate::sum::sum;
use crate::{Error, Layout, Superblock, Table};
use base::{Block, op::BLOCKS_MAX};
use std::collections::BTreeSet;

mod walk;

/// Reads this number of blocks from one on; `None` if they cannot be read.
pub type Read<'a> = dyn FnMut(u64, u32) -> Option<Vec<Block>> + 'a;

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One of the eight superblocks is damaged. One being written during a power failure may be;
    /// the others are valid then.
    Superblock(u64),
    /// The allocation map is damaged; at this segment, or its index.
    Map(Option<u64>),
    /// Acknowledged transactions behind this batch have been lost.
    Journal(u64),
    /// A page is damaged, and with it all keys from the first to before the second (with their
    /// tables' numbers in front; `None`: to the end).
    Page(u64, Vec<u8>, Option<Vec<u8>>),
    /// A data block is damaged: its number, table and key, and its index in the value.
    Data(u64, Table, Vec<u8>, u64),
    /// A block is used twice.
    Twice(u64),
    /// Blocks in the dead list of the snapshot of this epoch that are also in the present tree, a
    /// newer snapshot or another dead list: their number, and the first. They would be freed
    /// while they are in use.
    DeadInUse(u64, u64, u64),
    /// A block is used, but free according to the map.
    NotInMap(u64),
    /// This number of blocks are in use according to the map, but unused; the first of them.
    Unused(u64, u64),
    /// A snapshot's record is invalid.
    Snapshot(Vec<u8>),
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of pages, each counted once.
    pub pages: u64,
    /// Number of data blocks, each counted once.
    pub data: u64,
    /// Number of entries of the present state.
    pub entries: u64,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Number of transactions in the journal that no checkpoint includes.
    pub journaled: u64,
    /// Number of pages, data blocks and parts of the map that a later checkpoint replaced
    /// before they were read. They are not checked, and neither is the use of blocks then.
    pub outdated: u64,
    /// Inconsistencies.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// Records that a block is not as written, unless it may have been reused.
    fn note(&mut self, finding: Finding, watcher: &mut dyn Watcher) {
        if watcher.is_current() {
            self.findings.push(finding);
        } else {
            self.outdated += 1;
        }
    }
}

/// Observer of a check.
pub trait Watcher {
    /// Visits an entry of the present state; the bytes of values with an extent are read only for
    /// tables that [`Watcher::wants`].
    fn entry(&mut self, table: Table, key: &[u8], value: Content<'_>);

    /// Returns whether the contents of large values of a table are wanted.
    fn wants(&self, table: Table) -> bool;

    /// Returns whether unwanted data blocks are read, too, to find damage.
    fn reads_data(&self) -> bool {
        true
    }

    /// Reports the numbers of blocks read and of all blocks in use.
    fn progress(&mut self, done: u64, all: u64);

    /// Returns whether the superblock being checked is still the newest. Called after a block was
    /// found not to be as written: if another process has written a checkpoint meanwhile, the block
    /// may have been reused, and its state is unknown.
    fn is_current(&mut self) -> bool {
        true
    }
}

/// Data blocks that earlier checks of a volume in use have found correct.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// The volume's number: another volume may have replaced it.
    volume: u64,
    /// Epoch of the last check.
    epoch: u64,
    /// A bit for each block that can be allocated.
    blocks: Vec<u64>,
}

/// Contents of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// This number of data blocks.
    Blocks(u64),
    /// This number of data blocks, some of them damaged.
    Damaged(u64),
}

/// Checks a volume.
///
/// # Errors
/// `NotAVolume`, or `Damaged` if no superblock is valid.
pub fn check(
    read: &mut Read<'_>,
    head: &[u8],
    watcher: &mut dyn Watcher,
) -> Result<Checked, Error> {
    check_with(read, head, watcher, None)
}

/// Checks the newest checkpoint of a volume that another process may be writing to.
///
/// Nothing reachable from the newest superblock is overwritten, so blocks read while
/// [`Watcher::is_current`] holds belong to that superblock's state. If [`Checked::outdated`] is not
/// zero, the check is to be repeated; blocks in `verified` are not read again then.
///
/// # Errors
/// `NotAVolume`, or `Damaged` if no superblock is valid.
pub fn check_in_use(
    read: &mut Read<'_>,
    head: &[u8],
    watcher: &mut dyn Watcher,
    verified: &mut Verified,
) -> Result<Checked, Error> {
    check_with(read, head, watcher, Some(verified))
}

fn check_with(
    read: &mut Read<'_>,
    head: &[u8],
    watcher: &mut dyn Watcher,
    verified: Option<&mut Verified>,
) -> Result<Checked, Error> {
    let superblock = Superblock::newest(head)?;
    let mut checked = Checked::default();
    check_superblocks(head, &mut checked);
    let live = read_map(&superblock, read, watcher, &mut checked);
    check_journal(&superblock, read, &mut checked);
    let all = live.iter().map(|word| u64::from(word.count_ones())).sum();
    let mut walk = walk::Walk::new(&superblock.layout, read, watcher, checked, all);
    let verified = verified.map(|verified| {
        if verified.volume != superblock.volume {
            *verified = Verified::default();
        }
        walk.remember(verified)
    });
    walk.tree(superblock.root, true);
    walk.snapshots();
    let (used, right, mut checked) = walk.end();
    if let Some(verified) = verified {
        let Superblock { volume, epoch, .. } = superblock;
        *verified = Verified { volume, epoch, blocks: right };
    }
    if checked.outdated == 0 {
        compare(&superblock.layout, &used, &live, &mut checked);
    }
    Ok(checked)
}

fn check_superblocks(head: &[u8], checked: &mut Checked) {
    for (index, slot) in head[..HEAD_BYTES].chunks(SUPERBLOCK_STRIDE as usize).enumerate() {
        let empty = slot.iter().all(|byte| *byte == 0);
        if !empty && Superblock::decode(slot).is_err() {
            checked.findings.push(Finding::Superblock(index as u64));
        }
    }
}

/// Returns the blocks in use according to the map.
fn read_map(
    superblock: &Superblock,
    read: &mut Read<'_>,
    watcher: &mut dyn Watcher,
    checked: &mut Checked,
) -> Vec<u64> {
    let layout = &superblock.layout;
    let words = (layout.segment / 64) as usize;
    let mut live = vec![0; layout.segments() as usize * words];
    let first = layout.map(superblock.map);
    let index = read_bytes(first, layout.index, layout, read);
    let Some(index) = index.filter(|bytes| sum(bytes) == superblock.index_sum) else {
        checked.note(Finding::Map(None), watcher);
        return live;
    };
    for segment in 0..layout.segments() {
        let bits = read(first + layout.index + segment, 1);
        let bits = bits.and_then(|blocks| blocks.into_iter().next());
        let wanted = u64_at(&index, segment as usize * 8);
        match bits.filter(|bits| sum(bits) == wanted) {
            Some(bits) => {
                let place = segment as usize * words;
                for (word, bytes) in live[place..place + words].iter_mut().zip(bits.chunks(8)) {
                    *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                }
            }
            None => checked.note(Finding::Map(Some(segment)), watcher),
        }
    }
    live
}

fn read_bytes(at: u64, count: u64, layout: &Layout, read: &mut Read<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count as usize * layout.block);
    for start in (at..at + count).step_by(BLOCKS_MAX) {
        let count = (at + count - start).min(BLOCKS_MAX as u64) as u32;
        read(start, count)?.iter().for_each(|block| bytes.extend_from_slice(block));
    }
    Some(bytes)
}

/// Follows the journal and checks that no batch is missing.
fn check_journal(superblock: &Superblock, read: &mut Read<'_>, checked: &mut Checked) {
    let layout = &superblock.layout;
    let Some(ring) = read_bytes(layout.journal_at, layout.journal, layout, read) else {
        return checked.findings.push(Finding::Journal(superblock.tail.sequence));
    };
    let (mut place, mut followed) = (superblock.tail, BTreeSet::new());
    while let Some((at, head, payload, sum)) = batch::follow(superblock, &ring, place) {
        let blocks = batch::blocks(payload.len(), layout.block);
        checked.journaled += u64::from(head.records);
        if record::decode_all(payload).is_none() {
            checked.findings.push(Finding::Journal(head.sequence));
        }
        followed.extend(at..at + blocks);
        place.block = (at + blocks) % layout.journal;
        (place.sequence, place.chain) = (place.sequence + 1, sum);
    }
    let mut beyond = batch::beyond(superblock, &ring, place.sequence);
    if beyond.any(|at| !followed.contains(&at)) {
        checked.findings.push(Finding::Journal(place.sequence));
    }
}

/// Compares the used blocks with the map.
fn compare(layout: &Layout, used: &[u64], live: &[u64], checked: &mut Checked) {
    let mut unused = (0, 0);
    for (index, (used, live)) in used.iter().zip(live).enumerate() {
        let block = |bit: u32| layout.data_at + index as u64 * 64 + u64::from(bit);
        let missing = used & !live;
        checked.findings.extend(
            (0..64).filter(|bit| missing & 1 << bit != 0).map(|bit| Finding::NotInMap(block(bit))),
        );
        let lost = live & !used;
        if lost != 0 && unused.0 == 0 {
            unused.1 = block(lost.trailing_zeros());
        }
        unused.0 += u64::from(lost.count_ones());
    }
    let mapped = !checked.findings.iter().any(|finding| matches!(finding, Finding::Page(..)));
    // Blocks below a damaged page are unknown, so the rest is not checked.
    if unused.0 > 0 && mapped {
        checked.findings.push(Finding::Unused(unused.0, unused.1));
    }
}

/// Decodes an extent; for [`walk`].
fn extent_of(value: &[u8]) -> extent::View<'_> {
    extent::View::new(value)
}
