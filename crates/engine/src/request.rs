//! Requests to an engine, and its replies.

use crate::kind::Kind;
use crate::{ScanBatch, TransactionId};
use base::Time;
use std::collections::BTreeSet;
use std::fmt;
use store::{Change, Durability, Error, SnapshotId, Space, Table, View};

/// A request. Each is answered exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begin a transaction; [`Reply::Begun`].
    Begin {
        /// The state that it reads. Transactions on snapshots are read-only, and take no locks.
        view: View,
        /// Whether it may write.
        writable: bool,
    },
    /// Perform a call, in a transaction or by itself.
    Call(On, Call),
    /// Make the writes of a transaction visible, all of them at once; [`Reply::Done`]. The
    /// transaction ends, also after an error, in which case nothing was written.
    Commit {
        /// The transaction.
        transaction: TransactionId,
        /// Time of the reply. A transaction without writes waits for the durability of what it may
        /// have read.
        durability: Durability,
    },
    /// Discard a transaction; [`Reply::Done`].
    Rollback {
        /// The transaction.
        transaction: TransactionId,
    },
    /// Wait until everything committed before is durable; [`Reply::Done`].
    Sync,
    /// Create a snapshot of the present state; [`Reply::Done`].
    Snapshot {
        /// Name, unique among snapshots.
        name: Vec<u8>,
        /// Date, for people.
        date: Time,
    },
    /// Drop a snapshot; [`Reply::Done`].
    DropSnapshot {
        /// Name of the snapshot.
        name: Vec<u8>,
    },
    /// List the snapshots; [`Reply::Snapshots`].
    Snapshots,
    /// Get the usage of the volume; [`Reply::Space`].
    Space,
    /// Make everything durable and close the volume; [`Reply::Done`]. Transactions are rolled back.
    Close,
}

/// Context of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// In a transaction.
    Transaction(TransactionId),
    /// By itself. If it writes, it is a transaction of its own, with this durability.
    Once(View, Durability),
}

