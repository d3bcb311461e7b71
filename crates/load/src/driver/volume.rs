//! Upcall volume opened in this process: the store without a server.
//!
//! The I/Os use a table of raw objects, one for each file.

use super::{Driver, Target, Waker};
use crate::{Io, Kind, Outcome};
use embed::{Ask, Call, Client, Durability, Options, Reply, Request, Ticket, Volume};
use engine::On;
use engine::access::Kind as TableKind;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Table, View};

/// Table for load.
const TABLE: &str = "upcall-load";

/// Maximum requests of all workers in the volume's queue; the queue holds 1,024 and would block a
/// worker. Further ones wait before the queue, which counts as the target's time.
const UNDER_WAY_MAX: usize = 1000;

/// Maximum bytes of one request; a small volume accepts 512 KiB.
const PART: u32 = 256 << 10;

/// Linux errno of device errors.
const EIO: u16 = 5;

/// Open volume.
pub struct Store {
    volume: Volume,
    table: Table,
    name: String,
    durability: Durability,
}

impl Store {
    /// Opens the volume in a file or on a device. With `durable`, a write completes once it
    /// survives a power loss; otherwise it is made durable soon after.
    ///
    /// # Errors
    /// The errors of [`Volume::open`] and [`Ask::call`].
    pub fn open(path: &Path, durable: bool) -> Result<Store, embed::Error> {
        let volume = Volume::open(path)?;
        let name = TABLE.as_bytes().to_vec();
        let reply = volume.call(Call::OpenTable { name, kind: TableKind::Raw })?;
        let Reply::Table(table) = reply else { unreachable!("{reply:?} is no table") };
        Ok(Store::of(volume, table, path, durable))
    }

    /// Opens a volume read-only; `None` if it never received load.
    ///
    /// # Errors
    /// The errors of [`Volume::open`] and [`Ask::call`].
    pub fn open_to_read(path: &Path) -> Result<Option<Store>, embed::Error> {
        let options = Options { read_only: true, ..Options::default() };
        let volume = Volume::open_with(path, &options)?;
        let reply = volume.call(Call::Tables)?;
        let Reply::Tables(tables) = reply else { unreachable!("{reply:?} are no tables") };
        let is_ours = |(name, _, kind): &(Vec<u8>, Table, TableKind)| {
            name == TABLE.as_bytes() && *kind == TableKind::Raw
        };
        let table = tables.into_iter().find(is_ours).map(|(_, table, _)| table);
        Ok(table.map(|table| Store::of(volume, table, path, false)))
    }

    fn of(volume: Volume, table: Table, path: &Path, durable: bool) -> Store {
        let durability = if durable { Durability::Durable } else { Durability::Soon };
        Store { volume, table, name: format!("volume {}", path.display()), durability }
    }

    /// Writes bytes of a file, so that reads return data; they become durable soon.
    ///
    /// # Errors
    /// The errors of [`Volume::open`] and [`Ask::call`].
    pub fn put(&self, file: u32, offset: u64, data: Vec<u8>) -> Result<(), embed::Error> {
        let call = Call::RawWrite { table: self.table, object: file.into(), offset, data };
        self.volume.soon().call(call).map(drop)
    }

    /// Reports whether the last page of a file of this size has nonzero data.
    ///
    /// # Errors
    /// The errors of [`Volume::open`] and [`Ask::call`].
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
        Ok(Box::new(StoreDriver {
            client,
            table: self.table,
            durability: self.durability,
            room: UNDER_WAY_MAX / workers.max(1),
            under_way: 0,
            wholes: Slab::new(),
            taken: VecDeque::new(),
            early: Vec::new(),
            pattern: super::pattern(PART as usize),
        }))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// I/O split into several requests.
struct Whole {
    name: u64,
    parts: u32,
    /// Bytes read or written so far.
    bytes: u32,
    failed: bool,
}

struct StoreDriver {
    client: Client,
    table: Table,
    durability: Durability,
    room: usize,
    /// Outstanding requests.
    under_way: usize,
    wholes: Slab<Whole>,
    /// Requests waiting for room in the queue, each with its I/O.
    taken: VecDeque<(usize, Io)>,
    /// Completions taken from the volume by a check for their presence.
    early: Vec<(u64, Outcome)>,
    pattern: Arc<[u8]>,
}

impl StoreDriver {
    /// Splits an I/O into requests.
    fn take(&mut self, whole: usize, io: &Io) {
        let moves = matches!(io.kind, Kind::Read | Kind::Write | Kind::Create);
        let mut done = 0;
        while done < io.len || done == 0 {
            let len = if moves { (io.len - done).min(PART) } else { io.len };
            self.wholes[whole].parts += 1;
            self.taken.push_back((whole, Io { offset: io.offset + u64::from(done), len, ..*io }));
            done += len.max(1);
        }
    }

