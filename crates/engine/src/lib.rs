//! The transaction manager: isolation of many users of one store.
//!
//! An [`Engine`] owns the store of a volume. Its users begin transactions, read and write in them,
//! and commit; or they make single calls. Writes of a transaction are visible to itself only, until
//! it commits: then all of them become visible to all users at once.
//!
//! Transactions exclude each other by locks that they hold until they commit (strict two-phase
//! locking; scans lock the range that they saw, so nothing appears in it). The alternative,
//! optimistic execution with validation at commit, is worse here: the flush, which costs most, is
//! shared by all concurrent commits, so waiting for a lock costs less than repeating a transaction.
//! Only a transaction that would close a cycle of waiting transactions has to be repeated
//! ([`store::Error::WouldDeadlock`]).
//! Locks are released when the changes are visible, before they are durable: a transaction that
//! sees them follows them in the journal, and so is never durable without them.
//!
//! Snapshots are read without locks. So are single calls: each takes effect at one moment, and
//! waits only if it would write something locked.

pub mod access;
mod driver;
mod kind;
mod locks;
mod read_view;
mod request;
mod scan;
mod state;
mod steps;
mod sweeper;
mod sweeping;
#[cfg(test)]
mod tests;
mod writes;

pub use driver::Driver;
pub use request::{Call, Entry, Failure, On, Reply, Request, Scan};
pub use scan::ScanBatch;

use crate::locks::{Locks, Owner};
use base::{Automaton, Instant};
use read_view::Guard;
use slab::Slab;
use state::{Input as Event, TxnRequest, TxnState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::ops::Range;
use std::time::Duration;
use store::{
    Change, Config, Durability, Error, Io, IoDone, IoId, Output as StoreOutput, Store, Table,
    Ticket, View,
};
use sweeper::Sweeper;
use writes::Writes;

/// Maximum time that a transaction waits for its owner, before it is rolled back.
pub const IDLE_MAX: Duration = Duration::from_secs(60);

/// Maximum number of transactions at a time.
pub const TRANSACTIONS_MAX: usize = 16_384;

/// Maximum size of the uncommitted writes of all transactions together, bytes.
pub const WRITTEN_MAX: usize = 256 << 20;

/// Maximum number of requests in flight.
pub const REQUESTS_MAX: usize = 65_536;

/// Approximate maximum size of one reply, bytes.
pub const ANSWER_MAX: usize = 1 << 20;

/// Record numbers of each table that are reserved and not assigned.
pub(crate) type Sequences = BTreeMap<Table, Range<u64>>;

/// Identifier of a transaction; never reused while the volume is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub u64);

/// An input of the engine.
#[derive(Debug)]
pub enum Input {
    /// A request of a user. [`Output::Reply`] follows, exactly once.
    Request(Ticket, Request),
    /// The completion of an operation on the disk.
    Done(IoId, IoDone),
    /// A turn ends, or time has passed.
    Tick,
}

/// An output of the engine.
#[derive(Debug)]
pub enum Output {
    /// An operation on the disk.
    Io(Io),
    /// The volume is open, or cannot be opened. Requests before this are refused.
    Opened(Result<(), Error>),
    /// The reply to a request.
    Reply(Ticket, Result<Reply, Failure>),
}

/// One transaction.
#[derive(Debug)]
struct Transaction {
    txn: TxnState,
    view: View,
    writable: bool,
    writes: Writes,
    /// All its changes in order, once it is being applied.
    changes: Vec<Change>,
    /// Slot of the store's reply to it, and whether one is outstanding.
    pending: Option<usize>,
    outstanding: bool,
    /// Its key among the idle transactions.
    idle: Option<Instant>,
}

/// A single call outside of transactions.
#[derive(Debug)]
struct Once {
    ticket: Ticket,
    view: View,
    durability: Durability,
    call: Call,
}

/// Recipient of a reply of the store. Its index in the table is the store's ticket.
#[derive(Debug)]
enum Pending {
    /// The next step of a transaction.
    Transaction(TransactionId),
    /// A single call, to be retried.
    Once(Once),
    /// The sweeper.
    Sweeper,
    /// A request, with its reply.
    Answer(Ticket, Reply),
    /// None.
    Nobody,
}

/// The store of a volume with its locks and transactions.
#[derive(Debug)]
pub struct Engine {
    store: Store,
    locks: Locks,
    transactions: BTreeMap<TransactionId, Transaction>,
    /// Transactions that wait for their owners, longest first.
    idle: BTreeSet<(Instant, TransactionId)>,
    /// Owners whose locks were granted, to be continued now.
    granted: VecDeque<Owner>,
    next: u64,
    /// Total size of their uncommitted writes, bytes.
    written: usize,
    sequences: Sequences,
    /// Tables dropped since the volume was opened: they are no longer usable.
    gone: BTreeSet<Table>,
    sweeper: Sweeper,
    /// Slot of its pending fetch, and the number of entries that it removes at once.
    sweeps: Option<usize>,
    piece: usize,
    pending: Slab<Pending>,
    /// Outputs of the store not handled yet.
    outputs: Vec<StoreOutput>,
    /// Empty writes, for calls outside of transactions.
    nothing: Writes,
    phase: Phase,
}

/// Handling of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    Closing,
}

