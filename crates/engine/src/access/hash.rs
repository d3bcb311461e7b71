//! Unordered keys of any length.
//!
//! An entry is found by the XXH3 of its key; those with the same hash are numbered without gaps.
//! Key and value are together in the entry:
//!
//! ```text
//! key:   | hash, 8 | number, 2 |      big-endian
//! value: | length of the key, 4 | the key | the value |
//! ```

use crate::access::tree::Tree;
use crate::read_view::{ReadView, Stop};
use crate::request::{Entry, Failure};
use crate::{Call, Scan};
use store::{Error, Table};

/// A table of unordered keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub Table);

impl Hash {
    /// Gets the value of a key: [`crate::Reply::Value`].
    pub fn get(self, key: &[u8]) -> Call {
        Call::HashGet { table: self.0, key: key.to_vec() }
    }

    /// Sets the value of a key.
    pub fn put(self, key: &[u8], value: &[u8]) -> Call {
        Call::HashPut { table: self.0, key: key.to_vec(), value: value.to_vec() }
    }

    /// Deletes a key: [`crate::Reply::Found`].
    pub fn delete(self, key: &[u8]) -> Call {
        Call::HashDelete { table: self.0, key: key.to_vec() }
    }

    /// Scans all entries as they are stored; [`decode`] returns key and value.
    pub fn scan(self) -> Scan {
        Tree(self.0).range(b"", None)
    }
}

/// Returns the key and the value of a stored entry.
///
/// # Errors
/// `Damaged` if it is invalid.
pub fn decode(stored: &[u8]) -> Result<Entry, Error> {
    let (key, value) = parts(stored)?;
    Ok((key.to_vec(), value.to_vec()))
}

fn parts(stored: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (length, rest) = stored.split_first_chunk::<4>().ok_or(Error::Damaged)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(Error::Damaged)
}

fn encode(key: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(key.len()).map_err(|_| Error::TooLarge)?;
    Ok([&length.to_le_bytes()[..], key, value].concat())
}

/// Returns the key of the entry with this hash and number.
fn place(hash: u64, number: u16) -> [u8; 10] {
    let mut place = [0; 10];
    place[..8].copy_from_slice(&hash.to_be_bytes());
    place[8..].copy_from_slice(&number.to_be_bytes());
    place
}

#[cfg(not(test))]
fn hash_of(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Returns one of few values, so that tests have collisions.
#[cfg(test)]
fn hash_of(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key) % 16
}

/// Returns the entry of a key, or else the place for it.
fn find(
    read_view: &mut ReadView<'_>,
    table: Table,
    key: &[u8],
    write: bool,
) -> Result<Found, Stop> {
    let hash = hash_of(key);
    for number in 0..=u16::MAX {
        let place = place(hash, number);
        let stored = if write {
            read_view.get_for_update(table, &place)
        } else {
            read_view.get(table, &place)
        };
        match stored? {
            None => return Ok(Found { hash, number, stored: None }),
            Some(stored) if parts(&stored)?.0 == key => {
                return Ok(Found { hash, number, stored: Some(stored) });
            }
            Some(_) => {}
        }
    }
    Err(Failure::Invalid.into())
}

struct Found {
    hash: u64,
    number: u16,
    stored: Option<Vec<u8>>,
}

pub(crate) fn get(
    read_view: &mut ReadView<'_>,
    table: Table,
    key: &[u8],
) -> Result<Option<Vec<u8>>, Stop> {
    let found = find(read_view, table, key, false)?;
    Ok(found.stored.map(|mut stored| stored.split_off(4 + key.len())))
}

pub(crate) fn put(
    read_view: &mut ReadView<'_>,
    table: Table,
    key: &[u8],
    value: &[u8],
) -> Result<(), Stop> {
    let stored = encode(key, value)?;
    let found = find(read_view, table, key, true)?;
    read_view.put(table, &place(found.hash, found.number), stored)
}

/// Deletes a key; the last entry of the same hash takes its place, so that there are no gaps.
pub(crate) fn delete(read_view: &mut ReadView<'_>, table: Table, key: &[u8]) -> Result<bool, Stop> {
    let found = find(read_view, table, key, true)?;
    if found.stored.is_none() {
        return Ok(false);
    }
    let mut last = (found.number, None);
    while let Some(number) = last.0.checked_add(1) {
        match read_view.get_for_update(table, &place(found.hash, number))? {
            Some(stored) => last = (number, Some(stored)),
            None => break,
        }
    }
    if let Some(stored) = last.1 {
        read_view.put(table, &place(found.hash, found.number), stored)?;
    }
    read_view.delete(table, &place(found.hash, last.0))?;
    Ok(true)
}
