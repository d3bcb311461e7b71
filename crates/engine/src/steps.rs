//! Work of the engine for its transactions, step by step.

use super::read_view::{ReadView, Stop};
use super::state::{Input as Event, Output as Ask, TxnRequest};
use super::{
    Call, Engine, Failure, Guard, Once, Output, Owner, Pending, Reply, Transaction, TransactionId,
    WRITTEN_MAX,
};
use crate::access::{self, record::RESERVED};
use base::{Automaton, Instant};
use std::mem;
use store::{Change, Durability, Error, Missing, Refusal, Table, Ticket, View};

/// Result of a single call.
enum CallOutcome {
    /// It completed.
    Over(Result<Reply, Failure>),
    /// It completed, with this reply as soon as it is durable.
    Durable(Reply),
    /// This must be fetched first.
    Missing(Missing),
    /// It would write something locked.
    Blocked,
}

impl From<Refusal> for CallOutcome {
    fn from(refusal: Refusal) -> CallOutcome {
        match refusal {
            Refusal::Missing(missing) => CallOutcome::Missing(missing),
            Refusal::Failed(error) => CallOutcome::Over(Err(error.into())),
        }
    }
}

impl Engine {
    /// Steps a transaction, and performs its outputs.
    pub(super) fn drive(
        &mut self,
        now: Instant,
        id: TransactionId,
        event: Event,
        out: &mut Vec<Output>,
    ) {
        let (mut next, mut asks) = (Some(event), Vec::new());
        while let Some(event) = next.take() {
            self.transaction(id).txn.step(now, event, &mut asks);
            for ask in asks.drain(..) {
                match ask {
                    Ask::Perform => next = Some(self.perform(now, id)),
                    Ask::Apply(durability) => next = self.apply(now, id, durability),
                    Ask::End => self.end(id),
                    Ask::Reply(ticket, answer) => out.push(Output::Reply(ticket, answer)),
                }
            }
        }
        self.note_idle(id);
    }

    fn transaction(&mut self, id: TransactionId) -> &mut Transaction {
        self.transactions.get_mut(&id).expect("it is removed when it is over")
    }

    /// Updates the list of idle transactions; removes an ended one.
    fn note_idle(&mut self, id: TransactionId) {
        let transaction = self.transaction(id);
        let (was, is) = (transaction.idle, transaction.txn.idle_since());
        transaction.idle = is;
        if let Some(since) = was {
            self.idle.remove(&(since, id));
        }
        if let Some(since) = is {
            self.idle.insert((since, id));
        }
        if !self.transaction(id).txn.is_over() {
            return;
        }
        let over = self.transactions.remove(&id).expect("it was looked at just now");
        if let Some(key) = over.pending {
            if over.outstanding {
                self.pending[key] = Pending::Nobody;
            } else {
                self.pending.remove(key);
            }
        }
    }

    /// Releases a transaction's locks and drops its changes.
    fn end(&mut self, id: TransactionId) {
        let transaction = self.transaction(id);
        let bytes = transaction.writes.bytes();
        transaction.writes = Default::default();
        transaction.changes = Vec::new();
        assert!(bytes <= self.written, "the writes of each are counted");
        self.written -= bytes;
        self.granted.extend(self.locks.release(Owner(id.0)));
    }

