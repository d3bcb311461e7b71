//! Byte-range locks (`fcntl(2)` record locks, 9P2000.L `Tlock`).
//!
//! Ranges of one owner never overlap; taking a range replaces the owner's earlier locks there. A
//! blocked request waits and is granted when no conflict is left; one that would close a cycle of
//! owners waiting for each other is refused (`WouldDeadlock`). An owner with several waiting
//! requests can still close a cycle when one of them is granted.
//!
//! Clients control the number of ranges and of waiting requests, so no request examines all of
//! them: conflicts are found in [interval trees](ranges), a waiting request watches one conflicting
//! range and is reconsidered when that one is released, [`Table::advance`] reconsiders a bounded
//! number of requests a turn, and the search for cycles has a bounded number of steps.
//!
//! A client may hold as many ranges, and have as many requests waiting, as are free, and a few in
//! any case, so that one leaves some to others. The name of the client in an [`Owner`] is not
//! verified; shares are those of connections or groups of them ([`ClientKey`]).

mod ranges;

use base::Error;
use base::op::ClientKey;
use ranges::{OwnerId, Range, Ranges};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// Maximum number of ranges locked in all files. Unlocking the middle of a range leaves two, and is
/// refused only at twice as many.
pub const RANGES_MAX: usize = 65_536;

/// Number of ranges held through one open file at which new locks through it are refused: its close
/// releases them all in one step.
pub const OPEN_RANGES_MAX: usize = 8192;

/// Maximum number of waiting requests for all files.
pub const WAITING_MAX: usize = 4096;

/// Number of ranges that a client may have while others have most.
pub const RANGES_FEW: usize = 64;

/// Number of waiting requests that a client may have while others have most.
pub const WAITING_FEW: usize = 16;

/// Maximum length of a client's name, bytes.
pub const CLIENT_MAX: usize = 256;

/// Maximum number of steps of a search for a cycle of waiting owners; a longer search is taken for
/// a cycle.
const SEARCH_MAX: usize = 4096;

/// Maximum number of waiting requests reconsidered by one call of [`Table::advance`].
pub const ADVANCE_MAX: usize = 256;

/// Type of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of owners may hold it.
    Shared,
    /// One owner may hold it.
    Exclusive,
    /// Unlock.
    None,
}

/// Owner of a lock: a process of a client, as reported by the client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Name of the client.
    pub client: Vec<u8>,
    /// Process id on the client.
    pub process: u32,
}

/// A range with its lock type and owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Type of the lock.
    pub kind: LockKind,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset of the last byte, inclusive; `u64::MAX` means to the end of the file, wherever that
    /// is.
    pub last: u64,
    /// Owner of the lock.
    pub owner: Owner,
}

impl Lock {
    /// Returns a lock from a protocol's start and length; a length of zero means to the end.
    ///
    /// # Errors
    /// `Invalid` if the range extends past the largest offset, or the client's name is too long.
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

    /// Returns the length in a protocol's form: zero means to the end.
    pub fn length(&self) -> u64 {
        if self.last == u64::MAX { 0 } else { self.last - self.start + 1 }
    }
}

/// Identity of a file: device and inode.
pub type FileKey = (u64, u64);

/// Result of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Granted (or released, for an unlock).
    Granted,
    /// Refused because of a conflict.
    Blocked,
    /// Queued; [`Table::advance`] returns the request when it is granted.
    Waits,
}

/// A held range without its first byte, and the open file through which it was locked.
#[derive(Clone, Copy, Debug)]
struct Held<T> {
    last: u64,
    is_exclusive: bool,
    through: T,
    client: ClientKey,
}

/// A requested range.
#[derive(Clone, Copy, Debug)]
struct Want<T> {
    range: Range,
    is_exclusive: bool,
    through: T,
    client: ClientKey,
}

