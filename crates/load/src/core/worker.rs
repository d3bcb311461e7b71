//! A worker: one thread that watches the clock, calls filaments and issues I/Os.

use super::depot::BATCH;
use super::policy::Policy;
use super::queue::NEVER;
use super::shared::{NOBODY, Pending, Shared};
use super::watch::Watch;
use super::{Batch, Late};
use crate::driver::{Driver, Target};
use crate::{Cause, Ended, Event, FilamentId, Outcome, Record, Request};
use base::Instant;
use reactor::precise::{self, Priority, Ticks};
use slab::Slab;
use std::io;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// So long before its time an I/O is taken from the queue, ns; the rest is spun away without a
/// lock (paper, §5.2: *pre-spin*). It covers the way from there to the target.
const PRE_SPIN_NS: u64 = 2_000;

/// An I/O is late if it is issued so long after its time, ns; then it is said why.
const LATE_NS: u64 = 1_000;

/// Handing over takes long from here on, ns.
const LONG_NS: u64 = 5_000;

/// Giving the lead to somebody who stands by costs a fraction of this, ns.
const READY_NS: u64 = 1_000;

/// Work of the worker's own is done when there is so much time until the next event, ns.
const QUIET_NS: u64 = 20_000;

/// How often the clock is calibrated, and how long a batch is kept that is not full, ns.
const CALIBRATE_NS: u64 = 1_000_000_000;
const KEEP_NS: u64 = 20_000_000;

/// At real-time priority: how long a worker leads before it offers the lead, and, where nobody
/// takes it, how long it naps in each period, ns (7 % and a wake-up; measured).
const LEAD_NS: u64 = 400_000;
const PERIOD_NS: u64 = 950_000;
const NAP_NS: u64 = 75_000;

/// How long a worker stands by in vain until it looks again whether it should, ns.
const STAND_BY_NS: u64 = 10_000_000;

/// The longest sleep of a worker that leads, ns.
const DOZE_NS_MAX: u64 = 100_000_000;

/// How long a worker sleeps that has nothing to do; it is woken if it has.
const SLEEP: Duration = Duration::from_millis(100);

/// Filaments are called at most so often before the queue of I/Os is looked at again.
const CALLS_MAX: usize = 32;

/// What a worker needs to begin.
pub(super) struct Setup<'a> {
    pub(super) id: usize,
    pub(super) cpu: usize,
    pub(super) processors: usize,
    pub(super) shared: &'a Shared,
    pub(super) target: &'a dyn Target,
    pub(super) told: Sender<io::Result<()>>,
    pub(super) wait: Receiver<u64>,
}

/// What a worker leaves.
pub(super) struct Found {
    pub(super) watch: Watch,
    pub(super) recalibrations: u64,
}

impl Setup<'_> {
    /// The life of a worker's thread. `None`: the run did not begin.
    pub(super) fn run(self) -> Option<Found> {
        precise::set_fine_timers();
        // Where it may not be pinned it runs wherever the kernel likes.
        let _ = precise::pin(&[self.cpu]);
        let driver = match self.target.driver(self.id, self.shared.workers) {
            Ok(driver) => driver,
            Err(error) => {
                let _ = self.told.send(Err(error));
                return None;
            }
        };
        let _guard = Guard(self.shared);
        self.shared.set_waker(self.id as u32, driver.waker());
        let clock = Ticks::start();
        let _ = self.told.send(Ok(()));
        let origin = self.wait.recv().ok()?;
        let mut worker = Worker::new(&self, driver, clock, origin);
        let mut state = State::Check;
        while state != State::Over {
            state = worker.step(state);
        }
        Some(worker.end())
    }
}

/// A worker that panics ends the run: nobody else would take its part.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish();
        }
    }
}

/// What a worker is doing (paper, Figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Looks for something to do.
    Check,
    /// Calls filaments with what is ready.
    Call,
    /// Puts what they asked for where it belongs.
    Queue,
    /// Issues what is due.
    Execute,
    /// Watches the clock.
    Spin,
    /// Waits until somebody wakes it, or an I/O ends.
    Sleep,
    /// The run is over.
    Over,
}

/// What a worker's time went to, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    stolen_ns: u64,
    submission_ns: u64,
    call_ns: u64,
    /// Waiting for room in the target.
    full_ns: u64,
}

