//! The simulated world: the third reactor.
//!
//! Time is virtual: it jumps to the next event. All events are in one queue, ordered by time, and
//! every choice is drawn from one seeded generator, so the same seed gives the same run to the
//! byte. A disk operation takes effect at one moment between its submission and its completion.
//!
//! The world is strict with the node: using a closed file, closing a file in use, two concurrent
//! sends on a connection and the like panic, and so does a deadlock. Injected errors are recorded,
//! so that checks can tell them from wrong ones.

mod faulty;
mod net;
mod volume;

pub use net::Link;
pub use net::hosts::{Host, brought, host_of, name_op, own_op};

use crate::client::{Client, Io};
use crate::disk::Disk;
use crate::event_queue::{EventQueue, Key};
use crate::params::Params;
use crate::trace::{Show, Trace, hash};
use base::op::{Address, Done, Event, File, Listener, Op, OpId, Socket};
use base::rng::Rng;
use base::{Error, Instant, Reactor, Stat, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Wall-clock time at the beginning of a run.
pub const WALL: Time = Time { secs: 1_800_000_000, nanos: 0 };
/// Maximum duration of a run, virtual time.
const TIME_MAX: Duration = Duration::from_secs(4 * 3600);
/// Maximum number of consecutive calls of a node for an expired deadline.
const SPINS_MAX: u32 = 10_000;
/// Maximum number of events in one turn.
const EVENTS_MAX: usize = 64;

/// A scheduled event.
#[derive(Debug)]
enum ScheduledEvent {
    /// A disk operation takes effect.
    Apply(OpId),
    /// An operation completes.
    Complete(Event),
    /// Bytes reach the node's host.
    Arrive(Socket, Vec<u8>),
    /// The client's end of stream reaches the node's host.
    Fin(Socket),
    /// A reset reaches it.
    Reset(Socket),
    /// A receive may complete.
    Pump(Socket),
    /// A listener may accept.
    Accept(Listener),
    /// Bytes reach the client.
    Deliver(Socket, Vec<u8>),
    /// The end of the stream reaches the client.
    Over(Socket),
    /// The client reads again.
    Unstall(Socket),
    /// The client's connection was refused.
    Refused(usize),
    /// A connect to a listener of this world arrives.
    Knock(OpId, Address),
    /// A client's requested wake-up.
    Wake(usize),
    /// A directory changes on the host.
    Churn,
    /// The server is asked to stop.
    Stop,
}

/// Counts for the summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Completions delivered to the node.
    pub events: u64,
    /// Requests whose replies were checked.
    pub requests: u64,
    /// Faults injected.
    pub faults: u64,
    /// Requests refused by quotas.
    pub refusals: u64,
    /// Number of times that the usage of all quotas was compared.
    pub audits: u64,
    /// Growths of a volume with a reply.
    pub growths: u64,
    /// Power failures.
    pub failures: u64,
    /// Number of checks that found a member of a service marked as silent by another one.
    pub silences: u64,
    /// Final sums of counters with too many possible values, which were held to bounds only.
    pub bounded_sums: u64,
    /// Final replies that were compared with the replay of the operations before them.
    pub replayed: u64,
    /// Bytes between clients and node.
    pub bytes: u64,
}

/// A disk operation in flight.
#[derive(Debug)]
struct Pending {
    op: Op,
    /// Time of its effect; `None` afterwards.
    key: Option<Key>,
    /// Entry of a conditional change at its beginning.
    found: Option<Option<Stat>>,
}

/// The world without its clients.
#[derive(Debug)]
pub struct Environment {
    now: Instant,
    pub(crate) rng: Rng,
    /// Parameters of the run.
    pub params: Params,
    /// The disk.
    pub disk: Disk,
    /// The trace.
    pub trace: Trace,
    /// Counts for the summary.
    pub totals: Totals,
    queue: EventQueue<ScheduledEvent>,
    pending: BTreeMap<OpId, Pending>,
    /// Number of operations in flight on each file.
    using: BTreeMap<File, u32>,
    net: net::Net,
    volumes: volume::Volumes,
    /// Size that a volume must have at the end, blocks, if a client knows it.
    pub(crate) expected_blocks: Option<u64>,
    /// Arrival time of the last message of each pair of nodes.
    node_messages: BTreeMap<(Host, Host), Instant>,
    /// Injected errors, with their times.
    injected: Vec<(Instant, Error)>,
    /// Completed bytes of each partly failed write, with their times.
    torn: Vec<(Instant, usize)>,
    churn: Option<Churn>,
    is_stopped: bool,
    /// Delay from the end of the last client to the request to stop.
    pub(crate) stop_delay: Duration,
    /// Number of consecutive calls of the node for an already expired deadline without any
    /// operation.
    spins: u32,
}

