//! What a volume keeps of a replica, on its way into a larger one.

use super::reading::Unreadable;
use super::{PARTS, RECORDS, SETTINGS, put};
use std::ops::ControlFlow;
use store::{Change, Missing, Store, Table, View};

/// What a change takes at most beside its key and its value, bytes.
const BESIDE: usize = 64;

/// A copy, as far as it is.
#[derive(Debug)]
pub struct Copying {
    /// The tables that are not copied, and the first key of the last that is not.
    tables: Vec<Table>,
    from: Vec<u8>,
}

impl Copying {
    /// A copy of all that a store keeps of a replica.
    pub fn begin() -> Copying {
        Copying { tables: vec![PARTS, RECORDS, SETTINGS], from: Vec::new() }
    }

    /// The next changes that make the same of an empty store, as many as one transaction may be of;
    /// `None`: that were all. `fetch` brings pages.
    ///
    /// # Errors
    /// What `fetch` says.
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

/// Entries of a table from a key on, and the key of the next.
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
