//! State common to both forms: clocks, the pool, memory, listeners, and ready completions.

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
    ClientKey, Done, Envelope, Event, File, Listener, OpId, PathOp, Peer, Socket, Span,
    Unresponsive,
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

/// Maximum number of events of one call of `wait`: the effects of the first one are delayed by all
/// others. But what is not received yet waits in the order of arrival, while the node serves those
/// first that have had least.
pub(crate) const EVENTS_MAX: usize = 256;

/// Number of closed connections after which freed memory is returned to the system.
const CROWD: usize = 1000;

/// Maximum number of spans kept until the node takes them.
const SPANS_MAX: usize = 4096;

/// Number of consecutive turns served from ready completions before the kernel is entered. The
/// effects of a completion (a reply) are then submitted together with the next wait.
const TURNS_WITHOUT_KERNEL: u32 = 2;

/// Maximum number of block completions in one call of `wait`. They are expensive and often arrive
/// in bulk. If all of them were one turn, the first client would wait until the last one's reply is
/// made, and the disk would be idle meanwhile.
const BULKY_AT_ONCE: usize = 8;

/// Maximum number of messages of other nodes in one call of `wait`: a client that leaves with
/// hundreds of requests has all of them cancelled at once.
const POSTED_AT_ONCE: usize = 64;

