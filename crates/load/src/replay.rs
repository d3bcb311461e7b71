//! Replay of a trace's I/Os, by its times or in its order.
//!
//! | mode | issue time of an I/O |
//! |---|---|
//! | [`timed`] | its time in the trace |
//! | [`fast`] | as soon as a slot of the given depth is free |
//! | [`loaded`] | as soon as no more I/Os are in flight than in the trace at its issue |
//! | [`dependent`] | after its predecessors and think time; without any, its time in the trace |
//!
//! A separate thread reads the trace ahead, in pieces: it may be larger than memory. An error in
//! the middle ends the replay there, and is returned by [`Feed::trouble`].

mod feed;

use crate::trace::{Depended, Error, Traced};
use crate::{Event, Filament, Request};
use base::{Automaton, Instant};
use feed::Supply;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

pub use feed::Feed;

/// Lead time of requests, and the interval between batches, in ns.
const AHEAD_NS: u64 = 50_000_000;
const EVERY: Duration = Duration::from_millis(10);

/// Delay before another check of the reader's progress.
const AGAIN: Duration = Duration::from_micros(200);

/// Maximum I/Os requested at a time.
const ONCE_MAX: usize = 4096;

/// Replays at the times of the trace.
pub fn timed<I>(records: I) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Traced, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    (Box::new(Timed { supply, next: None }), feed)
}

/// Replays as fast as possible at this queue depth.
pub fn fast<I>(records: I, depth: u32) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Traced, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    let flood =
        Flood { supply, next: None, under_way: 0, limit: Limit::Depth(depth.max(1)), waits: false };
    (Box::new(flood), feed)
}

/// Replays with the queue depth of the trace.
pub fn loaded<I>(records: I) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Traced, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    let limit = Limit::Traced(BinaryHeap::new());
    (Box::new(Flood { supply, next: None, under_way: 0, limit, waits: false }), feed)
}

/// Replays each I/O after its predecessors.
pub fn dependent<I>(records: I) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Depended, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    (
        Box::new(Dependent {
            supply,
            next: None,
            number: 0,
            ended: BTreeMap::new(),
            waits: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }),
        feed,
    )
}

/// Replays at the times of the trace.
struct Timed {
    supply: Supply<Traced>,
    /// Record read but not yet requested.
    next: Option<Traced>,
}

impl Automaton for Timed {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, _: Event, out: &mut Vec<Request>) {
        for _ in 0..ONCE_MAX {
            let Some(record) = self.next.take().or_else(|| self.supply.take()) else {
                if !self.supply.is_over() {
                    out.push(Request::Timer { at: now + AGAIN, tag: 0 });
                }
                return;
            };
            if record.at_ns > now.0 + AHEAD_NS {
                self.next = Some(record);
                let wake = Instant(record.at_ns - AHEAD_NS).max(now + EVERY);
                return out.push(Request::Timer { at: wake, tag: 0 });
            }
            out.push(Request::io(Instant(record.at_ns), record.io));
        }
        let last = out.last().map_or(now, Request::at);
        let at = Instant(now.0 + last.0.saturating_sub(now.0) / 2);
        out.push(Request::Timer { at, tag: 0 });
    }
}

/// Limit of I/Os in flight.
enum Limit {
    /// Fixed depth.
    Depth(u32),
    /// Depth of the trace: completion times of the I/Os in flight there in ns, the earliest on top.
    Traced(BinaryHeap<Reverse<u64>>),
}

impl Limit {
    /// Returns the permitted number of other I/Os in flight when this one is issued.
    fn of(&mut self, record: &Traced) -> u32 {
        match self {
            Limit::Depth(depth) => *depth - 1,
            Limit::Traced(ends) => {
                // Records are ordered by time, so completed ones stay completed.
                while ends.peek().is_some_and(|Reverse(end)| *end <= record.at_ns) {
                    ends.pop();
                }
                let count = u32::try_from(ends.len()).unwrap_or(u32::MAX);
                ends.extend(record.completed_ns().map(Reverse));
                count
            }
        }
    }
}

/// Replays in the order of the trace, as soon as there is room.
struct Flood {
    supply: Supply<Traced>,
    /// Record read, and the permitted number of I/Os in flight at its issue.
    next: Option<(Traced, u32)>,
    under_way: u32,
    limit: Limit,
    /// Whether a timer for further records is running.
    waits: bool,
}

