//! Performs operations on the real world: with io_uring, or with epoll and threads.
//!
//! A [`World`] is the [`base::Reactor`] that the server runs on. Both forms behave the same; the
//! tests are written once and run on both. This crate does not know what its operations mean.
//!
//! A world belongs to the thread that makes it: make it on the thread that will run the node.
//! Before that, `main` calls [`hold_signals`], [`raise_open_files`], and `umask(0)` (the modes
//! that clients ask for are meant as they are; the umask is the process's, so it is not this
//! crate's to change).
//!
//! The thread may keep the file-system identity of the user that it last acted for. Code of one's
//! own that touches files on this thread calls [`World::be_server`] first.
//!
//! What every form promises beyond [`base::op`]:
//!
//! - A receive into a buffer of the reactor's gives an empty buffer at the end of the stream; one
//!   into the caller's own buffer gives `Disconnected`, also if nothing was ever received.
//! - A read is short only at the end of the file. A read of blocks never is: it fails with `Io`.
//! - Blocks of one operation have one size, and lie at a multiple of it; else it is a panic.
//! - Numbers of files and sockets are descriptors. Closing what still has operations outstanding
//!   is a mistake that the kernel answers with errors, or with somebody else's data.
//! - The queue of the pool is as long as the node lets it be.

mod blocks;
mod clock;
mod common;
mod descriptor;
mod errno;
mod host;
mod identity;
mod job;
mod memory;
mod mounts;
mod path;
mod pool;
pub mod precise;
mod privileges;
mod probe;
mod scheduling;
mod sending;
mod signals;
mod sockets;
mod spin;
mod threads;
mod uring;
mod volume;

use base::op::{Event, File, Listener, Op, Span};
use base::{Instant, Reactor, Time};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit};
use std::io;
use std::path::Path;
use std::time::Duration;

pub use errno::error_of;
pub use pool::{Mailbox, PoolStatistics};
pub use privileges::{
    become_user, check_list, clear_umask, fill_random, find_user, is_root, own_user,
    renounce_privileges,
};
pub use probe::probe;
pub use scheduling::{stand_back, take_short_slices};
pub use signals::{Signals, hold_signals, let_signals_through};
pub use sockets::Address;
pub use volume::VolumeFile;

/// Which interface of the kernel is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One io_uring.
    Uring,
    /// Epoll, and threads for what would wait.
    Threads,
}

/// What can be chosen about a world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most threads of the pool for local work; it does what no form can do without waiting. Each
    /// file system that may hang has up to a quarter as many, all together four times as many.
    pub threads_max: usize,
    /// How long a wait that follows a short one looks again before it sleeps; zero: never.
    pub spin: Duration,
    /// How long an operation may keep a thread before its file system is reported as unresponsive.
    pub unresponsive_after: Duration,
    /// Whether SIGINT and SIGTERM come to this world. Exactly one of a process should say so.
    pub signals: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            threads_max: 16,
            spin: Duration::from_micros(200),
            unresponsive_after: Duration::from_secs(10),
            signals: false,
        }
    }
}

/// What a world has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The pool.
    pub pool: PoolStatistics,
    /// Calls of `io_uring_enter` or `epoll_wait`.
    pub kernel_entries: u64,
    /// Path operations that were done without a thread of the pool.
    pub paths_inline: u64,
}

/// The real world, in one of two forms.
pub struct World {
    inner: Inner,
    /// A world stays on its thread: identities and the ring are bound to it.
    _thread: std::marker::PhantomData<*const ()>,
}

enum Inner {
    Uring(Box<uring::Uring>),
    Threads(Box<threads::Threads>),
}

impl World {
    /// Makes a world for the current thread.
    ///
    /// # Errors
    /// If the kernel refuses ([`probe()`] says why for io_uring), or `/proc` is not mounted.
    pub fn new(form: Form, config: &Config) -> io::Result<World> {
        let inner = match form {
            Form::Uring => Inner::Uring(Box::new(uring::Uring::new(config)?)),
            Form::Threads => Inner::Threads(Box::new(threads::Threads::new(config)?)),
        };
        Ok(World { inner, _thread: std::marker::PhantomData })
    }

    /// Which form this is.
    pub fn form(&self) -> Form {
        match &self.inner {
            Inner::Uring(_) => Form::Uring,
            Inner::Threads(_) => Form::Threads,
        }
    }

    fn common(&self) -> &common::Common {
        match &self.inner {
            Inner::Uring(uring) => &uring.common,
            Inner::Threads(threads) => &threads.common,
        }
    }

