//! A FUSE client of 9P servers: the files of a server in a directory of this host.
//!
//! ```text
//! programs ── kernel ── /dev/fuse ── session ── link ── server
//! ```
//!
//! Threads of the [`session`] read the kernel's requests, perform them by messages of 9P through
//! the client library, and reply. Many are in progress at a time. [`nodes`] maps the kernel's node
//! numbers to fids; [`flights`] makes waiting callers killable; [`link`] connects anew after the
//! connection is lost. [`prefetch`] lets the server send directories and small files ahead.
//!
//! # Promises
//!
//! - A caller that waits for a server that has stopped can be killed.
//! - After a successful fsync(2) the data is as durable as the server's `Tfsync` makes it. If a
//!   connection is lost after a write and before the fsync, the fsync reports it.
//! - A file that is opened after another client has closed it shows what that client has written
//!   (close-to-open). Names and attributes are at most `attr_timeout` old. Of a server that reports
//!   all changes ([`changes`]), names, attributes and pages are as old as the last report, which is
//!   at most four seconds.
//! - Open files stay usable when they are removed or renamed. (One that was read ahead, and that
//!   another client renames soon after it was opened, keeps the contents that it had.)
//! - The server checks permissions, for the user that calls, or for the one that mounted.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "they panic without a reader")]

mod answer;
mod attr;
mod attributes;
mod changes;
mod crew;
mod device;
mod directories;
mod durability;
mod errno;
mod error;
mod files;
mod flights;
mod handles;
mod link;
mod linux;
mod listing;
mod locks;
mod names;
mod nodes;
mod options;
mod owners;
mod perform;
mod plan9;
mod prefetch;
mod protocol;
mod session;
mod spare;
mod store;
mod subtree;
mod watching;

pub use error::Error;
pub use options::{Access, Cache, Options, Watch};

use client::{Address, Dialect};
use link::Link;
use session::{Event, Session};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Size of the kernel's pages, in bytes.
const PAGE: u32 = 4096;

/// Maximum data of a request, in pages.
const PAGES_MAX: u32 = 256;

/// Read-ahead, in requests of the largest size.
const READ_AHEAD: u32 = 4;

/// Locks a mutex and ignores poisoning: a panic ends the request only.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounted tree of a server. Dropping it unmounts it, also if it is in use.
#[derive(Debug)]
pub struct Mounted {
    mount: device::Mount,
    events: Receiver<Event>,
    link: Arc<Link>,
    dialect: Dialect,
    msize: u32,
}

/// Changes the flags of a mount on a directory, such as `ro`, to those of these options.
///
/// # Errors
/// `Remount`.
pub fn remount(dir: &Path, options: &Options) -> Result<(), Error> {
    device::remount(&device::target(dir)?, options)
}

/// Mounts the tree of a server on a directory. Returns when it can be used.
///
/// # Errors
/// Those of connecting and mounting.
pub fn mount(address: &Address, dir: &Path, options: &Options) -> Result<Mounted, Error> {
    let dir = device::target(dir)?;
    let link = Link::open(address, &client_options(options))?;
    let connection = link.present().expect("it has just connected");
    let (dialect, msize, root) = (connection.dialect, connection.msize, connection.raw.root().1);
    let io_max = io_max(connection.io_max());
    drop(connection);
    let (device, mount) = device::mount(&dir, &address.to_string(), options, io_max)?;
    let settings = options::Settings::new(options);
    let (session, events) = Session::new(device, link.clone(), settings, (root, io_max));
    session.start()?;
    let mut mounted = Mounted { mount, events, link, dialect, msize };
    match mounted.events.recv() {
        Ok(Event::Ready) => {
            mounted.mount.read_ahead(READ_AHEAD * io_max);
            Ok(mounted)
        }
        Ok(Event::Refused(major, minor)) => Err(Error::Version(major, minor)),
        Ok(Event::Over) | Err(_) => {
            mounted.mount.is_gone();
            Err(Error::Ended(dir))
        }
    }
}

fn client_options(options: &Options) -> client::Options {
    client::Options {
        uid: options.uid,
        user: options.uname.clone(),
        aname: options.aname.clone(),
        msize: options.msize,
        dialect: options.version,
        deadline: options.timeout,
    }
}

/// Returns the maximum data of a request: a power of two of pages that fits one message, if there
/// is one.
fn io_max(of_message: u32) -> u32 {
    let pages = (of_message / PAGE).clamp(1, PAGES_MAX);
    (1 << pages.ilog2()) * PAGE
}

impl Mounted {
    /// Returns the negotiated protocol.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns the maximum message size, in bytes.
    pub fn msize(&self) -> u32 {
        self.msize
    }

    /// Waits until it is unmounted, at most this long. Returns whether it is.
    pub fn wait(&mut self, time: Duration) -> bool {
        match self.events.recv_timeout(time) {
            Ok(Event::Over) | Err(RecvTimeoutError::Disconnected) => {
                self.mount.is_gone();
                true
            }
            Ok(Event::Ready | Event::Refused(..)) | Err(RecvTimeoutError::Timeout) => false,
        }
    }

    /// Unmounts; with `detach` also if it is in use.
    ///
    /// # Errors
    /// `Unmount`, if it is in use and not detached.
    pub fn unmount(&mut self, detach: bool) -> Result<(), Error> {
        self.mount.unmount(detach)?;
        if detach {
            self.link.close();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_powers_of_two_that_fit_a_message() {
        for (message, wanted) in [
            ((1 << 20) - 24, 1 << 19),
            (1 << 20, 1 << 20),
            (8 << 20, 1 << 20),
            (65_536 - 24, 32_768),
            (488, 4096),
        ] {
            assert_eq!(io_max(message), wanted, "{message}");
        }
    }
}
