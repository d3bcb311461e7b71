//! Records of `/.upcall/subtree`: the directories beneath one, with the attributes and contents of
//! their files.
//!
//! A record is `size[4] kind[1] …`, little-endian, with the fields of 9P; its size includes itself.
//!
//! | kind | record | fields |
//! |---|---|---|
//! | 1 | directory | `qid[13] path[s]` |
//! | 2 | entry | `qid[13] cookie[8] type[1] name[s]`, the fields of `Rgetattr` if they are known |
//! | 3 | end | |
//! | 4 | failed | `errno[4]` |
//! | 5 | content | `qid[13] name[s]`, then the contents up to the end of the record |

#[cfg(test)]
mod tests;

use crate::ninep::{DecodeError, Field as _, HEADER_SIZE, Qid, Reader, Rmessage};
use base::NAME_MAX;

/// Bytes in front of every record's fields: size, kind.
const RECORD_HEADER: usize = 5;

/// Maximum size of contents, bytes.
pub const CONTENT_MAX: usize = 64 << 10;

/// Maximum length of the path of a directory, bytes.
pub const PATH_MAX: usize = 4096;

/// Maximum size of a record, bytes: that of contents with the longest name.
pub const RECORD_MAX: usize = RECORD_HEADER + 13 + 2 + NAME_MAX + CONTENT_MAX;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "most are entries, and few are kept")]
pub enum Record<'a> {
    /// Beginning of a directory.
    Directory {
        /// Identity of the directory.
        qid: Qid,
        /// Path relative to the directory that was requested: components joined by `/`; empty for
        /// itself.
        path: &'a [u8],
    },
    /// Entry of the directory that began last.
    Entry {
        /// Identity of the file, as in `Rreaddir`.
        qid: Qid,
        /// Position behind the entry, as in `Rreaddir`.
        cookie: u64,
        /// Type of the file (`DT_…`), as in `Rreaddir`.
        kind: u8,
        /// Name of the entry.
        name: &'a [u8],
        /// An `Rgetattr`; `None` if the attributes are not known.
        attributes: Option<Rmessage<'static>>,
    },
    /// End of the directory: all entries were sent.
    End,
    /// End of a directory that cannot be listed, perhaps after some entries.
    Failed {
        /// Linux `errno`.
        errno: u32,
    },
    /// Whole contents of a small plain file of the directory that ended last.
    Content {
        /// Identity of the file when it was read.
        qid: Qid,
        /// Name of its entry.
        name: &'a [u8],
        /// The contents.
        data: &'a [u8],
    },
}

impl Record<'_> {
    fn kind(&self) -> u8 {
        match self {
            Record::Directory { .. } => 1,
            Record::Entry { .. } => 2,
            Record::End => 3,
            Record::Failed { .. } => 4,
            Record::Content { .. } => 5,
        }
    }

    /// Appends the record.
    ///
    /// # Panics
    /// If it is larger than [`RECORD_MAX`], or attributes are another message than an `Rgetattr`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        self.kind().put(out);
        match self {
            Record::Directory { qid, path } => {
                qid.put(out);
                path.put(out);
            }
            Record::Entry { qid, cookie, kind, name, attributes } => {
                qid.put(out);
                cookie.put(out);
                kind.put(out);
                name.put(out);
                if let Some(attributes) = attributes {
                    put_attributes(attributes, out);
                }
            }
            Record::End => {}
            Record::Failed { errno } => errno.put(out),
            Record::Content { qid, name, data } => {
                qid.put(out);
                name.put(out);
                out.extend_from_slice(data);
            }
        }
        let size = out.len() - start;
        assert!(size <= RECORD_MAX, "a record of {size} bytes");
        let size = u32::try_from(size).expect("records are small");
        out[start..start + 4].copy_from_slice(&size.to_le_bytes());
    }
}

/// Decodes the first record; returns it with its size, bytes, or `None` if the bytes are only the
/// beginning of one.
///
/// # Errors
/// If the size is impossible, the kind is unknown, or a field extends past the end of the record.
pub fn decode(bytes: &[u8]) -> Result<Option<(Record<'_>, usize)>, DecodeError> {
    let Some(size) = bytes.first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_le_bytes(*size) as usize;
    if !(RECORD_HEADER..=RECORD_MAX).contains(&size) {
        return Err(DecodeError::Size);
    }
    let Some(record) = bytes.get(..size) else { return Ok(None) };
    let (kind, mut body) = (record[4], Reader::new(&record[RECORD_HEADER..]));
    let record = match kind {
        1 => Record::Directory { qid: body.get()?, path: body.get()? },
        2 => Record::Entry {
            qid: body.get()?,
            cookie: body.get()?,
            kind: body.get()?,
            name: body.get()?,
            attributes: get_attributes(&mut body)?,
        },
        3 => Record::End,
        4 => Record::Failed { errno: body.get()? },
        5 => Record::Content { qid: body.get()?, name: body.get()?, data: body.rest() },
        unknown => return Err(DecodeError::Type(unknown)),
    };
    body.end()?;
    Ok(Some((record, size)))
}

/// Appends the fields of an `Rgetattr`.
fn put_attributes(attributes: &Rmessage<'_>, out: &mut Vec<u8>) {
    assert!(matches!(attributes, Rmessage::Getattr { .. }), "{attributes:?} has no attributes");
    let start = out.len();
    attributes.encode(0, out);
    out.drain(start..start + HEADER_SIZE);
}

/// Decodes the fields of an `Rgetattr`, up to the end.
fn get_attributes(body: &mut Reader<'_>) -> Result<Option<Rmessage<'static>>, DecodeError> {
    if body.is_empty() {
        return Ok(None);
    }
    Ok(Some(Rmessage::Getattr {
        valid: body.get()?,
        qid: body.get()?,
        mode: body.get()?,
        uid: body.get()?,
        gid: body.get()?,
        nlink: body.get()?,
        rdev: body.get()?,
        size: body.get()?,
        blksize: body.get()?,
        blocks: body.get()?,
        atime_sec: body.get()?,
        atime_nsec: body.get()?,
        mtime_sec: body.get()?,
        mtime_nsec: body.get()?,
        ctime_sec: body.get()?,
        ctime_nsec: body.get()?,
        btime_sec: body.get()?,
        btime_nsec: body.get()?,
        generation: body.get()?,
        data_version: body.get()?,
    }))
}
