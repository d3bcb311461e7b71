//! Volumes for straight-line code: every operation on the disk is performed at once.
//!
//! A [`Disk`] is anything that holds blocks: a file, a device, [`Memory`]. A [`Driver`] owns an
//! engine and its disk, and completes each request before it returns. It neither waits nor reads a
//! clock itself: every request includes the time.

use crate::transaction::{Engine, Failure, Output, Reply, Request};
use crate::{Config, Error, Geometry, HEAD_BYTES, Io, IoDone, IoId, Ticket, format};
use base::{Block, Instant, Time};
use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
mod tests;

/// A container of blocks.
pub trait Disk {
    /// Returns the first [`HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// If they cannot be read, or there are fewer.
    fn head(&mut self) -> Result<Vec<u8>, base::Error>;

    /// Reads `count` blocks from block `at` on.
    ///
    /// # Errors
    /// If one cannot be read.
    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error>;

    /// Writes blocks from block `at` on. `durable`: they are durable when this returns.
    ///
    /// # Errors
    /// If one cannot be written; the contents are unknown then.
    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error>;

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// If that failed; the contents of the disk are unknown then.
    fn flush(&mut self) -> Result<(), base::Error>;
}

/// Performs one operation.
pub fn perform(disk: &mut impl Disk, io: &Io) -> (IoId, IoDone) {
    let done = match io {
        Io::Read { at, count, .. } => IoDone::Read(disk.read(*at, *count)),
        Io::Write { at, blocks, durable, .. } => IoDone::Written(disk.write(*at, blocks, *durable)),
        Io::Flush { .. } => IoDone::Flushed(disk.flush()),
    };
    (io.id(), done)
}

/// Creates an empty volume on a disk.
///
/// # Errors
/// `TooLarge` if the geometry is invalid, `DiskFailed`, `DiskFull`.
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
    outputs: Vec<Output>,
    to_do: VecDeque<Io>,
    next: u64,
}

impl<D: Disk> Driver<D> {
    /// Opens the volume on a disk.
    ///
    /// # Errors
    /// As [`crate::Store::open`], or the error of recovery.
    pub fn open(mut disk: D, config: Config, now: Instant) -> Result<Driver<D>, Error> {
        let head = disk.head().map_err(|_| Error::NotAVolume)?;
        let mut outputs = Vec::new();
        let engine = Engine::open(&head, config, now, &mut outputs)?;
        let mut driver = Driver { engine, disk, outputs, to_do: VecDeque::new(), next: 0 };
        loop {
            for output in std::mem::take(&mut driver.outputs) {
                match output {
                    Output::Io(io) => driver.to_do.push_back(io),
                    Output::Opened(result) => return result.map(|()| driver),
                    Output::Reply(ticket, _) => unreachable!("{ticket:?} was not asked for"),
                }
            }
            let opened = driver.step(now);
            assert!(opened || !driver.outputs.is_empty(), "recovery comes to its end");
        }
    }

    /// Performs a request and all work due, and returns the reply.
    ///
    /// # Errors
    /// As the request's. `WouldDeadlock` if it has to wait for a lock: there is no one else to
    /// release it.
    pub fn ask(&mut self, now: Instant, request: Request) -> Result<Reply, Failure> {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.engine.request(now, ticket, request, &mut self.outputs);
        let mut answer = self.run_for(now, Some(ticket));
        if answer.is_none() {
            self.engine.refuse_waiting(now, &mut self.outputs);
            answer = self.run_for(now, Some(ticket));
        }
        answer.expect("a request that waits for nothing has a reply")
    }

    /// Performs work due, until nothing is left to do at this time.
    pub fn run(&mut self, now: Instant) {
        self.run_for(now, None);
    }

    fn run_for(&mut self, now: Instant, ticket: Option<Ticket>) -> Option<Result<Reply, Failure>> {
        let mut answer = None;
        loop {
            self.engine.tick(now, &mut self.outputs);
            loop {
                for output in self.outputs.drain(..) {
                    match output {
                        Output::Io(io) => self.to_do.push_back(io),
                        Output::Reply(of, result) if Some(of) == ticket => answer = Some(result),
                        // The request was refused long ago.
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

    /// Performs one operation; returns whether there was one.
    fn step(&mut self, now: Instant) -> bool {
        let Some(io) = self.to_do.pop_front() else { return false };
        let (id, done) = perform(&mut self.disk, &io);
        drop(io);
        self.engine.done(now, id, done, &mut self.outputs);
        true
    }

    /// Returns the engine.
    #[inline]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the disk in its present state; the volume is not closed.
    pub fn into_disk(self) -> D {
        self.disk
    }
}

/// A disk in memory, with a volatile cache.
#[derive(Clone, Debug)]
pub struct Memory {
    block: usize,
    blocks: u64,
    durable: BTreeMap<u64, Block>,
    cached: BTreeMap<u64, Block>,
}

impl Memory {
    /// Returns a disk of this number of blocks of zeros, of this size in bytes.
    pub fn new(block: usize, blocks: u64) -> Memory {
        Memory { block, blocks, durable: BTreeMap::new(), cached: BTreeMap::new() }
    }

    /// Returns a disk with an empty volume.
    ///
    /// # Errors
    /// As [`create`].
    pub fn formatted(geometry: &Geometry) -> Result<Memory, Error> {
        let mut memory = Memory::new(geometry.block, geometry.blocks);
        create(&mut memory, geometry, 1, Time::default())?;
        Ok(memory)
    }

    /// Simulates a power failure: writes that were not made durable are lost.
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
