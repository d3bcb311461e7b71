//! Access methods: the kinds of tables.
//!
//! | kind | for | key of an entry |
//! |---|---|---|
//! | [`tree`] | ordered keys | the key |
//! | [`record`] | numbered values | the number |
//! | [`hash`] | keys of any length, unordered | hash and a number among equal hashes |
//! | [`raw`] | byte ranges | the object's number and a block's |
//!
//! Each is a view of a table that converts operations to [`Call`]s, and plans such calls; the
//! engine does the rest. Tables have names in the [`catalog`].

pub mod catalog;
pub mod hash;
pub mod raw;
pub mod record;
pub mod tree;

pub use catalog::Kind;

use crate::transaction::request::{Call, Reply};
use crate::transaction::sight::{Sight, Stop};
use crate::{Change, transaction::Failure};

/// Performs a call, as far as possible now.
pub(crate) fn perform(call: &Call, sight: &mut Sight<'_>) -> Result<Reply, Stop> {
    match call {
        Call::Get { table, key } => Ok(Reply::Value(sight.get(*table, key)?)),
        Call::GetForUpdate { table, key } => Ok(Reply::Value(sight.get_for_update(*table, key)?)),
        Call::Put { table, key, value } => done(sight.put(*table, key, value.clone())),
        Call::Delete { table, key } => done(sight.delete(*table, key)),
        Call::Scan(scan) => {
            let (entries, more) = sight.scan(scan)?;
            Ok(Reply::Entries { entries, more })
        }
        Call::RawRead { table, object, offset, count } => {
            Ok(Reply::Bytes(sight.raw_read(*table, *object, *offset, *count)?))
        }
        Call::RawWrite { table, object, offset, data } => {
            done(sight.raw_write(*table, *object, *offset, data.clone()))
        }
        Call::RawCut { table, object, from, to } => {
            done(sight.raw_cut(*table, *object, *from, *to))
        }
        Call::Apply(changes) => done(apply(changes, sight)),
        Call::OpenTable { name, kind } => Ok(Reply::Table(catalog::open(sight, name, *kind)?)),
        Call::DropTable { name } => Ok(Reply::Found(catalog::drop(sight, name)?)),
        Call::Tables => Ok(Reply::Tables(catalog::list(sight)?)),
        Call::RecordInsert { table, value } => {
            Ok(Reply::Id(record::insert(sight, *table, value.clone())?))
        }
        Call::RecordUpdate { table, id, value } => {
            Ok(Reply::Found(record::update(sight, *table, *id, value.clone())?))
        }
        Call::HashGet { table, key } => Ok(Reply::Value(hash::get(sight, *table, key)?)),
        Call::HashPut { table, key, value } => done(hash::put(sight, *table, key, value)),
        Call::HashDelete { table, key } => Ok(Reply::Found(hash::delete(sight, *table, key)?)),
    }
}

fn done(result: Result<(), Stop>) -> Result<Reply, Stop> {
    result.map(|()| Reply::Done)
}

fn apply(changes: &[Change], sight: &mut Sight<'_>) -> Result<(), Stop> {
    for change in changes {
        match change {
            Change::Put { table, key, value } => sight.put(*table, key, value.clone())?,
            Change::Delete { table, key } => sight.delete(*table, key)?,
            Change::Write { table, object, offset, data } => {
                sight.raw_write(*table, *object, *offset, data.clone())?;
            }
            Change::Cut { table, object, from, to } => {
                sight.raw_cut(*table, *object, *from, *to)?;
            }
            // Placed blocks are for users of the store itself.
            Change::Attach { .. } | Change::Free { .. } => return Err(Failure::Invalid.into()),
        }
    }
    Ok(())
}
