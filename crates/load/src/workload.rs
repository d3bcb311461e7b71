//! The library of workloads: filaments that say when, where, how much, and in which order.
//!
//! | part | what it says |
//! |---|---|
//! | [`arrival`] | when the next one comes: uniform, Poisson, hyper-exponential, on and off |
//! | [`place`] | where: uniform, Zipf, sequential, strided, or a mixture |
//! | [`size`] | how much: one size, a choice, a range |
//! | [`stream`] | open loop: at their times, whatever the target does |
//! | [`users`] | closed loop: the next one when the last has ended, after a time to think; and sessions, which come by themselves and are closed inside (partly open) |
//! | [`transactions`] | TPC-B-like transactions |
//! | [`spc1`] | the eight streams of an SPC-1-like business scaling unit |
//! | [`postmark`] | small files that come and go |
//! | [`specweb`] | the files that web servers are asked for |
//! | [`file`] | a file (TOML) that combines them |
//!
//! Everything is drawn from a seed: the same seed gives the same requests.

pub mod arrival;
pub mod place;
pub mod size;
pub mod stream;
pub mod users;

pub use arrival::Arrival;
pub use place::{Place, Placer};
pub use size::Size;

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

/// Draws I/Os of a mix.
#[derive(Clone, Debug)]
pub struct Drawer {
    mix: Mix,
    placer: Placer,
    random: fastrand::Rng,
}

impl Drawer {
    /// Draws from this seed on.
    pub fn new(mix: Mix, seed: u64) -> Drawer {
        let align = if mix.align == 0 { u64::from(mix.size.max()) } else { mix.align };
        let align = align.max(1);
        let room = mix.span.saturating_sub(u64::from(mix.size.max()));
        let placer = Placer::new(&mix.place, room / align + 1, align);
        Drawer { mix, placer, random: fastrand::Rng::with_seed(seed) }
    }

    /// The next one.
    pub fn draw(&mut self) -> Io {
        let kind = *choose(&self.mix.kinds, &mut self.random);
        let len = self.mix.size.draw(&mut self.random);
        let offset = self.mix.begin + self.placer.draw(u64::from(len), &mut self.random);
        let file = if self.mix.files > 1 { self.random.u32(..self.mix.files) } else { 0 };
        match kind {
            Kind::Sync => Io { kind, file, offset: 0, len: 0 },
            Kind::Read | Kind::Write | Kind::Trim | Kind::Create | Kind::Remove => {
                Io { kind, file, offset, len }
            }
        }
    }

    /// Where the numbers come from.
    pub fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }
}

/// One of these, by weight.
///
/// # Panics
/// If there are none.
pub fn choose<'a, T>(among: &'a [(T, f64)], random: &mut fastrand::Rng) -> &'a T {
    let (last, most) = among.split_last().expect("there is something to choose from");
    if most.is_empty() {
        return &last.0;
    }
    let total: f64 = among.iter().map(|(_, weight)| weight).sum();
    let mut left = random.f64() * total;
    for (what, weight) in most {
        left -= weight;
        if left < 0.0 {
            return what;
        }
    }
    &last.0
}
