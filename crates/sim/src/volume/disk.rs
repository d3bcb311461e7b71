//! The simulated disk: durable data, unflushed writes, and every kind of failure.

use super::canary::Mistake;
use super::params::{Faults, Params};
use base::{Block, Error, rng};
use std::collections::BTreeMap;
use std::mem;
use store::{HEAD_BYTES, Io, IoDone, IoId};

/// Unit of torn writes at a power failure, bytes.
const SECTOR: usize = 512;

/// The disk.
#[derive(Debug)]
pub(super) struct Disk {
    block: usize,
    blocks: u64,
    durable: BTreeMap<u64, Block>,
    volatile: Vec<(u64, Vec<Block>)>,
    faults: Faults,
    mistake: Option<Mistake>,
    /// Whether all operations fail until the next restart.
    dead: bool,
    /// Number of faults.
    pub(super) count: u64,
    /// Whether acknowledged data may be lost or corrupted.
    pub(super) spoilt: bool,
}

impl Disk {
    pub(super) fn new(params: &Params) -> Disk {
        Disk {
            block: params.geometry.block,
            blocks: params.geometry.blocks,
            durable: BTreeMap::new(),
            volatile: Vec::new(),
            faults: params.faults,
            mistake: params.mistake,
            dead: false,
            count: 0,
            spoilt: false,
        }
    }

    /// Writes without faults, for formatting the volume.
    pub(super) fn plant(&mut self, at: u64, blocks: Vec<Block>) {
        self.durable.extend((at..).zip(blocks));
    }

    /// Reads a block for a check of the disk.
    pub(super) fn look(&self, at: u64) -> Block {
        let volatile =
            self.volatile.iter().rev().find_map(|(first, blocks)| {
                blocks.get(usize::try_from(at.checked_sub(*first)?).ok()?)
            });
        let found = volatile.or_else(|| self.durable.get(&at));
        found.cloned().unwrap_or_else(|| Block::zeroed(self.block))
    }

    pub(super) fn head(&self) -> Vec<u8> {
        let blocks = (HEAD_BYTES / self.block) as u64;
        (0..blocks).flat_map(|at| self.look(at).to_vec()).collect()
    }

    /// Disables faults, for a check of the contents.
    pub(super) fn calm(&mut self) {
        self.faults = Faults::default();
    }

    fn strikes(&mut self, rng: &mut rng::Rng, rarity: u32) -> bool {
        let strikes = rarity > 0 && rng.u32(0..rarity) == 0;
        self.count += u64::from(strikes);
        strikes
    }

    /// Performs one operation.
    pub(super) fn perform(&mut self, rng: &mut rng::Rng, io: Io) -> (IoId, IoDone) {
        if self.strikes(rng, self.faults.rot) {
            self.rot(rng);
        }
        match io {
            Io::Read { id, at, count } => (id, IoDone::Read(self.read(rng, at, count))),
            Io::Write { id, at, blocks, durable } => {
                (id, IoDone::Written(self.write(rng, at, blocks, durable)))
            }
            Io::Flush { id } => (id, IoDone::Flushed(self.flush(rng))),
        }
    }

    fn read(&mut self, rng: &mut rng::Rng, at: u64, count: u32) -> Result<Vec<Block>, Error> {
        assert!(at + u64::from(count) <= self.blocks, "within the disk");
        if self.strikes(rng, self.faults.read) {
            return Err(Error::Io);
        }
        let from = if self.strikes(rng, self.faults.misdirect) {
            rng.u64(0..self.blocks - u64::from(count))
        } else {
            at
        };
        Ok((from..from + u64::from(count)).map(|at| self.look(at)).collect())
    }

    fn write(
        &mut self,
        rng: &mut rng::Rng,
        at: u64,
        blocks: Vec<Block>,
        durable: bool,
    ) -> Result<(), Error> {
        assert!(at + blocks.len() as u64 <= self.blocks, "within the disk");
        if self.fails(rng) {
            // It is unknown which of the blocks were written.
            self.volatile.push((at, blocks));
            return Err(Error::Io);
        }
        let mut at = at;
        if self.strikes(rng, self.faults.misdirect) {
            at = rng.u64(0..self.blocks - blocks.len() as u64);
            self.spoilt = true;
        }
        if durable && self.mistake != Some(Mistake::SkipFlush) {
            let end = at + blocks.len() as u64;
            self.volatile.retain(|(first, old)| first + old.len() as u64 <= at || *first >= end);
            self.durable.extend((at..).zip(blocks));
        } else {
            self.volatile.push((at, blocks));
        }
        Ok(())
    }

    fn flush(&mut self, rng: &mut rng::Rng) -> Result<(), Error> {
        if self.fails(rng) {
            // Unflushed writes are gone, and a second flush would report success.
            for write in mem::take(&mut self.volatile) {
                if rng.bool() {
                    self.volatile.push(write);
                }
            }
            return Err(Error::Io);
        }
        if self.strikes(rng, self.faults.lie) {
            self.spoilt = true;
            return Ok(());
        }
        if self.mistake != Some(Mistake::SkipFlush) {
            for (at, blocks) in mem::take(&mut self.volatile) {
                self.durable.extend((at..).zip(blocks));
            }
        }
        Ok(())
    }

    /// Enlarges the disk.
    pub(super) fn grow(&mut self, blocks: u64) {
        self.blocks = self.blocks.max(blocks);
    }

    /// Ends a permanent failure of the disk.
    pub(super) fn revive(&mut self) {
        self.dead = false;
    }

    fn fails(&mut self, rng: &mut rng::Rng) -> bool {
        let fails = self.dead || self.strikes(rng, self.faults.write);
        self.dead |= fails && rng.bool();
        fails
    }

    /// Flips a bit of durable data.
    fn rot(&mut self, rng: &mut rng::Rng) {
        let nth = rng.usize(0..self.durable.len().max(1));
        if let Some((_, block)) = self.durable.iter_mut().nth(nth) {
            let byte = rng.usize(0..block.len());
            block.bytes_mut()[byte] ^= 1 << rng.u8(0..8);
            self.spoilt = true;
        }
    }

    /// Simulates a power failure: any part of the unflushed writes and of those in flight may
    /// survive, sector by sector.
    pub(super) fn crash(&mut self, rng: &mut rng::Rng, under_way: Vec<Io>) {
        let mut open = mem::take(&mut self.volatile);
        for io in under_way {
            if let Io::Write { at, blocks, .. } = io {
                open.push((at, blocks));
            }
        }
        // Some crashes lose everything, some nothing.
        let survives = rng.u8(0..=4);
        rng.shuffle(&mut open);
        for (at, blocks) in open {
            for (at, block) in (at..).zip(blocks) {
                let mut there = self.look(at);
                for start in (0..self.block).step_by(SECTOR) {
                    if rng.u8(0..4) < survives {
                        let sector = start..start + SECTOR;
                        there.bytes_mut()[sector.clone()].copy_from_slice(&block[sector]);
                    }
                }
                self.durable.insert(at, there);
            }
        }
        self.dead = false;
    }
}
