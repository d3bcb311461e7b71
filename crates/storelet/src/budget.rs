//! What a storelet may use, and what it has used. What the server does for it counts as its own.

use crate::compile::Code;
use serde::Serialize;
use std::fmt;

/// Memory of a storelet whose order says nothing: 256 MiB with what the server keeps for it.
const MEMORY: u64 = 250 << 20;

/// What a storelet may use at most. `u64::MAX`: as much as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Fuel, for instructions and what the server's functions do in the place of many.
    pub fuel: u64,
    /// From its start to its end, ns.
    pub time_ns: u64,
    /// Linear memory, bytes.
    pub memory: u64,
    /// Elements of its tables.
    pub table: u64,
    /// Requests to the file system.
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

/// What a storelet has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Processor time of its own, ns.
    pub cpu_ns: u64,
    /// Processor time that the server spent for it, ns.
    pub served_ns: u64,
    /// Fuel. Only where it is counted; if it did not end by itself, of most of its last slice not.
    pub fuel: u64,
    /// The largest its memory was, bytes.
    pub memory: u64,
    /// Requests to the file system.
    pub operations: u64,
    /// Of these those that walked names.
    pub walks: u64,
    /// Bytes read from files.
    pub read: u64,
    /// Bytes written to files.
    pub written: u64,
    /// Bytes of output.
    pub output: u64,
    /// Bytes of input.
    pub input: u64,
    /// Calls of the host.
    pub calls: u64,
    /// Slices of time.
    pub slices: u64,
}

impl Used {
    /// What both have used together.
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

/// Why a storelet was ended before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its processor time is used up.
    Cpu,
    /// Its fuel is used up.
    Fuel,
    /// Its time is over.
    Time,
    /// It wanted more memory than it may have, and could not go on without.
    Memory,
    /// Too many requests.
    Operations,
    /// Too many bytes.
    Bytes,
    /// Too much output.
    Output,
    /// Whoever started it wanted it to end, or is gone.
    Cancelled,
    /// Who was to hear it has ended.
    Unheard,
    /// Another storelet of its chain failed.
    Broken,
    /// The server ends.
    Shutdown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Cpu => "its processor time is used up",
            Reason::Fuel => "its fuel is used up",
            Reason::Time => "its time is over",
            Reason::Memory => "it needs more memory than it may have",
            Reason::Operations => "it has made as many requests as it may",
            Reason::Bytes => "it has read and written as many bytes as it may",
            Reason::Output => "it has said as much as it may",
            Reason::Cancelled => "it was cancelled",
            Reason::Unheard => "nobody listens to it any more",
            Reason::Broken => "another storelet of its chain failed",
            Reason::Shutdown => "the server ends",
        })
    }
}

impl Budget {
    /// What both allow.
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

    /// What code a program has to be that is held to this.
    pub fn code(&self) -> Code {
        if self.fuel == u64::MAX { Code::Plain } else { Code::Metered }
    }

    /// Whether what was used is more than this; fuel is taken from who has none by the engine.
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
    fn what_the_server_did_counts_as_its_own() {
        let budget = Budget { cpu_ns: 100, bytes: 10, ..Budget::default() };
        let used = Used { cpu_ns: 60, served_ns: 40, read: 5, written: 5, ..Used::default() };
        assert_eq!(budget.exceeded(&used), None);
        let more = Used { served_ns: 41, ..used };
        assert_eq!(budget.exceeded(&more), Some(Reason::Cpu));
        let more = Used { written: 6, ..used };
        assert_eq!(budget.exceeded(&more), Some(Reason::Bytes));
    }
}