/// A directory that changes on the host all the time.
#[derive(Debug)]
struct Churn {
    dir: u64,
    next: u64,
    present: Vec<String>,
}

/// The simulated world with its clients.
#[derive(Debug)]
pub struct World {
    /// Everything but the clients.
    pub env: Environment,
    clients: Vec<Option<Box<dyn Client>>>,
}

impl World {
    /// Returns a world with these parameters, an empty disk and no clients.
    pub fn new(params: Params, show: Show) -> World {
        let rng = base::rng::seeded(params.seed ^ 0x5eed);
        let env = Environment {
            now: Instant(1_000_000),
            rng,
            disk: Disk::new(WALL),
            trace: Trace::new(show),
            totals: Totals::default(),
            queue: EventQueue::default(),
            pending: BTreeMap::new(),
            using: BTreeMap::new(),
            net: net::Net::default(),
            volumes: volume::Volumes::default(),
            expected_blocks: None,
            node_messages: BTreeMap::new(),
            injected: Vec::new(),
            torn: Vec::new(),
            churn: None,
            is_stopped: false,
            stop_delay: Duration::ZERO,
            spins: 0,
            params,
        };
        World { env, clients: Vec::new() }
    }

    /// Opens a listener.
    pub fn listen(&mut self) -> Listener {
        self.env.net.listen()
    }

    /// Adds a client; it is woken soon.
    pub fn add(&mut self, client: Box<dyn Client>) {
        self.clients.push(Some(client));
        let index = self.clients.len() - 1;
        self.env.net.clients.push(None);
        let delay = self.env.rng.u64(..100_000_000);
        self.env.after(Duration::from_nanos(delay), ScheduledEvent::Wake(index));
    }

    /// Returns whether every client is done.
    pub fn is_done(&self) -> bool {
        self.clients.iter().flatten().all(|client| client.is_done())
    }

    /// Asks the node to stop.
    pub fn stop(&mut self) {
        if !self.env.is_stopped {
            self.env.is_stopped = true;
            self.env.after(self.env.stop_delay, ScheduledEvent::Stop);
        }
    }

    /// Performs the final steps after all nodes have ended: clients settle their outstanding
    /// requests. `roots` are the roots of the served trees.
    ///
    /// # Panics
    /// If anything else is left open.
    pub fn finish(&mut self, roots: &[File]) {
        let left: Vec<Socket> = self.env.net.left_over();
        for socket in left {
            assert!(!self.env.net.is_accepted(socket), "{socket:?} is open at the end");
            self.over(socket);
            self.closed(socket);
        }
        while let Some((at, happening)) = self.env.queue.pop() {
            match happening {
                ScheduledEvent::Over(socket) => {
                    self.env.now = self.env.now.max(at);
                    self.over(socket);
                }
                ScheduledEvent::Deliver(socket, bytes) => self.deliver(socket, bytes),
                refused @ ScheduledEvent::Refused(_) => self.happen(refused, &mut Vec::new()),
                ScheduledEvent::Apply(_) | ScheduledEvent::Complete(_) => {
                    panic!("in flight at the end: {happening:?}")
                }
                _ => {}
            }
        }
        assert!(roots.iter().all(|root| self.env.disk.is_open(*root)), "a root was closed");
        for socket in self.env.net.unreported() {
            self.over(socket);
        }
        let open = self.env.disk.open_count();
        assert_eq!(open, roots.len(), "files were left open, besides the roots");
        for index in 0..self.clients.len() {
            self.with(index, |client, io| client.finish(io));
        }
    }

