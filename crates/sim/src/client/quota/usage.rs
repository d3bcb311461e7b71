//! Usage of quotas, and entries that count for them.

use crate::client::quota::{DIRS, USERS};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Size of a block of the volume, bytes.
pub(super) const BLOCK: u64 = 4096;

/// Number of quotas: of each directory, then of each user.
pub(super) const HOLDERS: usize = DIRS.len() + USERS.len();

/// Usage of one quota, or a change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) blocks: i64,
    pub(super) inodes: i64,
}

/// Usage of all quotas, or a change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usages(pub(super) [Usage; HOLDERS]);

impl Usages {
    /// Adds another usage this number of times.
    pub(super) fn add(&mut self, other: &Usages, times: i64) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            sum.blocks += more.blocks * times;
            sum.inodes += more.inodes * times;
        }
    }

    /// Returns the change from one entry to another.
    pub(super) fn change(from: Option<&Entry>, to: Option<&Entry>) -> Usages {
        let mut change = Usages::default();
        from.iter().for_each(|entry| change.add(&entry.usage(), -1));
        to.iter().for_each(|entry| change.add(&entry.usage(), 1));
        change
    }
}

/// Limits of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

impl Limits {
    /// No limits, as of a quota that is not there.
    pub(super) const NONE: Limits = Limits { bytes: u64::MAX, inodes: u64::MAX };

    /// Returns whether a request that adds `more` to this usage exceeds a limit.
    pub(super) fn are_exceeded(&self, before: Usage, more: Usage) -> bool {
        let bytes = (before.blocks + more.blocks).max(0).cast_unsigned() * BLOCK;
        let inodes = (before.inodes + more.inodes).max(0).cast_unsigned();
        more.blocks > 0 && bytes > self.bytes || more.inodes > 0 && inodes > self.inodes
    }
}

/// A file or directory of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its directory, an index in [`DIRS`].
    pub(super) dir: usize,
    /// Its owner, an index in [`USERS`].
    pub(super) owner: usize,
    /// Contents of a file; `None` for a directory.
    pub(super) file: Option<Contents>,
}

/// Contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) data: Vec<u8>,
    /// Numbers of its blocks outside of holes.
    pub(super) blocks: BTreeSet<u64>,
}

impl Contents {
    /// Returns the contents after a write.
    pub(super) fn written(&self, offset: usize, data: &[u8]) -> Contents {
        let (mut after, end) = (self.clone(), offset + data.len());
        if after.data.len() < end {
            after.data.resize(end, 0);
        }
        after.data[offset..end].copy_from_slice(data);
        after.blocks.extend(offset as u64 / BLOCK..(end as u64).div_ceil(BLOCK));
        after
    }

    /// Returns the contents with another length.
    pub(super) fn resized(&self, size: usize) -> Contents {
        let mut after = self.clone();
        after.data.resize(size, 0);
        after.blocks.retain(|block| block * BLOCK < size as u64);
        after
    }
}

impl Entry {
    /// Returns its usage.
    pub(super) fn usage(&self) -> Usages {
        let blocks = self.file.as_ref().map_or(0, |file| file.blocks.len());
        let one = Usage { blocks: i64::try_from(blocks).expect("a small file"), inodes: 1 };
        let mut usages = Usages::default();
        usages.0[self.dir] = one;
        usages.0[DIRS.len() + self.owner] = one;
        usages
    }

    /// Returns whether an entry that was found looks the same. `blocks` is its number of blocks.
    pub(super) fn is_like(&self, found: &Entry, blocks: usize) -> bool {
        let same = (self.dir, self.owner) == (found.dir, found.owner);
        same && match (&self.file, &found.file) {
            (None, None) => true,
            (Some(own), Some(found)) => own.data == found.data && own.blocks.len() == blocks,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

/// A state, and the request that led to it.
#[derive(Clone, Debug)]
struct Version<T> {
    state: Rc<T>,
    /// Time when the request began, nanoseconds.
    begin: u64,
    /// Time of its reply; the maximum without one.
    end: u64,
}

/// States of something that only one client changes, one request after the other, the last one
/// last.
#[derive(Debug)]
pub(super) struct History<T>(Vec<Version<T>>);

/// A range of times, inclusive, nanoseconds.
pub(super) type Span = (u64, u64);

impl<T> History<T> {
    /// Returns a history that begins with a durable state.
    pub(super) fn new(state: T) -> History<T> {
        History(vec![Version { state: Rc::new(state), begin: 0, end: 0 }])
    }

    /// Returns the last state, also of a request without a reply.
    pub(super) fn last(&self) -> Rc<T> {
        Rc::clone(&self.0.last().expect("it begins with a state").state)
    }

    /// Records the beginning of a request.
    pub(super) fn begin(&mut self, now: u64, state: T) {
        self.0.push(Version { state: Rc::new(state), begin: now, end: u64::MAX });
    }

    /// Records its successful reply. States before one that is `durable`, by the time of its
    /// reply, are dropped.
    pub(super) fn end(&mut self, now: u64, durable: u64) {
        self.0.last_mut().expect("a request is in flight").end = now;
        let first = self.0.iter().rposition(|version| version.end < durable);
        self.0.drain(..first.unwrap_or(0));
    }

    /// Records that the last request has had no effect.
    pub(super) fn undo(&mut self) {
        self.0.pop();
        assert!(!self.0.is_empty(), "the first state is nobody's request");
    }

    /// Makes the last state the only one: it is durable, or nothing needs the others.
    pub(super) fn forget(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }

    /// Returns in which times a power failure may have left a state that is accepted by `is`, each
    /// with the state: after the beginning of its request, and before the next one's reply.
    pub(super) fn admissible(&self, is: impl Fn(&T) -> bool) -> Vec<(Span, Rc<T>)> {
        let ends = self.0.iter().skip(1).map(|next| next.end).chain([u64::MAX]);
        let of = self.0.iter().zip(ends).filter(|(version, _)| is(&version.state));
        of.map(|(version, end)| ((version.begin, end), Rc::clone(&version.state))).collect()
    }
}
