//! Conditional changes of an entry. 9P has none, so the entry is read and then changed.
//!
//! Changes of one entry through this tree are serialised, so of several with one precondition one
//! succeeds. Other clients of the server can change the entry in between: 9P offers no way to
//! exclude that.

use super::pending::Pending;
use super::step::{Next, Outcome, Step, send};
use super::{Remote, words};
use crate::entry_queue::{EntryKey, EntryQueue, Ticket};
use crate::request::{Ask, Id, NodeId, Output, Reply, Request, RequestId};
use base::op::Replacement;
use base::{Error, Name, Stat};
use std::collections::BTreeMap;
use wire::ninep::Rmessage;

/// Changes of entries, queued behind others of the same entry.
#[derive(Debug, Default)]
pub(super) struct Changes {
    queues: EntryQueue<Waiting>,
    /// Tickets of the queued requests.
    waiting: BTreeMap<RequestId, Ticket>,
    /// Tickets that have ended.
    left: Vec<Ticket>,
}

impl Changes {
    /// Returns the number of queued requests.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Ends a change; [`Remote::begin_waiting`] starts those behind it.
    pub(super) fn leave(&mut self, ticket: Option<Ticket>) {
        self.left.extend(ticket);
    }

    pub(super) fn check(&self) {
        self.queues.check();
        assert!(self.left.is_empty() && self.queues.waiting() == self.waiting.len());
    }
}

/// A queued change.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    request: Request,
    pins: [Option<Id>; 2],
}

impl Remote {
    /// Starts a request, or queues it behind earlier changes of the same entries.
    pub(super) fn begin_or_wait(&mut self, id: RequestId, request: Request, out: &mut Vec<Output>) {
        let entries = request.ask.entries();
        let key =
            |(dir, name): (NodeId, &Name)| -> EntryKey { ((dir.local() as u64, 0), name.clone()) };
        if entries.iter().flatten().next().is_none() {
            return self.begin_pending(id, request, None, out);
        }
        let keys = entries.map(|entry| entry.map(key));
        match self.changes.queues.join(keys) {
            (ticket, true) => self.begin_pending(id, request, Some(ticket), out),
            (ticket, false) => {
                let pins = request.ask.ids();
                pins.into_iter().flatten().for_each(|pin| self.pin(pin));
                self.changes.waiting.insert(id, ticket);
                self.changes.queues.wait(ticket, Waiting { id, request, pins });
            }
        }
    }

    fn begin_pending(
        &mut self,
        id: RequestId,
        request: Request,
        ticket: Option<Ticket>,
        out: &mut Vec<Output>,
    ) {
        let user = self.user_of(&request.caller);
        let slot = Pending::new(id, user, request, ticket);
        self.inodes.begin(user);
        slot.pins().for_each(|pin| self.pin(pin));
        let slot = self.pending.insert(slot);
        self.advance(slot, out);
    }

    /// Starts the changes that are next in their queues.
    pub(super) fn begin_waiting(&mut self, out: &mut Vec<Output>) {
        while let Some(ticket) = self.changes.left.pop() {
            for (next, Waiting { id, request, pins }) in self.changes.queues.leave(ticket) {
                self.changes.waiting.remove(&id);
                match self.unreachable() {
                    true => {
                        out.push(Output::Reply(id, Err(Error::Disconnected)));
                        self.changes.left.push(next);
                    }
                    false => self.begin_pending(id, request, Some(next), out),
                }
                pins.into_iter().flatten().for_each(|pin| self.unpin(pin));
            }
        }
    }

    /// Cancels a queued request; returns whether it was queued.
    pub(super) fn cancel_waiting(&mut self, id: RequestId, out: &mut Vec<Output>) -> bool {
        let Some(ticket) = self.changes.waiting.remove(&id) else { return false };
        let waiting = self.changes.queues.take(ticket).expect("it waits");
        waiting.pins.into_iter().flatten().for_each(|pin| self.unpin(pin));
        out.push(Output::Reply(id, Err(Error::Cancelled)));
        self.changes.left.push(ticket);
        true
    }

    /// Returns the request that the next message performs: for a conditional change that was
    /// checked, the change itself.
    pub(super) fn acting(&self, slot: usize) -> Ask {
        match &self.pending[slot].ask {
            Ask::Replace { dir, name, by: Replacement::Nothing, .. } => {
                Ask::Remove { dir: *dir, name: name.clone(), directory: Some(false) }
            }
            Ask::Replace { dir, name, by: Replacement::Entry(from, old), .. } => Ask::Rename {
                from: *from,
                name: old.clone(),
                to: *dir,
                new_name: name.clone(),
                replace: true,
            },
            ask => ask.clone(),
        }
    }

    pub(super) fn present_answered(
        &mut self,
        slot: usize,
        fid: u32,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        match answer {
            Ok(Rmessage::Walk { qids }) if qids.as_slice().len() == 1 => {
                self.pending[slot].bound(fid);
                let message = words::stat(self.dialect(), fid);
                send(Step::Compare, &message)
            }
            Ok(_) => self.wrong(),
            Err(Error::NotFound) => Ok(self.checked(slot, None)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn compare_answered(
        &mut self,
        slot: usize,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        match answer {
            Ok(message) => match self.stat_of(message) {
                Some(stat) => Ok(self.checked(slot, Some(stat))),
                None => self.wrong(),
            },
            // It was removed after it was found.
            Err(Error::NotFound | Error::Stale) => Ok(self.checked(slot, None)),
            Err(error) => Err(error),
        }
    }

    fn checked(&mut self, slot: usize, present: Option<Stat>) -> Next {
        let it = &mut self.pending[slot];
        let Ask::Replace { expected, .. } = &it.ask else {
            unreachable!("only conditional changes look first")
        };
        match expected.is_met_by(present.as_ref()) {
            true => {
                it.checked = true;
                Next::Again
            }
            false => Next::Reply(Reply::Unexpected(present)),
        }
    }
}
