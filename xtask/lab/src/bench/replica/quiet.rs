//! Other load on the machine: reported before each kind of work, after a bounded wait for a quiet
//! moment.

use rig::sh;
use std::time::Duration;

/// The machine is quiet if at most this share of all processors is busy.
const BUSY_MAX: f64 = 0.1;

/// Duration of a sample, and maximum number of samples before each kind of work.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_MAX: u32 = 20;

/// Processor time of the whole machine since it started, in clock ticks.
#[derive(Clone, Copy)]
pub(super) struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    /// Reads the present values.
    pub(super) fn now() -> Ticks {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Ticks::of(text.lines().next().unwrap_or_default())
    }

    /// Parses the `cpu` line: user, nice, system, idle, iowait, interrupts, stolen.
    fn of(line: &str) -> Ticks {
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let idle: u64 = fields.iter().skip(3).take(2).sum();
        let all: u64 = fields.iter().sum();
        Ticks { busy: all - idle, all }
    }

    /// Returns the share of all processors used by other processes, given `ours` ticks.
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    pub(super) fn share_since(self, before: Ticks, ours: u64) -> f64 {
        let busy = (self.busy - before.busy).saturating_sub(ours) as f64;
        busy / (self.all - before.all).max(1) as f64
    }
}

/// Returns the CPU time of this process and of its terminated children, ticks.
pub(super) fn own_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(") ").next().unwrap_or_default();
    after.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the load average of the last minute.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

/// Waits until the machine is quiet, prints the result, and returns the load average.
pub(super) fn wait(work: &str) -> f64 {
    let _ = sh::read(&mut sh::cmd::<&str>("sync", &[]));
    let mut busy = 1.0;
    for look in 0..LOOKS_MAX {
        let before = Ticks::now();
        std::thread::sleep(LOOK);
        busy = Ticks::now().share_since(before, 0);
        if busy <= BUSY_MAX {
            eprintln!("   {work}: load {:.2}, waited {look} s for others", load());
            return load();
        }
    }
    let load = load();
    eprintln!("   {work}: load {load:.2}, others still have {:.0} %", busy * 100.0);
    load
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_who_is_neither_idle_nor_we() {
        let before = Ticks::of("cpu  100 0 100 1000 50 0 0 0 0 0");
        let after = Ticks::of("cpu  160 10 120 1080 70 5 0 5 0 0");
        let share = after.share_since(before, 40);
        assert!((share - 0.3).abs() < 1e-9, "{share}");
    }
}
