//! The library of workloads: filaments that say when, where, how much, and in which order.
//!
//! | part | what it says |
//! |---|---|
//! | [`arrival`] | when the next one comes: uniform, Poisson, hyper-exponential, on and off |
//! | [`place`] | where: uniform, Zipf, sequential, strided, or a mixture |
//! | [`size`] | how much: one size, a choice, a range |
//! | [`stream`] | open loop: at their times, whatever the target does |
//! | [`users`] | closed loop: the next one when the last has ended; sessions, partly open |
//! | [`transactions`] | TPC-B-like transactions |
//! | [`spc1`] | the eight streams of an SPC-1-like business scaling unit |
//! | [`postmark`] | small files that come and go |
//! | [`specweb`] | the files that web servers are asked for |
//! | [`mod@file`] | a file (TOML) that combines them |
//!
//! What is drawn is drawn cheaply (tens of ns): [`weighted`] sums its weights once. [`pace`] says
//! whether a mix is open or closed.
//!
//! Everything is drawn from a seed: the same seed gives the same requests.

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
pub use place::{Ground, Place, Placer};
pub use size::{Size, Sizer};
pub use weighted::Weighted;

use crate::{Io, Kind};

/// What a filament does, but for the times: which kind, where, how much.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Kinds, each with its weight.
    pub kinds: Vec<(Kind, f64)>,
    /// Where.
    pub place: Place,
    /// How much.
    pub size: Size,
    /// The part of the target that is used: its first byte, and how many bytes.
    pub begin: u64,
    /// See `begin`.
    pub span: u64,
    /// Offsets are multiples of this; 0: of the size.
    pub align: u64,
    /// How many files there are; which one is as likely as any other.
    pub files: u32,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            kinds: vec![(Kind::Read, 1.0)],
            place: Place::Uniform,
            size: Size::Fixed(4096),
            begin: 0,
            span: 1 << 30,
            align: 0,
            files: 1,
        }
    }
}

/// Where I/Os come from.
pub trait Draw: Send {
    /// The next one.
    fn draw(&mut self) -> Io;

    /// Where the numbers come from.
    fn random(&mut self) -> &mut fastrand::Rng;
}

/// Draws I/Os of a mix. Each ends within the span: one that is longer than it is cut.
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
    /// Draws from this seed on.
    ///
    /// # Panics
    /// Without kinds.
    pub fn new(mix: Mix, seed: u64) -> Drawer {
        let longest = u64::from(mix.size.max());
        let (align, grain) = match mix.align {
            0 => (longest, u64::from(mix.size.grain())),
            align => (align, align),
        };
        let ground = Ground { span: mix.span, longest, align, grain };
        Drawer {
            kinds: Weighted::new(mix.kinds),
            sizer: Sizer::new(&mix.size),
            placer: Placer::new(&mix.place, ground),
            begin: mix.begin,
            span: mix.span,
            files: mix.files,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The next one.
    pub fn draw(&mut self) -> Io {
        let kind = *self.kinds.draw(&mut self.random);
        let file = if self.files > 1 { self.random.u32(..self.files) } else { 0 };
        // A sync has no place: it does not move a sequential stream on.
        match kind {
            Kind::Sync => Io { kind, file, offset: 0, len: 0 },
            Kind::Read | Kind::Write | Kind::Trim | Kind::Create | Kind::Remove => {
                let len = u64::from(self.sizer.draw(&mut self.random)).min(self.span);
                let offset = self.begin + self.placer.draw(len, &mut self.random);
                Io { kind, file, offset, len: len as u32 }
            }
        }
    }

    /// Where the numbers come from.
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

/// A seed of its own for each part of a workload: neighbours have nothing in common (the last step
/// of SplitMix64).
pub fn seed(seed: u64, part: u64) -> u64 {
    let mut mixed = seed ^ part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
