//! Where the completions of one client arrive (BUDS §2.1, the completion port).

use crate::Error;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use store::Ticket;
use store::transaction::Reply;

/// An answer, and which request it is for.
pub type Completion = (Ticket, Result<Reply, Error>);

/// Completions that nobody has looked at.
#[derive(Debug, Default)]
pub(crate) struct Port {
    arrived: Mutex<VecDeque<Completion>>,
    wake: Condvar,
    /// Who is woken besides, if it parks instead of waiting here.
    parked: Option<Thread>,
}

impl Port {
    /// A port whose owner parks its thread, perhaps because it waits for other things too.
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

    /// The next completion; sleeps until there is one.
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

    /// The next completion, if there is one.
    pub(crate) fn try_next(&self) -> Option<Completion> {
        lock(&self.arrived).pop_front()
    }
}

/// Nothing is done under these locks that could end in between.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
