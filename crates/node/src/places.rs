//! Places for new connections: at the maximum, idle connections are closed.
//!
//! A clock hand advances over the connections, some at each turn, until it has found a few to
//! close: examining all of them would take milliseconds in which nothing is served. After a round
//! without connections that lose nothing by closing, and a second in which newcomers may become
//! idle, the next round takes others.

use crate::Node;
use crate::admission::{HANDLES_FEW, IDLE_TIME};
use crate::connection::{Connection, Origin};
use crate::role::Client;
use base::Instant;
use base::op::Op;
use front::HANDLES_MIN;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of connections examined and closed in one turn.
const LOOKED_AT_MAX: usize = 256;
const ENDED_MAX: usize = 16;

/// Pause after connections were closed: they end when their outstanding operations have completed.
const ENDED_PAUSE: Duration = Duration::from_millis(1);

/// Classes of connections, in the order in which they are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    /// Idle ones with nothing in progress.
    #[default]
    Idle,
    /// Of the client with many connections: those that owe the rest of a request.
    Owing,
    /// Of the same client: those without open files.
    Resting,
    /// Of the same client: all that have received nothing for a while.
    Quiet,
    /// Of the same client: those that transfer a request or response too slowly, such as a byte now
    /// and then.
    Slow,
}

/// Search for connections to close.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Slot examined last.
    hand: usize,
    class: Class,
    /// Slots left in this round, and whether the round has found no connection to close.
    left: usize,
    found_none: bool,
    /// Last activity of the connection that becomes idle first, and whether the search has already
    /// waited for one.
    young: Option<Instant>,
    has_waited: bool,
    /// Start of the last round of [`Class::Idle`].
    begun: Instant,
    /// Client whose connections are closed in this round, unless all are eligible.
    crowd: Option<Origin>,
    /// Time of the next search.
    at: Instant,
    /// Number of connections of each client.
    held: BTreeMap<Origin, usize>,
}

impl Places {
    /// Counts a connection.
    pub(crate) fn add(&mut self, origin: &Origin) {
        *self.held.entry(*origin).or_default() += 1;
    }

    /// Uncounts a connection.
    pub(crate) fn remove(&mut self, origin: &Origin) {
        let held = self.held.get_mut(origin).expect("it was added");
        *held -= 1;
        if *held == 0 {
            self.held.remove(origin);
        }
    }

    /// Returns the number of connections.
    pub(crate) fn count(&self) -> usize {
        self.held.values().sum()
    }

    /// Begins a round through `slots` if the last one is complete. After a second, during which
    /// other connections may have become idle, starts again with [`Class::Idle`].
    fn begin_round(&mut self, now: Instant, slots: usize, all: usize) {
        let is_old = self.begun + IDLE_TIME <= now;
        if self.left > 0 && !is_old {
            return;
        }
        self.has_waited &= self.found_none;
        self.class = match self.class {
            _any if is_old || !self.found_none => Class::Idle,
            Class::Idle if self.young.is_some() && !self.has_waited => {
                let since = self.young.take().expect("there is one");
                (self.at, self.has_waited) = (since + IDLE_TIME, true);
                self.begun = self.begun.min(since);
                return;
            }
            Class::Idle => Class::Owing,
            Class::Owing => Class::Resting,
            Class::Resting => Class::Quiet,
            Class::Quiet => Class::Slow,
            Class::Slow => {
                self.at = self.begun + IDLE_TIME;
                return;
            }
        };
        match self.class {
            Class::Idle => self.begun = now,
            Class::Owing | Class::Resting | Class::Quiet | Class::Slow => {
                self.crowd = crowd(&self.held, all);
            }
        }
        (self.left, self.found_none, self.young) = (slots, true, None);
    }

    /// Returns whether a connection may be closed in this round; records the one that is eligible
    /// first otherwise.
    fn may_end(&mut self, now: Instant, connection: &Connection) -> bool {
        let of_crowd = || self.crowd.as_ref() == Some(connection.origin());
        let since = match self.class {
            Class::Idle => connection.idle_since(),
            Class::Owing => connection.owing_since().filter(|_| of_crowd()),
            Class::Resting => connection.resting_since().filter(|_| of_crowd()),
            Class::Quiet => connection.quiet_since().filter(|_| of_crowd()),
            Class::Slow => connection.is_overdue(now).then_some(Instant(0)).filter(|_| of_crowd()),
        };
        let may_end = since.is_some_and(|since| since + IDLE_TIME <= now);
        if self.class == Class::Idle && !may_end {
            self.young = self.young.into_iter().chain(since).min();
        }
        may_end
    }
}

/// Returns the client that holds most, if that is at least a 16th of `all`.
pub(crate) fn crowd(held: &BTreeMap<Origin, usize>, all: usize) -> Option<Origin> {
    let most = held.iter().max_by_key(|(_, held)| **held);
    most.filter(|(_, held)| **held >= all.div_ceil(16)).map(|(origin, _)| *origin)
}

/// A connection of the client with most nodes and open files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) slot: usize,
    /// Number of its nodes and open files.
    pub(crate) held: usize,
    /// Whether it was active within the last second.
    pub(crate) is_busy: bool,
    /// Whether it transfers a request or response too slowly.
    pub(crate) is_slow: bool,
}

