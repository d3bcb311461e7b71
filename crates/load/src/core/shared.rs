//! What all workers share.

use super::depot::Depot;
use super::policy::Policy;
use super::queue::Queue;
use super::{Calibration, Late, Options};
use crate::driver::Waker;
use crate::{Event, Filament, FilamentId, Io};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Parts of each queue, where there is more than one worker (paper, §5.1: two or three do).
const PARTS: usize = 3;

/// Nobody leads.
pub(super) const NOBODY: u32 = u32::MAX;

/// A worker's number has so many bits.
const SLEEPER_BITS: u32 = 8;

/// A worker that sleeps until some time, as one number.
fn asleep(worker: u32, until: u64) -> u64 {
    until << SLEEPER_BITS | u64::from(worker)
}

/// An I/O that waits for its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) io: Io,
    pub(super) filament: FilamentId,
    pub(super) tell: Option<u64>,
}

/// A filament, and what waits for it. The two locks are apart so that nobody waits for a filament
/// to say something to it.
pub(super) struct Place {
    pub(super) filament: Mutex<Box<dyn Filament>>,
    inbox: Mutex<Vec<(u64, Event)>>,
}

impl Place {
    /// Says something that it will hear at `at`; somebody must also be hinted at it.
    pub(super) fn say(&self, at: u64, event: Event) {
        lock(&self.inbox).push((at, event));
    }