    /// Listens at an address, and gives the one that it became (with its port).
    ///
    /// A unix socket that nobody listens to any more is replaced. Its permissions follow the
    /// process's umask; who connects is told by the kernel ([`base::op::Peer::Local`]).
    ///
    /// # Errors
    /// Those of `bind(2)` and `listen(2)`; `AddrInUse` if somebody listens there.
    pub fn listen(&mut self, address: &Address) -> io::Result<(Listener, Address)> {
        self.be_server()?;
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.listen(address),
            Inner::Threads(threads) => {
                let (listener, bound) = threads.common.listen(address)?;
                threads.watch_listener(listener)?;
                Ok((listener, bound))
            }
        }
    }

    /// A copy of a listening socket, for the world of another thread.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn share_listener(&self, listener: Listener) -> io::Result<OwnedFd> {
        self.common().listening(listener).ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// Listens at a socket that another thread's world made; connections come to either.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn adopt_listener(&mut self, socket: OwnedFd) -> io::Result<Listener> {
        match &mut self.inner {
            Inner::Uring(uring) => Ok(uring.common.adopt_listener(socket)),
            Inner::Threads(threads) => {
                let listener = threads.common.adopt_listener(socket);
                threads.watch_listener(listener)?;
                Ok(listener)
            }
        }
    }

    /// Where other threads leave something for this world.
    pub fn mailbox(&self) -> Mailbox {
        self.common().pool.mailbox()
    }

    /// Tells where each node of this process takes what is left for it ([`base::op::Op::Post`]).
    pub fn set_mailboxes(&mut self, mailboxes: Vec<Mailbox>) {
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.set_mailboxes(mailboxes),
            Inner::Threads(threads) => threads.common.set_mailboxes(mailboxes),
        }
    }

    /// Gives the thread the process's own identity towards the file system.
    ///
    /// # Errors
    /// If the kernel refuses, which it does not unless capabilities were taken away meanwhile.
    pub fn be_server(&self) -> io::Result<()> {
        let result = self.common().host.own.be_server();
        result.map_err(|_| io::ErrorKind::PermissionDenied.into())
    }

    /// Opens a directory that will be served, as a handle.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open_root(&mut self, path: &Path) -> io::Result<File> {
        self.be_server()?;
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.open_root(path),
            Inner::Threads(threads) => threads.common.open_root(path),
        }
    }

    /// Opens the file or block device of a volume; how large it is, bytes.
    ///
    /// # Errors
    /// Those of [`VolumeFile::open`]; `WouldBlock`: it is in use.
    pub fn open_volume(&mut self, path: &Path, writable: bool) -> io::Result<(File, u64)> {
        self.be_server()?;
        let volume = VolumeFile::open(path, writable)?;
        let size = volume.size()?;
        Ok((self.adopt_volume(volume), size))
    }

    /// Takes an open volume over.
    pub fn adopt_volume(&mut self, volume: VolumeFile) -> File {
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.adopt(volume.into_fd()),
            Inner::Threads(threads) => threads.common.adopt(volume.into_fd()),
        }
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.common().statistics()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The thread may live on. If this fails there is nobody left to tell.
        let _ = self.be_server();
    }
}

/// The processor time that this thread has spent.
fn thread_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

impl Reactor for World {
    fn now(&self) -> Instant {
        self.common().clock.now()
    }

    fn wall(&self) -> Time {
        self.common().clock.wall()
    }

    fn spent(&self) -> Duration {
        thread_time()
    }

    fn submit(&mut self, op: Op) {
        match &mut self.inner {
            Inner::Uring(uring) => uring.submit(op),
            Inner::Threads(threads) => threads.submit(op),
        }
    }

    fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>) {
        match &mut self.inner {
            Inner::Uring(uring) => uring.wait(deadline, events),
            Inner::Threads(threads) => threads.wait(deadline, events),
        }
    }

    fn spans(&mut self, spans: &mut Vec<Span>) {
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.give_spans(spans),
            Inner::Threads(threads) => threads.common.give_spans(spans),
        }
    }
}

/// Allows the process as many open files as the host lets it have, and says how many. Each file
/// that a client knows is one; clients that cache (`cache=loose`) know hundreds of thousands.
pub fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Root may go past what it was given, up to what the kernel takes.
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most: Option<u64> = most.and_then(|text| text.trim().parse().ok());
    for maximum in [most, limit.maximum] {
        let raised = Rlimit { current: maximum, maximum };
        if maximum.is_some() && rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
            return maximum.unwrap_or(u64::MAX);
        }
    }
    limit.current.unwrap_or(u64::MAX)
}