    fn with(&mut self, index: usize, call: impl FnOnce(&mut dyn Client, &mut Io<'_>)) {
        let mut client = self.clients[index].take().expect("clients do not call each other");
        call(&mut *client, &mut Io { env: &mut self.env, index });
        self.clients[index] = Some(client);
    }

    fn happen(&mut self, happening: ScheduledEvent, events: &mut Vec<Event>) {
        let Some(happening) = self.env.pass(happening) else { return };
        match happening {
            ScheduledEvent::Apply(id) => self.env.apply(id),
            ScheduledEvent::Complete(event) => self.env.complete(event, events),
            ScheduledEvent::Arrive(socket, bytes) => {
                if self.env.arrive(socket, &bytes) {
                    self.over(socket);
                }
            }
            ScheduledEvent::Fin(socket) => self.env.arrive_end(socket, false),
            ScheduledEvent::Reset(socket) => self.env.arrive_end(socket, true),
            ScheduledEvent::Pump(socket) => self.env.pump(socket, events),
            ScheduledEvent::Accept(listener) => self.env.try_accept(listener),
            ScheduledEvent::Deliver(socket, bytes) => self.deliver(socket, bytes),
            ScheduledEvent::Unstall(socket) => {
                let bytes = self.env.unstall(socket);
                self.deliver(socket, bytes);
                if self.env.net.is_over_due(socket) {
                    self.over(socket);
                }
            }
            ScheduledEvent::Over(socket) => {
                if self.env.net.may_tell_over(socket) {
                    self.over(socket);
                }
            }
            ScheduledEvent::Refused(index) => {
                self.with(index, |client, io| {
                    client.ended(io);
                    client.closed(io);
                });
            }
            ScheduledEvent::Wake(index) => {
                self.with(index, |client, io| client.wake(io));
                if self.is_done() {
                    self.stop();
                }
            }
            ScheduledEvent::Knock(id, to) => self.env.knock(id, &to),
            ScheduledEvent::Churn => self.env.churn(),
            ScheduledEvent::Stop => events.push(Event { id: OpId::UNREQUESTED, done: Done::Stop }),
        }
    }

    fn deliver(&mut self, socket: Socket, bytes: Vec<u8>) {
        if self.env.take_over(socket, &bytes).is_some() {
            return;
        }
        if let Some((index, bytes)) = self.env.take_delivery(socket, bytes) {
            self.with(index, |client, io| client.received(io, &bytes));
        }
    }

    /// Notifies the client of the end of the connection.
    fn over(&mut self, socket: Socket) {
        if self.env.notify_peer(socket) {
            return;
        }
        if let Some(index) = self.env.net.notify_over(socket) {
            self.env.trace.line(format_args!("{} client {index}: over", self.env.now.0));
            self.with(index, |client, io| client.ended(io));
        }
        if let Some(index) = self.env.net.forget(socket) {
            self.with(index, |client, io| client.closed(io));
        }
    }

    /// Handles the node's close of a socket: no request of the client is in flight any more.
    fn closed(&mut self, socket: Socket) {
        if let Some(index) = self.env.net.close(socket) {
            self.with(index, |client, io| client.closed(io));
        }
    }
}

impl Environment {
    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the wall-clock time, as used for files.
    pub fn date(&self) -> Time {
        let nanos = self.now.0;
        let secs = WALL.secs + (nanos / 1_000_000_000).cast_signed();
        Time { secs, nanos: (nanos % 1_000_000_000) as u32 }
    }

    /// Returns whether an error (this one, if given) was injected since some time.
    pub fn was_injected(&self, since: Instant, error: Option<Error>) -> bool {
        let first = self.injected.partition_point(|(at, _)| *at < since);
        self.injected[first..].iter().any(|(_, injected)| error.is_none_or(|e| e == *injected))
    }

    /// Returns the completed bytes of each write that has partly failed since some time.
    pub fn torn_since(&self, since: Instant) -> Vec<usize> {
        let first = self.torn.partition_point(|(at, _)| *at < since);
        self.torn[first..].iter().map(|(_, part)| *part).collect()
    }

    /// Returns whether the node was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Begins to change a directory all the time, and to truncate and extend the file `tide` in it.
    pub fn begin_churn(&mut self, dir: u64) {
        self.churn = Some(Churn { dir, next: 0, present: Vec::new() });
        self.after(Duration::from_millis(1), ScheduledEvent::Churn);
    }

    fn churn(&mut self) {
        let Some(mut churn) = self.churn.take() else { return };
        let now = self.date();
        if churn.present.len() < 40 && self.rng.bool() {
            let name = format!("x{}", churn.next);
            churn.next += 1;
            self.disk.plant(now, churn.dir, name.as_bytes(), base::Kind::File, b"x");
            churn.present.push(name);
        } else if !churn.present.is_empty() {
            let index = self.rng.usize(..churn.present.len());
            let name = churn.present.swap_remove(index);
            self.disk.uproot(now, churn.dir, name.as_bytes());
        }
        self.churn = Some(churn);
        let pause = self.rng.u64(1..40);
        self.after(Duration::from_millis(pause), ScheduledEvent::Churn);
    }

    /// Advances to the node's deadline, counting calls without any other cause.
    fn reach(&mut self, deadline: Instant) {
        self.spins = if deadline > self.now { 0 } else { self.spins + 1 };
        assert!(self.spins < SPINS_MAX, "the node's deadline stays in the past: it spins");
        self.now = self.now.max(deadline);
    }

