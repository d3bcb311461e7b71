//! Filaments in virtual time, against a simulated device.
//!
//! Events are ordered by time, then by the filament's index, then by the order of requests; so a
//! run is a function of the filaments and the device.

use crate::{Ended, Event, Filament, FilamentId, Io, Outcome, Record, Request};
use base::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Device in virtual time.
pub trait Device {
    /// Returns the completion time and the outcome of an I/O issued now. Calls are ordered by time.
    fn issue(&mut self, now: Instant, io: Io) -> (Instant, Outcome);
}

/// Device without latency.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instantly;

impl Device for Instantly {
    fn issue(&mut self, now: Instant, io: Io) -> (Instant, Outcome) {
        (now, Outcome::Done(io.len))
    }
}

/// Device with one queue and several servers: an I/O waits for the first free server, then takes a
/// fixed time plus a time per KiB.
#[derive(Clone, Debug)]
pub struct Queueing {
    free_at: Vec<Instant>,
    each: Duration,
    each_kib: Duration,
}

impl Queueing {
    /// Creates a device with this many servers.
    ///
    /// # Panics
    /// Without servers.
    pub fn new(servers: usize, each: Duration, each_kib: Duration) -> Queueing {
        assert!(servers > 0, "somebody must serve");
        Queueing { free_at: vec![Instant::default(); servers], each, each_kib }
    }
}

impl Device for Queueing {
    fn issue(&mut self, now: Instant, io: Io) -> (Instant, Outcome) {
        let first = self.free_at.iter_mut().min().expect("somebody serves");
        let begin = now.max(*first);
        let transfer = self.each_kib.saturating_mul(io.len.div_ceil(1024));
        *first = begin + self.each + transfer;
        (*first, Outcome::Done(io.len))
    }
}

/// Result of a run in virtual time.
#[derive(Debug, Default)]
pub struct Run {
    /// Records in completion order.
    pub records: Vec<Record>,
    /// Number of filament calls.
    pub calls: u64,
    /// Time of the last event.
    pub end: Instant,
}

/// Runs filaments until no work is left.
pub fn run(filaments: Vec<Box<dyn Filament>>, device: &mut dyn Device) -> Run {
    run_until(filaments, device, Instant(u64::MAX))
}

/// Runs filaments until no work is left before `end`. I/Os issued by then are awaited.
pub fn run_until(
    mut filaments: Vec<Box<dyn Filament>>,
    device: &mut dyn Device,
    end: Instant,
) -> Run {
    let mut agenda = Agenda::default();
    let mut run = Run::default();
    for filament in 0..filaments.len() as FilamentId {
        agenda.add(Instant::default(), filament, What::Call(Event::Started));
    }
    let mut out = Vec::new();
    while let Some(entry) = agenda.entries.pop() {
        let Entry { at, filament, what, .. } = entry.0;
        let event = match what {
            // Outstanding I/Os are awaited; no other work starts.
            What::Call(_) | What::Issue(..) if at > end => continue,
            What::Call(event) => event,
            What::Issue(io, tell) => {
                let (ended, outcome) = device.issue(at, io);
                let record = Record {
                    scheduled_ns: at.0,
                    issued_ns: at.0,
                    completed_ns: ended.0,
                    io,
                    outcome,
                    filament,
                    ..Record::default()
                };
                agenda.add(ended, filament, What::End(record, tell));
                continue;
            }
            What::End(record, tell) => {
                run.end = run.end.max(at);
                run.records.push(record);
                let Some(tag) = tell.filter(|_| at <= end) else {
                    continue;
                };
                Event::Ended(Ended {
                    tag,
                    scheduled: Instant(record.scheduled_ns),
                    issued: Instant(record.issued_ns),
                    ended: at,
                    outcome: record.outcome,
                })
            }
        };
        run.calls += 1;
        run.end = run.end.max(at);
        filaments[filament as usize].step(at, event, &mut out);
        out.drain(..).for_each(|request| agenda.take(at, filament, request));
    }
    run
}

enum What {
    Call(Event),
    Issue(Io, Option<u64>),
    End(Record, Option<u64>),
}

struct Entry {
    at: Instant,
    filament: FilamentId,
    sequence: u64,
    what: What,
}

impl Entry {
    fn key(&self) -> (Instant, FilamentId, u64) {
        (self.at, self.filament, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Event queue.
#[derive(Default)]
struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Agenda {
    fn add(&mut self, at: Instant, filament: FilamentId, what: What) {
        self.sequence += 1;
        self.entries.push(Reverse(Entry { at, filament, sequence: self.sequence, what }));
    }

    fn take(&mut self, now: Instant, from: FilamentId, request: Request) {
        let at = request.at().max(now);
        match request {
            Request::Io { io, tell, .. } => self.add(at, from, What::Issue(io, tell)),
            Request::Timer { tag, .. } => self.add(at, from, What::Call(Event::Timer(tag))),
            Request::Send { to, envelope, .. } => {
                self.add(at, to, What::Call(Event::Message { from, envelope }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
