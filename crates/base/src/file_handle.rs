//! Persistent identity of a file.

use std::fmt;

/// Maximum size of a file handle, bytes: what an NFSv3 handle holds beside the server's own nine.
pub const FILE_HANDLE_MAX: usize = 55;

/// Size of the tag in front of a file handle, bytes.
pub const TAG_SIZE: usize = 4;

/// Persistent identity of a file of a tree: it stays valid when the file is renamed and when the
/// server restarts, until the file is removed. The same file always has the same handle.
///
/// The first [`TAG_SIZE`] bytes identify the tree within the namespace. Trees leave them zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; FILE_HANDLE_MAX],
}

impl FileHandle {
    /// Returns the handle of a tree's own identifier of a file, with a zero tag; `None` if it is
    /// longer than [`FILE_HANDLE_MAX`] allows.
    pub fn new(identifier: &[u8]) -> Option<FileHandle> {
        let length = TAG_SIZE + identifier.len();
        let mut bytes = [0; FILE_HANDLE_MAX];
        bytes.get_mut(TAG_SIZE..length)?.copy_from_slice(identifier);
        Some(FileHandle { length: u8::try_from(length).expect("at most the maximum"), bytes })
    }

    /// Returns the handle of these bytes, tag included; `None` if there are too many or too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<FileHandle> {
        let (tag, identifier) = bytes.split_first_chunk()?;
        Some(FileHandle::new(identifier)?.with_tag(*tag))
    }

    /// Returns its bytes, tag included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }

    /// Returns the tag.
    pub fn tag(&self) -> [u8; TAG_SIZE] {
        *self.bytes.first_chunk().expect("longer than a tag")
    }

    /// Returns the tree's own identifier of the file.
    pub fn identifier(&self) -> &[u8] {
        &self.bytes[TAG_SIZE..self.length.into()]
    }

    /// Returns the handle with this tag.
    pub fn with_tag(mut self, tag: [u8; TAG_SIZE]) -> FileHandle {
        self.bytes[..TAG_SIZE].copy_from_slice(&tag);
        self
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_tag_and_identifier_come_back() {
        let handle = FileHandle::new(b"inode").expect("it is short").with_tag(*b"tree");
        assert_eq!(handle.as_bytes(), b"treeinode");
        assert_eq!(FileHandle::from_bytes(b"treeinode"), Some(handle));
        assert_eq!((handle.tag(), handle.identifier()), (*b"tree", &b"inode"[..]));
        assert_eq!(FileHandle::from_bytes(b"tre"), None);
        assert_eq!(FileHandle::new(&[0; FILE_HANDLE_MAX - TAG_SIZE + 1]), None);
        assert!(FileHandle::new(&[0; FILE_HANDLE_MAX - TAG_SIZE]).is_some());
    }
}
