//! Who may begin: memory and places are given to users by turns, not to whoever asks most.
//!
//! A storelet keeps what it was given until it ends, so what is free is all that can be shared.
//! Of the users who wait the one who holds the least memory is next, with the storelet that he
//! asked for first, and of several of them the one who asked first. If there is no room for that,
//! others may pass, but not for ever: what is large begins at last. One user alone gets no more
//! than three quarters of the memory: who comes later finds some.

use crate::crossing::DomainId;
use base::Caller;
use std::collections::{BTreeMap, VecDeque};

/// How many pass one for which there is no room.
const PASSED_MAX: u32 = 100;

/// What a storelet, or a chain of them, needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Memory, bytes.
    pub(crate) memory: u64,
    /// Guests.
    pub(crate) places: usize,
}

/// The number of a user whose storelets share; the server's own are one of them.
pub(crate) fn user_of(caller: &Caller) -> u32 {
    match caller {
        Caller::Server => u32::MAX,
        Caller::User(user) => user.uid,
    }
}

/// What a user has and wants.
#[derive(Debug, Default)]
struct User {
    queue: VecDeque<(DomainId, Need)>,
    memory: u64,
    /// How many were admitted that came after the first in the queue, for which there was no room.
    passed: u32,
}

/// Memory and places, and who waits for them.
#[derive(Debug)]
pub(crate) struct Admission {
    /// All that there is.
    limit: Need,
    users: BTreeMap<u32, User>,
    held: BTreeMap<DomainId, (u32, Need)>,
    memory: u64,
    places: usize,
}

impl Admission {
    /// Room for this.
    pub(crate) fn new(limit: Need) -> Admission {
        Admission { limit, users: BTreeMap::new(), held: BTreeMap::new(), memory: 0, places: 0 }
    }

    /// Memory that was given, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether nobody was given anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether somebody could be given this at all.
    pub(crate) fn could_fit(&self, need: Need) -> bool {
        need.memory <= self.limit.memory && need.places <= self.limit.places
    }

    /// A user's storelet waits.
    pub(crate) fn enqueue(&mut self, id: DomainId, user: u32, need: Need) {
        self.users.entry(user).or_default().queue.push_back((id, need));
    }

    /// It does not wait any more.
    pub(crate) fn dequeue(&mut self, id: DomainId) {
        self.users.values_mut().for_each(|user| user.queue.retain(|(other, _)| *other != id));
        self.tidy();
    }

    /// The next that may begin: it has what it needs until it is released.
    pub(crate) fn next(&mut self) -> Option<DomainId> {
        let least =
            |(_, user): &(&u32, &mut User)| (user.memory, user.queue.front().map(|(id, _)| *id));
        let most = self.limit.memory / 4 * 3;
        let waits = |(_, user): &(&u32, &mut User)| {
            let (_, need) = user.queue.front()?;
            // Who wants more than that at once may have it, if it is all he has.
            (user.memory == 0 || user.memory.saturating_add(need.memory) <= most).then_some(())
        };
        let mut waiting: Vec<(&u32, &mut User)> =
            self.users.iter_mut().filter(|it| waits(it).is_some()).collect();
        waiting.sort_by_key(least);
        let (free_memory, free_places) =
            (self.limit.memory - self.memory, self.limit.places - self.places);
        let fits =
            |(_, need): &(DomainId, Need)| need.memory <= free_memory && need.places <= free_places;
        let place = waiting.iter().position(|(_, user)| user.queue.front().is_some_and(fits))?;
        let (before, from) = waiting.split_at_mut(place);
        if before.iter().any(|(_, user)| user.passed >= PASSED_MAX) {
            return None;
        }
        before.iter_mut().for_each(|(_, user)| user.passed += 1);
        let (number, user) = &mut from[0];
        let (id, need) = user.queue.pop_front().expect("it waits");
        (user.memory, user.passed) = (user.memory + need.memory, 0);
        self.held.insert(id, (**number, need));
        (self.memory, self.places) = (self.memory + need.memory, self.places + need.places);
        Some(id)
    }

