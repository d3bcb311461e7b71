//! Choice of the wait policy by the time that it loses.

use super::calibrate::Calibration;
use super::policy::{Choice, Policy};
use super::shared::Shared;
use std::sync::atomic::Ordering;

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
