//! Transactions and snapshots, over either kind of volume.

use crate::{Ask, Error, Hash, Raw, Records, Tree, Volume, clock};
use base::Time;
use engine::{Call, On, Reply, Request, TransactionId};
use store::{Durability, SnapshotId, Space, View};

/// Maximum number of attempts of [`Session::transact`].
pub const TRIES_MAX: u32 = 1000;

/// An open volume: a [`Volume`] or a [`crate::Local`].
pub trait Session: Ask + Clone {
    /// Performs a request and waits for its reply.
    ///
    /// # Errors
    /// Those of the request; `Closed`.
    fn ask(&self, request: Request) -> Result<Reply, Error>;

    /// Sends a request without waiting.
    fn submit(&self, request: Request);

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn begin(&self) -> Result<Transaction<Self>, Error> {
        begin(self, true)
    }

    /// Begins a read-only transaction: data it has read does not change until it ends.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn begin_read(&self) -> Result<Transaction<Self>, Error> {
        begin(self, false)
    }

    /// Runs `work` in a transaction and commits it durably; retries when it was the victim of a
    /// deadlock, at most [`TRIES_MAX`] times.
    ///
    /// # Errors
    /// Those of `work`, after which the transaction is rolled back, and of the commit.
    fn transact<T>(
        &self,
        work: impl Fn(&Transaction<Self>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tries = 1;
        loop {
            let transaction = self.begin()?;
            match work(&transaction) {
                Ok(result) => {
                    transaction.commit(Durability::Durable)?;
                    return Ok(result);
                }
                Err(error) if error.is_deadlock() && tries < TRIES_MAX => {
                    transaction.rollback()?;
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the tree of this name, creating it if necessary.
    ///
    /// # Errors
    /// `OtherKind`, and those of [`Ask::call`]; likewise for the three below.
    fn tree(&self, name: &str) -> Result<Tree, Error> {
        Tree::open(self, name)
    }

    /// Returns the records of this name, creating them if necessary.
    ///
    /// # Errors
    /// As [`Session::tree`].
    fn records(&self, name: &str) -> Result<Records, Error> {
        Records::open(self, name)
    }

    /// Returns the hash table of this name, creating it if necessary.
    ///
    /// # Errors
    /// As [`Session::tree`].
    fn table(&self, name: &str) -> Result<Hash, Error> {
        Hash::open(self, name)
    }

    /// Returns the raw objects of this name, creating them if necessary.
    ///
    /// # Errors
    /// As [`Session::tree`].
    fn raw(&self, name: &str) -> Result<Raw, Error> {
        Raw::open(self, name)
    }

    /// Takes a snapshot of the whole volume under a name.
    ///
    /// # Errors
    /// `Exists`, and as [`Session::ask`].
    fn snapshot(&self, name: &str) -> Result<Snapshot<Self>, Error> {
        let date = clock::wall();
        self.ask(Request::Snapshot { name: name.as_bytes().to_vec(), date })?;
        self.at(name)
    }

    /// Returns the snapshot of this name, for reading.
    ///
    /// # Errors
    /// `NotFound`, and as [`Session::ask`].
    fn at(&self, name: &str) -> Result<Snapshot<Self>, Error> {
        let all = self.snapshots()?;
        let found = all.into_iter().find(|(other, ..)| other == name.as_bytes());
        let (_, id, date) = found.ok_or(store::Error::NotFound)?;
        Ok(Snapshot { session: self.clone(), id, date })
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// `NotFound`, and as [`Session::ask`].
    fn drop_snapshot(&self, name: &str) -> Result<(), Error> {
        self.ask(Request::DropSnapshot { name: name.as_bytes().to_vec() }).map(drop)
    }

    /// Lists the snapshots: name, number, date.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn snapshots(&self) -> Result<Vec<(Vec<u8>, SnapshotId, Time)>, Error> {
        let reply = self.ask(Request::Snapshots)?;
        let Reply::Snapshots(all) = reply else { unreachable!("{reply:?} are no snapshots") };
        Ok(all)
    }

    /// Waits until everything committed before is durable.
    ///
    /// # Errors
    /// `DiskFailed`: whether it is durable is unknown until the volume is opened again.
    fn sync(&self) -> Result<(), Error> {
        self.ask(Request::Sync).map(drop)
    }

    /// Returns the space used and available.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn space(&self) -> Result<Space, Error> {
        let reply = self.ask(Request::Space)?;
        let Reply::Space(space) = reply else { unreachable!("{reply:?} is no space") };
        Ok(space)
    }

    /// Closes the volume for all users, and makes everything committed durable. Open transactions
    /// are rolled back.
    ///
    /// # Errors
    /// `DiskFailed`: changes acknowledged as durable remain so.
    fn close(&self) -> Result<(), Error> {
        self.ask(Request::Close).map(drop)
    }
}

fn begin<S: Session>(session: &S, writable: bool) -> Result<Transaction<S>, Error> {
    let reply = session.ask(Request::Begin { view: View::Present, writable })?;
    let Reply::Begun(id) = reply else { unreachable!("{reply:?} is no transaction") };
    Ok(Transaction { session: session.clone(), id, over: false })
}

/// An atomic group of changes. It is rolled back when dropped.
///
/// Its writes are invisible to others until it commits, and others cannot change data it has read.
#[derive(Debug)]
pub struct Transaction<S: Session = Volume> {
    session: S,
    id: TransactionId,
    over: bool,
}

impl<S: Session> Transaction<S> {
    /// Makes all writes visible atomically.
    ///
    /// # Errors
    /// `NoSpace`, `DiskFailed`. After `DiskFailed` the writes may be visible; after other errors
    /// nothing was written.
    pub fn commit(mut self, durability: Durability) -> Result<(), Error> {
        self.over = true;
        self.session.ask(Request::Commit { transaction: self.id, durability }).map(drop)
    }

    /// Discards the writes.
    ///
    /// # Errors
    /// `Over` if the transaction has ended already.
    pub fn rollback(mut self) -> Result<(), Error> {
        self.over = true;
        self.session.ask(Request::Rollback { transaction: self.id }).map(drop)
    }
}

impl<S: Session> Ask for Transaction<S> {
    fn call(&self, call: Call) -> Result<Reply, Error> {
        self.session.ask(Request::Call(On::Transaction(self.id), call))
    }
}

impl<S: Session> Drop for Transaction<S> {
    fn drop(&mut self) {
        if !self.over {
            self.session.submit(Request::Rollback { transaction: self.id });
        }
    }
}

/// A consistent view of a volume at one moment. It is read without locks, and is kept when this is
/// dropped.
#[derive(Clone, Debug)]
pub struct Snapshot<S: Session = Volume> {
    session: S,
    id: SnapshotId,
    date: Time,
}

impl<S: Session> Snapshot<S> {
    /// Returns its creation time.
    pub fn date(&self) -> Time {
        self.date
    }
}

impl<S: Session> Ask for Snapshot<S> {
    fn call(&self, call: Call) -> Result<Reply, Error> {
        let on = On::Once(View::Snapshot(self.id), Durability::Soon);
        self.session.ask(Request::Call(on, call))
    }
}
