//! What a transaction changes.

use crate::{Layout, Table};

/// One change. A transaction is a list of them, applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value from now on.
    Put {
        /// Of which table.
        table: Table,
        /// At most [`crate::Layout::key_max`] bytes.
        key: Vec<u8>,
        /// At most [`crate::Layout::value_max`] bytes; what does not fit a page gets an extent.
        value: Vec<u8>,
    },
    /// The key is gone. No error if it was not there.
    Delete {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
    },
    /// Bytes of a raw object, which need not exist before. They ride in the journal.
    Write {
        /// Of which table; it holds nothing but raw objects.
        table: Table,
        /// Which object.
        object: u64,
        /// Where, bytes.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// Blocks that were placed on the disk before ([`crate::Store::place`]) become part of a raw
    /// object, in place of what was there.
    Attach {
        /// Of which table.
        table: Table,
        /// Which object.
        object: u64,
        /// Where, bytes; a multiple of the block size.
        offset: u64,
        /// Which blocks.
        extent: Extent,
    },
    /// A range of a raw object becomes a hole: reads as zeros and takes no space.
    Cut {
        /// Of which table.
        table: Table,
        /// Which object.
        object: u64,
        /// First byte.
        from: u64,
        /// Byte behind the last; `u64::MAX`: to the end.
        to: u64,
    },
    /// Blocks that a dropped snapshot held are free. For the store itself.
    Free {
        /// The first block.
        at: u64,
        /// How many.
        count: u32,
    },
}

/// A run of data blocks with a checksum each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub at: u64,
    /// The epoch in which they were written.
    pub birth: u64,
    /// Their checksums, one a block.
    pub sums: Vec<u64>,
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it survives power loss.
    Durable,
    /// At once; it is durable soon, and not before anything committed earlier.
    Soon,
}

impl Change {
    /// Of which table.
    pub(crate) fn table(&self) -> Option<Table> {
        match self {
            Change::Put { table, .. }
            | Change::Delete { table, .. }
            | Change::Write { table, .. }
            | Change::Attach { table, .. }
            | Change::Cut { table, .. } => Some(*table),
            Change::Free { .. } => None,
        }
    }

    /// Whether everything is of a size and in a place that a volume takes.
    pub(crate) fn is_fair(&self, layout: &Layout) -> bool {
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
