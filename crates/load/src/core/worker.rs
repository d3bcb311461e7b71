//! Worker: a thread that watches the clock, calls filaments and issues I/Os.

mod call;
mod issue;
mod wait;

use super::Batch;
use super::exchange::BATCH;
use super::policy::Policy;
use super::shared::{Pending, Shared};
use super::watch::Watch;
use crate::driver::{Driver, Target};
use crate::{Cause, Ended, Event, FilamentId, Outcome, Record, Request};
use base::Instant;
use reactor::precise::{self, Ticks};
use slab::Slab;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};

/// Time before its due time at which an I/O is dequeued, in ns; the rest is spun away without a
/// lock (paper, §5.2: *pre-spin*). It covers the path to the target.
const PRE_SPIN_NS: u64 = 2_000;

/// Submission time from which a worker counts as blocked, in ns.
const LONG_NS: u64 = 5_000;

/// Upper bound of the cost of handing over to a standby, in ns.
const READY_NS: u64 = 1_000;

/// Maximum calls of filaments between two checks of the I/O queue.
const CALLS_MAX: usize = 32;

/// Parameters of a worker.
pub(super) struct Setup<'a> {
    pub(super) id: usize,
    pub(super) cpu: usize,
    pub(super) processors: usize,
    pub(super) shared: &'a Shared,
    pub(super) target: &'a dyn Target,
    pub(super) ready_sender: Sender<io::Result<()>>,
    pub(super) wait: Receiver<u64>,
}

/// Results of a worker.
pub(super) struct Found {
    pub(super) watch: Watch,
    pub(super) recalibrations: u64,
}

impl Setup<'_> {
    /// Runs a worker's thread. `None` if the run did not start.
    pub(super) fn run(self) -> Option<Found> {
        precise::set_fine_timers();
        // Without pinning, the kernel places the thread.
        let _ = precise::pin(&[self.cpu]);
        let driver = match self.target.driver(self.id, self.shared.workers) {
            Ok(driver) => driver,
            Err(error) => {
                let _ = self.ready_sender.send(Err(error));
                return None;
            }
        };
        let _guard = Guard(self.shared);
        self.shared.set_waker(self.id as u32, driver.waker());
        let clock = Ticks::start();
        let _ = self.ready_sender.send(Ok(()));
        let origin = self.wait.recv().ok()?;
        let mut worker = Worker::new(&self, driver, clock, origin);
        let mut state = State::Check;
        while state != State::Over {
            state = worker.step(state);
        }
        Some(worker.end())
    }
}

/// Ends the run if its worker panics: no other worker would take its share.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish();
        }
    }
}

/// State of a worker (paper, Figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Looking for work.
    Check,
    /// Calling filaments with ready events.
    Call,
    /// Queueing the filaments' requests.
    Queue,
    /// Issuing due I/Os.
    Execute,
    /// Watching the clock.
    Spin,
    /// Waiting for a wake-up or a completion.
    Sleep,
    /// The run is over.
    Over,
}

/// Use of a worker's time, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    stolen_ns: u64,
    submission_ns: u64,
    call_ns: u64,
    /// Waiting for room in the target.
    full_ns: u64,
}

impl Spent {
    /// Returns the greatest use of time since `then`.
    fn cause(&self, then: &Spent) -> Cause {
        let stolen = self.stolen_ns - then.stolen_ns;
        let submission = self.submission_ns - then.submission_ns;
        let call = self.call_ns - then.call_ns;
        let full = self.full_ns - then.full_ns;
        if full > stolen.max(submission).max(call) {
            Cause::Full
        } else if stolen > submission.max(call) {
            Cause::Stolen
        } else if submission > call {
            Cause::Submission
        } else {
            Cause::Generator
        }
    }
}

/// I/O in flight.
struct Flight {
    at: u64,
    /// Shift of the schedule at its due time.
    shift: u64,
    issued: u64,
    pending: Pending,
    cause: Cause,
}

struct Worker<'a> {
    id: u32,
    shared: &'a Shared,
    processors: usize,
    driver: Box<dyn Driver>,
    clock: Ticks,
    origin: u64,
    /// This worker's order of queue partitions.
    order: Vec<usize>,
    flights: Slab<Flight>,
    sequence: u64,
    /// Due I/Os, by time.
    carried: Vec<(u64, Pending)>,
    /// Due events.
    ready: Vec<(FilamentId, Event)>,
    hinted: Vec<(u64, FilamentId)>,
    requested: Vec<(FilamentId, Request)>,
    out: Vec<Request>,
    arrived: Vec<Event>,
    ios: Vec<(u64, Pending)>,
    hints: Vec<(u64, FilamentId)>,
    ended: Vec<(u64, Outcome)>,
    issued: Vec<usize>,
    /// Completed work not yet subtracted from the shared count.
    done: u64,
    batch: Batch,
    batch_since: u64,
    watch: Watch,
    /// Use of the worker's time so far, and below that when it was last idle.
    spent: Spent,
    spent_when_idle: Spent,
    /// Smoothed duration of filament calls in ns, and below that of each event or request.
    call_ns: u64,
    unit_ns: u64,
    /// Duration of a submission in ns: a slowly decaying maximum.
    flush_ns: u64,
    policy: Option<Policy>,
    /// Start of its lead, if it led when it last checked.
    lead_since: Option<u64>,
    calibrated: u64,
    recalibrations: u64,
}

