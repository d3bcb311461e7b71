//! Performs operations on the real world: with io_uring, or with epoll and threads.
//!
//! A [`World`] is the [`base::Reactor`] of the server. Both forms behave the same; the tests are
//! written once and run on both. This crate does not know the purpose of its operations.
//!
//! A world belongs to the thread that creates it: create it on the thread that will run the node.
//! Before that, `main` calls [`hold_signals`], [`raise_open_files`], and `umask(0)` (clients
//! request exact modes; the umask is process-wide, so this crate does not change it).
//!
//! The thread may keep the file-system identity of the user that it last acted for. Other code that
//! accesses files on this thread calls [`World::be_server`] first.
//!
//! Guarantees of both forms beyond [`base::op`]:
//!
//! - A receive into a buffer of the reactor's returns an empty buffer at the end of the stream; one
//!   into the caller's own buffer returns `Disconnected`, also if nothing was ever received.
//! - A read is short only at the end of the file. A read of blocks is never short: it fails with
//!   `Io`.
//! - Blocks of one operation have one size, and an offset that is a multiple of it; otherwise it
//!   panics.
//! - Numbers of files and sockets are descriptors. Closing one with outstanding operations is a bug
//!   of the caller, which the kernel answers with errors, or with another file's data.
//! - The queue of the pool is limited only by the node's admission.

mod blocks;
mod clock;
mod common;
mod descriptor;
mod errno;
mod host;
mod identity;
mod inherited;
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
pub use inherited::{Inherited, take_inherited};
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

/// Kernel interface of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One io_uring.
    Uring,
    /// Epoll, and threads for operations that would block.
    Threads,
}

/// Configuration of a world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of threads of the pool for local work, which neither form can do without
    /// blocking. Each file system that may block has up to a quarter as many, all together four
    /// times as many.
    pub threads_max: usize,
    /// Maximum spin time of a wait that follows a short one; zero: no spinning.
    pub spin: Duration,
    /// Time after which an operation that occupies a thread causes a report of its file system as
    /// unresponsive.
    pub unresponsive_after: Duration,
    /// Whether SIGINT and SIGTERM are events of this world; set it in exactly one of a process.
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

/// Statistics of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Statistics of the pool.
    pub pool: PoolStatistics,
    /// Number of calls of `io_uring_enter` or `epoll_wait`.
    pub kernel_entries: u64,
    /// Number of path operations performed without a thread of the pool.
    pub paths_inline: u64,
}

/// The real world, in one of two forms.
pub struct World {
    inner: Inner,
    /// Binds a world to its thread, like identities and the ring.
    _thread: std::marker::PhantomData<*const ()>,
}

enum Inner {
    Uring(Box<uring::Uring>),
    Threads(Box<threads::Threads>),
}

impl World {
    /// Creates a world for the current thread.
    ///
    /// # Errors
    /// If the kernel refuses ([`probe()`] returns the reason for io_uring), or `/proc` is not
    /// mounted.
    pub fn new(form: Form, config: &Config) -> io::Result<World> {
        let inner = match form {
            Form::Uring => Inner::Uring(Box::new(uring::Uring::new(config)?)),
            Form::Threads => Inner::Threads(Box::new(threads::Threads::new(config)?)),
        };
        Ok(World { inner, _thread: std::marker::PhantomData })
    }

    /// Returns the form.
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

    /// Listens at an address; returns the actual one (with its port).
    ///
    /// A Unix socket without a listener is replaced. Its permissions follow the process's umask;
    /// the kernel identifies clients ([`base::op::Peer::Local`]).
    ///
    /// # Errors
    /// Those of `bind(2)` and `listen(2)`; `AddrInUse` if there is a listener.
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

    /// Returns a duplicate of a listening socket, for the world of another thread.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn share_listener(&self, listener: Listener) -> io::Result<OwnedFd> {
        self.common().listening(listener).ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// Listens at a socket of another thread's world, in which case connections go to either, or of
    /// the service manager. Its name stays in the file system.
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

    /// Returns the mailbox of this world, for other threads.
    pub fn mailbox(&self) -> Mailbox {
        self.common().pool.mailbox()
    }

    /// Sets the mailboxes of all nodes of this process ([`base::op::Op::Post`]).
    pub fn set_mailboxes(&mut self, mailboxes: Vec<Mailbox>) {
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.set_mailboxes(mailboxes),
            Inner::Threads(threads) => threads.common.set_mailboxes(mailboxes),
        }
    }

    /// Restores the process's own file-system identity of the thread.
    ///
    /// # Errors
    /// If the kernel refuses, which happens only if capabilities were dropped meanwhile.
    pub fn be_server(&self) -> io::Result<()> {
        let result = self.common().host.own.be_server();
        result.map_err(|_| io::ErrorKind::PermissionDenied.into())
    }

    /// Opens a directory to be served, as a handle.
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

    /// Opens the file or block device of a volume; returns its size, bytes, too.
    ///
    /// # Errors
    /// Those of [`VolumeFile::open`]; `WouldBlock` if it is in use.
    pub fn open_volume(&mut self, path: &Path, writable: bool) -> io::Result<(File, u64)> {
        self.be_server()?;
        let volume = VolumeFile::open(path, writable)?;
        let size = volume.size()?;
        Ok((self.adopt_volume(volume), size))
    }

    /// Takes ownership of an open volume.
    pub fn adopt_volume(&mut self, volume: VolumeFile) -> File {
        match &mut self.inner {
            Inner::Uring(uring) => uring.common.adopt(volume.into_fd()),
            Inner::Threads(threads) => threads.common.adopt(volume.into_fd()),
        }
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> Statistics {
        self.common().statistics()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The thread may live on. A failure cannot be reported here.
        let _ = self.be_server();
    }
}

/// Returns the processor time used by this thread.
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

/// Raises the process's limit on open files to the maximum, and returns it. Each file known to a
/// client is one; clients with a cache (`cache=loose`) know hundreds of thousands.
pub fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Root may exceed its hard limit, up to that of the kernel.
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
