//! Operations that every engine has to support, and nothing else.

use anyhow::Result;
use std::path::Path;

/// A key and its value.
pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// Memory that every engine may use for its pages, bytes. All the data fits.
pub(crate) const MEMORY: usize = 1 << 30;

/// How an engine is used: by one thread, or by many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    One,
    Many,
}

/// Opens the engine in a directory, and makes it if it is empty.
pub(crate) type Open = fn(&Path, Users) -> Result<Box<dyn Engine>>;

/// An open engine.
pub(crate) trait Engine {
    /// For the thread that opened it.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// For other threads; `None` if it was opened for one.
    fn shared(&self) -> Option<&dyn Shared>;

    /// Everything that was written is durable, and nobody uses the engine any more.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// An engine that several threads may use at once.
pub(crate) trait Shared: Sync {
    /// For the thread that asks.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
}

/// One thread's use of an engine.
pub(crate) trait Session {
    /// Writes all of these in one transaction; on the disk when this returns, if `durable`.
    fn put(&self, entries: Vec<Entry>, durable: bool) -> Result<()>;

    /// Everything written before is on the disk.
    fn sync(&self) -> Result<()>;

    /// Looks each of these up and shows its value.
    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()>;

    /// Shows every key and value, in order.
    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Bytes on the disk, if that is not what its files take.
    fn space(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
