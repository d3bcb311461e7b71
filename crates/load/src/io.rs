//! I/O operations and their outcomes.

use std::fmt;

/// Kind of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Reads bytes.
    #[default]
    Read,
    /// Writes bytes.
    Write,
    /// Makes written data durable (`fdatasync`, 9P `Tfsync`).
    Sync,
    /// Discards bytes.
    Trim,
    /// Creates a file with `len` bytes.
    Create,
    /// Removes a file.
    Remove,
}

impl Kind {
    /// All kinds, in order.
    pub const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::Sync, Kind::Trim, Kind::Create, Kind::Remove];

    /// Reports whether it changes the target's contents.
    pub fn changes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Sync)
    }

    /// Returns its name, one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Sync => "sync",
            Kind::Trim => "trim",
            Kind::Create => "create",
            Kind::Remove => "remove",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// I/O operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Kind.
    pub kind: Kind,
    /// File index of the target, or device of a trace; 0 for targets with one file.
    pub file: u32,
    /// Offset, in bytes.
    pub offset: u64,
    /// Length, in bytes.
    pub len: u32,
}

/// Cause of a late issue, in order of precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Not late.
    #[default]
    None,
    /// The machine took the processor while the generator was watching the clock.
    Stolen,
    /// The kernel blocked the thread that was submitting an earlier I/O.
    Submission,
    /// All connections (or slots of the target's queue) were busy.
    Full,
    /// The generator itself was busy with filaments or its queues.
    Generator,
}

impl Cause {
    /// All causes, in order.
    pub const ALL: [Cause; 5] =
        [Cause::None, Cause::Stolen, Cause::Submission, Cause::Full, Cause::Generator];
}

/// Outcome of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Completed, with this many bytes transferred (fewer than requested at the end of a file).
    Done(u32),
    /// Failed on the target with this Linux errno (or an HTTP status of 400 or above).
    Failed(u16),
    /// Not issued: it was late and late I/Os are skipped, or the run was over.
    #[default]
    Skipped,
}

/// Record of one I/O. Times are in ns since the start of the run, and comparable with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Scheduled time.
    pub scheduled_ns: u64,
    /// Issue time, just before the submitting call.
    pub issued_ns: u64,
    /// Time at which the completion was seen.
    pub completed_ns: u64,
    /// Issue time according to the kernel's own trace.
    pub witnessed_ns: Option<u64>,
    /// I/O.
    pub io: Io,
    /// Outcome.
    pub outcome: Outcome,
    /// Cause of lateness.
    pub cause: Cause,
    /// Index of its filament.
    pub filament: u32,
}

impl Record {
    /// Returns the lateness of the issue (the paper's *issue error*), in ns.
    pub fn lateness_ns(&self) -> u64 {
        self.issued_ns.saturating_sub(self.scheduled_ns)
    }

    /// Returns the service time from issue to completion, in ns.
    pub fn service_ns(&self) -> u64 {
        self.completed_ns.saturating_sub(self.issued_ns)
    }

    /// Returns the response time from the scheduled time to completion in ns, as seen by a user. It
    /// includes time lost by the generator (no coordinated omission).
    pub fn response_ns(&self) -> u64 {
        self.completed_ns.saturating_sub(self.scheduled_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_times_are_measured_from_where_they_say() {
        let record =
            Record { scheduled_ns: 100, issued_ns: 130, completed_ns: 200, ..Record::default() };
        assert_eq!(record.lateness_ns(), 30);
        assert_eq!(record.service_ns(), 70);
        assert_eq!(record.response_ns(), 100);
    }
}
