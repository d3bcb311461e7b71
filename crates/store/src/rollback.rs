//! Planning of a rollback: the present state of a volume becomes that of a snapshot.
//!
//! The snapshot's root becomes that of the present tree. The list of snapshots stays unchanged, and
//! so do the dead lists, with two exceptions: blocks of the snapshot are in the present tree again,
//! and are removed from them; blocks of the present tree that are not in the snapshot leave it, and
//! are added to the newest.
//!
//! This preserves the invariant, through any number of rollbacks, that the present tree contains no
//! block of a dead list, and nor does a snapshot newer than that of the list: when the list's
//! snapshot is dropped, those of its blocks are free that are younger than the previous snapshot.
//!
//! Straight-line code over a function that reads blocks, like a check. The volume is closed.

use crate::btree::{Freed, extent};
use crate::check::Read;
use crate::little_endian::u64_at;
use crate::page::{self, Ptr};
use crate::snapshots::{self, DEAD, DROPPING, SNAPSHOTS, Snapshot, dead_key, decode_dead};
use crate::sum::sum;
use crate::{Change, Error, Layout, Superblock, Table};
use std::collections::BTreeMap;

/// Tables of the store itself that stay unchanged.
const OWN: [Table; 3] = [SNAPSHOTS, DEAD, DROPPING];

/// Number of the first entry of a divided dead list: no checkpoint has so many of its own. So those
/// of the rollback's checkpoint precede it, all in one leaf: see
/// [`crate::checkpoint::freeze::keys`].
const DIVIDED: u32 = 1 << 31;

/// Maximum size of an entry in a page beside its key and value, bytes.
const OVERHEAD: usize = 16;

/// Entries of the store's own tables by table and key.
type Entries = BTreeMap<EntryKey, Vec<u8>>;

/// Table and key of an entry.
type EntryKey = (Table, Vec<u8>);

/// Changes that make the present state that of a snapshot.
#[derive(Debug)]
pub struct Rollback {
    /// Epoch of the checkpoint that it is based on.
    pub(crate) epoch: u64,
    /// Root of the snapshot.
    pub(crate) root: Ptr,
    /// Blocks that leave the present tree.
    pub(crate) freed: Vec<Freed>,
    /// Changes of the tree with that root.
    pub(crate) changes: Vec<Change>,
    /// Number of pages of that tree that may have entries of the store's own tables.
    pub(crate) pages: u64,
}

impl Rollback {
    /// Returns the maximum number of blocks for pages written by the changes and the checkpoint.
    pub(crate) fn blocks(&self, layout: &Layout) -> u64 {
        let bytes = |change: &Change| match change {
            Change::Put { key, value, .. } => (key.len() + value.len() + OVERHEAD) as u64,
            Change::Delete { .. }
            | Change::Write { .. }
            | Change::Attach { .. }
            | Change::Cut { .. }
            | Change::Free { .. } => 0,
        };
        let added: u64 = self.changes.iter().map(bytes).sum();
        // Blocks that leave the tree go to the newest list; an entry takes a quarter of a page.
        let runs = self.freed.len() as u64 + self.pages;
        let entries = 1 + runs.div_ceil(snapshots::chunk_max(layout) as u64);
        let block = layout.block as u64;
        // A changed page may include a neighbour; new ones are at least half full.
        2 * self.pages + 2 * (added + entries * block / 4).div_ceil(block)
    }
}

