//! One component of a path.

use crate::Error;
use std::fmt;

/// Longest name of a directory entry, bytes (Linux `NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// The name of a directory entry: 1 to 255 bytes, neither `/` nor NUL. Need not be UTF-8.
///
/// `.` and `..` are names too (a walk may use them); creation and removal check [`Name::plain`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks the bytes; the only constructor of a `Name`.
    ///
    /// # Errors
    /// `NotFound` for an empty name, `NameTooLong` past 255 bytes, `Invalid` for `/` or NUL.
    pub fn new(bytes: &[u8]) -> Result<Name, Error> {
        if bytes.is_empty() {
            return Err(Error::NotFound);
        }
        if bytes.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(Error::Invalid);
        }
        Ok(Name(bytes.into()))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether this is `..`.
    pub fn is_parent(&self) -> bool {
        &*self.0 == b".."
    }

    /// Returns whether an entry of this name can be created or removed: neither `.` nor `..`.
    pub fn plain(&self) -> bool {
        !matches!(&*self.0, b"." | b"..")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}
