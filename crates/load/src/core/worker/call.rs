//! Calls of filaments with ready events, and the queueing of their requests.

use super::{LONG_NS, PRE_SPIN_NS, State, Worker};
use crate::core::queue::NEVER;
use crate::core::shared::Pending;
use crate::{Event, FilamentId, Request};
use base::Instant;
use std::sync::TryLockError;

impl Worker<'_> {
    pub(super) fn call(&mut self) -> State {
        let begin = self.now();
        self.hand_over_before(self.call_ns);
        let mut ready = std::mem::take(&mut self.ready);
        let units = ready.len() + self.hinted.len();
        let now = self.schedule_now();
        let mut called = None;
        for (filament, event) in ready.drain(..) {
            // Consecutive events of one filament are delivered in one call.
            if let Some(other) = called.replace(filament)
                && other != filament
            {
                self.call_one(other, now);
            }
            self.arrived.push(event);
        }
        if let Some(last) = called {
            self.call_one(last, now);
        }
        self.ready = ready;
        let mut hinted = std::mem::take(&mut self.hinted);
        for (at, filament) in hinted.drain(..) {
            // The schedule may have been shifted since the hint was taken.
            let now = now.max(at);
            self.done += 1;
            self.shared.filaments[filament as usize].handle(now, &mut self.arrived);
            if !self.arrived.is_empty() {
                self.call_one(filament, now);
            }
        }
        self.hinted = hinted;
        self.note_call(begin, units + self.requested.len());
        self.mind();
        State::Queue
    }

    /// Records the duration of calls with this many events and requests. A far longer time than
    /// usual was most likely a gap in processor time.
    fn note_call(&mut self, begin: u64, units: usize) {
        let now = self.now();
        let took = now.saturating_sub(begin);
        let each = took / units.max(1) as u64;
        if self.unit_ns == 0 {
            self.unit_ns = each;
        }
        if took > LONG_NS && each > 8 * self.unit_ns {
            self.watch.watched_ns += took;
            self.lose(begin, now);
        } else {
            self.spent.call_ns += took;
        }
        self.call_ns = (self.call_ns * 7 + took) / 8;
        self.unit_ns = (self.unit_ns * 7 + each) / 8;
    }

    /// Calls a filament with its events. If another worker is calling it, delivery is deferred.
    fn call_one(&mut self, id: FilamentId, now: u64) {
        let place = &self.shared.filaments[id as usize];
        let mut filament = match place.filament.try_lock() {
            Ok(filament) => filament,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.arrived.drain(..).for_each(|event| place.send(now, event));
                self.hints.push((now, id));
                return;
            }
        };
        for event in self.arrived.drain(..) {
            filament.step(Instant(now), event, &mut self.out);
        }
        drop(filament);
        self.requested.extend(self.out.drain(..).map(|request| (id, request)));
    }

    pub(super) fn queue(&mut self) -> State {
        let soon = self.schedule_now() + PRE_SPIN_NS;
        let end = self.shared.end_ns();
        let room = self.driver.room().min(4 * self.driver.batch_max());
        let mut crowded = false;
        let mut requested = std::mem::take(&mut self.requested);
        let (mut added, mut earliest) = (self.hints.len() as u64, NEVER);
        for (filament, request) in requested.drain(..) {
            let at = request.at().0;
            if at > end {
                continue;
            }
            added += 1;
            match request {
                Request::Io { io, tell, .. } => {
                    let pending = Pending { io, filament, tell };
                    let carries = at <= soon && self.carried.len() < room;
                    if carries {
                        self.carried.push((at, pending));
                        continue;
                    }
                    crowded |= at <= soon;
                    self.ios.push((at, pending));
                }
                Request::Timer { tag, .. } => self.send(filament, at, Event::Timer(tag)),
                Request::Send { to, envelope, .. } => {
                    self.send(to, at, Event::Message { from: filament, envelope });
                }
            }
            // Carried I/Os need no wake-up.
            earliest = earliest.min(at);
        }
        self.requested = requested;
        // Counted before other workers can see and complete it: otherwise no work would seem to
        // remain.
        self.shared.count(added, std::mem::take(&mut self.done));
        self.shared.ios.add(&self.order, &mut self.ios);
        self.shared.hints.add(&self.order, &mut self.hints);
        self.shared.rouse(earliest);
        if crowded && self.driver.room() <= self.carried.len() {
            // Others may have room for the rest.
            self.shared.wake_one();
        }
        if self.carried.is_empty() { State::Check } else { State::Execute }
    }

    fn send(&mut self, to: FilamentId, at: u64, event: Event) {
        let Some(place) = self.shared.filaments.get(to as usize) else {
            // No such filament: the message is dropped.
            self.done += 1;
            return;
        };
        place.send(at, event);
        self.hints.push((at, to));
    }
}
