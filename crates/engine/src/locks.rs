//! The lock manager: locks on keys, held by transactions until their end.
//!
//! A lock is on one key or on a range of keys, shared or exclusive. Keys are those of the tree,
//! with the table's number in front, so that a range may be a table, a prefix, or the bytes of a
//! raw object. Locks on keys are numerous, locks on ranges few.
//!
//! A waiting request queues behind all earlier conflicting requests; so a waiting exclusive request
//! is not starved by later shared ones. Two kinds of requests pass the queue: an upgrade by a
//! holder of the key's shared lock, and a request that would otherwise wait for an owner that waits
//! for it. A wait that would close a cycle is refused, so there never is one. Only the start of a
//! wait can close a cycle: a later grant makes others wait for an owner that does not wait.
//!
//! The states of one key, found by running them:
//!
#![doc = include_str!("locks/states.md")]

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;
use std::sync::Arc;
use store::Table;
use store::keys::{after_table, full_key};

#[cfg(test)]
mod tests;

/// Maximum number of locks held.
pub(crate) const LOCKS_MAX: usize = 1 << 20;

/// Maximum number of waiting requests.
pub(crate) const WAITING_MAX: usize = 16_384;

/// Maximum number of owners searched for a cycle; a longer chain counts as one.
const CHAIN_MAX: usize = 4096;

/// Owner of locks and waiting requests: a transaction. Each waits for one lock at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

/// Mode of a lock. The greater one includes the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Any number of owners may hold it.
    Shared,
    /// One owner may hold it.
    Exclusive,
}

/// Extent of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// One key, whether it exists or not.
    Key(Vec<u8>),
    /// The keys from the first on and before the second, including the gaps between them.
    Range(Vec<u8>, Vec<u8>),
}

impl Span {
    /// Returns the span of one key of a table.
    pub(crate) fn key(table: Table, key: &[u8]) -> Span {
        Span::Key(full_key(table, key))
    }

    /// Returns the span of the keys of a table from one on and before another; `None`: to the
    /// table's end.
    pub(crate) fn range(table: Table, from: &[u8], to: Option<&[u8]>) -> Span {
        let end = match to {
            Some(to) => full_key(table, to),
            None => after_table(table),
        };
        Span::Range(full_key(table, from), end)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Span::Range(from, to) if from >= to)
    }

    fn contains(&self, other: &Span) -> bool {
        match (self, other) {
            (Span::Key(own), Span::Key(key)) => own == key,
            (Span::Key(_), Span::Range(..)) => false,
            (Span::Range(from, to), Span::Key(key)) => from <= key && key < to,
            (Span::Range(from, to), Span::Range(start, end)) => from <= start && end <= to,
        }
    }

    fn overlaps(&self, other: &Span) -> bool {
        match (self, other) {
            (Span::Range(from, to), Span::Range(start, end)) => from < end && start < to,
            (Span::Key(_), Span::Range(..)) => other.contains(self),
            (Span::Key(_) | Span::Range(..), Span::Key(_)) => self.contains(other),
        }
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock is held.
    Granted,
    /// Queued; [`Locks::release`] of another owner returns this one when the lock is held.
    Waits,
}

/// Reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The wait would never end.
    WouldDeadlock,
    /// Past [`LOCKS_MAX`] or [`WAITING_MAX`].
    Full,
}

/// State of one key.
#[derive(Debug, Default)]
struct Point {
    holders: Vec<(Owner, Mode)>,
    /// Requests that wait for this very key, in order.
    line: Vec<u64>,
}