/// The locks of one file.
#[derive(Debug)]
struct Locked<T, R> {
    /// All held ranges, by owner and first byte.
    held: BTreeMap<(OwnerId, u64), Held<T>>,
    exclusive: Ranges,
    shared: Ranges,
    /// Ranges locked through each open file.
    opens: BTreeMap<T, BTreeSet<(OwnerId, u64)>>,
    /// Waiting requests, by open file and order of arrival.
    waiting: BTreeSet<(T, u64)>,
    /// Requests that watch a held range: its owner and first byte, and the request's order of
    /// arrival.
    watches: BTreeMap<(OwnerId, u64, u64), R>,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
struct Waiting<T, R> {
    request: R,
    file: FileKey,
    want: Want<T>,
    /// Owner and first byte of the watched range; `None` if the request is due for reconsideration.
    watches: Option<(OwnerId, u64)>,
}

/// An owner with held ranges or waiting requests.
#[derive(Debug)]
struct Known {
    owner: Owner,
    /// Number of ranges held and requests waiting.
    uses: usize,
    /// Waiting requests, by order of arrival.
    waits: BTreeSet<u64>,
}

/// Numbers of ranges and of waiting requests of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    ranges: usize,
    waits: usize,
}

/// All locks of a tree. `T` names an open file, `R` a request.
#[derive(Debug)]
pub struct Table<T, R> {
    /// Files with locks or waiting requests.
    files: BTreeMap<FileKey, Locked<T, R>>,
    held_count: usize,
    /// Clients with ranges or waiting requests.
    shares: BTreeMap<ClientKey, Share>,
    /// Waiting requests, by order of arrival.
    waiting: BTreeMap<u64, Waiting<T, R>>,
    /// Order of arrival of each waiting request.
    arrivals: BTreeMap<R, u64>,
    next_arrival: u64,
    /// Waiting requests due for reconsideration.
    due: BTreeSet<u64>,
    ids: BTreeMap<Owner, OwnerId>,
    owners: BTreeMap<OwnerId, Known>,
    next_owner: OwnerId,
    /// Owners of waiting requests.
    waiters: BTreeSet<OwnerId>,
}

impl<T, R> Default for Locked<T, R> {
    fn default() -> Locked<T, R> {
        Locked {
            held: BTreeMap::new(),
            exclusive: Ranges::default(),
            shared: Ranges::default(),
            opens: BTreeMap::new(),
            waiting: BTreeSet::new(),
            watches: BTreeMap::new(),
        }
    }
}

impl<T, R> Default for Table<T, R> {
    fn default() -> Table<T, R> {
        Table {
            files: BTreeMap::new(),
            held_count: 0,
            shares: BTreeMap::new(),
            waiting: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next_arrival: 0,
            due: BTreeSet::new(),
            ids: BTreeMap::new(),
            owners: BTreeMap::new(),
            next_owner: 0,
            waiters: BTreeSet::new(),
        }
    }
}

impl<T: Copy + Ord, R> Locked<T, R> {
    /// Returns a conflicting range of another owner.
    fn in_way(&self, range: &Range, is_exclusive: bool) -> Option<Range> {
        let Range { start, last, owner } = *range;
        let found = self.exclusive.overlapping(start, last, owner);
        let shared = || self.shared.overlapping(start, last, owner).filter(|_| is_exclusive);
        found.or_else(shared).copied()
    }

    /// Passes all conflicting ranges of other owners to `show` until it returns `false`; returns
    /// whether all were passed.
    fn each_in_way(
        &self,
        range: &Range,
        is_exclusive: bool,
        show: &mut impl FnMut(&Range) -> bool,
    ) -> bool {
        self.exclusive.each_overlapping(range, show)
            && (!is_exclusive || self.shared.each_overlapping(range, show))
    }

    /// Returns the ranges of an owner that overlap these bytes, by first byte.
    fn of(&self, range: Range) -> impl Iterator<Item = (u64, &Held<T>)> {
        let Range { start, last, owner } = range;
        let before = self.held.range((owner, 0)..(owner, start)).next_back();
        let before = before.filter(move |(_, held)| held.last >= start);
        let inside = self.held.range((owner, start)..=(owner, last));
        before.into_iter().chain(inside).map(|((_, start), held)| (*start, held))
    }