impl Automaton for Flood {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        match event {
            Event::Ended(_) => self.under_way -= 1,
            Event::Timer(_) => self.waits = false,
            Event::Started | Event::Message { .. } => {}
        }
        loop {
            if self.next.is_none() {
                let record = self.supply.take();
                self.next = record.map(|record| (record, self.limit.of(&record)));
            }
            let Some((record, room)) = self.next else {
                if !self.waits && !self.supply.is_over() {
                    self.waits = true;
                    out.push(Request::Timer { at: now + AGAIN, tag: 0 });
                }
                return;
            };
            if self.under_way > room {
                return;
            }
            self.next = None;
            self.under_way += 1;
            out.push(Request::with_completion(now, record.io, 0));
        }
    }
}

/// I/O waiting for predecessors.
struct Waits {
    record: Traced,
    think_ns: u64,
    left: usize,
    /// Latest completion time of its predecessors, in ns.
    last_ns: u64,
}

/// Replays I/Os after their predecessors in the trace.
struct Dependent {
    supply: Supply<Depended>,
    next: Option<Depended>,
    /// Number of the next I/O in the trace.
    number: u64,
    /// Completion times in ns of possible predecessors; `None` while outstanding.
    ended: BTreeMap<u64, Option<u64>>,
    /// Waiting I/Os, by number.
    waits: BTreeMap<u64, Waits>,
    /// Successors, by number of the predecessor.
    waiting: BTreeMap<u64, Vec<u64>>,
}

/// Number of completed I/Os remembered as possible predecessors.
const REMEMBERED: u64 = 100_000;

/// Maximum waiting I/Os; beyond it, the trace is not read further.
const WAITS_MAX: usize = 10_000;

impl Dependent {
    /// Requests an I/O, or lets it wait.
    fn take(&mut self, now: Instant, depended: Depended, out: &mut Vec<Request>) {
        let number = self.number;
        self.number += 1;
        self.ended.insert(number, None);
        let Depended { traced, parents, think_ns } = depended;
        let mut waits = Waits { record: traced, think_ns, left: 0, last_ns: 0 };
        for parent in &parents {
            match self.ended.get(parent) {
                Some(None) => {
                    waits.left += 1;
                    self.waiting.entry(*parent).or_default().push(number);
                }
                Some(Some(ended)) => waits.last_ns = waits.last_ns.max(*ended),
                // Completed so long ago that it is forgotten.
                None => {}
            }
        }
        if parents.is_empty() {
            out.push(Request::with_completion(Instant(traced.at_ns), traced.io, number));
        } else if waits.left == 0 {
            issue(now, &waits, number, out);
        } else {
            self.waits.insert(number, waits);
        }
        let old = number.checked_sub(REMEMBERED);
        if let Some(old) = old.filter(|old| self.ended.get(old).is_some_and(Option::is_some)) {
            self.ended.remove(&old);
        }
    }

    /// Completes an I/O, and releases successors without other predecessors.
    fn end(&mut self, now: Instant, parent: u64, out: &mut Vec<Request>) {
        self.ended.insert(parent, Some(now.0));
        for number in self.waiting.remove(&parent).unwrap_or_default() {
            let waits = self.waits.get_mut(&number).expect("it waits");
            waits.left -= 1;
            waits.last_ns = waits.last_ns.max(now.0);
            if waits.left == 0 {
                issue(now, waits, number, out);
                self.waits.remove(&number);
            }
        }
    }

    /// Reports whether more of the trace should be read.
    fn wants(&self, now: Instant) -> bool {
        let far = self
            .next
            .as_ref()
            .is_some_and(|next| next.parents.is_empty() && next.traced.at_ns > now.0 + AHEAD_NS);
        !far && self.waits.len() < WAITS_MAX
    }
}

fn issue(now: Instant, waits: &Waits, number: u64, out: &mut Vec<Request>) {
    let at = Instant(waits.last_ns.saturating_add(waits.think_ns)).max(now);
    out.push(Request::with_completion(at, waits.record.io, number));
}

impl Automaton for Dependent {
    type Input = Event;
    type Output = Request;

    fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Request>) {
        if let Event::Ended(ended) = &event {
            self.end(now, ended.tag, out);
        }
        let called = !matches!(event, Event::Ended(_));
        for _ in 0..ONCE_MAX {
            if self.next.is_none() {
                self.next = self.supply.take();
            }
            if self.next.is_none() || !self.wants(now) {
                break;
            }
            let next = self.next.take().expect("there is one");
            self.take(now, next, out);
        }
        // One timer is always running, so that reading continues.
        if called && (self.next.is_some() || !self.supply.is_over()) {
            let wait = if self.next.is_some() { Duration::from_millis(1) } else { AGAIN };
            out.push(Request::Timer { at: now + wait, tag: 0 });
        }
    }
}

#[cfg(test)]
mod tests;
