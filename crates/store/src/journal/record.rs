//! Format of a transaction in the journal.
//!
//! ```text
//! | length (4) | runs (4) | run: block (8), count (4) | ... | change | change | ...
//! change:
//!   1 put     table (4), key length (2), value length (4), key, value
//!   2 delete  table (4), key length (2), key
//!   3 write   table (4), object (8), offset (8), length (4), bytes
//!   4 attach  table (4), object (8), offset (8), block (8), birth (8), count (4), sums (8 each)
//!   5 cut     table (4), object (8), from (8), to (8)
//!   6 free    block (8), count (4)
//! ```
//!
//! The runs are those assigned to the changes when they were applied, in that order: a replay
//! assigns the same blocks.

use crate::little_endian::u32_at;
use crate::space::Run;
use crate::{Change, Extent, Layout, Table};

/// A transaction as recorded in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) runs: Vec<Run>,
    pub(crate) changes: Vec<Change>,
}

impl Record {
    /// Returns whether all values are within the limits of the volume.
    pub(crate) fn is_within_limits(&self, layout: &Layout) -> bool {
        let within = |run: &Run| {
            let end = run.at.checked_add(u64::from(run.count));
            run.at >= layout.data_at && end.is_some_and(|end| end <= layout.blocks)
        };
        self.runs.iter().all(within)
            && self.changes.iter().all(|change| change.is_within_limits(layout))
    }
}

/// Encodes a transaction's record.
pub(crate) fn encode(runs: &[Run], changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size(changes) + 12 * runs.len());
    bytes.extend([0; 4]);
    bytes.extend(u32::try_from(runs.len()).expect("transactions are small").to_le_bytes());
    for run in runs {
        bytes.extend(run.at.to_le_bytes());
        bytes.extend(run.count.to_le_bytes());
    }
    for change in changes {
        encode_change(change, &mut bytes);
    }
    assert_eq!(bytes.len(), size(changes) + 12 * runs.len(), "a record is as long as planned");
    let length = u32::try_from(bytes.len() - 4).expect("transactions are small");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Returns the size of a transaction's record without its runs, bytes.
pub(crate) fn size(changes: &[Change]) -> usize {
    let of = |change: &Change| match change {
        Change::Put { key, value, .. } => 11 + key.len() + value.len(),
        Change::Delete { key, .. } => 7 + key.len(),
        Change::Write { data, .. } => 25 + data.len(),
        Change::Attach { extent, .. } => 41 + 8 * extent.sums.len(),
        Change::Cut { .. } => 29,
        Change::Free { .. } => 13,
    };
    8 + changes.iter().map(of).sum::<usize>()
}

fn encode_change(change: &Change, bytes: &mut Vec<u8>) {
    let length = |n: usize| u32::try_from(n).expect("changes are small").to_le_bytes();
    let short = |n: usize| u16::try_from(n).expect("keys are short").to_le_bytes();
    match change {
        Change::Put { table, key, value } => {
            bytes.push(1);
            bytes.extend(table.0.to_le_bytes());
            bytes.extend(short(key.len()));
            bytes.extend(length(value.len()));
            bytes.extend(key);
            bytes.extend(value);
        }
        Change::Delete { table, key } => {
            bytes.push(2);
            bytes.extend(table.0.to_le_bytes());
            bytes.extend(short(key.len()));
            bytes.extend(key);
        }
        Change::Write { table, object, offset, data } => {
            bytes.push(3);
            bytes.extend(table.0.to_le_bytes());
            bytes.extend(object.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            bytes.extend(length(data.len()));
            bytes.extend(data);
        }
        Change::Attach { table, object, offset, extent } => {
            bytes.push(4);
            bytes.extend(table.0.to_le_bytes());
            bytes.extend(object.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            bytes.extend(extent.at.to_le_bytes());
            bytes.extend(extent.birth.to_le_bytes());
            bytes.extend(length(extent.sums.len()));
            extent.sums.iter().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        }
        Change::Cut { table, object, from, to } => {
            bytes.push(5);
            bytes.extend(table.0.to_le_bytes());
            bytes.extend(object.to_le_bytes());
            bytes.extend(from.to_le_bytes());
            bytes.extend(to.to_le_bytes());
        }
        Change::Free { at, count } => {
            bytes.push(6);
            bytes.extend(at.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
    }
}

/// Decodes a batch's payload into transactions; `None` if it is invalid.
pub(crate) fn decode_all(mut payload: &[u8]) -> Option<Vec<Record>> {
    let mut transactions = Vec::new();
    while !payload.is_empty() {
        let length = u32_at(payload.get(..4)?, 0) as usize;
        transactions.push(decode(payload.get(4..4 + length)?)?);
        payload = &payload[4 + length..];
    }
    Some(transactions)
}

fn decode(bytes: &[u8]) -> Option<Record> {
    let mut from = Source(bytes);
    let (mut runs, mut changes) = (Vec::new(), Vec::new());
    for _ in 0..from.u32()? {
        runs.push(Run { at: from.u64()?, count: from.u32()? });
    }
    while !from.0.is_empty() {
        changes.push(decode_change(&mut from)?);
    }
    Some(Record { runs, changes })
}

fn decode_change(from: &mut Source<'_>) -> Option<Change> {
    Some(match from.take(1)?[0] {
        1 => {
            let (table, key, value) = (from.table()?, from.u16()?, from.u32()? as usize);
            let key = from.take(key)?.to_vec();
            Change::Put { table, key, value: from.take(value)?.to_vec() }
        }
        2 => {
            let (table, key) = (from.table()?, from.u16()?);
            Change::Delete { table, key: from.take(key)?.to_vec() }
        }
        3 => {
            let (table, object, offset) = (from.table()?, from.u64()?, from.u64()?);
            let length = from.u32()? as usize;
            Change::Write { table, object, offset, data: from.take(length)?.to_vec() }
        }
        4 => {
            let (table, object, offset) = (from.table()?, from.u64()?, from.u64()?);
            let (at, birth, count) = (from.u64()?, from.u64()?, from.u32()? as usize);
            let sums = from.take(count.checked_mul(8)?)?.chunks_exact(8);
            let sums = sums.map(|sum| u64::from_le_bytes(sum.try_into().expect("eight bytes")));
            let extent = Extent { at, birth, sums: sums.collect() };
            Change::Attach { table, object, offset, extent }
        }
        5 => {
            let (table, object) = (from.table()?, from.u64()?);
            Change::Cut { table, object, from: from.u64()?, to: from.u64()? }
        }
        6 => Change::Free { at: from.u64()?, count: from.u32()? },
        _unknown => return None,
    })
}

/// Bytes decoded from the front.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(self.take(2)?.try_into().ok()?)))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn table(&mut self) -> Option<Table> {
        self.u32().map(Table)
    }
}