    /// Returns the interval tree of exclusive or of shared ranges.
    fn tree(&mut self, is_exclusive: bool) -> &mut Ranges {
        if is_exclusive { &mut self.exclusive } else { &mut self.shared }
    }

    fn add(&mut self, range: Range, held: Held<T>) {
        assert!(range.start <= range.last, "a range does not end before it begins");
        assert_eq!(range.last, held.last, "both say where it ends");
        let key = (range.owner, range.start);
        let before = self.held.insert(key, held);
        assert!(before.is_none(), "one owner's ranges do not overlap");
        self.tree(held.is_exclusive).insert(range);
        self.opens.entry(held.through).or_default().insert(key);
    }

    /// Removes an owner's range with this first byte; requests that watched it become due.
    fn remove(&mut self, key: (OwnerId, u64), due: &mut BTreeSet<u64>) -> Held<T> {
        let held = self.held.remove(&key).expect("it is held");
        self.tree(held.is_exclusive).remove(key.1, key.0);
        let of_open = self.opens.get_mut(&held.through).expect("it was taken through this");
        let known = of_open.remove(&key);
        assert!(known, "a range is found by the open file that it was taken through");
        if of_open.is_empty() {
            self.opens.remove(&held.through);
        }
        let watched = self.watches.range((key.0, key.1, 0)..=(key.0, key.1, u64::MAX));
        due.extend(watched.map(|((_, _, arrival), _)| *arrival));
        held
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }
}

/// Checks that a client that has some may have one more, given the number of free ones. Parts of
/// the server have no share.
fn expect_share(client: ClientKey, has: usize, free: usize, few: usize) -> Result<(), Error> {
    let may = client == ClientKey::NOBODY || has < free.max(few);
    if may { Ok(()) } else { Err(Error::NoMemory) }
}

/// Changes the share of a client.
fn change(
    shares: &mut BTreeMap<ClientKey, Share>,
    client: ClientKey,
    with: impl FnOnce(&mut Share),
) {
    let share = shares.entry(client).or_default();
    with(share);
    if *share == Share::default() {
        shares.remove(&client);
    }
}

impl<T: Copy + Ord, R: Copy + Ord> Table<T, R> {
    /// Locks a range for a client, waits for it, or unlocks it.
    ///
    /// # Errors
    /// `WouldDeadlock` if the wait would never end, `NoMemory` past [`RANGES_MAX`],
    /// [`OPEN_RANGES_MAX`], [`WAITING_MAX`] or the share of the client.
    pub fn request(
        &mut self,
        file: FileKey,
        through: T,
        lock: Lock,
        wait: Option<R>,
        client: ClientKey,
    ) -> Result<Outcome, Error> {
        let is_exclusive = match lock.kind {
            LockKind::None => return self.unlock(file, &lock),
            LockKind::Shared => false,
            LockKind::Exclusive => true,
        };
        let owner = self.ids.get(&lock.owner).copied().unwrap_or(self.next_owner);
        let range = Range { start: lock.start, last: lock.last, owner };
        let want = Want { range, is_exclusive, through, client };
        let in_way = self.files.get(&file).and_then(|locked| locked.in_way(&range, is_exclusive));
        let Some(in_way) = in_way else {
            self.expect_room(RANGES_MAX)?;
            let free = RANGES_MAX - self.held_count;
            expect_share(client, self.share(client).ranges, free, RANGES_FEW)?;
            let of_open = self.files.get(&file).and_then(|locked| locked.opens.get(&through));
            if of_open.is_some_and(|keys| keys.len() >= OPEN_RANGES_MAX) {
                return Err(Error::NoMemory);
            }
            self.know(lock.owner);
            self.take(file, want);
            return Ok(Outcome::Granted);
        };
        let Some(request) = wait else {
            return Ok(Outcome::Blocked);
        };
        if self.waiting.len() >= WAITING_MAX {
            return Err(Error::NoMemory);
        }
        let free = WAITING_MAX - self.waiting.len();
        expect_share(client, self.share(client).waits, free, WAITING_FEW)?;
        if self.closes_circle(file, &want) {
            return Err(Error::WouldDeadlock);
        }
        self.know(lock.owner);
        self.wait(request, file, want, in_way);
        Ok(Outcome::Waits)
    }

