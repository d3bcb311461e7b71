//! Numbered values: the numbers increase, and are never reused.
//!
//! Numbers are reserved in advance, with a commit of their own, and assigned from memory, so that
//! inserting transactions do not wait for each other. The price is that numbers are skipped when a
//! transaction is rolled back, or the volume is closed.

use crate::access::tree::Tree;
use crate::read_view::{ReadView, Stop};
use crate::{Call, Scan};
use store::Table;

/// Number of numbers reserved at once.
pub(crate) const RESERVED: u64 = 256;

/// A table of numbered values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records(pub Table);

impl Records {
    /// Inserts a record: [`crate::Reply::Id`].
    pub fn insert(self, value: &[u8]) -> Call {
        Call::RecordInsert { table: self.0, value: value.to_vec() }
    }

    /// Gets a record: [`crate::Reply::Value`].
    pub fn get(self, id: u64) -> Call {
        Tree(self.0).get(&key(id))
    }

    /// Gets a record to be updated.
    pub fn get_for_update(self, id: u64) -> Call {
        Tree(self.0).get_for_update(&key(id))
    }

    /// Updates an existing record: [`crate::Reply::Found`].
    pub fn update(self, id: u64, value: &[u8]) -> Call {
        Call::RecordUpdate { table: self.0, id, value: value.to_vec() }
    }

    /// Deletes a record.
    pub fn delete(self, id: u64) -> Call {
        Tree(self.0).delete(&key(id))
    }

    /// Scans all records from one on, in order.
    pub fn scan(self, from: u64) -> Scan {
        Tree(self.0).range(&key(from), None)
    }
}

/// Returns a record's key. The empty key has the first number that is not reserved.
pub fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// Returns the number in a record's key.
pub fn id(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

pub(crate) fn insert(
    read_view: &mut ReadView<'_>,
    table: Table,
    value: Vec<u8>,
) -> Result<u64, Stop> {
    let id = read_view.next_id(table)?;
    read_view.put(table, &key(id), value)?;
    Ok(id)
}

pub(crate) fn update(
    read_view: &mut ReadView<'_>,
    table: Table,
    id: u64,
    value: Vec<u8>,
) -> Result<bool, Stop> {
    let found = read_view.get_for_update(table, &key(id))?.is_some();
    if found {
        read_view.put(table, &key(id), value)?;
    }
    Ok(found)
}
