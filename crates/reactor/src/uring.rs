//! The form with one io_uring: files, sockets and waiting in one system call per turn.
//!
//! Each operation has a slot that owns all memory the kernel may access, until its completion, also
//! after a cancellation. The ring is used by its creating thread only (`SINGLE_ISSUER`,
//! `DEFER_TASKRUN`): the kernel does its part of the work while this thread is in the kernel
//! anyway.
#![allow(unsafe_code)]

mod blocks;
mod buffer_ring;
mod personality;
pub(crate) mod ring;

use crate::blocks::BlockTransfer;
use crate::common::{Common, EVENTS_MAX};
use crate::job::Work;
use crate::path::Task;
use crate::sending::{BULK_MIN, Sending};
use crate::{Config, errno, sockets};
use base::op::{Address, Done, Event, File, Listener, Op, OpId, ReceiveBuf, Socket, Span};
use base::{Buf, Caller, Error, Instant};
use buffer_ring::BufferRing;
use io_uring::{cqueue, opcode, squeue, types};
use personality::Personalities;
use ring::Ring;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::net::{SocketAddrAny, SocketFlags};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

/// Size below which received data are copied out of the kernel's buffer, bytes, which is kept.
const COPY_MAX: usize = 2048;

/// Maximum number of further calls of one `wait` for what is pending, of which the kernel does a
/// part in each (20 operations, since Linux 6.13). Sends to clients that read fast go on in each.
const CALLS_MAX: usize = EVENTS_MAX / 20;

/// Maximum time that the end of the reactor waits for operations in flight.
const FAREWELL: Duration = Duration::from_secs(5);

/// Events of a poll for data.
const READABLE: u32 = libc::POLLIN as u32;
/// Events of a poll for room.
const WRITABLE: u32 = libc::POLLOUT as u32;

/// An operation in flight, with the memory that it owns.
enum Slot {
    /// A poll of the listener; connections are accepted at its end.
    Accept {
        id: OpId,
        listener: Listener,
        max: usize,
    },
    /// A connect. The kernel reads the address.
    Connect {
        id: OpId,
        fd: OwnedFd,
        address: Box<SocketAddrAny>,
    },
    Receive {
        id: OpId,
        socket: Socket,
        into: Option<Buf>,
        /// Maximum number of bytes.
        count: usize,
    },
    Send {
        socket: Socket,
        sending: Box<Sending>,
        /// Number of bytes that it may transfer at once because the socket had no room before.
        bytes: usize,
    },
    /// A send that waits until its socket has room. If the kernel waited instead, all sends that
    /// get room at once would be repeated within one call, before anything else.
    Room {
        socket: Socket,
        sending: Box<Sending>,
    },
    Read {
        id: OpId,
        file: File,
        offset: u64,
        count: usize,
        buf: Buf,
    },
    Write {
        id: OpId,
        data: Buf,
    },
    /// Blocks of a volume. The kernel reads the slices and the memory that they point to.
    Blocks {
        id: OpId,
        file: File,
        block_transfer: BlockTransfer,
        slices: Vec<libc::iovec>,
    },
    Sync {
        id: OpId,
    },
    /// The pool's wake-up read.
    Wake {
        count: Box<[u8; 8]>,
    },
    /// A poll for signals.
    Signal,
}

/// A slot with the number that distinguishes it from earlier ones at the same index.
struct Entry {
    sequence: u32,
    /// Time of the last entry into the kernel before it was created.
    submitted: Instant,
    slot: Slot,
}

/// The reactor on io_uring.
pub(crate) struct Uring {
    pub(crate) common: Common,
    ring: Ring,
    buffer_ring: BufferRing,
    slots: Slab<Entry>,
    /// Slots of operations on files, which clients cancel, so that the cost does not depend on the
    /// number of slots.
    transfers: BTreeMap<OpId, usize>,
    /// Receives that found no free buffer, in the order of their retries.
    unbuffered: VecDeque<(OpId, Socket)>,
    sequence: u32,
    personalities: Personalities,
    /// Idle ones, for reuse.
    #[allow(clippy::vec_box, reason = "the kernel refers to them, so they must not move")]
    sendings: Vec<Box<Sending>>,
    completions: Vec<cqueue::Entry>,
    /// Whether the last receive drained the socket, by number of the descriptor.
    drained: Vec<bool>,
    /// Time of the last wait: an approximation for operations submitted after it.
    turn: Instant,
}

