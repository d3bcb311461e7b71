//! Who holds which range of which file (`fcntl(2)` record locks, 9P2000.L `Tlock`).
//!
//! Ranges of one owner never overlap; taking a range replaces what the owner held there. A
//! request that must wait stands in line and is granted as soon as nobody is in its way; one that
//! would close a circle of owners waiting for each other is refused (`WouldDeadlock`), so no
//! deadlock goes unresolved.
//!
//! Each file has its own ranges and its own line: what happens to one file costs nothing for
//! another. Somebody is granted a lock only after a release on the same file, so whoever releases
//! (unlocks, changes exclusive to shared, closes) asks [`Table::grant`] for that file.

use base::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

#[cfg(test)]
mod tests;

/// Most ranges of all files that can be locked. Giving up the middle of a range leaves two, and
/// is refused only at twice as many.
pub const RANGES_MAX: usize = 65_536;

/// Most requests for all files that can wait.
pub const WAITING_MAX: usize = 4096;

/// Longest name of a client, bytes.
pub const CLIENT_MAX: usize = 256;

/// Most waiting requests that are looked at for a circle; a longer chain is taken for one.
const CHAIN_MAX: usize = 256;

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
    /// Nobody holds it: unlocks.
    None,
}

/// Who holds a lock: a process of a client, as the client tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Which machine.
    pub client: Vec<u8>,
    /// Which process there.
    pub process: u32,
}

/// A range with its kind and owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// How.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` means to the end, however far the file grows.
    pub last: u64,
    /// By whom.
    pub owner: Owner,
}

impl Lock {
    /// A range as protocols give it: a length of zero means to the end.
    ///
    /// # Errors
    /// `Invalid` if the range reaches past the largest offset, or the client's name is too long.
    pub fn new(kind: LockKind, start: u64, length: u64, owner: Owner) -> Result<Lock, Error> {
        if owner.client.len() > CLIENT_MAX {
            return Err(Error::Invalid);
        }
        let last = match length {
            0 => u64::MAX,
            n => start.checked_add(n - 1).ok_or(Error::Invalid)?,
        };
        Ok(Lock { kind, start, last, owner })
    }

    /// The length as protocols give it: zero means to the end.
    pub fn length(&self) -> u64 {
        if self.last == u64::MAX { 0 } else { self.last - self.start + 1 }
    }

    fn overlaps(&self, other: &Lock) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn conflicts(&self, other: &Lock) -> bool {
        let exclusive = self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive;
        exclusive && self.owner != other.owner && self.overlaps(other)
    }
}

/// Which file: device and inode.
pub type FileKey = (u64, u64);

/// A lock that is held, and through which open file it was taken.
#[derive(Clone, Debug)]
struct Held<T> {
    through: T,
    lock: Lock,
}

/// A request that stands in line.
#[derive(Clone, Debug)]
struct Waiting<T, R> {
    request: R,
    want: Held<T>,
}

/// How a request for a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is held (or no longer, if unlocking).
    Granted,
    /// Somebody is in the way.
    Blocked,
    /// It stands in line; [`Table::grant`] names it when it is held.
    Waits,
}

/// All locks of a tree. `T` names an open file, `R` a request.
#[derive(Debug)]
pub struct Table<T, R> {
    /// Files without held ranges are not kept.
    held: BTreeMap<FileKey, Vec<Held<T>>>,
    held_count: usize,
    /// Files without waiting requests are not kept.
    lines: BTreeMap<FileKey, Vec<Waiting<T, R>>>,
    /// Where each waiting request stands.
    waiting: BTreeMap<R, FileKey>,
    /// How many requests of each owner wait: most owners are found not to be part of a circle by
    /// this alone.
    owners: BTreeMap<Owner, usize>,
}

impl<T, R> Default for Table<T, R> {
    fn default() -> Table<T, R> {
        let (held, lines) = (BTreeMap::new(), BTreeMap::new());
        let (waiting, owners) = (BTreeMap::new(), BTreeMap::new());
        Table { held, held_count: 0, lines, waiting, owners }
    }
}