/// A range lock.
#[derive(Debug)]
struct Range {
    owner: Owner,
    mode: Mode,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Range {
    fn contains(&self, span: &Span) -> bool {
        match span {
            Span::Key(key) => self.from <= *key && *key < self.to,
            Span::Range(from, to) => self.from <= *from && *to <= self.to,
        }
    }

    fn overlaps(&self, span: &Span) -> bool {
        match span {
            Span::Key(_) => self.contains(span),
            Span::Range(from, to) => self.from < *to && *from < self.to,
        }
    }
}

/// A queued request.
#[derive(Debug)]
struct Waiting {
    owner: Owner,
    span: Span,
    mode: Mode,
    /// Whether it waits for holders only, not for earlier requests.
    passes: bool,
}

/// Locks and the waiting request of one owner.
#[derive(Debug, Default)]
struct OwnerLocks {
    points: Vec<Arc<[u8]>>,
    ranges: usize,
    waits: Option<u64>,
}

/// All locks of a volume.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Keys with holders or waiting requests.
    points: BTreeMap<Arc<[u8]>, Point>,
    ranges: Vec<Range>,
    /// All waiting requests, in the order of arrival.
    line: BTreeMap<u64, Waiting>,
    /// Those that wait for ranges.
    line_ranges: BTreeSet<u64>,
    owners: BTreeMap<Owner, OwnerLocks>,
    next: u64,
    held: usize,
}

