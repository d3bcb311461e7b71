//! Parameters of a run of storelets, drawn from its seed.

use base::rng::Rng;
use storelet::{Maxima, OVERHEAD};

/// Maximum time of a storelet, and its maximum CPU time, ns.
const TIME_MAX: u64 = 60_000_000_000;
const CPU_MAX: u64 = 1_000_000_000;

/// Parameters.
#[derive(Clone, Debug)]
pub struct Params {
    /// The seed.
    pub seed: u64,
    /// Nodes that run storelets.
    pub workers: usize,
    /// Clients.
    pub run_clients: usize,
    /// Storelets of each client.
    pub jobs: u32,
    /// Maximum latency of a message between nodes, microseconds.
    pub post_us: u64,
    /// Maximum latency of a disk operation, microseconds.
    pub disk_us: u64,
    /// Maximum duration of a compilation, microseconds.
    pub compile_us: u64,
    /// Maximum CPU time of a slice, ns.
    pub slice_ns: u64,
    /// Maximum pause of a client between two actions, microseconds.
    pub pace_us: u64,
    /// Memory for all storelets, bytes; one client may have half of it.
    pub memory: u64,
    /// Maximum CPU time of a worker between two slices, ns.
    pub around_ns: u64,
    /// Whether one client takes as much memory as permitted, and waits, for as long as permitted.
    pub holds: bool,
    /// Whether storelets may change files.
    pub writes: bool,
    /// One of this number of disk operations fails; zero: none.
    pub disk_error: u32,
    /// One of this number of modules is not compiled; zero: none.
    pub refuse: u32,
    /// One of this number of storelets is left before its end; zero: none.
    pub leave: u32,
    /// One of this number of storelets is killed; zero: none.
    pub kill: u32,
    /// One of this number of reads is cancelled; zero: none.
    pub cancel: u32,
    /// One of this number of run requests is invalid; zero: none.
    pub wrong: u32,
    /// Time when the node is asked to stop, if before the clients are done, microseconds.
    pub stop_us: Option<u64>,
}

impl Params {
    /// Draws the parameters of a run.
    pub fn draw(seed: u64) -> Params {
        let mut rng = base::rng::seeded(seed ^ 0x5707_e1e7);
        let pick = |rng: &mut Rng, from: &[u64]| from[rng.usize(..from.len())];
        let often = |rng: &mut Rng, from: &[u32]| from[rng.usize(..from.len())];
        Params {
            seed,
            workers: rng.usize(1..=2),
            run_clients: rng.usize(1..=6),
            jobs: rng.u32(1..=12),
            post_us: pick(&mut rng, &[1, 20, 500, 5000]),
            disk_us: pick(&mut rng, &[1, 100, 3000, 40_000]),
            compile_us: pick(&mut rng, &[10, 1000, 300_000]),
            slice_ns: pick(&mut rng, &[50_000, 1_000_000]),
            pace_us: pick(&mut rng, &[1000, 10_000, 50_000]),
            memory: pick(&mut rng, &[24, 60, 400]) << 20,
            around_ns: pick(&mut rng, &[0, 2000, 50_000]),
            holds: rng.u8(..3) == 0,
            writes: rng.u8(..5) > 0,
            disk_error: often(&mut rng, &[0, 0, 5, 30]),
            refuse: often(&mut rng, &[0, 0, 5, 20]),
            leave: often(&mut rng, &[0, 3, 10]),
            kill: often(&mut rng, &[0, 4, 10]),
            cancel: often(&mut rng, &[0, 10, 40]),
            wrong: often(&mut rng, &[0, 8, 20]),
            stop_us: (rng.u8(..3) == 0).then(|| 1 << rng.u64(4..22)),
        }
    }

    /// Returns the maximum budget of one storelet.
    pub fn maxima(&self) -> Maxima {
        let memory = self.memory / 2 - OVERHEAD;
        Maxima { time_ns: TIME_MAX, cpu_ns: CPU_MAX, memory }
    }

    /// Returns a light run, for tests.
    pub fn light(seed: u64) -> Params {
        let drawn = Params::draw(seed);
        Params { jobs: drawn.jobs.min(4), run_clients: drawn.run_clients.min(4), ..drawn }
    }

    /// Returns a calm run: no faults and no disconnects, so that every end is known.
    pub fn calm(seed: u64) -> Params {
        let drawn = Params::light(seed);
        let (disk_error, refuse, leave, kill, wrong, stop_us) = (0, 0, 0, 0, 0, None);
        Params { disk_error, refuse, leave, kill, wrong, stop_us, writes: true, ..drawn }
    }
}
