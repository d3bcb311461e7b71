//! Who holds which range of which file (`fcntl(2)` record locks, 9P2000.L `Tlock`).
//!
//! Ranges of one owner never overlap; taking a range replaces what the owner held there. A
//! request that must wait stands in line and is granted when nobody is in its way any more; one
//! that would close a circle of owners waiting for each other is refused (`WouldDeadlock`). An
//! owner with several pending requests can still close a circle when one of them is granted.
//!
//! Clients choose how many ranges there are and how many requests wait, so no request looks at all
//! of them: conflicts are found in [interval trees](ranges), a waiting request watches one
//! range that is in its way and is looked at again when that one goes, [`Table::advance`] looks at
//! a bounded number of requests a turn, and the search for circles has a bounded number of steps.

mod ranges;

use base::Error;
use ranges::{OwnerId, Range, Ranges};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// Most ranges of all files that can be locked. Giving up the middle of a range leaves two, and
/// is refused only at twice as many.
pub const RANGES_MAX: usize = 65_536;

/// Most ranges that can be held through one open file: giving them all up is one step.
pub const OPEN_RANGES_MAX: usize = 8192;

/// Most requests for all files that can wait.
pub const WAITING_MAX: usize = 4096;

/// Longest name of a client, bytes.
pub const CLIENT_MAX: usize = 256;

/// Most steps of a search for a circle of waiting owners; a longer one is taken for a circle.
const SEARCH_MAX: usize = 4096;

/// Most waiting requests that one call of [`Table::advance`] looks at.
pub const ADVANCE_MAX: usize = 256;

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
}

/// Which file: device and inode.
pub type FileKey = (u64, u64);

/// How a request for a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is held (or no longer, if unlocking).
    Granted,
    /// Somebody is in the way.
    Blocked,
    /// It stands in line; [`Table::advance`] names it when it is held.
    Waits,
}

/// A held range without its first byte, and the open file that it was taken through.
#[derive(Clone, Copy, Debug)]
struct Held<T> {
    last: u64,
    is_exclusive: bool,
    through: T,
}

/// A range that is asked for.
#[derive(Clone, Copy, Debug)]
struct Want<T> {
    range: Range,
    is_exclusive: bool,
    through: T,
}

/// The locks of one file.
#[derive(Debug)]
struct Locked<T, R> {
    /// Everything that is held, by owner and first byte.
    held: BTreeMap<(OwnerId, u64), Held<T>>,
    exclusive: Ranges,
    shared: Ranges,
    /// Ranges taken through each open file.
    opens: BTreeMap<T, BTreeSet<(OwnerId, u64)>>,
    /// Requests that wait, by open file and order of arrival.
    waiting: BTreeSet<(T, u64)>,
    /// Requests that watch a held range: owner and first byte of that, order of arrival.
    watches: BTreeMap<(OwnerId, u64, u64), R>,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting<T, R> {
    request: R,
    file: FileKey,
    want: Want<T>,
    /// Owner and first byte of the range that it watches; `None`: it is due to be looked at.
    watches: Option<(OwnerId, u64)>,
}

/// Somebody who holds or waits for something.
#[derive(Debug)]
struct Known {
    owner: Owner,
    /// Ranges held and requests waiting.
    uses: usize,
    /// Requests waiting, by order of arrival.
    waits: BTreeSet<u64>,
}

/// All locks of a tree. `T` names an open file, `R` a request.
#[derive(Debug)]
pub struct Table<T, R> {
    /// Files without locks and waiting requests are not kept.
    files: BTreeMap<FileKey, Locked<T, R>>,
    held_count: usize,
    /// Requests that wait, by order of arrival.
    waiting: BTreeMap<u64, Waiting<T, R>>,
    /// The order of arrival of each waiting request.
    arrivals: BTreeMap<R, u64>,
    next_arrival: u64,
    /// Waiting requests that may be granted now.
    due: BTreeSet<u64>,
    ids: BTreeMap<Owner, OwnerId>,
    owners: BTreeMap<OwnerId, Known>,
    next_owner: OwnerId,
    /// Owners that wait.
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
    /// A range of another owner that is in the way.
    fn in_way(&self, range: &Range, is_exclusive: bool) -> Option<Range> {
        let Range { start, last, owner } = *range;
        let found = self.exclusive.overlapping(start, last, owner);
        let shared = || self.shared.overlapping(start, last, owner).filter(|_| is_exclusive);
        found.or_else(shared).copied()
    }

