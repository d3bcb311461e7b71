//! Targets as the core sees them: something that takes I/Os and ends them later.
//!
//! Each worker has a driver of its own. A driver is called by that worker only, on its thread, and
//! must not wait, except in [`Driver::wait`] — and in [`Driver::flush`] if it says that it blocks.

mod blocking;
mod dialer;
mod directory;
mod http;
mod ninep;
mod null;
pub(crate) mod one;
mod ring;
pub mod server;
mod socket;
mod troubles;
mod volume;

pub use blocking::Blocking;
pub use directory::Directory;
pub use http::{Http, Put, Url};
pub use ninep::NineP;
pub use null::Null;
pub use ring::{Opened, Ring};
pub use troubles::Troubles;
pub use volume::Store;

use crate::{Io, Outcome};
use reactor::precise;
use std::io;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

/// Most I/Os that a target has of one worker; beyond that there is no room.
const TAKEN_MAX: usize = 1 << 16;

/// Bytes to write: random, and the same each time.
fn pattern(len: usize) -> Arc<[u8]> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes.into()
}

/// The way to a target for one worker.
pub trait Driver {
    /// Takes an I/O, for which there is room; [`Driver::flush`] hands it over.
    fn issue(&mut self, name: u64, io: &Io);

    /// How many I/Os it has room for now; what is due beyond stays for other workers.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Hands over all that was taken.
    fn flush(&mut self);

    /// Gives what has ended, with the names.
    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>);

    /// Whether [`Driver::poll`] would bring something; a look that costs nanoseconds.
    fn any_work(&mut self) -> bool;

    /// Waits until something ends, somebody wakes it, or the time is over.
    fn wait(&mut self, timeout: Duration);

    /// Ends a wait from another thread. Asked for on the worker's thread.
    fn waker(&self) -> Waker;

    /// Whether nobody else on this machine works for the target, so that a second worker may watch
    /// the clock while the first hands over; a server here would want that processor.
    fn is_alone(&self) -> bool {
        false
    }

    /// Most I/Os that are handed over together. All of them have the same time of issue, so it is
    /// small where handing over takes long, and 1 where it waits for the I/O.
    fn batch_max(&self) -> usize {
        16
    }
}

/// Makes the drivers of a target, one for each worker, on the worker's thread.
pub trait Target: Sync {
    /// A driver for worker `worker` of `workers`.
    ///
    /// # Errors
    /// If the kernel or the target refuses.
    fn driver(&self, worker: usize, workers: usize) -> io::Result<Box<dyn Driver>>;

    /// What it is, for people.
    fn name(&self) -> String;

    /// How many workers are good for it, where nobody says: one that watches the clock, and one to
    /// take over.
    fn workers(&self) -> usize {
        2
    }

    /// What went wrong besides single I/Os so far: sentences for people.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Wakes a driver that waits.
#[derive(Clone, Debug)]
pub enum Waker {
    /// One with a ring.
    Ring(precise::Waker),
    /// One that parks its thread.
    Thread(Thread),
}

impl Waker {
    /// Ends the present wait, or the next.
    pub fn wake(&self) {
        match self {
            Waker::Ring(waker) => waker.wake(),
            Waker::Thread(thread) => thread.unpark(),
        }
    }
}