    /// Returns a lock of another owner that conflicts with this one.
    pub fn conflict(&self, file: FileKey, lock: &Lock) -> Option<Lock> {
        let is_exclusive = match lock.kind {
            LockKind::None => return None,
            LockKind::Shared => false,
            LockKind::Exclusive => true,
        };
        let owner = self.ids.get(&lock.owner).copied().unwrap_or(self.next_owner);
        let range = Range { start: lock.start, last: lock.last, owner };
        let locked = self.files.get(&file)?;
        let found = locked.in_way(&range, is_exclusive)?;
        let held = &locked.held[&(found.owner, found.start)];
        let kind = if held.is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let owner = self.owners[&found.owner].owner.clone();
        Some(Lock { kind, start: found.start, last: found.last, owner })
    }

    /// Drops all locks and waiting requests of an open file; returns the requests, which will not
    /// be granted.
    pub fn close(&mut self, file: FileKey, through: T) -> Vec<R> {
        let Some(locked) = self.files.get_mut(&file) else { return Vec::new() };
        let keys = locked.opens.get(&through).cloned().unwrap_or_default();
        for key in &keys {
            let held = locked.remove(*key, &mut self.due);
            change(&mut self.shares, held.client, |share| share.ranges -= 1);
        }
        let arrivals = locked.waiting.range((through, 0)..=(through, u64::MAX));
        let arrivals: Vec<u64> = arrivals.map(|(_, arrival)| *arrival).collect();
        self.held_count -= keys.len();
        keys.iter().for_each(|(owner, _)| self.forget_use(*owner));
        let dropped = arrivals.iter().map(|arrival| self.strike(*arrival).request).collect();
        self.forget_file(file);
        dropped
    }

    /// Removes a waiting request; returns whether there was one.
    pub fn cancel(&mut self, request: R) -> bool {
        let Some(&arrival) = self.arrivals.get(&request) else { return false };
        let waiting = self.strike(arrival);
        self.forget_file(waiting.file);
        true
    }

    /// Returns whether [`Table::advance`] has requests to reconsider.
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Grants waiting requests without a conflict, in order; reconsiders no more than
    /// [`ADVANCE_MAX`].
    pub fn advance(&mut self) -> Vec<R> {
        let mut granted = Vec::new();
        for _ in 0..ADVANCE_MAX {
            let Some(arrival) = self.due.pop_first() else { break };
            self.unwatch(arrival);
            let Waiting { request, file, want, .. } = self.waiting[&arrival];
            let locked = &self.files[&file];
            if let Some(in_way) = locked.in_way(&want.range, want.is_exclusive) {
                self.watch(arrival, in_way);
            } else {
                // It was admitted on arrival, so the limits do not apply now.
                self.add_use(want.range.owner);
                self.strike(arrival);
                self.take(file, want);
                self.forget_use(want.range.owner);
                granted.push(request);
            }
        }
        granted
    }

    /// Returns the numbers of held ranges and of waiting requests.
    pub fn counts(&self) -> (usize, usize) {
        (self.held_count, self.waiting.len())
    }

    /// Asserts all invariants.
    pub fn check(&self) {
        assert_eq!(self.waiting.len(), self.arrivals.len());
        assert_eq!(self.ids.len(), self.owners.len());
        assert!(self.due.len() <= self.waiting.len() && self.waiters.len() <= self.owners.len());
        assert!(self.files.len() <= self.held_count + self.waiting.len());
        assert!(self.held_count <= 2 * RANGES_MAX + 2 * WAITING_MAX);
        assert!(self.waiting.len() <= WAITING_MAX);
        self.check_shares();
        self.check_files();
        self.check_owners();
    }

