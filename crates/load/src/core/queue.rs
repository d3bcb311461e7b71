//! What is to happen, by its time, shared by all workers (paper, §5.1).
//!
//! - *Partitioned*: there are several parts, each with a lock. Who adds tries each part and takes
//!   the first that nobody has; who takes passes by those that somebody has (bypass locking). Each
//!   worker has its own order, so that two that meet at one part part at the next.
//! - *A heap paired with a deque*: whoever takes what is due moves all that is due into the deque
//!   while the heap is in the cache anyway; the next one finds it at its head.
//! - *Hints*: when a part is due stands beside its lock, so that a look costs no lock.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Nothing is to happen.
pub(super) const NEVER: u64 = u64::MAX;

/// Several queues that are as good as one.
#[derive(Debug)]
pub(super) struct Queue<T> {
    parts: Box<[Part<T>]>,
}

/// A part; alone on its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Part<T> {
    /// When the earliest is due: exact when nobody has the lock.
    due: AtomicU64,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    heap: BinaryHeap<Entry<T>>,
    /// What was due when somebody looked, in order; all earlier than what is in the heap was then.
    ready: VecDeque<Entry<T>>,
    sequence: u64,
}

/// Something, and when.
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
    /// The earliest is the greatest, as the heap wants it.
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

    /// Takes up to `max` that are due before `until`; the rest of them goes to the deque.
    fn take(&mut self, until: u64, max: usize, into: &mut Vec<(u64, T)>) {
        while self.heap.peek().is_some_and(|entry| entry.at < until) {
            self.ready.extend(self.heap.pop());
        }
        let count = self.ready.len().min(max);
        into.extend(self.ready.drain(..count).map(|entry| (entry.at, entry.what)));
    }
}

impl<T> Queue<T> {
    /// An empty one with so many parts.
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

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Adds all of these to one part: the first that is free, in this order of looking.
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

    /// Takes up to `max` that are due before `until`. What somebody else has locked is passed by.
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

    /// Drops what is due after `end`; how much that was.
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

    /// When the earliest is due; [`NEVER`] if there is none.
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
    fn what_is_due_comes_in_order_and_the_rest_stays() {
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
    fn what_somebody_has_locked_is_passed_by() {
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