    /// Shows every range of another owner that is in the way, until `show` has enough; whether it
    /// has seen all.
    fn each_in_way(
        &self,
        range: &Range,
        is_exclusive: bool,
        show: &mut impl FnMut(&Range) -> bool,
    ) -> bool {
        self.exclusive.each_overlapping(range, show)
            && (!is_exclusive || self.shared.each_overlapping(range, show))
    }

    /// Ranges of an owner that overlap these bytes, by first byte.
    fn of(&self, range: Range) -> impl Iterator<Item = (u64, &Held<T>)> {
        let Range { start, last, owner } = range;
        let before = self.held.range((owner, 0)..(owner, start)).next_back();
        let before = before.filter(move |(_, held)| held.last >= start);
        let inside = self.held.range((owner, start)..=(owner, last));
        before.into_iter().chain(inside).map(|((_, start), held)| (*start, held))
    }

    /// The tree of everything that is held in the same way.
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

    /// Removes what an owner holds from this byte on; requests that watched it are due.
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

impl<T: Copy + Ord, R: Copy + Ord> Table<T, R> {
    /// Takes, waits for, or gives up a range.
    ///
    /// # Errors
    /// `WouldDeadlock` if waiting would never end, `NoMemory` past [`RANGES_MAX`],
    /// [`OPEN_RANGES_MAX`] or [`WAITING_MAX`].
    pub fn request(
        &mut self,
        file: FileKey,
        through: T,
        lock: Lock,
        wait: Option<R>,
    ) -> Result<Outcome, Error> {
        let is_exclusive = match lock.kind {
            LockKind::None => return self.unlock(file, &lock),
            LockKind::Shared => false,
            LockKind::Exclusive => true,
        };
        let owner = self.ids.get(&lock.owner).copied().unwrap_or(self.next_owner);
        let range = Range { start: lock.start, last: lock.last, owner };
        let want = Want { range, is_exclusive, through };
        let in_way = self.files.get(&file).and_then(|locked| locked.in_way(&range, is_exclusive));
        let Some(in_way) = in_way else {
            self.expect_room(RANGES_MAX)?;
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
        if self.closes_circle(file, &want) {
            return Err(Error::WouldDeadlock);
        }
        self.know(lock.owner);
        self.wait(request, file, want, in_way);
        Ok(Outcome::Waits)
    }

    /// A lock of somebody else that is in the way of this one.
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

    /// Drops everything that was taken or waited for through an open file; gives the requests
    /// that waited, which will not be granted any more.
    pub fn close(&mut self, file: FileKey, through: T) -> Vec<R> {
        let Some(locked) = self.files.get_mut(&file) else { return Vec::new() };
        let keys = locked.opens.get(&through).cloned().unwrap_or_default();
        for key in &keys {
            locked.remove(*key, &mut self.due);
        }
        let arrivals = locked.waiting.range((through, 0)..=(through, u64::MAX));
        let arrivals: Vec<u64> = arrivals.map(|(_, arrival)| *arrival).collect();
        self.held_count -= keys.len();
        keys.iter().for_each(|(owner, _)| self.forget_use(*owner));
        let dropped = arrivals.iter().map(|arrival| self.strike(*arrival).request).collect();
        self.forget_file(file);
        dropped
    }

    /// Takes a request out of the line; whether it stood there.
    pub fn cancel(&mut self, request: R) -> bool {
        let Some(&arrival) = self.arrivals.get(&request) else { return false };
        let waiting = self.strike(arrival);
        self.forget_file(waiting.file);
        true
    }

    /// Whether [`Table::advance`] has something to do.
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Grants waiting requests that nobody is in the way of any more, in order; looks at no more
    /// than [`ADVANCE_MAX`].
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
                // It was admitted when it came, so it needs no room now.
                self.add_use(want.range.owner);
                self.strike(arrival);
                self.take(file, want);
                self.forget_use(want.range.owner);
                granted.push(request);
            }
        }
        granted
    }

