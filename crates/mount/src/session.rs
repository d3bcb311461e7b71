//! Session with the kernel: threads that read requests from `/dev/fuse`, perform them, and reply.

use crate::answer::{Answer, Body};
use crate::changes::{Absent, Changes, Mark, OTHER_TREES, Queue};
use crate::crew::{After, Crew, Turn};
use crate::errno::{self, Errno};
use crate::flights::{Flight, Flights, GRACE, Measure};
use crate::handles::Handles;
use crate::link::{Failure, Fid, Link};
use crate::linux::O_APPEND;
use crate::nodes::Nodes;
use crate::options::{Settings, Watch};
use crate::owners::Owners;
use crate::prefetch::Prefetch;
use crate::spare::Spare;
use crate::{Error, lock};
use client::Interrupt;
use rustix::fd::OwnedFd;
use rustix::io::Errno as Raw;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;
use wire::fuse::{self, Header, OUT_HEADER_SIZE, Request};
use wire::ninep::Qid;

/// Maximum number of fids of files that no program has open.
const FIDS_MAX: usize = 16_384;

/// Bytes of a request beside its data.
const MARGIN: usize = 4096;

/// Stack of a thread.
const STACK: usize = 512 << 10;

/// Caller of a request.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    /// User that attaches at the server.
    pub(crate) user: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) interrupt: &'a Interrupt,
}

/// State of a mount.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) device: OwnedFd,
    pub(crate) link: Arc<Link>,
    pub(crate) settings: Settings,
    pub(crate) nodes: Mutex<Nodes<Arc<Fid>>>,
    pub(crate) handles: Handles,
    pub(crate) owners: Owners,
    /// Maximum data of a read or write, in bytes.
    pub(crate) io_max: u32,
    /// Connection whose predecessors' fids were dropped.
    pub(crate) current: AtomicU64,
    /// Whether the kernel can look a name up again without dropping it (Linux 6.2).
    pub(crate) expires_names: AtomicBool,
    pub(crate) flights: Flights,
    pub(crate) changes: Changes,
    pub(crate) outdated: Queue,
    pub(crate) absent: Absent,
    pub(crate) prefetch: Prefetch,
    /// Open fid for the next stream.
    pub(crate) spare: Mutex<Option<Spare>>,
    /// Itself, for threads that it starts.
    me: Weak<Session>,
    crew: Crew,
    events: Mutex<Sender<Event>>,
}

/// Event of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The kernel has begun the session.
    Ready,
    /// The kernel's version is not supported.
    Refused(u32, u32),
    /// The file system is unmounted.
    Over,
}

/// Reports whether a file that does not exist can only be the one that the request is about.
fn is_about_node(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::GetAttr { .. }
            | Request::SetAttr(_)
            | Request::ReadLink
            | Request::Open { .. }
            | Request::OpenDir { .. }
            | Request::Access { .. }
            | Request::StatFs
    )
}

impl Session {
    /// Creates a session.
    pub(crate) fn new(
        device: OwnedFd,
        link: Arc<Link>,
        settings: Settings,
        (root, io_max): (Qid, u32),
    ) -> (Arc<Session>, Receiver<Event>) {
        let (sender, events) = channel();
        let prefetch = Prefetch::new(settings.attr_timeout);
        let session = Arc::new_cyclic(|me| Session {
            device,
            link,
            settings,
            nodes: Mutex::new(Nodes::new(root, FIDS_MAX)),
            handles: Handles::default(),
            owners: Owners::default(),
            io_max,
            current: AtomicU64::new(1),
            expires_names: AtomicBool::new(false),
            flights: Flights::default(),
            changes: Changes::default(),
            outdated: Queue::default(),
            absent: Absent::default(),
            prefetch,
            spare: Mutex::default(),
            me: me.clone(),
            crew: Crew::default(),
            events: Mutex::new(sender),
        });
        (session, events)
    }