    /// It has ended, if it had begun.
    pub(crate) fn release(&mut self, id: DomainId) {
        let Some((user, need)) = self.held.remove(&id) else { return };
        self.users.get_mut(&user).expect("he holds it").memory -= need.memory;
        self.memory -= need.memory;
        self.places -= need.places;
        self.tidy();
    }

    fn tidy(&mut self) {
        self.users.retain(|_, user| user.memory > 0 || !user.queue.is_empty());
    }

    /// Checks that sums are right.
    pub(crate) fn check(&self) {
        assert_eq!(self.held.values().map(|(_, need)| need.memory).sum::<u64>(), self.memory);
        assert_eq!(self.held.values().map(|(_, need)| need.places).sum::<usize>(), self.places);
        assert_eq!(self.users.values().map(|user| user.memory).sum::<u64>(), self.memory);
        assert!(self.memory <= self.limit.memory && self.places <= self.limit.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(memory: u64) -> Admission {
        Admission::new(Need { memory, places: 100 })
    }

    fn ask(admission: &mut Admission, id: u64, user: u32, memory: u64) {
        admission.enqueue(DomainId(id), user, Need { memory, places: 1 });
    }

    fn admitted(admission: &mut Admission) -> Vec<u64> {
        let admitted = std::iter::from_fn(|| admission.next().map(|id| id.0)).collect();
        admission.check();
        admitted
    }

    #[test]
    fn who_holds_the_least_is_next_and_nobody_overtakes_him() {
        let mut room = room(100);
        (1..=10).for_each(|id| ask(&mut room, id, 7, 25));
        assert_eq!(admitted(&mut room), [1, 2, 3], "three quarters for one user");
        ask(&mut room, 11, 8, 20);
        ask(&mut room, 12, 8, 20);
        assert_eq!(admitted(&mut room), [11]);
        room.release(DomainId(1));
        assert_eq!(admitted(&mut room), [12], "not the next of who holds more");
        room.release(DomainId(2));
        ask(&mut room, 13, 9, 60);
        assert_eq!(admitted(&mut room), [4], "there is no room for him, and for others there is");
        (5..=10).for_each(|id| room.dequeue(DomainId(id)));
        [3, 4, 11, 12].into_iter().for_each(|id| room.release(DomainId(id)));
        ask(&mut room, 14, 7, 1);
        assert_eq!(admitted(&mut room), [13, 14], "of those who hold nothing the first to ask");
    }

    #[test]
    fn what_is_large_is_passed_but_not_for_ever() {
        let mut room = Admission::new(Need { memory: 100, places: 10_000 });
        ask(&mut room, 1, 7, 50);
        assert_eq!(admitted(&mut room), [1]);
        ask(&mut room, 2, 9, 90);
        (1000..2000).for_each(|id| ask(&mut room, id, 8, 0));
        assert_eq!(admitted(&mut room).len(), PASSED_MAX as usize);
        room.release(DomainId(1));
        let rest = admitted(&mut room);
        assert_eq!((rest[0], rest.len()), (2, 901));
    }

    #[test]
    fn one_that_is_larger_than_a_users_part_runs_alone_of_his() {
        let mut room = room(100);
        ask(&mut room, 1, 7, 100);
        ask(&mut room, 2, 7, 1);
        assert!(room.could_fit(Need { memory: 100, places: 1 }));
        assert!(!room.could_fit(Need { memory: 101, places: 1 }));
        assert_eq!(admitted(&mut room), [1]);
        room.release(DomainId(1));
        assert_eq!(admitted(&mut room), [2]);
    }

    #[test]
    fn places_are_given_like_memory_and_who_leaves_the_queue_is_not_admitted() {
        let mut room = Admission::new(Need { memory: 100, places: 3 });
        room.enqueue(DomainId(1), 7, Need { memory: 1, places: 2 });
        room.enqueue(DomainId(2), 7, Need { memory: 1, places: 2 });
        room.enqueue(DomainId(3), 7, Need { memory: 1, places: 1 });
        assert_eq!(admitted(&mut room), [1]);
        room.dequeue(DomainId(2));
        assert_eq!(admitted(&mut room), [3]);
        [1, 2, 3].into_iter().for_each(|id| room.release(DomainId(id)));
        assert!(room.users.is_empty() && room.memory() == 0);
    }
}
