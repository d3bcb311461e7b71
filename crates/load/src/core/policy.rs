//! Wait policies. None is best on every machine, so the loss is measured and the policy chosen.
//!
//! | machine | best policy | reason |
//! |---|---|---|
//! | quiet | spin at ordinary priority | no competition for the processor |
//! | busy, real time permitted | nap | the kernel prefers the thread while it sleeps enough |
//! | busy, otherwise | sleep, then spin | threads that sleep much are woken quickly |

use super::calibrate::Calibration;
use super::shared::Shared;
use std::fmt;
use std::sync::atomic::Ordering;

/// Wait policy of the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Watches the clock continuously, at ordinary priority.
    #[default]
    Spin,
    /// Watches the clock at real-time priority, and hands over to another worker (or sleeps) within
    /// each millisecond: otherwise a real-time thread is throttled for 50 ms per second.
    Nap,
    /// Sleeps until shortly before the time, then watches the clock.
    Sleep,
}

/// Choice of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Policy with the least loss, measured before and during the run.
    #[default]
    Auto,
    /// Fixed policy.
    Fixed(Policy),
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 3] = [Policy::Spin, Policy::Nap, Policy::Sleep];

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn from_number(number: u8) -> Policy {
        Policy::ALL.into_iter().find(|policy| policy.number() == number).unwrap_or_default()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Spin => "spin",
            Policy::Nap => "nap at real-time priority",
            Policy::Sleep => "sleep and spin",
        })
    }
}

/// Maximum tolerable share of lost time.
const LOSS_MAX: f64 = 0.025;

/// Length of a measurement window in ns, and the number of consecutive bad ones that change the
/// policy.
const WINDOW_NS: u64 = 100_000_000;
const WINDOWS: u32 = 4;

/// Supervisor of the loss, which changes the policy.
pub(super) struct LossSupervisor {
    choice: Choice,
    realtime: bool,
    /// Start of the window, and the time watched and lost before it, in ns.
    window: (u64, u64, u64),
    bad: u32,
}

impl LossSupervisor {
    /// Sets the initial policy.
    pub(super) fn new(choice: Choice, shared: &Shared, before: &Calibration) -> LossSupervisor {
        let (spin, realtime) = (before.spin.share(), before.realtime);
        match choice {
            Choice::Fixed(policy) => shared.set_policy(0, policy, "as asked for"),
            Choice::Auto if spin <= LOSS_MAX => {
                let why = format!("a bare loop loses {:.2} %", spin * 100.0);
                shared.set_policy(0, Policy::Spin, &why);
            }
            Choice::Auto => {
                let why = format!("a bare loop loses {:.1} %", spin * 100.0);
                shared.set_policy(0, refuge(realtime), &why);
            }
        }
        LossSupervisor { choice, realtime, window: (0, 0, 0), bad: 0 }
    }

    /// Changes the policy if the loss is too great.
    pub(super) fn look(&mut self, now: u64, shared: &Shared) {
        if now < self.window.0 + WINDOW_NS {
            return;
        }
        let watched = shared.watched.0.load(Ordering::Relaxed);
        let lost = shared.watched.1.load(Ordering::Relaxed);
        let share = (lost - self.window.2) as f64 / (watched - self.window.1).max(1) as f64;
        self.window = (now, watched, lost);
        self.bad = if share > LOSS_MAX { self.bad + 1 } else { 0 };
        let policy = shared.policy();
        if self.bad >= WINDOWS && self.choice == Choice::Auto && policy == Policy::Spin {
            self.bad = 0;
            let why = format!("{:.1} % of the time was lost", share * 100.0);
            shared.set_policy(now, refuge(self.realtime), &why);
        }
    }
}

/// Returns the best policy on a busy machine.
fn refuge(realtime: bool) -> Policy {
    if realtime { Policy::Nap } else { Policy::Sleep }
}
