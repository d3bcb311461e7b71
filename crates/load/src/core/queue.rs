//! Time-ordered queue shared by all workers (paper, §5.1).
//!
//! - *Partitioned*: there are several partitions, each with a lock. An insertion uses the first
//!   partition with a free lock; a removal skips locked ones (bypass locking). Each worker has its
//!   own order of partitions, so that two workers that collide separate at the next.
//! - *A heap paired with a deque*: a removal moves all due entries to the deque while the heap is
//!   in the cache; the next one finds them there.
//! - *Hints*: the earliest due time is stored beside each lock, so that checking it needs no lock.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Due time of an empty queue.
pub(super) const NEVER: u64 = u64::MAX;

/// Partitioned queue.
#[derive(Debug)]
pub(super) struct Queue<T> {
    parts: Box<[Part<T>]>,
}

/// Partition on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Part<T> {
    /// Earliest due time, exact while the lock is free.
    due: AtomicU64,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    heap: BinaryHeap<Entry<T>>,
    /// Entries that were due at the last removal, in order; all earlier than those of the heap
    /// then.
    ready: VecDeque<Entry<T>>,
    sequence: u64,
}

/// Entry with its due time.
#[derive(Debug)]
struct Entry<T> {
    at: u64,
    sequence: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed, so that the heap has the earliest at its top.
    fn cmp(&self, other: &Entry<T>) -> std::cmp::Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<T> Inner<T> {
    fn add(&mut self, at: u64, what: T) {
        self.sequence += 1;
        self.heap.push(Entry { at, sequence: self.sequence, what });
    }

    fn earliest(&self) -> u64 {
        let ready = self.ready.front().map_or(NEVER, |entry| entry.at);
        ready.min(self.heap.peek().map_or(NEVER, |entry| entry.at))
    }

    /// Removes up to `max` entries due before `until`; other due ones are moved to the deque.
    fn take(&mut self, until: u64, max: usize, into: &mut Vec<(u64, T)>) {
        while self.heap.peek().is_some_and(|entry| entry.at < until) {
            self.ready.extend(self.heap.pop());
        }
        let count = self.ready.len().min(max);
        into.extend(self.ready.drain(..count).map(|entry| (entry.at, entry.what)));
    }
}

impl<T> Queue<T> {
    /// Creates an empty queue with this many partitions.
    pub(super) fn new(parts: usize) -> Queue<T> {
        let part = |_| Part {
            due: AtomicU64::new(NEVER),
            inner: Mutex::new(Inner {
                heap: BinaryHeap::new(),
                ready: VecDeque::new(),
                sequence: 0,
            }),
        };
        Queue { parts: (0..parts.max(1)).map(part).collect() }
    }

    /// Returns the number of partitions.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Adds all entries to one partition: the first in `order` with a free lock.
    pub(super) fn add(&self, order: &[usize], entries: &mut Vec<(u64, T)>) {
        if entries.is_empty() {
            return;
        }
        let free = order.iter().find_map(|place| try_lock(&self.parts[*place], *place));
        let (place, mut inner) = free.unwrap_or_else(|| {
            let lock = self.parts[order[0]].inner.lock();
            (order[0], lock.unwrap_or_else(PoisonError::into_inner))
        });
        entries.drain(..).for_each(|(at, what)| inner.add(at, what));
        self.parts[place].due.store(inner.earliest(), Ordering::Release);
    }

    /// Removes up to `max` entries due before `until`. Locked partitions are skipped.
    pub(super) fn take(&self, order: &[usize], until: u64, max: usize, into: &mut Vec<(u64, T)>) {
        for place in order {
            let part = &self.parts[*place];
            if part.due.load(Ordering::Acquire) >= until || into.len() >= max {
                continue;
            }
            let Some((_, mut inner)) = try_lock(part, *place) else {
                continue;
            };
            inner.take(until, max - into.len(), into);
            part.due.store(inner.earliest(), Ordering::Release);
        }
    }

