//! Processor ceiling for all storelets, controlled by the wake-up delay of the file service.
//!
//! While storelets run, the home node, which owns the files, schedules periodic wake-ups and
//! measures how late they are. A request suffers the same delay before it is served: waiting for
//! the processor, and for the requests before it. If more than half of the wake-ups in a window
//! were late, the ceiling falls; otherwise it rises a little (additive increase, multiplicative
//! decrease). The kernel ranks the threads of storelets below those of the service; where it cannot
//! (the quota of a container, a busy hypervisor), or where the server is overloaded, the ceiling
//! keeps latencies steady.

use crate::schedule::SECOND;
use base::Instant;
use std::time::Duration;

/// Shortest interval between wake-ups, used after a late one; longest interval, reached while none
/// is late; number of wake-ups in a window.
const PULSE: Duration = Duration::from_millis(10);
const PULSE_MOST: Duration = Duration::from_millis(160);
const WINDOW: usize = 10;

/// Delay above which a wake-up counts as late.
const LATE: Duration = Duration::from_millis(1);

/// Lowest ceiling, and additive increase, ns of each second.
const LEAST: u64 = SECOND / 20;
const STEP: u64 = SECOND / 20;

/// The ceiling controller.
#[derive(Debug)]
pub(crate) struct Ceiling {
    /// Time of the next wake-up; `None` while no storelets run.
    due: Option<Instant>,
    pulse: Duration,
    looks: usize,
    late: usize,
    /// Ceiling, ns of each second.
    share: u64,
}

impl Default for Ceiling {
    fn default() -> Ceiling {
        Ceiling { due: None, pulse: PULSE, looks: 0, late: 0, share: SECOND }
    }
}

impl Ceiling {
    /// Returns the time of the next wake-up.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Evaluates a wake-up that is due, also when no storelets run any more. Returns the new
    /// ceiling, ns of each second, if it changes.
    pub(crate) fn look(&mut self, now: Instant, is_needed: bool) -> Option<u64> {
        let Some(due) = self.due else {
            self.due = is_needed.then(|| now + self.pulse);
            return None;
        };
        if now < due {
            return None;
        }
        self.looks += 1;
        if now > due + LATE {
            self.late += 1;
            self.pulse = PULSE;
        }
        self.due = is_needed.then(|| now + self.pulse);
        if self.looks < WINDOW {
            return None;
        }
        let was_late = self.late * 2 > self.looks;
        if self.late == 0 && self.share == SECOND {
            self.pulse = (self.pulse * 2).min(PULSE_MOST);
        }
        (self.looks, self.late) = (0, 0);
        let share = match was_late {
            true => (self.share / 4 * 3).max(LEAST),
            false => (self.share + STEP).min(SECOND),
        };
        (std::mem::replace(&mut self.share, share) != share).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes up for some seconds, each time with this delay; returns all changes of the ceiling.
    fn looks(ceiling: &mut Ceiling, begin: Instant, seconds: u64, late: Duration) -> Vec<u64> {
        let (mut now, mut shares) = (begin, Vec::new());
        while now < begin + Duration::from_secs(seconds) {
            shares.extend(ceiling.look(now, true));
            now = ceiling.due().expect("storelets run") + late;
        }
        shares
    }

    #[test]
    fn storelets_get_less_while_the_service_is_late_and_all_when_it_is_not() {
        let mut ceiling = Ceiling::default();
        assert_eq!(looks(&mut ceiling, Instant(0), 5, Duration::from_micros(200)), [0; 0]);
        let less = looks(&mut ceiling, Instant(6 * SECOND), 5, Duration::from_millis(3));
        assert_eq!(less[..2], [SECOND / 4 * 3, SECOND / 16 * 9]);
        assert_eq!(less.last(), Some(&LEAST), "never nothing");
        let more = looks(&mut ceiling, Instant(12 * SECOND), 5, Duration::ZERO);
        assert!(more.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(more.last(), Some(&SECOND));
    }

    #[test]
    fn a_few_late_looks_change_nothing_and_nobody_is_woken_without_storelets() {
        let mut ceiling = Ceiling::default();
        let (mut now, mut shares) = (Instant(0), Vec::new());
        for look in 0..100 {
            shares.extend(ceiling.look(now, true));
            let late = if look % 3 == 0 { LATE * 5 } else { Duration::ZERO };
            now = ceiling.due().expect("storelets run") + late;
        }
        assert_eq!(shares, [0; 0]);
        assert_eq!(ceiling.look(now, false), None);
        assert_eq!(ceiling.due(), None);
    }
}
