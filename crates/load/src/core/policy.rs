//! Wait policies. None is best on every machine, so the loss is measured and the policy chosen.
//!
//! | machine | best policy | reason |
//! |---|---|---|
//! | quiet | spin at ordinary priority | no competition for the processor |
//! | busy, real time permitted | nap | the kernel prefers the thread while it sleeps enough |
//! | busy, otherwise | sleep, then spin | threads that sleep much are woken quickly |

use std::fmt;

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
