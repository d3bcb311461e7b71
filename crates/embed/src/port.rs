//! Completion port of a client (BUDS §2.1).

use crate::Error;
use engine::Reply;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use store::Ticket;

/// A reply, with the ticket of its request.
pub type Completion = (Ticket, Result<Reply, Error>);

/// Completions not yet received.
#[derive(Debug, Default)]
pub(crate) struct Port {
    arrived: Mutex<VecDeque<Completion>>,
    wake: Condvar,
    /// Thread to unpark, if the owner parks instead of waiting here.
    parked: Option<Thread>,
}

impl Port {
    /// Returns a port whose owner parks its thread, for example because it also waits for other
    /// events.
    pub(crate) fn of(parked: Thread) -> Port {
        Port { parked: Some(parked), ..Port::default() }
    }

    pub(crate) fn push(&self, completion: Completion) {
        lock(&self.arrived).push_back(completion);
        self.wake.notify_one();
        if let Some(parked) = &self.parked {
            parked.unpark();
        }
    }

    /// Returns the next completion, sleeping until there is one.
    pub(crate) fn wait(&self) -> Completion {
        let mut arrived = lock(&self.arrived);
        loop {
            match arrived.pop_front() {
                Some(completion) => return completion,
                None => {
                    arrived = self.wake.wait(arrived).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Returns the next completion, if there is one.
    pub(crate) fn try_next(&self) -> Option<Completion> {
        lock(&self.arrived).pop_front()
    }
}

/// Locks a mutex, ignoring poison: no critical section can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
