//! The monotonic clock, read from the processor's time stamp counter.
//!
//! Reading the counter takes 8 ns, the kernel's clock 19 (both measured). The counter is used where
//! it is the kernel's own clock source, which means that it never stops and is the same on all
//! processors; elsewhere the kernel's clock is read.
#![allow(unsafe_code)]

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// File with the kernel's clock source.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Duration of the first calibration.
const FIRST: Duration = Duration::from_millis(20);

/// Number of comparisons of the two clocks for one calibration; the closest one counts.
const COMPARISONS: usize = 16;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    ns: u64,
}

/// `CLOCK_MONOTONIC` in nanoseconds, at low cost. Each thread has its own copy, and calibrates it.
#[derive(Clone, Debug)]
pub struct Ticks {
    /// The last comparison, which times are relative to.
    base: Pair,
    /// Nanoseconds in a tick, times 2³². Zero if the counter cannot be used.
    scale: u64,
}

impl Ticks {
    /// Calibrates a clock; takes 20 ms where the counter can be used.
    pub fn start() -> Ticks {
        let source = std::fs::read_to_string(SOURCE).unwrap_or_default();
        Ticks::with_counter(cfg!(target_arch = "x86_64") && source.trim() == "tsc")
    }

    #[allow(clippy::disallowed_methods, reason = "this is a clock")]
    fn with_counter(usable: bool) -> Ticks {
        if !usable {
            return Ticks { base: Pair { ticks: 0, ns: 0 }, scale: 0 };
        }
        let (first, start) = (compare(), Instant::now());
        while start.elapsed() < FIRST {
            std::hint::spin_loop();
        }
        let base = compare();
        Ticks { base, scale: scale(first, base) }
    }

    /// Returns the time, ns.
    pub fn now_ns(&self) -> u64 {
        if self.scale == 0 { monotonic_ns() } else { self.ns_at(counter()) }
    }

    /// Returns the time, ns, at the counter value `ticks`.
    pub fn ns_at(&self, ticks: u64) -> u64 {
        // A value read before the base was set is a little less than it.
        let distance = i128::from(ticks) - i128::from(self.base.ticks);
        let ns = (distance * i128::from(self.scale)) >> 32;
        u64::try_from(i128::from(self.base.ns) + ns).unwrap_or(0)
    }

    /// Returns whether the counter is used.
    pub fn counts(&self) -> bool {
        self.scale != 0
    }

    /// Compares with the kernel's clock again, and returns the error of this one, ns. To be called
    /// about every second: the kernel's clock is adjusted meanwhile.
    pub fn calibrate(&mut self) -> i64 {
        if self.scale == 0 {
            return 0;
        }
        let pair = compare();
        let off = self.ns_at(pair.ticks).cast_signed() - pair.ns.cast_signed();
        if pair.ns - self.base.ns > FIRST.as_nanos() as u64 {
            self.scale = scale(self.base, pair);
        }
        self.base = pair;
        off
    }
}

fn scale(from: Pair, to: Pair) -> u64 {
    assert!(from.ns <= to.ns, "the kernel's clock does not go back");
    let (ticks, ns) = (to.ticks - from.ticks, to.ns - from.ns);
    u64::try_from((u128::from(ns) << 32) / u128::from(ticks.max(1))).unwrap_or(0)
}

/// Compares both clocks: of several attempts the shortest counts.
fn compare() -> Pair {
    let tries = (0..COMPARISONS).map(|_| {
        let before = counter();
        let ns = monotonic_ns();
        let after = counter();
        (after.saturating_sub(before), Pair { ticks: before + (after - before) / 2, ns })
    });
    tries.min_by_key(|(span, _)| *span).map(|(_, pair)| pair).expect("there are several")
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: the instruction exists on all processors of this architecture, and Linux permits it
    // in user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_the_kernels_clock_shows() {
        let mut ticks = Ticks::start();
        for _ in 0..3 {
            let (before, shown, after) = (monotonic_ns(), ticks.now_ns(), monotonic_ns());
            // The error is that of the rate: 20 ms were measured to some 50 ns.
            assert!(before - 10_000 <= shown && shown <= after + 10_000, "{before} {shown}");
            ticks.calibrate();
        }
    }

    #[test]
    fn a_counter_read_before_the_base_is_a_time_before_it() {
        let ticks = Ticks { base: Pair { ticks: 1000, ns: 5000 }, scale: 2 << 32 };
        assert_eq!((ticks.ns_at(900), ticks.ns_at(1001)), (4800, 5002));
    }

    #[test]
    fn without_a_counter_it_is_the_kernels_clock() {
        let mut ticks = Ticks::with_counter(false);
        let before = monotonic_ns();
        assert!((before..=monotonic_ns()).contains(&ticks.now_ns()) || ticks.now_ns() > before);
        assert_eq!((ticks.calibrate(), ticks.counts()), (0, false));
    }
}
