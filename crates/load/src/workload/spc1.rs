//! SPC-1-like I/Os: the storage load of an application's queries, updates and log.
//!
//! The load is measured in business scaling units (BSUs) of 50 I/Os per second. Each has eight
//! streams on three application storage units (ASUs: the data store, the user store and the log),
//! which take 45, 45 and 10 % of the space:
//!
//! | stream | share | reads | size | offsets |
//! |---|---|---|---|---|
//! | ASU-1.1 | 0.035 | 50 % | 4 KiB | uniform |
//! | ASU-1.2 | 0.281 | 50 % | 4 KiB | a walk in the 5 % from 15 % on |
//! | ASU-1.3 | 0.070 | all | mixed | sequential: 10 % from a start in 20–60 % |
//! | ASU-1.4 | 0.210 | 50 % | 4 KiB | a walk in the 5 % from 70 % on |
//! | ASU-2.1 | 0.018 | 30 % | 4 KiB | uniform |
//! | ASU-2.2 | 0.070 | 30 % | 4 KiB | a walk in the 5 % from 47 % on |
//! | ASU-2.3 | 0.035 | all | mixed | sequential: 10 % from a start in 20–60 % |
//! | ASU-3.1 | 0.281 | none | mixed | sequential: 30 % from a start in 0–70 % |
//!
//! Mixed sizes are 4, 8, 16, 32 and 64 KiB (40, 24, 20, 8 and 8 %). The walks are random with
//! hierarchical reuse ([`walk`]). The total share of reads is 39 %.
//!
//! Sources: BSUs, ASUs and their shares are in SPC-1's public specification; shares of streams,
//! their reads, sizes and regions, and the walk's constants were compared with a generator of this
//! load that NetApp published in 2005. Interarrival times are exponential, as in both; the streams
//! of many BSUs are drawn together, since the sum of independent exponential streams is one with
//! the sum of their rates.
//!
//! This is an approximation, not the benchmark, and its results must not be called SPC-1 results:
//! there is no ramp, no set of test phases, and no limit on the response time.

pub mod walk;

use super::stream::Stream;
use super::{Arrival, Draw, Weighted};
use crate::{Io, Kind};
use std::time::Duration;
use walk::{Region, Walk};

/// I/Os per second of a BSU.
pub const RATE: f64 = 50.0;

/// Minimum usable part of a target, in bytes.
pub const SPAN_MIN: u64 = 64 << 20;

/// Maximum I/O size, in bytes.
pub const IO_MAX: u32 = 64 << 10;

/// Block size, in bytes.
const BLOCK: u64 = 4096;

/// Alignment of the start of sequential streams, in blocks.
const RUN_BLOCKS: u64 = 16;

/// Stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// Uniform offsets in an ASU, with this percentage of reads.
    Anywhere { asu: usize, reads: u32 },
    /// Walk in a region, with this percentage of reads.
    Walk { region: usize, reads: u32 },
    /// Sequential stream.
    Run(usize),
}

/// Streams with their shares.
const STREAMS: [(Which, f64); 8] = [
    (Which::Anywhere { asu: 0, reads: 50 }, 0.035),
    (Which::Walk { region: 0, reads: 50 }, 0.281),
    (Which::Run(0), 0.070),
    (Which::Walk { region: 1, reads: 50 }, 0.210),
    (Which::Anywhere { asu: 1, reads: 30 }, 0.018),
    (Which::Walk { region: 2, reads: 30 }, 0.070),
    (Which::Run(1), 0.035),
    (Which::Run(2), 0.281),
];

/// Sequential stream: ASU, kind, range of starts and length, in hundredths of the ASU.
struct Run {
    asu: usize,
    kind: Kind,
    from: u64,
    to: u64,
    long: u64,
}

const RUNS: [Run; 3] = [
    Run { asu: 0, kind: Kind::Read, from: 20, to: 60, long: 10 },
    Run { asu: 1, kind: Kind::Read, from: 20, to: 60, long: 10 },
    Run { asu: 2, kind: Kind::Write, from: 0, to: 70, long: 30 },
];

/// Regions of the walks: ASU, and start in hundredths of it; 5 % long.
const REGIONS: [(usize, u64); 3] = [(0, 15), (0, 70), (1, 47)];

/// Mixed sizes, in blocks.
const MIXED: [(u32, f64); 5] = [(1, 10.0), (2, 6.0), (4, 5.0), (8, 2.0), (16, 2.0)];

