//! Spinning for a moment before sleeping.
//!
//! A sleep and a wake-up cost tens of microseconds on two processors, more in virtual machines; a
//! client with one request at a time pays this for each. So a wait that follows a short one,
//! and that returned little, spins for a moment before it sleeps. If nothing arrives, there is no
//! spinning until a wait has been short again: an idle server spins once and then sleeps.
//!
//! Other threads that need the processor meanwhile get it by `sched_yield`. Linux charges a whole
//! time slice for a yield (EEVDF, since 6.6), so beside a thread that computes, the next event
//! waits for milliseconds; a sleeping thread instead runs at once when it is woken. So when others
//! had the processor for longer than the spinning would have lasted, spinning pauses for a while,
//! and for twice as long whenever this happens again soon after. Threads that compute now and then,
//! as those of the kernel do, stop it for moments, those that always compute for seconds. The
//! kernel's count of context switches tells this from a pause of the whole virtual machine by its
//! host.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the reactor is where the clocks are read")]

use std::time::{Duration, Instant};

/// Number of events at once that count as few: those of one or two clients.
const FEW: usize = 2;

/// First and longest pause of spinning after others had the processor.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Time after which the number of context switches is read again: with a call for each spinning,
/// a request of a client with one at a time took three more.
const SWITCHES_AGE_MAX: Duration = Duration::from_millis(1);

/// State of spinning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    /// Maximum duration; zero: no spinning.
    limit: Duration,
    /// Whether the last wait was short, and returned little.
    warm: bool,
    /// The last pause and its end: others compute on this processor.
    pause: Duration,
    paused_until: Option<Instant>,
    /// Number of involuntary context switches, and when it was read.
    switches: Option<(Instant, i64)>,
}

impl Spin {
    /// Returns spinning for at most `limit`, on machines with more than one processor.
    pub(crate) fn new(limit: Duration) -> Spin {
        // SAFETY: sysconf takes a number and returns one. The processors of the host count, not
        // those that this thread may use: clients run on the others.
        let several = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } > 1;
        let limit = if several { limit } else { Duration::ZERO };
        Spin { limit, warm: false, pause: Duration::ZERO, paused_until: None, switches: None }
    }

    /// Returns whether spinning is worthwhile, given the time to wait.
    pub(crate) fn is_warm(&self, timeout: Option<Duration>) -> bool {
        self.warm && timeout.is_none_or(|timeout| timeout > self.limit)
    }

    /// Records the number of events of a wait: with many, sleeping costs little.
    pub(crate) fn note(&mut self, events: usize) {
        self.warm &= events <= FEW;
    }

    /// Calls `look` until it returns `true` or the moment is over; returns whether it did.
    pub(crate) fn look(&mut self, mut look: impl FnMut() -> bool) -> bool {
        if !self.warm {
            return false;
        }
        let start = Instant::now();
        assert!(!self.limit.is_zero(), "nobody spins who may not");
        let (mut now, switches) = (start, self.switches_at(start));
        while now - start < self.limit {
            if look() {
                return true;
            }
            std::thread::yield_now();
            let before = std::mem::replace(&mut now, Instant::now());
            let away = now - before;
            if away > self.limit && self::switches() > switches {
                self.pause_at(now);
            }
        }
        self.warm = false;
        false
    }

    /// Returns the number of involuntary context switches of at most [`SWITCHES_AGE_MAX`] ago.
    fn switches_at(&mut self, now: Instant) -> i64 {
        match self.switches {
            Some((at, switches)) if now - at < SWITCHES_AGE_MAX => switches,
            _ => self.switches.insert((now, switches())).1,
        }
    }

    /// Starts a pause, because others had the processor until now.
    fn pause_at(&mut self, now: Instant) {
        let was_soon = self.paused_until.is_some_and(|until| now < until + self.pause);
        self.pause = if was_soon { PAUSE_MAX.min(self.pause * 2) } else { PAUSE_MIN };
        self.paused_until = Some(now + self.pause);
        self.switches = None;
    }

    /// Sleeps by calling `sleep`, and records whether that was short.
    pub(crate) fn sleep<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        if self.limit.is_zero() {
            return sleep();
        }
        let start = Instant::now();
        let is_paused = self.paused_until.is_some_and(|until| start < until);
        let result = sleep();
        self.warm = !is_paused && start.elapsed() <= self.limit;
        result
    }
}

