//! A bounded pool of threads that may wait, in front of it one queue.
//!
//! Threads start when there is work and none is idle, and end after some idle seconds. The queue
//! has no limit of its own: it cannot grow past the operations that the node admits. Completions
//! come back through a list; a thread wakes the node only if that sleeps.
//!
//! Work on file systems that may hang has a queue of its own and at most half of the threads, so
//! that a dead network mount does not take all of them.
#![allow(clippy::disallowed_methods, reason = "this is where the threads are")]

use crate::clock::Clock;
use crate::host::Host;
use crate::job::{Finished, Job};
use crate::memory::Memory;
use base::op::{Done, OpId, Parcel, Span};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a thread stays without work.
const IDLE: Duration = Duration::from_secs(5);

/// How long the end of the reactor waits for work that is under way. What hangs longer (a dead
/// network mount) is left behind; it refers to nothing that is freed.
const FAREWELL: Duration = Duration::from_secs(5);

/// How much there is to do, and was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Jobs waiting for a thread.
    pub queued: usize,
    /// Jobs being done.
    pub running: usize,
    /// Most jobs that ever waited.
    pub queued_max: usize,
    /// Threads at present.
    pub threads: usize,
    /// Jobs begun since the start.
    pub started: u64,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// Jobs on file systems that may hang.
    far: VecDeque<Job>,
    far_running: usize,
    counts: PoolStatistics,
    idle: usize,
    stopping: bool,
}

#[derive(Debug)]
struct Shared {
    host: Arc<Host>,
    clock: Clock,
    threads_max: usize,
    /// Most threads that work on file systems that may hang.
    far_max: usize,
    state: Mutex<State>,
    /// There is work, or the end has come.
    work: Condvar,
    /// A thread has ended its job.
    rest: Condvar,
    finished: Mutex<VecDeque<Finished>>,
    /// Whether `finished` has anything; read without taking the lock.
    any_finished: AtomicBool,
    /// The node is about to sleep, or sleeps, and has to be woken.
    asleep: AtomicBool,
    wake: OwnedFd,
}

/// Where other threads leave something for a world.
#[derive(Clone, Debug)]
pub struct Mailbox(Arc<Shared>);

impl Mailbox {
    /// Leaves something there, and wakes the world if it sleeps.
    pub(crate) fn post(&self, parcel: Parcel) {
        self.0.deliver(OpId::UNASKED, Done::Parcel(parcel));
    }
}

/// The pool, as the node's thread sees it.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Reused for collecting.
    collected: VecDeque<Finished>,
}

impl Pool {
    /// A pool without threads yet.
    pub(crate) fn new(host: Arc<Host>, clock: Clock, threads_max: usize) -> io::Result<Pool> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared {
            host,
            clock,
            threads_max: threads_max.max(1),
            far_max: (threads_max / 2).max(1),
            state: Mutex::default(),
            work: Condvar::new(),
            rest: Condvar::new(),
            finished: Mutex::default(),
            any_finished: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wake,
        };
        let collected = VecDeque::new();
        Ok(Pool { shared: Arc::new(shared), collected })
    }

    /// Where other threads leave something for this world.
    pub(crate) fn mailbox(&self) -> Mailbox {
        Mailbox(Arc::clone(&self.shared))
    }

    /// Becomes readable when the node has to wake up.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Takes away the readability of [`Pool::wake`].
    pub(crate) fn awake(&self) {
        let mut count = [0; 8];
        // Nothing to read is as good: the descriptor never blocks.
        let _ = rustix::io::read(&self.shared.wake, &mut count);
    }

    /// Queues a job.
    pub(crate) fn push(&mut self, job: Job) {
        let mut state = self.shared.state();
        if job.far {
            state.far.push_back(job);
        } else {
            state.queue.push_back(job);
        }
        state.counts.queued_max = state.counts.queued_max.max(state.queued());
        let ready = state.ready(self.shared.far_max);
        if state.idle >= ready || state.counts.threads >= self.shared.threads_max {
            let anybody = state.idle > 0;
            drop(state);
            if anybody {
                self.shared.work.notify_one();
            }
            return;
        }
        state.counts.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        // A thread begins with the identity of the one that starts it.
        let own = shared.host.own.be_server();
        let thread = std::thread::Builder::new().name("upcall-pool".into());
        if own.is_err() || thread.spawn(move || shared.serve()).is_err() {
            self.do_without_thread();
        }
    }

    /// The host gives no thread: if there is no other, the node does the work itself.
    fn do_without_thread(&self) {
        let mut state = self.shared.state();
        state.counts.threads -= 1;
        if state.counts.threads > 0 {
            return;
        }
        if let Some(job) = state.begin(self.shared.far_max) {
            let far = job.far;
            drop(state);
            let finished = job.run(&self.shared.host, &self.shared.clock, &mut Memory::default());
            self.shared.finish(finished);
            self.shared.state().end(far);
        }
    }

    /// Takes a job out of the queue, if it is still there, and completes it as cancelled.
    pub(crate) fn cancel(&self, id: OpId) {
        let mut state = self.shared.state();
        let Some(job) = state.remove(id) else { return };
        drop(state);
        self.shared.finish(job.cancel());
    }

    /// Something that has been finished, in order.
    pub(crate) fn next_finished(&mut self) -> Option<Finished> {
        if self.collected.is_empty() && self.shared.any_finished.load(Ordering::Acquire) {
            let mut finished = lock(&self.shared.finished);
            self.shared.any_finished.store(false, Ordering::Release);
            mem::swap(&mut *finished, &mut self.collected);
        }
        self.collected.pop_front()
    }

    /// Whether something has been finished.
    pub(crate) fn any_finished(&self) -> bool {
        self.shared.any_finished.load(Ordering::Acquire)
    }

    /// Announces that the node will sleep until woken. `false`: something has just been finished.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.shared.asleep.store(true, Ordering::SeqCst);
        if self.shared.any_finished.load(Ordering::SeqCst) {
            self.shared.asleep.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// The node is awake.
    pub(crate) fn wake_up(&self) {
        self.shared.asleep.store(false, Ordering::SeqCst);
    }

    /// How much there is to do.
    pub(crate) fn statistics(&self) -> PoolStatistics {
        let state = self.shared.state();
        PoolStatistics { queued: state.queued(), ..state.counts }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopping = true;
        let queue = mem::take(&mut state.queue);
        let far = mem::take(&mut state.far);
        self.shared.work.notify_all();
        let all = |state: &mut State| state.counts.running > 0;
        // Whether or not the time was enough.
        let _ = self.shared.rest.wait_timeout_while(state, FAREWELL, all);
        for job in queue.into_iter().chain(far) {
            job.cancel();
        }
    }
}

