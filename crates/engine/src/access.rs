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

pub use crate::kind::Kind;

use crate::Failure;
use crate::read_view::{ReadView, Stop};
use crate::request::{Call, Reply};
use store::Change;

/// Performs a call, as far as possible now.
pub(crate) fn perform(call: &Call, read_view: &mut ReadView<'_>) -> Result<Reply, Stop> {
    match call {
        Call::Get { table, key } => Ok(Reply::Value(read_view.get(*table, key)?)),
        Call::GetForUpdate { table, key } => {
            Ok(Reply::Value(read_view.get_for_update(*table, key)?))
        }
        Call::Put { table, key, value } => done(read_view.put(*table, key, value.clone())),
        Call::Delete { table, key } => done(read_view.delete(*table, key)),
        Call::Scan(scan) => {
            let (entries, more) = read_view.scan(scan)?;
            Ok(Reply::Entries { entries, more })
        }
        Call::RawRead { table, object, offset, count } => {
            Ok(Reply::Bytes(read_view.raw_read(*table, *object, *offset, *count)?))
        }
        Call::RawWrite { table, object, offset, data } => {
            done(read_view.raw_write(*table, *object, *offset, data.clone()))
        }
        Call::RawCut { table, object, from, to } => {
            done(read_view.raw_cut(*table, *object, *from, *to))
        }
        Call::Apply(changes) => done(apply(changes, read_view)),
        Call::OpenTable { name, kind } => Ok(Reply::Table(catalog::open(read_view, name, *kind)?)),
        Call::DropTable { name } => Ok(Reply::Found(catalog::drop(read_view, name)?)),
        Call::Tables => Ok(Reply::Tables(catalog::list(read_view)?)),
        Call::RecordInsert { table, value } => {
            Ok(Reply::Id(record::insert(read_view, *table, value.clone())?))
        }
        Call::RecordUpdate { table, id, value } => {
            Ok(Reply::Found(record::update(read_view, *table, *id, value.clone())?))
        }
        Call::HashGet { table, key } => Ok(Reply::Value(hash::get(read_view, *table, key)?)),
        Call::HashPut { table, key, value } => done(hash::put(read_view, *table, key, value)),
        Call::HashDelete { table, key } => Ok(Reply::Found(hash::delete(read_view, *table, key)?)),
    }
}

fn done(result: Result<(), Stop>) -> Result<Reply, Stop> {
    result.map(|()| Reply::Done)
}

fn apply(changes: &[Change], read_view: &mut ReadView<'_>) -> Result<(), Stop> {
    for change in changes {
        match change {
            Change::Put { table, key, value } => read_view.put(*table, key, value.clone())?,
            Change::Delete { table, key } => read_view.delete(*table, key)?,
            Change::Write { table, object, offset, data } => {
                read_view.raw_write(*table, *object, *offset, data.clone())?;
            }
            Change::Cut { table, object, from, to } => {
                read_view.raw_cut(*table, *object, *from, *to)?;
            }
            // Placed blocks are for users of the store itself.
            Change::Attach { .. } | Change::Free { .. } => return Err(Failure::Invalid.into()),
        }
    }
    Ok(())
}