impl<'a> Worker<'a> {
    fn new(setup: &Setup<'a>, driver: Box<dyn Driver>, clock: Ticks, origin: u64) -> Worker<'a> {
        let parts = setup.shared.ios.parts();
        let order = (0..parts).map(|place| (place + setup.id) % parts).collect();
        Worker {
            id: setup.id as u32,
            shared: setup.shared,
            processors: setup.processors,
            driver,
            clock,
            origin,
            order,
            flights: Slab::with_capacity(4096),
            sequence: 0,
            carried: Vec::with_capacity(256),
            ready: Vec::with_capacity(256),
            hinted: Vec::with_capacity(256),
            requested: Vec::with_capacity(256),
            out: Vec::with_capacity(256),
            arrived: Vec::with_capacity(256),
            ios: Vec::with_capacity(256),
            hints: Vec::with_capacity(256),
            ended: Vec::with_capacity(256),
            issued: Vec::with_capacity(256),
            done: 0,
            batch: setup.shared.exchange.empty(),
            batch_since: 0,
            watch: Watch::new(),
            spent: Spent::default(),
            spent_when_idle: Spent::default(),
            call_ns: 0,
            unit_ns: 0,
            flush_ns: 0,
            policy: None,
            lead_since: None,
            calibrated: 0,
            recalibrations: 0,
        }
    }

    fn step(&mut self, state: State) -> State {
        match state {
            State::Check => self.check(),
            State::Call => self.call(),
            State::Queue => self.queue(),
            State::Execute => self.execute(),
            State::Spin => self.spin(),
            State::Sleep => self.sleep(),
            State::Over => State::Over,
        }
    }

    /// Returns the time since the start of the run in ns; 0 before.
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.origin)
    }

    /// Returns the schedule time, which may be shifted.
    #[inline]
    fn schedule_now(&self) -> u64 {
        self.now().saturating_sub(self.shared.shift.load(Ordering::Relaxed))
    }

    fn check(&mut self) -> State {
        if self.shared.is_over() {
            return State::Over;
        }
        self.driver.poll(&mut self.ended);
        if !self.ended.is_empty() {
            self.retire();
            return State::Call;
        }
        let now = self.schedule_now();
        if now > self.shared.end_ns() {
            self.shared.cut();
        }
        let room = self.driver.room().min(self.driver.batch_max());
        if room > 0 {
            self.shared.ios.take(&self.order, now + PRE_SPIN_NS, room, &mut self.carried);
        }
        if !self.carried.is_empty() {
            return State::Execute;
        }
        self.shared.hints.take(&self.order, now + 1, CALLS_MAX, &mut self.hinted);
        if !self.hinted.is_empty() {
            return State::Call;
        }
        if self.shared.is_done() {
            self.shared.finish();
            return State::Over;
        }
        if self.shared.clock_leader(self.id) || self.shared.take_over(self.id) {
            let now = self.now();
            self.lead_since.get_or_insert(now);
            return State::Spin;
        }
        self.lead_since = None;
        State::Sleep
    }

    /// Records a gap in which this worker lost the processor; another worker may have watched the
    /// clock for a part of it.
    fn lose(&mut self, start: u64, end: u64) {
        // The I/Os of this worker were late by all of it.
        self.shared.note_gap(start, end);
        self.spent.stolen_ns += end - start;
        self.watch.note(start, self.shared.unwatched_until(self.id, start, end));
    }

    /// Records completed I/Os.
    fn retire(&mut self) {
        let now = self.now();
        let mut ended = std::mem::take(&mut self.ended);
        for (name, outcome) in ended.drain(..) {
            let flight = self.flights.remove((name & SLOT) as usize);
            self.record(&flight, now, outcome, name);
        }
        self.ended = ended;
        if self.batch.records.len() >= BATCH {
            self.shared.exchange.leave(&mut self.batch);
            self.batch_since = now;
        }
    }

    fn record(&mut self, flight: &Flight, now: u64, outcome: Outcome, name: u64) {
        let shift = self.shared.shift.load(Ordering::Relaxed);
        self.batch.records.push(Record {
            scheduled_ns: flight.at + flight.shift,
            issued_ns: flight.issued,
            completed_ns: now,
            witnessed_ns: None,
            io: flight.pending.io,
            outcome,
            cause: flight.cause,
            filament: flight.pending.filament,
        });
        if self.shared.exchange.named {
            self.batch.names.push(name);
        }
        self.done += 1;
        if let Some(tag) = flight.pending.tell {
            let ended = Ended {
                tag,
                scheduled: Instant(flight.at),
                issued: Instant(flight.issued.saturating_sub(shift)),
                ended: Instant(now.saturating_sub(shift)),
                outcome,
            };
            self.ready.push((flight.pending.filament, Event::Ended(ended)));
        }
    }

    fn end(mut self) -> Found {
        self.shared.exchange.leave_last(&mut self.batch);
        Found { watch: self.watch, recalibrations: self.recalibrations }
    }
}

// Name of an I/O: worker, sequence number and slot.
const SLOT: u64 = (1 << 24) - 1;
const SEQUENCE_SHIFT: u32 = 24;
const SEQUENCE: u64 = (1 << 32) - 1;
const WORKER_SHIFT: u32 = 56;
