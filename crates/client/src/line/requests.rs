//! Requests of threads on the connection's session: their replies, and the threads that sleep.

#[cfg(test)]
mod tests;

use crate::Error;
use crate::message::Message;
use session::{Answer, Session, Violation, is_error};
use slab::Slab;
use std::mem;
use std::thread::Thread;
use wire::ninep::Tmessage;

/// Request of a thread, until both the thread and the session have ended it.
#[derive(Debug)]
struct Request {
    tag: u16,
    /// Fid that a successful reply creates.
    makes: Option<u32>,
    reply: Reply,
}

/// State of a reply.
#[derive(Debug)]
enum Reply {
    /// Outstanding, perhaps with a sleeping thread.
    Awaited(Option<Thread>),
    /// Not yet taken.
    Arrived(Message),
    /// Taken.
    Taken,
    /// Outstanding, and abandoned by the thread.
    Abandoned,
}

/// All requests, and messages to be sent.
#[derive(Debug)]
pub(super) struct Requests {
    session: Session<usize>,
    slots: Slab<Request>,
    /// Complete messages, to be sent before any other.
    unsent: Vec<u8>,
}

impl Requests {
    pub(super) fn new(session: Session<usize>) -> Requests {
        Requests { session, slots: Slab::new(), unsent: Vec::new() }
    }

    pub(super) fn new_fid(&mut self) -> Option<u32> {
        self.session.new_fid()
    }

    pub(super) fn free_fid(&mut self, fid: u32) {
        self.session.free_fid(fid);
    }

    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        mem::take(&mut self.unsent)
    }

    /// Begins a request and queues its message. Returns its number.
    pub(super) fn post(
        &mut self,
        message: &Tmessage<'_>,
        makes: Option<u32>,
    ) -> Result<usize, Error> {
        let mut unsent = mem::take(&mut self.unsent);
        let start = unsent.len();
        message.encode(0, &mut unsent);
        let begun = if unsent.len() - start > self.session.msize() as usize {
            Err(Error::bad_path("a name is too long for the messages of this server"))
        } else {
            self.begin(&mut unsent[start..], makes).ok_or(Error::TooMany)
        };
        if begun.is_err() {
            unsent.truncate(start);
        }
        self.unsent = unsent;
        begun
    }

    /// Begins a request and puts its tag into the header of its message. Returns its number.
    pub(super) fn begin(&mut self, header: &mut [u8], makes: Option<u32>) -> Option<usize> {
        let slot = self.slots.vacant_entry();
        let number = slot.key();
        let tag = self.session.call(header[4], number)?;
        header[5..7].copy_from_slice(&tag.to_le_bytes());
        slot.insert(Request { tag, makes, reply: Reply::Awaited(None) });
        Some(number)
    }

    /// Queues a `Tclunk`. With the maximum number of requests outstanding the fid stays in use.
    pub(super) fn clunk(&mut self, fid: u32) {
        self.unsent.extend(self.session.clunk(fid).unwrap_or_default());
    }

    /// Registers the calling thread, which is about to sleep until the reply or a wake-up.
    pub(super) fn sleep(&mut self, number: usize, thread: Thread) {
        if let Reply::Awaited(sleeper) = &mut self.slots[number].reply {
            // After a wake-up for another reason, it sleeps again.
            let id = thread.id();
            let before = sleeper.replace(thread);
            assert!(before.is_none_or(|it| it.id() == id), "one thread waits for a reply");
        }
    }

    fn sleepers(&mut self) -> impl Iterator<Item = Thread> + '_ {
        self.slots.iter_mut().filter_map(|(_, slot)| match &mut slot.reply {
            Reply::Awaited(sleeper) => sleeper.take(),
            Reply::Arrived(_) | Reply::Taken | Reply::Abandoned => None,
        })
    }

    pub(super) fn wake_all(&mut self) {
        self.sleepers().for_each(|thread| thread.unpark());
    }

    pub(super) fn wake_one(&mut self) {
        if let Some(thread) = self.sleepers().next() {
            thread.unpark();
        }
    }

    pub(super) fn has_arrived(&self, number: usize) -> bool {
        matches!(self.slots[number].reply, Reply::Arrived(_))
    }

    /// Takes the reply if it has arrived.
    pub(super) fn take_arrived(&mut self, number: usize) -> Option<Message> {
        if !self.has_arrived(number) {
            return None;
        }
        match mem::replace(&mut self.slots[number].reply, Reply::Taken) {
            Reply::Arrived(message) => Some(message),
            other @ (Reply::Awaited(_) | Reply::Taken | Reply::Abandoned) => {
                unreachable!("{other:?} has arrived")
            }
        }
    }

    /// Ends a request on the side of its thread: flushes it, unless its reply has arrived. A fid
    /// created in spite of that is clunked. Returns whether a message was queued.
    pub(super) fn abandon(&mut self, number: usize) -> bool {
        let before = self.unsent.len();
        match mem::replace(&mut self.slots[number].reply, Reply::Abandoned) {
            Reply::Awaited(_) => {
                let flush = self.session.flush(self.slots[number].tag);
                self.unsent.extend(flush);
            }
            Reply::Arrived(message) => self.end(number, !is_error(message.code())),
            Reply::Taken => {
                self.slots.remove(number);
            }
            Reply::Abandoned => unreachable!("a request is abandoned once"),
        }
        self.unsent.len() > before
    }

    /// Ends an abandoned request whose fid was perhaps created.
    fn end(&mut self, number: usize, is_made: bool) {
        match self.slots.remove(number).makes {
            Some(fid) if is_made => self.clunk(fid),
            Some(fid) => self.free_fid(fid),
            None => {}
        }
    }

    /// Delivers a message to its request.
    ///
    /// # Errors
    /// If the message violates the protocol.
    pub(super) fn deliver(&mut self, message: Message) -> Result<(), Violation> {
        let code = message.code();
        match self.session.answered(message.tag(), code)? {
            Answer::Reply(number) => match &mut self.slots[number].reply {
                Reply::Abandoned => self.end(number, !is_error(code)),
                reply @ (Reply::Awaited(_) | Reply::Arrived(_) | Reply::Taken) => {
                    let before = mem::replace(reply, Reply::Arrived(message));
                    let Reply::Awaited(sleeper) = before else { unreachable!("{before:?}") };
                    sleeper.iter().for_each(Thread::unpark);
                }
            },
            Answer::Never(number) => self.end(number, false),
            Answer::Done => {}
            Answer::Version(_) => unreachable!("a version was agreed on before"),
        }
        Ok(())
    }
}