    fn after(&mut self, span: Duration, happening: ScheduledEvent) -> Key {
        self.at(self.now + span, happening)
    }

    fn at(&mut self, at: Instant, happening: ScheduledEvent) -> Key {
        self.queue.schedule(at, happening)
    }

    fn chance(&mut self, of_100_000: u32) -> bool {
        of_100_000 > 0 && self.rng.u32(..100_000) < of_100_000
    }

    /// Draws the latency of the disk.
    fn disk_span(&mut self) -> Duration {
        if self.chance(self.params.faults.hang) {
            self.totals.faults += 1;
            return Duration::from_millis(self.rng.u64(1000..20_000));
        }
        let (usual, rare) = self.params.disk_us;
        let most = if self.rng.u8(..8) == 0 { rare } else { usual };
        Duration::from_nanos(self.rng.u64(500..=most * 1000 + 1000))
    }

    /// Draws the latency of the network.
    fn net_span(&mut self) -> Duration {
        Duration::from_nanos(self.rng.u64(500..=self.params.net_us * 1000 + 1000))
    }

    /// Begins a disk operation: it takes effect some time later, and completes after that.
    fn begin(&mut self, id: OpId, op: Op) {
        for file in files(&op) {
            let open = self.disk.is_open(file) || self.volumes.is_open(file);
            assert!(open, "{file:?} is not open: {op:?}");
            *self.using.entry(file).or_insert(0) += 1;
        }
        self.expect_fit(&op);
        let span = self.disk_span();
        let key = Some(self.after(span, ScheduledEvent::Apply(id)));
        let found = match &op {
            Op::Path { op, .. } => self.disk.precheck(op),
            _ => None,
        };
        let before = self.pending.insert(id, Pending { op, key, found });
        assert!(before.is_none(), "{id:?} is in flight already: {before:?}");
    }

    /// Checks that every operation has a file of the right kind.
    fn expect_fit(&self, op: &Op) {
        volume::expect_well_formed(op);
        if let Op::Path { within: None, op, .. } = op {
            assert!(op.files().next().is_none(), "may leave the served directory: {op:?}");
        }
        let fit = match op {
            Op::Read { file, .. } | Op::Write { file, .. } => self.disk.is_more_than_handle(*file),
            Op::Sync { file, .. } => {
                self.disk.is_more_than_handle(*file) || self.volumes.is_open(*file)
            }
            Op::ReadBlocks { file, .. } | Op::WriteBlocks { file, .. } => {
                self.volumes.is_open(*file)
            }
            _ => true,
        };
        assert!(fit, "a mere handle, or a volume's file and not: {op:?}");
    }

    fn apply(&mut self, id: OpId) {
        let mut pending = self.pending.remove(&id).expect("only operations in flight are applied");
        pending.key = None;
        let done = self.take_effect(&pending.op, pending.found.take());
        self.pending.insert(id, pending);
        self.complete_later(id, done);
    }

    fn complete_later(&mut self, id: OpId, done: Done) {
        let span = Duration::from_nanos(self.rng.u64(..2000));
        self.after(span, ScheduledEvent::Complete(Event { id, done }));
    }

    fn complete(&mut self, event: Event, events: &mut Vec<Event>) {
        if let Some(pending) = self.pending.remove(&event.id) {
            self.stop_using(&pending.op);
        }
        self.give(event, events);
    }

    fn stop_using(&mut self, op: &Op) {
        for file in files(op) {
            let count = self.using.get_mut(&file).expect("counted when it began");
            *count -= 1;
            if *count == 0 {
                self.using.remove(&file);
            }
        }
    }

    fn give(&mut self, event: Event, events: &mut Vec<Event>) {
        let Event { id, done } = &event;
        let sum = match done {
            Done::Received(Ok(buf)) | Done::Read(Ok(buf)) => hash(0, buf),
            Done::Blocks(Ok(blocks)) => blocks.iter().fold(0, |sum, block| hash(sum, block)),
            Done::Envelope(envelope) => hash(0, node::label(envelope).as_bytes()),
            _ => 0,
        };
        self.trace.line(format_args!("{} <- {:x} {done:?} {sum:x}", self.now.0, id.0));
        self.totals.events += 1;
        events.push(event);
    }

