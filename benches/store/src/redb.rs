//! redb, copy-on-write trees in Rust.

use crate::engine::{Engine, Entry, MEMORY, Session, Shared, Users};
use anyhow::{Context, Result};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

struct Open(Database);

pub(crate) fn open(directory: &Path, _users: Users) -> Result<Box<dyn Engine>> {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(MEMORY);
    Ok(Box::new(Open(builder.create(directory.join("redb"))?)))
}

impl Engine for Open {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Open {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Open {
    fn put(&self, entries: Vec<Entry>, durable: bool) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(match durable {
            true => Durability::Immediate,
            false => Durability::None,
        })?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn sync(&self) -> Result<()> {
        self.put(Vec::new(), true)
    }

    /// All in one transaction: what redb is fastest at.
    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let transaction = self.0.begin_read()?;
        let table = transaction.open_table(TABLE)?;
        for key in keys {
            show(table.get(key.as_slice())?.context("a key is missing")?.value());
        }
        Ok(())
    }

    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let transaction = self.0.begin_read()?;
        for entry in transaction.open_table(TABLE)?.iter()? {
            let (key, value) = entry?;
            show(key.value(), value.value());
        }
        Ok(())
    }
}
