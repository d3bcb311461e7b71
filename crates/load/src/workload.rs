//! Library of workloads: filaments that define times, offsets, sizes and order of I/Os.
//!
//! | module | defines |
//! |---|---|
//! | [`arrival`] | interarrival times: uniform, Poisson, hyper-exponential, on and off |
//! | [`place`] | offsets: uniform, Zipf, sequential, strided, or a mixture |
//! | [`size`] | sizes: fixed, a choice, a range |
//! | [`stream`] | open loop: I/Os at their times, independent of the target |
//! | [`users`] | closed loop: the next I/O after the previous one; partly open sessions |
//! | [`transactions`] | TPC-B-like transactions |
//! | [`spc1`] | the eight streams of an SPC-1-like business scaling unit |
//! | [`postmark`] | small files that are created and removed |
//! | [`specweb`] | files requested from web servers |
//! | [`mod@file`] | a TOML file that combines them |
//!
//! Drawing is cheap (tens of ns): [`weighted`] sums its weights once. [`pace`] defines whether a
//! mix is open or closed.
//!
//! All randomness comes from a seed: equal seeds give equal requests.

pub mod arrival;
pub mod file;
pub mod pace;
pub mod place;
pub mod postmark;
pub mod size;
pub mod spc1;
pub mod specweb;
pub mod stream;
pub mod transactions;
pub mod users;
pub mod weighted;

pub use arrival::Arrival;
pub use file::Workload;
pub use pace::Pace;
pub use place::{OffsetDistribution, OffsetRange, Placer};
pub use size::{Size, Sizer};
pub use weighted::Weighted;

use crate::{Io, Kind};

/// Distribution of I/Os without their times: kinds, offsets and sizes.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Kinds with their weights.
    pub kinds: Vec<(Kind, f64)>,
    /// Distribution of offsets.
    pub place: OffsetDistribution,
    /// Distribution of sizes.
    pub size: Size,
    /// Start of the used part of the target in bytes, and below its length.
    pub begin: u64,
    /// Length of the used part, in bytes.
    pub span: u64,
    /// Alignment of offsets in bytes; 0 for the size.
    pub align: u64,
    /// Number of files, chosen uniformly.
    pub files: u32,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            kinds: vec![(Kind::Read, 1.0)],
            place: OffsetDistribution::Uniform,
            size: Size::Fixed(4096),
            begin: 0,
            span: 1 << 30,
            align: 0,
            files: 1,
        }
    }
}

/// Source of I/Os.
pub trait Draw: Send {
    /// Draws the next I/O.
    fn draw(&mut self) -> Io;

    /// Returns the random number generator.
    fn random(&mut self) -> &mut fastrand::Rng;
}

/// Generator of a mix's I/Os. Each ends within the span; a longer one is truncated.
#[derive(Clone, Debug)]
pub struct Drawer {
    kinds: Weighted<Kind>,
    sizer: Sizer,
    placer: Placer,
    begin: u64,
    span: u64,
    files: u32,
    random: fastrand::Rng,
}

impl Drawer {
    /// Creates a generator with this seed.
    ///
    /// # Panics
    /// Without kinds.
    pub fn new(mix: Mix, seed: u64) -> Drawer {
        let longest = u64::from(mix.size.max());
        let (align, grain) = match mix.align {
            0 => (longest, u64::from(mix.size.grain())),
            align => (align, align),
        };
        let range = OffsetRange { span: mix.span, longest, align, grain };
        Drawer {
            kinds: Weighted::new(mix.kinds),
            sizer: Sizer::new(&mix.size),
            placer: Placer::new(&mix.place, range),
            begin: mix.begin,
            span: mix.span,
            files: mix.files,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Draws the next I/O.
    pub fn draw(&mut self) -> Io {
        let kind = *self.kinds.draw(&mut self.random);
        let file = if self.files > 1 { self.random.u32(..self.files) } else { 0 };
        // A sync has no offset: it does not advance a sequential stream.
        match kind {
            Kind::Sync => Io { kind, file, offset: 0, len: 0 },
            Kind::Read | Kind::Write | Kind::Trim | Kind::Create | Kind::Remove => {
                let len = u64::from(self.sizer.draw(&mut self.random)).min(self.span);
                let offset = self.begin + self.placer.draw(len, &mut self.random);
                Io { kind, file, offset, len: len as u32 }
            }
        }
    }

    /// Returns the random number generator.
    pub fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }
}

impl Draw for Drawer {
    fn draw(&mut self) -> Io {
        Drawer::draw(self)
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        Drawer::random(self)
    }
}

/// Derives an independent seed for each part of a workload (the last step of SplitMix64).
pub fn seed(seed: u64, part: u64) -> u64 {
    let mut mixed = seed ^ part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