    /// Starts the threads.
    pub(crate) fn start(self: &Arc<Session>) -> Result<(), Error> {
        let watch = self.clone();
        self.spawn("interrupts", move || watch.watch())?;
        let ping = self.clone();
        self.spawn("ping", move || ping.ping())?;
        let invalidation = self.clone();
        self.spawn("invalidate", move || invalidation.invalidate_on())?;
        if self.settings.watch != Watch::Never {
            let [changes, silence] = [self.clone(), self.clone()];
            self.spawn("changes", move || changes.follow_changes())?;
            self.spawn("silence", move || silence.expect_changes())?;
            let opens = self.clone();
            self.spawn("opens", move || opens.open_lasting())?;
        }
        self.read_on()
    }

    /// Starts a thread with this session.
    pub(crate) fn spawn_with(
        &self,
        name: &str,
        work: impl FnOnce(&Arc<Session>) + Send + 'static,
    ) -> Result<(), Error> {
        let session = self.me.upgrade().expect("its caller has it");
        self.spawn(name, move || work(&session))
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let builder = std::thread::Builder::new().name(name.into()).stack_size(STACK);
        builder.spawn(work).map(|_| ()).map_err(Error::Thread)
    }

    /// Starts a thread that reads requests.
    fn read_on(self: &Arc<Session>) -> Result<(), Error> {
        let session = self.clone();
        self.crew.join();
        self.spawn("requests", move || session.work())
    }

    /// Reads and performs requests until the session is over, or enough other threads do.
    fn work(self: &Arc<Session>) {
        let mut buffer = vec![0; self.io_max as usize + MARGIN];
        loop {
            let message = match rustix::io::read(&self.device, &mut buffer[..]) {
                Ok(size) => &buffer[..size],
                // The request was interrupted before it was read, or there is none.
                Err(Raw::NOENT | Raw::INTR | Raw::AGAIN) => continue,
                Err(_) => return self.over(),
            };
            if self.take(message) == After::Exit {
                return;
            }
        }
    }

    /// Performs a request, or leaves it to others.
    fn take(self: &Arc<Session>, message: &[u8]) -> After {
        let Ok((header, request)) = fuse::decode(message) else {
            // A message without a header has no reply.
            if let Some(unique) = message.get(8..16) {
                let unique = u64::from_ne_bytes(unique.try_into().expect("eight bytes"));
                self.refuse(unique, errno::EINVAL);
            }
            return After::Read;
        };
        if self.notes(&header, &request) {
            return After::Read;
        }
        if let Some(refusal) = self.waits(&header, &request) {
            self.serve_beside(&header, message, refusal);
            return After::Read;
        }
        match self.crew.begin() {
            Turn::Queue => {
                self.crew.queue(header.unique, message.to_vec());
                return After::Read;
            }
            // Without a new thread this one reads again after the request.
            Turn::SpawnAndServe => drop(self.read_on()),
            Turn::Serve => {}
        }
        self.serve(&header, &request);
        loop {
            match self.crew.end() {
                After::Serve(queued) => {
                    let decoded = fuse::decode(&queued).expect("it was decoded before");
                    self.serve(&decoded.0, &decoded.1);
                }
                after @ (After::Read | After::Exit) => return after,
            }
        }
    }

    /// Returns the error if too many requests wait, of one that may wait for other clients.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the server answers all others soon")]
    fn waits(&self, header: &Header, request: &Request<'_>) -> Option<Errno> {
        match request {
            Request::SetLock { wait: true, .. } => Some(errno::ENOLCK),
            // Only files of services have contents without a size.
            Request::Read { .. } => {
                let nodes = lock(&self.nodes);
                let is_other = nodes.file(header.node)? & OTHER_TREES != 0;
                (is_other && nodes.shown(header.node)?.size == 0).then_some(errno::EAGAIN)
            }
            _other => None,
        }
    }

    /// Performs a request in a thread of its own.
    fn serve_beside(self: &Arc<Session>, header: &Header, message: &[u8], refusal: Errno) {
        let (unique, user) = (header.unique, header.uid);
        if !self.crew.begin_waiting(user) {
            return self.refuse(unique, refusal);
        }
        let (session, message) = (self.clone(), message.to_vec());
        let started = self.spawn("waits", move || {
            let (header, request) = fuse::decode(&message).expect("it was decoded before");
            session.serve(&header, &request);
            session.crew.end_waiting(user);
        });
        if started.is_err() {
            self.crew.end_waiting(user);
            self.refuse(unique, refusal);
        }
    }

