//! Interface between the core and targets: a driver takes I/Os and completes them later.
//!
//! Each worker has its own driver. A driver is called only by that worker on its thread, and must
//! not block, except in [`Driver::wait`] — and in [`Driver::flush`] if it is documented as
//! blocking.

mod blocking;
mod dialer;
mod directory;
mod http;
mod nfs;
mod ninep;
mod null;
pub(crate) mod one;
mod parts;
mod ring;
pub mod server;
mod socket;
mod troubles;
mod volume;

pub use blocking::Blocking;
pub use directory::Directory;
pub use http::{Http, Put, Url};
pub use nfs::{Nfs, NfsFile, NfsFiles};
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

/// Maximum outstanding I/Os of one worker at a target.
const TAKEN_MAX: usize = 1 << 16;

/// Returns bytes to write: random, but always the same.
fn pattern(len: usize) -> Arc<[u8]> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes.into()
}

/// Connection of one worker to a target.
pub trait Driver {
    /// Accepts an I/O, within [`Driver::room`]; [`Driver::flush`] submits it.
    fn issue(&mut self, name: u64, io: &Io);

    /// Number of I/Os that can be accepted now; other due I/Os stay for other workers.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Submits all accepted I/Os.
    fn flush(&mut self);

    /// Appends completed I/Os with their names.
    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>);

    /// Reports whether [`Driver::poll`] has completions; takes nanoseconds.
    fn any_work(&mut self) -> bool;

    /// Waits for a completion, a wake-up or the timeout.
    fn wait(&mut self, timeout: Duration);

    /// Returns a handle that ends a wait from another thread. Called on the worker's thread.
    fn waker(&self) -> Waker;

    /// Reports whether the target uses no other thread on this machine, so that a second worker may
    /// watch the clock during submissions; a local server would need that processor.
    fn is_alone(&self) -> bool {
        false
    }

    /// Maximum I/Os submitted together. They share one issue time, so it is small where submission
    /// is slow, and 1 where it waits for the I/O.
    fn batch_max(&self) -> usize {
        16
    }
}

/// Factory of the drivers of a target, one for each worker, on its thread.
pub trait Target: Sync {
    /// Creates the driver of worker `worker` of `workers`.
    ///
    /// # Errors
    /// If the kernel or the target refuses.
    fn driver(&self, worker: usize, workers: usize) -> io::Result<Box<dyn Driver>>;

    /// Returns the name for people.
    fn name(&self) -> String;

    /// Returns the default number of workers: one that watches the clock, and one to take over.
    fn workers(&self) -> usize {
        2
    }

    /// Returns problems beside single I/Os so far, as sentences for people.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Handle to wake a waiting driver.
#[derive(Clone, Debug)]
pub enum Waker {
    /// Wakes a driver with a ring.
    Ring(precise::Waker),
    /// Unparks a thread.
    Thread(Thread),
}

impl Waker {
    /// Ends the present or the next wait.
    pub fn wake(&self) {
        match self {
            Waker::Ring(waker) => waker.wake(),
            Waker::Thread(thread) => thread.unpark(),
        }
    }
}
