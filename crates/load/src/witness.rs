//! Witness: issue times according to the kernel's own trace.
//!
//! It uses a tracing instance of its own, so that no other one is disturbed, with the time stamp
//! counter as its clock, which is also the clock of the core. The event is the kernel's first sight
//! of an I/O: the submission of an io_uring request, with the name given by the core.
//!
//! ```text
//! load-0-4711    [001] ...1. 987654321098765: io_uring_submit_req: ring …, user_data 0x1000007, …
//! thread         processor   counter                                         name of the I/O
//! ```

use reactor::precise::Ticks;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Usual mount points of the kernel's tracing file system.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Upper bound of an event's size in the kernel's buffer, in bytes.
const EVENT_BYTES: u64 = 96;

/// Maximum buffer of one processor, in bytes.
const BUFFER_MAX: u64 = 1 << 30;

const EVENT: &str = "events/io_uring/io_uring_submit_req";

/// Tracing instance, removed when dropped.
#[derive(Debug)]
pub struct Witness {
    instance: PathBuf,
}

/// Recorded events.
#[derive(Debug, Default)]
pub struct WitnessRecord {
    /// Counter values by I/O name.
    seen: BTreeMap<u64, u64>,
    /// Events lost by the kernel.
    pub lost: u64,
}

impl Witness {
    /// Creates a tracing instance with room for this many I/Os.
    ///
    /// # Errors
    /// A description of the missing prerequisite: root, the kernel's tracing, or the counter as its
    /// clock.
    pub fn call(ios: u64) -> io::Result<Witness> {
        let place = PLACES.iter().map(Path::new).find(|place| place.join("instances").is_dir());
        let place = place.ok_or_else(|| {
            io::Error::other(
                "the kernel's trace is not there: be root, and \
                 mount -t tracefs none /sys/kernel/tracing",
            )
        })?;
        let instance = place.join("instances").join(format!("upcall-{}", std::process::id()));
        fs::create_dir(&instance).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot make {}: {error}; be root", instance.display()),
            )
        })?;
        let witness = Witness { instance };
        witness.write("trace_clock", "x86-tsc")?;
        let kib = (ios * EVENT_BYTES).clamp(1 << 20, BUFFER_MAX) >> 10;
        witness.write("buffer_size_kb", &kib.to_string())?;
        // Only this process and its later threads: others use names of the same form.
        witness.write("options/event-fork", "1")?;
        witness.write("set_event_pid", &std::process::id().to_string())?;
        // Early events are kept: the start of a run says as much as its end.
        witness.write("options/overwrite", "0")?;
        witness.write(&format!("{EVENT}/enable"), "1")?;
        Ok(witness)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, text).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write to {}: {error}", path.display()))
        })
    }

    /// Stops tracing, and returns the recorded events.
    ///
    /// # Errors
    /// Errors while reading the kernel's trace.
    pub fn handle(&self) -> io::Result<WitnessRecord> {
        self.write("tracing_on", "0")?;
        let mut testimony = WitnessRecord { lost: self.lost(), ..WitnessRecord::default() };
        let trace = BufReader::new(fs::File::open(self.instance.join("trace"))?);
        for line in trace.lines() {
            testimony.seen.extend(event(&line?));
        }
        Ok(testimony)
    }

    /// Returns the number of events lost on all processors.
    fn lost(&self) -> u64 {
        let cpus = fs::read_dir(self.instance.join("per_cpu"));
        let stats = cpus.into_iter().flatten().flatten().map(|cpu| cpu.path().join("stats"));
        let lost = |text: String| {
            let counts = text.lines().filter_map(|line| {
                let (name, count) = line.split_once(':')?;
                let counts = matches!(name.trim(), "overrun" | "dropped events");
                counts.then(|| count.trim().parse::<u64>().ok()).flatten()
            });
            counts.sum::<u64>()
        };
        stats.filter_map(|path| fs::read_to_string(path).ok()).map(lost).sum()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // A leftover instance uses memory until the next reboot; nothing more can be done here.
        let _ = self.write("tracing_on", "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

impl WitnessRecord {
    /// Returns the time at which an I/O was seen, in ns on the clock.
    pub fn saw(&self, name: u64, clock: &Ticks) -> Option<u64> {
        self.seen.get(&name).map(|ticks| clock.ns_at(*ticks))
    }

    /// Number of I/Os seen.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Reports whether no I/O was seen.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

/// Parses the name and the time from a line of the trace.
fn event(line: &str) -> Option<(u64, u64)> {
    let (head, rest) = line.split_once(": io_uring_submit_req: ")?;
    let ticks = head.rsplit(' ').next()?.parse().ok()?;
    let name = rest.split_once("user_data 0x")?.1;
    let name = name.split(',').next()?;
    Some((u64::from_str_radix(name.trim(), 16).ok()?, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_trace_are_understood() {
        let line = "          load-0-4711    [001] ...1. 98765432109: io_uring_submit_req: \
                    ring 00000000c0ffee, req 000000001, user_data 0x1000007, opcode READ_FIXED, \
                    flags 0x1, sq_thread 0";
        assert_eq!(event(line), Some((0x100_0007, 98_765_432_109)));
        assert_eq!(event("# tracer: nop"), None);
        assert_eq!(event("x: io_uring_submit_req: user_data 0xzz,"), None);
    }
}
