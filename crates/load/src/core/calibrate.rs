//! Properties of the machine, measured just before a run.

use crate::statistics::Spin;
use reactor::precise::{self, Priority, Ticks};
use std::time::Duration;

/// Duration of the bare spin loop.
const SPIN: Duration = Duration::from_millis(200);

/// Minimum length of a gap in the bare loop, in ns.
const LOST_NS: u64 = 10_000;

/// Number of measured wake-ups, and the length of each sleep.
const WAKES: usize = 100;
const NAP: Duration = Duration::from_micros(150);

/// Measured properties of the machine.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Time lost by a loop that only reads the clock, at ordinary priority.
    pub spin: Spin,
    /// Wake-up latency after a sleep, in ns: median and 99th percentile.
    pub wake_ns: (u64, u64),
    /// Whether the process may use real-time priority.
    pub realtime: bool,
}

impl Calibration {
    /// Measures the machine, in a quarter of a second.
    pub fn measure() -> Calibration {
        let measured = std::thread::scope(|scope| {
            let measure = || {
                precise::set_fine_timers();
                let clock = Ticks::start();
                (spin(&clock), wakes(&clock))
            };
            scope.spawn(measure).join()
        });
        let (spin, wake_ns) = measured.unwrap_or_default();
        Calibration { spin, wake_ns, realtime: may_be_realtime() }
    }
}

/// Measures the current loss of a bare loop.
pub(crate) fn bare_spin() -> Spin {
    spin(&Ticks::start())
}

fn spin(clock: &Ticks) -> Spin {
    let start = clock.now_ns();
    let (mut last, mut spin) = (start, Spin::default());
    while last < start + SPIN.as_nanos() as u64 {
        let now = clock.now_ns();
        let gap = now.saturating_sub(last);
        if gap > LOST_NS {
            spin.lost_ns += gap;
        }
        spin.gap_ns_max = spin.gap_ns_max.max(gap);
        last = now;
    }
    spin.watched_ns = last - start;
    spin
}

fn wakes(clock: &Ticks) -> (u64, u64) {
    let wake = |_| {
        let due = clock.now_ns() + NAP.as_nanos() as u64;
        precise::sleep(NAP);
        clock.now_ns().saturating_sub(due)
    };
    let mut late: Vec<u64> = (0..WAKES).map(wake).collect();
    late.sort_unstable();
    (late[WAKES / 2], late[WAKES * 99 / 100])
}

fn may_be_realtime() -> bool {
    let ask = || precise::set_priority(Priority::RealTime).is_ok();
    std::thread::scope(|scope| scope.spawn(ask).join().unwrap_or(false))
}