/// An operation on the contents of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Get the value of a key; [`Reply::Value`].
    Get {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
    /// Get the value of a key to be written: locks it exclusively at once, so that two such
    /// transactions do not deadlock.
    GetForUpdate {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
    /// Set the value of a key; [`Reply::Done`].
    Put {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Delete a key; [`Reply::Done`], also if it was absent.
    Delete {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
    /// Scan a range, which is locked as far as it was seen; [`Reply::Entries`].
    Scan(Scan),
    /// Read bytes of a raw object, zeros where nothing was written; [`Reply::Bytes`].
    RawRead {
        /// The table.
        table: Table,
        /// The object.
        object: u64,
        /// Offset, bytes.
        offset: u64,
        /// Number of bytes, at most [`crate::ANSWER_MAX`].
        count: usize,
    },
    /// Write bytes of a raw object; [`Reply::Done`].
    RawWrite {
        /// The table.
        table: Table,
        /// The object.
        object: u64,
        /// Offset, bytes.
        offset: u64,
        /// The data.
        data: Vec<u8>,
    },
    /// Punch a hole in a raw object; [`Reply::Done`].
    RawCut {
        /// The table.
        table: Table,
        /// The object.
        object: u64,
        /// Offset of the first byte.
        from: u64,
        /// Offset behind the last byte; `u64::MAX`: to the end.
        to: u64,
    },
    /// Apply several changes at once; [`Reply::Done`].
    Apply(Vec<Change>),
    /// Get the number of a table, which is created if the name is free; [`Reply::Table`].
    OpenTable {
        /// Name, not empty, with at most the length of a key.
        name: Vec<u8>,
        /// Kind of the table.
        kind: Kind,
    },
    /// Drop a table; its storage is freed gradually; [`Reply::Found`]. Waits for its present users;
    /// later ones are refused.
    DropTable {
        /// Name of the table.
        name: Vec<u8>,
    },
    /// List the tables with name, number and kind; [`Reply::Tables`].
    Tables,
    /// Insert a record; [`Reply::Id`].
    RecordInsert {
        /// The table.
        table: Table,
        /// The value.
        value: Vec<u8>,
    },
    /// Update an existing record; [`Reply::Found`].
    RecordUpdate {
        /// The table.
        table: Table,
        /// Number of the record.
        id: u64,
        /// The value.
        value: Vec<u8>,
    },
    /// Get the value of a key of a hash table; [`Reply::Value`].
    HashGet {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
    /// Set the value of a key of a hash table; [`Reply::Done`].
    HashPut {
        /// The table.
        table: Table,
        /// The key; together with the value it must fit a value.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Delete a key of a hash table; [`Reply::Found`].
    HashDelete {
        /// The table.
        table: Table,
        /// The key.
        key: Vec<u8>,
    },
}

impl Call {
    /// Returns whether it accesses one of these tables.
    pub(crate) fn is_about(&self, tables: &BTreeSet<Table>) -> bool {
        match self {
            Call::Get { table, .. }
            | Call::GetForUpdate { table, .. }
            | Call::Put { table, .. }
            | Call::Delete { table, .. }
            | Call::Scan(Scan { table, .. })
            | Call::RawRead { table, .. }
            | Call::RawWrite { table, .. }
            | Call::RawCut { table, .. }
            | Call::RecordInsert { table, .. }
            | Call::RecordUpdate { table, .. }
            | Call::HashGet { table, .. }
            | Call::HashPut { table, .. }
            | Call::HashDelete { table, .. } => tables.contains(table),
            Call::Apply(changes) => {
                changes.iter().filter_map(Change::table).any(|table| tables.contains(&table))
            }
            Call::OpenTable { .. } | Call::DropTable { .. } | Call::Tables => false,
        }
    }
}

/// A range of a table, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The table.
    pub table: Table,
    /// First key.
    pub from: Vec<u8>,
    /// End of the range, exclusive; `None`: to the end.
    pub to: Option<Vec<u8>>,
    /// Whether to start at the end.
    pub reverse: bool,
    /// Maximum number of entries. Fewer are returned if they are large; then the reply says that
    /// there may be more.
    pub limit: usize,
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Success without a value.
    Done,
    /// The new transaction.
    Begun(TransactionId),
    /// The value, if there is one.
    Value(Option<Vec<u8>>),
    /// Entries in the requested order.
    Entries {
        /// The entries, at most the requested number.
        entries: ScanBatch,
        /// Whether there may be more behind the last one.
        more: bool,
    },
    /// Bytes of a raw object.
    Bytes(Vec<u8>),
    /// A table.
    Table(Table),
    /// All tables: name, number, kind.
    Tables(Vec<(Vec<u8>, Table, Kind)>),
    /// Number of the new record.
    Id(u64),
    /// Whether it existed.
    Found(bool),
    /// All snapshots.
    Snapshots(Vec<(Vec<u8>, SnapshotId, Time)>),
    /// Usage of the volume.
    Space(Space),
}

/// A failure of a request, named by the caller's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error of the store. After [`Error::WouldDeadlock`] the transaction still holds its locks.
    Store(Error),
    /// The transaction has ended, perhaps because it was idle too long: begin another.
    Over,
    /// There are too many requests in flight, or the transaction's last request is outstanding:
    /// retry later.
    Busy,
    /// The table is of another kind: use another name.
    OtherKind,
    /// The table was dropped: open one of its name again.
    Dropped,
    /// The request is invalid.
    Invalid,
}

impl Failure {
    /// Returns the message for people.
    pub fn text(self) -> &'static str {
        match self {
            Failure::Store(error) => error.text(),
            Failure::Over => "the transaction is over",
            Failure::Busy => "too many requests are in flight",
            Failure::OtherKind => "there is a table of that name and of another kind",
            Failure::Dropped => "the table was dropped",
            Failure::Invalid => "the request makes no sense",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}