impl<T: Copy + Eq, R: Copy + Ord> Table<T, R> {
    /// Takes, waits for, or gives up a range.
    ///
    /// # Errors
    /// `WouldDeadlock` if waiting would never end, `NoMemory` past [`RANGES_MAX`] or
    /// [`WAITING_MAX`].
    pub fn request(
        &mut self,
        file: FileKey,
        through: T,
        lock: Lock,
        wait: Option<R>,
    ) -> Result<Outcome, Error> {
        let want = Held { through, lock };
        if self.conflict(file, &want.lock).is_none() {
            self.expect_room(file, &want.lock)?;
            self.take(file, want);
            return Ok(Outcome::Granted);
        }
        let Some(request) = wait else {
            return Ok(Outcome::Blocked);
        };
        if self.waiting.len() >= WAITING_MAX {
            return Err(Error::NoMemory);
        }
        if self.closes_circle(file, &want.lock) {
            return Err(Error::WouldDeadlock);
        }
        self.waiting.insert(request, file);
        *self.owners.entry(want.lock.owner.clone()).or_default() += 1;
        self.lines.entry(file).or_default().push(Waiting { request, want });
        Ok(Outcome::Waits)
    }

    /// A lock of somebody else that is in the way of this one.
    pub fn conflict(&self, file: FileKey, lock: &Lock) -> Option<&Lock> {
        match lock.kind {
            LockKind::None => None,
            LockKind::Shared | LockKind::Exclusive => {
                self.ranges(file).find(|held| held.conflicts(lock))
            }
        }
    }

    /// Drops everything that was taken or waited for through an open file; gives the requests
    /// that waited, which will not be granted any more.
    pub fn close(&mut self, file: FileKey, through: T) -> Vec<R> {
        if let Some(mut held) = self.held.remove(&file) {
            self.held_count -= held.len();
            held.retain(|held| held.through != through);
            self.keep_held(file, held);
        }
        let line = self.lines.remove(&file).unwrap_or_default();
        let (dropped, kept): (Vec<_>, Vec<_>) =
            line.into_iter().partition(|waiting| waiting.want.through == through);
        self.keep_line(file, kept);
        dropped.iter().for_each(|waiting| self.strike(waiting));
        dropped.into_iter().map(|waiting| waiting.request).collect()
    }

    /// Takes a request out of the line; whether it stood there.
    pub fn cancel(&mut self, request: R) -> bool {
        let Some(&file) = self.waiting.get(&request) else { return false };
        let line = self.lines.remove(&file).unwrap_or_default();
        let (dropped, kept): (Vec<_>, Vec<_>) =
            line.into_iter().partition(|waiting| waiting.request == request);
        dropped.iter().for_each(|waiting| self.strike(waiting));
        self.keep_line(file, kept);
        true
    }

    /// Grants the requests in line for a file that nobody is in the way of any more, in order.
    pub fn grant(&mut self, file: FileKey) -> Vec<R> {
        let mut granted = Vec::new();
        let mut line = self.lines.remove(&file).unwrap_or_default();
        loop {
            let before = granted.len();
            for waiting in mem::take(&mut line) {
                if self.conflict(file, &waiting.want.lock).is_some() {
                    line.push(waiting);
                } else {
                    self.strike(&waiting);
                    granted.push(waiting.request);
                    self.take(file, waiting.want);
                }
            }
            // What was granted may have replaced something exclusive by something shared.
            if granted.len() == before || line.is_empty() {
                break;
            }
        }
        self.keep_line(file, line);
        granted
    }

