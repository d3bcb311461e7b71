//! What can be asked of an engine, and what it answers.

use crate::access::Kind;
use crate::transaction::{Stretch, TransactionId};
use crate::{Change, Durability, Error, SnapshotId, Space, Table, View};
use base::Time;
use std::collections::BTreeSet;
use std::fmt;

/// A request. Each is answered exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begin a transaction; [`Reply::Begun`].
    Begin {
        /// What it sees. A snapshot is only read, and takes no locks.
        view: View,
        /// Whether it may write.
        writable: bool,
    },
    /// Do one thing, in a transaction or by itself.
    Call(On, Call),
    /// Make what a transaction wrote visible, all of it at once; [`Reply::Done`]. The transaction
    /// is over, also after an error, and then nothing was written.
    Commit {
        /// Which.
        transaction: TransactionId,
        /// When to answer. One that wrote nothing waits for what it may have seen.
        durability: Durability,
    },
    /// Forget a transaction; [`Reply::Done`].
    Rollback {
        /// Which.
        transaction: TransactionId,
    },
    /// Answer when everything committed before is durable; [`Reply::Done`].
    Sync,
    /// Keep everything as it is now under a name; [`Reply::Done`].
    Snapshot {
        /// Which no other snapshot has.
        name: Vec<u8>,
        /// For people.
        date: Time,
    },
    /// Give a snapshot up; [`Reply::Done`].
    DropSnapshot {
        /// Which.
        name: Vec<u8>,
    },
    /// Which snapshots there are; [`Reply::Snapshots`].
    Snapshots,
    /// How full the volume is; [`Reply::Space`].
    Space,
    /// Make everything durable and end; [`Reply::Done`]. Transactions are rolled back.
    Close,
}

/// Where a call is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// In a transaction.
    Transaction(TransactionId),
    /// By itself. If it writes, it is a transaction of its own, with this durability.
    Once(View, Durability),
}

/// One thing to be done with the contents of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Reply::Value`].
    Get {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
    },
    /// The same, by who is going to write it: locks it exclusively at once, so that two who do so
    /// do not get in each other's way.
    GetForUpdate {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
    },
    /// [`Reply::Done`].
    Put {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
        /// What.
        value: Vec<u8>,
    },
    /// [`Reply::Done`], also if it was not there.
    Delete {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
    },
    /// [`Reply::Entries`]. The range that was seen is locked.
    Scan(Scan),
    /// Bytes of a raw object, zeros where nothing was written; [`Reply::Bytes`].
    RawRead {
        /// Of which table.
        table: Table,
        /// Which object.
        object: u64,
        /// From where, bytes.
        offset: u64,
        /// How many, at most [`crate::transaction::ANSWER_MAX`].
        count: usize,
    },
    /// [`Reply::Done`].
    RawWrite {
        /// Of which table.
        table: Table,
        /// Which object.
        object: u64,
        /// From where, bytes.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// A range of a raw object becomes a hole; [`Reply::Done`].
    RawCut {
        /// Of which table.
        table: Table,
        /// Which object.
        object: u64,
        /// First byte.
        from: u64,
        /// Byte behind the last; `u64::MAX`: to the end.
        to: u64,
    },
    /// Several changes at once; [`Reply::Done`].
    Apply(Vec<Change>),
    /// The number of a table, which is made if there is none of that name; [`Reply::Table`].
    OpenTable {
        /// Not empty, at most a key long.
        name: Vec<u8>,
        /// How it is used.
        kind: Kind,
    },
    /// The table of that name is not there any more, and its storage is freed by and by;
    /// [`Reply::Found`]. Waits for who uses it; who does so later is refused.
    DropTable {
        /// Which.
        name: Vec<u8>,
    },
    /// Names of tables, with number and kind; [`Reply::Tables`].
    Tables,
    /// A new record; [`Reply::Id`].
    RecordInsert {
        /// Of which table.
        table: Table,
        /// What.
        value: Vec<u8>,
    },
    /// A record that is there becomes another; [`Reply::Found`].
    RecordUpdate {
        /// Of which table.
        table: Table,
        /// Which.
        id: u64,
        /// What.
        value: Vec<u8>,
    },
    /// [`Reply::Value`].
    HashGet {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
    },
    /// [`Reply::Done`].
    HashPut {
        /// Of which table.
        table: Table,
        /// Which; as long as it fits a value together with the value.
        key: Vec<u8>,
        /// What.
        value: Vec<u8>,
    },
    /// [`Reply::Found`].
    HashDelete {
        /// Of which table.
        table: Table,
        /// Which.
        key: Vec<u8>,
    },
}

impl Call {
    /// Whether it is about one of these tables.
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

/// A part of a table, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Of which table.
    pub table: Table,
    /// From this key on.
    pub from: Vec<u8>,
    /// Before this key; `None`: to the end.
    pub to: Option<Vec<u8>>,
    /// Whether it begins at the end.
    pub reverse: bool,
    /// Most entries. Fewer come if they are large, and then the reply says that there may be more.
    pub limit: usize,
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// The transaction's number.
    Begun(TransactionId),
    /// The value, if there is one.
    Value(Option<Vec<u8>>),
    /// Entries in the order asked for.
    Entries {
        /// At most as many as asked for.
        entries: Stretch,
        /// Whether there may be more behind the last one.
        more: bool,
    },
    /// Bytes of a raw object.
    Bytes(Vec<u8>),
    /// A table.
    Table(Table),
    /// Every table: name, number, kind.
    Tables(Vec<(Vec<u8>, Table, Kind)>),
    /// The new record.
    Id(u64),
    /// Whether it was there.
    Found(bool),
    /// Every snapshot.
    Snapshots(Vec<(Vec<u8>, SnapshotId, Time)>),
    /// How full the volume is.
    Space(Space),
}

/// Why a request was refused or failed, named by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store says why. After [`Error::WouldDeadlock`] the transaction still holds its locks.
    Store(Error),
    /// The transaction is over, perhaps because it was idle too long: begin another.
    Over,
    /// Too much is under way, or the transaction's last request is not answered yet: try later.
    Busy,
    /// The table is of another kind: use another name.
    OtherKind,
    /// The table was dropped: open one of its name again.
    Dropped,
    /// The request makes no sense.
    Invalid,
}

impl Failure {
    /// The sentence a person reads.
    pub fn text(self) -> &'static str {
        match self {
            Failure::Store(error) => error.text(),
            Failure::Over => "the transaction is over",
            Failure::Busy => "too much is under way",
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
