//! How to wait for a time: no single way is best, so what is lost is measured, and the way chosen.
//!
//! | the machine | best | because |
//! |---|---|---|
//! | quiet | spin at ordinary priority | nobody else wants the processor |
//! | busy, real time permitted | nap | the kernel prefers it, as long as it sleeps enough |
//! | busy, else | sleep, then spin | who sleeps much is woken soon |

use super::calibrate::Calibration;
use super::shared::Shared;
use std::fmt;
use std::sync::atomic::Ordering;

/// How the worker that leads waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// It watches the clock without a break, at ordinary priority.
    #[default]
    Spin,
    /// It watches the clock at real-time priority, and hands the lead to another worker (or
    /// sleeps) within each millisecond: a real-time thread that does not loses 50 ms a second.
    Nap,
    /// It sleeps until shortly before the time, then watches the clock.
    Sleep,
}

/// Which policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The one that loses least, measured before and during the run.
    #[default]
    Auto,
    /// This one.
    Fixed(Policy),
}

impl Policy {
    /// All of them.
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

/// Losing more than this share of the time is too much.
const LOSS_MAX: f64 = 0.025;

/// How often it is looked at, ns, and how often in a row it must be too much.
const WINDOW_NS: u64 = 100_000_000;
const WINDOWS: u32 = 4;

/// Looks at what is lost, and changes the policy.
pub(super) struct Overseer {
    choice: Choice,
    realtime: bool,
    /// When the window began, and what had been watched and lost by then, ns.
    window: (u64, u64, u64),
    bad: u32,
}

impl Overseer {
    /// Sets the policy that the run begins with.
    pub(super) fn new(choice: Choice, shared: &Shared, before: &Calibration) -> Overseer {
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
        Overseer { choice, realtime, window: (0, 0, 0), bad: 0 }
    }

    /// Looks whether the policy should change.
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

/// What is best on a busy machine.
fn refuge(realtime: bool) -> Policy {
    if realtime { Policy::Nap } else { Policy::Sleep }
}