impl Engine {
    /// Opens the volume that begins with `head`, its first [`store::HEAD_BYTES`]. It is usable
    /// after [`Output::Opened`].
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(
        head: &[u8],
        config: Config,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<Engine, Error> {
        let mut outputs = Vec::new();
        let store = Store::open(head, config, now, &mut outputs)?;
        let mut engine = Engine {
            store,
            locks: Locks::default(),
            transactions: BTreeMap::new(),
            idle: BTreeSet::new(),
            granted: VecDeque::new(),
            next: 1,
            written: 0,
            sequences: Sequences::new(),
            gone: BTreeSet::new(),
            sweeper: Sweeper::default(),
            sweeps: None,
            piece: sweeping::PIECE_MAX,
            pending: Slab::new(),
            outputs,
            nothing: Writes::default(),
            phase: Phase::Opening,
        };
        engine.settle(now, out);
        Ok(engine)
    }

    /// Returns the store, for access without a request.
    #[inline]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the numbers of locks held, of requests that wait for locks, and of transactions by
    /// state.
    pub fn counts(&self) -> (usize, usize, BTreeMap<&'static str, usize>) {
        let (held, waiting) = self.locks.counts();
        let mut states = BTreeMap::new();
        for transaction in self.transactions.values() {
            *states.entry(transaction.txn.state_name()).or_default() += 1;
        }
        (held, waiting, states)
    }

    /// Handles a request of a user; exactly one [`Output::Reply`] follows.
    pub fn request(
        &mut self,
        now: Instant,
        ticket: Ticket,
        request: Request,
        out: &mut Vec<Output>,
    ) {
        if let Err(failure) = self.expect_open(&request) {
            return out.push(Output::Reply(ticket, Err(failure)));
        }
        match request {
            Request::Begin { view, writable } => {
                let begun = self.begin(now, view, writable, None).map(Reply::Begun);
                out.push(Output::Reply(ticket, begun));
            }
            Request::Call(On::Transaction(id), call) => {
                self.ask(now, id, ticket, TxnRequest::Call(call), out);
            }
            Request::Call(On::Once(view, durability), call) => {
                self.once(now, None, Once { ticket, view, durability, call }, out);
            }
            Request::Commit { transaction, durability } => {
                let durability = self.durability(transaction, durability);
                self.ask(now, transaction, ticket, TxnRequest::Commit(durability), out);
            }
            Request::Rollback { transaction } => {
                self.ask(now, transaction, ticket, TxnRequest::Rollback, out);
            }
            Request::Sync => {
                let ticket = self.pending(ticket);
                self.store.sync(now, ticket, &mut self.outputs);
            }
            Request::Snapshot { name, date } => {
                let ticket = self.pending(ticket);
                self.store.snapshot(now, ticket, &name, date, &mut self.outputs);
            }
            Request::DropSnapshot { name } => {
                let ticket = self.pending(ticket);
                self.store.drop_snapshot(now, ticket, &name, &mut self.outputs);
            }
            Request::Snapshots => {
                let all = self.store.snapshots();
                let all = all.map(|(name, id, date)| (name.to_vec(), id, date)).collect();
                out.push(Output::Reply(ticket, Ok(Reply::Snapshots(all))));
            }
            Request::Space => {
                out.push(Output::Reply(ticket, Ok(Reply::Space(self.store.space()))));
            }
            Request::Close => self.close(now, ticket, out),
        }
        self.settle(now, out);
    }

    fn expect_open(&self, request: &Request) -> Result<(), Failure> {
        let ends = matches!(request, Request::Commit { .. } | Request::Rollback { .. });
        match self.phase {
            Phase::Opening => Err(Failure::Busy),
            Phase::Open if self.pending.len() >= REQUESTS_MAX && !ends => Err(Failure::Busy),
            Phase::Open => Ok(()),
            Phase::Closing => Err(Error::ReadOnly.into()),
        }
    }

    /// Handles the completion of an operation on the disk.
    pub fn done(&mut self, now: Instant, io: IoId, done: IoDone, out: &mut Vec<Output>) {
        self.store.done(now, io, done, &mut self.outputs);
        self.settle(now, out);
    }

    /// Starts work due: call it at the end of every turn, and when the deadline has passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some(&(since, id)) = self.idle.first()
            && since + IDLE_MAX <= now
        {
            self.drive(now, id, Event::Expire, out);
        }
        self.settle(now, out);
        if self.phase == Phase::Open {
            self.step_sweeper(now, sweeper::Input::Tick, out);
        }
        self.store.tick(now, &mut self.outputs);
        self.settle(now, out);
    }

