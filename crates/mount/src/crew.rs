//! Threads of a session: some wait for the kernel's next request, the others perform one.
//!
//! At least one thread always reads, so interrupts are seen while all other threads wait for the
//! server. At the limit of threads the last reader only queues requests.

use crate::lock;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Maximum number of threads.
const THREADS_MAX: usize = 128;

/// Maximum number of threads that wait for requests.
const READERS_MAX: usize = 8;

/// Next step of a thread that has read a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Performs it.
    Serve,
    /// Starts another thread, which reads, and performs it.
    SpawnAndServe,
    /// Queues it, and reads on.
    Queue,
}

/// Next step of a thread after a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Performs a request that was queued.
    Serve(Vec<u8>),
    /// Reads the next request.
    Read,
    /// Ends: enough threads read.
    Exit,
}

/// Accounting of threads, and requests that wait for one.
#[derive(Debug, Default)]
struct State {
    readers: usize,
    workers: usize,
    backlog: VecDeque<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Crew(Mutex<State>);

impl Crew {
    /// Registers a new thread, as a reader.
    pub(crate) fn join(&self) {
        lock(&self.0).readers += 1;
    }

    /// Decides about a request that the calling reader has got.
    pub(crate) fn begin(&self) -> Turn {
        let mut state = lock(&self.0);
        assert!(state.readers > 0, "the calling thread reads");
        let is_last = state.readers == 1;
        if is_last && state.workers + 1 >= THREADS_MAX {
            return Turn::Queue;
        }
        state.readers -= 1;
        state.workers += 1;
        if is_last { Turn::SpawnAndServe } else { Turn::Serve }
    }

    /// Queues a request.
    pub(crate) fn queue(&self, unique: u64, message: Vec<u8>) {
        lock(&self.0).backlog.push_back((unique, message));
    }

    /// Removes a request from the queue, because it is interrupted. Returns whether it was there.
    pub(crate) fn remove(&self, unique: u64) -> bool {
        let backlog = &mut lock(&self.0).backlog;
        let before = backlog.len();
        backlog.retain(|(number, _)| *number != unique);
        backlog.len() < before
    }

    /// Returns what the calling worker does after its request.
    pub(crate) fn end(&self) -> After {
        let mut state = lock(&self.0);
        assert!(state.workers > 0, "the calling thread works");
        if let Some((_, message)) = state.backlog.pop_front() {
            return After::Serve(message);
        }
        state.workers -= 1;
        if state.readers >= READERS_MAX {
            return After::Exit;
        }
        state.readers += 1;
        After::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_always_reads() {
        let crew = Crew::default();
        crew.join();
        for _ in 1..THREADS_MAX {
            assert_eq!(crew.begin(), Turn::SpawnAndServe);
            crew.join();
        }
        assert_eq!(crew.begin(), Turn::Queue);
        crew.queue(7, b"seven".to_vec());
        crew.queue(8, b"eight".to_vec());
        assert!(crew.remove(7));
        assert!(!crew.remove(7));
        assert_eq!(crew.end(), After::Serve(b"eight".to_vec()));
        for _ in 1..READERS_MAX {
            assert_eq!(crew.end(), After::Read);
        }
        assert_eq!(crew.end(), After::Exit);
        assert_eq!(crew.begin(), Turn::Serve);
    }
}
