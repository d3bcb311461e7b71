//! Transactions and snapshots, however the volume is reached.

use crate::{Ask, Error, Hash, Raw, Records, Tree, Volume, clock};
use base::Time;
use store::transaction::{Call, On, Reply, Request, TransactionId};
use store::{Durability, SnapshotId, Space, View};

/// How often [`Session::transact`] tries.
pub const TRIES_MAX: u32 = 1000;

/// An open volume: a [`Volume`] or a [`crate::Local`].
pub trait Session: Ask + Clone {
    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// As the request's; `Closed`.
    fn ask(&self, request: Request) -> Result<Reply, Error>;

    /// Asks for something and does not wait.
    fn tell(&self, request: Request);

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn begin(&self) -> Result<Transaction<Self>, Error> {
        begin(self, true)
    }

    /// Begins a transaction that only reads: what it has seen does not change until it ends.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn begin_read(&self) -> Result<Transaction<Self>, Error> {
        begin(self, false)
    }

    /// Does something in a transaction and commits it durably; all over again when it was chosen
    /// to go because of a deadlock, at most [`TRIES_MAX`] times.
    ///
    /// # Errors
    /// As those of `work`, which is rolled back then, and of the commit.
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

    /// The tree of that name, which is made if it is not there.
    ///
    /// # Errors
    /// `OtherKind`, and as [`Ask::call`]; so for the three below.
    fn tree(&self, name: &str) -> Result<Tree, Error> {
        Tree::open(self, name)
    }

    /// The records of that name, which are made if they are not there.
    ///
    /// # Errors
    /// As [`Session::tree`].
    fn records(&self, name: &str) -> Result<Records, Error> {
        Records::open(self, name)
    }

    /// The hash table of that name, which is made if it is not there.
    ///
    /// # Errors
    /// As [`Session::tree`].
    fn table(&self, name: &str) -> Result<Hash, Error> {
        Hash::open(self, name)
    }

    /// The raw objects of that name, which are made if they are not there.
    ///
    /// # Errors
    /// As [`Session::tree`].
    fn raw(&self, name: &str) -> Result<Raw, Error> {
        Raw::open(self, name)
    }

    /// Keeps everything as it is now under a name.
    ///
    /// # Errors
    /// `Exists`, and as [`Session::ask`].
    fn snapshot(&self, name: &str) -> Result<Snapshot<Self>, Error> {
        let date = clock::wall();
        self.ask(Request::Snapshot { name: name.as_bytes().to_vec(), date })?;
        self.at(name)
    }

    /// What a snapshot keeps, to be read.
    ///
    /// # Errors
    /// `NotFound`, and as [`Session::ask`].
    fn at(&self, name: &str) -> Result<Snapshot<Self>, Error> {
        let all = self.snapshots()?;
        let found = all.into_iter().find(|(other, ..)| other == name.as_bytes());
        let (_, id, date) = found.ok_or(store::Error::NotFound)?;
        Ok(Snapshot { session: self.clone(), id, date })
    }

    /// Gives a snapshot up.
    ///
    /// # Errors
    /// `NotFound`, and as [`Session::ask`].
    fn drop_snapshot(&self, name: &str) -> Result<(), Error> {
        self.ask(Request::DropSnapshot { name: name.as_bytes().to_vec() }).map(drop)
    }

    /// Which snapshots there are: name, number, date.
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
    /// `DiskFailed`: nobody knows until the volume is opened again.
    fn sync(&self) -> Result<(), Error> {
        self.ask(Request::Sync).map(drop)
    }

    /// How full the volume is.
    ///
    /// # Errors
    /// As [`Session::ask`].
    fn space(&self) -> Result<Space, Error> {
        let reply = self.ask(Request::Space)?;
        let Reply::Space(space) = reply else { unreachable!("{reply:?} is no space") };
        Ok(space)
    }

    /// Closes the volume for everybody, with everything committed durable. Transactions that are
    /// open are rolled back.
    ///
    /// # Errors
    /// `DiskFailed`: what was acknowledged as durable is all the same.
    fn close(&self) -> Result<(), Error> {
        self.ask(Request::Close).map(drop)
    }
}

fn begin<S: Session>(session: &S, writable: bool) -> Result<Transaction<S>, Error> {
    let reply = session.ask(Request::Begin { view: View::Present, writable })?;
    let Reply::Begun(id) = reply else { unreachable!("{reply:?} is no transaction") };
    Ok(Transaction { session: session.clone(), id, over: false })
}

/// Several things that happen at once or not at all. It is rolled back when it is dropped.
///
/// Others do not see what it writes until it commits, and cannot change what it has seen.
#[derive(Debug)]
pub struct Transaction<S: Session = Volume> {
    session: S,
    id: TransactionId,
    over: bool,
}

impl<S: Session> Transaction<S> {
    /// Makes everything that was written visible, all of it at once.
    ///
    /// # Errors
    /// `NoSpace`, `DiskFailed`. Before `DiskFailed` it may have become visible; else nothing was
    /// written.
    pub fn commit(mut self, durability: Durability) -> Result<(), Error> {
        self.over = true;
        self.session.ask(Request::Commit { transaction: self.id, durability }).map(drop)
    }

    /// Forgets what was written.
    ///
    /// # Errors
    /// `Over` if it was over already.
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
            self.session.tell(Request::Rollback { transaction: self.id });
        }
    }
}

/// What a volume was at one moment. It is read without locks, and stays when this is dropped.
#[derive(Clone, Debug)]
pub struct Snapshot<S: Session = Volume> {
    session: S,
    id: SnapshotId,
    date: Time,
}

impl<S: Session> Snapshot<S> {
    /// When it was made.
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
