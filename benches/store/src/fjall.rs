//! fjall, a log-structured engine in Rust.

use crate::engine::{Engine, Entry, MEMORY, Session, Shared, Users};
use anyhow::{Context, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

/// With `fdatasync`, as all others.
const DURABLE: PersistMode = PersistMode::SyncData;

struct Open(Database, Keyspace);

pub(crate) fn open(directory: &Path, _users: Users) -> Result<Box<dyn Engine>> {
    let database = Database::builder(directory.join("fjall")).cache_size(MEMORY as u64).open()?;
    let keyspace = database.keyspace("bench", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Open(database, keyspace)))
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
        let mode = durable.then_some(DURABLE);
        let mut batch = self.0.batch().durability(mode);
        for (key, value) in entries {
            batch.insert(&self.1, key, value);
        }
        Ok(batch.commit()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.persist(DURABLE)?)
    }

    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        for key in keys {
            show(&self.1.get(key)?.context("a key is missing")?);
        }
        Ok(())
    }

    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for entry in self.1.iter() {
            let (key, value) = entry.into_inner()?;
            show(&key, &value);
        }
        Ok(())
    }
}