    /// How many ranges are held and how many requests wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.held_count, self.waiting.len())
    }

    /// Asserts what always holds.
    pub fn check(&self) {
        assert_eq!(self.held_count, self.held.values().map(Vec::len).sum::<usize>());
        assert_eq!(self.waiting.len(), self.lines.values().map(Vec::len).sum::<usize>());
        assert_eq!(self.waiting.len(), self.owners.values().sum::<usize>());
        assert!(self.held.values().all(|held| !held.is_empty()));
        assert!(self.lines.values().all(|line| !line.is_empty()));
    }

    /// Whether there is room for a range. Giving one up needs none, unless it leaves two pieces:
    /// those may go up to twice the limit, so that what was once taken can be given up.
    fn expect_room(&self, file: FileKey, lock: &Lock) -> Result<(), Error> {
        let splits = |held: &Lock| {
            held.owner == lock.owner && held.start < lock.start && lock.last < held.last
        };
        let limit = match lock.kind {
            LockKind::Shared | LockKind::Exclusive => RANGES_MAX,
            LockKind::None if self.held_count < 2 * RANGES_MAX => return Ok(()),
            LockKind::None if self.ranges(file).any(splits) => 2 * RANGES_MAX,
            LockKind::None => return Ok(()),
        };
        if self.held_count >= limit { Err(Error::NoMemory) } else { Ok(()) }
    }

    fn ranges(&self, file: FileKey) -> impl Iterator<Item = &Lock> {
        self.held.get(&file).into_iter().flatten().map(|held| &held.lock)
    }

    /// Cuts the range out of what its owner holds, then adds it.
    fn take(&mut self, file: FileKey, new: Held<T>) {
        let mut held = self.held.remove(&file).unwrap_or_default();
        self.held_count -= held.len();
        let mut index = 0;
        while index < held.len() {
            let one = &held[index].lock;
            if one.owner == new.lock.owner && one.overlaps(&new.lock) {
                // The pieces do not overlap the cut, so it does no harm to come to them.
                split(held.swap_remove(index), &new.lock, &mut held);
            } else {
                index += 1;
            }
        }
        if new.lock.kind != LockKind::None {
            held.push(new);
        }
        self.keep_held(file, held);
    }

    fn keep_held(&mut self, file: FileKey, held: Vec<Held<T>>) {
        self.held_count += held.len();
        if !held.is_empty() {
            self.held.insert(file, held);
        }
    }

    /// Notes that a request waits no more.
    fn strike(&mut self, waiting: &Waiting<T, R>) {
        self.waiting.remove(&waiting.request);
        let owner = &waiting.want.lock.owner;
        let count = self.owners.get_mut(owner).expect("its requests are counted");
        *count -= 1;
        if *count == 0 {
            self.owners.remove(owner);
        }
    }

    fn keep_line(&mut self, file: FileKey, line: Vec<Waiting<T, R>>) {
        if !line.is_empty() {
            self.lines.insert(file, line);
        }
    }

    /// Whether somebody in the way of `want` waits, directly or not, for the owner of `want`.
    fn closes_circle(&self, file: FileKey, want: &Lock) -> bool {
        let mut looked_at = 0;
        let mut seen: BTreeSet<&Owner> = self.blockers(file, want).collect();
        let mut frontier: Vec<&Owner> = seen.iter().copied().collect();
        while let Some(owner) = frontier.pop() {
            if *owner == want.owner {
                return true;
            }
            for (file, wanted) in self.waits(owner) {
                looked_at += 1;
                if looked_at > CHAIN_MAX {
                    return true;
                }
                frontier.extend(self.blockers(file, wanted).filter(|owner| seen.insert(owner)));
            }
        }
        false
    }

    /// What an owner waits for.
    fn waits(&self, owner: &Owner) -> Vec<(FileKey, &Lock)> {
        if !self.owners.contains_key(owner) {
            return Vec::new();
        }
        let all = self.lines.iter().flat_map(|(file, line)| line.iter().map(|one| (*file, one)));
        let wanted = all.map(|(file, waiting)| (file, &waiting.want.lock));
        wanted.filter(|(_, lock)| lock.owner == *owner).collect()
    }

    fn blockers(&self, file: FileKey, want: &Lock) -> impl Iterator<Item = &Owner> {
        let in_way = self.ranges(file).filter(|held| held.conflicts(want));
        in_way.map(|held| &held.owner)
    }
}

/// What is left of `held` on both sides of `cut`.
fn split<T: Copy>(held: Held<T>, cut: &Lock, kept: &mut Vec<Held<T>>) {
    if held.lock.start < cut.start {
        let left = Lock { last: cut.start - 1, ..held.lock.clone() };
        kept.push(Held { lock: left, ..held });
    }
    if held.lock.last > cut.last {
        let right = Lock { start: cut.last + 1, ..held.lock };
        kept.push(Held { lock: right, ..held });
    }
}
