//! A volume for one thread: no other thread, no queue, nothing to wake.
//!
//! The thread does the operations on the disk itself. A read whose pages are in memory takes no
//! more than the search.

use crate::clock::Clock;
use crate::disk::FileDisk;
use crate::{Ask, Error, Options, Session, Tree};
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use store::drive::Driver;
use store::transaction::{Call, On, Reply, Request};
use store::{Config, Durability, View};

/// An open volume of one thread. Clones are the same one.
///
/// Transactions may overlap, but none waits for another: who would have to wait is refused
/// (`WouldDeadlock`). When the last clone is gone without [`Session::close`], what was not durable
/// is lost.
#[derive(Clone)]
pub struct Local {
    inner: Rc<Inner>,
    durability: Durability,
}

struct Inner {
    /// `None`: it is closed.
    driver: RefCell<Option<Driver<FileDisk>>>,
    clock: Clock,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("durability", &self.durability).finish_non_exhaustive()
    }
}

impl Local {
    /// Makes a volume of so many bytes in a new file, and opens it.
    ///
    /// # Errors
    /// Those of the file; `TooLarge` if the size makes no sense.
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

    /// The same volume, where what happens by itself is acknowledged at once and durable soon.
    #[must_use]
    pub fn soon(&self) -> Local {
        Local { inner: self.inner.clone(), durability: Durability::Soon }
    }

    /// Shows the value of a key where it is, without a copy if it stands in a page. While it is
    /// shown, the volume must not be used for anything else.
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

    /// Does what is due: to be called now and then by who writes with [`Local::soon`] and then is
    /// busy with something else for long.
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

    fn tell(&self, request: Request) {
        // Nobody wants to know how it ended.
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