/// Part of the target, in blocks.
#[derive(Clone, Copy, Debug)]
struct Asu {
    first: u64,
    blocks: u64,
}

/// Positions of a BSU's streams.
#[derive(Clone, Debug, Default)]
struct Bsu {
    /// Next block and end of the current run of each sequential stream, within the ASU.
    runs: [(u64, u64); 3],
    walks: [Option<Walk>; 3],
}

/// Generator of the I/Os of several BSUs.
#[derive(Clone, Debug)]
pub struct Drawer {
    streams: Weighted<Which>,
    sizes: Weighted<u32>,
    begin: u64,
    asus: [Asu; 3],
    regions: [Region; 3],
    bsus: Vec<Bsu>,
    random: fastrand::Rng,
}

impl Drawer {
    /// Creates a generator with this seed, in this part of the target.
    ///
    /// # Panics
    /// Without BSUs, or if the span is below [`SPAN_MIN`].
    pub fn new(bsus: u32, begin: u64, span: u64, seed: u64) -> Drawer {
        assert!(bsus > 0, "somebody does something");
        assert!(span >= SPAN_MIN, "the regions are large enough");
        let blocks = span / BLOCK;
        let store = (u128::from(blocks) * 45 / 100) as u64;
        let asus = [
            Asu { first: 0, blocks: store },
            Asu { first: store, blocks: store },
            Asu { first: 2 * store, blocks: blocks - 2 * store },
        ];
        let regions = REGIONS.map(|(asu, from)| {
            let Asu { first, blocks } = asus[asu];
            Region::new(first + hundredths(blocks, from), blocks / 20)
        });
        Drawer {
            streams: Weighted::new(STREAMS.to_vec()),
            sizes: Weighted::new(MIXED.to_vec()),
            begin,
            asus,
            regions,
            bsus: vec![Bsu::default(); bsus as usize],
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn kind(&mut self, reads: u32) -> Kind {
        if self.random.u32(..100) < reads { Kind::Read } else { Kind::Write }
    }

    /// Returns the next block of a walk.
    fn walk(&mut self, bsu: usize, number: usize, kind: Kind) -> u64 {
        let region = &mut self.regions[number];
        let walk =
            self.bsus[bsu].walks[number].get_or_insert_with(|| Walk::new(region, &mut self.random));
        walk.step(region, kind, &mut self.random)
    }

    /// Returns the next `blocks` blocks of a sequential stream.
    fn run(&mut self, bsu: usize, number: usize, blocks: u64) -> u64 {
        let run = &RUNS[number];
        let asu = self.asus[run.asu];
        let (next, end) = &mut self.bsus[bsu].runs[number];
        if *next + blocks > *end {
            let (from, to) = (hundredths(asu.blocks, run.from), hundredths(asu.blocks, run.to));
            *next = self.random.u64(from..to) / RUN_BLOCKS * RUN_BLOCKS;
            *end = (*next + hundredths(asu.blocks, run.long)).min(asu.blocks);
        }
        let here = *next;
        *next += blocks;
        asu.first + here
    }
}

/// Returns a number of hundredths of a value.
fn hundredths(of: u64, count: u64) -> u64 {
    (u128::from(of) * u128::from(count) / 100) as u64
}

impl Draw for Drawer {
    fn draw(&mut self) -> Io {
        let bsu = self.random.usize(..self.bsus.len());
        let (kind, block, blocks) = match *self.streams.draw(&mut self.random) {
            Which::Anywhere { asu, reads } => {
                let Asu { first, blocks } = self.asus[asu];
                (self.kind(reads), first + self.random.u64(..blocks), 1)
            }
            Which::Walk { region, reads } => {
                let kind = self.kind(reads);
                (kind, self.walk(bsu, region, kind), 1)
            }
            Which::Run(number) => {
                let blocks = *self.sizes.draw(&mut self.random);
                (RUNS[number].kind, self.run(bsu, number, u64::from(blocks)), blocks)
            }
        };
        let offset = self.begin + block * BLOCK;
        Io { kind, file: 0, offset, len: blocks * BLOCK as u32 }
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }
}

/// Returns the load of the BSUs, from `begin` on, with `count` I/Os.
pub fn stream(drawer: Drawer, begin: Duration, count: u64) -> Stream<Drawer> {
    let rate = RATE * drawer.bsus.len() as f64;
    Stream::of(Arrival::Poisson { rate }, drawer, begin, count)
}

#[cfg(test)]
mod tests;
