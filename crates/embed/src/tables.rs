//! Tables of each kind: the embedded library's interface to the store's access methods.
//!
//! A table is a number and costs nothing to copy; each use names the target it is used on.

use crate::ask::{expect_found, expect_value};
use crate::{Ask, Entries, Error};
use engine::access::{Kind, hash, raw, record, tree};
use engine::{ANSWER_MAX, Call, Entry, Reply};
use std::iter;
use store::Table;

/// An ordered map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree(pub(crate) tree::Tree);

/// Values with numbers that are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records(record::Records);

/// An unordered map with keys of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(hash::Hash);

/// Numbered objects of bytes, accessed by ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw(raw::Raw);

/// Returns the number of the table of this name, creating it if necessary.
pub(crate) fn open(on: &impl Ask, name: &str, kind: Kind) -> Result<Table, Error> {
    let reply = on.call(Call::OpenTable { name: name.as_bytes().to_vec(), kind })?;
    let Reply::Table(table) = reply else { unreachable!("{reply:?} is no table") };
    Ok(table)
}

impl Tree {
    /// Opens the tree of this name. It is created if it does not exist and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Tree, Error> {
        open(on, name, Kind::Tree).map(|table| Tree(tree::Tree(table)))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get(self, on: &impl Ask, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        on.get(self, key)
    }

    /// Returns the value of a key that this transaction is going to write, and locks it
    /// exclusively.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get_for_update(self, on: &impl Ask, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        expect_value(on.call(self.0.get_for_update(key))?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn put(self, on: &impl Ask, key: &[u8], value: &[u8]) -> Result<(), Error> {
        on.put(self, key, value)
    }

    /// Sets the values of many keys atomically.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn put_all(
        self,
        on: &impl Ask,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<(), Error> {
        let table = self.0.0;
        let put = |(key, value)| store::Change::Put { table, key, value };
        on.call(Call::Apply(entries.into_iter().map(put).collect())).map(drop)
    }

    /// Removes a key, if present.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn delete(self, on: &impl Ask, key: &[u8]) -> Result<(), Error> {
        on.delete(self, key)
    }

    /// Returns an iterator over all entries, in order.
    pub fn iter<A: Ask>(self, on: &A) -> Entries<'_, A> {
        self.range(on, b"", None)
    }

    /// Returns an iterator over the entries from a key on and before another; `None`: to the end.
    pub fn range<'a, A: Ask>(self, on: &'a A, from: &[u8], to: Option<&[u8]>) -> Entries<'a, A> {
        Entries::new(on, self.0.range(from, to))
    }

    /// Returns an iterator over the entries whose keys have this prefix.
    pub fn prefix<'a, A: Ask>(self, on: &'a A, prefix: &[u8]) -> Entries<'a, A> {
        Entries::new(on, self.0.prefix(prefix))
    }
}

impl Records {
    /// Opens the records of this name. They are created if they do not exist and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Records, Error> {
        open(on, name, Kind::Records).map(|table| Records(record::Records(table)))
    }

    /// Inserts a record and returns its number.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn insert(self, on: &impl Ask, value: &[u8]) -> Result<u64, Error> {
        let reply = on.call(self.0.insert(value))?;
        let Reply::Id(id) = reply else { unreachable!("{reply:?} is no number") };
        Ok(id)
    }

    /// Returns a record.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get(self, on: &impl Ask, id: u64) -> Result<Option<Vec<u8>>, Error> {
        expect_value(on.call(self.0.get(id))?)
    }

    /// Replaces the value of a record; returns whether it existed.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn update(self, on: &impl Ask, id: u64, value: &[u8]) -> Result<bool, Error> {
        expect_found(on.call(self.0.update(id, value))?)
    }

    /// Removes a record, if present.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn delete(self, on: &impl Ask, id: u64) -> Result<(), Error> {
        on.call(self.0.delete(id)).map(drop)
    }

    /// Returns an iterator over all records from a number on, in order.
    pub fn iter<A: Ask>(
        self,
        on: &A,
        from: u64,
    ) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
        let mut entries = Entries::new(on, self.0.scan(from));
        iter::from_fn(move || {
            let entry = entries.advance().transpose()?;
            Some(entry.and_then(|(key, value)| {
                Ok((record::id(key).ok_or(store::Error::Damaged)?, value.to_vec()))
            }))
        })
    }
}

impl Hash {
    /// Opens the hash table of this name. It is created if it does not exist and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Hash, Error> {
        open(on, name, Kind::Hash).map(|table| Hash(hash::Hash(table)))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get(self, on: &impl Ask, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        expect_value(on.call(self.0.get(key))?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Those of [`Ask::call`]; `TooLarge` if key and value together exceed the maximum size of a
    /// value.
    pub fn put(self, on: &impl Ask, key: &[u8], value: &[u8]) -> Result<(), Error> {
        on.call(self.0.put(key, value)).map(drop)
    }

    /// Removes a key; returns whether it was present.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn delete(self, on: &impl Ask, key: &[u8]) -> Result<bool, Error> {
        expect_found(on.call(self.0.delete(key))?)
    }

    /// Returns an iterator over all entries, in no particular order.
    pub fn iter<A: Ask>(self, on: &A) -> impl Iterator<Item = Result<Entry, Error>> {
        let mut entries = Entries::new(on, self.0.scan());
        iter::from_fn(move || {
            let entry = entries.advance().transpose()?;
            Some(entry.and_then(|(_, stored)| Ok(hash::decode(stored)?)))
        })
    }
}

impl Raw {
    /// Opens the raw objects of this name. They are created if they do not exist and `on` may
    /// write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Raw, Error> {
        open(on, name, Kind::Raw).map(|table| Raw(raw::Raw(table)))
    }

    /// Reads this many bytes from an offset on, with zeros in holes. A large range outside of a
    /// transaction is read in several steps.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn read(
        self,
        on: &impl Ask,
        object: u64,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            let step = (count - bytes.len()).min(ANSWER_MAX);
            let reply = on.call(self.0.read(object, offset + bytes.len() as u64, step))?;
            let Reply::Bytes(more) = reply else { unreachable!("{reply:?} are no bytes") };
            assert_eq!(more.len(), step, "unwritten bytes are zeros");
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Writes bytes from an offset on, at most as many as fit a transaction.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn write(self, on: &impl Ask, object: u64, offset: u64, data: &[u8]) -> Result<(), Error> {
        on.call(self.0.write(object, offset, data)).map(drop)
    }

    /// Makes a range a hole; `u64::MAX`: to the end.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn cut(self, on: &impl Ask, object: u64, from: u64, to: u64) -> Result<(), Error> {
        on.call(self.0.cut(object, from, to)).map(drop)
    }
}
