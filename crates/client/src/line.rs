//! Connection shared by any number of threads.
//!
//! There is no dedicated thread. A thread that waits for a reply while no other receives takes the
//! [`Reader`], receives for all threads, and passes the reader on once its own reply has arrived;
//! the others sleep. A thread that cannot send for lack of buffer space receives meanwhile, so that
//! both ends cannot block on sends forever.
//!
//! Abandoned requests are flushed (flush(5)): a tag is reused only after the reply to the flush,
//! and a fid created in spite of it is clunked.

mod requests;

use crate::message::Message;
use crate::reader::Reader;
use crate::socket::{Ready, Socket};
use crate::{Error, Interrupt, Refusal, lock};
use requests::Requests;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, OwnedFd};
use session::{Dialect, Session};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;
use wire::ninep::{READ_HEADER_SIZE, Rmessage, Tmessage, write_header};

/// Maximum wait for buffer space before checking whether another thread still receives.
const SLICE: Duration = Duration::from_millis(50);

/// Maximum time to complete a partially sent message after a cancellation.
const CANCELLED_MAX: Duration = Duration::from_secs(2);

/// Maximum wait for final replies, and their maximum number.
const PARTING: Duration = Duration::from_millis(200);
const PARTING_MAX: u32 = 1000;

/// Connection after version negotiation.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) dialect: Dialect,
    pub(crate) msize: u32,
    socket: Socket,
    state: Mutex<State>,
    /// Held while a message is sent.
    sending: Mutex<()>,
    /// Becomes readable to interrupt the receiving thread.
    wake: OwnedFd,
    cancelled: AtomicBool,
    /// Maximum time without data, in ms.
    deadline: AtomicU64,
    /// Name or number of the user that attached.
    user: OnceLock<String>,
}

#[derive(Debug)]
struct State {
    requests: Requests,
    /// `None` while a thread receives.
    reader: Option<Box<Reader>>,
    /// Reason why the connection is unusable.
    dead: Option<Error>,
}

