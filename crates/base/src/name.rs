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

/// Returns whether this is the name of an incomplete file of an upload or a copy, until it gets its
/// own: `.upcall-`, then `put-` and four numbers, or 16 digits and a number.
pub fn is_temporary(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b".upcall-") else { return false };
    let is_hex = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_hexdigit);
    let mut parts = rest.split(|byte| *byte == b'-');
    match parts.next() {
        Some(b"put") => parts.all(is_hex),
        Some(process) => {
            let number = parts.next();
            process.len() == 16
                && is_hex(process)
                && number.is_some_and(is_hex)
                && parts.next().is_none()
        }
        None => false,
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

#[cfg(test)]
mod tests {
    use super::is_temporary;

    #[test]
    fn only_names_of_incomplete_files_are_temporary() {
        for name in [".upcall-put-6745a-0-1-2", ".upcall-put-00ab", ".upcall-cf5b83de3a6ad7fc-0"] {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in [".upcall", ".upcall-", ".upcall-notes", ".upcall-put-x", "a.upcall-put-1"] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
        assert!(!is_temporary(b".upcall-cf5b83de3a6ad7fc-0-1"));
    }
}
