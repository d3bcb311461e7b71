//! Connection to the server, and its successors after it is lost.
//!
//! Requests use the present connection, or wait for one. When a request finds that the connection
//! is lost, a thread connects anew, until it succeeds or the mount ends; a waiting request can be
//! interrupted. Fids belong to one connection, whose number they carry.

use crate::errno::{self, Errno};
use crate::lock;
use client::{Address, Client, Dialect, Error, Interrupt, Options, Raw, Reply};
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::ninep::{NO_FID, NO_UID, Names, Qid, Rmessage, Tmessage, WALK_MAX};

/// Pauses between attempts to connect: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Clunks that are outstanding at a time.
const CLUNKS_MAX: usize = 256;

/// Failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server refused, or the request cannot be sent.
    Errno(Errno),
    /// The connection of this number is lost; the request may have been performed.
    Lost(u64),
    /// The caller was interrupted.
    Interrupted,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

/// Closure that extracts the value of one kind of reply.
macro_rules! only {
    ($pattern:pat => $value:expr) => {
        |reply: wire::ninep::Rmessage<'_>| {
            let $pattern = reply else { return None };
            Some($value)
        }
    };
}
pub(crate) use only;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) raw: Raw,
    pub(crate) dialect: Dialect,
    pub(crate) msize: u32,
    /// Time of a round trip at its beginning.
    pub(crate) latency: Duration,
    /// Keeps the root's fid.
    _client: Client,
    aname: String,
    /// Roots of users other than the one that mounted.
    roots: Mutex<BTreeMap<u32, Arc<Fid>>>,
    /// Fids to clunk.
    unused: Sender<u32>,
}

/// Fid on the server; clunked in the background when dropped.
#[derive(Debug)]
pub(crate) struct Fid {
    pub(crate) connection: Arc<Connection>,
    pub(crate) number: u32,
    known: bool,
}

impl Fid {
    /// Returns the number without a clunk: the server has discarded it or is about to.
    pub(crate) fn forget(mut self) -> u32 {
        self.known = false;
        self.number
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        if self.known {
            // Without its receiver the connection is lost, and the fid with it.
            let _ = self.connection.unused.send(self.number);
        }
    }
}

impl Connection {
    fn new(client: Client, number: u64, aname: &str) -> Result<Arc<Connection>, Error> {
        let (raw, (unused, receiver)) = (client.raw(), channel());
        let janitor = raw.clone();
        let started = std::thread::Builder::new()
            .name("clunks".into())
            .spawn(move || clunk_all(&janitor, &receiver));
        started.map_err(|_| Error::TooMany)?;
        let latency = round_trip(&raw)?;
        Ok(Arc::new(Connection {
            number,
            raw,
            dialect: client.dialect(),
            msize: client.msize(),
            latency,
            _client: client,
            aname: aname.to_string(),
            roots: Mutex::default(),
            unused,
        }))
    }

    /// Returns the maximum data of a message, in bytes.
    pub(crate) fn io_max(&self) -> u32 {
        self.msize - wire::ninep::IO_HEADER_SIZE
    }

    /// Translates an error of the client library.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        match error {
            Error::Refused { refusal, .. } => match refusal.errno {
                0 => Failure::Errno(errno::EIO),
                number if number < 4096 => Failure::Errno(number),
                _other => Failure::Errno(errno::EPROTO),
            },
            Error::Unsupported { .. } => Failure::Errno(errno::EOPNOTSUPP),
            Error::BadPath { .. } => Failure::Errno(errno::ENAMETOOLONG),
            Error::TooMany => Failure::Errno(errno::ENFILE),
            Error::Cancelled => Failure::Interrupted,
            Error::Unreachable { .. }
            | Error::Disconnected { .. }
            | Error::Silent { .. }
            | Error::Broken { .. } => Failure::Lost(self.number),
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn request(
        &self,
        interrupt: &Interrupt,
        message: &Tmessage<'_>,
        makes: Option<u32>,
    ) -> Result<Reply, Failure> {
        let send = || {
            let call = self.raw.post(message, makes)?;
            self.raw.push()?;
            call.wait(interrupt)
        };
        send().map_err(|error| self.failure(&error))
    }

