//! One connection, used by any number of threads at once.
//!
//! There is no thread of its own. Who waits for a reply and finds nobody receiving takes the
//! [`Reader`], receives for everybody, and hands the rest over when its own reply has come;
//! the others sleep. Who sends and finds no room receives meanwhile, so that two sides that both
//! want to be heard first cannot wait for each other.
//!
//! What nobody wants any more is flushed (flush(5)): its tag is used again when the server has
//! answered the flush, and a fid that it has made after all is given back.

mod slots;

use crate::message::Message;
use crate::reader::Reader;
use crate::socket::{Ready, Socket};
use crate::{Error, Refusal, lock};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, OwnedFd};
use slots::{Slot, Slots};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use wire::ninep::{READ_HEADER_SIZE, Rmessage, Tmessage};

/// How long is waited for room before it is looked whether somebody else still receives.
const SLICE: Duration = Duration::from_millis(50);

/// How long a message that is half sent may take when everything was cancelled.
const CANCELLED_MAX: Duration = Duration::from_secs(2);

/// How long is waited for the last answers, and how often they may come.
const PARTING: Duration = Duration::from_millis(200);
const PARTING_MAX: u32 = 1000;

const TWRITE: u8 = 118;
const TFLUSH: u8 = 108;
const TCLUNK: u8 = 120;

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 9P2000, Plan 9's own.
    Plan9,
    /// 9P2000.L, Linux's.
    Linux,
}

/// A connection after `Tversion`.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) dialect: Dialect,
    pub(crate) msize: u32,
    socket: Socket,
    state: Mutex<State>,
    /// Held while a message is sent.
    sending: Mutex<()>,
    /// Readable when who receives is to look around.
    wake: OwnedFd,
    cancelled: AtomicBool,
    /// Milliseconds.
    deadline: AtomicU64,
}

#[derive(Debug)]
struct State {
    slots: Slots,
    /// `None` while somebody receives.
    reader: Option<Box<Reader>>,
    /// Why nothing more can be asked.
    dead: Option<Error>,
    /// Whole messages to be sent before any other: what nobody waits for.
    owed: Vec<u8>,
}

impl Line {
    pub(crate) fn new(
        socket: Socket,
        mut reader: Reader,
        (dialect, msize): (Dialect, u32),
        deadline: Duration,
    ) -> Result<Line, Error> {
        reader.size_max = msize as usize;
        assert!(msize as usize > READ_HEADER_SIZE, "a message holds data");
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let unreachable = |errno: rustix::io::Errno| Error::Unreachable {
            address: socket.address.clone(),
            cause: Arc::new(errno.into()),
        };
        let wake = wake.map_err(unreachable)?;
        let line = Line {
            dialect,
            msize,
            socket,
            state: Mutex::new(State {
                slots: Slots::default(),
                reader: Some(Box::new(reader)),
                dead: None,
                owed: Vec::new(),
            }),
            sending: Mutex::new(()),
            wake,
            cancelled: AtomicBool::new(false),
            deadline: AtomicU64::new(0),
        };
        line.set_deadline(deadline);
        Ok(line)
    }

