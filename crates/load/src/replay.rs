//! Replay: a trace's I/Os, at the times that it says, or in the order that it says.
//!
//! | way | when an I/O is issued |
//! |---|---|
//! | [`timed`] | at its time in the trace |
//! | [`fast`] | as soon as one of so many places is free |
//! | [`loaded`] | as soon as no more I/Os are under way than were in the trace when it was issued |
//! | [`dependent`] | so long after what it waited for as in the trace; the others at their time |
//!
//! A trace is read by a thread of its own, ahead of time, and in pieces: it may be larger than
//! memory. What is wrong in the middle of it ends the replay there, and [`Feed::trouble`] says so.

mod feed;

use crate::trace::{Depended, Error, Traced};
use crate::{Event, Filament, Request};
use base::{Automaton, Instant};
use feed::Supply;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

pub use feed::Feed;

/// How far ahead of their time I/Os are said, and how often, ns.
const AHEAD_NS: u64 = 50_000_000;
const EVERY: Duration = Duration::from_millis(10);

/// How soon it is looked again whether the trace has been read further.
const AGAIN: Duration = Duration::from_micros(200);

/// Most I/Os that are said at once.
const ONCE_MAX: usize = 4096;

/// At the times of the trace.
pub fn timed<I>(records: I) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Traced, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    (Box::new(Timed { supply, next: None }), feed)
}

/// As fast as possible, with so many under way.
pub fn fast<I>(records: I, depth: u32) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Traced, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    let flood =
        Flood { supply, next: None, under_way: 0, limit: Limit::Depth(depth.max(1)), waits: false };
    (Box::new(flood), feed)
}

/// With as many under way as there were in the trace.
pub fn loaded<I>(records: I) -> (Box<dyn Filament>, Feed)
where
    I: Iterator<Item = Result<Traced, Error>> + Send + 'static,
{
    let (supply, feed) = feed::start(records);
    let limit = Limit::Traced(BinaryHeap::new());
    (Box::new(Flood { supply, next: None, under_way: 0, limit, waits: false }), feed)
}

/// Each I/O after those that it waited for.
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

/// At the times of the trace.
struct Timed {
    supply: Supply<Traced>,
    /// Read, and not said yet.
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

/// How many may be under way.
enum Limit {
    /// So many.
    Depth(u32),
    /// As many as in the trace: when those end that were under way in it, ns, the first on top.
    Traced(BinaryHeap<Reverse<u64>>),
}

impl Limit {
    /// How many may be under way when this one is issued, itself not counted.
    fn of(&mut self, record: &Traced) -> u32 {
        match self {
            Limit::Depth(depth) => *depth - 1,
            Limit::Traced(ends) => {
                // Records come in the order of their times, so what has ended stays so.
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

/// In the order of the trace, as soon as there is room.
struct Flood {
    supply: Supply<Traced>,
    /// Read, and how many may be under way when it is issued.
    next: Option<(Traced, u32)>,
    under_way: u32,
    limit: Limit,
    /// A timer is under way, because the trace was not read far enough.
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
            out.push(Request::asked(now, record.io, 0));
        }
    }
}

/// An I/O that waits for others.
struct Waits {
    record: Traced,
    think_ns: u64,
    left: usize,
    /// When the last of those that have ended did, ns.
    last_ns: u64,
}

/// After what was waited for in the trace.
struct Dependent {
    supply: Supply<Depended>,
    next: Option<Depended>,
    /// The number of the next one in the trace.
    number: u64,
    /// When those have ended that somebody may still wait for, ns; `None`: not yet.
    ended: BTreeMap<u64, Option<u64>>,
    /// By number: what waits.
    waits: BTreeMap<u64, Waits>,
    /// By number: who waits for it.
    waiting: BTreeMap<u64, Vec<u64>>,
}

/// So many I/Os that have ended are remembered, for those that may wait for them.
const REMEMBERED: u64 = 100_000;

/// So many wait for others at most; then the trace is not read further.
const WAITS_MAX: usize = 10_000;

impl Dependent {
    /// Takes an I/O: it is said, or waits.
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
                // So long ago that it is forgotten.
                None => {}
            }
        }
        if parents.is_empty() {
            out.push(Request::asked(Instant(traced.at_ns), traced.io, number));
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

    /// An I/O has ended: those go on that waited for it alone.
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

    /// Whether the trace is to be read further.
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
    out.push(Request::asked(at, waits.record.io, number));
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
        // One timer is always under way, so that what comes is read on.
        if called && (self.next.is_some() || !self.supply.is_over()) {
            let wait = if self.next.is_some() { Duration::from_millis(1) } else { AGAIN };
            out.push(Request::Timer { at: now + wait, tag: 0 });
        }
    }
}

#[cfg(test)]
mod tests;