    /// Handles messages without a reply. Returns whether it was one.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all others have a reply")]
    fn notes(&self, header: &Header, request: &Request<'_>) -> bool {
        match request {
            Request::Forget { lookups } => lock(&self.nodes).forget(header.node, *lookups),
            Request::BatchForget { nodes } => {
                let mut table = lock(&self.nodes);
                nodes.iter().for_each(|(id, lookups)| table.forget(*id, *lookups));
            }
            Request::Interrupt { unique } => self.interrupted(header.unique, *unique),
            _other => return false,
        }
        true
    }

    #[allow(clippy::disallowed_methods, reason = "interrupts have a deadline")]
    fn interrupted(&self, own: u64, unique: u64) {
        if self.crew.remove(unique) {
            self.refuse(unique, errno::EINTR);
        } else if !self.flights.interrupt(unique, Instant::now(), GRACE) {
            // Another thread has read the request but not begun it, or it is over: the kernel
            // sends the interrupt again as long as there is the request.
            self.refuse(own, errno::EAGAIN);
        }
    }

    /// Takes measures against interrupted requests.
    fn watch(&self) {
        while let Some(due) = self.flights.wait() {
            for (unique, flight, measure) in due {
                match measure {
                    Measure::Interrupt => {
                        self.link.interrupt(&flight.interrupt);
                        self.prefetch.wake();
                    }
                    Measure::Reply if flight.claim() => self.refuse(unique, errno::EINTR),
                    Measure::Reply => {}
                }
            }
        }
    }

    /// Ends the session.
    fn over(&self) {
        self.flights.close();
        self.link.close();
        self.outdated.close();
        self.prefetch.close();
        // The receiver may have ended already.
        let _ = lock(&self.events).send(Event::Over);
    }

    /// Performs a request and replies.
    fn serve(self: &Arc<Session>, header: &Header, request: &Request<'_>) {
        let flight = self.flights.begin(header.unique);
        let user = self.settings.user_of(header.uid);
        let (uid, gid, pid) = (header.uid, header.gid, header.pid);
        let caller = Caller { user, uid, gid, pid, interrupt: &flight.interrupt };
        let mark = self.changes.mark();
        let changes = self.changes_of(header.node, request);
        let answer = if let Request::Init { major, minor, max_readahead, flags } = request {
            self.init((*major, *minor), *max_readahead, *flags)
        } else {
            self.repeat(&caller, header.node, request)
        };
        changes.iter().for_each(|change| self.prefetch.changed(change));
        let is_init = matches!(request, Request::Init { .. }) && answer.is_ok();
        if !self.reply((header, request), &flight, mark, answer) {
            self.doubt(header.node, request);
        }
        self.expire_displaced();
        self.flights.end(header.unique);
        if is_init {
            let _ = lock(&self.events).send(Event::Ready);
        }
    }

    /// Performs a request, again after a lost connection.
    fn repeat(
        self: &Arc<Session>,
        caller: &Caller<'_>,
        node: u64,
        request: &Request<'_>,
    ) -> Result<Answer, Errno> {
        let mut may_be_outdated = is_about_node(request);
        let mut may_hold_fewer = true;
        loop {
            match self.perform(caller, node, request) {
                Ok(answer) => return Ok(answer),
                // A fid may have lost its file by a rename, at servers that know files by path.
                Err(Failure::Errno(errno::ENOENT)) if may_be_outdated => {
                    lock(&self.nodes).drop_fid(node, caller.user);
                    may_be_outdated = false;
                }
                // The server has too many open files of this client.
                Err(Failure::Errno(errno::EMFILE | errno::ENFILE))
                    if may_hold_fewer && self.shed_fids() =>
                {
                    may_hold_fewer = false;
                }
                Err(Failure::Errno(errno)) => return Err(errno),
                Err(Failure::Interrupted) => return Err(errno::EINTR),
                Err(Failure::Lost(number)) => {
                    self.link.lost(number);
                    if self.appends(request) {
                        return Err(errno::EIO);
                    }
                }
            }
        }
    }