/// Returns the number of involuntary context switches of this thread.
fn switches() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one structure, which lives across the call; zeros are one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn it_spins_after_a_short_wait_and_once_in_vain() {
        let mut spin = Spin::new(Duration::from_millis(5));
        assert!(!spin.look(|| unreachable!("it is cold")));
        spin.sleep(|| ());
        assert!(spin.look(|| true));
        spin.note(FEW);
        assert!(!spin.look(|| false));
        assert!(!spin.look(|| unreachable!("it is cold again")));
        spin.sleep(|| ());
        spin.note(FEW + 1);
        assert!(!spin.look(|| unreachable!("there is much to do")));
        spin.sleep(|| std::thread::sleep(Duration::from_millis(6)));
        assert!(!spin.look(|| unreachable!("the wait was long")));
    }

    /// Runs a test beside a thread that computes on the same processor.
    fn with_another<T>(run: impl FnOnce() -> T) -> T {
        /// Ends the other thread also if this one fails.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let processor = rustix::thread::sched_getcpu();
            let mut only = rustix::thread::CpuSet::new();
            only.set(processor);
            rustix::thread::sched_setaffinity(None, &only).expect("it runs there");
            // It inherits the processor.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
            let _done = Done(&done);
            run()
        })
    }

    #[test]
    fn it_pauses_where_others_compute() {
        let limit = Duration::from_micros(50);
        let mut spin = Spin { limit, ..Spin::new(limit) };
        let max_wait = Instant::now() + Duration::from_secs(60);
        with_another(|| {
            while spin.paused_until.is_none() {
                spin.warm = true;
                assert!(!spin.look(|| false));
                assert!(Instant::now() < max_wait, "another thread computes");
            }
        });
        assert_eq!(spin.pause, PAUSE_MIN);
        spin.limit = Duration::from_secs(1);
        spin.paused_until = Some(Instant::now() + PAUSE_MAX);
        spin.sleep(|| ());
        assert!(!spin.look(|| unreachable!("it pauses")));
        spin.paused_until = Some(Instant::now());
        spin.sleep(|| ());
        assert!(spin.look(|| true), "the pause is over");
    }

    #[test]
    fn pauses_are_longer_the_sooner_they_follow_each_other() {
        let mut spin = Spin::new(Duration::from_micros(50));
        let mut now = Instant::now();
        let mut pause = |spin: &mut Spin, spun: Duration| {
            now = spin.paused_until.unwrap_or(now) + spun;
            spin.pause_at(now);
            assert_eq!(spin.paused_until, Some(now + spin.pause));
            spin.pause
        };
        for times in [1, 2, 4, 8] {
            assert_eq!(pause(&mut spin, Duration::from_millis(4)), PAUSE_MIN * times);
        }
        (0..9).for_each(|_| assert!(pause(&mut spin, Duration::ZERO) <= PAUSE_MAX));
        assert_eq!(spin.pause, PAUSE_MAX);
        assert_eq!(pause(&mut spin, PAUSE_MAX), PAUSE_MIN);
    }

    #[test]
    fn a_moment_in_which_no_other_thread_ran_is_no_reason_to_pause() {
        let limit = Duration::from_micros(50);
        let spinning = || Spin { limit, warm: true, ..Spin::new(limit) };
        let mut spin = spinning();
        for _ in 0..100 {
            let before = switches();
            let start = Instant::now();
            assert!(!spin.look(|| {
                while start.elapsed() < limit * 2 {}
                false
            }));
            // Other tests may have had the processor.
            assert!(spin.paused_until.is_none() || switches() > before);
            spin = spinning();
        }
    }

    #[test]
    fn without_a_limit_it_never_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        spin.sleep(|| ());
        assert!(!spin.look(|| unreachable!("there is no moment")));
    }
}