impl Uring {
    pub(crate) fn new(config: &Config) -> io::Result<Uring> {
        let mut common = Common::new(config)?;
        let ring = Ring::new()?;
        let personalities = Personalities::new(&ring)?;
        let buffer_ring = BufferRing::new(&ring, &mut common.memory)?;
        let mut uring = Uring {
            common,
            ring,
            buffer_ring,
            slots: Slab::new(),
            transfers: BTreeMap::new(),
            unbuffered: VecDeque::new(),
            sequence: 0,
            personalities,
            sendings: Vec::new(),
            completions: Vec::with_capacity(EVENTS_MAX),
            drained: Vec::new(),
            turn: Instant::default(),
        };
        uring.listen_for_wake(Box::new([0; 8]));
        uring.listen_for_signals();
        Ok(uring)
    }

    // Starting.

    /// Creates the slot of an operation and queues its entry.
    fn start(&mut self, slot: Slot, entry: squeue::Entry) {
        self.sequence = self.sequence.wrapping_add(1) & 0x7fff_ffff;
        let mut bytes = slot.bytes();
        // On a drained socket, the kernel transfers nothing within the call.
        if let Slot::Receive { socket, .. } = &slot
            && self.is_drained(*socket)
        {
            bytes = 0;
        }
        let (sequence, transfer) = (self.sequence, slot.transfer());
        let key = self.slots.insert(Entry { sequence, submitted: self.turn, slot });
        let before = transfer.and_then(|id| self.transfers.insert(id, key));
        assert!(before.is_none(), "an operation is in flight once");
        let name = name(key, sequence);
        self.ring.push_bulk(name, entry.user_data(name), bytes);
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
                self.send(socket, sending, false);
            }
            Op::Finish { socket } => self.common.shut_down(socket, false),
            Op::Hangup { socket } => self.common.shut_down(socket, true),
            Op::CloseSocket { socket } => {
                self.note_drained(socket, false);
                self.common.close_socket(socket);
            }
            Op::Read { id, file, offset, count, headroom } => {
                let buf = self.common.read_buffer(headroom, count);
                if self.common.may_block(file) {
                    let work = Work::Read { file, offset, count: count as usize, buf };
                    return self.common.push(id, file, work);
                }
                self.read(id, file, offset, count as usize, buf);
            }
            Op::Write { id, caller, file, offset, data } => {
                self.write(id, caller, file, offset, data);
            }
            Op::Sync { id, file, data_only } if self.common.may_block(file) => {
                self.common.push(id, file, Work::Sync { file, data_only });
            }
            Op::Sync { id, file, data_only } => {
                let flags = if data_only {
                    types::FsyncFlags::DATASYNC
                } else {
                    types::FsyncFlags::empty()
                };
                let entry = opcode::Fsync::new(fd(file.0)).flags(flags).build();
                self.start(Slot::Sync { id }, entry.personality(self.personalities.server()));
            }
            Op::ReadBlocks { id, file, offset, count, size } => {
                let block_transfer = BlockTransfer::read(offset, count as usize, size as usize);
                self.begin_blocks(id, file, block_transfer);
            }
            Op::WriteBlocks { id, file, offset, blocks, durable } => {
                let block_transfer = BlockTransfer::write(offset, blocks, durable);
                self.begin_blocks(id, file, block_transfer);
            }
            Op::Path { id, caller, requester, within, op } => {
                self.common.path(id, Task { caller, requester, within, op });
            }
            Op::CloseFile { file, client } => self.common.close_file(file, client),
            Op::Cancel { id } => self.cancel(id),
        }
    }

    /// Transfers blocks, on the pool if their file system may block: the ring's own threads are
    /// few.
    fn begin_blocks(&mut self, id: OpId, file: File, block_transfer: BlockTransfer) {
        if self.common.may_block(file) {
            return self.common.push(id, file, Work::Blocks { file, block_transfer });
        }
        self.move_blocks(id, file, block_transfer, Vec::new());
    }

    fn accept(&mut self, id: OpId, listener: Listener, max: usize) {
        let Some(socket) = self.common.listening(listener) else {
            return self.common.ready(id, Done::Accepted(Err(Error::Cancelled)));
        };
        let entry = opcode::PollAdd::new(types::Fd(socket.as_raw_fd()), READABLE).build();
        self.start(Slot::Accept { id, listener, max }, entry);
    }

    fn connect(&mut self, id: OpId, to: &Address) {
        let dialled = sockets::kernel_address(to)
            .and_then(|address| Ok((sockets::dial(to, SocketFlags::empty())?, Box::new(address))));
        let (fd, address) = match dialled {
            Ok(dialled) => dialled,
            Err(errno) => {
                return self.common.ready(id, Done::Connected(Err(errno::translate(errno))));
            }
        };
        let (place, length) = (address.as_ptr().cast(), address.addr_len());
        let entry = opcode::Connect::new(types::Fd(fd.as_raw_fd()), place, length).build();
        // Connecting to a Unix socket uses the server's own identity.
        let entry = entry.personality(self.personalities.server());
        self.start(Slot::Connect { id, fd, address }, entry);
    }

    fn receive(&mut self, id: OpId, socket: Socket, into: ReceiveBuf) {
        let (mut into, count) = match into {
            ReceiveBuf::Default => (None, 0),
            ReceiveBuf::UpTo(count) => (Some(self.common.memory.take(0, count)), count),
            ReceiveBuf::Append(buf) => {
                let count = buf.tailroom();
                (Some(buf), count)
            }
        };
        let entry = match &mut into {
            None => opcode::Recv::new(fd(socket.0), std::ptr::null_mut(), 0)
                .buf_group(buffer_ring::GROUP)
                .ioprio(self.max_wait(socket))
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            Some(_) if count == 0 => {
                return self.common.ready(id, Done::Received(Err(Error::Invalid)));
            }
            Some(buf) => {
                let spare = &mut buf.spare()[..count];
                let length = u32::try_from(count).unwrap_or(u32::MAX);
                opcode::Recv::new(fd(socket.0), spare.as_mut_ptr(), length).build()
            }
        };
        self.start(Slot::Receive { id, socket, into, count }, entry);
    }

    /// Returns the flag that spares the kernel a first attempt on a drained socket.
    fn max_wait(&self, socket: Socket) -> u16 {
        const POLL_FIRST: u16 = 1;
        if self.is_drained(socket) { POLL_FIRST } else { 0 }
    }

    fn is_drained(&self, socket: Socket) -> bool {
        self.drained.get(socket.0 as usize).copied().unwrap_or(false)
    }

    fn note_drained(&mut self, socket: Socket, drained: bool) {
        let index = socket.0 as usize;
        if self.drained.len() <= index {
            self.drained.resize(index + 1, false);
        }
        self.drained[index] = drained;
    }

    fn send(&mut self, socket: Socket, mut sending: Box<Sending>, is_repeated: bool) {
        let left = sending.left();
        if left == 0 {
            return self.sent(sending, Ok(()));
        }
        let waits = if left < BULK_MIN { libc::MSG_WAITALL } else { libc::MSG_DONTWAIT };
        let flags = waits | libc::MSG_NOSIGNAL;
        let entry = if let Some(bytes) = sending.single() {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            opcode::Send::new(fd(socket.0), bytes.as_ptr(), length).flags(flags).build()
        } else {
            let flags = u32::try_from(flags).expect("positive");
            opcode::SendMsg::new(fd(socket.0), sending.message()).flags(flags).build()
        };
        let bytes = if is_repeated { left } else { 0 };
        self.start(Slot::Send { socket, sending, bytes }, entry);
    }

    fn await_room(&mut self, socket: Socket, sending: Box<Sending>) {
        assert!(!sending.is_done(), "a waiting connection has something to send");
        let entry = opcode::PollAdd::new(fd(socket.0), WRITABLE).build();
        self.start(Slot::Room { socket, sending }, entry);
    }

    fn sent(&mut self, mut sending: Box<Sending>, result: Result<(), Error>) {
        self.common.ready(sending.id, Done::Sent(result));
        sending.end(&mut self.common.memory);
        self.sendings.push(sending);
    }

    fn read(&mut self, id: OpId, file: File, offset: u64, count: usize, mut buf: Buf) {
        assert!(buf.is_empty() && buf.tailroom() >= count, "a read has room for what it wants");
        let spare = &mut buf.spare()[..count];
        let length = u32::try_from(count).expect("it was 32 bits");
        let entry =
            opcode::Read::new(fd(file.0), spare.as_mut_ptr(), length).offset(offset).build();
        let entry = entry.personality(self.personalities.server());
        self.start(Slot::Read { id, file, offset, count, buf }, entry);
    }

    /// Writes as the caller: the kernel must clear set-id bits on writes of ordinary users.
    fn write(&mut self, id: OpId, caller: Caller, file: File, offset: u64, data: Buf) {
        let personality = match &caller {
            caller if self.common.host.own.acts_as_server(caller) => {
                Ok(self.personalities.server())
            }
            Caller::Server => Ok(self.personalities.server()),
            Caller::User(user) => self.personalities.of(user, &mut self.ring, &self.common.host),
        };
        let near = personality.ok().filter(|_| !self.common.may_block(file));
        let Some(personality) = near else {
            let work = Work::Write { caller, file, offset, data };
            return self.common.push(id, file, work);
        };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let entry = opcode::Write::new(fd(file.0), data.as_ptr(), length).offset(offset).build();
        self.start(Slot::Write { id, data }, entry.personality(personality));
    }

    fn listen_for_wake(&mut self, mut count: Box<[u8; 8]>) {
        let wake = types::Fd(rustix::fd::AsFd::as_fd(&self.common.pool.wake()).as_raw_fd());
        let entry = opcode::Read::new(wake, count.as_mut_ptr(), 8).build();
        self.start(Slot::Wake { count }, entry);
    }

    fn listen_for_signals(&mut self) {
        let Some(signals) = &self.common.signals else { return };
        let entry = opcode::PollAdd::new(types::Fd(signals.fd().as_raw_fd()), READABLE).build();
        self.start(Slot::Signal, entry);
    }

    // Cancelling.

    fn cancel(&mut self, id: OpId) {
        if self.common.pool.cancel(id) {
            return;
        }
        if let Some(key) = self.transfers.get(&id).copied() {
            let Entry { sequence, slot, .. } = &self.slots[key];
            // Writes and syncs are not interrupted.
            if slot.can_be_cancelled(id) {
                self.cancel_by_name(name(key, *sequence));
            }
            return;
        }
        // The others are cancelled by the server only, and rarely.
        if let Some(at) = self.unbuffered.iter().position(|(waiting, _)| *waiting == id) {
            self.unbuffered.remove(at);
            self.common.ready(id, Done::Received(Err(Error::Cancelled)));
        } else if let Some((key, entry)) =
            self.slots.iter().find(|(_, entry)| entry.slot.can_be_cancelled(id))
        {
            let name = name(key, entry.sequence);
            if self.ring.take_back(name) {
                self.slots.remove(key);
                return self.common.ready(id, Done::Received(Err(Error::Cancelled)));
            }
            self.cancel_by_name(name);
        }
    }

    fn cancel_by_name(&mut self, name: u64) {
        self.ring.push(&opcode::AsyncCancel::new(name).build().user_data(ring::IGNORED));
    }

    fn close_listener(&mut self, closed: Listener) {
        let accepting = |entry: &Entry| match &entry.slot {
            Slot::Accept { listener, .. } => *listener == closed,
            Slot::Connect { .. }
            | Slot::Receive { .. }
            | Slot::Send { .. }
            | Slot::Room { .. }
            | Slot::Read { .. }
            | Slot::Write { .. }
            | Slot::Blocks { .. }
            | Slot::Sync { .. }
            | Slot::Wake { .. }
            | Slot::Signal => false,
        };
        let names: Vec<u64> = self
            .slots
            .iter()
            .filter(|(_, entry)| accepting(entry))
            .map(|(key, entry)| name(key, entry.sequence))
            .collect();
        for name in names {
            self.cancel_by_name(name);
        }
        // The kernel must have processed all of them before the descriptor may be reused.
        self.enter(false, Some(Duration::ZERO));
        self.common.close_listener(closed);
    }

    // Waiting.

    pub(crate) fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) {
        loop {
            if !self.common.enough() {
                let timeout = self.common.max_wait(deadline);
                let may_sleep = !self.common.any_ready()
                    && !self.ring.any_completion()
                    && !self.ring.any_bulk()
                    && self.unbuffered.is_empty();
                let sleep = may_sleep && timeout != Some(Duration::ZERO);
                if sleep || !self.ring.any_completion() || self.ring.any_queued() {
                    self.enter(sleep, timeout);
                }
                self.harvest();
                let mut calls = 0..CALLS_MAX;
                while calls.next().is_some() && self.common.has_room() && self.ring.look() {
                    self.harvest();
                }
                self.common.collect();
            }
            let ready = self.common.any_ready();
            self.common.give_out(events);
            if ready || deadline.is_some_and(|deadline| self.common.clock.now() >= deadline) {
                return;
            }
        }
    }

    /// Submits queued operations, and sleeps if there is nothing else to do.
    fn enter(&mut self, sleep: bool, timeout: Option<Duration>) {
        if sleep && self.look(timeout) {
            return;
        }
        if sleep && self.common.pool.fall_asleep() {
            self.common.spin.sleep(|| self.ring.enter(1, timeout));
            self.common.pool.wake_up();
        } else {
            self.ring.enter(0, None);
        }
    }

    /// Submits queued operations and spins for completions; returns whether there are some.
    fn look(&mut self, timeout: Option<Duration>) -> bool {
        if !self.common.spin.is_warm(timeout) {
            return false;
        }
        if self.ring.any_queued() {
            self.ring.enter(0, None);
        }
        let (ring, pool) = (&mut self.ring, &self.common.pool);
        self.common.spin.look(|| ring.look() || pool.any_finished())
    }

    fn harvest(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        assert!(completions.is_empty(), "all were looked at");
        self.ring.take(&mut completions, EVENTS_MAX);
        self.turn = self.common.clock.now();
        self.common.statistics.kernel_entries = self.ring.calls();
        for completion in completions.drain(..) {
            self.complete(&completion);
        }
        self.completions = completions;
        let returned = self.buffer_ring.publish();
        // Without pending completions, all buffers are free.
        let buffers = if self.ring.any_completion() { returned } else { buffer_ring::COUNT.into() };
        self.retry_receives(buffers);
    }

    /// Resubmits receives that found no free buffer, as many as there may be buffers for: most of
    /// the others would fail again.
    fn retry_receives(&mut self, buffers: usize) {
        for _ in 0..buffers.max(1) {
            let Some((id, socket)) = self.unbuffered.pop_front() else { return };
            self.receive(id, socket, ReceiveBuf::Default);
        }
    }

    fn complete(&mut self, completion: &cqueue::Entry) {
        let Some(key) = key(completion.user_data()) else { return };
        let Some(entry) = self.slots.try_remove(key) else { return };
        let sequence = (completion.user_data() >> 32) as u32;
        assert_eq!(entry.sequence, sequence, "a completion is of who has the slot");
        if let Some(id) = entry.slot.transfer() {
            let known = self.transfers.remove(&id);
            assert_eq!(known, Some(key), "a transfer is found by its operation");
        }
        let result = completion.result();
        if entry.slot.is_file_work() {
            let (submitted, finished) = (entry.submitted, self.turn);
            self.common.span(Span { submitted, started: submitted, finished });
        }
        match entry.slot {
            Slot::Accept { id, listener, max } => {
                self.complete_accept(id, listener, max, result);
            }
            Slot::Connect { id, fd, address } => {
                drop(address);
                let connected = match result {
                    0.. => Ok(self.common.connected(fd)),
                    error => Err(errno::from_raw(error)),
                };
                self.common.ready(id, Done::Connected(connected));
            }
            Slot::Receive { id, socket, into: None, .. } => {
                self.complete_ring_receive(id, socket, completion);
            }
            Slot::Receive { id, socket, into: Some(buf), .. } => {
                self.note_drained(socket, !cqueue::sock_nonempty(completion.flags()));
                self.complete_receive(id, socket, buf, result);
            }
            Slot::Send { socket, sending, .. } => self.complete_send(socket, sending, result),
            Slot::Room { socket, sending } => match result {
                0.. => self.send(socket, sending, true),
                error => self.sent(sending, Err(errno::from_raw(error))),
            },
            Slot::Read { id, file, offset, count, buf } => {
                self.complete_read(id, file, offset, count, buf, result);
            }
            Slot::Write { id, data } => {
                self.common.memory.give(data);
                let written = u32::try_from(result).map_err(|_| errno::from_raw(result));
                self.common.ready(id, Done::Written(written));
            }
            Slot::Blocks { id, file, block_transfer, slices } => {
                self.complete_blocks(id, file, block_transfer, slices, result);
            }
            Slot::Sync { id } => {
                let synced = if result < 0 { Err(errno::from_raw(result)) } else { Ok(()) };
                self.common.ready(id, Done::Synced(synced));
            }
            Slot::Wake { count } => self.listen_for_wake(count),
            Slot::Signal => {
                self.common.take_signals();
                self.listen_for_signals();
            }
        }
    }

    fn complete_accept(&mut self, id: OpId, listener: Listener, max: usize, result: i32) {
        if result < 0 {
            return self.common.ready(id, Done::Accepted(Err(errno::from_raw(result))));
        }
        let accept = || self.common.accept(listener, SocketFlags::empty());
        // None is left if another thread of this listener accepted it.
        let accepted = sockets::accept_up_to(max, accept).unwrap_or_else(|| Ok(Vec::new()));
        self.common.ready(id, Done::Accepted(accepted));
    }

    fn complete_ring_receive(&mut self, id: OpId, socket: Socket, completion: &cqueue::Entry) {
        let result = completion.result();
        if result == -libc::ENOBUFS {
            // This one is retried before later receives, without waiting for the socket first.
            self.note_drained(socket, false);
            return self.unbuffered.push_back((id, socket));
        }
        self.note_drained(socket, !cqueue::sock_nonempty(completion.flags()));
        let length = usize::try_from(result).unwrap_or(0);
        let buf = cqueue::buffer_select(completion.flags()).map(|index| {
            if length > COPY_MAX {
                self.buffer_ring.take(index, length, &mut self.common.memory)
            } else {
                self.buffer_ring.copy(index, length)
            }
        });
        let received = match (result, buf) {
            (1.., Some(buf)) => Ok(buf),
            (0, _) => self.common.end_of_stream(socket, true),
            (error, _) => Err(errno::from_raw(error)),
        };
        self.common.ready(id, Done::Received(received));
    }

    fn complete_receive(&mut self, id: OpId, socket: Socket, mut buf: Buf, result: i32) {
        let received = match result {
            0 => {
                self.common.memory.give(buf);
                self.common.end_of_stream(socket, false)
            }
            1.. => {
                buf.grow(result.unsigned_abs() as usize);
                Ok(buf)
            }
            error => {
                self.common.memory.give(buf);
                Err(errno::from_raw(error))
            }
        };
        self.common.ready(id, Done::Received(received));
    }

    fn complete_send(&mut self, socket: Socket, mut sending: Box<Sending>, result: i32) {
        match result {
            1.. => {
                sending.advance(result.unsigned_abs() as usize);
                match sending.is_done() {
                    true => self.sent(sending, Ok(())),
                    false => self.await_room(socket, sending),
                }
            }
            0 => self.sent(sending, Err(Error::Disconnected)),
            error if error == -libc::EINTR || error == -libc::EAGAIN => {
                self.await_room(socket, sending);
            }
            error => self.sent(sending, Err(errno::from_raw(error))),
        }
    }

    fn complete_read(
        &mut self,
        id: OpId,
        file: File,
        offset: u64,
        count: usize,
        mut buf: Buf,
        result: i32,
    ) {
        if result == -libc::EAGAIN {
            // The ring cannot do it.
            let work = Work::Read { file, offset, count, buf };
            return self.common.push(id, file, work);
        }
        let done = if result < 0 {
            self.common.memory.give(buf);
            Err(errno::from_raw(result))
        } else {
            buf.grow(result.unsigned_abs() as usize);
            Ok(buf)
        };
        self.common.ready(id, Done::Read(done));
    }
}

