//! An open control file: the writes to it form a text of lines, however it is split.
//!
//! Complete lines are executed on arrival. The beginning of a line waits for its end: for the next
//! write, a sync, or the close; a client lost without one may have had more to write, and half a
//! line may mean something else. A failure ends the whole text: lines written after it are not
//! executed.

use base::Error;

/// Maximum length of a line, bytes.
pub(super) const LINE_MAX: usize = 64 << 10;

/// Lines to execute, and the number of the first of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) first: usize,
    pub(super) text: Vec<u8>,
}

/// An open control file.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// The beginning of a line.
    tail: Vec<u8>,
    /// Number of lines since the last write at offset zero.
    lines: usize,
    /// Offset of a write that failed: writes behind it belong to the same text.
    failed_at: Option<u64>,
    /// Error message of the last text; empty if there was none.
    complaint: String,
    /// Number of commands in execution.
    pub(super) commands: usize,
    /// Whether it is closed; it is removed at the end of its last command.
    pub(super) closed: bool,
}

impl Control {
    /// Handles a write; returns the lines that are complete now.
    ///
    /// # Errors
    /// `Cancelled` behind a failed write; `FileTooLarge` if a line is longer than [`LINE_MAX`].
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<Option<Lines>, Error> {
        if self.failed_at.is_some_and(|at| offset > at) {
            return Err(Error::Cancelled);
        }
        self.failed_at = None;
        if self.commands == 0 {
            self.complaint.clear();
        }
        if offset == 0 {
            self.begin_anew();
        }
        self.tail.extend_from_slice(data);
        let end = self.tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if self.tail.len() - end > LINE_MAX {
            let line = self.lines + 1;
            self.fail(&format!("line {line} or one behind it is too long"), Some(offset));
            return Err(Error::FileTooLarge);
        }
        let rest = self.tail.split_off(end);
        let whole = std::mem::replace(&mut self.tail, rest);
        Ok(self.take(whole))
    }

    /// Starts a new line and text for a write at offset zero.
    fn begin_anew(&mut self) {
        self.lines = 0;
        if !self.tail.is_empty() {
            self.tail.push(b'\n');
        }
    }

    /// Returns the incomplete last line.
    pub(super) fn rest(&mut self) -> Option<Lines> {
        let rest = std::mem::take(&mut self.tail);
        self.take(rest)
    }

    fn take(&mut self, text: Vec<u8>) -> Option<Lines> {
        let first = self.lines + 1;
        self.lines += text.iter().filter(|byte| **byte == b'\n').count();
        (!text.is_empty()).then_some(Lines { first, text })
    }

    /// Records the failure of a write at `offset`.
    pub(super) fn fail(&mut self, why: &str, offset: Option<u64>) {
        self.tail.clear();
        self.failed_at = offset;
        if self.complaint.is_empty() {
            self.complaint = format!("{why}\n");
        }
    }

    /// Asserts all invariants.
    pub(super) fn check(&self) {
        assert!(self.tail.len() <= LINE_MAX, "a line is limited");
        assert!(!self.tail.contains(&b'\n'), "whole messages were taken");
    }

    /// Returns the error message of the last text; empty if there was none.
    pub(super) fn complaint(&self) -> &[u8] {
        self.complaint.as_bytes()
    }
}