    pub(crate) fn set_deadline(&self, deadline: Duration) {
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.deadline.store(millis.max(1), Ordering::Relaxed);
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline.load(Ordering::Relaxed))
    }

    /// Ends every wait, now and from now on; or lets them be again.
    pub(crate) fn cancel(&self, cancelled: bool) {
        self.cancelled.store(cancelled, Ordering::SeqCst);
        lock(&self.state).slots.wake_all();
        self.wake();
    }

    fn wake(&self) {
        // It can only be full, and is readable then as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// A number for a new fid.
    pub(crate) fn new_fid(&self) -> Result<u32, Error> {
        lock(&self.state).slots.new_fid().ok_or(Error::TooMany)
    }

    /// The number is free again: the server does not know it.
    pub(crate) fn free_fid(&self, fid: u32) {
        lock(&self.state).slots.free_fid(fid);
    }

    /// Gives a fid back to the server, and does not wait for the answer.
    pub(crate) fn clunk(&self, fid: u32) {
        let owed = lock(&self.state).owe_clunk(fid);
        // If it cannot be sent the connection is gone, and the fid with it.
        let _ = owed.map(|()| self.send(&[], &[]));
    }

    /// Sends a request. `makes`: a fid that the server knows if it answers with success.
    pub(crate) fn begin(
        self: &Arc<Line>,
        message: &Tmessage<'_>,
        makes: Option<u32>,
    ) -> Result<Pending, Error> {
        let pending = self.post(message, makes)?;
        self.push()?;
        Ok(pending)
    }

    /// Puts a request down, to be sent with the next one or by [`Line::push`].
    pub(crate) fn post(
        self: &Arc<Line>,
        message: &Tmessage<'_>,
        makes: Option<u32>,
    ) -> Result<Pending, Error> {
        let tag = self.claim(message.code(), makes)?;
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        assert_eq!(bytes.get(4), Some(&message.code()), "a message says what it is");
        if bytes.len() > self.msize as usize {
            lock(&self.state).slots.release(tag);
            return Err(Error::bad_path("a name is too long for the messages of this server"));
        }
        lock(&self.state).owed.extend(bytes);
        Ok(Pending { line: self.clone(), tag })
    }

    /// Sends what was put down.
    pub(crate) fn push(&self) -> Result<(), Error> {
        self.send(&[], &[])
    }

    /// Sends a `Twrite` whose data stays where it is.
    pub(crate) fn begin_write(
        self: &Arc<Line>,
        fid: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<Pending, Error> {
        assert!(data.len() + 23 <= self.msize as usize, "a message is no larger than was agreed");
        let tag = self.claim(TWRITE, None)?;
        let pending = Pending { line: self.clone(), tag };
        let length = u32::try_from(data.len()).expect("data is below the message size");
        let mut head = Vec::with_capacity(23);
        head.extend((23 + length).to_le_bytes());
        head.push(TWRITE);
        head.extend(tag.to_le_bytes());
        head.extend(fid.to_le_bytes());
        head.extend(offset.to_le_bytes());
        head.extend(length.to_le_bytes());
        self.send(&head, data)?;
        Ok(pending)
    }

    /// A request and what is wanted of its reply.
    pub(crate) fn call<T>(
        self: &Arc<Line>,
        message: &Tmessage<'_>,
        wanted: impl FnOnce(Rmessage<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let reply = self.begin(message, None)?.wait()?;
        self.read(&reply, wanted)
    }

    /// What is wanted of a reply.
    pub(crate) fn read<T>(
        &self,
        reply: &Message,
        wanted: impl FnOnce(Rmessage<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        match Rmessage::decode(reply.bytes()) {
            Ok((_, message)) => {
                wanted(message).ok_or_else(|| self.broken("a reply that does not fit".to_string()))
            }
            Err(error) => Err(self.broken(format!("a reply of type {}: {error}", reply.code()))),
        }
    }

    /// The server lies: gives the connection up.
    pub(crate) fn broken(&self, what: String) -> Error {
        self.die(Error::Broken { address: self.socket.address.clone(), what })
    }

    fn disconnected(&self, cause: io::Error) -> Error {
        let address = self.socket.address.clone();
        self.die(Error::Disconnected { address, cause: Arc::new(cause) })
    }

    fn silent(&self) -> Error {
        let address = self.socket.address.clone();
        self.die(Error::Silent { address, waited: self.deadline() })
    }

    /// Nothing more can be asked; the first reason counts.
    fn die(&self, error: Error) -> Error {
        let mut state = lock(&self.state);
        let first = state.dead.get_or_insert(error).clone();
        state.slots.wake_all();
        drop(state);
        self.wake();
        first
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    fn claim(&self, code: u8, makes: Option<u32>) -> Result<u16, Error> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let mut state = lock(&self.state);
        match &state.dead {
            Some(error) => Err(error.clone()),
            None => state.slots.claim(Slot::waiting(code, makes)).ok_or(Error::TooMany),
        }
    }

    /// Sends what is owed and then a message of two parts.
    fn send(&self, head: &[u8], data: &[u8]) -> Result<(), Error> {
        let _turn = lock(&self.sending);
        let owed = {
            let mut state = lock(&self.state);
            if let Some(error) = &state.dead {
                return Err(error.clone());
            }
            std::mem::take(&mut state.owed)
        };
        let mut parts = [IoSlice::new(&owed), IoSlice::new(head), IoSlice::new(data)];
        let mut rest = &mut parts[..];
        IoSlice::advance_slices(&mut rest, 0);
        let mut waited = Duration::ZERO;
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(count) => {
                    IoSlice::advance_slices(&mut rest, count);
                    waited = Duration::ZERO;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let alive = self.await_room()?;
                    waited = if alive { Duration::ZERO } else { waited + SLICE };
                    let over = waited >= self.deadline();
                    if over || self.is_cancelled() && waited >= CANCELLED_MAX {
                        return Err(self.silent());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.disconnected(error)),
            }
        }
        Ok(())
    }

    /// Waits a little for room to send; receives meanwhile if nobody else does. Whether anything
    /// has happened.
    fn await_room(&self) -> Result<bool, Error> {
        let reader = lock(&self.state).reader.take();
        let wants = (reader.is_some(), true);
        let ready = self.socket.wait(wants, None, SLICE);
        let mut received = Ok(false);
        if let Some(mut reader) = reader {
            if ready.as_ref().is_ok_and(|ready| ready.readable) {
                received = self.receive(&mut reader);
            }
            self.hand_over(lock(&self.state), Some(reader));
        }
        let ready = ready.map_err(|error| self.disconnected(error))?;
        Ok(received? || ready.writable)
    }

    /// Gives the reader back, and wakes somebody who needs it.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, reader: Option<Box<Reader>>) {
        if let Some(reader) = reader {
            assert!(state.reader.is_none(), "one thread receives at a time");
            state.reader = Some(reader);
        }
        if state.reader.is_some() {
            state.slots.wake_one();
        }
    }

    /// Receives what is there and delivers what is complete; whether there was anything.
    fn receive(&self, reader: &mut Reader) -> Result<bool, Error> {
        match reader.receive(&self.socket) {
            Ok(0) => {
                let cause = io::Error::new(io::ErrorKind::UnexpectedEof, "the server ended it");
                return Err(self.disconnected(cause));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(self.disconnected(error)),
        }
        loop {
            let delivered = match reader.take() {
                Ok(Some(message)) => lock(&self.state).deliver(message),
                Ok(None) => return Ok(true),
                Err(lie) => Err(lie),
            };
            delivered.map_err(|lie| self.broken(lie))?;
        }
    }

    /// Waits for the reply to a request.
    fn wait(&self, tag: u16) -> Result<Message, Error> {
        loop {
            let mut state = lock(&self.state);
            if let Some(message) = state.slots.take_arrived(tag) {
                self.hand_over(state, None);
                return self.accept(message);
            }
            if let Some(error) = state.dead.clone() {
                return Err(error);
            }
            if self.is_cancelled() {
                self.hand_over(state, None);
                return Err(Error::Cancelled);
            }
            match state.reader.take() {
                Some(mut reader) => {
                    drop(state);
                    let done = self.lead(tag, &mut reader);
                    self.hand_over(lock(&self.state), Some(reader));
                    done?;
                }
                None => {
                    state.slots.sleep(tag, thread::current());
                    drop(state);
                    thread::park();
                }
            }
        }
    }

    /// Receives for everybody until the reply to this request is there, or it is time to look
    /// around.
    fn lead(&self, tag: u16, reader: &mut Reader) -> Result<(), Error> {
        loop {
            let received = self.receive(reader)?;
            if lock(&self.state).slots.has_arrived(tag) {
                return Ok(());
            }
            if received {
                continue;
            }
            let ready = self.socket.wait((true, false), Some(self.wake.as_fd()), self.deadline());
            match ready {
                Ok(ready) if ready.nothing() => return Err(self.silent()),
                Ok(ready) if ready.woken => {
                    let _ = rustix::io::read(&self.wake, &mut [0; 8]);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => return Err(self.disconnected(error)),
            }
        }
    }

    /// A reply, unless it is an error.
    fn accept(&self, message: Message) -> Result<Message, Error> {
        if !slots::is_error(message.code()) {
            return Ok(message);
        }
        let refusal = self.read(&message, |reply| {
            if let Rmessage::Lerror { ecode } = reply {
                return Some(Refusal::number(ecode));
            }
            let Rmessage::Error { ename } = reply else { return None };
            Some(Refusal::words(ename))
        })?;
        Err(Error::refused(refusal))
    }

    /// Nobody wants this reply any more.
    fn abandon(&self, tag: u16) {
        let flush = {
            let mut state = lock(&self.state);
            state.abandon(tag)
        };
        if flush {
            // If it cannot be sent the connection is gone, and the request with it.
            let _ = self.send(&[], &[]);
        }
    }
}

/// Takes the answers to what was said last before it goes: some servers take a connection that is
/// torn for a disaster.
impl Drop for Line {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(mut reader) = state.reader.take().filter(|_| state.dead.is_none()) else { return };
        if self.socket.finish().is_err() {
            return;
        }
        for _ in 0..PARTING_MAX {
            match reader.receive(&self.socket) {
                Ok(0) => return,
                Ok(_) => while matches!(reader.take(), Ok(Some(_))) {},
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = self.socket.wait((true, false), None, PARTING);
                    if ready.is_err() || ready.is_ok_and(Ready::nothing) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

impl State {
    /// Gives a message to whom it is for.
    fn deliver(&mut self, message: Message) -> Result<(), String> {
        if let Some(fid) = self.slots.deliver(message)? {
            let _ = self.owe_clunk(fid);
        }
        Ok(())
    }

    /// Puts down a `Tclunk` to be sent; `None` if there is nobody to send it to.
    fn owe_clunk(&mut self, fid: u32) -> Option<()> {
        self.owe(Slot::Forgotten { fid, expects: TCLUNK + 1 }, &Tmessage::Clunk { fid })
    }

    fn owe(&mut self, slot: Slot, message: &Tmessage<'_>) -> Option<()> {
        if self.dead.is_some() {
            return None;
        }
        let tag = self.slots.claim(slot)?;
        message.encode(tag, &mut self.owed);
        Some(())
    }

    /// Whether there is now a flush to be sent.
    fn abandon(&mut self, tag: u16) -> bool {
        if let Some(fid) = self.slots.discard_arrived(tag) {
            return fid.is_some_and(|fid| self.owe_clunk(fid).is_some());
        }
        self.slots.abandon(tag);
        let slot = Slot::Flushing { of: tag, expects: TFLUSH + 1 };
        self.owe(slot, &Tmessage::Flush { oldtag: tag }).is_some()
    }
}

/// A request that was sent. Dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Pending {
    line: Arc<Line>,
    tag: u16,
}

impl Pending {
    /// Waits for the reply.
    pub(crate) fn wait(self) -> Result<Message, Error> {
        self.line.wait(self.tag)
    }

    /// Waits for the data of a `Tread` or `Treaddir`, of which there may be so much.
    pub(crate) fn wait_data(self, count_max: u32) -> Result<Message, Error> {
        let line = self.line.clone();
        let message = self.wait()?;
        let size = message.bytes().len();
        let count = message
            .bytes()
            .get(7..READ_HEADER_SIZE)
            .and_then(|head| Some(u32::from_le_bytes(head.try_into().ok()?) as usize));
        if count != size.checked_sub(READ_HEADER_SIZE) {
            return Err(line.broken("the count of data contradicts its message".to_string()));
        }
        if size - READ_HEADER_SIZE > count_max as usize {
            let count = size - READ_HEADER_SIZE;
            return Err(line.broken(format!("{count} bytes of data, {count_max} were asked for")));
        }
        Ok(message)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.line.abandon(self.tag);
    }
}
