//! Threads of a session: some wait for the kernel's next request, the others perform one.
//!
//! At least one thread always reads, so interrupts are seen while all other threads wait for the
//! server. At the limit of threads the last reader only queues requests. Requests that may wait for
//! other clients, such as those for locks, have threads of their own: what they wait for may be in
//! that queue.

use crate::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

/// Maximum number of threads.
const THREADS_MAX: usize = 128;

/// Maximum number of threads that wait for requests.
const READERS_MAX: usize = 8;

/// Maximum number of requests that wait for other clients: of all users, and of one.
const WAITING_MAX: usize = 1024;
const WAITING_OF_USER_MAX: usize = 256;

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
    /// Number of requests of each user that wait for other clients.
    waiting: BTreeMap<u32, usize>,
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

    /// Begins a request of a user that may wait for other clients. Returns whether there is room.
    pub(crate) fn begin_waiting(&self, user: u32) -> bool {
        let waiting = &mut lock(&self.0).waiting;
        let all: usize = waiting.values().sum();
        let own = waiting.get(&user).copied().unwrap_or(0);
        let has_room = all < WAITING_MAX && own < WAITING_OF_USER_MAX;
        if has_room {
            waiting.insert(user, own + 1);
        }
        has_room
    }

    /// Ends a request that has waited.
    pub(crate) fn end_waiting(&self, user: u32) {
        let waiting = &mut lock(&self.0).waiting;
        let own = waiting.get_mut(&user).expect("it has begun");
        *own -= 1;
        if *own == 0 {
            waiting.remove(&user);
        }
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

    #[test]
    fn a_user_leaves_places_to_wait_to_others() {
        let crew = Crew::default();
        let begun = |user| (0..2 * WAITING_MAX).take_while(|_| crew.begin_waiting(user)).count();
        assert_eq!(begun(1), WAITING_OF_USER_MAX);
        let others: usize = (2..10).map(begun).sum();
        assert_eq!(others, WAITING_MAX - WAITING_OF_USER_MAX);
        crew.end_waiting(1);
        assert!(crew.begin_waiting(20) && !crew.begin_waiting(20));
    }
}
