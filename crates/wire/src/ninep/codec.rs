//! Encoding and decoding of message fields, by type.

use super::{Data, WALK_MAX};
use std::fmt;

/// Reason for a failed decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The size field differs from the length of the message.
    Size,
    /// A field extends past the end.
    Short,
    /// Bytes follow the last field.
    Trailing,
    /// A list is longer than the protocol's limit.
    List,
    /// Unknown type byte.
    Type(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Size => write!(f, "the size field contradicts the message's length"),
            DecodeError::Short => write!(f, "a field reaches past the end of the message"),
            DecodeError::Trailing => write!(f, "bytes follow the last field of the message"),
            DecodeError::List => write!(f, "a list has more elements than the protocol allows"),
            DecodeError::Type(code) => write!(f, "no message has the type {code}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes fields from the front of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next `n` bytes.
    ///
    /// # Errors
    /// `Short` if fewer are left.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns all bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Decodes the next field.
    ///
    /// # Errors
    /// `Short` if it extends past the end, `List` if it is too long.
    #[allow(private_bounds, reason = "the set of field types is closed")]
    pub fn get<T: Field<'a>>(&mut self) -> Result<T, DecodeError> {
        T::get(self)
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// `Trailing` if some are left.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// A type of message fields.
pub(crate) trait Field<'a>: Sized {
    fn get(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($type:ty),*) => { $(impl Field<'_> for $type {
        fn get(reader: &mut Reader<'_>) -> Result<$type, DecodeError> {
            let bytes = reader.take(size_of::<$type>())?;
            Ok(<$type>::from_le_bytes(bytes.try_into().expect("as many as were taken")))
        }

        fn put(&self, out: &mut Vec<u8>) {
            out.extend(self.to_le_bytes());
        }
    })* };
}

integers!(u8, u16, u32, u64);

/// An optional last field, present in some dialects only.
impl<'a> Field<'a> for Option<u32> {
    fn get(reader: &mut Reader<'a>) -> Result<Option<u32>, DecodeError> {
        if reader.is_empty() { Ok(None) } else { reader.get().map(Some) }
    }

    fn put(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put(out);
        }
    }
}

/// A string: 16-bit length, bytes. A string too long for the length field is truncated.
impl<'a> Field<'a> for &'a [u8] {
    fn get(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let length: u16 = reader.get()?;
        reader.take(length.into())
    }

    fn put(&self, out: &mut Vec<u8>) {
        let length = u16::try_from(self.len()).unwrap_or(u16::MAX);
        length.put(out);
        out.extend(&self[..length.into()]);
    }
}

impl<'a> Field<'a> for Data<'a> {
    fn get(reader: &mut Reader<'a>) -> Result<Data<'a>, DecodeError> {
        let length: u32 = reader.get()?;
        reader.take(length as usize).map(Data)
    }

    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.0.len()).expect("data is below 4 GiB").put(out);
        out.extend(self.0);
    }
}

/// Identity of a file: kind, version, and a number unique on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qid {
    /// Upper byte of the mode: [`Qid::DIR`], [`Qid::SYMLINK`] …
    pub kind: u8,
    /// Number that differs after each change.
    pub version: u32,
    /// Number unique among the server's files.
    pub path: u64,
}

impl Qid {
    /// Kind of a directory.
    pub const DIR: u8 = 0x80;
    /// Kind of a symbolic link (9P2000.L).
    pub const SYMLINK: u8 = 0x02;
    /// Kind of a plain file.
    pub const FILE: u8 = 0;
}

impl Field<'_> for Qid {
    fn get(reader: &mut Reader<'_>) -> Result<Qid, DecodeError> {
        Ok(Qid { kind: reader.get()?, version: reader.get()?, path: reader.get()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.kind.put(out);
        self.version.put(out);
        self.path.put(out);
    }
}

/// Up to sixteen names, stored inline.
#[derive(Clone, PartialEq, Eq)]
pub struct Names<'a> {
    count: usize,
    names: [&'a [u8]; WALK_MAX],
}

impl<'a> Names<'a> {
    /// Returns a list of these names.
    ///
    /// # Errors
    /// `List` if there are more than sixteen.
    pub fn new(list: &[&'a [u8]]) -> Result<Names<'a>, DecodeError> {
        let mut names: [&'a [u8]; WALK_MAX] = [&[]; WALK_MAX];
        names.get_mut(..list.len()).ok_or(DecodeError::List)?.copy_from_slice(list);
        Ok(Names { count: list.len(), names })
    }

    /// Returns the names.
    pub fn as_slice(&self) -> &[&'a [u8]] {
        &self.names[..self.count]
    }
}

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name: &&[u8]| String::from_utf8_lossy(name).into_owned();
        f.debug_list().entries(self.as_slice().iter().map(text)).finish()
    }
}

impl<'a> Field<'a> for Names<'a> {
    fn get(reader: &mut Reader<'a>) -> Result<Names<'a>, DecodeError> {
        let count: u16 = reader.get()?;
        let mut names: [&'a [u8]; WALK_MAX] = [&[]; WALK_MAX];
        for name in names.get_mut(..count.into()).ok_or(DecodeError::List)? {
            *name = reader.get()?;
        }
        Ok(Names { count: count.into(), names })
    }

    fn put(&self, out: &mut Vec<u8>) {
        u16::try_from(self.count).expect("at most sixteen").put(out);
        for name in self.as_slice() {
            name.put(out);
        }
    }
}

/// Up to sixteen qids, stored inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qids {
    count: usize,
    qids: [Qid; WALK_MAX],
}

impl Qids {
    /// Returns the qids.
    pub fn as_slice(&self) -> &[Qid] {
        &self.qids[..self.count]
    }
}

impl FromIterator<Qid> for Qids {
    /// Collects the first sixteen; drops the rest.
    fn from_iter<I: IntoIterator<Item = Qid>>(iter: I) -> Qids {
        let mut list = Qids::default();
        for (slot, qid) in list.qids.iter_mut().zip(iter) {
            *slot = qid;
            list.count += 1;
        }
        list
    }
}

impl Field<'_> for Qids {
    fn get(reader: &mut Reader<'_>) -> Result<Qids, DecodeError> {
        let count: u16 = reader.get()?;
        let mut list = Qids { count: count.into(), ..Qids::default() };
        for qid in list.qids.get_mut(..count.into()).ok_or(DecodeError::List)? {
            *qid = reader.get()?;
        }
        Ok(list)
    }

    fn put(&self, out: &mut Vec<u8>) {
        u16::try_from(self.count).expect("at most sixteen").put(out);
        for qid in self.as_slice() {
            qid.put(out);
        }
    }
}