impl State {
    fn queued(&self) -> usize {
        self.queue.len() + self.far.len()
    }

    /// How many jobs could be begun if there were threads.
    fn ready(&self, far_max: usize) -> usize {
        self.queue.len() + self.far.len().min(far_max.saturating_sub(self.far_running))
    }

    /// Takes the next job. Neither queue waits for the other to be empty.
    fn begin(&mut self, far_max: usize) -> Option<Job> {
        let far_first = self.far_running == 0 || self.queue.is_empty();
        let far = if far_first && self.far_running < far_max { self.far.pop_front() } else { None };
        let job = far.or_else(|| self.queue.pop_front())?;
        self.far_running += usize::from(job.far);
        self.counts.running += 1;
        self.counts.started += 1;
        Some(job)
    }

    /// A job has ended.
    fn end(&mut self, far: bool) {
        self.far_running -= usize::from(far);
        self.counts.running -= 1;
    }

    /// Takes a job out that was not begun.
    fn remove(&mut self, id: OpId) -> Option<Job> {
        for queue in [&mut self.queue, &mut self.far] {
            if let Some(index) = queue.iter().position(|job| job.id == Some(id)) {
                return queue.remove(index);
            }
        }
        None
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The life of a thread.
    fn serve(&self) {
        let mut memory = Memory::default();
        let mut state = self.state();
        loop {
            if let Some(job) = state.begin(self.far_max) {
                let far = job.far;
                drop(state);
                let work = AssertUnwindSafe(|| job.run(&self.host, &self.clock, &mut memory));
                // A mistake of this program: an operation that never completes would hide it.
                let finished = catch_unwind(work).unwrap_or_else(|_| std::process::abort());
                self.finish(finished);
                state = self.state();
                state.end(far);
                self.rest.notify_one();
                continue;
            }
            if state.stopping {
                break;
            }
            state.idle += 1;
            let idle = |state: &mut State| state.ready(self.far_max) == 0 && !state.stopping;
            let waited = self.work.wait_timeout_while(state, IDLE, idle);
            let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if waited.timed_out() && state.ready(self.far_max) == 0 {
                break;
            }
        }
        state.counts.threads -= 1;
    }

    /// Something comes from another thread's world.
    fn deliver(&self, id: OpId, done: Done) {
        let now = self.clock.now();
        let span = Span { submitted: now, started: now, finished: now };
        self.finish(Finished { event: Some((id, done)), used: None, span });
    }

    fn finish(&self, finished: Finished) {
        lock(&self.finished).push_back(finished);
        self.any_finished.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // The counter cannot overflow: the node reads it each time it wakes up.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
