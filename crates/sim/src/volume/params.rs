//! Parameters of a run, drawn from its seed.

use super::canary::Mistake;
use base::rng;
use store::Geometry;

/// Parameters.
#[derive(Clone, Debug)]
pub struct Params {
    /// The seed.
    pub seed: u64,
    /// Geometry of the volume.
    pub geometry: Geometry,
    /// Blocks of its cache, and maximum number of dirty ones.
    pub cache: (usize, usize),
    /// Maximum number of transactions between two crashes.
    pub commits: u64,
    /// Number of times the volume is opened.
    pub lives: u64,
    /// Number of keys.
    pub keys: u8,
    /// Maximum size of a value, bytes.
    pub value: usize,
    /// Size of raw objects, bytes, and their first offset.
    pub raw: (u64, u64),
    /// Whether snapshots are created and dropped.
    pub snapshots: bool,
    /// Faults of the disk.
    pub faults: Faults,
    /// Whether the volume grows now and then.
    pub grows: bool,
    /// Whether it is rolled back to snapshots.
    pub rolls: bool,
    /// The planted error, if any.
    pub mistake: Option<Mistake>,
}

/// Faults of a disk, each with the inverse of its probability; zero: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read fails, once.
    pub read: u32,
    /// A write or a flush fails, once or permanently.
    pub write: u32,
    /// A flush does nothing.
    pub lie: u32,
    /// A durable bit flips.
    pub rot: u32,
    /// A write goes to another block, or a read comes from one.
    pub misdirect: u32,
}

impl Faults {
    /// Returns whether the disk may lose or corrupt acknowledged data.
    pub fn spoils(self) -> bool {
        self.lie + self.rot + self.misdirect > 0
    }
}

impl Params {
    /// Draws all parameters.
    pub fn draw(seed: u64) -> Params {
        let mut rng = rng::seeded(seed);
        let rng = &mut rng;
        let block = [512, 512, 1024, 4096][rng.usize(0..4)];
        // Sometimes a volume that is nearly too small for its contents, or very large.
        let blocks = match rng.u8(0..16) {
            0 if block == 4096 => 1 << 26,
            0..5 => rng.u64(400..1200),
            _ => rng.u64(1500..6000),
        };
        let journal = rng.u64(48..200);
        let segment = if blocks > 1 << 20 { 32_768 } else { 64 << rng.u32(0..4) };
        let geometry = Geometry { block, blocks, journal, segment };
        let cache = rng.usize(120..500);
        let faults = match rng.u8(0..10) {
            0 => Faults { read: rng.u32(5..40), ..Faults::default() },
            1 => Faults { write: rng.u32(20..200), ..Faults::default() },
            2 => Faults { lie: rng.u32(2..20), ..Faults::default() },
            3 => Faults { rot: rng.u32(5..50), ..Faults::default() },
            4 => Faults { misdirect: rng.u32(20..100), ..Faults::default() },
            _ => Faults::default(),
        };
        let far = rng.u8(0..8) == 0;
        Params {
            seed,
            geometry,
            cache: (cache, cache * rng.usize(4..9) / 10),
            commits: [20, 80, 300][rng.usize(0..3)],
            lives: rng.u64(2..6),
            keys: [3, 40, 200][rng.usize(0..3)],
            value: [60, 600, 3000][rng.usize(0..3)],
            raw: (rng.u64(1000..40_000), if far { 1 << 50 } else { 0 }),
            snapshots: rng.bool(),
            faults,
            grows: rng.bool(),
            rolls: rng.bool(),
            mistake: None,
        }
    }
}
