//! Plans a rollback: the present state of a volume becomes that of a snapshot.
//!
//! The snapshot's root becomes that of the present tree. The list of snapshots stays as it is, and
//! so do the dead lists, with two exceptions: blocks that the snapshot has are in the present tree
//! again, and are taken out of them; blocks of the present tree that the snapshot does not have
//! leave it, and are added to the newest.
//!
//! So it stays true, however often volumes are rolled back, that the present tree has no block of a
//! dead list, and no snapshot newer than that of the list has one: when the list's snapshot is
//! dropped, those of its blocks are free that are younger than the snapshot before.
//!
//! Straight-line code over a function that reads blocks, like a check. The volume is closed.

use crate::btree::{Freed, extent};
use crate::check::Read;
use crate::page::{self, Ptr};
use crate::snapshots::{self, DEAD, DROPPING, SNAPSHOTS, Snapshot, dead_key, decode_dead};
use crate::sum::sum;
use crate::{Change, Error, Layout, Superblock, Table};

/// The store's own tables that stay as they are.
const KEPT: [Table; 3] = [SNAPSHOTS, DEAD, DROPPING];

/// Number of the first entry of a dead list that is divided: no checkpoint has so many of its own.
const DIVIDED: u32 = 1 << 31;

/// Changes that make the present state that of a snapshot.
#[derive(Debug)]
pub struct Rollback {
    /// The checkpoint on which it is based.
    pub(crate) epoch: u64,
    /// The snapshot's root.
    pub(crate) root: Ptr,
    /// Blocks that leave the present tree.
    pub(crate) freed: Vec<Freed>,
    /// Changes of the tree with that root.
    pub(crate) changes: Vec<Change>,
}

/// Plans to go back to the snapshot with this name. `entry` sees every key of the snapshot.
///
/// # Errors
/// `NotAVolume`; `NotFound` if there is no such snapshot; `Damaged` if one of both states cannot be
/// read; `ReadOnly` if the volume was not closed.
pub fn plan(
    read: &mut Read<'_>,
    head: &[u8],
    name: &[u8],
    entry: &mut dyn FnMut(Table, &[u8]),
) -> Result<Rollback, Error> {
    let superblock = Superblock::newest(head)?;
    let layout = superblock.layout;
    // The store's own tables are the first.
    let behind = (DROPPING.0 + 1).to_be_bytes();
    let mut own = Vec::new();
    let rest = |_: u64, from: &[u8]| from >= &behind[..];
    Tree::new(&layout).walk(read, superblock.root, &rest, &mut |key, value, is_extent| {
        own.extend(own_entry(key, value).filter(|_| !is_extent));
    })?;
    let named = own.iter().find(|(table, key, _)| *table == SNAPSHOTS && key == name);
    let (_, _, record) = named.ok_or(Error::NotFound)?;
    let snapshot = Snapshot::decode(name, record).ok_or(Error::Damaged)?;
    let (mut old, mut changes) = (Tree::new(&layout), Vec::new());
    old.walk(read, snapshot.root, &|_, _| false, &mut |key, value, _| {
        if let Some((table, key, _)) = own_entry(key, value) {
            changes.push(Change::Delete { table, key });
        } else if let Some((table, rest)) = key.split_first_chunk::<4>() {
            entry(Table(u32::from_be_bytes(*table)), rest);
        }
    })?;
    let mut divided = Divided { epoch: superblock.epoch + 1, number: DIVIDED, layout };
    for (table, key, value) in own {
        match table {
            DEAD => divided.without(&key, &value, &old, &mut changes)?,
            _ => changes.push(Change::Put { table, key, value }),
        }
    }
    // What is below a page that both trees have is in both.
    let mut present = Tree::new(&layout);
    let is_shared = |at: u64, _: &[u8]| old.has(at);
    present.walk(read, superblock.root, &is_shared, &mut |_, _, _| {})?;
    let freed = present.runs.into_iter().flat_map(|run| old.lacks(run)).collect();
    Ok(Rollback { epoch: superblock.epoch, root: snapshot.root, freed, changes })
}

/// A key and a value of a table that stays as it is.
fn own_entry(key: &[u8], value: &[u8]) -> Option<(Table, Vec<u8>, Vec<u8>)> {
    let (table, rest) = key.split_first_chunk::<4>()?;
    let table = Table(u32::from_be_bytes(*table));
    KEPT.contains(&table).then(|| (table, rest.to_vec(), value.to_vec()))
}

/// Sees an entry of a leaf: key, value, and whether that is an extent.
type Entry<'a> = dyn FnMut(&[u8], &[u8], bool) + 'a;

/// The blocks of a tree.
struct Tree {
    layout: Layout,
    /// A bit for each block that can be allocated.
    blocks: Vec<u64>,
    runs: Vec<Freed>,
}

impl Tree {
    fn new(layout: &Layout) -> Tree {
        let words = (layout.segments() * layout.segment / 64) as usize;
        Tree { layout: *layout, blocks: vec![0; words], runs: Vec::new() }
    }

    /// Walks the tree with this root. `skip` is asked for each page, with its block and a key that
    /// is not behind its first; `entry` sees what is in leaves.
    fn walk(
        &mut self,
        read: &mut Read<'_>,
        root: Ptr,
        skip: &dyn Fn(u64, &[u8]) -> bool,
        entry: &mut Entry<'_>,
    ) -> Result<(), Error> {
        let mut stack = Vec::from_iter((root.at != 0).then_some((root, None, Vec::new())));
        while let Some((ptr, level, from)) = stack.pop() {
            if skip(ptr.at, &from) {
                continue;
            }
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
        self.runs.push(run);
        Ok(())
    }

    fn has(&self, at: u64) -> bool {
        let bit = at.wrapping_sub(self.layout.data_at);
        self.blocks.get((bit / 64) as usize).is_some_and(|word| word & 1 << (bit % 64) != 0)
    }

    /// The parts of a run that it does not have.
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
    /// An entry of a dead list without the blocks of a tree; where it was, as far as it fits.
    fn without(
        &mut self,
        key: &[u8],
        value: &[u8],
        tree: &Tree,
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        let runs = decode_dead(value).filter(|_| key.len() == 20).ok_or(Error::Damaged)?;
        let runs: Vec<Freed> = runs.into_iter().flat_map(|run| tree.lacks(run)).collect();
        let owner = page::u64_at(key, 0).swap_bytes();
        for (index, chunk) in runs.chunks(snapshots::chunk_max(&self.layout)).enumerate() {
            let mut key = key.to_vec();
            if index > 0 {
                key = dead_key(owner, self.epoch, self.number);
                self.number += 1;
            }
            let value = snapshots::encode_dead(chunk);
            changes.push(Change::Put { table: DEAD, key, value });
        }
        Ok(())
    }
}
