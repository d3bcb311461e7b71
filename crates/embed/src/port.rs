//! Where the completions of one client arrive (BUDS §2.1, the completion port).

use crate::Error;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use store::Ticket;
use store::transaction::Reply;

/// An answer, and which request it is for.
pub type Completion = (Ticket, Result<Reply, Error>);

/// Completions that nobody has looked at.
#[derive(Debug, Default)]
pub(crate) struct Port {
    arrived: Mutex<VecDeque<Completion>>,
    wake: Condvar,
}

impl Port {
    pub(crate) fn push(&self, completion: Completion) {
        lock(&self.arrived).push_back(completion);
        self.wake.notify_one();
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
