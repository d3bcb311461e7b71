//! A volume for one thread: no other thread, no queue, no wake-ups.
//!
//! The thread performs the disk I/O itself. A read from cached pages costs only the search.

use crate::clock::Clock;
use crate::disk::FileDisk;
use crate::{Ask, Error, Options, Session, Tree};
use engine::Driver;
use engine::{Call, On, Reply, Request};
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use store::{Config, Durability, View};

/// An open volume of one thread. Clones refer to the same volume.
///
/// Transactions may overlap, but none waits for another: one that would have to wait is refused
/// (`WouldDeadlock`). When the last clone is dropped without [`Session::close`], changes that are
/// not durable are lost.
#[derive(Clone)]
pub struct Local {
    inner: Rc<Inner>,
    durability: Durability,
}

struct Inner {
    /// `None` after a close.
    driver: RefCell<Option<Driver<FileDisk>>>,
    clock: Clock,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("durability", &self.durability).finish_non_exhaustive()
    }
}

impl Local {
    /// Creates a volume of this many bytes in a new file, and opens it.
    ///
    /// # Errors
    /// Those of the file; `TooLarge` if the size is invalid.
    pub fn create(path: &Path, bytes: u64, options: &Options) -> Result<Local, Error> {
        drop(FileDisk::create(path, bytes)?);
        Local::open(path, options)
    }

    /// Opens the volume in a file or on a block device.
    ///
    /// # Errors
    /// Those of the file; `NotAVolume`, `Damaged`, `DiskFailed`.
    pub fn open(path: &Path, options: &Options) -> Result<Local, Error> {
        let (disk, config) = FileDisk::open(path, !options.read_only, options.memory)?;
        let config = Config { accept_loss: options.accept_loss, ..config };
        let clock = Clock::start();
        let driver = Driver::open(disk, config, clock.now()).map_err(Error::volume(path))?;
        let inner = Inner { driver: RefCell::new(Some(driver)), clock };
        Ok(Local { inner: Rc::new(inner), durability: Durability::Durable })
    }

    /// Returns the same volume with weaker durability: calls on their own are acknowledged at once
    /// and durable soon.
    #[must_use]
    pub fn soon(&self) -> Local {
        Local { inner: self.inner.clone(), durability: Durability::Soon }
    }

    /// Passes the value of a key to `show`, without a copy if it is stored in a page. Meanwhile the
    /// volume must not be used otherwise.
    ///
    /// # Errors
    /// As [`Ask::call`].
    pub fn get_with<T>(
        &self,
        tree: Tree,
        key: &[u8],
        show: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, Error> {
        {
            let driver = self.inner.driver.borrow();
            let driver = driver.as_ref().ok_or(Error::Closed)?;
            let reader = driver.engine().look(tree.0.0)?;
            if let Ok(value) = reader.get(tree.0.0, key) {
                return Ok(show(value.map(|value| value.bytes()).as_deref()));
            }
        }
        let value = crate::ask::expect_value(self.call(tree.0.get(key))?)?;
        Ok(show(value.as_deref()))
    }

    /// Performs due work: to be called now and then by callers that write with [`Local::soon`] and
    /// are then busy with other work for long.
    pub fn run(&self) {
        if let Some(driver) = &mut *self.inner.driver.borrow_mut() {
            driver.run(self.inner.clock.now());
        }
    }
}

impl Session for Local {
    fn ask(&self, request: Request) -> Result<Reply, Error> {
        let mut driver = self.inner.driver.borrow_mut();
        let closes = matches!(request, Request::Close);
        let answer = driver.as_mut().ok_or(Error::Closed)?.ask(self.inner.clock.now(), request);
        if closes {
            *driver = None;
        }
        answer.map_err(Error::from)
    }

    fn submit(&self, request: Request) {
        // The result is not needed.
        let _ = self.ask(request);
    }
}

impl Ask for Local {
    fn call(&self, call: Call) -> Result<Reply, Error> {
        self.ask(Request::Call(On::Once(View::Present, self.durability), call))
    }

    #[inline]
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.get_with(tree, key, |value| value.map(<[u8]>::to_vec))
    }
}