impl Line {
    pub(crate) fn new(
        socket: Socket,
        mut reader: Reader,
        session: Session<usize>,
        deadline: Duration,
    ) -> Result<Line, Error> {
        let (dialect, msize) = (session.dialect(), session.msize());
        reader.size_max = session.size_max();
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
                requests: Requests::new(session),
                reader: Some(Box::new(reader)),
                dead: None,
            }),
            sending: Mutex::new(()),
            wake,
            cancelled: AtomicBool::new(false),
            deadline: AtomicU64::new(0),
            user: OnceLock::new(),
        };
        line.set_deadline(deadline);
        Ok(line)
    }

    /// Sets the user that attaches, for errors.
    pub(crate) fn set_user(&self, user: String) {
        // A line has one client, which attaches once.
        let _ = self.user.set(user);
    }

    pub(crate) fn set_deadline(&self, deadline: Duration) {
        let millis = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.deadline.store(millis.max(1), Ordering::Relaxed);
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline.load(Ordering::Relaxed))
    }

    /// Cancels all present and future waits, or ends the cancellation.
    pub(crate) fn cancel(&self, cancelled: bool) {
        self.cancelled.store(cancelled, Ordering::SeqCst);
        self.wake_waiting();
    }

    /// Makes all waiting threads look whether they shall go on.
    pub(crate) fn wake_waiting(&self) {
        lock(&self.state).requests.wake_all();
        self.wake();
    }

    fn wake(&self) {
        // The counter can only be full, and is readable then as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Allocates a number for a new fid.
    pub(crate) fn new_fid(&self) -> Result<u32, Error> {
        lock(&self.state).requests.new_fid().ok_or(Error::TooMany)
    }

    /// Frees the number of a fid that the server does not know.
    pub(crate) fn free_fid(&self, fid: u32) {
        lock(&self.state).requests.free_fid(fid);
    }

    /// Clunks a fid without waiting for the reply.
    pub(crate) fn clunk(&self, fid: u32) {
        lock(&self.state).requests.clunk(fid);
        // If the send fails, the connection is lost, and the fid with it.
        let _ = self.push();
    }

    /// Sends a request. `makes` is a fid that a successful reply creates.
    pub(crate) fn begin(
        self: &Arc<Line>,
        message: &Tmessage<'_>,
        makes: Option<u32>,
    ) -> Result<Pending, Error> {
        let pending = self.post(message, makes)?;
        self.push()?;
        Ok(pending)
    }

    /// Queues a request, to be sent with the next one or by [`Line::push`].
    pub(crate) fn post(
        self: &Arc<Line>,
        message: &Tmessage<'_>,
        makes: Option<u32>,
    ) -> Result<Pending, Error> {
        let number = self.alive()?.requests.post(message, makes)?;
        Ok(Pending { line: self.clone(), number })
    }

    /// Sends queued requests.
    pub(crate) fn push(&self) -> Result<(), Error> {
        self.send(&[], &[])
    }

    /// Sends a `Twrite` without copying its data.
    pub(crate) fn begin_write(
        self: &Arc<Line>,
        fid: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<Pending, Error> {
        assert!(data.len() + 23 <= self.msize as usize, "a message is no larger than was agreed");
        let mut head = write_header(fid, offset, data.len());
        let begun = self.alive()?.requests.begin(&mut head, None);
        let pending = Pending { line: self.clone(), number: begun.ok_or(Error::TooMany)? };
        self.send(&head, data)?;
        Ok(pending)
    }

    /// Sends a request, and returns the wanted part of its reply.
    pub(crate) fn call<T>(
        self: &Arc<Line>,
        message: &Tmessage<'_>,
        wanted: impl FnOnce(Rmessage<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let reply = self.begin(message, None)?.wait()?;
        self.read(&reply, wanted)
    }

    /// Returns the wanted part of a reply.
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

    /// Closes the connection because of a protocol violation.
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

    /// Marks the connection as unusable; the first reason counts.
    fn die(&self, error: Error) -> Error {
        let mut state = lock(&self.state);
        let first = state.dead.get_or_insert(error).clone();
        state.requests.wake_all();
        drop(state);
        self.wake();
        first
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Returns the state, unless no request may begin.
    fn alive(&self) -> Result<MutexGuard<'_, State>, Error> {
        if self.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let state = lock(&self.state);
        match &state.dead {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }

    /// Sends queued messages, then a message of two parts.
    fn send(&self, head: &[u8], data: &[u8]) -> Result<(), Error> {
        let _turn = lock(&self.sending);
        let unsent = {
            let mut state = lock(&self.state);
            if let Some(error) = &state.dead {
                return Err(error.clone());
            }
            state.requests.take_unsent()
        };
        let mut parts = [IoSlice::new(&unsent), IoSlice::new(head), IoSlice::new(data)];
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

    /// Waits briefly for buffer space, and receives meanwhile if no other thread does. Returns
    /// whether there was progress.
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

    /// Returns the reader, and wakes a thread that needs it.
    fn hand_over(&self, mut state: MutexGuard<'_, State>, reader: Option<Box<Reader>>) {
        if let Some(reader) = reader {
            assert!(state.reader.is_none(), "one thread receives at a time");
            state.reader = Some(reader);
        }
        if state.reader.is_some() {
            state.requests.wake_one();
        }
    }

    /// Receives available data, and delivers complete messages. Returns whether there was any data.
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
                Ok(Some(message)) => lock(&self.state).requests.deliver(message),
                Ok(None) => return Ok(true),
                Err(violation) => Err(violation),
            };
            delivered.map_err(|violation| self.broken(violation.to_string()))?;
        }
    }

    /// Waits for the reply to a request.
    fn wait(&self, number: usize, interrupt: Option<&Interrupt>) -> Result<Message, Error> {
        loop {
            let mut state = lock(&self.state);
            if let Some(message) = state.requests.take_arrived(number) {
                self.hand_over(state, None);
                return self.accept(message);
            }
            if let Some(error) = state.dead.clone() {
                return Err(error);
            }
            if self.is_cancelled() || interrupt.is_some_and(Interrupt::is_set) {
                self.hand_over(state, None);
                return Err(Error::Cancelled);
            }
            match state.reader.take() {
                Some(mut reader) => {
                    drop(state);
                    let done = self.lead(number, &mut reader);
                    self.hand_over(lock(&self.state), Some(reader));
                    done?;
                }
                None => {
                    state.requests.sleep(number, thread::current());
                    drop(state);
                    thread::park();
                }
            }
        }
    }

    /// Receives for all threads until the reply to this request has arrived, or the wait is
    /// interrupted.
    fn lead(&self, number: usize, reader: &mut Reader) -> Result<(), Error> {
        loop {
            let received = self.receive(reader)?;
            if lock(&self.state).requests.has_arrived(number) {
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

    /// Returns a reply, unless it is an error.
    fn accept(&self, message: Message) -> Result<Message, Error> {
        if !session::is_error(message.code()) {
            return Ok(message);
        }
        let refusal = self.read(&message, |reply| {
            if let Rmessage::Lerror { ecode } = reply {
                return Some(Refusal::number(ecode));
            }
            let Rmessage::Error { ename } = reply else { return None };
            Some(Refusal::words(ename))
        })?;
        Err(Error::refused(refusal.of_user(self.user.get())))
    }

    /// Abandons a request.
    fn abandon(&self, number: usize) {
        let is_queued = lock(&self.state).requests.abandon(number);
        if is_queued {
            // If the send fails, the connection is lost, and the request with it.
            let _ = self.push();
        }
    }
}

/// Receives the final replies before closing: some servers treat an abruptly closed connection as a
/// fatal error.
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

/// Outstanding request. Dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Pending {
    line: Arc<Line>,
    number: usize,
}

impl Pending {
    /// Waits for the reply.
    pub(crate) fn wait(self) -> Result<Message, Error> {
        self.line.wait(self.number, None)
    }

    /// Waits for the reply, or for an interrupt.
    pub(crate) fn wait_unless(self, interrupt: &Interrupt) -> Result<Message, Error> {
        self.line.wait(self.number, Some(interrupt))
    }

    /// Waits for the data of a `Tread` or `Treaddir`, of at most `count_max` bytes.
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
            return Err(
                line.broken(format!("{count} bytes of data in reply to a read of {count_max}"))
            );
        }
        Ok(message)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.line.abandon(self.number);
    }
}