/// Time of path operations performed on the node's thread in one turn, after which further ones go
/// to the pool: input of other clients is delayed by all of them.
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
    /// Ready completions of blocks: see [`BULKY_AT_ONCE`].
    bulky: VecDeque<Event>,
    /// Messages of other nodes, returned all at once: the node queues them.
    posted: VecDeque<Event>,
    /// Times of operations, until the node takes them. Bounded by [`SPANS_MAX`].
    spans: Vec<Span>,
    /// Connections closed since memory was last returned to the system.
    closed: usize,
    recent: Recent,
    turns: u32,
    /// Time of path operations on the node's thread since its last turn.
    inline: Duration,
    /// Files on file systems that may block: never accessed on the node's thread.
    may_block: BTreeMap<u32, Lane>,
    /// Time after which an operation that occupies a thread is reported.
    unresponsive_after: Duration,
    /// File systems reported as unresponsive.
    unresponsive: Vec<Unresponsive>,
    /// Time of the next check of them.
    next_look: Instant,
    /// Connections shut down by this side.
    hung_up: BTreeSet<u32>,
    /// Open connections, closed at the end.
    sockets: BTreeSet<u32>,
    listeners: Vec<Option<Listening>>,
    /// Mailboxes of all nodes of this process, by number.
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
            posted: VecDeque::new(),
            spans: Vec::new(),
            closed: 0,
            recent: Recent::default(),
            turns: 0,
            inline: Duration::ZERO,
            may_block: BTreeMap::new(),
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

    /// Queues a completion.
    pub(crate) fn ready(&mut self, id: OpId, done: Done) {
        let queue = if matches!(done, Done::Envelope(_)) {
            &mut self.posted
        } else if is_bulky(&done) {
            &mut self.bulky
        } else {
            &mut self.ready
        };
        queue.push_back(Event { id, done });
    }

    /// Records the times of an operation on files that ends now.
    pub(crate) fn took(&mut self, submitted: Instant) {
        let finished = self.clock.now();
        self.span(Span { submitted, started: submitted, finished });
    }

    pub(crate) fn span(&mut self, span: Span) {
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
        }
    }

    /// Appends the recorded times of operations.
    pub(crate) fn give_spans(&mut self, spans: &mut Vec<Span>) {
        spans.append(&mut self.spans);
    }

    /// Returns whether this turn should skip the kernel, because enough completions are ready.
    pub(crate) fn enough(&mut self) -> bool {
        self.collect();
        let few = self.ready.is_empty() || !self.bulky.is_empty() || !self.posted.is_empty();
        let enough = self.ready.len() >= EVENTS_MAX || (!few && self.turns < TURNS_WITHOUT_KERNEL);
        self.turns = if enough { self.turns + 1 } else { 0 };
        enough
    }

    /// Returns the maximum time to wait, with respect to the deadlines of the node and of the
    /// reactor.
    pub(crate) fn max_wait(&mut self, deadline: Option<Instant>) -> Option<Duration> {
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

    /// Reports changes of unresponsive file systems; returns the time of the next check.
    fn look_for_unresponsive(&mut self, now: Instant) -> Instant {
        if now >= self.next_look {
            let limit = self.unresponsive_after;
            let found = self.pool.unresponsive(now, limit);
            let names = |all: &[Unresponsive]| -> Vec<String> {
                all.iter().map(|one| one.name.clone()).collect()
            };
            if names(&found) != names(&self.unresponsive) {
                self.unresponsive.clone_from(&found);
                self.ready(OpId::UNREQUESTED, Done::Unresponsive(found));
            }
            let due = match self.unresponsive.is_empty() {
                true => self.pool.oldest().unwrap_or(now) + limit,
                false => now,
            };
            self.next_look = due.max(now + limit / 10);
        }
        self.next_look
    }

    /// Returns whether the next call of `wait` returns more events than are ready.
    pub(crate) fn has_room(&self) -> bool {
        self.ready.len() < EVENTS_MAX
    }

    /// Returns whether any completion is ready.
    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty() || !self.bulky.is_empty() || !self.posted.is_empty()
    }

    /// Collects the finished jobs of the pool.
    pub(crate) fn collect(&mut self) {
        while let Some(finished) = self.pool.next_finished() {
            if let Some(buf) = finished.used {
                self.memory.give(buf);
            }
            self.may_block.extend(finished.opened.into_iter().map(|(file, lane)| (file.0, lane)));
            if let Some((id, done)) = finished.event {
                self.recent.forget();
                self.span(finished.span);
                self.ready(id, done);
            }
        }
    }

    /// Returns ready completions.
    pub(crate) fn give_out(&mut self, events: &mut Vec<Event>) {
        let count = self.ready.len().min(EVENTS_MAX);
        let bulky = self.bulky.len().min(BULKY_AT_ONCE);
        let posted = self.posted.len().min(POSTED_AT_ONCE);
        self.spin.note(count + bulky + posted);
        self.inline = Duration::ZERO;
        events.extend(self.ready.drain(..count));
        events.extend(self.bulky.drain(..bulky));
        events.extend(self.posted.drain(..posted));
    }

    // Files.

    /// Performs a path operation: at once if it does not block, otherwise on the pool.
    pub(crate) fn path(&mut self, id: OpId, task: Task) {
        let submitted = self.clock.now();
        let lanes = self.lanes_of(&task.op);
        let attempt = if lanes.is_empty() && path::cacheable(&task.op) && self.inline < INLINE_MAX {
            let recent = (&mut self.recent, submitted);
            let attempt = path::perform_cached(&self.host, &mut self.memory, recent, &task);
            // Also if it is abandoned.
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
            // It changes something, now or later.
            self.recent.forget();
        }
        self.pool.push(Job { id: Some(id), work: Work::Path(task), lanes, is_long, submitted });
    }

    /// Returns the lanes of an operation known before its start.
    fn lanes_of(&self, op: &PathOp) -> Vec<Lane> {
        let files = path::files(op).into_iter().flatten();
        let mut lanes: Vec<Lane> =
            files.filter_map(|f| self.may_block.get(&f.0)).cloned().collect();
        lanes.dedup();
        lanes.extend(path::lane(op));
        lanes
    }

    /// Returns whether the files of an operation are on different file systems.
    fn are_apart(&self, op: &PathOp) -> bool {
        let files = path::files(op).map(|file| file.map(|file| self.may_block.get(&file.0)));
        matches!(files, [Some(first), Some(second)] if first != second)
    }

    /// Returns whether a file is on a file system that may block, so that only the pool may access
    /// it: the ring and `RWF_NOWAIT` do not help, because FUSE waits for its server in any case.
    pub(crate) fn may_block(&self, file: File) -> bool {
        !self.may_block.is_empty() && self.may_block.contains_key(&file.0)
    }

    /// Queues work on a file for the pool.
    pub(crate) fn push(&mut self, id: OpId, file: File, work: Work) {
        let lanes = self.may_block.get(&file.0).cloned().into_iter().collect();
        let submitted = self.clock.now();
        self.pool.push(Job { id: Some(id), work, lanes, is_long: false, submitted });
    }

    /// Opens a directory to be served.
    pub(crate) fn open_root(&mut self, path: &std::path::Path) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(self.adopt(fd))
    }

    /// Takes ownership of an open file.
    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> File {
        let lane = self.host.lane_of(fd.as_fd());
        let file = File(descriptor::release(fd));
        assert!(!self.may_block.contains_key(&file.0), "the descriptor was closed before");
        self.may_block.extend(lane.map(|lane| (file.0, lane)));
        file
    }

    /// Closes a file: at once, or on the pool if that may block or frees storage.
    pub(crate) fn close_file(&mut self, file: File, client: ClientKey) {
        let frees = || descriptor::frees_storage(file).then_some(Lane::Freeing);
        let Some(lane) = self.may_block.remove(&file.0).or_else(frees) else {
            return descriptor::close(file.0);
        };
        self.ready(OpId::UNREQUESTED, Done::Closing { client, begins: true });
        let (submitted, lanes) = (self.clock.now(), vec![lane]);
        let work = Work::Close { file, client };
        self.pool.push(Job { id: None, work, lanes, is_long: false, submitted });
    }

    /// Returns an empty buffer for a read.
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

    /// Adopts a listening socket shared with another owner, who removes its name.
    pub(crate) fn adopt_listener(&mut self, fd: OwnedFd) -> Listener {
        let index = u32::try_from(self.listeners.len()).expect("few listeners");
        self.listeners.push(Some(Listening::shared(fd)));
        Listener(index)
    }

    pub(crate) fn set_mailboxes(&mut self, mailboxes: Vec<Mailbox>) {
        self.mailboxes = mailboxes;
    }

    /// Sends a message to another node.
    pub(crate) fn post(&mut self, to: usize, envelope: Envelope) {
        let mailbox = self.mailboxes.get(to).expect("nodes know how many there are");
        mailbox.post(envelope);
    }

    /// Returns the listening socket, unless it is closed.
    pub(crate) fn listening(&self, listener: Listener) -> Option<&OwnedFd> {
        self.listeners.get(listener.0 as usize)?.as_ref().map(|listening| &listening.fd)
    }

    /// Closes a listening socket.
    pub(crate) fn close_listener(&mut self, listener: Listener) {
        // The identity is needed to remove its name; on failure the name is found stale the next
        // time.
        let _ = self.host.own.be_server();
        if let Some(listening) = self.listeners.get_mut(listener.0 as usize) {
            *listening = None;
        }
    }

    /// Accepts a connection without blocking; `None` if none is pending.
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

    /// Registers a new outgoing connection.
    pub(crate) fn connected(&mut self, fd: OwnedFd) -> Socket {
        let number = descriptor::release(fd);
        let new = self.sockets.insert(number);
        assert!(new, "a descriptor is one connection");
        Socket(number)
    }

    /// Returns the result of a receive at the end of the stream, which depends on its reason and on
    /// the owner of the buffer.
    pub(crate) fn end_of_stream(&self, socket: Socket, own_buffer: bool) -> Result<Buf, Error> {
        if own_buffer && !self.hung_up.contains(&socket.0) {
            Ok(Buf::default())
        } else {
            Err(Error::Disconnected)
        }
    }

    /// Shuts down a connection in one or both directions.
    pub(crate) fn shut_down(&mut self, socket: Socket, both: bool) {
        let how = if both { rustix::net::Shutdown::Both } else { rustix::net::Shutdown::Write };
        if both {
            self.hung_up.insert(socket.0);
        }
        if let Ok(fd) = descriptor::socket(socket) {
            // The connection may be broken already.
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

    /// After many connections were closed, and when idle, returns freed memory to the system.
    fn tidy(&mut self) {
        if self.closed >= CROWD && !self.any_ready() {
            self.closed = 0;
            memory::give_back();
        }
    }

    /// Closes all connections, at the end of the reactor.
    pub(crate) fn hang_up_all(&mut self) {
        for number in std::mem::take(&mut self.sockets) {
            self.shut_down(Socket(number), true);
            descriptor::close(number);
        }
    }

    /// Queues received signals as events.
    pub(crate) fn take_signals(&mut self) {
        let count = self.signals.as_ref().map_or(0, Signals::take);
        for _ in 0..count {
            self.ready(OpId::UNREQUESTED, Done::Stop);
        }
    }
}

/// Returns whether a completion is one of blocks.
fn is_bulky(done: &Done) -> bool {
    matches!(done, Done::Blocks(_) | Done::Stored(_))
}
