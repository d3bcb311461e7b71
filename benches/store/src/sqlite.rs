//! SQLite with a write-ahead log; `synchronous=FULL` flushes it at each commit.

use crate::engine::{Engine, Entry, MEMORY, Session, Shared, Users};
use anyhow::Result;
use rusqlite::{Connection, TransactionBehavior, params};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Open {
    path: PathBuf,
    users: Users,
}

pub(crate) fn open(directory: &Path, users: Users) -> Result<Box<dyn Engine>> {
    let open = Open { path: directory.join("sqlite"), users };
    let connection = connect(&open)?;
    let make = "CREATE TABLE IF NOT EXISTS bench (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID";
    connection.execute(make, [])?;
    Ok(Box::new(open))
}

/// A connection of its own for each thread. What is for all together is shared by it.
fn connect(open: &Open) -> Result<Connection> {
    let connection = Connection::open(&open.path)?;
    let share = if open.users == Users::Many { 64 } else { 1 };
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -i64::try_from(MEMORY / 1024 / share)?)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    Ok(connection)
}

impl Engine for Open {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Shared::session(self)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Open {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let connection = RefCell::new(connect(self)?);
        Ok(Box::new(Connected { connection, durable: Cell::new(true) }))
    }
}

struct Connected {
    connection: RefCell<Connection>,
    durable: Cell<bool>,
}

impl Connected {
    fn be(&self, durable: bool) -> Result<()> {
        if self.durable.replace(durable) != durable {
            let mode = if durable { "FULL" } else { "NORMAL" };
            self.connection.borrow().pragma_update(None, "synchronous", mode)?;
        }
        Ok(())
    }
}

impl Session for Connected {
    fn put(&self, entries: Vec<Entry>, durable: bool) -> Result<()> {
        self.be(durable)?;
        let mut connection = self.connection.borrow_mut();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let text = "INSERT INTO bench VALUES (?1, ?2) \
                ON CONFLICT (k) DO UPDATE SET v = excluded.v";
            let mut statement = transaction.prepare_cached(text)?;
            for (key, value) in entries {
                statement.execute(params![key, value])?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// A checkpoint flushes what commits did not.
    fn sync(&self) -> Result<()> {
        let connection = self.connection.borrow();
        Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// All in one transaction.
    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        let transaction = connection.transaction()?;
        {
            let mut statement = transaction.prepare_cached("SELECT v FROM bench WHERE k = ?1")?;
            for key in keys {
                statement.query_row([key.as_slice()], |row| {
                    show(row.get_ref(0)?.as_blob()?);
                    Ok(())
                })?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let connection = self.connection.borrow();
        let mut statement = connection.prepare("SELECT k, v FROM bench ORDER BY k")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            show(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}
