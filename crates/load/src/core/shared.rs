//! State shared by all workers.

use super::exchange::BatchExchange;
use super::lock::lock;
use super::policy::Policy;
use super::queue::Queue;
use super::{Calibration, Late, Options};
use crate::driver::Waker;
use crate::{Event, Filament, FilamentId, Io};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Partitions of each queue with several workers (paper, §5.1: two or three suffice).
const PARTS: usize = 3;

/// No worker.
pub(super) const NOBODY: u32 = u32::MAX;

/// Bits of a worker number.
const SLEEPER_BITS: u32 = 8;

/// Packs a sleeping worker and its wake-up time.
fn asleep(worker: u32, until: u64) -> u64 {
    until << SLEEPER_BITS | u64::from(worker)
}

/// I/O waiting for its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) io: Io,
    pub(super) filament: FilamentId,
    pub(super) tell: Option<u64>,
}

/// Filament with its inbox. They have separate locks so that sending to a filament never waits for
/// its execution.
pub(super) struct FilamentSlot {
    pub(super) filament: Mutex<Box<dyn Filament>>,
    inbox: Mutex<Vec<(u64, Event)>>,
}

impl FilamentSlot {
    /// Queues an event for delivery at `at`; the caller must also add a hint.
    pub(super) fn send(&self, at: u64, event: Event) {
        lock(&self.inbox).push((at, event));
    }