    /// Returns the time for [`Engine::tick`] if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        let idle = self.idle.first().map(|(since, _)| *since + IDLE_MAX);
        let sweep = self.sweeper.deadline().filter(|_| self.phase == Phase::Open);
        self.store.deadline().into_iter().chain(idle).chain(sweep).min()
    }

    /// Refuses all requests that wait for a lock (`WouldDeadlock`). For a sole user of the engine,
    /// for whom no other could release the lock meanwhile.
    pub fn refuse_waiting(&mut self, now: Instant, out: &mut Vec<Output>) {
        let waits = |one: &&TransactionId| self.transactions[one].txn.is_waiting();
        let waiting: Vec<TransactionId> = self.transactions.keys().filter(waits).copied().collect();
        for id in waiting {
            // A request refused before may have unblocked this one.
            if self.transactions.get(&id).is_some_and(|one| one.txn.is_waiting()) {
                let granted = self.locks.withdraw(Owner(id.0));
                self.drive(now, id, Event::Refused(Error::WouldDeadlock), out);
                self.granted.extend(granted);
                self.settle(now, out);
            }
        }
    }

    /// Rolls all transactions back and closes the volume.
    fn close(&mut self, now: Instant, ticket: Ticket, out: &mut Vec<Output>) {
        self.phase = Phase::Closing;
        for id in self.transactions.keys().copied().collect::<Vec<_>>() {
            self.drive(now, id, Event::Expire, out);
        }
        self.settle(now, out);
        let ticket = self.pending(ticket);
        self.store.close(now, ticket, &mut self.outputs);
    }

    /// Begins a transaction.
    fn begin(
        &mut self,
        now: Instant,
        view: View,
        writable: bool,
        once: Option<Durability>,
    ) -> Result<TransactionId, Failure> {
        if self.transactions.len() >= TRANSACTIONS_MAX {
            return Err(Failure::Busy);
        }
        self.store.reader(view)?;
        if writable && view != View::Present {
            return Err(Error::ReadOnly.into());
        }
        let id = TransactionId(self.next);
        self.next += 1;
        let transaction = Transaction {
            txn: TxnState::new(now, once),
            view,
            writable,
            writes: Writes::default(),
            changes: Vec::new(),
            pending: None,
            outstanding: false,
            idle: Some(now),
        };
        self.transactions.insert(id, transaction);
        self.idle.insert((now, id));
        Ok(id)
    }

    /// Returns the durability to wait for: the contents of a snapshot are durable already.
    fn durability(&self, id: TransactionId, wanted: Durability) -> Durability {
        match self.transactions.get(&id).map(|transaction| transaction.view) {
            Some(View::Snapshot(_)) => Durability::Soon,
            Some(View::Present) | None => wanted,
        }
    }

    /// Handles a request of a transaction's owner.
    fn ask(
        &mut self,
        now: Instant,
        id: TransactionId,
        ticket: Ticket,
        request: TxnRequest,
        out: &mut Vec<Output>,
    ) {
        if self.transactions.contains_key(&id) {
            self.drive(now, id, Event::Requested(ticket, request), out);
        } else {
            out.push(Output::Reply(ticket, Err(Failure::Over)));
        }
    }

    /// Returns a ticket of the store whose reply answers a request.
    fn pending(&mut self, ticket: Ticket) -> Ticket {
        Ticket(self.pending.insert(Pending::Answer(ticket, Reply::Done)) as u64)
    }

    /// Handles outputs of the store, and continues transactions with granted locks, until there is
    /// nothing left to do.
    fn settle(&mut self, now: Instant, out: &mut Vec<Output>) {
        loop {
            for output in mem::take(&mut self.outputs) {
                self.receive(now, output, out);
            }
            match self.granted.pop_front() {
                Some(owner) => {
                    let id = TransactionId(owner.0);
                    // If the volume is being closed, it may have ended already.
                    if self.transactions.contains_key(&id) {
                        self.drive(now, id, Event::Granted, out);
                    }
                }
                None if self.outputs.is_empty() => return,
                None => {}
            }
        }
    }

    fn receive(&mut self, now: Instant, output: StoreOutput, out: &mut Vec<Output>) {
        match output {
            StoreOutput::Io(io) => out.push(Output::Io(io)),
            StoreOutput::Opened(result) => {
                self.phase = if result.is_ok() { Phase::Open } else { Phase::Closing };
                if !self.store.is_read_only() {
                    self.sweeper.step(now, sweeper::Input::Dropped, &mut Vec::new());
                }
                out.push(Output::Opened(result));
            }
            StoreOutput::Fetched(ticket, result) => self.fetched(now, ticket, result, out),
            StoreOutput::Committed(ticket, result) | StoreOutput::Closed(ticket, result) => {
                self.committed(now, ticket, result, out);
            }
            // Blocks are placed only by users of the store itself.
            StoreOutput::Placed(ticket, result) => unreachable!("{ticket:?} {result:?}"),
        }
    }

    fn fetched(
        &mut self,
        now: Instant,
        ticket: Ticket,
        result: Result<(), Error>,
        out: &mut Vec<Output>,
    ) {
        let key = ticket.0 as usize;
        match mem::replace(&mut self.pending[key], Pending::Nobody) {
            Pending::Transaction(id) => {
                self.pending[key] = Pending::Transaction(id);
                self.answered(id);
                self.drive(now, id, Event::Fetched(result), out);
            }
            Pending::Once(once) => match result {
                Ok(()) => self.once(now, Some(key), once, out),
                Err(error) => {
                    self.pending.remove(key);
                    out.push(Output::Reply(once.ticket, Err(error.into())));
                }
            },
            Pending::Sweeper => {
                self.pending[key] = Pending::Sweeper;
                let event = result.map_or(sweeper::Input::Failed, |()| sweeper::Input::Fetched);
                self.sweeper.step(now, event, &mut Vec::new());
            }
            Pending::Nobody => drop(self.pending.remove(key)),
            Pending::Answer(ticket, reply) => unreachable!("{ticket:?} waits for {reply:?}"),
        }
    }

    fn committed(
        &mut self,
        now: Instant,
        ticket: Ticket,
        result: Result<(), Error>,
        out: &mut Vec<Output>,
    ) {
        let key = ticket.0 as usize;
        if let Pending::Transaction(id) = self.pending[key] {
            self.answered(id);
            return self.drive(now, id, Event::Committed(result), out);
        }
        match self.pending.remove(key) {
            Pending::Answer(ticket, reply) => {
                out.push(Output::Reply(ticket, result.map(|()| reply).map_err(Failure::from)));
            }
            Pending::Nobody => {}
            other @ (Pending::Transaction(_) | Pending::Once(_) | Pending::Sweeper) => {
                unreachable!("{other:?}")
            }
        }
    }

    fn answered(&mut self, id: TransactionId) {
        let transaction =
            self.transactions.get_mut(&id).expect("a pending request has a transaction");
        assert!(transaction.outstanding, "the store answers once");
        transaction.outstanding = false;
    }
}

