//! Errors of traces, with the information to fix them.

use super::Format;
use std::fmt;

/// Maximum bytes of the offending data shown.
const SHOWN_MAX: usize = 60;

/// Position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Line number, from 1.
    Line(u64),
    /// Byte offset, from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(number) => write!(f, "line {number}"),
            Position::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// Error while reading or using a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// System error while opening, reading or writing.
    System {
        /// File.
        file: String,
        /// Error text of the system.
        reason: String,
    },
    /// Unknown format: it must be specified.
    Unknown {
        /// File.
        file: String,
        /// Description of the contents.
        found: String,
    },
    /// Malformed record: repair it, or specify another format.
    Malformed {
        /// File.
        file: String,
        /// Position of the record or its field.
        place: Position,
        /// Actual and expected contents.
        found: String,
        /// Format used.
        format: Format,
    },
    /// The trace lacks required data.
    Lacking {
        /// Missing data, and the next step.
        what: String,
    },
}

impl Error {
    pub(super) fn system(file: &str, error: &std::io::Error) -> Error {
        Error::System { file: file.to_string(), reason: error.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { file, reason } => write!(f, "{file}: {reason}"),
            Error::Unknown { file, found } => {
                let tried: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
                write!(f, "{file}: {found}; tried {}. ", tried.join(", "))?;
                f.write_str("Name the format with --format FORMAT")
            }
            Error::Malformed { file, place, found, format } => {
                write!(f, "{file}, {place}: {found} (read as {format}). ")?;
                f.write_str("Repair the file, or name another format with --format FORMAT")
            }
            Error::Lacking { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// Formats bytes of a file for display: quoted, escaped and truncated.
pub(super) fn shown(bytes: &[u8]) -> String {
    let some = &bytes[..bytes.len().min(SHOWN_MAX)];
    let more = if bytes.len() > SHOWN_MAX { "…" } else { "" };
    format!("\"{}\"{more}", some.escape_ascii())
}
