//! Who may begin: memory, places and what is certain of the processor and of file requests are
//! given to users by turns, not to whoever asks most.
//!
//! A storelet keeps what it was given until it ends, so what is free is all that can be shared.
//! Of the users who wait the one who holds the least memory is next, with the storelet that he
//! asked for first, and of several of them the one who asked first. If there is no room for that,
//! others may pass, but not for ever: what is large begins at last. One user alone gets no more
//! than three quarters of anything but places: who comes later finds some.

use crate::crossing::DomainId;
use base::Caller;
use std::collections::{BTreeMap, VecDeque};

/// How many pass one for which there is no room.
const PASSED_MAX: u32 = 100;

/// What a storelet, or a chain of them, needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Memory, bytes.
    pub(crate) memory: u64,
    /// Guests.
    pub(crate) places: usize,
    /// What is certain of each second: processor time, ns, and file requests.
    pub(crate) processor: u64,
    pub(crate) requests: u64,
}

impl Need {
    /// Both together.
    fn plus(self, other: Need) -> Need {
        Need {
            memory: self.memory.saturating_add(other.memory),
            places: self.places + other.places,
            processor: self.processor.saturating_add(other.processor),
            requests: self.requests.saturating_add(other.requests),
        }
    }

    /// What is left without the other, which is a part of it.
    fn without(self, part: Need) -> Need {
        Need {
            memory: self.memory - part.memory,
            places: self.places - part.places,
            processor: self.processor - part.processor,
            requests: self.requests - part.requests,
        }
    }

    fn is_certain(self) -> bool {
        self.processor > 0 || self.requests > 0
    }

    fn fits(self, room: Need) -> bool {
        self.memory <= room.memory
            && self.places <= room.places
            && self.processor <= room.processor
            && self.requests <= room.requests
    }

    /// Whether one user may have this who has that: three quarters of anything, or more if it is
    /// all he has of it.
    fn is_share(self, given: Need, all: Need) -> bool {
        let may = |given: u64, more: u64, all: u64| {
            given == 0 || more == 0 || given.saturating_add(more) <= all / 4 * 3
        };
        may(given.memory, self.memory, all.memory)
            && may(given.processor, self.processor, all.processor)
            && may(given.requests, self.requests, all.requests)
    }
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
    given: Need,
    /// How many were admitted that came after the first in the queue, for which there was no room.
    passed: u32,
}

/// What of a user's queue could begin, and what those before it lack.
#[derive(Debug, Default)]
struct Outlook {
    place: Option<usize>,
    /// There is no room for the next.
    lacks_room: bool,
    /// There is room, but not so much can be certain: who wants nothing certain may pass.
    lacks_certain: bool,
}

impl User {
    fn outlook(&self, free: Need, all: Need) -> Outlook {
        let mut outlook = Outlook::default();
        for (place, (_, need)) in self.queue.iter().enumerate() {
            let room = Need { processor: 0, requests: 0, ..*need };
            if !room.is_share(self.given, all) {
                break;
            }
            if !room.fits(free) {
                outlook.lacks_room = true;
                break;
            }
            let fits = need.fits(free) && need.is_share(self.given, all);
            if !need.is_certain() || (fits && !outlook.lacks_certain) {
                outlook.place = Some(place);
                break;
            }
            outlook.lacks_certain = true;
        }
        outlook
    }
}

/// Memory and places, and who waits for them.
#[derive(Debug)]
pub(crate) struct Admission {
    /// All that there is.
    limit: Need,
    users: BTreeMap<u32, User>,
    held: BTreeMap<DomainId, (u32, Need)>,
    given: Need,
}

impl Admission {
    /// Room for this.
    pub(crate) fn new(limit: Need) -> Admission {
        let (users, held) = (BTreeMap::new(), BTreeMap::new());
        Admission { limit, users, held, given: Need::default() }
    }