impl Automaton for Engine {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Request(ticket, request) => self.request(now, ticket, request, out),
            Input::Done(io, done) => self.done(now, io, done, out),
            Input::Tick => self.tick(now, out),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Engine::deadline(self)
    }

    fn check(&self) {
        self.store.check();
        self.locks.check();
        let written = self.transactions.values().map(|one| one.writes.bytes()).sum::<usize>();
        assert_eq!(self.written, written);
        for (id, transaction) in &self.transactions {
            assert!(!transaction.txn.is_over());
            assert_eq!(transaction.idle, transaction.txn.idle_since());
            assert!(transaction.idle.is_none_or(|since| self.idle.contains(&(since, *id))));
            transaction.writes.check();
            let waits = self.locks.is_waiting(Owner(id.0));
            assert_eq!(
                transaction.txn.is_waiting(),
                waits,
                "a waiting transaction has a queued lock"
            );
            let pending = transaction.pending.map(|key| &self.pending[key]);
            let own = pending.is_none_or(|it| matches!(it, Pending::Transaction(of) if of == id));
            assert!(own, "the store's answer finds its transaction");
            assert!(!transaction.outstanding || pending.is_some(), "an answer has an address");
        }
        let idle = self.transactions.values().filter(|one| one.idle.is_some()).count();
        assert_eq!(self.idle.len(), idle, "each is listed once while it is idle");
        let mut owners = self.locks.owners();
        let known = |owner: Owner| self.transactions.contains_key(&TransactionId(owner.0));
        assert!(owners.all(known), "an ended transaction holds no locks");
        assert!(self.transactions.len() <= TRANSACTIONS_MAX, "transactions are limited");
        assert!(self.granted.is_empty() && self.outputs.is_empty(), "all was looked at");
        assert!((1..=sweeping::PIECE_MAX).contains(&self.piece), "a piece has entries");
    }
}
