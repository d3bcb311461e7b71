//! Changes of a transaction.

use crate::{Layout, Table};

/// One change. A transaction is a list of changes, applied as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Set the value of a key.
    Put {
        /// The table.
        table: Table,
        /// The key, at most [`crate::Layout::key_max`] bytes.
        key: Vec<u8>,
        /// The value, at most [`crate::Layout::value_max`] bytes; one that does not fit a page gets
        /// an extent.
        value: Vec<u8>,
    },
    /// Delete a key. An absent key is no error.
    Delete {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
    /// Write bytes of a raw object, which need not exist before. They go through the journal.
    Write {
        /// The table, which holds raw objects only.
        table: Table,
        /// The object.
        object: u64,
        /// Offset, bytes.
        offset: u64,
        /// The data.
        data: Vec<u8>,
    },
    /// Attach placed blocks ([`crate::Store::place`]) to a raw object, in place of its former ones.
    Attach {
        /// The table.
        table: Table,
        /// The object.
        object: u64,
        /// Offset, bytes; a multiple of the block size.
        offset: u64,
        /// The blocks.
        extent: Extent,
    },
    /// Punch a hole in a raw object: the range reads as zeros and takes no space.
    Cut {
        /// The table.
        table: Table,
        /// The object.
        object: u64,
        /// Offset of the first byte.
        from: u64,
        /// Offset behind the last byte; `u64::MAX`: to the end.
        to: u64,
    },
    /// Free blocks that a dropped snapshot held. For the store itself.
    Free {
        /// First block.
        at: u64,
        /// Number of blocks.
        count: u32,
    },
}

/// A run of data blocks with a checksum each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub at: u64,
    /// Epoch of their write.
    pub birth: u64,
    /// Their checksums, one for each block.
    pub sums: Vec<u64>,
}

/// Time of the acknowledgement of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it survives power loss.
    Durable,
    /// At once; it becomes durable soon, and not before anything committed earlier.
    Soon,
}

impl Change {
    /// Returns the table.
    pub fn table(&self) -> Option<Table> {
        match self {
            Change::Put { table, .. }
            | Change::Delete { table, .. }
            | Change::Write { table, .. }
            | Change::Attach { table, .. }
            | Change::Cut { table, .. } => Some(*table),
            Change::Free { .. } => None,
        }
    }

    /// Returns whether all sizes and positions are within the limits of the volume.
    pub(crate) fn is_within_limits(&self, layout: &Layout) -> bool {
        let block = layout.block as u64;
        let within = |at: u64, count: u64| {
            at >= layout.data_at && at.checked_add(count).is_some_and(|end| end <= layout.blocks)
        };
        match self {
            Change::Put { key, value, .. } => {
                key.len() <= layout.key_max() && value.len() <= layout.value_max()
            }
            Change::Delete { key, .. } => key.len() <= layout.key_max(),
            Change::Write { offset, data, .. } => {
                offset.checked_add(data.len() as u64).is_some_and(|end| end < 1 << 63)
            }
            Change::Attach { offset, extent, .. } => {
                let count = extent.sums.len() as u64;
                let end = count.checked_mul(block).and_then(|count| offset.checked_add(count));
                let fits = end.is_some_and(|end| end < 1 << 63);
                offset % block == 0 && fits && within(extent.at, count)
            }
            Change::Cut { .. } => true,
            Change::Free { at, count } => within(*at, u64::from(*count)),
        }
    }
}
