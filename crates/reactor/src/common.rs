//! What both forms have: clocks, the pool, memory, listeners, and completions that are ready.

use crate::clock::Clock;
use crate::host::Host;
use crate::job::{Job, Work};
use crate::memory::{self, Memory};
use crate::path::recent::Recent;
use crate::path::{self, Attempt, Task};
use crate::pool::lanes::Lane;
use crate::pool::{Mailbox, Pool};
use crate::signals::Signals;
use crate::sockets::{self, Address, Listening};
use crate::spin::Spin;
use crate::{Config, Statistics, descriptor, errno};
use base::op::{
    Done, Event, File, Listener, OpId, Parcel, PathOp, Peer, Socket, Span, Unresponsive,
};
use base::{Buf, Error, Instant};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Most events of one call of `wait`: what the first one leads to waits for all of them.
pub(crate) const EVENTS_MAX: usize = 64;

/// So many connections leave memory behind that is worth giving back.
const CROWD: usize = 1000;

/// Most spans that are kept until the node asks.
const SPANS_MAX: usize = 4096;

/// How often in a row completions at hand are given out before the kernel is asked for more.
/// What a completion leads to (a reply) then goes to the kernel together with the next wait.
const TURNS_WITHOUT_KERNEL: u32 = 2;

/// Maximum number of block completions in one call of `wait`. They cost much and often come many at
/// once. If all of them were one turn, the first client would wait until the last one's reply is
/// made, and the disk would meanwhile have nothing to do.
const BULKY_AT_ONCE: usize = 8;

/// Duration of the path operations that the node's thread performs in one turn, after which others
/// go to the pool: input of other clients waits for all of them.
const INLINE_MAX: Duration = Duration::from_millis(2);

/// The part of a reactor that does not depend on its form.
pub(crate) struct Common {
    pub(crate) clock: Clock,
    pub(crate) host: Arc<Host>,
    pub(crate) pool: Pool,
    pub(crate) memory: Memory,
    pub(crate) signals: Option<Signals>,
    pub(crate) statistics: Statistics,
    pub(crate) spin: Spin,
    ready: VecDeque<Event>,
    /// Completions of blocks: see [`BULKY_AT_ONCE`].
    bulky: VecDeque<Event>,
    /// Letters of other nodes, given out all at once: the node has a queue for them.
    letters: VecDeque<Event>,
    /// How long operations took, until the node asks. Bounded by [`SPANS_MAX`].
    spans: Vec<Span>,
    /// Connections closed since memory was last given back.
    closed: usize,
    recent: Recent,
    turns: u32,
    /// Duration of the path operations performed on the node's thread since its last turn.
    inline: Duration,
    /// Files on file systems that may hang: never touched on the node's thread.
    foreign: BTreeMap<u32, Lane>,
    /// How long an operation may keep a thread before somebody is told.
    unresponsive_after: Duration,
    /// File systems reported as unresponsive.
    unresponsive: Vec<Unresponsive>,
    /// When they are looked at again.
    next_look: Instant,
    /// Connections that this side has ended.
    hung_up: BTreeSet<u32>,
    /// Connections that are open, to be closed at the end.
    sockets: BTreeSet<u32>,
    listeners: Vec<Option<Listening>>,
    /// Of every node of this process, by its number.
    mailboxes: Vec<Mailbox>,
}

impl Common {
    pub(crate) fn new(config: &Config) -> io::Result<Common> {
        let host = Arc::new(Host::new()?);
        let signals = if config.signals { Some(Signals::new()?) } else { None };
        let clock = Clock::start();
        Ok(Common {
            clock,
            pool: Pool::new(Arc::clone(&host), clock, config.threads_max)?,
            host,
            memory: Memory::default(),
            signals,
            statistics: Statistics::default(),
            spin: Spin::new(config.spin),
            ready: VecDeque::new(),
            bulky: VecDeque::new(),
            letters: VecDeque::new(),
            spans: Vec::new(),
            closed: 0,
            recent: Recent::default(),
            turns: 0,
            inline: Duration::ZERO,
            foreign: BTreeMap::new(),
            unresponsive_after: config.unresponsive_after,
            unresponsive: Vec::new(),
            next_look: Instant::default(),
            hung_up: BTreeSet::new(),
            sockets: BTreeSet::new(),
            listeners: Vec::new(),
            mailboxes: Vec::new(),
        })
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics { pool: self.pool.statistics(), ..self.statistics }
    }