    /// Drops entries due after `end`. Returns their number.
    pub(super) fn cut(&self, end: u64) -> u64 {
        let mut count = 0;
        for part in &self.parts {
            let mut inner = part.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let before = inner.heap.len() + inner.ready.len();
            inner.heap.retain(|entry| entry.at <= end);
            inner.ready.retain(|entry| entry.at <= end);
            count += before - inner.heap.len() - inner.ready.len();
            part.due.store(inner.earliest(), Ordering::Release);
        }
        count as u64
    }

    /// Returns the earliest due time, or [`NEVER`].
    pub(super) fn due(&self) -> u64 {
        let due = self.parts.iter().map(|part| part.due.load(Ordering::Acquire));
        due.min().unwrap_or(NEVER)
    }
}

fn try_lock<T>(part: &Part<T>, place: usize) -> Option<(usize, MutexGuard<'_, Inner<T>>)> {
    match part.inner.try_lock() {
        Ok(guard) => Some((place, guard)),
        Err(TryLockError::Poisoned(poisoned)) => Some((place, poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_entries_are_popped_in_order() {
        let queue = Queue::new(1);
        queue.add(&[0], &mut vec![(30, 'c'), (10, 'a'), (20, 'b'), (40, 'd')]);
        let mut taken = Vec::new();
        queue.take(&[0], 31, 2, &mut taken);
        assert_eq!((taken.as_slice(), queue.due()), (&[(10, 'a'), (20, 'b')][..], 30));
        queue.add(&[0], &mut vec![(5, 'e')]);
        taken.clear();
        queue.take(&[0], 31, 9, &mut taken);
        assert_eq!((taken.as_slice(), queue.due()), (&[(30, 'c'), (5, 'e')][..], 40));
        taken.clear();
        queue.take(&[0], NEVER, 9, &mut taken);
        assert_eq!((taken.len(), queue.due()), (1, NEVER));
    }

    #[test]
    fn equal_times_keep_their_order() {
        let queue = Queue::new(1);
        queue.add(&[0], &mut (0..100).map(|i| (7, i)).collect());
        let mut taken = Vec::new();
        queue.take(&[0], 8, 100, &mut taken);
        assert!(taken.iter().map(|(_, i)| *i).eq(0..100));
    }

    #[test]
    fn locked_parts_are_skipped() {
        let queue = Queue::new(2);
        queue.add(&[0, 1], &mut vec![(1, 'a')]);
        let held = queue.parts[0].inner.lock().expect("nobody has panicked");
        queue.add(&[0, 1], &mut vec![(2, 'b')]);
        let mut taken = Vec::new();
        queue.take(&[0, 1], 9, 9, &mut taken);
        assert_eq!(taken, [(2, 'b')]);
        drop(held);
        queue.take(&[1, 0], 9, 9, &mut taken);
        assert_eq!((taken.len(), queue.due()), (2, NEVER));
    }

    #[test]
    fn many_threads_lose_nothing() {
        let queue = Queue::new(3);
        let sums: Vec<u64> = std::thread::scope(|scope| {
            let work = |me: usize| {
                let (order, queue) = ([me % 3, (me + 1) % 3, (me + 2) % 3], &queue);
                move || {
                    let (mut sum, mut taken) = (0, Vec::new());
                    for i in 0..5000 {
                        queue.add(&order, &mut vec![(i, 1_u64)]);
                        queue.take(&order, i, 3, &mut taken);
                        sum += taken.drain(..).map(|(_, one)| one).sum::<u64>();
                    }
                    sum
                }
            };
            let threads: Vec<_> = (0..4).map(|me| scope.spawn(work(me))).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        let mut rest = Vec::new();
        queue.take(&[0, 1, 2], NEVER, usize::MAX, &mut rest);
        assert_eq!(sums.iter().sum::<u64>() + rest.len() as u64, 20_000);
    }
}