    /// Asserts that ranges and waiting requests are counted for their clients.
    fn check_shares(&self) {
        let mut shares: BTreeMap<ClientKey, Share> = BTreeMap::new();
        for held in self.files.values().flat_map(|locked| locked.held.values()) {
            shares.entry(held.client).or_default().ranges += 1;
        }
        for waiting in self.waiting.values() {
            shares.entry(waiting.want.client).or_default().waits += 1;
        }
        assert_eq!(self.shares, shares);
    }

    /// Asserts that the tables of each file agree with held ranges and waiting requests.
    fn check_files(&self) {
        let (mut held, mut waiting) = (0, 0);
        for (file, locked) in &self.files {
            assert!(!locked.is_empty(), "files without locks are not kept");
            let listed: usize = locked.opens.values().map(BTreeSet::len).sum();
            assert_eq!(listed, locked.held.len(), "each range was taken through an open file");
            for (through, keys) in &locked.opens {
                let own = |key| locked.held.get(key).is_some_and(|held| held.through == *through);
                assert!(!keys.is_empty() && keys.iter().all(own), "an open file has its ranges");
            }
            for (through, arrival) in &locked.waiting {
                let one = &self.waiting[arrival];
                assert!(one.file == *file && one.want.through == *through, "it waits here");
            }
            for (owner, start, arrival) in locked.watches.keys() {
                let watches = self.waiting[arrival].watches;
                assert_eq!(
                    watches,
                    Some((*owner, *start)),
                    "the owner of a watched range is known"
                );
            }
            held += locked.held.len();
            waiting += locked.waiting.len();
        }
        assert_eq!(self.held_count, held, "ranges are counted");
        assert_eq!(self.waiting.len(), waiting, "a request waits at one file");
    }

    /// Asserts that the owners are those of held ranges and waiting requests.
    fn check_owners(&self) {
        let mut uses: BTreeMap<OwnerId, usize> = BTreeMap::new();
        for (owner, _) in self.files.values().flat_map(|locked| locked.held.keys()) {
            *uses.entry(*owner).or_default() += 1;
        }
        for (arrival, waiting) in &self.waiting {
            *uses.entry(waiting.want.range.owner).or_default() += 1;
            assert!(*arrival < self.next_arrival, "arrivals are counted");
            assert_eq!(self.arrivals.get(&waiting.request), Some(arrival), "a request is found");
            let locked = &self.files[&waiting.file];
            let watched = waiting.watches.is_some_and(|range| locked.held.contains_key(&range));
            assert!(watched || self.due.contains(arrival), "a waiting request is watched or due");
        }
        let known = self.owners.iter().map(|(owner, known)| (*owner, known.uses));
        assert!(known.eq(uses), "uses of owners are counted");
        for (id, known) in &self.owners {
            assert_eq!(self.ids.get(&known.owner), Some(id), "an owner has one number");
            let waits = !known.waits.is_empty();
            assert_eq!(self.waiters.contains(id), waits, "owners that wait are listed");
            let own = |arrival| self.waiting[arrival].want.range.owner == *id;
            assert!(known.waits.iter().all(own), "an owner waits for itself");
        }
    }

    fn unlock(&mut self, file: FileKey, lock: &Lock) -> Result<Outcome, Error> {
        let Some(&owner) = self.ids.get(&lock.owner) else { return Ok(Outcome::Granted) };
        let range = Range { start: lock.start, last: lock.last, owner };
        let Some(locked) = self.files.get(&file) else { return Ok(Outcome::Granted) };
        // Unlocking is possible even if it splits a range in two.
        let first = locked.of(range).next();
        if first.is_some_and(|(start, held)| start < range.start && range.last < held.last) {
            self.expect_room(2 * RANGES_MAX)?;
        }
        self.cut(file, range);
        self.forget_file(file);
        Ok(Outcome::Granted)
    }

    fn share(&self, client: ClientKey) -> Share {
        self.shares.get(&client).copied().unwrap_or_default()
    }

