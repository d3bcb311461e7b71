//! The form with epoll and the pool: for kernels and containers that forbid io_uring.
//!
//! Connections are watched edge-triggered (`EPOLLET`): each records whether it may be readable or
//! writable; an operation is tried at once if so, and otherwise waits for the next edge. Reads of
//! files are tried at once too, from the page cache (`RWF_NOWAIT`); all other operations on files
//! run on the pool's threads.

mod connection;

use crate::blocks::BlockTransfer;
use crate::common::{Common, EVENTS_MAX};
use crate::job::Work;
use crate::path::Task;
use crate::sending::{BATCH_BYTES, BULK_MIN, Sending};
use crate::{Config, descriptor, errno, sockets};
use base::op::{Address, Done, Event, File, Listener, Op, OpId, Peer, ReceiveBuf, Socket};
use base::{Buf, Error, Instant};
use connection::{Connection, Receiving};
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SocketFlags;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::time::Duration;

/// Size of a receive into a buffer of the reactor's own, bytes; the same as the ring's.
const RECEIVE: usize = 16 << 10;

/// Size below which received data are copied, bytes, so that the large buffer is kept.
const COPY_MAX: usize = 2048;

/// Kind of an epoll event, in the upper half of its data; the lower half is a number.
const CONNECTION: u64 = 0;
const LISTENER: u64 = 1 << 32;
const WAKE: u64 = 2 << 32;
const SIGNAL: u64 = 3 << 32;

/// State of a listening socket.
#[derive(Default)]
struct Accepting {
    /// Whether a connection may be pending.
    ready: bool,
    /// Pending accepts, with their maximum number of connections.
    waiting: VecDeque<(OpId, usize)>,
}

/// The reactor on epoll and threads.
pub(crate) struct Threads {
    pub(crate) common: Common,
    epoll: OwnedFd,
    /// Connections by number of the descriptor.
    connections: Vec<Option<Box<Connection>>>,
    /// Listeners by number.
    accepting: Vec<Accepting>,
    #[allow(clippy::vec_box, reason = "the kernel refers to them, so they must not move")]
    sendings: Vec<Box<Sending>>,
    /// Sockets with large sends that can continue, in turn.
    roomy: VecDeque<Socket>,
    /// Buffer for the next receive without one.
    spare: Option<Buf>,
    edges: Vec<epoll::Event>,
}

