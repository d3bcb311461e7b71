//! Who holds which range of which file (`fcntl(2)` record locks, 9P2000.L `Tlock`).
//!
//! Ranges of one owner never overlap; taking a range replaces what the owner held there. A
//! request that must wait stands in line and is granted as soon as nobody is in its way; one that
//! would close a circle of owners waiting for each other is refused (`WouldDeadlock`), so no
//! deadlock goes unresolved.

use base::Error;

#[cfg(test)]
mod tests;

/// Most ranges that one file can have locked, and most that can wait for it.
pub const RANGES_MAX: usize = 4096;

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
    /// `Invalid` if the range reaches past the largest offset.
    pub fn new(kind: LockKind, start: u64, length: u64, owner: Owner) -> Result<Lock, Error> {
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
    file: FileKey,
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
    /// It stands in line; [`Table::grant`] will name it.
    Waits,
}

/// All locks of a tree. `T` names an open file, `R` a request.
#[derive(Debug)]
pub struct Table<T, R> {
    held: Vec<Held<T>>,
    waiting: Vec<Waiting<T, R>>,
}

impl<T, R> Default for Table<T, R> {
    fn default() -> Table<T, R> {
        Table { held: Vec::new(), waiting: Vec::new() }
    }
}

impl<T: Copy + Eq, R: Copy + Eq> Table<T, R> {
    /// Takes, waits for, or gives up a range.
    ///
    /// # Errors
    /// `WouldDeadlock` if waiting would never end, `NoMemory` past [`RANGES_MAX`].
    pub fn request(
        &mut self,
        file: FileKey,
        through: T,
        lock: Lock,
        wait: Option<R>,
    ) -> Result<Outcome, Error> {
        if self.conflict(file, &lock).is_none() {
            if self.held.iter().filter(|held| held.file == file).count() >= RANGES_MAX {
                return Err(Error::NoMemory);
            }
            self.take(Held { file, through, lock });
            return Ok(Outcome::Granted);
        }
        let Some(request) = wait else {
            return Ok(Outcome::Blocked);
        };
        if self.waiting.len() >= RANGES_MAX {
            return Err(Error::NoMemory);
        }
        let want = Held { file, through, lock };
        if self.closes_circle(&want) {
            return Err(Error::WouldDeadlock);
        }
        self.waiting.push(Waiting { request, want });
        Ok(Outcome::Waits)
    }

    /// A lock of somebody else that is in the way of this one.
    pub fn conflict(&self, file: FileKey, lock: &Lock) -> Option<&Lock> {
        let in_way = |held: &&Held<T>| held.file == file && held.lock.conflicts(lock);
        match lock.kind {
            LockKind::None => None,
            LockKind::Shared | LockKind::Exclusive => {
                self.held.iter().find(in_way).map(|held| &held.lock)
            }
        }
    }

    /// Drops everything that was taken or waited for through an open file; gives the requests
    /// that waited, which will not be granted any more.
    pub fn close(&mut self, through: T) -> Vec<R> {
        self.held.retain(|held| held.through != through);
        let dropped = self.waiting.iter().filter(|waiting| waiting.want.through == through);
        let dropped = dropped.map(|waiting| waiting.request).collect();
        self.waiting.retain(|waiting| waiting.want.through != through);
        dropped
    }

    /// Takes a request out of the line; whether it stood there.
    pub fn cancel(&mut self, request: R) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.request != request);
        self.waiting.len() < before
    }

    /// Grants the first request in line that nobody is in the way of any more.
    pub fn grant(&mut self) -> Option<R> {
        let free = |w: &Waiting<T, R>| self.conflict(w.want.file, &w.want.lock).is_none();
        let index = self.waiting.iter().position(free)?;
        let waiting = self.waiting.remove(index);
        self.take(waiting.want);
        Some(waiting.request)
    }

    /// How many ranges are held and how many requests wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.held.len(), self.waiting.len())
    }

    /// Cuts the range out of what its owner holds, then adds it.
    fn take(&mut self, new: Held<T>) {
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for held in self.held.drain(..) {
            let same = held.file == new.file && held.lock.owner == new.lock.owner;
            if same && held.lock.overlaps(&new.lock) {
                split(held, &new.lock, &mut kept);
            } else {
                kept.push(held);
            }
        }
        if new.lock.kind != LockKind::None {
            kept.push(new);
        }
        self.held = kept;
    }

    /// Whether somebody in the way of `want` waits, directly or not, for the owner of `want`.
    fn closes_circle(&self, want: &Held<T>) -> bool {
        let mut frontier = self.blockers(want);
        let mut seen: Vec<&Owner> = Vec::new();
        while let Some(owner) = frontier.pop() {
            if *owner == want.lock.owner {
                return true;
            }
            if !seen.contains(&owner) {
                seen.push(owner);
                let theirs = self.waiting.iter().filter(|w| w.want.lock.owner == *owner);
                frontier.extend(theirs.flat_map(|w| self.blockers(&w.want)));
            }
        }
        false
    }

    fn blockers(&self, want: &Held<T>) -> Vec<&Owner> {
        let in_way = self.held.iter().filter(|held| held.file == want.file);
        let in_way = in_way.filter(|held| held.lock.conflicts(&want.lock));
        in_way.map(|held| &held.lock.owner).collect()
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
