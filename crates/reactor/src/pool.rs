//! A bounded pool of threads that may block, with one queue.
//!
//! Threads start when there is work and none is idle, and end after some idle seconds. The queue
//! has no limit of its own: it is bounded by the node's admission of operations. Completions return
//! through a list; a thread wakes the node only if it sleeps.
//!
//! Work on file systems that may block has threads of its own, a few for each file system
//! ([`lanes`]), so that a dead network mount delays only operations on itself.
#![allow(clippy::disallowed_methods, reason = "this is where the threads are")]

pub(crate) mod lanes;

use crate::clock::Clock;
use crate::host::Host;
use crate::job::{Finished, Job, JobOutcome};
use crate::memory::Memory;
use base::op::{Done, Envelope, OpId, Span, Unresponsive};
use base::{Error, Instant};
use lanes::{Hung, LANES_MAX, Lanes, Limits, Ticket};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time that a thread stays without work.
const IDLE: Duration = Duration::from_secs(5);

/// Maximum time that the end of the reactor waits for running jobs. Those that hang longer (on a
/// dead network mount) are left behind; they refer to nothing that is freed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Statistics of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Jobs waiting for a thread.
    pub queued: usize,
    /// Jobs running.
    pub running: usize,
    /// Maximum number of jobs that ever waited.
    pub queued_max: usize,
    /// Present number of threads.
    pub threads: usize,
    /// Number of jobs started.
    pub started: u64,
}

#[derive(Debug)]
struct State {
    jobs: Lanes<Job>,
    /// Running operations, with whether they were cancelled meanwhile: a cancelled one is not
    /// queued again.
    begun: BTreeMap<OpId, bool>,
    counts: PoolStatistics,
    idle: usize,
    stopping: bool,
}

#[derive(Debug)]
struct Shared {
    host: Arc<Host>,
    clock: Clock,
    threads_max: usize,
    state: Mutex<State>,
    /// Signals that there is work, or that the reactor ends.
    work: Condvar,
    /// Signals the end of a job.
    rest: Condvar,
    finished: Mutex<VecDeque<Finished>>,
    /// Whether `finished` has entries; read without taking the lock.
    any_finished: AtomicBool,
    /// Whether long jobs wait; read without taking the lock.
    long_wait: AtomicBool,
    /// Whether the node is about to sleep, or sleeps, and has to be woken.
    asleep: AtomicBool,
    wake: OwnedFd,
}

/// Mailbox of a world, for messages of other threads.
#[derive(Clone, Debug)]
pub struct Mailbox(Arc<Shared>);

impl Mailbox {
    /// Delivers a message, and wakes the world if it sleeps.
    pub(crate) fn post(&self, envelope: Envelope) {
        self.0.deliver(OpId::UNREQUESTED, Done::Envelope(envelope));
    }
}

/// The pool's handle of the node's thread.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// Number of jobs pushed and not collected.
    outstanding: usize,
    /// Finished jobs being collected.
    collected: VecDeque<Finished>,
}

