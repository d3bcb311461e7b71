//! Places for new connections: if all are taken, some of the idle ones end.
//!
//! A hand goes round the connections, some at each turn, as far as it takes to find a few that may
//! end: looking through all of them would take milliseconds in which nobody is served. In a round
//! that finds none of those that lose nothing, the next one takes others.

use crate::Node;
use crate::admission::IDLE_TIME;
use crate::connection::{Connection, Origin};
use base::Instant;
use base::op::Op;
use std::collections::BTreeMap;

/// Most connections that are looked at, and that end, in one turn.
const LOOKED_AT_MAX: usize = 256;
const ENDED_MAX: usize = 16;

/// Which connections may end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    /// Idle ones that have begun nothing.
    #[default]
    Idle,
    /// Of the client that has many of the places: those without open files.
    Resting,
    /// Of the same client: all that nothing came on for a while.
    Quiet,
}

/// How far the hand is.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The connection at which it goes on.
    hand: usize,
    class: Class,
    /// Connections left in this round, and whether it has found none so far.
    left: usize,
    is_barren: bool,
    /// Time of the next look.
    at: Instant,
    /// Connections of each client.
    held: BTreeMap<Origin, usize>,
}

impl Places {
    /// A connection of this client has come.
    pub(crate) fn come(&mut self, origin: &Origin) {
        *self.held.entry(*origin).or_default() += 1;
    }

    /// One has gone.
    pub(crate) fn gone(&mut self, origin: &Origin) {
        let held = self.held.get_mut(origin).expect("it came");
        *held -= 1;
        if *held == 0 {
            self.held.remove(origin);
        }
    }

    /// When to look, if there is no place left.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Connections that are counted.
    pub(crate) fn count(&self) -> usize {
        self.held.values().sum()
    }

    /// The client that has most connections, if those are at least a 16th of `all` places.
    fn crowd(&self, all: usize) -> Option<Origin> {
        let most = self.held.iter().max_by_key(|(_, held)| **held);
        most.filter(|(_, held)| **held >= all.div_ceil(16)).map(|(origin, _)| *origin)
    }

    /// The round is over; the next one begins, later if nothing may end.
    fn end_round(&mut self, now: Instant, slots: usize) {
        self.class = match self.class {
            _any if !self.is_barren => Class::Idle,
            Class::Idle => Class::Resting,
            Class::Resting => Class::Quiet,
            Class::Quiet => {
                self.at = now + IDLE_TIME;
                Class::Idle
            }
        };
        (self.left, self.is_barren) = (slots, true);
    }
}

impl Node {
    /// Ends connections for newcomers, if there are no more places.
    pub(crate) fn make_places(&mut self, now: Instant, ops: &mut Vec<Op>) {
        let all = self.config.connections_max;
        let full = self.connections.len() >= all;
        if !full || !self.is_running() || self.places.at > now {
            return;
        }
        let slots = self.connections.capacity();
        if self.places.left == 0 {
            self.places.end_round(now, slots);
        }
        let crowd = self.places.crowd(all);
        let class = self.places.class;
        let may_end = |it: &Connection| {
            let is_of_crowd = Some(it.origin()) == crowd.as_ref();
            let since = match class {
                Class::Idle => it.idle_since(),
                Class::Resting => it.resting_since().filter(|_| is_of_crowd),
                Class::Quiet => it.quiet_since().filter(|_| is_of_crowd),
            };
            since.is_some_and(|since| since + IDLE_TIME <= now)
        };
        let mut chosen = Vec::new();
        for _ in 0..self.places.left.min(LOOKED_AT_MAX) {
            self.places.left -= 1;
            self.places.hand = (self.places.hand + 1) % slots;
            if self.connections.get(self.places.hand).is_some_and(may_end) {
                chosen.push(self.places.hand);
                if chosen.len() == ENDED_MAX {
                    break;
                }
            }
        }
        self.places.is_barren &= chosen.is_empty();
        self.give_way(now, chosen, ops);
    }
}