    fn expect_room(&self, limit: usize) -> Result<(), Error> {
        if self.held_count >= limit { Err(Error::NoMemory) } else { Ok(()) }
    }

    /// Removes the range from its owner's locks, then adds it.
    fn take(&mut self, file: FileKey, want: Want<T>) {
        let Want { range, is_exclusive, through, client } = want;
        self.add_use(range.owner);
        self.cut(file, range);
        let held = Held { last: range.last, is_exclusive, through, client };
        self.add(file, range, held);
        self.forget_use(range.owner);
    }

    fn add(&mut self, file: FileKey, range: Range, held: Held<T>) {
        self.files.entry(file).or_default().add(range, held);
        self.held_count += 1;
        change(&mut self.shares, held.client, |share| share.ranges += 1);
        self.add_use(range.owner);
    }

    /// Removes a range from its owner's locks; the parts on both sides remain.
    fn cut(&mut self, file: FileKey, cut: Range) {
        let Some(locked) = self.files.get_mut(&file) else { return };
        let starts: Vec<u64> = locked.of(cut).map(|(start, _)| start).collect();
        let owner = cut.owner;
        // Keeps the owner known while it may have no ranges for a moment.
        self.add_use(owner);
        for start in starts {
            let locked = self.files.get_mut(&file).expect("it has locks");
            let held = locked.remove((owner, start), &mut self.due);
            self.held_count -= 1;
            change(&mut self.shares, held.client, |share| share.ranges -= 1);
            self.forget_use(owner);
            if start < cut.start {
                let last = cut.start - 1;
                self.add(file, Range { start, last, owner }, Held { last, ..held });
            }
            if held.last > cut.last {
                let start = cut.last + 1;
                self.add(file, Range { start, last: held.last, owner }, held);
            }
        }
        self.forget_use(owner);
    }

    fn forget_file(&mut self, file: FileKey) {
        if self.files.get(&file).is_some_and(Locked::is_empty) {
            self.files.remove(&file);
        }
    }

    /// Registers an owner under the next number, unless it is known.
    fn know(&mut self, owner: Owner) {
        if self.ids.contains_key(&owner) {
            return;
        }
        let id = self.next_owner;
        self.next_owner += 1;
        self.ids.insert(owner.clone(), id);
        self.owners.insert(id, Known { owner, uses: 0, waits: BTreeSet::new() });
    }

    fn add_use(&mut self, owner: OwnerId) {
        self.owners.get_mut(&owner).expect("a known owner").uses += 1;
    }

    fn forget_use(&mut self, owner: OwnerId) {
        let known = self.owners.get_mut(&owner).expect("a known owner");
        assert!(known.uses > 0, "uses are counted");
        known.uses -= 1;
        if known.uses == 0 {
            assert!(known.waits.is_empty(), "a waiting request is a use");
            let known = self.owners.remove(&owner).expect("it is there");
            self.ids.remove(&known.owner);
        }
    }

    /// Queues a request that watches a conflicting range.
    fn wait(&mut self, request: R, file: FileKey, want: Want<T>, in_way: Range) {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        let owner = want.range.owner;
        let known = self.owners.get_mut(&owner).expect("a known owner");
        known.uses += 1;
        known.waits.insert(arrival);
        self.waiters.insert(owner);
        change(&mut self.shares, want.client, |share| share.waits += 1);
        let before = self.arrivals.insert(request, arrival);
        assert!(before.is_none(), "a request waits once");
        let locked = self.files.get_mut(&file).expect("somebody is in the way");
        locked.waiting.insert((want.through, arrival));
        self.waiting.insert(arrival, Waiting { request, file, want, watches: None });
        self.watch(arrival, in_way);
    }

    fn watch(&mut self, arrival: u64, in_way: Range) {
        let waiting = self.waiting.get_mut(&arrival).expect("it waits");
        assert!(waiting.watches.is_none(), "a request watches one range");
        waiting.watches = Some((in_way.owner, in_way.start));
        let locked = self.files.get_mut(&waiting.file).expect("somebody is in the way");
        locked.watches.insert((in_way.owner, in_way.start, arrival), waiting.request);
    }

