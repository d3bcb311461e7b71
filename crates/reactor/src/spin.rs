//! Looking again for a moment before sleeping.
//!
//! Going to sleep and being woken costs tens of microseconds on two processors, more in virtual
//! machines; a client that sends one request after the other pays it each time. So a wait that
//! follows a short one, and that brought little, looks again for a moment before it sleeps. A
//! moment that brings nothing is the last until a wait has been short again: an idle server spins
//! once and then sleeps.
//!
//! Other threads that want the processor meanwhile get it by `sched_yield`. Linux charges whoever
//! yields a whole time slice (EEVDF, since 6.6), so beside a thread that computes, the next event
//! waits for milliseconds; one that sleeps instead is run at once when it is woken. So there is no
//! spinning for a second after the processor was away for longer than it would have lasted.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the reactor is where the clocks are read")]

use std::time::{Duration, Instant};

/// So many events at once are few: one client's, or two.
const FEW: usize = 2;

/// How long there is no spinning when others compute on the same processor.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether and how long to look again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    /// How long at most; zero: never.
    limit: Duration,
    /// The last wait was short, and brought little.
    warm: bool,
    /// No spinning before: others compute on this processor.
    paused_until: Option<Instant>,
}

impl Spin {
    /// Spinning for at most `limit`, where there is more than one processor.
    pub(crate) fn new(limit: Duration) -> Spin {
        // SAFETY: sysconf takes a number and gives one. The processors of the host count, not those
        // that this thread may use: clients run on the others.
        let several = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } > 1;
        let limit = if several { limit } else { Duration::ZERO };
        Spin { limit, warm: false, paused_until: None }
    }

    /// Whether it is worth while to look, with so much time to wait.
    pub(crate) fn is_warm(&self, timeout: Option<Duration>) -> bool {
        self.warm && timeout.is_none_or(|timeout| timeout > self.limit)
    }

    /// A wait has brought so many events: with much to do, sleeping costs little.
    pub(crate) fn note(&mut self, events: usize) {
        self.warm &= events <= FEW;
    }

    /// Looks by calling `look` until it sees something or the moment is over; whether it saw.
    pub(crate) fn look(&mut self, mut look: impl FnMut() -> bool) -> bool {
        if !self.warm {
            return false;
        }
        let start = Instant::now();
        assert!(!self.limit.is_zero(), "nobody spins who may not");
        let mut now = start;
        while now - start < self.limit {
            if look() {
                return true;
            }
            std::thread::yield_now();
            let before = std::mem::replace(&mut now, Instant::now());
            if now - before > self.limit {
                self.paused_until = Some(now + PAUSE);
            }
        }
        self.warm = false;
        false
    }

    /// Sleeps by calling `sleep`, and notes whether that was short.
    pub(crate) fn sleep<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        if self.limit.is_zero() {
            return sleep();
        }
        let start = Instant::now();
        self.paused_until = self.paused_until.filter(|until| start < *until);
        let result = sleep();
        self.warm = self.paused_until.is_none() && start.elapsed() <= self.limit;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn it_pauses_where_others_compute() {
        let limit = Duration::from_millis(5);
        let mut spin = Spin { limit, warm: true, paused_until: None };
        let start = Instant::now();
        // As long as if another thread had had the processor.
        assert!(!spin.look(|| {
            std::thread::sleep(limit * 2);
            false
        }));
        assert!(spin.paused_until.is_some_and(|until| until > start + PAUSE));
        spin.sleep(|| ());
        assert!(!spin.look(|| unreachable!("it pauses")));
        spin.paused_until = Some(start);
        spin.sleep(|| ());
        assert!(spin.look(|| true), "the pause is over");
    }

    #[test]
    fn without_a_limit_it_never_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        spin.sleep(|| ());
        assert!(!spin.look(|| unreachable!("there is no moment")));
    }
}
