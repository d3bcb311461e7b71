//! One storelet of a worker: its execution, its guest, and its buffers.

use super::{OUTPUT_MAX, OUTPUT_TIME, Output, give_back};
use crate::crossing::{Begin, DomainId, ToHome};
use crate::execution::Execution;
use crate::prefetch::Prefetch;
use crate::report::Report;
use crate::schedule::Key;
use base::{Automaton as _, Instant};
use std::collections::VecDeque;
use std::mem;
use tree::{Ask, NodeId};
use wasi::{Ended, Got, Guest, Start, Stream, Used};

/// A storelet of a worker.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) begin: Box<Begin>,
    pub(super) execution: Execution,
    pub(super) prefetch: Prefetch,
    /// Keys in the schedulers of the processor and of file requests.
    pub(super) cpu: Key,
    pub(super) io: Key,
    /// The guest; `None` before it is created, during a slice, and after the end.
    pub(super) guest: Option<Box<Guest>>,
    /// Result to deliver at the next slice.
    pub(super) resumes: Option<Option<Got>>,
    /// Start of the execution, and latest end.
    since: Instant,
    pub(super) until: Instant,
    /// Time of the registered alarm.
    pub(super) alarm: Option<Instant>,
    /// Input not yet consumed; whether it is complete.
    input: VecDeque<Vec<u8>>,
    input_ended: bool,
    /// Pending wait for input, with the maximum number of bytes.
    pub(super) hungry: Option<u32>,
    /// Pending output, waiting for room.
    pub(super) pending: Option<(Stream, Vec<u8>)>,
    /// Output not yet sent to home.
    emitted: Vec<(Stream, Vec<u8>)>,
    pub(super) output_bytes: usize,
    pub(super) emitted_since: Option<Instant>,
    /// Room for output, granted before there is a guest, bytes.
    room: usize,
    /// Time spent on its behalf before there is a guest, ns.
    owed_ns: u64,
}

impl Domain {
    pub(super) fn new(mut begin: Box<Begin>, cpu: Key, io: Key, now: Instant) -> Domain {
        let execution = Execution::new(mem::take(&mut begin.run_spec.root));
        let input_ended = !begin.run_spec.input;
        let until = Instant(now.0.saturating_add(begin.run_spec.budget.time_ns));
        Domain {
            begin,
            execution,
            prefetch: Prefetch::default(),
            cpu,
            io,
            guest: None,
            resumes: None,
            since: now,
            until,
            alarm: None,
            input: VecDeque::new(),
            input_ended,
            hungry: None,
            pending: None,
            emitted: Vec::new(),
            output_bytes: 0,
            emitted_since: None,
            room: OUTPUT_MAX,
            owed_ns: 0,
        }
    }

    /// Creates the guest, with this directory of the served tree as its root.
    pub(super) fn make(&mut self, served: NodeId, root: NodeId, now: Instant) {
        let run_spec = &mut self.begin.run_spec;
        let start = Start {
            args: mem::take(&mut run_spec.args),
            env: mem::take(&mut run_spec.env),
            root,
            stdin: run_spec.stdin.take().map(|path| (served, path, run_spec.stdin_straight)),
            writes: run_spec.writes,
            seed: self.begin.seed,
            budget: run_spec.budget,
        };
        self.since = now;
        let guest = Guest::new(&self.begin.program.program, &start);
        guest.charge(0, mem::take(&mut self.owed_ns));
        guest.allow(self.room);
        self.guest = Some(Box::new(guest));
    }

    /// Returns the time of the next alarm.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // An ended storelet only waits for a reply: its time limit must not expire again.
        if self.execution.has_ended() {
            return None;
        }
        let emitted = self.emitted_since.map(|since| since + OUTPUT_TIME);
        [Some(self.until), self.execution.deadline(), emitted].into_iter().flatten().min()
    }

    /// Charges time that home or the worker spent on its behalf, ns.
    pub(super) fn served(&mut self, served_ns: u64) {
        match &self.guest {
            Some(guest) => guest.charge(0, served_ns),
            None => self.owed_ns += served_ns,
        }
    }

    /// Returns the request that waits for admission.
    pub(super) fn queued(&self) -> Option<&Ask> {
        self.execution.queued().or_else(|| self.prefetch.queued())
    }

    pub(super) fn take_input(&mut self, bytes: Vec<u8>) {
        self.input_ended |= bytes.is_empty();
        if !bytes.is_empty() {
            self.input.push_back(bytes);
        }
    }

    /// Returns the result of a wait for input, if there is some or the stream has ended.
    pub(super) fn next_input(&mut self) -> Option<Vec<u8>> {
        let count = self.hungry? as usize;
        let next = match self.input.pop_front() {
            Some(mut bytes) => {
                if bytes.len() > count {
                    self.input.push_front(bytes.split_off(count));
                }
                bytes
            }
            None if self.input_ended => Vec::new(),
            None => return None,
        };
        self.hungry = None;
        Some(next)
    }

    /// Grants room for output after its consumption at home.
    pub(super) fn allow(&mut self, bytes: usize) {
        match &self.guest {
            Some(guest) => guest.allow(bytes),
            None => self.room += bytes,
        }
    }

    /// Accepts pending output, if there is room.
    pub(super) fn take_pending(&mut self, now: Instant) -> bool {
        let Some((stream, bytes)) = self.pending.take() else { return false };
        let guest = self.guest.as_ref().expect("a domain with output has a guest");
        if !guest.spend(bytes.len()) {
            self.pending = Some((stream, bytes));
            return false;
        }
        self.gather(now, vec![(stream, bytes)]);
        true
    }

    /// Buffers output until it is sent.
    pub(super) fn gather(&mut self, now: Instant, emitted: Vec<(Stream, Vec<u8>)>) {
        for (stream, bytes) in emitted {
            self.output_bytes += bytes.len();
            self.emitted_since.get_or_insert(now);
            match self.emitted.last_mut() {
                Some((last, gathered)) if *last == stream => gathered.extend_from_slice(&bytes),
                Some(_) | None => self.emitted.push((stream, bytes)),
            }
        }
    }

    /// Sends the buffered output.
    pub(super) fn emit(&mut self, id: DomainId, out: &mut Vec<Output>) {
        let emitted = mem::take(&mut self.emitted);
        let tell = |(stream, bytes)| Output::Tell(ToHome::Emitted(id, stream, bytes));
        out.extend(emitted.into_iter().map(tell));
        (self.output_bytes, self.emitted_since) = (0, None);
    }

    /// Drops the guest at its present point.
    pub(super) fn drop_guest(&mut self, out: &mut Vec<Output>) {
        if let Some(guest) = &mut self.guest {
            guest.stop();
            give_back(guest, out);
        }
    }

    /// Reports the end.
    pub(super) fn end(&mut self, id: DomainId, now: Instant, ended: &Ended, out: &mut Vec<Output>) {
        self.emit(id, out);
        let unmade = Used { served_ns: self.owed_ns, ..Used::default() };
        let used = self.guest.as_ref().map_or(unmade, |guest| guest.used());
        let report = Report::new(ended, used, now.0 - self.since.0);
        out.push(Output::Tell(ToHome::Ended(id, Box::new(report))));
    }
}
