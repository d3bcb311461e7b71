//! Pairing of issues of a block device with their completions.
//!
//! A completion covers a range of sectors of one device and kind. It completes the outstanding
//! issues there, oldest first: several if they were merged, or a part of one if it was split (which
//! completes with its last part). Records are returned in issue order: the oldest waits for its
//! completion until [`Options::pending`] others wait after it.

use super::parse::{Issue, Known, Options, Parse};
use super::{Error, Traced};
use crate::{Io, Kind};
use std::collections::{BTreeMap, VecDeque};

/// Events examined for a `Q`.
const AHEAD: usize = 4096;

/// Action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Queued,
    Driver,
    Completed,
}

/// Event of a block device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) at_ns: u64,
    pub(super) action: Action,
    pub(super) device: (u32, u32),
    pub(super) kind: Kind,
    /// Offset, in bytes.
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) process: u32,
}

/// Source of events. Events other than I/Os are counted in `skipped`.
pub(super) trait Events: Send {
    fn next(&mut self, skipped: &mut u64) -> Result<Option<Event>, Error>;
}

/// Sort key of an outstanding issue: position, then age.
type SortKey = ((u32, u32), Kind, u64, u64);

struct Waiting {
    record: Traced,
    place: SortKey,
    left: u32,
    done: bool,
}

/// Records paired from events.
pub(super) struct Paired<E> {
    events: E,
    ahead: VecDeque<Event>,
    skipped: u64,
    issue: Action,
    pending: usize,
    /// Number of the oldest outstanding issue.
    oldest: u64,
    waiting: VecDeque<Waiting>,
    places: BTreeMap<SortKey, u64>,
    ended: bool,
    /// Error to return after the preceding records.
    failed: Option<Error>,
}

impl<E: Events> Paired<E> {
    pub(super) fn new(mut events: E, options: Options) -> Paired<E> {
        let mut ahead = VecDeque::new();
        let mut skipped = 0;
        let mut failed = None;
        while options.issue == Issue::Any && ahead.len() < AHEAD && failed.is_none() {
            match events.next(&mut skipped) {
                Ok(Some(event)) => ahead.push_back(event),
                Ok(None) => break,
                Err(error) => failed = Some(error),
            }
        }
        let seen = |action| ahead.iter().any(|event| event.action == action);
        let issue = match options.issue {
            Issue::Driver => Action::Driver,
            Issue::Any if !seen(Action::Queued) && seen(Action::Driver) => Action::Driver,
            Issue::Any | Issue::Queued => Action::Queued,
        };
        Paired {
            events,
            ahead,
            skipped,
            issue,
            pending: options.pending,
            oldest: 0,
            waiting: VecDeque::new(),
            places: BTreeMap::new(),
            ended: false,
            failed,
        }
    }

    /// Returns the next event; `None` after an error.
    fn event(&mut self) -> Option<Event> {
        if let Some(event) = self.ahead.pop_front() {
            return Some(event);
        }
        if self.failed.is_some() {
            return None;
        }
        let next = self.events.next(&mut self.skipped);
        next.unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        })
    }

    fn issued(&mut self, event: Event, known: &mut Known) {
        let (major, minor) = event.device;
        let id = u64::from(major) << 32 | u64::from(minor);
        let Some(file) = known.names.numbered(id, || format!("{major},{minor}")) else {
            known.notes.skipped += 1;
            return;
        };
        let io = Io { kind: event.kind, file, offset: event.offset, len: event.len };
        let record = Traced { at_ns: event.at_ns, took_ns: None, io, stream: event.process };
        let number = self.oldest + self.waiting.len() as u64;
        let place = (event.device, event.kind, sorted_offset(&event), number);
        self.places.insert(place, number);
        self.waiting.push_back(Waiting { record, place, left: event.len, done: false });
    }

    fn completed(&mut self, event: Event, known: &mut Known) {
        let mut budget = event.len;
        let mut matched = false;
        while budget > 0 || !matched {
            let Some((place, number)) = self.overlapping(&event) else { break };
            let index = usize::try_from(number - self.oldest).expect("it still waits");
            let waiting = &mut self.waiting[index];
            let took = event.at_ns.saturating_sub(waiting.record.at_ns);
            waiting.record.took_ns = Some(took);
            waiting.done = waiting.left <= budget;
            let part = waiting.left.min(budget);
            (waiting.left, budget) = (waiting.left - part, budget - part);
            if waiting.done {
                self.places.remove(&place);
            }
            matched = true;
        }
        known.notes.unmatched += u64::from(!matched);
    }

    /// Returns the first outstanding issue that overlaps a completion.
    fn overlapping(&self, event: &Event) -> Option<(SortKey, u64)> {
        let start = sorted_offset(event);
        let at = |offset, number| (event.device, event.kind, offset, number);
        let end = start.saturating_add(u64::from(event.len.max(1)));
        let mut behind = self.places.range(at(start, 0)..at(end, 0));
        if let Some((place, number)) = behind.next() {
            return Some((*place, *number));
        }
        let (place, number) = self.places.range(at(0, 0)..at(start, 0)).next_back()?;
        let index = usize::try_from(number - self.oldest).expect("it still waits");
        let io = self.waiting[index].record.io;
        (io.offset.saturating_add(u64::from(io.len)) > start).then_some((*place, *number))
    }

    fn release(&mut self) -> Option<Traced> {
        let first = self.waiting.front()?;
        if !first.done && !self.ended && self.waiting.len() <= self.pending {
            return None;
        }
        let mut first = self.waiting.pop_front()?;
        self.places.remove(&first.place);
        self.oldest += 1;
        if !first.done {
            first.record.took_ns = None;
        }
        Some(first.record)
    }
}

impl<E: Events> Parse for Paired<E> {
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error> {
        loop {
            if let Some(record) = self.release() {
                return Ok(Some(record));
            }
            if self.ended {
                return self.failed.take().map_or(Ok(None), Err);
            }
            match self.event() {
                Some(event) if event.action == self.issue => self.issued(event, known),
                Some(event) if event.action == Action::Completed => self.completed(event, known),
                Some(_) => {}
                None => self.ended = true,
            }
            known.notes.skipped += std::mem::take(&mut self.skipped);
        }
    }
}

/// A flush concerns the whole device, whatever offset is recorded.
fn sorted_offset(event: &Event) -> u64 {
    if event.kind == Kind::Sync { 0 } else { event.offset }
}
