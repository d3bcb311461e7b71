//! A write set: the changes of a transaction being planned, on top of a read view.
//!
//! Changed inodes and counters are kept and read first, so that one plan can change the same inode
//! twice; they become changes of the store at the end. Entries and attributes become changes at
//! once: no plan reads one that it has changed.

use super::read_view::{ReadView, Stop};
use super::record::{
    ATTRS, COUNTERS_KEY, Counters, DATA, ENTRIES, Entry, FreeReason, Holder, INODES, Inode,
    ORPHANS, Orphan, QUOTAS, Quota, ROOT, SETTINGS, SIZE_MAX, key, pair,
};
use super::usage::{Quotas, Usage};
use base::{Error, Kind, Name, Time};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Change, Table};

/// Maximum number of names of an inode, and of subdirectories of a directory. Link counts in
/// protocols are limited to 2³².
pub(super) const LINKS_MAX: u32 = 1 << 31;

/// A write set.
pub(super) struct WriteSet<'a> {
    pub(super) read_view: ReadView<'a>,
    now: Time,
    inodes: Vec<(u64, Inode)>,
    counters: Option<Counters>,
    /// Quotas before the transaction, and those that it changes or removes.
    pub(super) known: &'a Quotas,
    pub(super) quotas: BTreeMap<Holder, Option<Quota>>,
    changes: Vec<Change>,
    first_number: u64,
}

/// Numbers for inodes in each millisecond since the volume's creation, as a power of two: more than
/// can be created.
const NUMBERS: u32 = 14;

/// Returns the first number for inodes of a volume that is opened now, with its `next` number.
/// Creations that were not durable are lost with the counter's value, but clients may still know
/// their files by number: the numbers that follow are later ones, also after a rollback.
pub(super) fn first_number(next: u64, created: Time, now: Time) -> u64 {
    let millis = |time: Time| i128::from(time.secs) * 1000 + i128::from(time.nanos / 1_000_000);
    let age = (millis(now) - millis(created)).clamp(0, i128::from(u64::MAX >> (NUMBERS + 2)));
    let first = (age as u64) << NUMBERS;
    if first > next {
        return first;
    }
    if next == ROOT + 1 {
        // A new volume.
        return next;
    }
    // The clock was, or is, wrong: it only tells this opening from others.
    let jump = 1 + u64::from(now.nanos) % u64::from(u16::MAX);
    next.saturating_add(jump << 20).min(u64::MAX >> 1)
}

/// Returns a timestamp later than `past`: `now`, or else the first after `past`.
pub(super) fn after(past: Time, now: Time) -> Time {
    let next = match past.nanos {
        999_999_999.. => Time::from_secs(past.secs.saturating_add(1)),
        nanos => Time { nanos: nanos + 1, ..past },
    };
    now.max(next)
}

impl Inode {
    /// Updates the change time. No two changes of a file have the same timestamp, whatever the
    /// clock, so a comparison of timestamps detects every change.
    pub(super) fn touch(&mut self, now: Time) -> Time {
        self.changed = after(self.changed, now);
        self.changed
    }

    /// Updates the times of a change of the contents.
    pub(super) fn touch_contents(&mut self, now: Time) {
        self.modified = self.touch(now);
    }
}