/// Plans a rollback to the snapshot with this name. The volume must be closed: transactions only in
/// its journal are not seen, and [`crate::Store::roll_back`] refuses a plan of another state.
///
/// # Errors
/// `NotAVolume`; `NotFound` if there is no such snapshot; `Damaged` or `DiskFailed` if one of the
/// two states cannot be read.
pub fn plan(read: &mut Read<'_>, head: &[u8], name: &[u8]) -> Result<Rollback, Error> {
    let superblock = Superblock::newest(head)?;
    let layout = superblock.layout;
    let (mut entries, behind) = (Entries::new(), behind_own());
    let rest = |_: u64, from: &[u8]| from >= &behind[..];
    Tree::new(&layout).walk(read, superblock.root, &rest, &mut |key, value, is_extent| {
        entries.extend(own_entry(key, value).filter(|_| !is_extent));
    })?;
    let record = entries.get(&(SNAPSHOTS, name.to_vec())).ok_or(Error::NotFound)?;
    let snapshot = Snapshot::decode(name, record).ok_or(Error::Damaged)?;
    let (mut old, mut old_entries) = (Tree::new(&layout), Entries::new());
    old.walk(read, snapshot.root, &|_, _| false, &mut |key, value, _| {
        old_entries.extend(own_entry(key, value));
    })?;
    let mut divided = Divided { epoch: superblock.epoch + 1, number: DIVIDED, layout };
    let mut wanted = Entries::new();
    for ((table, key), value) in entries {
        match table {
            DEAD => divided.without(&key, &value, &old, &mut wanted)?,
            _ => drop(wanted.insert((table, key), value)),
        }
    }
    // Everything below a page shared by both trees is in both.
    let mut present = Tree::listing(&layout);
    let is_shared = |at: u64, _: &[u8]| old.has(at);
    present.walk(read, superblock.root, &is_shared, &mut |_, _, _| {})?;
    let runs = present.runs.unwrap_or_default();
    let freed = runs.into_iter().flat_map(|run| old.lacks(run)).collect();
    let changes = difference(old_entries, wanted);
    Ok(Rollback {
        epoch: superblock.epoch,
        root: snapshot.root,
        freed,
        changes,
        pages: old.own_pages,
    })
}

/// Returns the changes that turn the old entries into the new ones; equal ones stay.
fn difference(mut old: Entries, new: Entries) -> Vec<Change> {
    let mut puts = Vec::new();
    for ((table, key), value) in new {
        let place = (table, key);
        let known = old.remove(&place);
        let (table, key) = place;
        if known.as_ref() != Some(&value) {
            puts.push(Change::Put { table, key, value });
        }
    }
    let deletes = old.into_keys().map(|(table, key)| Change::Delete { table, key });
    deletes.chain(puts).collect()
}

/// Returns the first key behind the store's own tables, which are the first.
fn behind_own() -> [u8; 4] {
    (DROPPING.0 + 1).to_be_bytes()
}

/// Returns a key and a value of a table that stays unchanged.
fn own_entry(key: &[u8], value: &[u8]) -> Option<(EntryKey, Vec<u8>)> {
    let (table, rest) = key.split_first_chunk::<4>()?;
    let table = Table(u32::from_be_bytes(*table));
    OWN.contains(&table).then(|| ((table, rest.to_vec()), value.to_vec()))
}

/// Visitor of the entries of leaves: key, value, and whether that is an extent.
type Entry<'a> = dyn FnMut(&[u8], &[u8], bool) + 'a;

/// The blocks of a tree.
struct Tree {
    layout: Layout,
    /// A bit for each block that can be allocated.
    blocks: Vec<u64>,
    /// The blocks as runs, if wanted.
    runs: Option<Vec<Freed>>,
    /// Number of pages that may have entries of the store's own tables, or lead to them.
    own_pages: u64,
}

impl Tree {
    fn new(layout: &Layout) -> Tree {
        let words = (layout.segments() * layout.segment / 64) as usize;
        Tree { layout: *layout, blocks: vec![0; words], runs: None, own_pages: 0 }
    }

    /// Returns one that lists its blocks as runs, too.
    fn listing(layout: &Layout) -> Tree {
        Tree { runs: Some(Vec::new()), ..Tree::new(layout) }
    }

