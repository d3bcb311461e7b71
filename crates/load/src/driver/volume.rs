//! A volume of Upcall, opened in this process: the store without a server in front of it.
//!
//! The I/Os go to a table of raw objects, one object for each file.

use super::{Driver, Target, Waker};
use crate::{Io, Kind, Outcome};
use embed::{Ask, Call, Client, Durability, Reply, Request, Ticket, Volume};
use std::io;
use std::path::Path;
use std::time::Duration;
use store::access::Kind as TableKind;
use store::transaction::{ANSWER_MAX, On};
use store::{Table, View};

/// The table that load goes to.
const TABLE: &str = "upcall-load";

/// Most I/Os under way in all workers together; the volume's queue takes 1,024, and would make a
/// worker wait.
const UNDER_WAY_MAX: usize = 1000;

/// Linux's number for an error of the device.
const EIO: u16 = 5;

/// An open volume.
pub struct Store {
    volume: Volume,
    table: Table,
    name: String,
    durability: Durability,
}

impl Store {
    /// Opens the volume in a file or on a device. `durable`: a write ends when it survives power
    /// loss; else soon after.
    ///
    /// # Errors
    /// What the volume says.
    pub fn open(path: &Path, durable: bool) -> Result<Store, embed::Error> {
        let volume = Volume::open(path)?;
        let name = TABLE.as_bytes().to_vec();
        let reply = volume.call(Call::OpenTable { name, kind: TableKind::Raw })?;
        let Reply::Table(table) = reply else { unreachable!("{reply:?} is no table") };
        let durability = if durable { Durability::Durable } else { Durability::Soon };
        let name = format!("volume {}", path.display());
        Ok(Store { volume, table, name, durability })
    }

    /// Writes some of a file's bytes, so that reads find something; they are durable soon.
    ///
    /// # Errors
    /// What the volume says.
    pub fn put(&self, file: u32, offset: u64, data: Vec<u8>) -> Result<(), embed::Error> {
        let call = Call::RawWrite { table: self.table, object: file.into(), offset, data };
        self.volume.soon().call(call).map(drop)
    }

    /// Whether something was written into the last page of a file of so many bytes.
    ///
    /// # Errors
    /// What the volume says.
    pub fn is_filled(&self, file: u32, bytes: u64) -> Result<bool, embed::Error> {
        let (offset, count) = (bytes.saturating_sub(4096), 4096);
        let call = Call::RawRead { table: self.table, object: file.into(), offset, count };
        let reply = self.volume.call(call)?;
        Ok(matches!(reply, Reply::Bytes(bytes) if bytes.iter().any(|byte| *byte != 0)))
    }
}

impl Target for Store {
    fn driver(&self, _worker: usize, workers: usize) -> io::Result<Box<dyn Driver>> {
        let client = self.volume.service().parked_client(std::thread::current());
        let mut pattern = vec![0; 1 << 20];
        fastrand::Rng::with_seed(1).fill(&mut pattern);
        Ok(Box::new(StoreDriver {
            client,
            table: self.table,
            durability: self.durability,
            room: UNDER_WAY_MAX / workers.max(1),
            under_way: 0,
            taken: Vec::new(),
            early: Vec::new(),
            pattern,
        }))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

struct StoreDriver {
    client: Client,
    table: Table,
    durability: Durability,
    room: usize,
    under_way: usize,
    taken: Vec<(u64, Request)>,
    /// Completions that were seen while somebody only wanted to know whether there are any.
    early: Vec<(u64, Outcome)>,
    pattern: Vec<u8>,
}

impl StoreDriver {
    fn request(&self, io: &Io) -> Request {
        let (table, object, offset) = (self.table, u64::from(io.file), io.offset);
        let call = match io.kind {
            Kind::Read => {
                Call::RawRead { table, object, offset, count: (io.len as usize).min(ANSWER_MAX) }
            }
            Kind::Write | Kind::Create => {
                let len = (io.len as usize).min(self.pattern.len());
                Call::RawWrite { table, object, offset, data: self.pattern[..len].to_vec() }
            }
            Kind::Trim => {
                Call::RawCut { table, object, from: offset, to: offset + u64::from(io.len) }
            }
            Kind::Remove => Call::RawCut { table, object, from: 0, to: u64::MAX },
            Kind::Sync => return Request::Sync,
        };
        Request::Call(On::Once(View::Present, self.durability), call)
    }

    fn look(&mut self) {
        while let Some((ticket, result)) = self.client.try_next() {
            self.under_way -= 1;
            let outcome = match result {
                Ok(Reply::Bytes(bytes)) => Outcome::Done(bytes.len() as u32),
                Ok(_) => Outcome::Done(0),
                Err(_) => Outcome::Failed(EIO),
            };
            self.early.push((ticket.0, outcome));
        }
    }
}

impl Driver for StoreDriver {
    fn issue(&mut self, name: u64, io: &Io) -> bool {
        if self.under_way + self.taken.len() >= self.room {
            return false;
        }
        let request = self.request(io);
        self.taken.push((name, request));
        true
    }

    fn flush(&mut self) {
        for (name, request) in self.taken.drain(..) {
            match self.client.submit(Ticket(name), request) {
                Ok(()) => self.under_way += 1,
                Err(_) => self.early.push((name, Outcome::Failed(EIO))),
            }
        }
    }

    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        self.look();
        ended.append(&mut self.early);
    }

    fn any_work(&mut self) -> bool {
        if self.early.is_empty() && self.under_way > 0 {
            self.look();
        }
        !self.early.is_empty()
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn waker(&self) -> Waker {
        Waker::Thread(std::thread::current())
    }
}