    /// Performs the present call of a transaction, as far as possible now.
    fn perform(&mut self, now: Instant, id: TransactionId) -> Event {
        let transaction = &self.transactions[&id];
        let call = transaction.txn.call().expect("it asked for this");
        if self.is_gone(transaction.view, call) {
            return Event::Answered(Err(Failure::Dropped));
        }
        let stop = loop {
            let transaction = self.transactions.get_mut(&id).expect("it asked for this");
            let reader = match self.store.reader(transaction.view) {
                Ok(reader) => reader,
                Err(error) => return Event::Answered(Err(error.into())),
            };
            let owner = Owner(id.0);
            let guard = match (transaction.view, transaction.writable) {
                (View::Snapshot(_), _) => Guard::Snapshot,
                (View::Present, true) => Guard::Lock(&mut self.locks, owner),
                (View::Present, false) => Guard::LockShared(&mut self.locks, owner),
            };
            let mut read_view =
                ReadView::new(reader, guard, &transaction.writes, &mut self.sequences);
            let call = transaction.txn.call().expect("it asked for this");
            let result = access::perform(call, &mut read_view);
            let write_set = read_view.into_write_set();
            match result {
                Ok(_) if self.written + write_set.bytes() > WRITTEN_MAX => {
                    return Event::Answered(Err(Failure::Busy));
                }
                Ok(reply) => {
                    self.written -= transaction.writes.bytes();
                    transaction.writes.absorb(write_set);
                    self.written += transaction.writes.bytes();
                    return Event::Answered(Ok(reply));
                }
                Err(Stop::Reserve(table, from)) => match self.reserve(now, table, from) {
                    Ok(()) => {}
                    Err(refusal) => break refusal,
                },
                Err(Stop::Missing(missing)) => break Refusal::Missing(missing),
                Err(Stop::Blocked) => return Event::Blocked,
                Err(Stop::Failed(failure)) => return Event::Answered(Err(failure)),
            }
        };
        match stop {
            Refusal::Missing(missing) => {
                self.fetch(now, id, missing);
                Event::Missing
            }
            Refusal::Failed(error) => Event::Answered(Err(error.into())),
        }
    }

    /// Makes the writes of a transaction visible; returns `None` while pages are being fetched.
    fn apply(&mut self, now: Instant, id: TransactionId, durability: Durability) -> Option<Event> {
        let ticket = self.ticket(id);
        let transaction = self.transactions.get_mut(&id).expect("it asked for this");
        if !transaction.writes.is_empty() {
            self.written -= transaction.writes.bytes();
            transaction.changes = transaction.writes.take_changes();
        }
        let durable = durability == Durability::Durable;
        transaction.outstanding = durable;
        if transaction.changes.is_empty() {
            // The state that it read may not be durable yet, and its owner's conclusions depend
            // on that.
            if durable {
                self.store.sync(now, ticket, &mut self.outputs);
            }
            return Some(Event::Applied);
        }
        match self.store.commit(now, ticket, &transaction.changes, durability, &mut self.outputs) {
            Ok(()) => {
                let changes = mem::take(&mut transaction.changes);
                self.note_dropped(now, &changes);
                Some(Event::Applied)
            }
            Err(Refusal::Failed(error)) => {
                transaction.outstanding = false;
                Some(Event::Refused(error))
            }
            Err(Refusal::Missing(missing)) => {
                self.fetch(now, id, missing);
                None
            }
        }
    }

    /// Fetches for a transaction; always under the same ticket, so that the store keeps the fetched
    /// pages until the transaction has all that it needs.
    fn fetch(&mut self, now: Instant, id: TransactionId, missing: Missing) {
        let ticket = self.ticket(id);
        self.transaction(id).outstanding = true;
        self.store.fetch(now, ticket, missing, &mut self.outputs);
    }

    fn ticket(&mut self, id: TransactionId) -> Ticket {
        let vacant = self.pending.vacant_key();
        let key = *self.transaction(id).pending.get_or_insert(vacant);
        if key == vacant {
            self.pending.insert(Pending::Transaction(id));
        }
        Ticket(key as u64)
    }

    /// Reserves record numbers of a table.
    fn reserve(&mut self, now: Instant, table: Table, from: u64) -> Result<(), Refusal> {
        let to = from.checked_add(RESERVED).ok_or(Refusal::Failed(Error::NoSpace))?;
        let change = Change::Put { table, key: Vec::new(), value: to.to_be_bytes().to_vec() };
        // Nobody waits for it, so the ticket is never returned.
        let (ticket, soon) = (Ticket(0), Durability::Soon);
        self.store.commit(now, ticket, &[change], soon, &mut self.outputs)?;
        self.sequences.insert(table, from..to);
        Ok(())
    }

