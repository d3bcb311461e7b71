//! Messages sent and not yet answered, on a [`Session`], and a queue of those above its limit.

mod queue;
#[cfg(test)]
mod tests;

use super::message::{Message, Owner, Party};
use base::{Buf, Instant};
use queue::{Queue, Queued};
use session::{Answer, Dialect, Session, Violation};
use std::mem;
use std::ops::RangeInclusive;
use std::time::Duration;
use wire::ninep::Rmessage;

/// Maximum time that messages queue while the server replies to nothing at all. The server's
/// replies may depend on requests that it sends itself through this tree, which would be a
/// deadlock.
pub(super) const LINE_MAX: Duration = Duration::from_secs(10);

/// A queue of messages to a server that does not reply.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    since: Instant,
    /// Number of the first message not to be given up, while messages are given up.
    end: Option<u64>,
}

/// The messages of one connection at a time.
#[derive(Debug)]
pub(super) struct Calls {
    session: Session<Owner>,
    queue: Queue,
    /// Messages to be written to the socket.
    outbox: Vec<Buf>,
    /// The queue, while there is no reply.
    stuck: Option<Stuck>,
}

impl Calls {
    /// Returns calls without a connection, of which at most `calls_max` are outstanding.
    pub(super) fn new(calls_max: usize) -> Calls {
        let (session, queue) = (Session::new(calls_max), Queue::default());
        Calls { session, queue, outbox: Vec::new(), stuck: None }
    }

    /// Offers a dialect and a message size on a new connection.
    pub(super) fn offer(&mut self, dialect: Dialect, sizes: RangeInclusive<u32>) {
        let offer = self.session.offer(dialect, sizes);
        self.outbox.push(Buf::from(offer));
    }

    /// Forgets all calls and fids after the loss of the connection.
    pub(super) fn close(&mut self) {
        self.session.close();
        (self.queue, self.stuck) = (Queue::default(), None);
        self.outbox.clear();
    }

    /// Returns the session: what was agreed, and its limits.
    pub(super) fn session(&self) -> &Session<Owner> {
        &self.session
    }

    /// Returns the numbers of outstanding and of queued messages.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.session.outstanding(), self.queue.len())
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Takes the messages to be written to the socket.
    pub(super) fn take_unsent(&mut self) -> Vec<Buf> {
        mem::take(&mut self.outbox)
    }

    pub(super) fn new_fid(&mut self) -> u32 {
        self.session.new_fid().expect("there are as many fids as handles, and few more")
    }

    /// Frees a fid that the server does not know, or no longer.
    pub(super) fn free_fid(&mut self, fid: u32) {
        self.session.free_fid(fid);
    }

    /// Sends a message, or queues it.
    pub(super) fn begin(&mut self, party: Party, owner: Owner, message: Message) {
        self.send_or_queue(party, Queued::Call(owner, message));
    }

    /// Clunks a fid, which is free after the reply.
    pub(super) fn clunk(&mut self, fid: u32) {
        self.send_or_queue(Party::Cleanup, Queued::Clunk(fid));
    }

    fn send_or_queue(&mut self, party: Party, message: Queued) {
        if self.session.is_full() {
            self.queue.push(party, message);
        } else {
            self.queue.serve(party);
            self.send(message);
        }
    }

    fn send(&mut self, message: Queued) {
        match message {
            Queued::Call(owner, message) => {
                let tag = self.session.call(message.code(), owner);
                message.send(tag.expect("the session is not full"), &mut self.outbox);
            }
            Queued::Clunk(fid) => {
                let clunk = self.session.clunk(fid).expect("the session is not full");
                self.outbox.push(Buf::from(clunk));
            }
        }
    }

    /// Gives up a queued message, if the server has sent no reply for [`LINE_MAX`]: any but a clunk
    /// or remove, which free a fid.
    pub(super) fn give_up(&mut self, now: Instant) -> Option<Owner> {
        if self.queue.len() == 0 {
            self.stuck = None;
            return None;
        }
        let stuck = self.stuck.get_or_insert(Stuck { since: now, end: None });
        if now < stuck.since + LINE_MAX {
            return None;
        }
        let end = *stuck.end.get_or_insert(self.queue.next());
        let owner = self.queue.give_up_first(end);
        if owner.is_none() {
            self.stuck = Some(Stuck { since: now, end: None });
        }
        owner
    }

    /// Returns the time at which queued messages are given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stuck.map(|stuck| stuck.since + LINE_MAX)
    }

    /// Processes a message of the server.
    ///
    /// # Errors
    /// If it violates the protocol.
    pub(super) fn receive<'a>(
        &mut self,
        message: &'a [u8],
    ) -> Result<(Answer<Owner>, Rmessage<'a>), Violation> {
        let received = self.session.receive(message)?;
        self.stuck = None;
        while !self.session.is_full()
            && let Some(queued) = self.queue.pop()
        {
            self.send(queued);
        }
        Ok(received)
    }

    /// Flushes all messages of a pending request; returns the number of those that were only
    /// queued.
    pub(super) fn flush(&mut self, slot: usize) -> u32 {
        let is_its = |owner: Owner| matches!(owner, Owner::Pending(of, _) if of == slot);
        let calls = self.session.calls().filter(|(_, owner)| is_its(*owner));
        let tags: Vec<u16> = calls.map(|(tag, _)| tag).collect();
        let flushes = tags.into_iter().map(|tag| Buf::from(self.session.flush(tag)));
        self.outbox.extend(flushes);
        self.queue.drop_request(slot)
    }

    pub(super) fn check(&self) {
        self.session.check();
        self.queue.check();
        assert!(self.queue.len() == 0 || self.session.is_full(), "a queued message has to wait");
    }
}