    fn unwatch(&mut self, arrival: u64) {
        let waiting = self.waiting.get_mut(&arrival).expect("it waits");
        if let Some((owner, start)) = waiting.watches.take() {
            let locked = self.files.get_mut(&waiting.file).expect("it is waited for");
            locked.watches.remove(&(owner, start, arrival));
        }
    }

    /// Removes a waiting request.
    fn strike(&mut self, arrival: u64) -> Waiting<T, R> {
        self.unwatch(arrival);
        self.due.remove(&arrival);
        let waiting = self.waiting.remove(&arrival).expect("it waits");
        change(&mut self.shares, waiting.want.client, |share| share.waits -= 1);
        let known = self.arrivals.remove(&waiting.request);
        assert_eq!(known, Some(arrival), "a request waits once");
        let locked = self.files.get_mut(&waiting.file).expect("it is waited for");
        locked.waiting.remove(&(waiting.want.through, arrival));
        let owner = waiting.want.range.owner;
        let waits = &mut self.owners.get_mut(&owner).expect("it waits").waits;
        waits.remove(&arrival);
        if waits.is_empty() {
            self.waiters.remove(&owner);
        }
        self.forget_use(owner);
        waiting
    }

    /// Returns whether an owner that conflicts with `want` waits, directly or not, for the owner of
    /// `want`. Only owners that wait can be part of a cycle, so only those are followed.
    fn closes_circle(&self, file: FileKey, want: &Want<T>) -> bool {
        let owner = want.range.owner;
        let holds_some = self.owners.get(&owner).is_some_and(|it| it.uses > it.waits.len());
        if !holds_some {
            // It holds nothing that others could wait for.
            return false;
        }
        let mut steps = 0;
        let mut seen = BTreeSet::from([owner]);
        let mut wants = vec![(file, *want)];
        while let Some((file, want)) = wants.pop() {
            let is_origin = want.range.owner == owner;
            if !is_origin && self.is_in_way(file, owner, &want, &mut steps) {
                return true;
            }
            for waiter in self.waiters_in_way(file, &want, &mut steps) {
                if seen.insert(waiter) {
                    let arrivals = self.owners[&waiter].waits.iter();
                    let waits = arrivals.map(|arrival| &self.waiting[arrival]);
                    wants.extend(waits.map(|waiting| (waiting.file, waiting.want)));
                }
            }
            if steps > SEARCH_MAX {
                return true;
            }
        }
        false
    }

    /// Returns waiting owners that conflict with a request: searches the conflicting ranges or the
    /// waiting owners, whichever are fewer.
    fn waiters_in_way(&self, file: FileKey, want: &Want<T>, steps: &mut usize) -> Vec<OwnerId> {
        let Some(locked) = self.files.get(&file) else { return Vec::new() };
        let mut found = Vec::new();
        let mut left = self.waiters.len();
        let is_all = locked.each_in_way(&want.range, want.is_exclusive, &mut |range| {
            *steps += 1;
            found.extend(self.waiters.get(&range.owner));
            left = left.saturating_sub(1);
            left > 0
        });
        if is_all {
            return found;
        }
        let in_way =
            |waiter: &&OwnerId| *steps <= SEARCH_MAX && self.is_in_way(file, **waiter, want, steps);
        self.waiters.iter().filter(in_way).copied().collect()
    }

    /// Returns whether an owner's locks conflict with a request of another one.
    fn is_in_way(&self, file: FileKey, owner: OwnerId, want: &Want<T>, steps: &mut usize) -> bool {
        *steps += 1;
        let Some(locked) = self.files.get(&file).filter(|_| owner != want.range.owner) else {
            return false;
        };
        let mut of = locked.of(Range { owner, ..want.range });
        of.any(|(_, held)| {
            *steps += 1;
            want.is_exclusive || held.is_exclusive || *steps > SEARCH_MAX
        })
    }
}
