//! What can be wrong with a trace, said so that somebody can do something about it.

use super::Format;
use std::fmt;

/// How much of what was found is shown.
const SHOWN_MAX: usize = 60;

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1 on.
    Line(u64),
    /// A byte, from 0 on.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// Why a trace cannot be read, or not be used as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The system refused to open, read or write.
    System {
        /// Which file.
        file: String,
        /// What the system said.
        said: String,
    },
    /// No format fits what the file begins with: name one.
    Unknown {
        /// Which file.
        file: String,
        /// What is known about it instead.
        found: String,
    },
    /// A record is not what its format asks for: repair it, or name another format.
    Malformed {
        /// Which file.
        file: String,
        /// The record, or the field of it.
        place: Place,
        /// What is there and what should be.
        found: String,
        /// As what it was read.
        format: Format,
    },
    /// The trace does not hold what was asked of it.
    Lacking {
        /// What it lacks, and what to do.
        what: String,
    },
}

impl Error {
    pub(super) fn system(file: &str, error: &std::io::Error) -> Error {
        Error::System { file: file.to_string(), said: error.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { file, said } => write!(f, "{file}: {said}"),
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

/// Bytes of a file as they can be shown: quoted, escaped, and not many of them.
pub(super) fn shown(bytes: &[u8]) -> String {
    let some = &bytes[..bytes.len().min(SHOWN_MAX)];
    let more = if bytes.len() > SHOWN_MAX { "…" } else { "" };
    format!("\"{}\"{more}", some.escape_ascii())
}