    /// Sends a request, and returns the wanted part of its reply.
    pub(crate) fn call<T>(
        &self,
        interrupt: &Interrupt,
        message: &Tmessage<'_>,
        wanted: impl FnOnce(Rmessage<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        let reply = self.request(interrupt, message, None)?;
        reply.read(wanted).map_err(|error| self.failure(&error))
    }

    /// Returns the new fid of a reply, or frees its number.
    pub(crate) fn made<T>(
        self: &Arc<Connection>,
        number: u32,
        reply: Result<Reply, Failure>,
        wanted: impl FnOnce(Rmessage<'_>) -> Option<T>,
    ) -> Result<(Fid, T), Failure> {
        let value = reply.and_then(|it| it.read(wanted).map_err(|error| self.failure(&error)));
        match value {
            Ok(value) => Ok((Fid { connection: self.clone(), number, known: true }, value)),
            Err(failure) => {
                // After an interrupt the reply to the flush decides.
                if let Failure::Errno(_) = failure {
                    self.raw.free_fid(number);
                }
                Err(failure)
            }
        }
    }

    /// Walks from a fid to a new one. Returns the qid of the last name.
    pub(crate) fn walk(
        self: &Arc<Connection>,
        interrupt: &Interrupt,
        from: u32,
        names: &[Vec<u8>],
    ) -> Result<(Fid, Option<Qid>), Failure> {
        let (first, rest) = names.split_at(names.len().min(WALK_MAX));
        let (mut fid, mut qid) = self.walk_some(interrupt, from, first)?;
        for batch in rest.chunks(WALK_MAX) {
            (fid, qid) = self.walk_some(interrupt, fid.number, batch)?;
        }
        Ok((fid, qid))
    }

    fn walk_some(
        self: &Arc<Connection>,
        interrupt: &Interrupt,
        from: u32,
        names: &[Vec<u8>],
    ) -> Result<(Fid, Option<Qid>), Failure> {
        let list: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let list = Names::new(&list).expect("at most sixteen");
        let newfid = self.raw.new_fid().map_err(|error| self.failure(&error))?;
        let message = Tmessage::Walk { fid: from, newfid, names: list };
        let reply = self.request(interrupt, &message, Some(newfid));
        let walked = only!(Rmessage::Walk { qids } => qids.as_slice().to_vec());
        let (fid, qids) = self.made(newfid, reply, walked)?;
        match qids.last() {
            _ if qids.len() == names.len() => Ok((fid, qids.last().copied())),
            last => {
                // The fid was not made.
                self.raw.free_fid(fid.forget());
                let is_file = last.is_some_and(|qid| qid.kind & (Qid::DIR | Qid::SYMLINK) == 0);
                Err(Failure::Errno(if is_file { errno::ENOTDIR } else { errno::ENOENT }))
            }
        }
    }

    /// Returns the root as seen by the user that mounted. Its fid is the client's.
    pub(crate) fn own_root(self: &Arc<Connection>) -> Arc<Fid> {
        let number = self.raw.root().0;
        Arc::new(Fid { connection: self.clone(), number, known: false })
    }

    /// Returns the root as seen by another user than the one that mounted.
    pub(crate) fn root_of(
        self: &Arc<Connection>,
        interrupt: &Interrupt,
        uid: u32,
    ) -> Result<Arc<Fid>, Failure> {
        if let Some(root) = lock(&self.roots).get(&uid) {
            return Ok(root.clone());
        }
        let number = self.raw.new_fid().map_err(|error| self.failure(&error))?;
        let name = uid.to_string();
        let (uname, uid_field) = match self.dialect {
            Dialect::Linux => (&b""[..], Some(uid)),
            Dialect::Plan9 => (name.as_bytes(), None),
        };
        assert!(uid_field != Some(NO_UID), "the kernel names a user");
        let aname = self.aname.as_bytes();
        let message = Tmessage::Attach { fid: number, afid: NO_FID, uname, aname, uid: uid_field };
        let reply = self.request(interrupt, &message, Some(number));
        let (fid, ()) = self.made(number, reply, only!(Rmessage::Attach { .. } => ()))?;
        let fid = Arc::new(fid);
        lock(&self.roots).insert(uid, fid.clone());
        Ok(fid)
    }

    /// Breaks the circle of references between the connection and its roots.
    fn close(&self) {
        lock(&self.roots).clear();
    }
}

/// Writes a line to standard error, if it can be written: the terminal may be gone.
fn note(text: Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("upcall: {text}\n").as_bytes());
}

/// Returns the shorter time of two round trips.
#[allow(clippy::disallowed_methods, reason = "the time of a round trip")]
fn round_trip(raw: &Raw) -> Result<Duration, Error> {
    let never = Interrupt::default();
    let timed = |message: &Tmessage<'_>, makes: Option<u32>| {
        let start = Instant::now();
        let call = raw.post(message, makes)?;
        raw.push()?;
        call.wait(&never).map(|_| start.elapsed())
    };
    let (fid, newfid) = (raw.root().0, raw.new_fid()?);
    let names = Names::new(&[]).expect("none");
    let first = timed(&Tmessage::Walk { fid, newfid, names }, Some(newfid))?;
    let second = timed(&Tmessage::Clunk { fid: newfid }, None)?;
    raw.free_fid(newfid);
    Ok(first.min(second))
}