impl Spent {
    /// What most of it went to since then.
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

/// An I/O under way.
struct Flight {
    at: u64,
    /// By how much the schedule had been moved when its time came.
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
    /// In which order this worker looks at the parts of queues.
    order: Vec<usize>,
    flights: Slab<Flight>,
    sequence: u64,
    /// I/Os that are due, in the order of time.
    carried: Vec<(u64, Pending)>,
    /// Events that are due.
    ready: Vec<(FilamentId, Event)>,
    hinted: Vec<(u64, FilamentId)>,
    asked: Vec<(FilamentId, Request)>,
    out: Vec<Request>,
    heard: Vec<Event>,
    ios: Vec<(u64, Pending)>,
    hints: Vec<(u64, FilamentId)>,
    ended: Vec<(u64, Outcome)>,
    issued: Vec<usize>,
    /// What was done since the count of what is left was last told.
    done: u64,
    batch: Batch,
    batch_since: u64,
    watch: Watch,
    /// What the worker's time went to so far, and when it last had nothing to do.
    spent: Spent,
    spent_when_idle: Spent,
    /// How long calling filaments takes, ns, smoothed.
    call_ns: u64,
    /// How long handing over takes, ns: the longest of late.
    flush_ns: u64,
    policy: Option<Policy>,
    /// Whether it led when it last looked, and since when.
    leads: bool,
    lead_since: u64,
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
            asked: Vec::with_capacity(256),
            out: Vec::with_capacity(256),
            heard: Vec::with_capacity(256),
            ios: Vec::with_capacity(256),
            hints: Vec::with_capacity(256),
            ended: Vec::with_capacity(256),
            issued: Vec::with_capacity(256),
            done: 0,
            batch: Batch::default(),
            batch_since: 0,
            watch: Watch::new(),
            spent: Spent::default(),
            spent_when_idle: Spent::default(),
            call_ns: 0,
            flush_ns: 0,
            policy: None,
            leads: false,
            lead_since: 0,
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

    /// The time since the start of the run, ns; zero before.
    #[inline]
    fn now(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.origin)
    }

    /// The time by which the schedule goes: it may have been moved.
    #[inline]
    fn schedule_now(&self) -> u64 {
        self.now().saturating_sub(self.shared.shift.load(Ordering::Relaxed))
    }

