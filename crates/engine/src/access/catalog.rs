//! The catalog of tables: name, number, kind.

use crate::kind::Kind;
use crate::read_view::{ReadView, Stop};
use crate::request::{Failure, Scan};
use std::ops::ControlFlow;
use store::{Change, Error, Missing, Reader, Table};

/// The table of table names. The empty key has the number of the next table.
const CATALOG: Table = Table(1);

/// First number of named tables; lesser numbers are for the store itself and for the file tree.
pub const TABLES_FROM: u32 = 1024;

/// Dropped tables that still have entries, with their numbers as keys.
pub(crate) const DROPPED: Table = Table(5);

/// Size of a deletion in the journal beyond its key, bytes.
const ENTRY_OVERHEAD: usize = 24;

/// Returns the number of a table; creates the table if the name is free and this call may write.
pub(crate) fn open(read_view: &mut ReadView<'_>, name: &[u8], kind: Kind) -> Result<Table, Stop> {
    if name.is_empty() {
        return Err(Failure::Invalid.into());
    }
    if let Some(entry) = read_view.get(CATALOG, name)? {
        let (table, found) = decode(&entry)?;
        return if found == kind { Ok(table) } else { Err(Failure::OtherKind.into()) };
    }
    if !read_view.is_writable() {
        return Err(Error::NotFound.into());
    }
    // Creations of tables are serialised, and look up the name again.
    let next = read_view.get_for_update(CATALOG, b"")?;
    let number = next.map_or(Ok(TABLES_FROM), |bytes| number_from(&bytes))?;
    let next = number.checked_add(1).ok_or(Error::NoSpace)?;
    read_view.put(CATALOG, b"", next.to_be_bytes().to_vec())?;
    let entry = [&number.to_be_bytes()[..], &[kind.byte()]].concat();
    read_view.put(CATALOG, name, entry)?;
    Ok(Table(number))
}

/// Removes a table's name, and records that its entries must be removed; returns whether there was
/// one. Waits for all users of the table.
pub(crate) fn drop(read_view: &mut ReadView<'_>, name: &[u8]) -> Result<bool, Stop> {
    if name.is_empty() {
        return Err(Failure::Invalid.into());
    }
    let Some(entry) = read_view.get_for_update(CATALOG, name)? else { return Ok(false) };
    let (table, _) = decode(&entry)?;
    read_view.lock_table(table)?;
    read_view.delete(CATALOG, name)?;
    read_view.put(DROPPED, &table.0.to_be_bytes(), Vec::new())?;
    Ok(true)
}

/// Returns the tables dropped by these changes.
pub(crate) fn dropped(changes: &[Change]) -> impl Iterator<Item = Table> {
    changes.iter().filter_map(|change| match change {
        Change::Put { table: DROPPED, key, .. } => number_from(key).ok().map(Table),
        Change::Put { .. }
        | Change::Delete { .. }
        | Change::Write { .. }
        | Change::Attach { .. }
        | Change::Cut { .. }
        | Change::Free { .. } => None,
    })
}

/// Returns the changes that remove a piece of a dropped table: at most this number of entries, and
/// of bytes of their keys. `None` if nothing is left of any.
pub(crate) fn sweep(
    reader: &Reader<'_>,
    entries: usize,
    bytes: usize,
) -> Result<Option<Vec<Change>>, Missing> {
    let Some((number, _)) = reader.seek(DROPPED, b"")? else { return Ok(None) };
    let (mut changes, mut left) = (Vec::new(), bytes);
    // An invalid number has no entries.
    let rest = number_from(number).ok().map_or(Ok(false), |table| {
        reader.keys(Table(table), &mut |key| {
            if changes.len() >= entries || key.len() > left && !changes.is_empty() {
                return ControlFlow::Break(());
            }
            left = left.saturating_sub(key.len() + ENTRY_OVERHEAD);
            changes.push(Change::Delete { table: Table(table), key: key.to_vec() });
            ControlFlow::Continue(())
        })
    })?;
    if !rest {
        changes.push(Change::Delete { table: DROPPED, key: number.to_vec() });
    }
    Ok(Some(changes))
}

/// Returns all tables.
pub(crate) fn list(read_view: &mut ReadView<'_>) -> Result<Vec<(Vec<u8>, Table, Kind)>, Stop> {
    let mut tables = Vec::new();
    let mut from = vec![0];
    loop {
        let scan = Scan { table: CATALOG, from, to: None, reverse: false, limit: 1024 };
        let (entries, more) = read_view.scan(&scan)?;
        for (name, entry) in entries.iter() {
            let (table, kind) = decode(entry)?;
            tables.push((name.to_vec(), table, kind));
        }
        let Some((last, ..)) = tables.last().filter(|_| more) else { return Ok(tables) };
        from = [last, &b"\0"[..]].concat();
    }
}

fn decode(entry: &[u8]) -> Result<(Table, Kind), Error> {
    let (byte, number) = entry.split_last().ok_or(Error::Damaged)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.byte() == *byte);
    Ok((Table(number_from(number)?), kind.ok_or(Error::Damaged)?))
}

fn number_from(bytes: &[u8]) -> Result<u32, Error> {
    let number = bytes.try_into().map(u32::from_be_bytes).map_err(|_| Error::Damaged)?;
    if number >= TABLES_FROM { Ok(number) } else { Err(Error::Damaged) }
}