/// Clunks fids of one connection, and waits until it is done.
pub(crate) fn clunk(fids: Vec<Fid>) -> Result<(), Error> {
    let Some(connection) = fids.first().map(|fid| fid.connection.clone()) else { return Ok(()) };
    let never = Interrupt::default();
    let mut numbers = fids.into_iter().map(Fid::forget).peekable();
    while numbers.peek().is_some() {
        let some: Vec<u32> = numbers.by_ref().take(CLUNKS_MAX).collect();
        clunk_some(&connection.raw, &some, &never)?;
    }
    Ok(())
}

/// Clunks fids at once.
fn clunk_some(raw: &Raw, fids: &[u32], never: &Interrupt) -> Result<(), Error> {
    let post = |fid: &u32| Ok((*fid, raw.post(&Tmessage::Clunk { fid: *fid }, None)?));
    let calls: Vec<_> = fids.iter().map(post).collect::<Result<_, Error>>()?;
    raw.push()?;
    for (fid, call) in calls {
        // The server discards a fid also if it reports an error (clunk(5)).
        match call.wait(never) {
            Ok(_) | Err(Error::Refused { .. }) => raw.free_fid(fid),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Clunks unused fids, many at a time, until the connection is dropped or lost.
fn clunk_all(raw: &Raw, unused: &Receiver<u32>) {
    let never = Interrupt::default();
    while let Ok(first) = unused.recv() {
        let more = unused.try_iter().take(CLUNKS_MAX - 1);
        let fids: Vec<u32> = std::iter::once(first).chain(more).collect();
        if clunk_some(raw, &fids, &never).is_err() {
            return;
        }
    }
}

/// State of the link.
#[derive(Debug)]
enum State {
    /// There is a connection.
    Up(Arc<Connection>),
    /// A thread connects anew; the last connection had this number.
    Down(u64),
    /// The mount has ended.
    Over,
}

/// Present connection of a mount.
#[derive(Debug)]
pub(crate) struct Link {
    address: Address,
    options: Options,
    state: Mutex<State>,
    /// State changes, and interrupts of waiting requests.
    changed: Condvar,
}

impl Link {
    /// Connects.
    pub(crate) fn open(address: &Address, options: &Options) -> Result<Arc<Link>, Error> {
        let client = Client::connect(address, options)?;
        // Later connections use the same protocol: a server that ends while it is asked for its
        // version is taken for one that knows 9P2000 only.
        let options = Options { dialect: Some(client.dialect()), ..options.clone() };
        let connection = Connection::new(client, 1, &options.aname)?;
        Ok(Arc::new(Link {
            address: address.clone(),
            options,
            state: Mutex::new(State::Up(connection)),
            changed: Condvar::new(),
        }))
    }

    /// Returns the connection, without waiting for one.
    pub(crate) fn present(&self) -> Option<Arc<Connection>> {
        match &*lock(&self.state) {
            State::Up(connection) => Some(connection.clone()),
            State::Down(_) | State::Over => None,
        }
    }

    /// Returns the connection; waits for one.
    pub(crate) fn connection(&self, interrupt: &Interrupt) -> Result<Arc<Connection>, Failure> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Up(connection) => return Ok(connection.clone()),
                State::Over => return Err(Failure::Errno(errno::ENODEV)),
                State::Down(_) if interrupt.is_set() => return Err(Failure::Interrupted),
                State::Down(_) => {}
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until there is another connection than this one. Returns `false` at the end of the
    /// mount.
    pub(crate) fn wait_for_other(&self, number: u64) -> bool {
        let state = lock(&self.state);
        let waits = |state: &mut State| match state {
            State::Up(connection) => connection.number == number,
            State::Down(_) => true,
            State::Over => false,
        };
        let waited = self.changed.wait_while(state, waits);
        matches!(*waited.unwrap_or_else(PoisonError::into_inner), State::Up(_))
    }

    /// Ends the waits of a request.
    pub(crate) fn interrupt(&self, interrupt: &Interrupt) {
        let present = {
            let state = lock(&self.state);
            interrupt.set();
            self.changed.notify_all();
            match &*state {
                State::Up(connection) => Some(connection.raw.clone()),
                State::Down(_) | State::Over => None,
            }
        };
        if let Some(raw) = present {
            raw.interrupt(interrupt);
        }
    }

    /// Reports that a connection is lost. The first report begins to connect anew.
    pub(crate) fn lost(self: &Arc<Link>, number: u64) {
        let mut state = lock(&self.state);
        let State::Up(connection) = &*state else { return };
        if connection.number != number {
            return;
        }
        connection.close();
        *state = State::Down(number);
        drop(state);
        let link = self.clone();
        let started =
            std::thread::Builder::new().name("connect".into()).spawn(move || link.reconnect());
        if let Err(error) = started {
            *lock(&self.state) = State::Over;
            self.changed.notify_all();
            note(format_args!("cannot connect again: {error}; unmount and mount again"));
            return;
        }
        // A write to standard error may wait for its reader: nothing waits for it meanwhile.
        note(format_args!("the connection with {} is lost; connecting again", self.address));
    }

    /// Connects until it succeeds or the mount has ended.
    fn reconnect(&self) {
        let mut pause = Duration::ZERO;
        loop {
            let state = lock(&self.state);
            let (state, _) = self
                .changed
                .wait_timeout_while(state, pause, |state| matches!(state, State::Down(_)))
                .unwrap_or_else(PoisonError::into_inner);
            let State::Down(number) = *state else { return };
            drop(state);
            let client = Client::connect(&self.address, &self.options);
            let opened = client.and_then(|it| Connection::new(it, number + 1, &self.options.aname));
            if let Ok(connection) = opened {
                let mut state = lock(&self.state);
                if matches!(*state, State::Down(_)) {
                    *state = State::Up(connection);
                    self.changed.notify_all();
                    drop(state);
                    note(format_args!("connected with {} again", self.address));
                }
                return;
            }
            pause = (pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
        }
    }

    /// Ends the link and all waits for it.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Over);
        if let State::Up(connection) = before {
            connection.close();
        }
        self.changed.notify_all();
    }
}
