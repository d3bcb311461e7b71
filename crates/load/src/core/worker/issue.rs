//! Issue of due I/Os.

use super::{Flight, READY_NS, SEQUENCE, SEQUENCE_SHIFT, State, WORKER_SHIFT, Worker};
use crate::core::Late;
use crate::core::shared::Pending;
use crate::{Cause, Outcome};
use std::sync::atomic::Ordering;

/// Lateness from which an I/O counts as late and gets a cause, in ns.
const LATE_NS: u64 = 1_000;

impl Worker<'_> {
    pub(super) fn execute(&mut self) -> State {
        let mut carried = std::mem::take(&mut self.carried);
        if !carried.is_sorted_by_key(|(at, _)| *at) {
            carried.sort_by_key(|(at, _)| *at);
        }
        self.hand_over_before(self.flush_ns);
        let mut rest = carried.as_slice();
        while let Some((first, _)) = rest.first() {
            let now = self.pre_spin(*first);
            let max = match self.shared.late {
                // Each may shift the following ones.
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
            // Events of skipped I/Os.
            return State::Call;
        }
        self.shared.count(0, std::mem::take(&mut self.done));
        State::Check
    }

    /// Resumes watching the clock, if this worker leads.
    pub(super) fn mind(&self) {
        if self.shared.leader.load(Ordering::Relaxed) == self.id {
            self.shared.neglect(false);
        }
    }

    /// Spins until a time. Returns the schedule time.
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
                self.lose(start, end);
            }
            now = time.saturating_sub(shift);
        }
        now
    }

    /// Reports whether a possibly late I/O is to be issued.
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
        // A slow submission may recur, so the maximum decays slowly.
        self.flush_ns = took.max((self.flush_ns * 31 + took) / 32);
    }

    /// Hands over the lead before an operation of this duration, if worthwhile: always to a
    /// standby; otherwise only if the wake-up is faster and other work is due before.
    pub(super) fn hand_over_before(&self, busy_ns: u64) {
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
            // Meanwhile any worker that is about to wait takes the lead.
            self.shared.neglect(busy_ns > self.shared.wake_ns.0);
        }
    }
}
