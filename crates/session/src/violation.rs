//! Protocol violations of a server, after which a connection is unusable.

use std::fmt;

/// A protocol violation of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message of this size, where at most that one is valid, bytes.
    Size(usize, usize),
    /// A message that cannot be decoded.
    Malformed,
    /// A reply with a tag that no outstanding message has.
    Tag(u16),
    /// A reply of this type, where that one is due.
    Type(u8, u8),
    /// A second reply to a flushed message with this tag.
    Twice(u16),
    /// A message size that is too small, or larger than the offered one, bytes.
    Msize(u32, u32),
}

impl Violation {
    /// Returns a description without numbers, the same for all violations of a kind.
    pub fn text(self) -> &'static str {
        match self {
            Violation::Size(..) => "the server sent a message of a size that was not agreed",
            Violation::Malformed => "the server sent a malformed message",
            Violation::Tag(_) => "the server sent an unsolicited reply",
            Violation::Type(..) => "the server sent a reply of the wrong type",
            Violation::Twice(_) => "the server replied twice to one message",
            Violation::Msize(..) => "the server proposed an unusable message size (msize)",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Size(size, max) => {
                write!(f, "a message of {size} bytes, where at most {max} were agreed")
            }
            Violation::Malformed => f.write_str("a malformed message"),
            Violation::Tag(tag) => write!(f, "a reply with the unused tag {tag}"),
            Violation::Type(code, expected) => {
                write!(f, "a reply of type {code}, where {expected} is due")
            }
            Violation::Twice(tag) => write!(f, "a second reply with the tag {tag}"),
            Violation::Msize(proposed, offered) => {
                write!(f, "a message size of {proposed} bytes after {offered} were offered")
            }
        }
    }
}

impl std::error::Error for Violation {}
