//! Keys of the tree: those of all tables, each with its table's number in front.

use crate::Table;

/// Length greater than that of every key.
const PAST_ALL_KEYS: usize = 1024;

/// Returns a key of the tree: with its table's number in front.
pub fn full_key(table: Table, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(4 + key.len());
    full.extend(table.0.to_be_bytes());
    full.extend(key);
    full
}

/// Returns a key greater than every key of a table, and not greater than any of the next.
pub fn after_table(table: Table) -> Vec<u8> {
    match table.0.checked_add(1) {
        Some(next) => full_key(Table(next), b""),
        None => vec![0xff; PAST_ALL_KEYS],
    }
}
