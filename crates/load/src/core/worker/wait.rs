//! Watching the clock and sleeping.

use super::{PRE_SPIN_NS, READY_NS, State, Worker};
use crate::core::policy::Policy;
use crate::core::queue::NEVER;
use crate::core::shared::NOBODY;
use reactor::precise::{self, Priority};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Minimum time before the next event for housekeeping, in ns.
const QUIET_NS: u64 = 20_000;

/// Interval of clock calibration, and the maximum age of a partial batch, in ns.
const CALIBRATE_NS: u64 = 1_000_000_000;
const KEEP_NS: u64 = 20_000_000;

/// At real-time priority: time after which a leader offers the lead, and, without a successor, the
/// length of a nap in each period, in ns (7 % and a wake-up; measured).
const LEAD_NS: u64 = 400_000;
const PERIOD_NS: u64 = 950_000;
const NAP_NS: u64 = 75_000;

/// Silence after which the standby relieves the leader, in ns.
const SILENT_NS: u64 = 5_000;

/// Time after which a standby reconsiders whether it should continue, in ns.
const STAND_BY_NS: u64 = 10_000_000;

/// Time without timed work after which the leader rests, and the maximum length of a rest, in ns.
const UNTIMED_NS: u64 = 200_000;
const REST_NS: u64 = 10_000_000;

/// Maximum sleep of a leader, in ns.
const DOZE_NS_MAX: u64 = 100_000_000;

/// Maximum sleep of an idle worker; new work wakes it.
const SLEEP: Duration = Duration::from_millis(100);

