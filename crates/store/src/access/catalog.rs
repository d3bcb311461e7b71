//! Which tables there are: name, number, kind.

use crate::transaction::request::{Failure, Scan};
use crate::transaction::sight::{Sight, Stop};
use crate::{Error, Table};

/// Where the names of tables are. The empty key has the number of the next one.
const CATALOG: Table = Table(1);

/// Lesser numbers are for the store itself and for the file tree.
pub const TABLES_FROM: u32 = 1024;

/// Most tables with a name.
pub const TABLES_MAX: usize = 65_536;

/// How a table is used. It is chosen when the table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Keys in order.
    Tree,
    /// Values by number.
    Records,
    /// Keys of any length in no order.
    Hash,
    /// Ranges of bytes.
    Raw,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Tree, Kind::Records, Kind::Hash, Kind::Raw];

    /// As it stands on the disk.
    fn byte(self) -> u8 {
        match self {
            Kind::Tree => 1,
            Kind::Records => 2,
            Kind::Hash => 3,
            Kind::Raw => 4,
        }
    }
}

/// The number of a table; it is made if there is none of that name and this call may write.
pub(crate) fn open(sight: &mut Sight<'_>, name: &[u8], kind: Kind) -> Result<Table, Stop> {
    if name.is_empty() {
        return Err(Failure::Invalid.into());
    }
    if let Some(entry) = sight.get(CATALOG, name)? {
        let (table, found) = decode(&entry)?;
        return if found == kind { Ok(table) } else { Err(Failure::OtherKind.into()) };
    }
    if !sight.is_writable() {
        return Err(Error::NotFound.into());
    }
    // Whoever makes tables does so one after the other, and looks again whose name it is.
    let next = sight.get_for_update(CATALOG, b"")?;
    let number = next.map_or(Ok(TABLES_FROM), |bytes| number_from(&bytes))?;
    if (number - TABLES_FROM) as usize >= TABLES_MAX {
        return Err(Error::NoSpace.into());
    }
    sight.put(CATALOG, b"", (number + 1).to_be_bytes().to_vec())?;
    let entry = [&number.to_be_bytes()[..], &[kind.byte()]].concat();
    sight.put(CATALOG, name, entry)?;
    Ok(Table(number))
}

/// Every table.
pub(crate) fn list(sight: &mut Sight<'_>) -> Result<Vec<(Vec<u8>, Table, Kind)>, Stop> {
    let mut tables = Vec::new();
    let mut from = vec![0];
    loop {
        let scan = Scan { table: CATALOG, from, to: None, reverse: false, limit: 1024 };
        let (entries, more) = sight.scan(&scan)?;
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
