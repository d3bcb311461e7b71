//! The engine's handling of dropped tables.

use super::sweeper::{Input as Event, Output as Ask};
use super::{Call, Engine, Failure, Output, Pending};
use crate::access::catalog;
use base::{Automaton, Instant};
use store::{Change, Durability, Error, Missing, Reader, Refusal, Table, Ticket, View};

/// Maximum number of entries of one piece.
pub(super) const PIECE_MAX: usize = 256;

impl Engine {
    /// Returns a reader of a table in its present state, without a request.
    ///
    /// # Errors
    /// `Dropped` if the table was dropped.
    #[inline]
    pub fn look(&self, table: Table) -> Result<Reader<'_>, Failure> {
        if self.gone.contains(&table) {
            return Err(Failure::Dropped);
        }
        Ok(self.store.reader(View::Present)?)
    }

    /// Returns whether a call accesses a dropped table. Snapshots still contain it.
    pub(super) fn is_gone(&self, view: View, call: &Call) -> bool {
        !self.gone.is_empty() && view == View::Present && call.is_about(&self.gone)
    }

    /// Records the tables dropped by these changes, whose entries are removed from now on.
    pub(super) fn note_dropped(&mut self, now: Instant, changes: &[Change]) {
        for table in catalog::dropped(changes) {
            self.gone.insert(table);
            self.sequences.remove(&table);
            self.sweeper.step(now, Event::Dropped, &mut Vec::new());
        }
    }

    /// Removes a piece, if one is due.
    pub(super) fn step_sweeper(&mut self, now: Instant, event: Event, out: &mut Vec<Output>) {
        let (mut next, mut asks) = (Some(event), Vec::new());
        while let Some(event) = next.take() {
            self.sweeper.step(now, event, &mut asks);
            for Ask::Sweep in asks.drain(..) {
                next = Some(self.sweep(now));
            }
        }
        self.settle(now, out);
    }

    fn sweep(&mut self, now: Instant) -> Event {
        let bytes = self.store.layout().transaction_max() / 2;
        let reader = self.store.reader(View::Present).expect("the present is always there");
        let changes = match catalog::sweep(&reader, self.piece, bytes) {
            Ok(Some(changes)) => changes,
            Ok(None) => return Event::Clean,
            Err(missing) => return self.fetch_to_sweep(now, missing),
        };
        // Nobody waits for it, so the ticket is never returned.
        let (ticket, soon) = (Ticket(0), Durability::Soon);
        match self.store.commit(now, ticket, &changes, soon, &mut self.outputs) {
            Ok(()) => {
                self.piece = (self.piece * 2).min(PIECE_MAX);
                Event::Swept
            }
            Err(Refusal::Missing(missing)) => self.fetch_to_sweep(now, missing),
            // On a full disk a smaller piece may be possible.
            Err(Refusal::Failed(Error::NoSpace)) if self.piece > 1 => {
                self.piece /= 2;
                Event::Swept
            }
            Err(Refusal::Failed(_)) => Event::Failed,
        }
    }

    /// Fetches always under the same ticket, so that the store keeps the fetched pages.
    fn fetch_to_sweep(&mut self, now: Instant, missing: Missing) -> Event {
        let pending = &mut self.pending;
        let key = *self.sweeps.get_or_insert_with(|| pending.insert(Pending::Sweeper));
        self.store.fetch(now, Ticket(key as u64), missing, &mut self.outputs);
        Event::Missing
    }
}
