//! A volume for straight-line code on many threads: calls sleep until they complete.

use crate::disk::FileDisk;
use crate::port::Port;
use crate::queue::{Message, Queue};
use crate::{Ask, Error, Service, Session};
use engine::{Call, On, Reply, Request};
use std::path::Path;
use std::sync::Arc;
use store::{Durability, Ticket, View};

/// Options of opening a volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for cached blocks, bytes.
    pub memory: usize,
    /// Whether the volume is opened read-only.
    pub read_only: bool,
    /// Whether to open it although the disk has lost acknowledged transactions.
    pub accept_loss: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory: 256 << 20, read_only: false, accept_loss: false }
    }
}

/// An open volume. Clones refer to the same volume; dropping the last one closes it.
///
/// Calls on the volume itself are transactions of their own, and are durable when they return,
/// except on a [`Volume::soon`].
#[derive(Clone, Debug)]
pub struct Volume {
    service: Arc<Service>,
    durability: Durability,
}

thread_local! {
    /// A sleeping thread waits for one completion only.
    static PORT: Arc<Port> = Arc::default();
}

impl Volume {
    /// Creates a volume of this many bytes in a new file, and opens it.
    ///
    /// # Errors
    /// Those of the file; `TooLarge` if the size is invalid.
    pub fn create(path: &Path, bytes: u64) -> Result<Volume, Error> {
        drop(FileDisk::create(path, bytes)?);
        Volume::open(path)
    }

    /// Opens the volume in a file or on a block device.
    ///
    /// # Errors
    /// Those of the file; `NotAVolume`, `Damaged`, `DiskFailed`.
    pub fn open(path: &Path) -> Result<Volume, Error> {
        Volume::open_with(path, &Options::default())
    }

    /// Opens the volume with other options.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with(path: &Path, options: &Options) -> Result<Volume, Error> {
        let service = Arc::new(Service::open(path, options)?);
        Ok(Volume { service, durability: Durability::Durable })
    }

    /// Returns the same volume with weaker durability: calls on their own are acknowledged at once
    /// and durable soon.
    #[must_use]
    pub fn soon(&self) -> Volume {
        Volume { service: self.service.clone(), durability: Durability::Soon }
    }

    /// Returns the underlying service, for clients with a port of their own.
    pub fn service(&self) -> &Service {
        &self.service
    }

    fn queue(&self) -> &Arc<Queue> {
        self.service.queue()
    }
}

impl Session for Volume {
    fn ask(&self, request: Request) -> Result<Reply, Error> {
        PORT.with(|port| {
            let ticket = Ticket(0);
            self.queue().push(Message { request, ticket, port: Some(port.clone()) })?;
            port.wait().1
        })
    }

    fn submit(&self, request: Request) {
        // An error means that the volume is closed, so there is no recipient.
        let _ = self.queue().push(Message { request, ticket: Ticket(0), port: None });
    }
}

impl Ask for Volume {
    fn call(&self, call: Call) -> Result<Reply, Error> {
        self.ask(Request::Call(On::Once(View::Present, self.durability), call))
    }
}