    // Check queue.

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
        let leads = self.shared.lead(self.id) || self.shared.take_over(self.id);
        let led = std::mem::replace(&mut self.leads, leads);
        if self.leads && !led {
            self.lead_since = self.now();
        }
        if self.leads { State::Spin } else { State::Sleep }
    }

    /// Notes what has ended.
    fn retire(&mut self) {
        let now = self.now();
        let mut ended = std::mem::take(&mut self.ended);
        for (name, outcome) in ended.drain(..) {
            let flight = self.flights.remove((name & SLOT) as usize);
            self.record(&flight, now, outcome, name);
        }
        self.ended = ended;
        if self.batch.records.len() >= BATCH {
            self.shared.depot.leave(&mut self.batch);
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
        if self.shared.depot.named {
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

    // Call filament.

    fn call(&mut self) -> State {
        let begin = self.now();
        self.hand_over_before(self.call_ns);
        let mut ready = std::mem::take(&mut self.ready);
        let now = self.schedule_now();
        for (filament, event) in ready.drain(..) {
            self.heard.push(event);
            self.call_one(filament, now);
        }
        self.ready = ready;
        let mut hinted = std::mem::take(&mut self.hinted);
        for (at, filament) in hinted.drain(..) {
            // The schedule may have been moved since the hint was taken.
            let now = now.max(at);
            self.done += 1;
            self.shared.filaments[filament as usize].hear(now, &mut self.heard);
            if !self.heard.is_empty() {
                self.call_one(filament, now);
            }
        }
        self.hinted = hinted;
        self.note_call(begin);
        self.mind();
        State::Queue
    }

    /// Notes how long calling took. What took far longer than it does was not the filaments' doing,
    /// most likely: the machine was elsewhere.
    fn note_call(&mut self, begin: u64) {
        let now = self.now();
        let took = now.saturating_sub(begin);
        if took > LONG_NS && took > 8 * self.call_ns {
            self.watch.note(begin, now);
            self.shared.note_gap(begin, now);
            self.spent.stolen_ns += took;
        } else {
            self.spent.call_ns += took;
        }
        self.call_ns = (self.call_ns * 7 + took) / 8;
    }

    /// Calls a filament with what it heard. If somebody else is calling it, it hears it later.
    fn call_one(&mut self, id: FilamentId, now: u64) {
        let place = &self.shared.filaments[id as usize];
        let mut filament = match place.filament.try_lock() {
            Ok(filament) => filament,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.heard.drain(..).for_each(|event| place.say(now, event));
                self.hints.push((now, id));
                return;
            }
        };
        for event in self.heard.drain(..) {
            filament.step(Instant(now), event, &mut self.out);
        }
        drop(filament);
        self.asked.extend(self.out.drain(..).map(|request| (id, request)));
    }

    // Queue events.

    fn queue(&mut self) -> State {
        let soon = self.schedule_now() + PRE_SPIN_NS;
        let end = self.shared.end_ns();
        let room = self.driver.room().min(4 * self.driver.batch_max());
        let mut crowded = false;
        let mut asked = std::mem::take(&mut self.asked);
        let (mut added, mut earliest) = (self.hints.len() as u64, NEVER);
        for (filament, request) in asked.drain(..) {
            let at = request.at().0;
            if at > end {
                continue;
            }
            added += 1;
            earliest = earliest.min(at);
            match request {
                Request::Io { io, tell, .. } => {
                    let pending = Pending { io, filament, tell };
                    let carries = at <= soon && self.carried.len() < room;
                    crowded |= at <= soon && !carries;
                    let place = if carries { &mut self.carried } else { &mut self.ios };
                    place.push((at, pending));
                }
                Request::Timer { tag, .. } => self.say(filament, at, Event::Timer(tag)),
                Request::Send { to, parcel, .. } => {
                    self.say(to, at, Event::Message { from: filament, parcel });
                }
            }
        }
        self.asked = asked;
        // Counted before anybody can see and do it: else nothing would seem to be left.
        self.shared.count(added, std::mem::take(&mut self.done));
        self.shared.ios.add(&self.order, &mut self.ios);
        self.shared.hints.add(&self.order, &mut self.hints);
        self.shared.rouse(earliest);
        if crowded && self.driver.room() <= self.carried.len() {
            // Others may have room for what is left.
            self.shared.wake_one();
        }
        if self.carried.is_empty() { State::Check } else { State::Execute }
    }

    fn say(&mut self, to: FilamentId, at: u64, event: Event) {
        let Some(place) = self.shared.filaments.get(to as usize) else {
            // Nobody: a message into the void has been delivered.
            self.done += 1;
            return;
        };
        place.say(at, event);
        self.hints.push((at, to));
    }

    // Execute I/O.

    fn execute(&mut self) -> State {
        let mut carried = std::mem::take(&mut self.carried);
        if !carried.is_sorted_by_key(|(at, _)| *at) {
            carried.sort_by_key(|(at, _)| *at);
        }
        self.hand_over_before(self.flush_ns);
        let mut rest = carried.as_slice();
        while let Some((first, _)) = rest.first() {
            let now = self.pre_spin(*first);
            let max = match self.shared.late {
                // Each may move those behind it.
                Late::Shift(_) => 1,
                Late::CatchUp | Late::Skip(_) | Late::Stop(_) => self.driver.batch_max(),
            };
            let count = rest.iter().take(max).take_while(|(at, _)| *at <= now).count();
            let (due, later) = rest.split_at(count);
            rest = later;
            for (at, pending) in due {
                let shift = self.shared.shift.load(Ordering::Relaxed);
                if self.is_in_time(*at, now, pending) {
                    self.issue(*at, shift, *pending);
                }
            }
            self.flush();
        }
        carried.clear();
        self.carried = carried;
        self.mind();
        if !self.ready.is_empty() {
            // Of those that were skipped.
            return State::Call;
        }
        self.shared.count(0, std::mem::take(&mut self.done));
        State::Check
    }

    /// Watches the clock again, if this worker leads.
    fn mind(&self) {
        if self.shared.leader.load(Ordering::Relaxed) == self.id {
            self.shared.neglect(false);
        }
    }

    /// Spins until the time has come; the time by the schedule.
    fn pre_spin(&mut self, at: u64) -> u64 {
        let mut now = self.schedule_now();
        if now >= at {
            return now;
        }
        let shift = self.shared.shift.load(Ordering::Relaxed);
        self.watch.begin(now + shift);
        while now < at {
            std::hint::spin_loop();
            let time = self.now();
            if let Some((start, end)) = self.watch.look(time) {
                self.shared.note_gap(start, end);
                self.spent.stolen_ns += end - start;
            }
            now = time.saturating_sub(shift);
        }
        now
    }

    /// Whether an I/O is to be issued, late as it may be.
    fn is_in_time(&mut self, at: u64, now: u64, pending: &Pending) -> bool {
        let late = now - at;
        match self.shared.late {
            Late::Shift(limit) if late > limit => {
                self.shared.shift.fetch_add(late, Ordering::Relaxed);
                true
            }
            Late::Stop(limit) if late > limit => {
                let why = format!("an I/O was {} us late", late / 1000);
                self.shared.stop(now, &why);
                true
            }
            Late::Skip(limit) if late > limit => {
                let (pending, cause) = (*pending, Cause::None);
                let flight = Flight { at, shift: 0, issued: now, pending, cause };
                self.record(&flight, now, Outcome::Skipped, 0);
                false
            }
            Late::CatchUp | Late::Skip(_) | Late::Shift(_) | Late::Stop(_) => true,
        }
    }

    fn issue(&mut self, at: u64, shift: u64, pending: Pending) {
        let flight = Flight { at, shift, issued: 0, pending, cause: Cause::None };
        let slot = self.flights.insert(flight);
        self.sequence += 1;
        let name = (u64::from(self.id) << WORKER_SHIFT)
            | ((self.sequence & SEQUENCE) << SEQUENCE_SHIFT)
            | slot as u64;
        self.driver.issue(name, &pending.io);
        self.issued.push(slot);
    }

    fn flush(&mut self) {
        let now = self.now();
        let mut issued = std::mem::take(&mut self.issued);
        for slot in issued.drain(..) {
            let flight = &mut self.flights[slot];
            flight.issued = now;
            let due = flight.at + flight.shift;
            if now > due + LATE_NS {
                flight.cause = if 2 * self.shared.stolen_within(due, now) >= now - due {
                    Cause::Stolen
                } else {
                    self.spent.cause(&self.spent_when_idle)
                };
            }
        }
        self.issued = issued;
        self.driver.flush();
        let after = self.now();
        let took = after.saturating_sub(now);
        self.spent.submission_ns += took;
        // What took long may do so again: it is forgotten slowly.
        self.flush_ns = took.max((self.flush_ns * 31 + took) / 32);
    }

    /// Gives the lead away before something that takes so long, if that is worth it: to who stands
    /// by always; somebody is woken for it only if that is sooner, and something is due before.
    fn hand_over_before(&self, busy_ns: u64) {
        if self.shared.leader.load(Ordering::Relaxed) != self.id {
            return;
        }
        let ready = self.shared.anybody_ready() && busy_ns > READY_NS;
        let worth = busy_ns > 2 * self.shared.wake_ns.0
            && self.shared.due() < self.schedule_now() + busy_ns
            && self.shared.anybody_idle();
        if ready || worth {
            self.shared.hand_over();
        } else {
            // Whoever comes by meanwhile, with something to wait for, takes it.
            self.shared.neglect(busy_ns > self.shared.wake_ns.0);
        }
    }

    // Spin.

    fn spin(&mut self) -> State {
        self.watch.begin(self.now());
        self.take_policy();
        let room = self.driver.room() > 0;
        let mut last = self.now();
        loop {
            let now = self.now();
            let scheduled = now.saturating_sub(self.shared.shift.load(Ordering::Relaxed));
            let ios = self.shared.ios.due().saturating_sub(PRE_SPIN_NS);
            let full = !room && ios <= scheduled;
            match self.watch.look(now) {
                Some((start, end)) => {
                    self.shared.note_gap(start, end);
                    self.spent.stolen_ns += end - start;
                }
                None if full => self.spent.full_ns += now.saturating_sub(last),
                None => self.spent_when_idle = self.spent,
            }
            last = now;
            if self.driver.any_work() || self.shared.is_over() {
                break;
            }
            // What there is no room for is not waited for: an I/O that ends makes room.
            let due = self.shared.hints.due().min(if full { NEVER } else { ios });
            let stopped = scheduled > self.shared.end_ns() && self.shared.due() != NEVER;
            if due <= scheduled || self.shared.is_done() || (stopped && !full) {
                break;
            }
            if self.shared.leader.load(Ordering::Acquire) != self.id {
                break;
            }
            self.pass_time(now, due - scheduled);
        }
        let (watched, lost) = self.watch.news();
        self.shared.watched.0.fetch_add(watched, Ordering::Relaxed);
        self.shared.watched.1.fetch_add(lost, Ordering::Relaxed);
        State::Check
    }

    /// What is done while there is nothing to do for so long.
    fn pass_time(&mut self, now: u64, spare: u64) {
        if spare > QUIET_NS {
            self.keep_house(now);
        }
        match self.policy {
            Some(Policy::Nap) if now.saturating_sub(self.lead_since) > LEAD_NS => {
                self.nap(now, spare)
            }
            Some(Policy::Sleep) if spare > 2 * self.shared.wake_ns.1 => {
                self.doze(now, spare - self.shared.wake_ns.1);
            }
            _ => std::hint::spin_loop(),
        }
    }

    /// Somebody else is to lead; or this worker sleeps a little itself.
    fn nap(&mut self, now: u64, spare: u64) {
        // The clock may have been set back a little.
        let led = now.saturating_sub(self.lead_since);
        // An heir that does not come may wait for somebody who is less urgent than this worker.
        if self.shared.workers > 1 && self.shared.offer_lead() && led <= PERIOD_NS {
            return std::hint::spin_loop();
        }
        if led > PERIOD_NS || (led > PERIOD_NS / 2 && spare > NAP_NS) {
            self.doze(now, NAP_NS.min(spare.max(NAP_NS / 2)));
            self.lead_since = self.now();
        }
    }

    /// Sleeps for so long; what it sleeps longer is lost.
    fn doze(&mut self, now: u64, span: u64) {
        let span = span.min(DOZE_NS_MAX);
        let due = self.shared.due();
        self.shared.asleep_until.store(now + span, Ordering::SeqCst);
        // Who adds something from here on wakes this worker.
        if self.shared.due() >= due.min(now + span) && !self.shared.is_over() {
            self.driver.wait(Duration::from_nanos(span));
        }
        self.shared.asleep_until.store(0, Ordering::Release);
        let woken = self.now();
        if woken > now + span + self.shared.wake_ns.1 {
            self.watch.overslept(now + span, woken);
            self.spent.stolen_ns += woken - (now + span);
            self.shared.note_gap(now + span, woken);
        }
        self.watch.begin(woken);
    }

    /// Becomes as urgent as the policy wants it.
    fn take_policy(&mut self) {
        let policy = self.shared.policy();
        if self.policy == Some(policy) {
            return;
        }
        self.policy = Some(policy);
        let priority = match policy {
            Policy::Nap => Priority::RealTime,
            Policy::Spin | Policy::Sleep => Priority::Ordinary,
        };
        // Permission was asked for before; without it the loss is measured all the same.
        let _ = precise::set_priority(priority);
        self.watch.begin(self.now());
    }

    fn keep_house(&mut self, now: u64) {
        if now > self.calibrated + CALIBRATE_NS {
            self.clock.calibrate();
            self.calibrated = now;
            self.recalibrations += 1;
        }
        if now > self.batch_since + KEEP_NS && !self.batch.records.is_empty() {
            self.shared.depot.leave(&mut self.batch);
            self.batch_since = now;
        }
        self.take_policy();
    }

    // Sleep.

    fn sleep(&mut self) -> State {
        self.keep_house(self.now());
        if self.should_stand_by() && self.shared.stand_by(self.id) {
            self.watch_leader();
            self.shared.stand_down();
            return State::Check;
        }
        self.shared.lie_down(self.id);
        let leader = self.shared.leader.load(Ordering::Acquire);
        if leader != NOBODY && !self.shared.is_over() {
            self.driver.wait(SLEEP);
        }
        self.shared.get_up(self.id);
        self.shared.inherit(self.id);
        State::Check
    }

    /// Whether it is worth a processor to take the lead at once: handing over takes long here, and
    /// nobody else needs it.
    fn should_stand_by(&self) -> bool {
        let long = self.flush_ns > READY_NS && self.driver.is_alone();
        // Two of them on one processor would be in each other's way.
        long && self.policy == Some(Policy::Spin) && self.shared.workers <= self.processors
    }

    /// Spins until nobody leads.
    fn watch_leader(&mut self) {
        let begin = self.now();
        while self.shared.leader.load(Ordering::Acquire) != NOBODY {
            let weary = self.now() - begin > STAND_BY_NS;
            if weary || self.driver.any_work() || self.shared.is_over() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn end(mut self) -> Found {
        self.shared.depot.leave_last(&mut self.batch);
        Found { watch: self.watch, recalibrations: self.recalibrations }
    }
}

// The name of an I/O: the worker, a number that grows, and where it is kept.
const SLOT: u64 = (1 << 24) - 1;
const SEQUENCE_SHIFT: u32 = 24;
const SEQUENCE: u64 = (1 << 32) - 1;
const WORKER_SHIFT: u32 = 56;
