//! Copy of a replica's data into a larger volume.

use super::reading::Unreadable;
use super::{PARTS, RECORDS, SETTINGS, put};
use std::ops::ControlFlow;
use store::{Change, Missing, Store, Table, View};

/// Maximum overhead of a change beside its key and value, in bytes.
const BESIDE: usize = 64;

/// Progress of a copy.
#[derive(Debug)]
pub struct Copying {
    /// Tables not yet copied, and below the next key in the last of them.
    tables: Vec<Table>,
    from: Vec<u8>,
}

impl Copying {
    /// Starts a copy of all data of a replica.
    pub fn begin() -> Copying {
        Copying { tables: vec![PARTS, RECORDS, SETTINGS], from: Vec::new() }
    }

    /// Returns the next changes to an empty store, as many as fit one transaction, or `None` at the
    /// end. `fetch` loads pages.
    ///
    /// # Errors
    /// The error of `fetch`.
    pub fn next(
        &mut self,
        store: &mut Store,
        fetch: &mut dyn FnMut(&mut Store, Missing) -> Result<(), store::Error>,
    ) -> Result<Option<Vec<Change>>, Unreadable> {
        while let Some(table) = self.tables.last() {
            match some(store, *table, &self.from) {
                Ok((changes, _)) if changes.is_empty() => {
                    self.tables.pop();
                    self.from.clear();
                }
                Ok((changes, next)) => {
                    self.from = next;
                    return Ok(Some(changes));
                }
                Err(missing) => fetch(store, missing).map_err(Unreadable::Disk)?,
            }
        }
        Ok(None)
    }
}

/// Returns entries of a table from a key on, and the next key.
fn some(store: &Store, table: Table, from: &[u8]) -> Result<(Vec<Change>, Vec<u8>), Missing> {
    let most = store.layout().transaction_max() / 2;
    let (mut changes, mut size, mut next) = (Vec::new(), 0, Vec::new());
    let reader = store.reader(View::Present).expect("the present is always there");
    reader.scan(table, from, &mut |key, value| {
        size += BESIDE + key.len() + value.len();
        if size > most && !changes.is_empty() {
            return ControlFlow::Break(());
        }
        changes.push(put(table, key, value.bytes().into_owned()));
        next = [key, &[0]].concat();
        ControlFlow::Continue(())
    })?;
    Ok((changes, next))
}
