//! Resource limits and resource usage of a storelet, including the server's work for it.

use crate::compiled::Code;
use serde::Serialize;
use std::fmt;

/// Default memory limit of a storelet: 256 MiB together with the server's overhead.
const MEMORY: u64 = 250 << 20;

/// Trigger that ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Time: the driver of the guests calls [`Engine::tick`](crate::Engine::tick).
    Ticks,
    /// Time as in `Ticks`, with metered instructions.
    Metered,
    /// Number of instructions, approximately: deterministic.
    Fuel(u64),
}

impl Pace {
    /// Returns whether slices are limited by time.
    pub(crate) fn is_by_time(self) -> bool {
        matches!(self, Pace::Ticks | Pace::Metered)
    }

    /// Returns whether instructions are metered.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Pace::Metered | Pace::Fuel(_))
    }
}

/// Resource limits of a storelet; `u64::MAX` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Fuel: instructions, and the equivalent work of server functions.
    pub fuel: u64,
    /// Wall-clock time from start to end, ns.
    pub time_ns: u64,
    /// Linear memory, bytes.
    pub memory: u64,
    /// Table elements.
    pub table: u64,
    /// File requests.
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Bytes of output.
    pub output: u64,
    /// Open files.
    pub files: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            cpu_ns: 10_000_000_000,
            fuel: u64::MAX,
            time_ns: 60_000_000_000,
            memory: MEMORY,
            table: 100_000,
            operations: u64::MAX,
            bytes: u64::MAX,
            output: 1 << 30,
            files: 256,
        }
    }
}

/// Resource usage of a storelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Processor time of the guest, ns.
    pub cpu_ns: u64,
    /// Processor time that the server spent on its behalf, ns.
    pub served_ns: u64,
    /// Fuel, where it is metered; most of the last slice is missing if the guest was killed.
    pub fuel: u64,
    /// Largest size of the memory, bytes.
    pub memory: u64,
    /// File requests.
    pub operations: u64,
    /// File requests that walked names.
    pub walks: u64,
    /// Bytes read from files.
    pub read: u64,
    /// Bytes written to files.
    pub written: u64,
    /// Bytes of output.
    pub output: u64,
    /// Bytes of input.
    pub input: u64,
    /// Host calls.
    pub calls: u64,
    /// Time slices.
    pub slices: u64,
}

impl Used {
    /// Returns the sum of both.
    pub fn with(&self, other: &Used) -> Used {
        Used {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            served_ns: self.served_ns + other.served_ns,
            fuel: self.fuel.saturating_add(other.fuel),
            memory: self.memory + other.memory,
            operations: self.operations + other.operations,
            walks: self.walks + other.walks,
            read: self.read + other.read,
            written: self.written + other.written,
            output: self.output + other.output,
            input: self.input + other.input,
            calls: self.calls + other.calls,
            slices: self.slices + other.slices,
        }
    }
}

/// Reason for killing a storelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Processor time exhausted.
    Cpu,
    /// Fuel exhausted.
    Fuel,
    /// Time limit exceeded.
    Time,
    /// Memory limit exceeded, where the guest could not go on without.
    Memory,
    /// Too many file requests.
    Operations,
    /// Too many bytes read and written.
    Bytes,
    /// Too much output.
    Output,
    /// Cancelled by its owner, or the owner is gone.
    Cancelled,
    /// The reader of its output has ended.
    ReaderClosed,
    /// Another storelet of its chain failed.
    Broken,
    /// The server shuts down.
    Shutdown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Cpu => "its processor time is used up",
            Reason::Fuel => "its fuel is used up",
            Reason::Time => "its time is over",
            Reason::Memory => "it needs more memory than it may have",
            Reason::Operations => "request budget exceeded",
            Reason::Bytes => "it has read and written as many bytes as it may",
            Reason::Output => "output budget exceeded",
            Reason::Cancelled => "it was cancelled",
            Reason::ReaderClosed => "its reader has closed",
            Reason::Broken => "another storelet of its chain failed",
            Reason::Shutdown => "the server ends",
        })
    }
}

impl Budget {
    /// Returns the minimum of both for each resource.
    pub fn least(&self, other: &Budget) -> Budget {
        Budget {
            cpu_ns: self.cpu_ns.min(other.cpu_ns),
            fuel: self.fuel.min(other.fuel),
            time_ns: self.time_ns.min(other.time_ns),
            memory: self.memory.min(other.memory),
            table: self.table.min(other.table),
            operations: self.operations.min(other.operations),
            bytes: self.bytes.min(other.bytes),
            output: self.output.min(other.output),
            files: self.files.min(other.files),
        }
    }

    /// Returns the kind of code that enforces this budget.
    pub fn code(&self) -> Code {
        if self.fuel == u64::MAX { Code::Plain } else { Code::Metered }
    }

    /// Returns the first limit that this usage exceeds. Fuel is enforced by the engine instead.
    pub fn exceeded(&self, used: &Used) -> Option<Reason> {
        let cpu = used.cpu_ns.saturating_add(used.served_ns);
        let bytes = used.read.saturating_add(used.written);
        [
            (cpu > self.cpu_ns, Reason::Cpu),
            (used.operations > self.operations, Reason::Operations),
            (bytes > self.bytes, Reason::Bytes),
            (used.output > self.output, Reason::Output),
        ]
        .into_iter()
        .find_map(|(over, reason)| over.then_some(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_work_is_charged_to_the_storelet() {
        let budget = Budget { cpu_ns: 100, bytes: 10, ..Budget::default() };
        let used = Used { cpu_ns: 60, served_ns: 40, read: 5, written: 5, ..Used::default() };
        assert_eq!(budget.exceeded(&used), None);
        let more = Used { served_ns: 41, ..used };
        assert_eq!(budget.exceeded(&more), Some(Reason::Cpu));
        let more = Used { written: 6, ..used };
        assert_eq!(budget.exceeded(&more), Some(Reason::Bytes));
    }
}
