//! One thing to do to a target, and what became of it.

use std::fmt;

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Read bytes.
    #[default]
    Read,
    /// Write bytes.
    Write,
    /// Make what was written durable (`fdatasync`, 9P `Tfsync`).
    Sync,
    /// Say that bytes are not needed any more.
    Trim,
    /// Make a file, with `len` bytes in it.
    Create,
    /// Take a file away.
    Remove,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Kind; 6] =
        [Kind::Read, Kind::Write, Kind::Sync, Kind::Trim, Kind::Create, Kind::Remove];

    /// Whether it changes what the target holds.
    pub fn changes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Sync)
    }

    /// Its name, one lower-case word.
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

/// One thing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// What.
    pub kind: Kind,
    /// To which file of the target; a device of a trace. Targets with one file have number 0.
    pub file: u32,
    /// Where, bytes.
    pub offset: u64,
    /// How much, bytes.
    pub len: u32,
}

/// Why an I/O was issued later than its time. The order is that of precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// It was not late.
    #[default]
    None,
    /// The machine took the processor away while the generator was watching the clock.
    Stolen,
    /// The kernel kept the thread that was handing over an earlier I/O.
    Submission,
    /// Every connection (or place in the target's queue) was taken.
    Full,
    /// The generator itself was busy with filaments or its queues.
    Generator,
}

impl Cause {
    /// All of them, in order.
    pub const ALL: [Cause; 5] =
        [Cause::None, Cause::Stolen, Cause::Submission, Cause::Full, Cause::Generator];
}

/// How an I/O ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was done; so many bytes went over (fewer than asked for at the end of a file).
    Done(u32),
    /// The target refused, with this Linux error number (or HTTP status from 400 on).
    Failed(u16),
    /// It was not issued: it was late, and late ones are skipped; or the run was over.
    #[default]
    Skipped,
}

/// Everything that is known about one I/O. Times are nanoseconds since the start of the run, and
/// may be compared with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was to be issued.
    pub scheduled_ns: u64,
    /// When it was issued: just before the call that hands it to the kernel.
    pub issued_ns: u64,
    /// When its completion was seen.
    pub completed_ns: u64,
    /// When the kernel saw it, by the kernel's own trace.
    pub witnessed_ns: Option<u64>,
    /// What it was.
    pub io: Io,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was late, if it was.
    pub cause: Cause,
    /// Whose it is: the number of a filament.
    pub filament: u32,
}

impl Record {
    /// How much later than it was to be it was issued (the paper's *issue error*), ns.
    pub fn lateness_ns(&self) -> u64 {
        self.issued_ns.saturating_sub(self.scheduled_ns)
    }

    /// From issue to completion, ns.
    pub fn service_ns(&self) -> u64 {
        self.completed_ns.saturating_sub(self.issued_ns)
    }

    /// From the time it was to be issued to its completion, ns: what whoever asked would see. It
    /// hides no time that the generator lost (no coordinated omission).
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