    /// Cancels an operation, unless it is too late.
    fn cancel(&mut self, id: OpId) {
        if self.net.cancel_accept(id) {
            return self.complete_later(id, Done::Accepted(Err(Error::Cancelled)));
        }
        if self.net.cancel_knock(id) {
            return self.complete_later(id, Done::Connected(Err(Error::Cancelled)));
        }
        let lucky = self.rng.u8(..5) > 0;
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let Some(key) = pending.key.filter(|_| lucky) else { return };
        pending.key = None;
        self.queue.remove(key);
        let error = Error::Cancelled;
        let done = match &pending.op {
            Op::Read { .. } => Done::Read(Err(error)),
            Op::Write { .. } => Done::Written(Err(error)),
            Op::ReadBlocks { .. } => Done::Blocks(Err(error)),
            Op::WriteBlocks { .. } => Done::Stored(Err(error)),
            Op::Sync { .. } => Done::Synced(Err(error)),
            _ => Done::Path(Err(error)),
        };
        self.complete_later(id, done);
    }

    fn close_file(&mut self, file: File) {
        let using = self.using.get(&file).copied().unwrap_or(0);
        assert_eq!(using, 0, "{file:?} is closed while operations on it are in flight");
        if !self.volumes.close(file) {
            self.disk.close(file);
        }
    }
}

/// Returns the files that an operation uses.
fn files(op: &Op) -> Vec<File> {
    match op {
        Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::Sync { file, .. }
        | Op::ReadBlocks { file, .. }
        | Op::WriteBlocks { file, .. } => vec![*file],
        Op::Path { op, .. } => op.files().collect(),
        _ => Vec::new(),
    }
}

impl Reactor for World {
    fn now(&self) -> Instant {
        self.env.now
    }

    fn wall(&self) -> Time {
        self.env.date()
    }

    /// Nothing takes time here except waiting.
    fn spent(&self) -> Duration {
        Duration::ZERO
    }

    fn submit(&mut self, op: Op) {
        let env = &mut self.env;
        env.spins = 0;
        let sum = match &op {
            Op::Send { data, .. } => data.iter().fold(0, |sum, buf| hash(sum, buf)),
            Op::Write { data, .. } => hash(0, data),
            Op::WriteBlocks { blocks, .. } => blocks.iter().fold(0, |sum, block| hash(sum, block)),
            _ => 0,
        };
        env.trace.line(format_args!("{} -> {op:?} {sum:x}", env.now.0));
        match op {
            Op::Accept { id, listener, max } => env.accept(id, listener, max),
            Op::CloseListener { listener } => env.close_listener(listener),
            Op::Connect { id, to } => env.connect_out(id, to),
            Op::Post { to, envelope } => unreachable!("one node of a process: {to} {envelope:?}"),
            Op::Receive { id, socket, into } => env.receive(id, socket, into),
            Op::Send { id, socket, data } => env.send(id, socket, data),
            Op::Finish { socket } => env.hang_up(socket, false),
            Op::Hangup { socket } => env.hang_up(socket, true),
            Op::CloseSocket { socket } => {
                env.close_socket(socket);
                self.closed(socket);
            }
            Op::CloseFile { file, .. } => env.close_file(file),
            Op::Cancel { id } => env.cancel(id),
            op @ (Op::Read { id, .. }
            | Op::Write { id, .. }
            | Op::Sync { id, .. }
            | Op::ReadBlocks { id, .. }
            | Op::WriteBlocks { id, .. }
            | Op::Path { id, .. }) => env.begin(id, op),
        }
    }

    fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) {
        let turn = self.env.rng.u64(..=self.env.params.turn_us * 1000);
        self.env.now = self.env.now + Duration::from_nanos(turn);
        assert!(self.env.now.0 < TIME_MAX.as_nanos() as u64, "the run does not come to an end");
        let before = events.len();
        loop {
            let next = self.env.queue.next_time();
            let got = events.len() - before;
            let now = self.env.now;
            match (next, deadline) {
                (_, _) if got >= EVENTS_MAX => return,
                (Some(at), _) if got > 0 && at > now => return,
                (None, _) if got > 0 => return,
                (Some(at), Some(deadline)) if at > deadline.max(now) => {
                    return self.env.reach(deadline);
                }
                (None, Some(deadline)) => return self.env.reach(deadline),
                (None, None) => {
                    assert!(self.is_done(), "a standstill: nothing is in flight");
                    self.stop();
                    continue;
                }
                (Some(at), _) => self.env.now = now.max(at),
            }
            if let Some((_, happening)) = self.env.queue.pop() {
                self.happen(happening, events);
            }
        }
    }
}

impl AsMut<World> for World {
    fn as_mut(&mut self) -> &mut World {
        self
    }
}