    fn request(&self, part: &Io) -> Request {
        let Io { kind, file, offset, len } = *part;
        let (table, object) = (self.table, u64::from(file));
        let call = match kind {
            Kind::Read => Call::RawRead { table, object, offset, count: len as usize },
            Kind::Write | Kind::Create => {
                let data = self.pattern[..len as usize].to_vec();
                Call::RawWrite { table, object, offset, data }
            }
            Kind::Trim => Call::RawCut { table, object, from: offset, to: offset + u64::from(len) },
            Kind::Remove => Call::RawCut { table, object, from: 0, to: u64::MAX },
            Kind::Sync => return Request::Sync,
        };
        Request::Call(On::Once(View::Present, self.durability), call)
    }

    /// Completes a request.
    fn end(&mut self, whole: usize, bytes: Option<u32>) {
        let state = &mut self.wholes[whole];
        state.parts -= 1;
        match bytes {
            Some(bytes) => state.bytes += bytes,
            None => state.failed = true,
        }
        if state.parts == 0 {
            let Whole { name, bytes, failed, .. } = self.wholes.remove(whole);
            let outcome = if failed { Outcome::Failed(EIO) } else { Outcome::Done(bytes) };
            self.early.push((name, outcome));
        }
    }

    fn look(&mut self) {
        while let Some((ticket, result)) = self.client.try_next() {
            self.under_way -= 1;
            let bytes = match result {
                Ok(Reply::Bytes(bytes)) => Some(bytes.len() as u32),
                Ok(_) => Some(0),
                Err(_) => None,
            };
            self.end(ticket.0 as usize, bytes);
        }
    }
}

impl Driver for StoreDriver {
    fn issue(&mut self, name: u64, io: &Io) {
        let writes = matches!(io.kind, Kind::Write | Kind::Create);
        let bytes = if writes { io.len } else { 0 };
        let whole = Whole { name, parts: 0, bytes, failed: false };
        let whole = self.wholes.insert(whole);
        self.take(whole, io);
    }

    fn room(&self) -> usize {
        super::TAKEN_MAX.saturating_sub(self.wholes.len())
    }

    fn flush(&mut self) {
        while self.under_way < self.room {
            let Some((whole, part)) = self.taken.pop_front() else {
                return;
            };
            let request = self.request(&part);
            match self.client.submit(Ticket(whole as u64), request) {
                Ok(()) => self.under_way += 1,
                Err(_) => self.end(whole, None),
            }
        }
    }

    fn poll(&mut self, ended: &mut Vec<(u64, Outcome)>) {
        self.look();
        self.flush();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ios_are_several_requests_and_what_was_put_is_read() {
        let path = std::env::temp_dir().join(format!("upcall-load-v-{}", std::process::id()));
        drop(Volume::create(&path, 64 << 20).expect("a volume"));
        let store = Store::open(&path, false).expect("it opens");
        store.put(0, 0, vec![7; 1000]).expect("it is written");
        assert!(!store.is_filled(0, 1 << 20).expect("it is read"));
        let mut driver = store.driver(0, 1).expect("a driver");
        let mut ended = Vec::new();
        for (name, kind, len) in [
            (1, Kind::Write, 1 << 20),
            (2, Kind::Sync, 0),
            (3, Kind::Read, 1_000_000),
            (4, Kind::Trim, 4096),
        ] {
            driver.issue(name, &Io { kind, file: 0, offset: 0, len });
            driver.flush();
            while !driver.any_work() {
                driver.wait(Duration::from_millis(100));
            }
            driver.poll(&mut ended);
        }
        assert!(store.is_filled(0, 1 << 20).expect("it is read"));
        drop((driver, store));
        std::fs::remove_file(&path).expect("it was made");
        let read = (3, Outcome::Done(1_000_000));
        let others = |name| (name, Outcome::Done(0));
        let written = (1, Outcome::Done(1 << 20));
        assert_eq!(ended, [written, others(2), read, others(4)]);
    }
}
