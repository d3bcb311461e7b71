//! Values that have a number: it only grows, and is never used again.
//!
//! Numbers are reserved in advance, with a commit of their own, and given out from memory: so two
//! transactions that insert do not wait for each other. The price is that numbers are skipped
//! when a transaction is rolled back, or the volume is closed.

use crate::transaction::sight::{Sight, Stop};
use crate::transaction::{Call, Scan};
use crate::{Table, access::tree::Tree};

/// How many numbers are reserved at once.
pub(crate) const RESERVED: u64 = 256;

/// A table of values by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records(pub Table);

impl Records {
    /// A new record: [`crate::transaction::Reply::Id`].
    pub fn insert(self, value: &[u8]) -> Call {
        Call::RecordInsert { table: self.0, value: value.to_vec() }
    }

    /// A record: [`crate::transaction::Reply::Value`].
    pub fn get(self, id: u64) -> Call {
        Tree(self.0).get(&key(id))
    }

    /// A record that is going to be updated.
    pub fn get_for_update(self, id: u64) -> Call {
        Tree(self.0).get_for_update(&key(id))
    }

    /// Gives a record that is there another value: [`crate::transaction::Reply::Found`].
    pub fn update(self, id: u64, value: &[u8]) -> Call {
        Call::RecordUpdate { table: self.0, id, value: value.to_vec() }
    }

    /// Takes a record away.
    pub fn delete(self, id: u64) -> Call {
        Tree(self.0).delete(&key(id))
    }

    /// All records from one on, in order.
    pub fn scan(self, from: u64) -> Scan {
        Tree(self.0).range(&key(from), None)
    }
}

/// A record's key. The empty key has the first number that is not reserved.
pub fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The number in a record's key.
pub fn id(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

pub(crate) fn insert(sight: &mut Sight<'_>, table: Table, value: Vec<u8>) -> Result<u64, Stop> {
    let id = sight.next_id(table)?;
    sight.put(table, &key(id), value)?;
    Ok(id)
}

pub(crate) fn update(
    sight: &mut Sight<'_>,
    table: Table,
    id: u64,
    value: Vec<u8>,
) -> Result<bool, Stop> {
    let found = sight.get_for_update(table, &key(id))?.is_some();
    if found {
        sight.put(table, &key(id), value)?;
    }
    Ok(found)
}
