//! An open control file: what is written to it is a text of lines, however it is cut into writes.
//!
//! Whole lines are carried out when they have come. The beginning of a line waits for its end: for
//! the next write, a sync, or the close; who is gone without one may have wanted to write more, and
//! half a line may mean something else. What fails ends the whole text: what was written behind
//! it is not carried out.

use base::Error;

/// The longest line, bytes.
pub(super) const LINE_MAX: usize = 64 << 10;

/// Lines to be carried out, and the number of the first of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) first: usize,
    pub(super) text: Vec<u8>,
}

/// The open file.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// The beginning of a line.
    tail: Vec<u8>,
    /// How many lines have come since the beginning of the file was written.
    lines: usize,
    /// What was written here failed: what is written behind it belongs to it.
    failed_at: Option<u64>,
    /// What was wrong with what was written last, if anything.
    complaint: String,
    /// How many commands are under way.
    pub(super) commands: usize,
    /// It was given back: it goes with the end of its last command.
    pub(super) closed: bool,
}

impl Control {
    /// Takes what is written; gives the lines that are whole now.
    ///
    /// # Errors
    /// `Cancelled` behind what failed; `FileTooLarge` if a line is longer than [`LINE_MAX`].
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

    /// Who writes at the beginning of the file begins a line.
    fn begin_anew(&mut self) {
        self.lines = 0;
        if !self.tail.is_empty() {
            self.tail.push(b'\n');
        }
    }

    /// The line whose end has not come.
    pub(super) fn rest(&mut self) -> Option<Lines> {
        let rest = std::mem::take(&mut self.tail);
        self.take(rest)
    }

    fn take(&mut self, text: Vec<u8>) -> Option<Lines> {
        let first = self.lines + 1;
        self.lines += text.iter().filter(|byte| **byte == b'\n').count();
        (!text.is_empty()).then_some(Lines { first, text })
    }

    /// Something that was written at `offset` failed.
    pub(super) fn fail(&mut self, why: &str, offset: Option<u64>) {
        self.tail.clear();
        self.failed_at = offset;
        if self.complaint.is_empty() {
            self.complaint = format!("{why}\n");
        }
    }

    /// Asserts what always holds.
    pub(super) fn check(&self) {
        assert!(self.tail.len() <= LINE_MAX, "a line is limited");
        assert!(!self.tail.contains(&b'\n'), "what is whole was taken");
    }

    /// What was wrong with what was written last; empty if nothing was.
    pub(super) fn complaint(&self) -> &[u8] {
        self.complaint.as_bytes()
    }
}
