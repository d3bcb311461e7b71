//! Volumes for straight-line code: every operation on the disk is done at once.
//!
//! A [`Disk`] is whatever holds blocks: a file, a device, [`Memory`]. A [`Driver`] owns an engine
//! and its disk, and answers each request before it returns. It neither waits nor reads a clock
//! itself: the time is given with every request.

use crate::transaction::{Engine, Failure, Output, Reply, Request};
use crate::{Config, Error, Geometry, HEAD_BYTES, Io, IoDone, IoId, Ticket, format};
use base::{Block, Instant, Time};
use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
mod tests;

/// Something that holds blocks.
pub trait Disk {
    /// The first [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// If they cannot be read, or there are not so many.
    fn head(&mut self) -> Result<Vec<u8>, base::Error>;

    /// Reads `count` blocks from block `at` on.
    ///
    /// # Errors
    /// If one cannot be read.
    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error>;

    /// Writes blocks from block `at` on. `durable`: they are when this returns.
    ///
    /// # Errors
    /// If one cannot be written. Then nobody knows what is there.
    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// If that failed. Then nobody knows what is on the disk.
    fn flush(&mut self) -> Result<(), base::Error>;
}

/// Does one operation.
pub fn perform(disk: &mut impl Disk, io: &Io) -> (IoId, IoDone) {
    let done = match io {
        Io::Read { at, count, .. } => IoDone::Read(disk.read(*at, *count)),
        Io::Write { at, blocks, durable, .. } => IoDone::Written(disk.write(*at, blocks, *durable)),
        Io::Flush { .. } => IoDone::Flushed(disk.flush()),
    };
    (io.id(), done)
}

/// Makes an empty volume on a disk.
///
/// # Errors
/// `TooLarge` if the geometry makes no sense, `DiskFailed`, `DiskFull`.
pub fn create(
    disk: &mut impl Disk,
    geometry: &Geometry,
    volume: u64,
    created: Time,
) -> Result<(), Error> {
    for (at, blocks) in format(geometry, volume, created)? {
        disk.write(at, &blocks, false).map_err(Error::of_disk)?;
    }
    disk.flush().map_err(Error::of_disk)
}

/// An engine with its disk.
#[derive(Debug)]
pub struct Driver<D> {
    engine: Engine,
    disk: D,
    said: Vec<Output>,
    to_do: VecDeque<Io>,
    next: u64,
}

impl<D: Disk> Driver<D> {
    /// Opens the volume on a disk.
    ///
    /// # Errors
    /// As [`crate::Store::open`], or what recovery found.
    pub fn open(mut disk: D, config: Config, now: Instant) -> Result<Driver<D>, Error> {
        let head = disk.head().map_err(|_| Error::NotAVolume)?;
        let mut said = Vec::new();
        let engine = Engine::open(&head, config, now, &mut said)?;
        let mut driver = Driver { engine, disk, said, to_do: VecDeque::new(), next: 0 };
        loop {
            for said in std::mem::take(&mut driver.said) {
                match said {
                    Output::Io(io) => driver.to_do.push_back(io),
                    Output::Opened(result) => return result.map(|()| driver),
                    Output::Reply(ticket, _) => unreachable!("{ticket:?} was not asked for"),
                }
            }
            let opened = driver.step(now);
            assert!(opened || !driver.said.is_empty(), "recovery comes to its end");
        }
    }

    /// Asks for something and gives the answer, when everything that was to be done is done.
    ///
    /// # Errors
    /// As the request's. `WouldDeadlock` if it has to wait for a lock: there is nobody else who
    /// could give it back.
    pub fn ask(&mut self, now: Instant, request: Request) -> Result<Reply, Failure> {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.engine.request(now, ticket, request, &mut self.said);
        let mut answer = self.run_for(now, Some(ticket));
        if answer.is_none() {
            self.engine.refuse_waiting(now, &mut self.said);
            answer = self.run_for(now, Some(ticket));
        }
        answer.expect("who waits for nothing is answered")
    }

    /// Does what is due, until there is nothing more to be done at this time.
    pub fn run(&mut self, now: Instant) {
        self.run_for(now, None);
    }

    fn run_for(&mut self, now: Instant, ticket: Option<Ticket>) -> Option<Result<Reply, Failure>> {
        let mut answer = None;
        loop {
            self.engine.tick(now, &mut self.said);
            loop {
                for said in self.said.drain(..) {
                    match said {
                        Output::Io(io) => self.to_do.push_back(io),
                        Output::Reply(of, result) if Some(of) == ticket => answer = Some(result),
                        // Who asked for that one has been told something else long ago.
                        Output::Reply(..) => {}
                        Output::Opened(_) => unreachable!("it was open"),
                    }
                }
                if !self.step(now) {
                    break;
                }
            }
            if self.engine.deadline().is_none_or(|deadline| deadline > now) {
                return answer;
            }
        }
    }

    /// Does one operation; whether there was one.
    fn step(&mut self, now: Instant) -> bool {
        let Some(io) = self.to_do.pop_front() else { return false };
        let (id, done) = perform(&mut self.disk, &io);
        drop(io);
        self.engine.done(now, id, done, &mut self.said);
        true
    }

    /// The engine, to look at.
    #[inline]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The disk, as it is now; the volume is not closed.
    pub fn into_disk(self) -> D {
        self.disk
    }
}

/// A disk in memory, with a cache that a power failure empties.
#[derive(Clone, Debug)]
pub struct Memory {
    block: usize,
    blocks: u64,
    durable: BTreeMap<u64, Block>,
    cached: BTreeMap<u64, Block>,
}

impl Memory {
    /// So many blocks of zeros of so many bytes.
    pub fn new(block: usize, blocks: u64) -> Memory {
        Memory { block, blocks, durable: BTreeMap::new(), cached: BTreeMap::new() }
    }

    /// One with an empty volume on it.
    ///
    /// # Errors
    /// As [`create`].
    pub fn formatted(geometry: &Geometry) -> Result<Memory, Error> {
        let mut memory = Memory::new(geometry.block, geometry.blocks);
        create(&mut memory, geometry, 1, Time::default())?;
        Ok(memory)
    }

    /// The power fails: what was not made durable is gone.
    pub fn lose_power(&mut self) {
        self.cached.clear();
    }

    fn block_at(&self, at: u64) -> Block {
        let found = self.cached.get(&at).or_else(|| self.durable.get(&at));
        found.cloned().unwrap_or_else(|| Block::zeroed(self.block))
    }
}

impl Disk for Memory {
    fn head(&mut self) -> Result<Vec<u8>, base::Error> {
        let blocks = self.read(0, (HEAD_BYTES / self.block) as u32)?;
        Ok(blocks.iter().flat_map(|block| block.iter().copied()).collect())
    }

    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error> {
        if at + u64::from(count) > self.blocks {
            return Err(base::Error::Io);
        }
        Ok((at..at + u64::from(count)).map(|at| self.block_at(at)).collect())
    }

    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error> {
        if at + blocks.len() as u64 > self.blocks {
            return Err(base::Error::Io);
        }
        for (at, block) in (at..).zip(blocks) {
            if durable {
                self.cached.remove(&at);
                self.durable.insert(at, block.clone());
            } else {
                self.cached.insert(at, block.clone());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), base::Error> {
        self.durable.append(&mut self.cached);
        Ok(())
    }
}
