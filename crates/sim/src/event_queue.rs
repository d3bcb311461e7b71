//! The event queue of a simulated world: events by time, those of one time in the order of their
//! scheduling, so that a seed has one order.

use base::Instant;
use std::collections::BTreeMap;

/// Identity of a scheduled event: its time, and its number in the queue.
pub(crate) type Key = (Instant, u64);

/// Scheduled events.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    events: BTreeMap<Key, E>,
    /// Number of events scheduled so far.
    count: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { events: BTreeMap::new(), count: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Schedules an event.
    pub(crate) fn schedule(&mut self, at: Instant, event: E) -> Key {
        self.count += 1;
        let key = (at, self.count);
        self.events.insert(key, event);
        key
    }

    /// Removes an event, if it has not happened.
    pub(crate) fn remove(&mut self, key: Key) -> Option<E> {
        self.events.remove(&key)
    }

    /// Returns the time of the next event.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(Instant, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }

    /// Takes the next event if it is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<E> {
        self.next_time().filter(|at| *at <= now)?;
        self.pop().map(|(_, event)| event)
    }

    /// Takes the events for which this returns true, in order.
    pub(crate) fn take_all(&mut self, is_wanted: impl Fn(&E) -> bool) -> Vec<E> {
        let wanted = self.events.iter().filter(|(_, event)| is_wanted(event));
        let keys: Vec<Key> = wanted.map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_happen_in_the_order_of_their_scheduling() {
        let mut queue = EventQueue::default();
        for (at, event) in [(2, 'c'), (1, 'a'), (1, 'b'), (3, 'x')] {
            queue.schedule(Instant(at), event);
        }
        let removed = queue.schedule(Instant(0), 'r');
        assert_eq!((queue.next_time(), queue.remove(removed)), (Some(Instant(0)), Some('r')));
        assert_eq!(queue.remove(removed), None);
        assert_eq!(queue.take_all(|event| *event == 'x'), ['x']);
        assert_eq!(queue.pop_due(Instant(0)), None);
        assert_eq!(queue.pop_due(Instant(1)), Some('a'));
        assert_eq!(queue.pop(), Some((Instant(1), 'b')));
        assert_eq!(queue.pop(), Some((Instant(2), 'c')));
        assert_eq!((queue.pop(), queue.next_time()), (None, None));
    }
}