    // Completions.

    /// A completion has come.
    pub(crate) fn ready(&mut self, id: OpId, done: Done) {
        let queue = if matches!(done, Done::Parcel(_)) {
            &mut self.letters
        } else if is_bulky(&done) {
            &mut self.bulky
        } else {
            &mut self.ready
        };
        queue.push_back(Event { id, done });
    }

    /// An operation on files took from then till now.
    pub(crate) fn took(&mut self, submitted: Instant) {
        let finished = self.clock.now();
        self.span(Span { submitted, started: submitted, finished });
    }

    pub(crate) fn span(&mut self, span: Span) {
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
        }
    }

    /// Gives out how long operations took.
    pub(crate) fn give_spans(&mut self, spans: &mut Vec<Span>) {
        spans.append(&mut self.spans);
    }

    /// Whether the kernel should be left alone in this turn, because there is enough to do.
    pub(crate) fn enough(&mut self) -> bool {
        self.collect();
        let few = self.ready.is_empty() || !self.bulky.is_empty() || !self.letters.is_empty();
        let enough = self.ready.len() >= EVENTS_MAX || (!few && self.turns < TURNS_WITHOUT_KERNEL);
        self.turns = if enough { self.turns + 1 } else { 0 };
        enough
    }

    /// How long to wait for a deadline of the node's, or of our own.
    pub(crate) fn patience(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        self.tidy();
        let own = self.recent.deadline();
        let watched = self.pool.any_outstanding() || !self.unresponsive.is_empty();
        if deadline.is_none() && own.is_none() && !watched {
            return None;
        }
        let now = self.clock.now();
        self.recent.expire(now);
        let look = watched.then(|| self.look_for_unresponsive(now));
        if self.any_ready() {
            return Some(Duration::ZERO);
        }
        let own = self.recent.deadline().into_iter().chain(look).chain(self.pool.look(now));
        let first = deadline.into_iter().chain(own).min();
        first.map(|first| first.since(now))
    }

    /// Reports file systems that do not respond, or do again; when to look the next time.
    fn look_for_unresponsive(&mut self, now: Instant) -> Instant {
        if now >= self.next_look {
            let limit = self.unresponsive_after;
            let found = self.pool.unresponsive(now, limit);
            let names = |all: &[Unresponsive]| -> Vec<String> {
                all.iter().map(|one| one.name.clone()).collect()
            };
            if names(&found) != names(&self.unresponsive) {
                self.unresponsive.clone_from(&found);
                self.ready(OpId::UNASKED, Done::Unresponsive(found));
            }
            let due = match self.unresponsive.is_empty() {
                true => self.pool.oldest().unwrap_or(now) + limit,
                false => now,
            };
            self.next_look = due.max(now + limit / 10);
        }
        self.next_look
    }

    /// Whether anything is ready.
    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty() || !self.bulky.is_empty() || !self.letters.is_empty()
    }

    /// Fetches what the pool has finished.
    pub(crate) fn collect(&mut self) {
        while let Some(finished) = self.pool.next_finished() {
            if let Some(buf) = finished.used {
                self.memory.give(buf);
            }
            self.foreign.extend(finished.opened.into_iter().map(|(file, lane)| (file.0, lane)));
            if let Some((id, done)) = finished.event {
                self.recent.forget();
                self.span(finished.span);
                self.ready(id, done);
            }
        }
    }

    /// Gives out what is ready.
    pub(crate) fn give_out(&mut self, events: &mut Vec<Event>) {
        let count = self.ready.len().min(EVENTS_MAX);
        let bulky = self.bulky.len().min(BULKY_AT_ONCE);
        let letters = self.letters.len();
        self.spin.note(count + bulky + letters);
        self.inline = Duration::ZERO;
        events.extend(self.ready.drain(..count));
        events.extend(self.bulky.drain(..bulky));
        events.extend(self.letters.drain(..));
    }

    // Files.

    /// Performs a path operation: at once if that takes no waiting, else on the pool.
    pub(crate) fn path(&mut self, id: OpId, task: Task) {
        let submitted = self.clock.now();
        let lanes = self.lanes_of(&task.op);
        let attempt = if lanes.is_empty() && path::cacheable(&task.op) && self.inline < INLINE_MAX {
            let recent = (&mut self.recent, submitted);
            let attempt = path::perform_cached(&self.host, &mut self.memory, recent, &task);
            // Also if it is given up.
            self.inline += self.clock.now().since(submitted);
            attempt
        } else if path::joins_files(&task.op) && self.are_apart(&task.op) {
            Attempt::Done(Err(Error::CrossDevice))
        } else {
            Attempt::Later { is_long: path::may_climb(&task.op) }
        };
        let is_long = match attempt {
            Attempt::Done(result) => {
                self.statistics.paths_inline += 1;
                self.took(submitted);
                return self.ready(id, Done::Path(result));
            }
            Attempt::Later { is_long } => is_long || path::is_long(&task.op),
        };
        if !path::cacheable(&task.op) {
            // It changes something, now or when it is done.
            self.recent.forget();
        }
        self.pool.push(Job { id: Some(id), work: Work::Path(task), lanes, is_long, submitted });
    }

    /// Lanes of an operation as far as they are known before it begins.
    fn lanes_of(&self, op: &PathOp) -> Vec<Lane> {
        let files = path::files(op).into_iter().flatten();
        let mut lanes: Vec<Lane> = files.filter_map(|f| self.foreign.get(&f.0)).cloned().collect();
        lanes.dedup();
        lanes.extend(path::lane(op));
        lanes
    }

    /// Whether the files of an operation are on different file systems.
    fn are_apart(&self, op: &PathOp) -> bool {
        let files = path::files(op).map(|file| file.map(|file| self.foreign.get(&file.0)));
        matches!(files, [Some(first), Some(second)] if first != second)
    }

    /// Whether a file is on a file system that may hang, so that only the pool may touch it: the
    /// ring and `RWF_NOWAIT` are no help, because FUSE waits for its server all the same.
    pub(crate) fn is_far(&self, file: File) -> bool {
        !self.foreign.is_empty() && self.foreign.contains_key(&file.0)
    }

    /// Leaves work on a file to the pool.
    pub(crate) fn push(&mut self, id: OpId, file: File, work: Work) {
        let lanes = self.foreign.get(&file.0).cloned().into_iter().collect();
        let submitted = self.clock.now();
        self.pool.push(Job { id: Some(id), work, lanes, is_long: false, submitted });
    }

    /// Opens the directory that will be served.
    pub(crate) fn open_root(&mut self, path: &std::path::Path) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(self.adopt(fd))
    }

    /// Takes an open file over.
    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> File {
        let lane = self.host.lane_of(fd.as_fd());
        let file = File(descriptor::release(fd));
        assert!(!self.foreign.contains_key(&file.0), "the descriptor was closed before");
        self.foreign.extend(lane.map(|lane| (file.0, lane)));
        file
    }

    /// Closes a file: at once, or on the pool if that may take time.
    pub(crate) fn close_file(&mut self, file: File, last: bool) {
        let lane = self.foreign.remove(&file.0);
        if last || lane.is_some() {
            let (submitted, lanes) = (self.clock.now(), lane.into_iter().collect());
            let work = Work::Close { file };
            self.pool.push(Job { id: None, work, lanes, is_long: false, submitted });
        } else {
            descriptor::close(file.0);
        }
    }

    /// An empty buffer for a read.
    pub(crate) fn read_buffer(&mut self, headroom: u32, count: u32) -> Buf {
        self.memory.take(headroom as usize, count as usize)
    }

    // Connections.

    /// Listens at an address.
    pub(crate) fn listen(&mut self, address: &Address) -> io::Result<(Listener, Address)> {
        let (listening, bound) = sockets::listen(address)?;
        let index = u32::try_from(self.listeners.len()).expect("few listeners");
        self.listeners.push(Some(listening));
        Ok((Listener(index), bound))
    }

    /// Takes a listening socket over that somebody else has as well, who removes its name.
    pub(crate) fn adopt_listener(&mut self, fd: OwnedFd) -> Listener {
        let index = u32::try_from(self.listeners.len()).expect("few listeners");
        self.listeners.push(Some(Listening::shared(fd)));
        Listener(index)
    }

    pub(crate) fn set_mailboxes(&mut self, mailboxes: Vec<Mailbox>) {
        self.mailboxes = mailboxes;
    }

    /// Hands something to another node.
    pub(crate) fn post(&mut self, to: usize, parcel: Parcel) {
        let mailbox = self.mailboxes.get(to).expect("nodes know how many there are");
        mailbox.post(parcel);
    }

    /// The listening socket, unless it has been closed.
    pub(crate) fn listening(&self, listener: Listener) -> Option<&OwnedFd> {
        self.listeners.get(listener.0 as usize)?.as_ref().map(|listening| &listening.fd)
    }

    /// Closes a listening socket.
    pub(crate) fn close_listener(&mut self, listener: Listener) {
        // Its name has to be removed; if that fails, it is found stale the next time.
        let _ = self.host.own.be_server();
        if let Some(listening) = self.listeners.get_mut(listener.0 as usize) {
            *listening = None;
        }
    }

    /// Accepts a connection without waiting; `None` if no client waits.
    pub(crate) fn accept(
        &mut self,
        listener: Listener,
        flags: SocketFlags,
    ) -> Result<Option<(Socket, Peer)>, Error> {
        let listening = self.listening(listener).ok_or(Error::Cancelled)?;
        let accepted = rustix::io::retry_on_intr(|| {
            rustix::net::accept_with(listening, flags | SocketFlags::CLOEXEC)
        });
        match accepted {
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno::translate(errno)),
            Ok(fd) => self.accepted(fd).map(Some),
        }
    }

    fn accepted(&mut self, fd: OwnedFd) -> Result<(Socket, Peer), Error> {
        let peer = sockets::peer(fd.as_fd())?;
        let number = descriptor::release(fd);
        let new = self.sockets.insert(number);
        assert!(new, "a descriptor is one connection");
        Ok((Socket(number), peer))
    }

    /// There is a socket of our own making.
    pub(crate) fn connected(&mut self, fd: OwnedFd) -> Socket {
        let number = descriptor::release(fd);
        let new = self.sockets.insert(number);
        assert!(new, "a descriptor is one connection");
        Socket(number)
    }

    /// Nothing more will come from the peer: says so, in the way that depends on why, and on
    /// whose buffer it was.
    pub(crate) fn end_of_stream(&self, socket: Socket, own_buffer: bool) -> Result<Buf, Error> {
        if own_buffer && !self.hung_up.contains(&socket.0) {
            Ok(Buf::default())
        } else {
            Err(Error::Disconnected)
        }
    }

    /// Ends a connection in one or both directions.
    pub(crate) fn shut_down(&mut self, socket: Socket, both: bool) {
        let how = if both { rustix::net::Shutdown::Both } else { rustix::net::Shutdown::Write };
        if both {
            self.hung_up.insert(socket.0);
        }
        if let Ok(fd) = descriptor::socket(socket) {
            // A connection that is gone already is as good.
            let _ = rustix::net::shutdown(fd, how);
        }
    }

    /// Closes a connection.
    pub(crate) fn close_socket(&mut self, socket: Socket) {
        self.hung_up.remove(&socket.0);
        let known = self.sockets.remove(&socket.0);
        assert!(known, "a connection is closed once: its number may be another's by now");
        descriptor::close(socket.0);
        self.closed += 1;
    }

    /// After a crowd has left and when there is nothing to do, gives its memory back to the host.
    fn tidy(&mut self) {
        if self.closed >= CROWD && !self.any_ready() {
            self.closed = 0;
            memory::give_back();
        }
    }

    /// Ends all connections, at the end of the reactor.
    pub(crate) fn hang_up_all(&mut self) {
        for number in std::mem::take(&mut self.sockets) {
            self.shut_down(Socket(number), true);
            descriptor::close(number);
        }
    }

    /// The signals that came, as events.
    pub(crate) fn take_signals(&mut self) {
        let count = self.signals.as_ref().map_or(0, Signals::take);
        for _ in 0..count {
            self.ready(OpId::UNASKED, Done::Stop);
        }
    }
}

/// Whether a completion is one of blocks.
fn is_bulky(done: &Done) -> bool {
    matches!(done, Done::Blocks(_) | Done::Stored(_))
}
