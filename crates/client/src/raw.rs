//! Single messages of the protocol, for programs that manage fids of their own (`upcall mount`).

use crate::line::{Line, Pending};
use crate::message::Message;
use crate::{Client, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::ninep::{Qid, Rmessage, Tmessage};

/// Ends the waits of one caller; see [`Raw::interrupt`].
#[derive(Debug, Default)]
pub struct Interrupt(AtomicBool);

impl Interrupt {
    /// Returns whether it has happened.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Marks it as happened, without a connection whose waits it would end.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Messages over the connection of a [`Client`].
#[derive(Clone, Debug)]
pub struct Raw {
    line: Arc<Line>,
    root: (u32, Qid),
}

/// Outstanding request. Dropping it flushes it (flush(5)).
#[derive(Debug)]
pub struct Call {
    pending: Pending,
    line: Arc<Line>,
}

/// Reply other than an error.
#[derive(Debug)]
pub struct Reply {
    message: Message,
    line: Arc<Line>,
}

impl Client {
    /// Returns the interface for single messages. It keeps the connection open, but not the
    /// client's root.
    pub fn raw(&self) -> Raw {
        Raw { line: self.tree.line().clone(), root: (self.tree.root.number, self.tree.qid) }
    }
}

impl Raw {
    /// Returns fid and qid of the attached root. The fid is the client's.
    pub fn root(&self) -> (u32, Qid) {
        self.root
    }

    /// Allocates a number for a new fid.
    ///
    /// # Errors
    /// `TooMany` if all are in use.
    pub fn new_fid(&self) -> Result<u32, Error> {
        self.line.new_fid()
    }

    /// Frees the number of a fid that the server does not know.
    pub fn free_fid(&self, fid: u32) {
        self.line.free_fid(fid);
    }

    /// Clunks a fid without waiting for the reply.
    pub fn clunk(&self, fid: u32) {
        self.line.clunk(fid);
    }

    /// Queues a request, to be sent by [`Raw::push`]. `makes` is a fid that a successful reply
    /// creates.
    ///
    /// # Errors
    /// The reason why the connection is unusable, or `BadPath` for a message that is too long.
    pub fn post(&self, message: &Tmessage<'_>, makes: Option<u32>) -> Result<Call, Error> {
        let pending = self.line.post(message, makes)?;
        Ok(Call { pending, line: self.line.clone() })
    }

    /// Sends a `Twrite` without copying its data, which must fit one message.
    ///
    /// # Errors
    /// The reason why the connection is unusable.
    pub fn begin_write(&self, fid: u32, offset: u64, data: &[u8]) -> Result<Call, Error> {
        let pending = self.line.begin_write(fid, offset, data)?;
        Ok(Call { pending, line: self.line.clone() })
    }

    /// Sends queued requests.
    ///
    /// # Errors
    /// The reason why the connection is unusable.
    pub fn push(&self) -> Result<(), Error> {
        self.line.push()
    }

    /// Ends present and future waits with this interrupt: they fail with `Cancelled`, and their
    /// requests are flushed.
    pub fn interrupt(&self, interrupt: &Interrupt) {
        interrupt.set();
        self.line.wake_waiting();
    }
}

impl Call {
    /// Waits for the reply.
    ///
    /// # Errors
    /// The server's refusal, `Cancelled` after an interrupt, or errors of the connection.
    pub fn wait(self, interrupt: &Interrupt) -> Result<Reply, Error> {
        let message = self.pending.wait_unless(interrupt)?;
        Ok(Reply { message, line: self.line })
    }
}

impl Reply {
    /// Decodes the reply, and returns the wanted part of it. Anything else is a violation of the
    /// protocol, which ends the connection.
    ///
    /// # Errors
    /// `Broken`.
    pub fn read<T>(&self, wanted: impl FnOnce(Rmessage<'_>) -> Option<T>) -> Result<T, Error> {
        self.line.read(&self.message, wanted)
    }

    /// Returns the data of an `Rread` or `Rreaddir` of at most `count_max` bytes.
    ///
    /// # Errors
    /// `Broken`.
    pub fn data(&self, count_max: u32) -> Result<&[u8], Error> {
        let data = match Rmessage::decode(self.message.bytes()) {
            Ok((_, Rmessage::Read { data } | Rmessage::Readdir { data })) => data.0,
            Ok((_, _)) | Err(_) => return Err(self.line.broken("data that does not fit".into())),
        };
        if data.len() > count_max as usize {
            let what = format!("{} bytes of data in reply to a read of {count_max}", data.len());
            return Err(self.line.broken(what));
        }
        Ok(data)
    }
}