impl Threads {
    pub(crate) fn new(config: &Config) -> io::Result<Threads> {
        let common = Common::new(config)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, common.pool.wake(), WAKE, epoll::EventFlags::IN)?;
        if let Some(signals) = &common.signals {
            watch(&epoll, signals.fd(), SIGNAL, epoll::EventFlags::IN)?;
        }
        Ok(Threads {
            common,
            epoll,
            connections: Vec::new(),
            accepting: Vec::new(),
            sendings: Vec::new(),
            roomy: VecDeque::new(),
            spare: None,
            edges: Vec::with_capacity(EVENTS_MAX),
        })
    }

    pub(crate) fn submit(&mut self, op: Op) {
        match op {
            Op::Accept { id, listener, max } => self.accept(id, listener, max),
            Op::CloseListener { listener } => self.close_listener(listener),
            Op::Connect { id, to } => self.connect(id, &to),
            Op::Post { to, envelope } => self.common.post(to, envelope),
            Op::Receive { id, socket, into } => self.receive(id, socket, into),
            Op::Send { id, socket, data } => {
                let mut sending = self.sendings.pop().unwrap_or_else(|| Box::new(Sending::new()));
                sending.begin(id, data);
                self.send(socket, sending);
            }
            Op::Finish { socket } => self.common.shut_down(socket, false),
            Op::Hangup { socket } => self.common.shut_down(socket, true),
            Op::CloseSocket { socket } => self.forget(socket),
            Op::Read { id, file, offset, count, headroom } => {
                self.read(id, file, offset, count, headroom);
            }
            Op::Write { id, caller, file, offset, data } => {
                self.common.push(id, file, Work::Write { caller, file, offset, data });
            }
            Op::Sync { id, file, data_only } => {
                self.common.push(id, file, Work::Sync { file, data_only });
            }
            Op::ReadBlocks { id, file, offset, count, size } => {
                let block_transfer = BlockTransfer::read(offset, count as usize, size as usize);
                self.common.push(id, file, Work::Blocks { file, block_transfer });
            }
            Op::WriteBlocks { id, file, offset, blocks, durable } => {
                let block_transfer = BlockTransfer::write(offset, blocks, durable);
                self.common.push(id, file, Work::Blocks { file, block_transfer });
            }
            Op::Path { id, caller, requester, within, op } => {
                self.common.path(id, Task { caller, requester, within, op });
            }
            Op::CloseFile { file, client } => self.common.close_file(file, client),
            Op::Cancel { id } => self.cancel(id),
        }
    }

    // Files.

    /// Reads data in the page cache at once, and leaves the rest to the pool.
    fn read(&mut self, id: OpId, file: File, offset: u64, count: u32, headroom: u32) {
        let submitted = self.common.clock.now();
        let mut buf = self.common.read_buffer(headroom, count);
        let count = count as usize;
        if self.common.may_block(file) {
            return self.common.push(id, file, Work::Read { file, offset, count, buf });
        }
        match read_cached(file, offset, count, &mut buf) {
            Ok(true) => {
                self.common.took(submitted);
                self.common.ready(id, Done::Read(Ok(buf)));
            }
            Ok(false) => self.common.push(id, file, Work::Read { file, offset, count, buf }),
            Err(error) => {
                self.common.memory.give(buf);
                self.common.ready(id, Done::Read(Err(error)));
            }
        }
    }

    // Connections.

    fn accept(&mut self, id: OpId, listener: Listener, max: usize) {
        let index = listener.0 as usize;
        if self.common.listening(listener).is_none() || index >= self.accepting.len() {
            return self.common.ready(id, Done::Accepted(Err(Error::Cancelled)));
        }
        let waiting = &mut self.accepting[index].waiting;
        assert!(waiting.iter().all(|(of, _)| *of != id), "an operation is requested once");
        waiting.push_back((id, max));
        self.try_accept(listener);
    }

    fn try_accept(&mut self, listener: Listener) {
        let index = listener.0 as usize;
        while self.accepting[index].ready {
            let Some((id, max)) = self.accepting[index].waiting.pop_front() else { return };
            match sockets::accept_up_to(max, || self.accept_one(listener)) {
                Some(accepted) => self.common.ready(id, Done::Accepted(accepted)),
                None => self.accepting[index].waiting.push_front((id, max)),
            }
        }
    }

    fn accept_one(&mut self, listener: Listener) -> Result<Option<(Socket, Peer)>, Error> {
        let Some((socket, peer)) = self.common.accept(listener, SocketFlags::NONBLOCK)? else {
            self.accepting[listener.0 as usize].ready = false;
            return Ok(None);
        };
        self.watch_connection(socket, Connection::default())?;
        Ok(Some((socket, peer)))
    }

    /// Registers a connection; closes the socket if that fails.
    fn watch_connection(&mut self, socket: Socket, connection: Connection) -> Result<(), Error> {
        let index = socket.0 as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        assert!(self.connections[index].is_none(), "a descriptor is one connection");
        self.connections[index] = Some(Box::new(connection));
        let edges = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let watched = descriptor::socket(socket).and_then(|fd| {
            watch(&self.epoll, fd, CONNECTION | u64::from(socket.0), edges)
                .map_err(errno::translate)
        });
        if watched.is_err() {
            self.connections[index] = None;
            self.common.close_socket(socket);
        }
        watched
    }

    fn connect(&mut self, id: OpId, to: &Address) {
        // Connecting to a Unix socket uses the server's own identity.
        let _ = self.common.host.own.be_server();
        let begun = sockets::kernel_address(to).and_then(|address| {
            let fd = sockets::dial(to, SocketFlags::NONBLOCK)?;
            match rustix::net::connect(&fd, &address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(fd),
                Err(errno) => Err(errno),
            }
        });
        let watched = begun.map_err(errno::translate).and_then(|fd| {
            let socket = self.common.connected(fd);
            let connection = Connection { connecting: Some(id), ..Connection::default() };
            self.watch_connection(socket, connection)
        });
        if let Err(error) = watched {
            self.common.ready(id, Done::Connected(Err(error)));
        }
    }

    /// Completes a connect if an edge reports its end.
    fn try_connect(&mut self, socket: Socket) {
        let Some(connection) = self.connection(socket) else { return };
        let decided = connection.writable || connection.ended;
        let Some(id) = connection.connecting.take_if(|_| decided) else { return };
        let error = descriptor::socket(socket)
            .and_then(|fd| rustix::net::sockopt::socket_error(fd).map_err(errno::translate));
        let result = match error {
            Ok(Ok(())) => Ok(socket),
            Ok(Err(errno)) => Err(errno::translate(errno)),
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.forget(socket);
        }
        self.common.ready(id, Done::Connected(result));
    }

    fn forget(&mut self, socket: Socket) {
        if let Some(connection) = self.connections.get_mut(socket.0 as usize) {
            *connection = None;
        }
        self.common.close_socket(socket);
    }

    fn connection(&mut self, socket: Socket) -> Option<&mut Connection> {
        self.connections.get_mut(socket.0 as usize)?.as_deref_mut()
    }

    fn receive(&mut self, id: OpId, socket: Socket, into: ReceiveBuf) {
        let full = match &into {
            ReceiveBuf::Default => false,
            ReceiveBuf::UpTo(count) => *count == 0,
            ReceiveBuf::Append(buf) => buf.tailroom() == 0,
        };
        match self.connection(socket) {
            Some(connection) if !full => {
                assert!(connection.receiving.is_none(), "one receive at a time");
                connection.receiving = Some(Receiving { id, into });
                self.try_receive(socket);
            }
            Some(_) | None => self.common.ready(id, Done::Received(Err(Error::Invalid))),
        }
    }

    fn try_receive(&mut self, socket: Socket) {
        let Some(connection) = self.connection(socket) else { return };
        if !connection.readable {
            return;
        }
        let Some(Receiving { id, into }) = connection.receiving.take() else { return };
        let own = into.is_default();
        let (mut buf, requested, behind) = match into {
            ReceiveBuf::Default => (self.spare_buffer(), RECEIVE, false),
            ReceiveBuf::UpTo(count) => (self.common.memory.take(0, count), count, false),
            ReceiveBuf::Append(buf) => {
                let count = buf.tailroom();
                (buf, count, true)
            }
        };
        assert!(requested > 0, "a receive has a buffer");
        let result = connection::receive(socket, &mut buf.spare()[..requested]);
        let connection = self.connection(socket).expect("it was there above");
        let received = match result {
            Err(Errno::AGAIN) => {
                connection.readable = false;
                let into = match (own, behind) {
                    (true, _) => ReceiveBuf::Default,
                    (false, true) => ReceiveBuf::Append(std::mem::take(&mut buf)),
                    (false, false) => ReceiveBuf::UpTo(requested),
                };
                connection.receiving = Some(Receiving { id, into });
                return self.put_away(buf, own);
            }
            Ok(0) => {
                self.put_away(buf, own);
                self.common.end_of_stream(socket, own)
            }
            Ok(n) => {
                // Less than requested: the socket is drained. After a shutdown no further edge
                // arrives.
                connection.readable = n == requested || connection.ended;
                Ok(if own { self.claim(buf, n) } else { grown(buf, n) })
            }
            Err(errno) => Err(errno::translate(errno)),
        };
        self.common.ready(id, Done::Received(received));
    }

    fn spare_buffer(&mut self) -> Buf {
        self.spare.take().unwrap_or_else(|| self.common.memory.take(0, RECEIVE))
    }

    /// Keeps unused memory for the next receive.
    fn put_away(&mut self, buf: Buf, own: bool) {
        if !own {
            return self.common.memory.give(buf);
        }
        assert!(self.spare.is_none(), "one buffer is enough");
        self.spare = Some(buf);
    }

    /// Returns received data: a large amount with its memory, a small one as a copy.
    fn claim(&mut self, mut buf: Buf, n: usize) -> Buf {
        if n > COPY_MAX {
            return grown(buf, n);
        }
        let copy = Buf::from(&buf.spare()[..n]);
        assert!(self.spare.is_none(), "it was taken for the call");
        self.spare = Some(buf);
        copy
    }

    fn send(&mut self, socket: Socket, sending: Box<Sending>) {
        match self.connection(socket) {
            Some(connection) => {
                assert!(connection.sending.is_none(), "one send at a time");
                connection.sending = Some(sending);
                self.try_send(socket);
            }
            None => self.sent(sending, Err(Error::Disconnected)),
        }
    }

    fn try_send(&mut self, socket: Socket) {
        let Some(connection) = self.connection(socket) else { return };
        let Some(mut sending) = connection.sending.take() else { return };
        let result = loop {
            if sending.is_done() {
                break Ok(());
            }
            let connection = self.connection(socket).expect("it was there above");
            if !connection.writable {
                connection.sending = Some(sending);
                return;
            }
            match connection::send(socket, &mut sending) {
                Ok(n) => sending.advance(n),
                Err(Errno::AGAIN) => connection.writable = false,
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno::translate(errno)),
            }
        };
        self.sent(sending, result);
    }

    /// Continues a send that may have room, in its turn if it is a large one.
    fn send_in_turn(&mut self, socket: Socket) {
        let Some(connection) = self.connection(socket) else { return };
        if connection.sending.as_ref().is_none_or(|sending| sending.left() < BULK_MIN) {
            return self.try_send(socket);
        }
        if !connection.has_turn {
            connection.has_turn = true;
            self.roomy.push_back(socket);
        }
    }

    /// Continues large sends, as many as one wait may take.
    fn send_roomy(&mut self) {
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let Some(socket) = self.roomy.pop_front() else { return };
            // The number may be another connection's by now.
            let Some(connection) = self.connection(socket) else { continue };
            connection.has_turn = false;
            bytes += connection.sending.as_ref().map_or(0, |sending| sending.left());
            self.try_send(socket);
        }
    }

    fn sent(&mut self, mut sending: Box<Sending>, result: Result<(), Error>) {
        self.common.ready(sending.id, Done::Sent(result));
        sending.end(&mut self.common.memory);
        self.sendings.push(sending);
    }

    // Cancelling.

    fn cancel(&mut self, id: OpId) {
        // Operations that clients cancel are on the pool; the others are cancelled by the server
        // only, and rarely.
        if self.common.pool.cancel(id) {
            return;
        }
        for accepting in &mut self.accepting {
            if let Some(index) = accepting.waiting.iter().position(|(of, _)| *of == id) {
                accepting.waiting.remove(index);
                return self.common.ready(id, Done::Accepted(Err(Error::Cancelled)));
            }
        }
        let connecting = |c: &Connection| c.connecting == Some(id);
        let found = self.connections.iter().position(|c| c.as_deref().is_some_and(connecting));
        if let Some(index) = found {
            self.forget(Socket(u32::try_from(index).expect("the number of a descriptor")));
            return self.common.ready(id, Done::Connected(Err(Error::Cancelled)));
        }
        for connection in self.connections.iter_mut().flatten() {
            if connection.receiving.as_ref().is_some_and(|receiving| receiving.id == id) {
                connection.receiving = None;
                return self.common.ready(id, Done::Received(Err(Error::Cancelled)));
            }
        }
    }

    fn close_listener(&mut self, listener: Listener) {
        self.common.close_listener(listener);
        let accepting = self.accepting.get_mut(listener.0 as usize);
        let waiting = accepting.map(|accepting| std::mem::take(&mut accepting.waiting));
        for (id, _) in waiting.unwrap_or_default() {
            self.common.ready(id, Done::Accepted(Err(Error::Cancelled)));
        }
    }

    /// Starts watching a new listener.
    pub(crate) fn watch_listener(&mut self, listener: Listener) -> io::Result<()> {
        let index = listener.0 as usize;
        assert!(index >= self.accepting.len(), "listeners are numbered in order");
        self.accepting.resize_with(index + 1, Accepting::default);
        let fd = self.common.listening(listener).ok_or(Errno::BADF)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(watch(&self.epoll, fd.as_fd(), LISTENER | u64::from(listener.0), flags)?)
    }

    // Waiting.

    pub(crate) fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) {
        loop {
            if !self.common.enough() {
                let max_wait = self.common.max_wait(deadline);
                let timeout = if self.roomy.is_empty() { max_wait } else { Some(Duration::ZERO) };
                self.poll(timeout);
                self.common.collect();
            }
            let ready = self.common.any_ready();
            self.common.give_out(events);
            if ready || deadline.is_some_and(|deadline| self.common.clock.now() >= deadline) {
                return;
            }
        }
    }

    /// Handles edges; sleeps for them if there is nothing else to do.
    fn poll(&mut self, timeout: Option<Duration>) {
        let mut edges = std::mem::take(&mut self.edges);
        assert!(edges.is_empty(), "all were looked at");
        let may_sleep = !self.common.any_ready() && timeout != Some(Duration::ZERO);
        self.common.statistics.kernel_entries += 1;
        if may_sleep && !self.look(timeout, &mut edges) && self.common.pool.fall_asleep() {
            let epoll = &self.epoll;
            self.common.spin.sleep(|| take_edges(epoll, timeout, &mut edges));
            self.common.pool.wake_up();
        } else if edges.is_empty() {
            take_edges(&self.epoll, Some(Duration::ZERO), &mut edges);
        }
        for edge in edges.drain(..) {
            self.edge(edge.data.u64(), edge.flags);
        }
        self.edges = edges;
        self.send_roomy();
    }

    /// Spins for a moment; returns whether anything arrived.
    fn look(&mut self, timeout: Option<Duration>, edges: &mut Vec<epoll::Event>) -> bool {
        if !self.common.spin.is_warm(timeout) {
            return false;
        }
        let (epoll, pool) = (&self.epoll, &self.common.pool);
        self.common.spin.look(|| {
            take_edges(epoll, Some(Duration::ZERO), edges);
            !edges.is_empty() || pool.any_finished()
        })
    }

    fn edge(&mut self, data: u64, flags: epoll::EventFlags) {
        let number = (data & 0xffff_ffff) as u32;
        match data & !0xffff_ffff {
            LISTENER => {
                self.accepting[number as usize].ready = true;
                self.try_accept(Listener(number));
            }
            WAKE => self.common.pool.awake(),
            SIGNAL => self.common.take_signals(),
            _ => {
                let socket = Socket(number);
                let Some(connection) = self.connection(socket) else { return };
                connection.note(flags);
                self.try_connect(socket);
                self.try_receive(socket);
                self.send_in_turn(socket);
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.common.hang_up_all();
    }
}

/// Waits for edges; returns none if the time passes or a signal interrupts.
fn take_edges(epoll: &OwnedFd, timeout: Option<Duration>, edges: &mut Vec<epoll::Event>) {
    let timeout = timeout.map(timespec);
    if epoll::wait(epoll, rustix::buffer::spare_capacity(edges), timeout.as_ref()).is_err() {
        edges.clear();
    }
}

fn watch(
    epoll: &OwnedFd,
    fd: BorrowedFd<'_>,
    data: u64,
    flags: epoll::EventFlags,
) -> rustix::io::Result<()> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(data), flags)
}

fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}

fn grown(mut buf: Buf, n: usize) -> Buf {
    buf.grow(n);
    buf
}

/// Reads without blocking; returns `true` if the read is complete, up to `count`, and `false` if
/// the rest would block.
fn read_cached(file: File, offset: u64, count: usize, buf: &mut Buf) -> Result<bool, Error> {
    assert!(buf.is_empty() && buf.tailroom() >= count, "a read has room for what it wants");
    let fd = descriptor::file(file)?;
    while buf.len() < count {
        let at = offset.saturating_add(buf.len() as u64);
        let want = count - buf.len();
        let mut slices = [IoSliceMut::new(&mut buf.spare()[..want])];
        match rustix::io::preadv2(fd, &mut slices, at, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(n) => buf.grow(n),
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno::translate(errno)),
        }
    }
    Ok(true)
}