impl Pool {
    /// Returns a pool without threads yet.
    pub(crate) fn new(host: Arc<Host>, clock: Clock, threads_max: usize) -> io::Result<Pool> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = Limits::new(threads_max, processors);
        let (jobs, counts) = (Lanes::new(limits), PoolStatistics::default());
        let shared = Shared {
            host,
            clock,
            threads_max: limits.threads(),
            state: Mutex::new(State {
                jobs,
                begun: BTreeMap::new(),
                counts,
                idle: 0,
                stopping: false,
            }),
            work: Condvar::new(),
            rest: Condvar::new(),
            finished: Mutex::default(),
            any_finished: AtomicBool::new(false),
            long_wait: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wake,
        };
        let collected = VecDeque::new();
        Ok(Pool { shared: Arc::new(shared), outstanding: 0, collected })
    }

    /// Returns the mailbox of this world.
    pub(crate) fn mailbox(&self) -> Mailbox {
        Mailbox(Arc::clone(&self.shared))
    }

    /// Returns a descriptor that becomes readable when the node has to wake up.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Resets the readability of [`Pool::wake`].
    pub(crate) fn awake(&self) {
        let mut count = [0; 8];
        // An empty counter is fine: the descriptor never blocks.
        let _ = rustix::io::read(&self.shared.wake, &mut count);
    }

    /// Queues a job.
    pub(crate) fn push(&mut self, job: Job) {
        assert_ne!(job.id, Some(OpId::UNREQUESTED), "that name is for what nobody asked for");
        self.outstanding += 1;
        let mut state = self.shared.state();
        state.push(job);
        if !self.shared.staff(state, 0) {
            self.do_without_thread();
        }
    }

    /// Handles the failure to start a thread: if none does local work, the node does it itself.
    /// Jobs that may block wait for a thread.
    fn do_without_thread(&self) {
        let mut state = self.shared.state();
        while state.jobs.only_lanes_run()
            && let Some((job, ticket)) = state.begin_local(&self.shared)
        {
            drop(state);
            let ran = job.run(&self.shared.host, &self.shared.clock, &mut Memory::default());
            self.shared.end(ran, &ticket);
            state = self.shared.state();
        }
    }

    /// Cancels a queued job, or one that will have to be queued again; returns whether there is
    /// such a job.
    pub(crate) fn cancel(&self, id: OpId) -> bool {
        let mut state = self.shared.state();
        let Some(job) = state.jobs.remove(id) else {
            let begun = state.begun.get_mut(&id);
            return begun.map(|cancelled| *cancelled = true).is_some();
        };
        drop(state);
        self.shared.finish(job.cancel());
        true
    }

    /// Returns the next finished job, in order.
    pub(crate) fn next_finished(&mut self) -> Option<Finished> {
        if self.collected.is_empty() && self.shared.any_finished.load(Ordering::Acquire) {
            let mut finished = lock(&self.shared.finished);
            self.shared.any_finished.store(false, Ordering::Release);
            mem::swap(&mut *finished, &mut self.collected);
        }
        let finished = self.collected.pop_front()?;
        // Messages of other threads are no jobs.
        let is_job = !matches!(finished.event, Some((_, Done::Envelope(_))));
        assert!(self.outstanding > 0 || !is_job, "a job ends once");
        self.outstanding -= usize::from(is_job);
        Some(finished)
    }

    /// Returns whether any job is outstanding.
    pub(crate) fn any_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Returns whether any job is finished.
    pub(crate) fn any_finished(&self) -> bool {
        self.shared.any_finished.load(Ordering::Acquire)
    }

    /// Announces that the node will sleep until woken; returns `false` if a job has just finished.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.shared.asleep.store(true, Ordering::SeqCst);
        if self.shared.any_finished.load(Ordering::SeqCst) {
            self.shared.asleep.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Announces that the node is awake.
    pub(crate) fn wake_up(&self) {
        self.shared.asleep.store(false, Ordering::SeqCst);
    }

    /// Returns the statistics.
    pub(crate) fn statistics(&self) -> PoolStatistics {
        let state = self.shared.state();
        PoolStatistics { queued: state.jobs.len(), ..state.counts }
    }

    /// Starts long jobs that are no longer held back by others; returns the time of the next check,
    /// if any waits.
    pub(crate) fn look(&self, now: Instant) -> Option<Instant> {
        if !self.shared.long_wait.load(Ordering::Relaxed) {
            return None;
        }
        self.shared.staff(self.shared.state(), 0);
        Some(now + lanes::TIMEOUT)
    }

    /// Returns the start of the oldest running job that may block.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.shared.state().jobs.oldest()
    }

    /// Returns file systems and services that have occupied a job for at least `limit`.
    pub(crate) fn unresponsive(&self, now: Instant, limit: Duration) -> Vec<Unresponsive> {
        let hung = self.shared.state().jobs.hung(now, limit);
        if hung.is_empty() {
            return Vec::new();
        }
        let table = self.shared.host.mounts.table();
        let describe = |hung: Hung| Unresponsive {
            name: hung.lane.describe(&table),
            since: hung.since,
            running: hung.running,
            waiting: hung.waiting,
        };
        hung.into_iter().map(describe).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopping = true;
        let left = state.jobs.drain();
        self.shared.work.notify_all();
        let all = |state: &mut State| state.counts.running > 0;
        // Even if the time was not enough.
        drop(self.shared.rest.wait_timeout_while(state, FAREWELL, all));
        // Closing a file on an unresponsive file system may block, too: not here.
        let (hanging, local): (Vec<Job>, Vec<Job>) =
            left.into_iter().partition(|job| !job.lanes.is_empty());
        local.into_iter().for_each(|job| drop(job.cancel()));
        if !hanging.is_empty() {
            let close = move || hanging.into_iter().for_each(|job| drop(job.cancel()));
            // Without a thread they are closed when the closure is dropped.
            let _ = std::thread::Builder::new().name("upcall-close".into()).spawn(close);
        }
    }
}

impl State {
    fn push(&mut self, job: Job) {
        self.jobs.push(job);
        self.counts.queued_max = self.counts.queued_max.max(self.jobs.len());
    }