    /// Memory that was given, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.given.memory
    }

    /// Whether nobody was given anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether somebody could be given this at all.
    pub(crate) fn could_fit(&self, need: Need) -> bool {
        need.fits(self.limit)
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
        let (free, all) = (self.limit.without(self.given), self.limit);
        let look = |(number, user): (&u32, &User)| {
            let first = user.queue.front()?.0;
            Some((user.given.memory, first, *number, user.outlook(free, all)))
        };
        let mut waiting: Vec<_> = self.users.iter().filter_map(look).collect();
        waiting.sort_by_key(|(memory, first, ..)| (*memory, *first));
        for (at, (_, _, number, outlook)) in waiting.iter().enumerate() {
            let Some(place) = outlook.place else { continue };
            let need = self.users[number].queue[place].1;
            let passes = |(_, _, _, before): &&(u64, DomainId, u32, Outlook)| {
                before.lacks_room || (before.lacks_certain && need.is_certain())
            };
            let passed: Vec<u32> = waiting[..at].iter().filter(passes).map(|it| it.2).collect();
            if passed.iter().any(|number| self.users[number].passed >= PASSED_MAX) {
                continue;
            }
            for number in passed {
                self.users.get_mut(&number).expect("he waits").passed += 1;
            }
            return Some(self.admit(*number, place));
        }
        None
    }

    fn admit(&mut self, number: u32, place: usize) -> DomainId {
        let user = self.users.get_mut(&number).expect("he waits");
        let (id, need) = user.queue.remove(place).expect("it waits");
        if place == 0 {
            user.passed = 0;
        }
        user.given = user.given.plus(need);
        self.held.insert(id, (number, need));
        self.given = self.given.plus(need);
        id
    }

    /// It has ended, if it had begun.
    pub(crate) fn release(&mut self, id: DomainId) {
        let Some((user, need)) = self.held.remove(&id) else { return };
        let user = self.users.get_mut(&user).expect("he holds it");
        user.given = user.given.without(need);
        self.given = self.given.without(need);
        self.tidy();
    }

    fn tidy(&mut self) {
        self.users.retain(|_, user| user.given.places > 0 || !user.queue.is_empty());
    }

    /// Checks that sums are right.
    pub(crate) fn check(&self) {
        let all = |needs: &mut dyn Iterator<Item = Need>| needs.fold(Need::default(), Need::plus);
        assert_eq!(all(&mut self.held.values().map(|(_, need)| *need)), self.given);
        assert_eq!(all(&mut self.users.values().map(|user| user.given)), self.given);
        assert!(self.given.fits(self.limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(memory: u64) -> Admission {
        Admission::new(Need { memory, places: 100, ..Need::default() })
    }

    fn ask(admission: &mut Admission, id: u64, user: u32, memory: u64) {
        admission.enqueue(DomainId(id), user, Need { memory, places: 1, ..Need::default() });
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
        let mut room = Admission::new(Need { memory: 100, places: 10_000, ..Need::default() });
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
        assert!(room.could_fit(Need { memory: 100, places: 1, ..Need::default() }));
        assert!(!room.could_fit(Need { memory: 101, places: 1, ..Need::default() }));
        assert_eq!(admitted(&mut room), [1]);
        room.release(DomainId(1));
        assert_eq!(admitted(&mut room), [2]);
    }

    #[test]
    fn places_are_given_like_memory_and_who_leaves_the_queue_is_not_admitted() {
        let mut room = Admission::new(Need { memory: 100, places: 3, ..Need::default() });
        room.enqueue(DomainId(1), 7, Need { memory: 1, places: 2, ..Need::default() });
        room.enqueue(DomainId(2), 7, Need { memory: 1, places: 2, ..Need::default() });
        room.enqueue(DomainId(3), 7, Need { memory: 1, places: 1, ..Need::default() });
        assert_eq!(admitted(&mut room), [1]);
        room.dequeue(DomainId(2));
        assert_eq!(admitted(&mut room), [3]);
        [1, 2, 3].into_iter().for_each(|id| room.release(DomainId(id)));
        assert!(room.users.is_empty() && room.memory() == 0);
    }

    #[test]
    fn what_is_certain_to_all_together_is_bounded_and_shared() {
        let limit = Need { memory: 100, places: 1000, processor: 500, requests: 2000 };
        let mut room = Admission::new(limit);
        let certain = Need { memory: 1, places: 1, processor: 100, requests: 0 };
        (1..=5).for_each(|id| room.enqueue(DomainId(id), 7, certain));
        assert_eq!(admitted(&mut room), [1, 2, 3], "three quarters for one user");
        let many = Need { memory: 1, places: 1, processor: 0, requests: 1000 };
        (11..=13).for_each(|id| room.enqueue(DomainId(id), 8, many));
        assert_eq!(admitted(&mut room), [11]);
        ask(&mut room, 20, 9, 1);
        room.enqueue(DomainId(21), 9, certain);
        assert_eq!(admitted(&mut room), [20, 21]);
        room.release(DomainId(1));
        assert_eq!(admitted(&mut room), [4]);
        assert!(!room.could_fit(Need { processor: 501, ..certain }));
        // Who waits for that stops nobody who does not want it, neither of his own nor others.
        room.enqueue(DomainId(30), 10, Need { requests: 1500, ..many });
        assert_eq!(admitted(&mut room), [0; 0], "a thousand are left");
        (1000..1900).for_each(|id| ask(&mut room, id, 10 + id as u32 % 3, 0));
        assert_eq!(admitted(&mut room).len(), 900);
        [12, 13].into_iter().for_each(|id| room.dequeue(DomainId(id)));
        room.release(DomainId(11));
        assert_eq!(admitted(&mut room), [30]);
    }
}
