//! Requests of the kernel in progress, and their interruption.
//!
//! The kernel interrupts a request when its caller gets any signal; a killed caller waits until the
//! request is answered. A signal alone does not end a request that the server answers soon, because
//! programs do not expect `EINTR` from files. After [`GRACE`] the request is flushed at the server
//! and fails with `EINTR`; after twice that time the reply is sent in its place, whatever its
//! thread waits for. So a caller of a server that has stopped can be killed.

use crate::lock;
use client::Interrupt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that an interrupted request may still take.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// Request in progress.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) interrupt: Interrupt,
    /// Whether its reply was sent, perhaps by another thread.
    answered: AtomicBool,
}

impl Flight {
    /// Claims the right to reply. Returns whether nobody had it before.
    pub(crate) fn claim(&self) -> bool {
        !self.answered.swap(true, Ordering::SeqCst)
    }
}

/// Next measure against an interrupted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// End its waits.
    Interrupt,
    /// Reply in its place.
    Reply,
}

/// Measure at a time.
#[derive(Debug)]
struct Alarm {
    at: Instant,
    unique: u64,
    measure: Measure,
}

#[derive(Debug, Default)]
struct State {
    flights: BTreeMap<u64, Arc<Flight>>,
    alarms: Vec<Alarm>,
    is_over: bool,
}

/// Table of requests in progress.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    state: Mutex<State>,
    changed: Condvar,
}

impl Flights {
    /// Adds a request.
    pub(crate) fn begin(&self, unique: u64) -> Arc<Flight> {
        let flight = Arc::new(Flight::default());
        lock(&self.state).flights.insert(unique, flight.clone());
        flight
    }

    /// Removes a request.
    pub(crate) fn end(&self, unique: u64) {
        lock(&self.state).flights.remove(&unique);
    }

    /// Reports whether no request is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).flights.is_empty()
    }

    /// Records the kernel's interrupt of a request. Returns whether the request is known.
    pub(crate) fn interrupt(&self, unique: u64, now: Instant, grace: Duration) -> bool {
        let mut state = lock(&self.state);
        if !state.flights.contains_key(&unique) {
            return false;
        }
        if state.alarms.iter().all(|alarm| alarm.unique != unique) {
            state.alarms.push(Alarm { at: now + grace, unique, measure: Measure::Interrupt });
            self.changed.notify_all();
        }
        true
    }

    /// Removes the measures that are due, and schedules what follows them.
    fn due(state: &mut State, now: Instant) -> Vec<(u64, Arc<Flight>, Measure)> {
        let mut due = Vec::new();
        let State { flights, alarms, .. } = state;
        alarms.retain_mut(|alarm| {
            let Some(flight) = flights.get(&alarm.unique) else { return false };
            if alarm.at > now {
                return true;
            }
            due.push((alarm.unique, flight.clone(), alarm.measure));
            let goes_on = alarm.measure == Measure::Interrupt;
            (alarm.at, alarm.measure) = (now + GRACE, Measure::Reply);
            goes_on
        });
        due
    }

    /// Waits for measures, until the end of the session.
    #[allow(clippy::disallowed_methods, reason = "the thread that waits for the time")]
    pub(crate) fn wait(&self) -> Option<Vec<(u64, Arc<Flight>, Measure)>> {
        let mut state = lock(&self.state);
        while !state.is_over {
            let now = Instant::now();
            let due = Flights::due(&mut state, now);
            if !due.is_empty() {
                return Some(due);
            }
            state = match state.alarms.iter().map(|alarm| alarm.at).min() {
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        None
    }

    /// Waits this long, or until the end of the session. Returns whether it goes on.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.is_over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a start for the arithmetic")]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_request_is_flushed_then_answered() {
        let flights = Flights::default();
        let now = Instant::now();
        assert!(!flights.interrupt(7, now, GRACE));
        let flight = flights.begin(7);
        assert!(flights.interrupt(7, now, GRACE));
        // A second signal changes nothing.
        assert!(flights.interrupt(7, now + GRACE / 2, GRACE));
        let measures = |now| {
            let mut state = lock(&flights.state);
            Flights::due(&mut state, now).iter().map(|it| it.2).collect::<Vec<_>>()
        };
        assert_eq!(measures(now), []);
        assert_eq!(measures(now + GRACE), [Measure::Interrupt]);
        assert_eq!(measures(now + GRACE), []);
        assert_eq!(measures(now + 2 * GRACE), [Measure::Reply]);
        assert_eq!(measures(now + 4 * GRACE), []);
        assert!(flight.claim());
        assert!(!flight.claim());
    }

    #[test]
    fn a_request_that_ends_has_no_measures() {
        let flights = Flights::default();
        let now = Instant::now();
        flights.begin(7);
        flights.interrupt(7, now, GRACE);
        flights.end(7);
        assert!(flights.is_empty());
        assert!(Flights::due(&mut lock(&flights.state), now + GRACE).is_empty());
        assert!(lock(&flights.state).alarms.is_empty());
    }
}