    /// Takes what it may hear by now, in the order of time.
    pub(super) fn hear(&self, now: u64, into: &mut Vec<Event>) {
        let mut inbox = lock(&self.inbox);
        let mut due: Vec<_> = inbox.extract_if(.., |(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        into.extend(due.into_iter().map(|(_, event)| event));
    }
}

/// What all workers share.
pub(super) struct Shared {
    pub(super) filaments: Vec<Place>,
    pub(super) ios: Queue<Pending>,
    /// Who may have something to do, and when (the paper's *hints*).
    pub(super) hints: Queue<FilamentId>,
    /// Who watches the clock.
    pub(super) leader: AtomicU32,
    /// Who has been asked to take the lead, while the leader goes on watching.
    pub(super) heir: AtomicU32,
    /// Who watches the leader without sleeping, to take the lead at once.
    standby: AtomicU32,
    /// When the leader last looked at the clock, ns; it says so while somebody stands by.
    beat: AtomicU64,
    /// When the lead was last taken from somebody who did not look at it, ns.
    relieved: AtomicU64,
    /// The leader is doing something that may take long, and has not given the lead away.
    neglected: AtomicBool,
    /// Until when whoever leads, or led, sleeps, ns, and who, in the last [`SLEEPER_BITS`]; 0:
    /// nobody.
    asleep: AtomicU64,
    /// Workers that sleep, or are about to.
    idle: Mutex<Vec<u32>>,
    wakers: Vec<OnceLock<Waker>>,
    /// I/Os and hints that are queued, and I/Os under way.
    left: AtomicU64,
    over: AtomicBool,
    end: AtomicU64,
    pub(super) origin_ns: AtomicU64,
    /// By how much the schedule has been moved, ns.
    pub(super) shift: AtomicU64,
    policy: AtomicU8,
    policies: Mutex<Vec<(u64, String)>>,
    /// The last time the machine took the processor of whoever led.
    gap: (AtomicU64, AtomicU64),
    /// How long the clock was watched so far, and how much of that was lost, ns.
    pub(super) watched: (AtomicU64, AtomicU64),
    pub(super) hand_overs: AtomicU64,
    stopped: Mutex<Option<String>>,
    /// Somebody has said that it should end.
    halted: AtomicBool,
    pub(super) late: Late,
    pub(super) depot: Depot,
    pub(super) workers: usize,
    /// How long a wake-up takes, ns: half of them, and 99 of 100.
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
        let place = |filament| Place {
            filament: Mutex::new(filament),
            inbox: Mutex::new(vec![(0, Event::Started)]),
        };
        let shared = Shared {
            filaments: filaments.into_iter().map(place).collect(),
            ios: Queue::new(parts),
            hints: Queue::new(parts),
            leader: AtomicU32::new(NOBODY),
            heir: AtomicU32::new(NOBODY),
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
            depot: Depot::new(workers, options.named),
            workers,
            wake_ns: calibration.wake_ns,
        };
        let mut hints = (0..shared.filaments.len()).map(|id| (0, id as FilamentId)).collect();
        shared.count(shared.filaments.len() as u64, 0);
        shared.hints.add(&[0], &mut hints);
        shared
    }

    // The end.

    /// Notes that so much was added to what is left to do, and so much done.
    pub(super) fn count(&self, added: u64, done: u64) {
        if added >= done {
            self.left.fetch_add(added - done, Ordering::AcqRel);
        } else {
            self.left.fetch_sub(done - added, Ordering::AcqRel);
        }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// By how much the schedule has been moved, ns.
    pub(super) fn shift_ns(&self) -> u64 {
        self.shift.load(Ordering::Relaxed)
    }

    /// How much is left to do.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// When scheduling ends, ns since the start.
    pub(super) fn end_ns(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Schedules nothing more.
    pub(super) fn stop(&self, now: u64, reason: &str) {
        let mut stopped = lock(&self.stopped);
        if stopped.is_none() {
            *stopped = Some(reason.to_string());
            self.end.fetch_min(now, Ordering::Relaxed);
            self.halted.store(true, Ordering::Release);
            self.wake_all();
        }
    }

    /// Drops what is to happen behind the end; if the run was stopped, all that is not issued.
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

    /// Wakes somebody who sleeps, if anybody does.
    pub(super) fn wake_one(&self) {
        if let Some(next) = lock(&self.idle).pop() {
            self.wake(next);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    // Leading.

    pub(super) fn set_waker(&self, worker: u32, waker: Waker) {
        // Each worker sets its own, once.
        let _ = self.wakers[worker as usize].set(waker);
    }

    /// Whether this worker leads, or can do so because nobody does.
    pub(super) fn lead(&self, worker: u32) -> bool {
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

    /// Gives the lead away: whoever sleeps is woken, or else the next that looks takes it.
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

    /// Says whether the leader watches the clock; only the leader says so.
    pub(super) fn neglect(&self, neglected: bool) {
        if self.neglected.load(Ordering::Relaxed) != neglected {
            self.neglected.store(neglected, Ordering::Release);
        }
    }

    /// Takes the lead from a leader that does not watch the clock.
    pub(super) fn take_over(&self, worker: u32) -> bool {
        if !self.neglected.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
        self.leader.store(worker, Ordering::Release);
        self.disinherit(worker);
        true
    }

    /// Says that the leader looks at the clock.
    #[inline]
    pub(super) fn beat(&self, now: u64) {
        if self.anybody_ready() {
            self.beat.store(now, Ordering::Relaxed);
        }
    }

    /// When the leader last looked at the clock, by its own.
    pub(super) fn last_beat(&self) -> u64 {
        self.beat.load(Ordering::Relaxed)
    }

    /// Takes the lead from a leader who does not look at the clock: somebody else has his
    /// processor.
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

    /// Until when nobody watched the clock, if this worker did not from `start` to `end`.
    pub(super) fn unwatched_until(&self, worker: u32, start: u64, end: u64) -> u64 {
        let relieved = self.relieved.load(Ordering::Acquire);
        let by_another = self.leader.load(Ordering::Acquire) != worker;
        if by_another && (start..end).contains(&relieved) { relieved } else { end }
    }

    /// Who has the lead is nobody's heir.
    fn disinherit(&self, worker: u32) {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.heir.compare_exchange(worker, NOBODY, taken.0, taken.1);
    }

    /// When something is due; [`super::queue::NEVER`] if nothing is.
    pub(super) fn due(&self) -> u64 {
        self.ios.due().min(self.hints.due())
    }

    /// Begins to stand by, if nobody does.
    pub(super) fn stand_by(&self, worker: u32) -> bool {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        self.standby.compare_exchange(NOBODY, worker, taken.0, taken.1).is_ok()
    }

    /// Stands by no more.
    pub(super) fn stand_down(&self) {
        self.standby.store(NOBODY, Ordering::Release);
    }

    /// Whether somebody stands by.
    pub(super) fn anybody_ready(&self) -> bool {
        self.standby.load(Ordering::Acquire) != NOBODY
    }

    /// Asks somebody to take the lead, which the leader keeps until then. Whether there is anybody.
    pub(super) fn offer_lead(&self) -> bool {
        if self.heir.load(Ordering::Acquire) != NOBODY {
            return true;
        }
        let Some(next) = lock(&self.idle).pop() else {
            return false;
        };
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
        self.heir.store(next, Ordering::Release);
        self.wake(next);
        true
    }

    /// Takes the lead if it was offered to this worker.
    pub(super) fn inherit(&self, worker: u32) {
        let taken = (Ordering::AcqRel, Ordering::Acquire);
        if self.heir.compare_exchange(worker, NOBODY, taken.0, taken.1).is_ok() {
            self.leader.store(worker, Ordering::Release);
        }
    }

    /// Says that this worker will sleep.
    pub(super) fn lie_down(&self, worker: u32) {
        lock(&self.idle).push(worker);
    }

    /// Says that it does not.
    pub(super) fn get_up(&self, worker: u32) {
        lock(&self.idle).retain(|idle| *idle != worker);
    }

    /// Whether anybody sleeps.
    pub(super) fn anybody_idle(&self) -> bool {
        !lock(&self.idle).is_empty()
    }

    /// Says that this worker, who leads, will sleep until then.
    pub(super) fn fall_asleep(&self, worker: u32, until: u64) {
        self.asleep.store(asleep(worker, until), Ordering::SeqCst);
    }

    /// Says that it does not, if it is not somebody else who sleeps by now.
    pub(super) fn wake_up(&self, worker: u32, until: u64) {
        let taken = (Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.asleep.compare_exchange(asleep(worker, until), 0, taken.0, taken.1);
    }

    /// Wakes the leader if it sleeps beyond this time.
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

    // How to wait.

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

    // What the machine took.

    pub(super) fn note_gap(&self, start: u64, end: u64) {
        self.gap.0.store(start, Ordering::Relaxed);
        self.gap.1.store(end, Ordering::Relaxed);
    }

    /// For how long the machine had the leader's processor in this time, as far as is known, ns.
    pub(super) fn stolen_within(&self, from: u64, to: u64) -> u64 {
        let start = self.gap.0.load(Ordering::Relaxed).max(from);
        let end = self.gap.1.load(Ordering::Relaxed).min(to);
        end.saturating_sub(start)
    }
}

/// Nothing is done under these locks that could end in between; a filament that panicked is not
/// called again, because its worker is gone and with it the run.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