    /// How many ranges are held and how many requests wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.held_count, self.waiting.len())
    }

    /// Asserts what always holds and costs little.
    pub fn check(&self) {
        assert_eq!(self.waiting.len(), self.arrivals.len());
        assert_eq!(self.ids.len(), self.owners.len());
        assert!(self.due.len() <= self.waiting.len() && self.waiters.len() <= self.owners.len());
        assert!(self.files.len() <= self.held_count + self.waiting.len());
        assert!(self.held_count <= 2 * RANGES_MAX + 2 * WAITING_MAX);
        assert!(self.waiting.len() <= WAITING_MAX);
        self.check_files();
        self.check_owners();
    }

    /// Asserts that what is known of files agrees with what is held and who waits.
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
                assert_eq!(watches, Some((*owner, *start)), "who watches a range is known");
            }
            held += locked.held.len();
            waiting += locked.waiting.len();
        }
        assert_eq!(self.held_count, held, "ranges are counted");
        assert_eq!(self.waiting.len(), waiting, "who waits, waits for one file");
    }

    /// Asserts that owners are known for as long as they hold or wait for something.
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
            assert!(watched || self.due.contains(arrival), "who waits is woken some time");
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
        // What was once taken can be given up, also if that leaves two pieces.
        let first = locked.of(range).next();
        if first.is_some_and(|(start, held)| start < range.start && range.last < held.last) {
            self.expect_room(2 * RANGES_MAX)?;
        }
        self.cut(file, range);
        self.forget_file(file);
        Ok(Outcome::Granted)
    }

    fn expect_room(&self, limit: usize) -> Result<(), Error> {
        if self.held_count >= limit { Err(Error::NoMemory) } else { Ok(()) }
    }

    /// Cuts the range out of what its owner holds, then adds it.
    fn take(&mut self, file: FileKey, want: Want<T>) {
        let Want { range, is_exclusive, through } = want;
        self.add_use(range.owner);
        self.cut(file, range);
        let held = Held { last: range.last, is_exclusive, through };
        self.add(file, range, held);
        self.forget_use(range.owner);
    }

    fn add(&mut self, file: FileKey, range: Range, held: Held<T>) {
        self.files.entry(file).or_default().add(range, held);
        self.held_count += 1;
        self.add_use(range.owner);
    }

    /// Takes a range away from its owner; what is left on both sides stays.
    fn cut(&mut self, file: FileKey, cut: Range) {
        let Some(locked) = self.files.get_mut(&file) else { return };
        let starts: Vec<u64> = locked.of(cut).map(|(start, _)| start).collect();
        let owner = cut.owner;
        // It stays known although everything may be gone for a moment.
        self.add_use(owner);
        for start in starts {
            let locked = self.files.get_mut(&file).expect("it has locks");
            let held = locked.remove((owner, start), &mut self.due);
            self.held_count -= 1;
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

    /// Gives an owner the number that was chosen for it, unless it has one.
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

    /// Puts a request in line, behind a range that is in its way.
    fn wait(&mut self, request: R, file: FileKey, want: Want<T>, in_way: Range) {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        let owner = want.range.owner;
        let known = self.owners.get_mut(&owner).expect("a known owner");
        known.uses += 1;
        known.waits.insert(arrival);
        self.waiters.insert(owner);
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

    /// A request waits no more.
    fn strike(&mut self, arrival: u64) -> Waiting<T, R> {
        self.unwatch(arrival);
        self.due.remove(&arrival);
        let waiting = self.waiting.remove(&arrival).expect("it waits");
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

    /// Whether somebody in the way of `want` waits, directly or not, for the owner of `want`. Only
    /// owners that wait can be part of a circle, so only those are followed.
    fn closes_circle(&self, file: FileKey, want: &Want<T>) -> bool {
        let owner = want.range.owner;
        let holds_some = self.owners.get(&owner).is_some_and(|it| it.uses > it.waits.len());
        if !holds_some {
            // There is nothing that anybody could wait for.
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

    /// Owners that wait and are in the way of what another one wants: found among the ranges in the
    /// way or among those that wait, whichever are fewer.
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

    /// Whether an owner holds something that is in the way of what another one wants.
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