impl<'a> WriteSet<'a> {
    pub(super) fn new(
        read_view: ReadView<'a>,
        (known, first_number): (&'a Quotas, u64),
        now: Time,
    ) -> WriteSet<'a> {
        let (inodes, changes, quotas) = (Vec::new(), Vec::new(), BTreeMap::new());
        WriteSet { read_view, now, inodes, counters: None, known, quotas, changes, first_number }
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Returns an inode as changed by the write set.
    pub(super) fn look(&self, ino: u64) -> Result<Inode, Stop> {
        match self.inodes.iter().find(|(known, _)| *known == ino) {
            Some((_, inode)) => Ok(inode.clone()),
            None => self.read_view.inode(ino),
        }
    }

    /// Returns an inode for modification.
    pub(super) fn inode(&mut self, ino: u64) -> Result<&mut Inode, Stop> {
        let at = match self.inodes.iter().position(|(known, _)| *known == ino) {
            Some(at) => at,
            None => {
                let inode = self.read_view.inode(ino)?;
                self.inodes.push((ino, inode));
                self.inodes.len() - 1
            }
        };
        Ok(&mut self.inodes[at].1)
    }

    fn counters(&mut self) -> Result<&mut Counters, Stop> {
        if self.counters.is_none() {
            self.counters = Some(self.read_view.counters()?);
        }
        Ok(self.counters.get_or_insert_default())
    }

    /// Adds a new inode; returns its number.
    ///
    /// # Errors
    /// `NoSpace` at the volume's maximum number of inodes, `QuotaExceeded` at that of its owner or
    /// project.
    pub(super) fn add(&mut self, inode: Inode) -> Result<u64, Stop> {
        let most = self.read_view.settings.inodes_max;
        if self.counters()?.inodes >= most {
            return Err(Error::NoSpace.into());
        }
        let ino = self.number()?;
        let counters = self.counters()?;
        counters.inodes = counters.inodes.saturating_add(1);
        self.charge(ino, &inode, Usage { blocks: 0, inodes: 1 })?;
        self.inodes.push((ino, inode));
        Ok(ino)
    }

    /// Returns a number that was never used for an inode or a project.
    pub(super) fn number(&mut self) -> Result<u64, Stop> {
        let first_number = self.first_number;
        let counters = self.counters()?;
        if counters.next >= u64::MAX >> 1 {
            return Err(Error::NoSpace.into());
        }
        if counters.next <= ROOT {
            // Damage, or a record of another program.
            return Err(Error::Io.into());
        }
        let number = counters.next.max(first_number);
        counters.next = number + 1;
        Ok(number)
    }

    /// Counts blocks added to a file's contents.
    ///
    /// # Errors
    /// `NoSpace` past the limit of the volume, `QuotaExceeded` past that of the file's owner or
    /// project.
    pub(super) fn take_blocks(&mut self, ino: u64, blocks: u64) -> Result<(), Stop> {
        if blocks == 0 {
            return Ok(());
        }
        let (block, most) = (self.read_view.block, self.read_view.settings.bytes_max);
        let counters = self.counters()?;
        let used = counters.blocks.saturating_add(blocks);
        if used.saturating_mul(block) > most {
            return Err(Error::NoSpace.into());
        }
        counters.blocks = used;
        let inode = self.inode(ino)?;
        inode.blocks = inode.blocks.saturating_add(blocks);
        if self.has_quotas() {
            let inode = self.look(ino)?;
            self.charge(ino, &inode, Usage { blocks, inodes: 0 })?;
        }
        Ok(())
    }

    /// Counts blocks freed from a file's contents.
    pub(super) fn give_blocks(&mut self, ino: u64, blocks: u64) -> Result<(), Stop> {
        if blocks > 0 {
            let counters = self.counters()?;
            counters.blocks = counters.blocks.saturating_sub(blocks);
            let inode = self.inode(ino)?;
            inode.blocks = inode.blocks.saturating_sub(blocks);
            if self.has_quotas() {
                let inode = self.look(ino)?;
                self.release(ino, &inode, Usage { blocks, inodes: 0 });
            }
        }
        Ok(())
    }

    /// Adds an entry to a directory.
    pub(super) fn enter(
        &mut self,
        dir: u64,
        name: &Name,
        ino: u64,
        kind: Kind,
    ) -> Result<(), Stop> {
        let cookie = self.read_view.vacant(ENTRIES, dir, name.as_bytes())?;
        self.put_entry(dir, cookie, name, ino, kind);
        let now = self.now;
        let inode = self.inode(dir)?;
        inode.entries = inode.entries.saturating_add(1);
        inode.touch_contents(now);
        Ok(())
    }

    /// Makes an entry refer to another inode.
    pub(super) fn put_entry(&mut self, dir: u64, cookie: u64, name: &Name, ino: u64, kind: Kind) {
        let entry = Entry { ino, kind, name: name.clone() };
        self.put(ENTRIES, pair(dir, cookie).to_vec(), entry.encode());
    }

    /// Removes an entry from a directory.
    pub(super) fn leave(&mut self, dir: u64, cookie: u64) -> Result<(), Stop> {
        self.delete(ENTRIES, pair(dir, cookie).to_vec());
        let now = self.now;
        let inode = self.inode(dir)?;
        inode.entries = inode.entries.saturating_sub(1);
        inode.touch_contents(now);
        Ok(())
    }

    /// Adds or removes a subdirectory in the link count of a directory.
    pub(super) fn count_directory(&mut self, dir: u64, more: bool) -> Result<(), Stop> {
        let links = &mut self.inode(dir)?.links;
        *links = if more { links.saturating_add(1) } else { links.saturating_sub(1) };
        Ok(())
    }

    /// Records that an inode waits for its storage to be freed, and why.
    pub(super) fn orphan(&mut self, ino: u64, why: FreeReason) -> Result<(), Stop> {
        let inode = self.look(ino)?;
        let end = match inode.trimming {
            true => self.read_view.orphan(ino)?.map_or(SIZE_MAX, |orphan| orphan.end),
            false => self.read_view.inode(ino)?.size,
        };
        self.put(ORPHANS, key(ino).to_vec(), Orphan { why, end }.encode());
        Ok(())
    }

    /// Removes the orphan record of an inode.
    pub(super) fn settle(&mut self, ino: u64) {
        self.delete(ORPHANS, key(ino).to_vec());
    }

    /// Removes an inode with all its records, but at most `attrs_max` attributes; returns whether
    /// it is gone.
    pub(super) fn erase(&mut self, ino: u64, attrs_max: usize) -> Result<bool, Stop> {
        let inode = self.look(ino)?;
        let mut cookies = Vec::new();
        if inode.attrs > 0 {
            self.read_view.scan(ATTRS, ino, 0, &mut |cookie, _value| {
                cookies.push(cookie);
                if cookies.len() > attrs_max {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
        }
        let all = cookies.len() <= attrs_max;
        assert!(
            cookies.len() <= attrs_max + 1,
            "no more is looked at than says that there is more"
        );
        cookies.truncate(attrs_max);
        for cookie in &cookies {
            self.delete(ATTRS, pair(ino, *cookie).to_vec());
        }
        if !all {
            let inode = self.inode(ino)?;
            inode.attrs = inode.attrs.saturating_sub(attrs_max as u32);
            return Ok(false);
        }
        if has_contents(&inode) {
            self.push(Change::Cut { table: DATA, object: ino, from: 0, to: u64::MAX });
        }
        let counters = self.counters()?;
        counters.blocks = counters.blocks.saturating_sub(inode.blocks);
        counters.inodes = counters.inodes.saturating_sub(1);
        self.release(ino, &inode, Usage { blocks: inode.blocks, inodes: 1 });
        self.inodes.retain(|(known, _)| *known != ino);
        self.delete(INODES, key(ino).to_vec());
        Ok(true)
    }

    pub(super) fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.push(Change::Put { table, key, value });
    }

    pub(super) fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.push(Change::Delete { table, key });
    }

    pub(super) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Returns the changes to commit.
    pub(super) fn finish(mut self) -> Vec<Change> {
        for (ino, inode) in std::mem::take(&mut self.inodes) {
            self.put(INODES, key(ino).to_vec(), inode.encode());
        }
        if let Some(counters) = self.counters {
            self.put(SETTINGS, COUNTERS_KEY.to_vec(), counters.encode());
        }
        for (holder, quota) in std::mem::take(&mut self.quotas) {
            let key = holder.key().to_vec();
            match quota {
                Some(quota) => self.put(QUOTAS, key, quota.encode()),
                None => self.delete(QUOTAS, key),
            }
        }
        self.changes
    }
}

/// Returns whether the inode may have an object in the table of contents.
pub(super) fn has_contents(inode: &Inode) -> bool {
    let plain = inode.kind == Kind::File;
    let link = inode.kind == Kind::Symlink && inode.target.is_empty();
    (plain || link) && (inode.size > 0 || inode.blocks > 0 || inode.trimming)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_the_age_of_the_volume() {
        let at = |secs, millis: u32| Time { secs, nanos: millis * 1_000_000 };
        assert_eq!(first_number(2, at(5, 500), at(6, 501)), 1001 << NUMBERS);
        assert!(first_number(2, at(i64::MIN, 0), at(i64::MAX, 0)) < u64::MAX >> 1);
    }

    #[test]
    fn numbers_jump_if_the_clock_is_wrong() {
        let at = |secs, millis: u32| Time { secs, nanos: millis * 1_000_000 };
        assert_eq!(first_number(2, at(5, 500), at(5, 500)), 2);
        for (next, now) in [(3, at(5, 0)), (1 << 60, at(6, 501))] {
            let first = first_number(next, at(5, 500), now);
            assert!(first >= next + (1 << 20) && first < next + (1 << 37), "{first}");
        }
        assert_eq!(first_number(u64::MAX - 5, at(5, 0), at(0, 0)), u64::MAX >> 1);
    }
}
