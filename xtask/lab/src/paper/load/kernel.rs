//! Issue times of fio's I/Os, from the kernel's tracing: a program's own figures prove nothing.
//!
//! ```text
//! fio-7598  [001] ..... 54331.846419: sys_pread64(fd: 7, buf: 0x7ff0, count: 0x200, pos: 0x1000)
//! fio-7606  [000] ..... 54332.120963: io_uring_submit_req: ring …, opcode READ, flags …
//! ```

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 2] = ["syscalls/sys_enter_pread64", "io_uring/io_uring_submit_req"];
/// Size of the trace buffer of one processor, KiB.
const ROOM: &str = "131072";

/// Byte range of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// An event: its time, ns, and its byte range, if given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) place: Option<Seen>,
}

/// A trace of fio's threads; it is removed on drop.
pub(super) struct Trace {
    instance: PathBuf,
}

impl Trace {
    pub(super) fn start() -> Result<Trace> {
        let name = format!("xtask-{}", std::process::id());
        let instance = Path::new(TRACING).join("instances").join(name);
        std::fs::create_dir(&instance).with_context(|| {
            format!("make {}: be root, mount -t tracefs none {TRACING}", instance.display())
        })?;
        let trace = Trace { instance };
        trace.write("trace_clock", "mono")?;
        trace.write("buffer_size_kb", ROOM)?;
        for event in EVENTS {
            trace.write(&format!("events/{event}/filter"), "comm == \"fio\"")?;
            trace.write(&format!("events/{event}/enable"), "1")?;
        }
        Ok(trace)
    }

    /// Ends the trace and returns the events in order of time.
    pub(super) fn end(self) -> Result<Vec<Event>> {
        self.write("tracing_on", "0")?;
        let text = std::fs::read_to_string(self.instance.join("trace"))?;
        let mut events: Vec<_> = text.lines().filter_map(event).collect();
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.instance.join(file);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // If it cannot be removed, it occupies memory until the next boot.
        let _ = std::fs::remove_dir(&self.instance);
    }
}

fn event(line: &str) -> Option<Event> {
    let (head, what) = line.split_once(": ")?;
    let (seconds, micros) = head.rsplit(' ').next()?.split_once('.')?;
    let at = (seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1000;
    if what.starts_with("sys_pread64(") {
        let place = Seen { offset: hex(what, "pos: ")?, len: hex(what, "count: ")? };
        return Some(Event { at, place: Some(place) });
    }
    let reads = what.starts_with("io_uring_submit_req") && what.contains("opcode READ");
    reads.then_some(Event { at, place: None })
}

fn hex(text: &str, name: &str) -> Option<u64> {
    let value = text.split_once(name)?.1.trim_start_matches("0x");
    let end = value.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(value.len());
    u64::from_str_radix(&value[..end], 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_events_are_read() {
        let line = " fio-7598 [001] ..... 54331.846419: sys_pread64(fd: 7, buf: 0x7ff000003350, \
                    count: 0x200, pos: 0x1000)";
        let place = Some(Seen { offset: 0x1000, len: 0x200 });
        assert_eq!(event(line), Some(Event { at: 54_331_846_419_000, place }));
        let line = " fio-76 [000] ..... 2.000003: io_uring_submit_req: ring 0, req 0, user_data \
                    0x7f, opcode READ, flags 0x400000, sq_thread 0";
        assert_eq!(event(line), Some(Event { at: 2_000_003_000, place: None }));
        assert_eq!(event("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION"), None);
    }
}