    /// Performs a single call. `key` is its slot in the table of recipients.
    pub(super) fn once(
        &mut self,
        now: Instant,
        key: Option<usize>,
        once: Once,
        out: &mut Vec<Output>,
    ) {
        let key = key.unwrap_or_else(|| self.pending.insert(Pending::Nobody));
        match self.try_once(now, Ticket(key as u64), &once) {
            CallOutcome::Over(answer) => {
                self.pending.remove(key);
                out.push(Output::Reply(once.ticket, answer));
            }
            CallOutcome::Durable(reply) => self.pending[key] = Pending::Answer(once.ticket, reply),
            CallOutcome::Missing(missing) => {
                self.pending[key] = Pending::Once(once);
                self.store.fetch(now, Ticket(key as u64), missing, &mut self.outputs);
            }
            CallOutcome::Blocked => {
                self.pending.remove(key);
                self.stand_in_line(now, once, out);
            }
        }
    }

    /// Converts a blocked single call to a transaction, which waits for its locks.
    fn stand_in_line(&mut self, now: Instant, once: Once, out: &mut Vec<Output>) {
        assert_eq!(once.view, View::Present, "nothing in a snapshot is locked");
        let Once { ticket, view, durability, call } = once;
        match self.begin(now, view, true, Some(durability)) {
            Ok(id) => self.drive(now, id, Event::Requested(ticket, TxnRequest::Call(call)), out),
            Err(failure) => out.push(Output::Reply(ticket, Err(failure))),
        }
    }

    fn try_once(&mut self, now: Instant, ticket: Ticket, once: &Once) -> CallOutcome {
        // No locks to respect, and nothing to read: commit directly.
        if let (Call::Apply(changes), View::Present) = (&once.call, once.view)
            && self.locks.is_empty()
            && self.gone.is_empty()
        {
            return self.commit_once(now, ticket, changes, Reply::Done, once.durability);
        }
        if self.is_gone(once.view, &once.call) {
            return CallOutcome::Over(Err(Failure::Dropped));
        }
        loop {
            let reader = match self.store.reader(once.view) {
                Ok(reader) => reader,
                Err(error) => return CallOutcome::Over(Err(error.into())),
            };
            let guard = match once.view {
                View::Snapshot(_) => Guard::Snapshot,
                View::Present => Guard::Moment(&self.locks),
            };
            let mut read_view = ReadView::new(reader, guard, &self.nothing, &mut self.sequences);
            let result = access::perform(&once.call, &mut read_view);
            let mut write_set = read_view.into_write_set();
            match result {
                Ok(reply) if write_set.is_empty() => return CallOutcome::Over(Ok(reply)),
                Ok(reply) => {
                    let changes = write_set.take_changes();
                    return self.commit_once(now, ticket, &changes, reply, once.durability);
                }
                Err(Stop::Reserve(table, from)) => {
                    if let Err(refusal) = self.reserve(now, table, from) {
                        return refusal.into();
                    }
                }
                Err(Stop::Missing(missing)) => return CallOutcome::Missing(missing),
                Err(Stop::Blocked) => return CallOutcome::Blocked,
                Err(Stop::Failed(failure)) => return CallOutcome::Over(Err(failure)),
            }
        }
    }

    fn commit_once(
        &mut self,
        now: Instant,
        ticket: Ticket,
        changes: &[Change],
        reply: Reply,
        durability: Durability,
    ) -> CallOutcome {
        if let Err(refusal) = self.store.commit(now, ticket, changes, durability, &mut self.outputs)
        {
            return refusal.into();
        }
        self.note_dropped(now, changes);
        match durability {
            Durability::Durable => CallOutcome::Durable(reply),
            Durability::Soon => CallOutcome::Over(Ok(reply)),
        }
    }
}