impl Locks {
    /// Returns whether there are no locks and no waiting requests.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns the numbers of locks held and of waiting requests.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.held, self.line.len())
    }

    /// Returns whether an owner waits for a lock.
    pub(crate) fn is_waiting(&self, owner: Owner) -> bool {
        self.owners.get(&owner).is_some_and(|owned| owned.waits.is_some())
    }

    /// Iterates over the owners with locks or a waiting request.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.owners.keys().copied()
    }

    /// Returns whether an owner without locks would get this lock at once.
    pub(crate) fn is_free(&self, span: &Span, mode: Mode) -> bool {
        // This number is not used by any transaction.
        self.is_empty() || !self.is_blocked(Owner(u64::MAX), span, mode, self.next)
    }

    /// Takes a lock or waits for it.
    ///
    /// # Errors
    /// `WouldDeadlock` if the wait would never end, `Full` at a limit.
    pub(crate) fn request(
        &mut self,
        owner: Owner,
        span: Span,
        mode: Mode,
    ) -> Result<Outcome, Refused> {
        assert_ne!(owner.0, u64::MAX, "that number stands for nobody");
        if span.is_empty() || self.holds(owner, &span, mode) {
            return Ok(Outcome::Granted);
        }
        if self.held >= LOCKS_MAX {
            return Err(Refused::Full);
        }
        let holders = self.holders_in_way(owner, &span, mode);
        let upgrade = mode == Mode::Exclusive && self.holds(owner, &span, Mode::Shared);
        let before = if upgrade { 0 } else { self.next };
        let line = self.waiters_in_way(owner, &span, mode, before);
        let passes = upgrade || self.closes_circle(owner, &line);
        if holders.is_empty() && (line.is_empty() || passes) {
            self.take(owner, span, mode);
            return Ok(Outcome::Granted);
        }
        if self.closes_circle(owner, &holders) {
            return Err(Refused::WouldDeadlock);
        }
        if self.line.len() >= WAITING_MAX {
            return Err(Refused::Full);
        }
        self.wait(Waiting { owner, span, mode, passes });
        Ok(Outcome::Waits)
    }

    /// Releases all locks and the waiting request of an owner; returns the owners whose requests
    /// are granted by it.
    pub(crate) fn release(&mut self, owner: Owner) -> Vec<Owner> {
        let Some(owned) = self.owners.remove(&owner) else { return Vec::new() };
        let mut candidates = BTreeSet::new();
        let gone = owned.points.len() + owned.ranges;
        assert!(gone <= self.held, "every lock is counted");
        self.held -= owned.points.len() + owned.ranges;
        for key in owned.points {
            let point = self.points.get_mut(&key).expect("its holder says so");
            point.holders.retain(|(holder, _)| *holder != owner);
            candidates.extend(&point.line);
            self.tidy(&key);
        }
        let mut everybody = owned.ranges > 0;
        if everybody {
            self.ranges.retain(|range| range.owner != owner);
        }
        if let Some(place) = owned.waits {
            everybody |= self.give_up(place, &mut candidates);
        }
        if everybody {
            candidates.extend(self.line.keys());
        } else {
            candidates.extend(&self.line_ranges);
        }
        self.grant(candidates)
    }

    /// Removes an owner's waiting request; returns the owners whose requests are granted by it.
    pub(crate) fn withdraw(&mut self, owner: Owner) -> Vec<Owner> {
        let Some(place) = self.owners.get_mut(&owner).and_then(|owned| owned.waits.take()) else {
            return Vec::new();
        };
        let mut candidates = BTreeSet::new();
        if self.give_up(place, &mut candidates) {
            candidates.extend(self.line.keys());
        } else {
            candidates.extend(&self.line_ranges);
        }
        if self.owners[&owner].points.is_empty() && self.owners[&owner].ranges == 0 {
            self.owners.remove(&owner);
        }
        self.grant(candidates)
    }

    /// Removes a request from the queue: collects those behind it, or returns `true` if these may
    /// be any.
    fn give_up(&mut self, place: u64, candidates: &mut BTreeSet<u64>) -> bool {
        match self.leave_line(place).span {
            Span::Key(key) => {
                candidates.extend(self.points.get(&key[..]).iter().flat_map(|point| &point.line));
                false
            }
            Span::Range(..) => true,
        }
    }

    /// Returns whether an owner already holds all of this.
    fn holds(&self, owner: Owner, span: &Span, mode: Mode) -> bool {
        if !self.owners.contains_key(&owner) {
            return false;
        }
        let by_key = match span {
            Span::Key(key) => self.points.get(&key[..]).is_some_and(|point| {
                point.holders.iter().any(|(holder, held)| *holder == owner && *held >= mode)
            }),
            Span::Range(..) => false,
        };
        let covers =
            |range: &Range| range.owner == owner && range.mode >= mode && range.contains(span);
        by_key || self.ranges.iter().any(covers)
    }

    /// Returns whether there is a conflict with a holder, or with an earlier waiting request.
    fn is_blocked(&self, owner: Owner, span: &Span, mode: Mode, before: u64) -> bool {
        let (points, ranges) = self.in_way(owner, span, mode);
        let mut holders = points.chain(ranges);
        holders.next().is_some() || !self.waiters_in_way(owner, span, mode, before).is_empty()
    }

    fn holders_in_way(&self, owner: Owner, span: &Span, mode: Mode) -> Vec<Owner> {
        let (points, ranges) = self.in_way(owner, span, mode);
        points.chain(ranges).collect()
    }

    /// Returns the other owners with conflicting locks: on keys, and on ranges.
    fn in_way(
        &self,
        owner: Owner,
        span: &Span,
        mode: Mode,
    ) -> (impl Iterator<Item = Owner>, impl Iterator<Item = Owner>) {
        let conflict = move |other: Owner, held: Mode| other != owner && conflicts(held, mode);
        let points = self.points.range::<[u8], _>(bounds(span));
        let points = points.flat_map(|(_, point)| &point.holders);
        let points = points.filter(move |(other, held)| conflict(*other, *held));
        let ranges = self.ranges.iter();
        let ranges = ranges.filter(move |range| conflict(range.owner, range.mode));
        let ranges = ranges.filter(|range| range.overlaps(span)).map(|range| range.owner);
        (points.map(|(other, _)| *other), ranges)
    }

    /// Returns the other owners with conflicting waiting requests before a position in the queue.
    fn waiters_in_way(&self, owner: Owner, span: &Span, mode: Mode, before: u64) -> Vec<Owner> {
        if self.line.is_empty() || before == 0 {
            return Vec::new();
        }
        let points = self.points.range::<[u8], _>(bounds(span));
        let for_keys = points.flat_map(|(_, point)| point.line.iter().copied());
        let for_ranges = self.line_ranges.iter().copied();
        let places = for_keys.chain(for_ranges).filter(|place| *place < before);
        let waiting = places.map(|place| &self.line[&place]);
        let waiting = waiting.filter(|other| {
            other.owner != owner && conflicts(other.mode, mode) && other.span.overlaps(span)
        });
        waiting.map(|other| other.owner).collect()
    }

    /// Returns whether one of these waits, directly or not, for an owner.
    fn closes_circle(&self, owner: Owner, first: &[Owner]) -> bool {
        // Nobody waits for an owner without locks and requests.
        if first.is_empty() || !self.owners.contains_key(&owner) {
            return false;
        }
        let mut seen: BTreeSet<Owner> = first.iter().copied().collect();
        let mut frontier: Vec<Owner> = seen.iter().copied().collect();
        while let Some(other) = frontier.pop() {
            if other == owner || seen.len() > CHAIN_MAX {
                return true;
            }
            let Some(place) = self.owners.get(&other).and_then(|owned| owned.waits) else {
                continue;
            };
            let Waiting { owner, span, mode, passes } = &self.line[&place];
            let before = if *passes { 0 } else { place };
            let mut next = self.holders_in_way(*owner, span, *mode);
            next.extend(self.waiters_in_way(*owner, span, *mode, before));
            frontier.extend(next.into_iter().filter(|owner| seen.insert(*owner)));
        }
        false
    }

    fn wait(&mut self, waiting: Waiting) {
        let place = self.next;
        assert!(!waiting.span.is_empty(), "nobody waits for nothing");
        self.next += 1;
        match &waiting.span {
            Span::Key(key) => self.point(key).1.line.push(place),
            Span::Range(..) => drop(self.line_ranges.insert(place)),
        }
        let owned = self.owners.entry(waiting.owner).or_default();
        assert!(owned.waits.is_none(), "an owner waits for one lock at a time");
        owned.waits = Some(place);
        self.line.insert(place, waiting);
    }

    fn leave_line(&mut self, place: u64) -> Waiting {
        let waiting = self.line.remove(&place).expect("it stood in line");
        match &waiting.span {
            Span::Key(key) => {
                let point = self.points.get_mut(&key[..]).expect("somebody waits for it");
                point.line.retain(|other| *other != place);
                self.tidy(key);
            }
            Span::Range(..) => drop(self.line_ranges.remove(&place)),
        }
        waiting
    }

    /// Grants requests without a remaining conflict, in order.
    fn grant(&mut self, candidates: BTreeSet<u64>) -> Vec<Owner> {
        let mut granted = Vec::new();
        for place in candidates {
            let Some(waiting) = self.line.get(&place) else { continue };
            let before = if waiting.passes { 0 } else { place };
            if self.is_blocked(waiting.owner, &waiting.span, waiting.mode, before) {
                continue;
            }
            let Waiting { owner, span, mode, .. } = self.leave_line(place);
            self.owners.get_mut(&owner).expect("it waited").waits = None;
            self.take(owner, span, mode);
            granted.push(owner);
        }
        granted
    }

    fn take(&mut self, owner: Owner, span: Span, mode: Mode) {
        match span {
            Span::Key(key) => {
                let (key, point) = self.point(&key);
                if let Some(held) = point.holders.iter_mut().find(|held| held.0 == owner) {
                    held.1 = mode;
                    return;
                }
                point.holders.push((owner, mode));
                self.owners.entry(owner).or_default().points.push(key);
                self.held += 1;
            }
            Span::Range(from, to) => self.take_range(Range { owner, mode, from, to }),
        }
    }

    /// Adds a range lock; merges it with adjacent ones of its owner, such as those of a scan in
    /// steps.
    fn take_range(&mut self, mut new: Range) {
        let mut joined = 0;
        self.ranges.retain(|old| {
            let same = old.owner == new.owner && old.mode == new.mode;
            if !same || old.to < new.from || new.to < old.from {
                return true;
            }
            new.from = mem::take(&mut new.from).min(old.from.clone());
            new.to = mem::take(&mut new.to).max(old.to.clone());
            joined += 1;
            false
        });
        assert!(new.from < new.to, "an empty range locks nothing");
        let owned = self.owners.entry(new.owner).or_default();
        assert!(joined <= owned.ranges, "an owner knows its ranges");
        owned.ranges = owned.ranges + 1 - joined;
        self.held = self.held + 1 - joined;
        self.ranges.push(new);
    }

    fn point(&mut self, key: &[u8]) -> (Arc<[u8]>, &mut Point) {
        let shared = match self.points.get_key_value(key) {
            Some((shared, _)) => shared.clone(),
            None => Arc::from(key),
        };
        let point = self.points.entry(shared.clone()).or_default();
        (shared, point)
    }

    fn tidy(&mut self, key: &[u8]) {
        let point = &self.points[key];
        if point.holders.is_empty() && point.line.is_empty() {
            self.points.remove(key);
        }
    }

    /// Asserts all invariants.
    pub(crate) fn check(&self) {
        let on_keys: usize = self.points.values().map(|point| point.holders.len()).sum();
        assert_eq!(self.held, on_keys + self.ranges.len());
        let waiting = self.owners.values().filter_map(|owned| owned.waits);
        let waiting: BTreeSet<u64> = waiting.collect();
        assert!(self.line.keys().eq(&waiting));
        for (place, Waiting { owner, span, mode, passes }) in &self.line {
            let before = if *passes { 0 } else { *place };
            assert!(self.is_blocked(*owner, span, *mode, before), "a grantable request is granted");
        }
        for point in self.points.values() {
            let exclusive = point.holders.iter().any(|held| held.1 == Mode::Exclusive);
            assert!(!exclusive || point.holders.len() == 1);
        }
        for (index, range) in self.ranges.iter().enumerate() {
            let span = Span::Range(range.from.clone(), range.to.clone());
            let mut others = self.ranges[..index].iter().filter(|other| other.overlaps(&span));
            let in_way =
                |other: &Range| other.owner != range.owner && conflicts(other.mode, range.mode);
            assert!(!others.any(in_way));
        }
        self.check_owners();
        self.check_line();
    }

    /// Asserts that the records of owners agree with the locks.
    fn check_owners(&self) {
        for (owner, OwnerLocks { points, ranges, waits }) in &self.owners {
            let has = !points.is_empty() || *ranges > 0 || waits.is_some();
            assert!(has, "an owner without locks is forgotten");
            let own = self.ranges.iter().filter(|range| range.owner == *owner).count();
            assert_eq!(*ranges, own, "an owner's ranges are counted");
            for key in points {
                let held = |point: &Point| point.holders.iter().any(|(holder, _)| holder == owner);
                assert!(self.points.get(key).is_some_and(held), "an owner holds what it has");
            }
            let waiting = waits.map(|place| self.line[&place].owner);
            assert!(waiting.is_none_or(|waiting| waiting == *owner), "each waits for itself");
        }
        let listed: usize = self.owners.values().map(|owned| owned.points.len()).sum();
        assert_eq!(self.held, listed + self.ranges.len(), "every lock is on its owner's list");
        assert!(self.ranges.iter().all(|range| range.from < range.to), "no range is empty");
    }

    /// Asserts that the indices of the queue agree with it.
    fn check_line(&self) {
        assert!(self.line.len() <= WAITING_MAX, "{} requests wait", self.line.len());
        assert!(self.line.keys().all(|place| *place < self.next), "places are given in order");
        for (place, waiting) in &self.line {
            let listed = match &waiting.span {
                Span::Key(key) => self.points[&key[..]].line.contains(place),
                Span::Range(..) => self.line_ranges.contains(place),
            };
            assert!(listed, "a waiting request is listed at its lock");
        }
        let by_key: usize = self.points.values().map(|point| point.line.len()).sum();
        assert_eq!(by_key + self.line_ranges.len(), self.line.len(), "nobody is listed twice");
        for point in self.points.values() {
            assert!(point.line.is_sorted(), "the queue is in the order of arrival");
            assert!(!point.holders.is_empty() || !point.line.is_empty(), "a key has a use");
        }
    }
}

fn conflicts(one: Mode, other: Mode) -> bool {
    one == Mode::Exclusive || other == Mode::Exclusive
}

/// Returns the keys of a span as bounds of a search. An empty range has none.
fn bounds(span: &Span) -> (Bound<&[u8]>, Bound<&[u8]>) {
    match span {
        Span::Key(key) => (Bound::Included(key), Bound::Included(key)),
        Span::Range(from, to) if from < to => (Bound::Included(from), Bound::Excluded(to)),
        // A search panics if its end is before its beginning.
        Span::Range(from, _) => (Bound::Included(from), Bound::Excluded(from)),
    }
}