    /// Takes the next local job.
    fn begin_local(&mut self, shared: &Shared) -> Option<(Job, Ticket)> {
        let begun = self.jobs.begin_local(shared.clock.now())?;
        self.note(&begun.0);
        Some(begun)
    }

    fn note(&mut self, job: &Job) {
        self.counts.running += 1;
        self.counts.started += 1;
        let before = job.id.and_then(|id| self.begun.insert(id, false));
        assert!(before.is_none(), "an operation is done once at a time");
    }

    /// Takes the next job.
    fn begin(&mut self, shared: &Shared) -> Option<(Job, Ticket)> {
        let now = shared.clock.now();
        let begun = self.jobs.begin(now)?;
        self.note(&begun.0);
        Some(begun)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Wakes or starts a thread for each job that can run, within the limits, except for `free`
    /// jobs, whose threads are about to take one; returns whether all were started.
    fn staff(self: &Arc<Shared>, mut state: MutexGuard<'_, State>, free: usize) -> bool {
        let wanted = state.jobs.ready(self.clock.now()).saturating_sub(free);
        self.long_wait.store(state.jobs.any_long_waits(), Ordering::Relaxed);
        let woken = wanted.min(state.idle);
        let missing = (wanted - woken).min(self.threads_max - state.counts.threads);
        assert!(woken <= state.idle, "only who rests is woken");
        state.counts.threads += missing;
        assert!(state.counts.threads <= self.threads_max, "threads are limited");
        drop(state);
        (0..woken).for_each(|_| self.work.notify_one());
        let started = (0..missing).take_while(|_| self.start()).count();
        if started < missing {
            self.state().counts.threads -= missing - started;
        }
        started == missing
    }

    /// Starts a thread; returns whether that succeeded.
    fn start(self: &Arc<Shared>) -> bool {
        let shared = Arc::clone(self);
        // A thread inherits the identity of its creator.
        let own = self.host.own.be_server();
        let thread = std::thread::Builder::new().name("upcall-pool".into());
        // A panic is a bug: an operation that never completes would hide it.
        let serve = AssertUnwindSafe(move || shared.serve());
        let serve = || catch_unwind(serve).unwrap_or_else(|_| std::process::abort());
        own.is_ok() && thread.spawn(serve).is_ok()
    }

    /// Main loop of a thread.
    fn serve(self: &Arc<Shared>) {
        let mut memory = Memory::default();
        let mut state = self.state();
        loop {
            if let Some((job, ticket)) = state.begin(self) {
                drop(state);
                let ran = job.run(&self.host, &self.clock, &mut memory);
                self.end(ran, &ticket);
                state = self.state();
                continue;
            }
            if state.stopping {
                break;
            }
            state.idle += 1;
            let ready = |state: &State| state.jobs.ready(self.clock.now()) > 0;
            let idle = |state: &mut State| !ready(state) && !state.stopping;
            let waited = self.work.wait_timeout_while(state, IDLE, idle);
            let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            assert!(state.idle < state.counts.threads, "a thread that takes jobs is not idle");
            if waited.timed_out() && !ready(&state) {
                break;
            }
        }
        state.counts.threads -= 1;
    }

    /// Completes a job, or queues it again for the lane that it leads to, and frees the thread.
    fn end(self: &Arc<Shared>, ran: JobOutcome, ticket: &Ticket) {
        let mut state = self.state();
        state.jobs.end(ticket);
        assert!(state.counts.running > 0, "a job ends once");
        state.counts.running -= 1;
        let finished = match ran {
            JobOutcome::Ended(finished) => {
                finished.event.iter().for_each(|(id, _)| _ = state.begun.remove(id));
                Some(finished)
            }
            JobOutcome::Again(job) => {
                let cancelled = job.id.and_then(|id| state.begun.remove(&id)).unwrap_or(false);
                if cancelled {
                    Some(job.cancel())
                } else if job.lanes.len() > LANES_MAX {
                    Some(job.fail(Error::Busy))
                } else {
                    state.push(job);
                    None
                }
            }
        };
        // Jobs waiting for a slot of this lane can start now, too.
        self.staff(state, 1);
        finished.into_iter().for_each(|finished| self.finish(finished));
        self.rest.notify_one();
    }

    /// Delivers a message of another thread's world.
    fn deliver(&self, id: OpId, done: Done) {
        let now = self.clock.now();
        let span = Span { submitted: now, started: now, finished: now };
        let event = Some((id, done));
        self.finish(Finished { event, used: None, span, opened: Vec::new() });
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