impl Slot {
    /// Returns whether its time is recorded.
    fn is_file_work(&self) -> bool {
        match self {
            Slot::Read { .. } | Slot::Write { .. } | Slot::Blocks { .. } | Slot::Sync { .. } => {
                true
            }
            Slot::Accept { .. }
            | Slot::Connect { .. }
            | Slot::Receive { .. }
            | Slot::Send { .. }
            | Slot::Room { .. }
            | Slot::Wake { .. }
            | Slot::Signal => false,
        }
    }

    /// Returns the size for [`Ring::push_bulk`], bytes.
    fn bytes(&self) -> usize {
        match self {
            Slot::Receive { into: Some(_), count, .. } => *count,
            Slot::Write { data, .. } => data.len(),
            Slot::Send { bytes, .. } => *bytes,
            Slot::Receive { into: None, .. }
            | Slot::Room { .. }
            | Slot::Read { .. }
            | Slot::Accept { .. }
            | Slot::Connect { .. }
            | Slot::Blocks { .. }
            | Slot::Sync { .. }
            | Slot::Wake { .. }
            | Slot::Signal => 0,
        }
    }

    /// Returns the operation if this transfers or syncs data of a file or volume.
    fn transfer(&self) -> Option<OpId> {
        match self {
            Slot::Read { id, .. }
            | Slot::Blocks { id, .. }
            | Slot::Write { id, .. }
            | Slot::Sync { id, .. } => Some(*id),
            Slot::Accept { .. }
            | Slot::Connect { .. }
            | Slot::Receive { .. }
            | Slot::Send { .. }
            | Slot::Room { .. }
            | Slot::Wake { .. }
            | Slot::Signal => None,
        }
    }

