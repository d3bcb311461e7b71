//! Checks a volume as it is on the disk: every checksum, every block's use, every order.
//!
//! Straight-line code over a function that reads blocks: a check has nothing else to do meanwhile.
//! It repairs nothing. The journal is looked at but not applied, so a volume that was not closed
//! is opened and closed first.

use crate::btree::extent;
use crate::journal::{batch, record};
use crate::layout::{HEAD_BYTES, SUPERBLOCK_STRIDE};
use crate::page;
use crate::sum::sum;
use crate::{Error, Layout, Superblock, Table};
use base::{Block, op::BLOCKS_MAX};
use std::collections::BTreeSet;

mod walk;

/// Reads so many blocks from one on. `None`: they cannot be read.
pub type Read<'a> = dyn FnMut(u64, u32) -> Option<Vec<Block>> + 'a;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One of the eight superblocks is damaged. One that was being written when power failed may
    /// be; the others say what counts.
    Superblock(u64),
    /// The map of what is in use is damaged; of which segment, or its index.
    Map(Option<u64>),
    /// Acknowledged transactions behind this batch have been lost.
    Journal(u64),
    /// A page is damaged, and with it all keys from the first to before the second (with their
    /// tables' numbers in front; none: to the end).
    Page(u64, Vec<u8>, Option<Vec<u8>>),
    /// A block of data is damaged: where it is, of which table and key, and which of the blocks of
    /// that value it is.
    Data(u64, Table, Vec<u8>, u64),
    /// A block is used twice.
    Twice(u64),
    /// Blocks in the dead list of the snapshot of this epoch that the present tree, a newer
    /// snapshot or another dead list has: how many, and the first. They would be freed while they
    /// are in use.
    DeadInUse(u64, u64, u64),
    /// A block is used, but the map says it is free.
    NotInMap(u64),
    /// So many blocks are in use according to the map, and nobody uses them; the first of them.
    Unused(u64, u64),
    /// A snapshot's record makes no sense.
    Snapshot(Vec<u8>),
}

/// What a check looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pages, each once.
    pub pages: u64,
    /// Blocks of data, each once.
    pub data: u64,
    /// Entries of the present state.
    pub entries: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Transactions in the journal that no checkpoint has.
    pub journaled: u64,
    /// Pages, blocks of data and parts of the map that a later checkpoint replaced before they
    /// were read. They are not checked, and neither is which blocks are in use.
    pub outdated: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// Notes that a block is not what was written, unless it may have been used again.
    fn note(&mut self, finding: Finding, watcher: &mut dyn Watcher) {
        if watcher.is_current() {
            self.findings.push(finding);
        } else {
            self.outdated += 1;
        }
    }
}

/// Who looks on while a volume is checked.
pub trait Watcher {
    /// An entry of the present state; of values with an extent the bytes are read only for tables
    /// that [`Watcher::wants`].
    fn entry(&mut self, table: Table, key: &[u8], value: Content<'_>);

    /// Whether the contents of large values of a table are wanted.
    fn wants(&self, table: Table) -> bool;

    /// Whether blocks of data are read that nobody wants, to see whether they are damaged.
    fn reads_data(&self) -> bool {
        true
    }

    /// So many blocks of so many in use have been read.
    fn progress(&mut self, done: u64, all: u64);

    /// Whether the superblock that is checked is still the newest. Asked after a block was read
    /// that is not what was written: if another process has written a checkpoint meanwhile, the
    /// block may have been used again, and nothing is known about it.
    fn is_current(&mut self) -> bool {
        true
    }
}

/// Blocks of data that earlier checks of a volume in use have found right.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// The volume's number: another volume may have taken its place.
    volume: u64,
    /// Epoch of the last check.
    epoch: u64,
    /// A bit for each block that can be allocated.
    blocks: Vec<u64>,
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many blocks of data.
    Blocks(u64),
    /// So many blocks of data, of which some are damaged.
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
/// Nothing that the newest superblock leads to is overwritten, so what is read while
/// [`Watcher::is_current`] holds is what that superblock leads to. If [`Checked::outdated`] is not
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

/// The blocks in use as the map says.
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
        let wanted = page::u64_at(&index, segment as usize * 8);
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

/// Follows the journal and looks whether something is missing in it.
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

/// Compares what is used with what the map says.
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
    // What a damaged page leads to is not known, so nothing can be said about the rest.
    if unused.0 > 0 && mapped {
        checked.findings.push(Finding::Unused(unused.0, unused.1));
    }
}

/// Whether a value is an extent; for [`walk`].
fn extent_of(value: &[u8]) -> extent::View<'_> {
    extent::View::new(value)
}