impl Worker<'_> {
    pub(super) fn spin(&mut self) -> State {
        self.watch.begin(self.now());
        self.take_policy();
        let room = self.driver.room() > 0;
        let mut last = self.now();
        let (mut timed, mut crowded) = (last, false);
        loop {
            let now = self.now();
            let scheduled = now.saturating_sub(self.shared.shift.load(Ordering::Relaxed));
            // Work added after this look wakes a worker that sleeps because of it.
            let queued = (self.shared.hints.due(), self.shared.ios.due());
            let seen = queued.0.min(queued.1);
            let ios = queued.1.saturating_sub(PRE_SPIN_NS);
            let full = !room && ios <= scheduled;
            if full && !crowded {
                // Others may have room.
                crowded = true;
                self.shared.wake_one();
            }
            match self.watch.look(now) {
                Some((start, end)) => self.lose(start, end),
                None if full => self.spent.full_ns += now.saturating_sub(last),
                None => self.spent_when_idle = self.spent,
            }
            last = now;
            self.shared.beat(now);
            if self.driver.any_work() || self.shared.is_over() {
                break;
            }
            // Without room, an I/O is not waited for: a completion makes room.
            let due = queued.0.min(if full { NEVER } else { ios });
            let stopped = scheduled > self.shared.end_ns() && seen != NEVER;
            if due <= scheduled || self.shared.is_done() || (stopped && !full) {
                break;
            }
            if self.shared.leader.load(Ordering::Acquire) != self.id {
                break;
            }
            if due.saturating_add(PRE_SPIN_NS) < NEVER || !self.flights.is_empty() {
                timed = now;
            } else if now > timed + UNTIMED_NS && self.shared.workers > 1 {
                self.rest(now, seen);
                (last, timed) = (self.now(), self.now());
                continue;
            }
            self.pass_time(now, due - scheduled, seen);
        }
        let (watched, lost) = self.watch.news();
        self.shared.watched.0.fetch_add(watched, Ordering::Relaxed);
        self.shared.watched.1.fetch_add(lost, Ordering::Relaxed);
        State::Check
    }

    /// Sleeps because there is no timed work: there is no clock to watch until the next request,
    /// and the worker that makes it may lead.
    fn rest(&mut self, now: u64, seen: u64) {
        self.keep_house(now);
        self.shared.neglect(true);
        self.shared.lie_down(self.id);
        self.doze(now, REST_NS, seen);
        self.shared.get_up(self.id);
        self.shared.inherit(self.id);
        self.mind();
    }

    /// Uses the time without work.
    fn pass_time(&mut self, now: u64, spare: u64, seen: u64) {
        if spare > QUIET_NS || now > self.calibrated + 2 * CALIBRATE_NS {
            self.keep_house(now);
        }
        match self.policy {
            Some(Policy::Nap) if self.led_ns(now) > LEAD_NS => self.nap(now, spare, seen),
            Some(Policy::Sleep) if spare > 2 * self.shared.wake_ns.1 => {
                self.doze(now, spare - self.shared.wake_ns.1, seen);
            }
            _ => std::hint::spin_loop(),
        }
    }

    /// Passes the lead to another worker, or sleeps briefly.
    fn nap(&mut self, now: u64, spare: u64, seen: u64) {
        let led = self.led_ns(now);
        // A selected successor may be waiting for a less urgent thread.
        if self.shared.workers > 1 && self.shared.offer_lead() && led <= PERIOD_NS {
            return std::hint::spin_loop();
        }
        if led > PERIOD_NS || (led > PERIOD_NS / 2 && spare > NAP_NS) {
            self.doze(now, NAP_NS.min(spare.max(NAP_NS / 2)), seen);
            self.lead_since = Some(self.now());
        }
    }

    /// Time for which it has led without a nap, in ns. The clock may have been set back slightly.
    fn led_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.lead_since.unwrap_or(now))
    }

    /// Sleeps for `span`, unless work was added that is due before `seen`; oversleep is lost time.
    fn doze(&mut self, now: u64, span: u64, seen: u64) {
        let span = span.min(DOZE_NS_MAX);
        let until = now + span;
        self.shared.fall_asleep(self.id, until);
        // Work added from here on wakes this worker.
        if self.shared.due() >= seen && !self.shared.is_over() {
            self.driver.wait(Duration::from_nanos(span));
        }
        self.shared.wake_up(self.id, until);
        let woken = self.now();
        if woken > until + self.shared.wake_ns.1 {
            self.watch.overslept(until, woken);
            self.lose(until, woken);
        }
        self.watch.begin(woken);
    }

    /// Sets the priority that the policy requires.
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
        // Permission was checked before; without it, the loss is measured anyway.
        let _ = precise::set_priority(priority);
        self.watch.begin(self.now());
    }

    pub(super) fn keep_house(&mut self, now: u64) {
        if now > self.calibrated + CALIBRATE_NS {
            self.clock.calibrate();
            self.calibrated = now;
            self.recalibrations += 1;
        }
        if now > self.batch_since + KEEP_NS && !self.batch.records.is_empty() {
            self.shared.exchange.leave(&mut self.batch);
            self.batch_since = now;
        }
        self.take_policy();
    }

    pub(super) fn sleep(&mut self) -> State {
        self.keep_house(self.now());
        if self.should_stand_by() && self.shared.stand_by(self.id) {
            self.watch_leader();
            self.shared.stand_down();
            return State::Check;
        }
        self.shared.lie_down(self.id);
        let leader = self.shared.leader.load(Ordering::Acquire);
        let inherits = self.shared.successor.load(Ordering::Acquire) == self.id;
        if leader != NOBODY && !inherits && !self.shared.is_over() {
            self.driver.wait(SLEEP);
        }
        self.shared.get_up(self.id);
        self.shared.inherit(self.id);
        State::Check
    }

    /// Reports whether a standby is worth a processor: submissions are slow here, and no other
    /// process needs it.
    fn should_stand_by(&self) -> bool {
        let long = self.flush_ns > READY_NS && self.driver.is_alone();
        // Two workers on one processor would disturb each other.
        long && self.policy == Some(Policy::Spin) && self.shared.workers <= self.processors
    }

    /// Spins until there is no leader, or the leader is unresponsive.
    fn watch_leader(&mut self) {
        let begin = self.now();
        // The leader's clock may differ from this worker's, so only changes count.
        let mut arrived = (self.shared.last_beat(), begin);
        loop {
            let leader = self.shared.leader.load(Ordering::Acquire);
            let (beat, now) = (self.shared.last_beat(), self.now());
            if beat != arrived.0 {
                arrived = (beat, now);
            }
            let silent = now > arrived.1 + SILENT_NS;
            let free = leader == NOBODY || silent && self.shared.relieve(leader, self.id, now);
            let weary = now > begin + STAND_BY_NS;
            if free || weary || self.driver.any_work() || self.shared.is_over() {
                return;
            }
            std::hint::spin_loop();
        }
    }
}
