//! Tables of each kind: how the embedded library shows the store's access methods.
//!
//! A table is a number and costs nothing to copy; what it is used on is said with each use.

use crate::ask::{expect_found, expect_value};
use crate::{Ask, Entries, Error};
use std::iter;
use store::Table;
use store::access::{Kind, hash, raw, record, tree};
use store::transaction::{ANSWER_MAX, Call, Entry, Reply};

/// Keys in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree(pub(crate) tree::Tree);

/// Values that have a number, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records(record::Records);

/// Keys of any length, in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(hash::Hash);

/// Ranges of bytes in numbered objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw(raw::Raw);

/// The number of the table of that name, which is made if it is not there.
pub(crate) fn open(on: &impl Ask, name: &str, kind: Kind) -> Result<Table, Error> {
    let reply = on.call(Call::OpenTable { name: name.as_bytes().to_vec(), kind })?;
    let Reply::Table(table) = reply else { unreachable!("{reply:?} is no table") };
    Ok(table)
}

impl Tree {
    /// The tree of that name. It is made if there is none and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Tree, Error> {
        open(on, name, Kind::Tree).map(|table| Tree(tree::Tree(table)))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get(self, on: &impl Ask, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        on.get(self, key)
    }

    /// The value of a key that this transaction is going to write: others wait from now on.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get_for_update(self, on: &impl Ask, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        expect_value(on.call(self.0.get_for_update(key))?)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn put(self, on: &impl Ask, key: &[u8], value: &[u8]) -> Result<(), Error> {
        on.put(self, key, value)
    }

    /// Gives many keys their values, all at once.
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

    /// Takes a key away, if it is there.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn delete(self, on: &impl Ask, key: &[u8]) -> Result<(), Error> {
        on.delete(self, key)
    }

    /// All entries, in order.
    pub fn iter<A: Ask>(self, on: &A) -> Entries<'_, A> {
        self.range(on, b"", None)
    }

    /// Entries from a key on and before another; `None`: to the end.
    pub fn range<'a, A: Ask>(self, on: &'a A, from: &[u8], to: Option<&[u8]>) -> Entries<'a, A> {
        Entries::new(on, self.0.range(from, to))
    }

    /// Entries whose keys begin like this.
    pub fn prefix<'a, A: Ask>(self, on: &'a A, prefix: &[u8]) -> Entries<'a, A> {
        Entries::new(on, self.0.prefix(prefix))
    }
}

impl Records {
    /// The records of that name. They are made if there are none and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Records, Error> {
        open(on, name, Kind::Records).map(|table| Records(record::Records(table)))
    }

    /// A new record; its number.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn insert(self, on: &impl Ask, value: &[u8]) -> Result<u64, Error> {
        let reply = on.call(self.0.insert(value))?;
        let Reply::Id(id) = reply else { unreachable!("{reply:?} is no number") };
        Ok(id)
    }

    /// A record.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get(self, on: &impl Ask, id: u64) -> Result<Option<Vec<u8>>, Error> {
        expect_value(on.call(self.0.get(id))?)
    }

    /// Gives a record another value; whether it was there.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn update(self, on: &impl Ask, id: u64, value: &[u8]) -> Result<bool, Error> {
        expect_found(on.call(self.0.update(id, value))?)
    }

    /// Takes a record away, if it is there.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn delete(self, on: &impl Ask, id: u64) -> Result<(), Error> {
        on.call(self.0.delete(id)).map(drop)
    }

    /// All records from a number on, in order.
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
    /// The hash table of that name. It is made if there is none and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Hash, Error> {
        open(on, name, Kind::Hash).map(|table| Hash(hash::Hash(table)))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get(self, on: &impl Ask, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        expect_value(on.call(self.0.get(key))?)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As [`Ask::call`]; `TooLarge` if key and value together are larger than a value may be.
    pub fn put(self, on: &impl Ask, key: &[u8], value: &[u8]) -> Result<(), Error> {
        on.call(self.0.put(key, value)).map(drop)
    }

    /// Takes a key away; whether it was there.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn delete(self, on: &impl Ask, key: &[u8]) -> Result<bool, Error> {
        expect_found(on.call(self.0.delete(key))?)
    }

    /// All entries, in no order that means anything.
    pub fn iter<A: Ask>(self, on: &A) -> impl Iterator<Item = Result<Entry, Error>> {
        let mut entries = Entries::new(on, self.0.scan());
        iter::from_fn(move || {
            let entry = entries.advance().transpose()?;
            Some(entry.and_then(|(_, stored)| Ok(hash::decode(stored)?)))
        })
    }
}

impl Raw {
    /// The raw objects of that name. They are made if there are none and `on` may write.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`].
    pub fn open(on: &impl Ask, name: &str) -> Result<Raw, Error> {
        open(on, name, Kind::Raw).map(|table| Raw(raw::Raw(table)))
    }

    /// So many bytes from an offset on, zeros where nothing was written. A large range outside of
    /// a transaction is read in several steps.
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
            assert_eq!(more.len(), step, "what was not written is zeros");
            bytes.extend(more);
        }
        Ok(bytes)
    }

    /// Changes bytes from an offset on, at most as many as a transaction takes.
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