    /// Walks the tree with this root. `skip` is called for each page, with its block and a key that
    /// is not behind its first; `entry` visits the entries of leaves.
    fn walk(
        &mut self,
        read: &mut Read<'_>,
        root: Ptr,
        skip: &dyn Fn(u64, &[u8]) -> bool,
        entry: &mut Entry<'_>,
    ) -> Result<(), Error> {
        let mut stack = Vec::from_iter((root.at != 0).then_some((root, None, Vec::new())));
        let behind = behind_own();
        while let Some((ptr, level, from)) = stack.pop() {
            if skip(ptr.at, &from) {
                continue;
            }
            self.own_pages += u64::from(from[..] < behind[..]);
            self.add(Freed { at: ptr.at, count: 1, birth: ptr.birth })?;
            let blocks = read(ptr.at, 1).ok_or(Error::DiskFailed)?;
            let sound = |page: &&base::Block| {
                sum(page) == ptr.sum
                    && page::is_sound_on_disk(page)
                    && level.is_none_or(|level| page::level(page) == level)
            };
            let page = blocks.first().filter(sound).ok_or(Error::Damaged)?;
            match page::level(page).checked_sub(1) {
                None => self.leaf(page, entry)?,
                Some(below) => {
                    for index in (0..page::count(page)).rev() {
                        let key = if index == 0 { &from } else { page::key(page, index) };
                        stack.push((page::child(page, index), Some(below), key.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    fn leaf(&mut self, page: &[u8], entry: &mut Entry<'_>) -> Result<(), Error> {
        for index in 0..page::count(page) {
            let (key, (value, is_extent)) = (page::key(page, index), page::value(page, index));
            if is_extent {
                let view = extent::View::new(value);
                let count = u32::try_from(view.count()).map_err(|_| Error::Damaged)?;
                self.add(Freed { at: view.at(), count, birth: view.birth() })?;
            }
            entry(key, value, is_extent);
        }
        Ok(())
    }

    fn add(&mut self, run: Freed) -> Result<(), Error> {
        for at in run.at..run.at.saturating_add(u64::from(run.count)) {
            let bit = at.checked_sub(self.layout.data_at).ok_or(Error::Damaged)?;
            let word = self.blocks.get_mut((bit / 64) as usize).ok_or(Error::Damaged)?;
            *word |= 1 << (bit % 64);
        }
        self.runs.iter_mut().for_each(|runs| runs.push(run));
        Ok(())
    }

    fn has(&self, at: u64) -> bool {
        let bit = at.wrapping_sub(self.layout.data_at);
        self.blocks.get((bit / 64) as usize).is_some_and(|word| word & 1 << (bit % 64) != 0)
    }

    /// Returns the parts of a run that are not in the tree.
    fn lacks(&self, run: Freed) -> Vec<Freed> {
        let mut parts: Vec<Freed> = Vec::new();
        for at in (run.at..run.at + u64::from(run.count)).filter(|at| !self.has(*at)) {
            match parts.last_mut() {
                Some(part) if part.at + u64::from(part.count) == at => part.count += 1,
                _ => parts.push(Freed { at, count: 1, birth: run.birth }),
            }
        }
        parts
    }
}

/// Entries of dead lists that may have to be divided.
struct Divided {
    epoch: u64,
    number: u32,
    layout: Layout,
}

impl Divided {
    /// Adds an entry of a dead list without the blocks of a tree; under its own key, as far as it
    /// fits.
    fn without(
        &mut self,
        key: &[u8],
        value: &[u8],
        tree: &Tree,
        entries: &mut Entries,
    ) -> Result<(), Error> {
        let runs = decode_dead(value).filter(|_| key.len() == 20).ok_or(Error::Damaged)?;
        let runs: Vec<Freed> = runs.into_iter().flat_map(|run| tree.lacks(run)).collect();
        let owner = u64_at(key, 0).swap_bytes();
        for (index, chunk) in runs.chunks(snapshots::chunk_max(&self.layout)).enumerate() {
            let mut key = key.to_vec();
            if index > 0 {
                key = dead_key(owner, self.epoch, self.number);
                self.number += 1;
            }
            entries.insert((DEAD, key), snapshots::encode_dead(chunk));
        }
        Ok(())
    }
}