    /// Returns whether this is operation `wanted` and can be ended early.
    fn can_be_cancelled(&self, wanted: OpId) -> bool {
        match self {
            Slot::Accept { id, .. } | Slot::Connect { id, .. } | Slot::Receive { id, .. } => {
                *id == wanted
            }
            Slot::Read { id, .. } => *id == wanted,
            Slot::Blocks { id, block_transfer, .. } => block_transfer.is_read() && *id == wanted,
            Slot::Send { .. }
            | Slot::Room { .. }
            | Slot::Write { .. }
            | Slot::Sync { .. }
            | Slot::Wake { .. }
            | Slot::Signal => false,
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Entries not yet submitted refer to descriptors that are about to be closed.
        for name in self.ring.take_back_all() {
            key(name).map(|key| self.slots.try_remove(key));
        }
        self.common.hang_up_all();
        let deadline = self.common.clock.now() + FAREWELL;
        self.ring.push(&ring::cancel_all());
        while !self.slots.is_empty() && self.common.clock.now() < deadline {
            self.enter(false, None);
            self.ring.enter(1, Some(Duration::from_millis(10)));
            self.ring.take(&mut self.completions, EVENTS_MAX);
            for completion in self.completions.drain(..) {
                if let Some(key) = key(completion.user_data()) {
                    drop(self.slots.try_remove(key));
                }
            }
        }
        if !self.slots.is_empty() {
            // Operations that still hang (a read of a dead disk) keep their memory for ever.
            std::mem::forget(std::mem::take(&mut self.slots));
            self.buffer_ring.abandon();
        }
    }
}

/// Returns the name of a slot's operation in the ring.
fn name(key: usize, sequence: u32) -> u64 {
    assert!(key < 1 << 32, "half of a name is for the slot");
    assert!(sequence < 1 << 31, "no name is that of what is ignored");
    (u64::from(sequence) << 32) | key as u64
}

/// Returns the slot of a name; `None` if its completion is ignored.
fn key(name: u64) -> Option<usize> {
    (name != ring::IGNORED).then_some((name & 0xffff_ffff) as usize)
}

fn fd(number: u32) -> types::Fd {
    types::Fd(RawFd::try_from(number).unwrap_or(-1))
}