    /// Clunks half of the fids of files that nobody has open. Returns whether there were any.
    fn shed_fids(&self) -> bool {
        let fids = lock(&self.nodes).shed();
        let fids: Vec<Fid> = fids.into_iter().filter_map(Arc::into_inner).collect();
        !fids.is_empty() && crate::link::clunk(fids).is_ok()
    }

    /// Reports whether a repetition of the request could write data twice.
    fn appends(&self, request: &Request<'_>) -> bool {
        let Request::Write { handle, .. } = request else { return false };
        self.handles.get(*handle).is_ok_and(|handle| handle.flags & O_APPEND != 0)
    }

    /// Sends a reply, unless another thread has. Returns whether the kernel knows the outcome.
    fn reply(
        &self,
        (header, request): (&Header, &Request<'_>),
        flight: &Flight,
        mark: Mark,
        answer: Result<Answer, Errno>,
    ) -> bool {
        let (is_first, unique) = (flight.claim(), header.unique);
        match answer {
            Ok(answer) => {
                let delivered = is_first && self.send(unique, &answer.body);
                match delivered {
                    true => self.catch_up(mark, header.node, &answer),
                    false => self.undo(&answer),
                }
                delivered
            }
            Err(errno) => {
                match is_first {
                    true => self.refuse(unique, errno),
                    false if errno == errno::EIO => self.unreported(header.pid, request),
                    false => {}
                }
                false
            }
        }
    }

    /// Lets the next fsync report what one that was interrupted has not.
    fn unreported(&self, thread: u32, request: &Request<'_>) {
        let (Request::FSync { handle, .. } | Request::FSyncDir { handle, .. }) = request else {
            return;
        };
        let Ok(handle) = self.handles.get(*handle) else { return };
        handle.losses.store(0, Ordering::SeqCst);
        if let Some(durability) = lock(&self.nodes).durability(handle.node) {
            durability.unreported(thread);
        }
    }

    /// Returns what the kernel does not know that it has.
    fn undo(&self, answer: &Answer) {
        let mut nodes = lock(&self.nodes);
        answer.entered.iter().for_each(|node| nodes.forget(*node, 1));
        drop(nodes);
        if let Some(handle) = answer.handle {
            self.handles.remove(handle);
        }
    }

    /// Sends an error reply.
    fn refuse(&self, unique: u64, errno: Errno) {
        // The kernel has no use for it after an abort.
        let _ = rustix::io::write(&self.device, &fuse::error(unique, errno));
    }

    /// Sends a reply. Returns whether the kernel has accepted it.
    fn send(&self, unique: u64, body: &Body) -> bool {
        let Ok(parts) = body.parts() else {
            self.refuse(unique, errno::EIO);
            return false;
        };
        let size = parts.iter().map(|part| part.len()).sum();
        let header: [u8; OUT_HEADER_SIZE] = fuse::header(unique, size);
        let mut slices = vec![IoSlice::new(&header)];
        slices.extend(parts.into_iter().map(IoSlice::new));
        match rustix::io::writev(&self.device, &slices) {
            Ok(_) => true,
            // The request was aborted.
            Err(Raw::NOENT | Raw::NODEV) => false,
            Err(_) => {
                self.refuse(unique, errno::EIO);
                false
            }
        }
    }

    /// Notifies the kernel that cached attributes of a node are outdated, and with `data` its
    /// pages. Attributes need no locks; pages wait for requests that use them.
    pub(crate) fn invalidate(&self, node: u64, data: bool) {
        // An error means that the kernel does not know the node any more.
        let _ = rustix::io::write(&self.device, &fuse::inval_inode(node, data));
    }

    /// Reports a version of the kernel that is not supported.
    pub(crate) fn refuse_version(&self, version: (u32, u32)) {
        let _ = lock(&self.events).send(Event::Refused(version.0, version.1));
    }
}