    /// Takes the events due by now, in order of time.
    pub(super) fn handle(&self, now: u64, into: &mut Vec<Event>) {
        let mut inbox = lock(&self.inbox);
        let mut due: Vec<_> = inbox.extract_if(.., |(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        into.extend(due.into_iter().map(|(_, event)| event));
    }
}

/// State shared by all workers.
pub(super) struct Shared {
    pub(super) filaments: Vec<FilamentSlot>,
    pub(super) ios: Queue<Pending>,
    /// Filaments that may have due events, and the times (the paper's *hints*).
    pub(super) hints: Queue<FilamentId>,
    /// Worker that watches the clock.
    pub(super) leader: AtomicU32,
    /// Worker selected as successor, while the leader still watches.
    pub(super) successor: AtomicU32,
    /// Worker that spins on the leader's heartbeat, to take over immediately.
    standby: AtomicU32,
    /// Time of the leader's last look at the clock in ns; stored only with a standby.
    beat: AtomicU64,
    /// Time of the last takeover from an unresponsive leader, in ns.
    relieved: AtomicU64,
    /// Whether the leader is in a possibly long operation without having handed over.
    neglected: AtomicBool,
    /// Wake-up time in ns of the present or former leader that sleeps, with its number in the low
    /// [`SLEEPER_BITS`]; 0 for none.
    asleep: AtomicU64,
    /// Workers that sleep or are about to.
    idle: Mutex<Vec<u32>>,
    wakers: Vec<OnceLock<Waker>>,
    /// Queued I/Os and hints, plus I/Os in flight.
    left: AtomicU64,
    over: AtomicBool,
    end: AtomicU64,
    pub(super) origin_ns: AtomicU64,
    /// Shift of the schedule, in ns.
    pub(super) shift: AtomicU64,
    policy: AtomicU8,
    policies: Mutex<Vec<(u64, String)>>,
    /// Last gap in the leader's processor time.
    gap: (AtomicU64, AtomicU64),
    /// Time for which the clock was watched, and the lost part of it, in ns.
    pub(super) watched: (AtomicU64, AtomicU64),
    pub(super) hand_overs: AtomicU64,
    stopped: Mutex<Option<String>>,
    /// Whether the run was stopped early.
    halted: AtomicBool,
    pub(super) late: Late,
    pub(super) exchange: BatchExchange,
    pub(super) workers: usize,
    /// Wake-up latency in ns: median and 99th percentile.
    pub(super) wake_ns: (u64, u64),
}

impl Shared {
    pub(super) fn new(
        filaments: Vec<Box<dyn Filament>>,
        options: &Options,
        workers: usize,
        calibration: &Calibration,
    ) -> Shared {
        let parts = if workers > 1 { PARTS } else { 1 };
        let place = |filament| FilamentSlot {
            filament: Mutex::new(filament),
            inbox: Mutex::new(vec![(0, Event::Started)]),
        };
        let shared = Shared {
            filaments: filaments.into_iter().map(place).collect(),
            ios: Queue::new(parts),
            hints: Queue::new(parts),
            leader: AtomicU32::new(NOBODY),
            successor: AtomicU32::new(NOBODY),
            standby: AtomicU32::new(NOBODY),
            beat: AtomicU64::new(0),
            relieved: AtomicU64::new(0),
            neglected: AtomicBool::new(false),
            asleep: AtomicU64::new(0),
            idle: Mutex::default(),
            wakers: (0..workers).map(|_| OnceLock::new()).collect(),
            left: AtomicU64::new(0),
            over: AtomicBool::new(false),
            end: AtomicU64::new(u64::try_from(options.length.as_nanos()).unwrap_or(u64::MAX)),
            origin_ns: AtomicU64::new(0),
            shift: AtomicU64::new(0),
            policy: AtomicU8::new(0),
            policies: Mutex::default(),
            gap: (AtomicU64::new(0), AtomicU64::new(0)),
            watched: (AtomicU64::new(0), AtomicU64::new(0)),
            hand_overs: AtomicU64::new(0),
            stopped: Mutex::default(),
            halted: AtomicBool::new(false),
            late: options.late,
            exchange: BatchExchange::new(workers, options.named),
            workers,
            wake_ns: calibration.wake_ns,
        };
        let mut hints = (0..shared.filaments.len()).map(|id| (0, id as FilamentId)).collect();
        shared.count(shared.filaments.len() as u64, 0);
        shared.hints.add(&[0], &mut hints);
        shared
    }

    // Termination.

    /// Adds to the remaining work, and subtracts completed work.
    pub(super) fn count(&self, added: u64, done: u64) {
        if added >= done {
            self.left.fetch_add(added - done, Ordering::AcqRel);
        } else {
            self.left.fetch_sub(done - added, Ordering::AcqRel);
        }
    }

    /// Reports whether no work remains.
    pub(super) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Shift of the schedule, in ns.
    pub(super) fn shift_ns(&self) -> u64 {
        self.shift.load(Ordering::Relaxed)
    }

    /// Remaining work.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// End of the schedule, in ns since the start.
    pub(super) fn end_ns(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Stops the schedule.
    pub(super) fn stop(&self, now: u64, reason: &str) {
        let mut stopped = lock(&self.stopped);
        if stopped.is_none() {
            *stopped = Some(reason.to_string());
            self.end.fetch_min(now, Ordering::Relaxed);
            self.halted.store(true, Ordering::Release);
            self.wake_all();
        }
    }

    /// Drops work due after the end; after a stop, all I/Os not yet issued.
    pub(super) fn cut(&self) {
        let end = self.end_ns();
        let ios = if self.halted.load(Ordering::Acquire) { 0 } else { end };
        if self.due() != super::queue::NEVER {
            let dropped = self.ios.cut(ios) + self.hints.cut(end);
            self.count(0, dropped);
        }
    }

    pub(super) fn stopped(&self) -> Option<String> {
        lock(&self.stopped).clone()
    }

    /// Ends all workers.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.wakers.iter().filter_map(OnceLock::get).for_each(Waker::wake);
    }

    /// Wakes a sleeping worker, if there is one.
    pub(super) fn wake_one(&self) {
        if let Some(next) = lock(&self.idle).pop() {
            self.wake(next);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    // Leadership.

    pub(super) fn set_waker(&self, worker: u32, waker: Waker) {
        // Each worker sets its own, once.
        let _ = self.wakers[worker as usize].set(waker);
    }

    /// Reports whether this worker leads, after taking a vacant lead.
    pub(super) fn clock_leader(&self, worker: u32) -> bool {
        match self.leader.load(Ordering::Acquire) {
            NOBODY => {
                let taken = (Ordering::AcqRel, Ordering::Acquire);
                let leads = self.leader.compare_exchange(NOBODY, worker, taken.0, taken.1);
                self.disinherit(worker);
                if leads.is_ok() {
                    self.neglect(false);
                }
                leads.is_ok()
            }
            leader => leader == worker,
        }
    }

    /// Gives up the lead: wakes a sleeping worker, or leaves it to the next one that checks.
    pub(super) fn hand_over(&self) {
        self.leader.store(NOBODY, Ordering::Release);
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
        if self.anybody_ready() {
            return;
        }
        if let Some(next) = lock(&self.idle).pop() {
            self.wake(next);
        }
    }

    /// Sets whether the leader neglects the clock; called only by the leader.
    pub(super) fn neglect(&self, neglected: bool) {
        if self.neglected.load(Ordering::Relaxed) != neglected {
            self.neglected.store(neglected, Ordering::Release);
        }
    }

    /// Takes the lead from a leader that neglects the clock.
    pub(super) fn take_over(&self, worker: u32) -> bool {
        if !self.neglected.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
        self.leader.store(worker, Ordering::Release);
        self.disinherit(worker);
        true
    }

    /// Records the leader's heartbeat.
    #[inline]
    pub(super) fn beat(&self, now: u64) {
        if self.anybody_ready() {
            self.beat.store(now, Ordering::Relaxed);
        }
    }

    /// Time of the leader's last heartbeat, on its own clock.
    pub(super) fn last_beat(&self) -> u64 {
        self.beat.load(Ordering::Relaxed)
    }

    /// Takes the lead from an unresponsive leader, which has been preempted.
    pub(super) fn relieve(&self, leader: u32, worker: u32, now: u64) -> bool {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        let relieved = self.leader.compare_exchange(leader, worker, taken.0, taken.1).is_ok();
        if relieved {
            self.neglect(false);
            self.relieved.store(now, Ordering::Release);
            self.hand_overs.fetch_add(1, Ordering::Relaxed);
        }
        relieved
    }

    /// Returns the end of the time without a leader watching the clock, if this worker did not
    /// watch from `start` to `end`.
    pub(super) fn unwatched_until(&self, worker: u32, start: u64, end: u64) -> u64 {
        let relieved = self.relieved.load(Ordering::Acquire);
        let by_another = self.leader.load(Ordering::Acquire) != worker;
        if by_another && (start..end).contains(&relieved) { relieved } else { end }
    }

    /// Clears the successor if it is this worker, which now leads.
    fn disinherit(&self, worker: u32) {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.successor.compare_exchange(worker, NOBODY, taken.0, taken.1);
    }

    /// Returns the earliest due time, or [`super::queue::NEVER`].
    pub(super) fn due(&self) -> u64 {
        self.ios.due().min(self.hints.due())
    }

    /// Becomes the standby, if there is none.
    pub(super) fn stand_by(&self, worker: u32) -> bool {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        self.standby.compare_exchange(NOBODY, worker, taken.0, taken.1).is_ok()
    }

    /// Ends the standby.
    pub(super) fn stand_down(&self) {
        self.standby.store(NOBODY, Ordering::Release);
    }

    /// Reports whether there is a standby.
    pub(super) fn anybody_ready(&self) -> bool {
        self.standby.load(Ordering::Acquire) != NOBODY
    }

    /// Selects and wakes a successor; the leader keeps watching until then. Returns whether there
    /// is one.
    pub(super) fn offer_lead(&self) -> bool {
        if self.successor.load(Ordering::Acquire) != NOBODY {
            return true;
        }
        let Some(next) = lock(&self.idle).pop() else {
            return false;
        };
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
        self.successor.store(next, Ordering::Release);
        self.wake(next);
        true
    }

    /// Takes the lead if this worker is the successor.
    pub(super) fn inherit(&self, worker: u32) {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        if self.successor.compare_exchange(worker, NOBODY, taken.0, taken.1).is_ok() {
            self.leader.store(worker, Ordering::Release);
        }
    }

    /// Adds this worker to the sleeping ones.
    pub(super) fn lie_down(&self, worker: u32) {
        lock(&self.idle).push(worker);
    }

    /// Removes this worker from the sleeping ones.
    pub(super) fn get_up(&self, worker: u32) {
        lock(&self.idle).retain(|idle| *idle != worker);
    }

    /// Reports whether a worker sleeps.
    pub(super) fn anybody_idle(&self) -> bool {
        !lock(&self.idle).is_empty()
    }

    /// Records that this worker, which leads, sleeps until a time.
    pub(super) fn fall_asleep(&self, worker: u32, until: u64) {
        self.asleep.store(asleep(worker, until), Ordering::SeqCst);
    }

    /// Clears that record, unless another worker has replaced it.
    pub(super) fn wake_up(&self, worker: u32, until: u64) {
        let taken = (Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.asleep.compare_exchange(asleep(worker, until), 0, taken.0, taken.1);
    }

    /// Wakes the leader if it sleeps beyond a time.
    pub(super) fn rouse(&self, due: u64) {
        let asleep = self.asleep.load(Ordering::SeqCst);
        if asleep >> SLEEPER_BITS > due {
            self.wake((asleep & ((1 << SLEEPER_BITS) - 1)) as u32);
        }
    }

    fn wake(&self, worker: u32) {
        if let Some(waker) = self.wakers.get(worker as usize).and_then(OnceLock::get) {
            waker.wake();
        }
    }

    // Wait policy.

    pub(super) fn policy(&self) -> Policy {
        Policy::from_number(self.policy.load(Ordering::Relaxed))
    }

    pub(super) fn set_policy(&self, now: u64, policy: Policy, why: &str) {
        self.policy.store(policy.number(), Ordering::Relaxed);
        lock(&self.policies).push((now, format!("{policy}: {why}")));
    }

    pub(super) fn policies(&self) -> Vec<(u64, String)> {
        lock(&self.policies).clone()
    }

    // Stolen time.

    pub(super) fn note_gap(&self, start: u64, end: u64) {
        self.gap.0.store(start, Ordering::Relaxed);
        self.gap.1.store(end, Ordering::Relaxed);
    }

    /// Returns the known time stolen from the leader in this interval, in ns.
    pub(super) fn stolen_within(&self, from: u64, to: u64) -> u64 {
        let start = self.gap.0.load(Ordering::Relaxed).max(from);
        let end = self.gap.1.load(Ordering::Relaxed).min(to);
        end.saturating_sub(start)
    }
}

#[cfg(test)]
mod tests;