/// Returns the slots of the connections to end for this number of missing nodes and open files:
/// first those with many. Then those that are idle, or send a byte now and then: many of them with
/// few keep others out as well.
pub(crate) fn choose(
    candidates: impl Iterator<Item = Candidate>,
    mut missing: usize,
) -> Vec<usize> {
    let ranked = candidates.filter_map(|Candidate { slot, held, is_busy, is_slow }| {
        let few = if is_busy { HANDLES_MIN } else { HANDLES_FEW };
        let is_idle = held > 0 && (!is_busy || is_slow);
        (held > few || is_idle).then_some((held <= few, is_busy, Reverse(held), slot))
    });
    let mut chosen: Vec<(bool, bool, Reverse<usize>, usize)> = ranked.collect();
    chosen.sort_unstable();
    let needed = chosen.into_iter().take_while(|(_, _, held, _)| {
        let is_needed = missing > 0;
        missing = missing.saturating_sub(held.0);
        is_needed
    });
    needed.map(|(.., slot)| slot).collect()
}

impl Node {
    /// Returns the time of the next search, if there are no more places.
    pub(crate) fn places_at(&self) -> Option<Instant> {
        let full = self.connections.len() >= self.config.connections_max;
        (full && self.is_running()).then_some(self.places.at)
    }

    /// Closes connections for newcomers, if there are no more places.
    pub(crate) fn make_places(&mut self, now: Instant, ops: &mut Vec<Op>) {
        if self.places_at().is_none_or(|at| at > now) {
            return;
        }
        let slots = self.connections.capacity();
        self.places.begin_round(now, slots, self.config.connections_max);
        let mut chosen = Vec::new();
        for _ in 0..self.places.left.min(LOOKED_AT_MAX) {
            self.places.left -= 1;
            self.places.hand = (self.places.hand + 1) % slots;
            let connection = self.connections.get(self.places.hand);
            let has_input = self.queue.has_input(Client::of_slot(self.places.hand));
            if connection.is_some_and(|it| !has_input && self.places.may_end(now, it)) {
                chosen.push(self.places.hand);
                if chosen.len() == ENDED_MAX {
                    break;
                }
            }
        }
        if !chosen.is_empty() {
            self.places.found_none = false;
            self.places.at = now + ENDED_PAUSE;
        }
        self.give_way(now, chosen, ops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn class(places: &mut Places, ms: u64) -> Class {
        places.begin_round(at(ms), 10, 100);
        places.class
    }

    #[test]
    fn connections_that_lose_something_end_only_after_a_round_that_found_none() {
        let mut places = Places::default();
        let origin = Origin::User(1);
        (0..7).for_each(|_| places.add(&origin));
        assert_eq!(class(&mut places, 2000), Class::Idle);
        places.left = 0;
        assert_eq!(class(&mut places, 2001), Class::Owing);
        places.left = 0;
        assert_eq!(class(&mut places, 2001), Class::Resting);
        assert_eq!(places.crowd, Some(origin), "7 of 100 are a 16th");
        places.left = 0;
        places.remove(&origin);
        assert_eq!(class(&mut places, 2002), Class::Quiet);
        assert_eq!(places.crowd, None, "6 are not");
        places.left = 0;
        assert_eq!(class(&mut places, 2002), Class::Slow);
        places.left = 0;
        assert_eq!(class(&mut places, 2003), Class::Slow);
        assert_eq!((places.left, places.at), (0, at(3000)), "nothing may end: later");
        assert_eq!(class(&mut places, 3000), Class::Idle);
    }

    #[test]
    fn connections_with_few_files_end_after_those_with_many() {
        let candidate = |slot, held, is_busy, is_slow| Candidate { slot, held, is_busy, is_slow };
        let candidates = [
            candidate(0, HANDLES_MIN, true, false),
            candidate(1, 2, true, true),
            candidate(2, HANDLES_MIN + 1, true, false),
            candidate(3, HANDLES_FEW, false, false),
            candidate(4, HANDLES_FEW + 1, false, false),
            candidate(5, 0, false, true),
        ];
        assert_eq!(choose(candidates.into_iter(), usize::MAX), [4, 2, 3, 1], "active ones stay");
        assert_eq!(choose(candidates.into_iter(), HANDLES_FEW + 2), [4, 2]);
        assert_eq!(choose(candidates.into_iter(), 0), Vec::<usize>::new());
    }

    #[test]
    fn a_round_is_not_continued_when_others_may_have_become_idle() {
        let mut places = Places::default();
        assert_eq!(class(&mut places, 2000), Class::Idle);
        places.left = 3;
        assert_eq!(class(&mut places, 9000), Class::Idle);
        assert_eq!(places.left, 10, "from the beginning");
        places.left = 0;
        assert_eq!(class(&mut places, 9001), Class::Owing);
        places.found_none = false;
        assert_eq!(class(&mut places, 9900), Class::Owing, "until it is over");
        assert_eq!(class(&mut places, 10_000), Class::Idle, "or a second has passed");
    }

    #[test]
    fn connections_that_may_soon_end_are_waited_for_once() {
        let mut places = Places::default();
        assert_eq!(class(&mut places, 2000), Class::Idle);
        (places.left, places.young) = (0, Some(at(1700)));
        assert_eq!(class(&mut places, 2001), Class::Idle);
        assert_eq!((places.left, places.at), (0, at(2700)));
        assert_eq!(class(&mut places, 2700), Class::Idle, "they may end now");
        (places.left, places.young) = (0, Some(at(2699)));
        assert_eq!(class(&mut places, 2701), Class::Owing, "they did not: others came");
        (places.left, places.found_none) = (0, false);
        assert_eq!(class(&mut places, 2702), Class::Idle);
        (places.left, places.young) = (0, Some(at(2701)));
        assert_eq!(class(&mut places, 2703), Class::Idle);
        assert_eq!(places.at, at(3701), "after one ended");
    }
}
