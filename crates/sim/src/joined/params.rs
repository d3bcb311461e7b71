//! Parameters of a run of the joined namespace, drawn from its seed.

use base::rng::Rng;
use std::time::Duration;

/// Relative frequency of each kind of trouble; zero: never.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// A server crashes and restarts.
    pub restart: u32,
    /// A server is partitioned from the mux.
    pub cut: u32,
    /// A server freezes.
    pub freeze: u32,
    /// The connections to a server are reset.
    pub reset: u32,
    /// A server lies.
    pub lie: u32,
}

impl Trouble {
    /// Returns the sum of all weights.
    pub fn sum(&self) -> u32 {
        self.restart + self.cut + self.freeze + self.reset + self.lie
    }
}

/// Parameters.
#[derive(Clone, Debug)]
pub struct Params {
    /// The seed.
    pub seed: u64,
    /// Number of other servers.
    pub servers: usize,
    /// Number of clients of the mux.
    pub mux_clients: usize,
    /// Outstanding requests of each client.
    pub lanes: usize,
    /// Requests of each lane.
    pub requests: u32,
    /// Troubles.
    pub trouble: Trouble,
    /// Maximum pause between two troubles, milliseconds.
    pub pause_ms: u64,
    /// Maximum duration of a trouble, milliseconds.
    pub lasts_ms: u64,
    /// Maximum pause of a lane between two requests, milliseconds.
    pub pace_ms: u64,
    /// One of this number of requests is flushed; zero: never.
    pub flush: u32,
    /// One of this number of requests is followed by a disconnect; zero: never.
    pub disconnect: u32,
    /// Whether the mux is mounted in itself, through the network.
    pub again: bool,
    /// Whether walks go deep into cycles.
    pub deep: bool,
    /// Servers without 9P2000.L, as a bit set.
    pub plain: u32,
    /// Parameters of the world.
    pub world: crate::params::Params,
}

impl Params {
    /// Draws the parameters of a run. Five of six runs have a fifth of the requests, so that more
    /// seeds run in the same time.
    pub fn draw(seed: u64) -> Params {
        let long = Params::long(seed);
        let requests = if seed.is_multiple_of(6) { long.requests } else { long.requests / 5 };
        Params { requests, ..long }
    }

    fn long(seed: u64) -> Params {
        let mut rng = base::rng::seeded(seed ^ 0x701_4ed);
        let mut world = crate::params::Params::calm(seed);
        let pick = |rng: &mut Rng, from: &[u64]| from[rng.usize(..from.len())];
        let disk = pick(&mut rng, &[0, 20, 200, 2000]);
        world.disk_us = (disk, disk * pick(&mut rng, &[1, 10]));
        world.net_us = pick(&mut rng, &[1, 50, 2000]);
        world.turn_us = pick(&mut rng, &[1, 10]);
        world.piece_max = pick(&mut rng, &[100, 5000, 1 << 20]) as usize;
        world.window = pick(&mut rng, &[9000, 1 << 18]) as usize;
        (world.backlog, world.connections, world.volume) = (64, 1000, false);
        (world.calls, world.bytes) = (1024, (64 << 20, 256 << 20));
        world.msize = pick(&mut rng, &[8192, 65_536, 1 << 20]) as u32;
        let mut weight = |most: u32| if rng.bool() { rng.u32(1..=most) } else { 0 };
        let mut trouble = Trouble {
            restart: weight(10),
            cut: weight(10),
            freeze: weight(10),
            reset: weight(10),
            lie: weight(5),
        };
        if rng.u8(..8) == 0 {
            trouble = Trouble::default();
        }
        let pause_ms = pick(&mut rng, &[300, 3000, 30_000]);
        Params {
            seed,
            servers: rng.usize(2..=5),
            mux_clients: rng.usize(1..=3),
            lanes: rng.usize(1..=4),
            requests: rng.u32(80..600),
            trouble,
            pause_ms,
            pace_ms: pause_ms / pick(&mut rng, &[1, 3, 10, 100]),
            lasts_ms: pick(&mut rng, &[500, 8000, 60_000]),
            flush: pick(&mut rng, &[0, 10, 40]) as u32,
            disconnect: pick(&mut rng, &[0, 0, 80]) as u32,
            again: rng.bool(),
            deep: rng.u8(..4) == 0,
            plain: if rng.bool() { rng.u32(..) } else { 0 },
            world,
        }
    }

    /// Returns a light run, for tests.
    pub fn light(seed: u64) -> Params {
        let long = Params::long(seed);
        Params { requests: long.requests.min(120), ..long }
    }

    /// Returns whether a server lacks 9P2000.L.
    pub fn is_plain(&self, server: usize) -> bool {
        self.plain >> server & 1 == 1
    }

    /// Returns the server of the file that several clients edit: one that supports appends, if no
    /// server lies.
    pub fn edited(&self) -> Option<usize> {
        (0..self.servers).find(|server| self.trouble.lie == 0 && !self.is_plain(*server))
    }

    /// Maximum duration of a request that touches no server in trouble: some sequential round trips
    /// to servers and as many operations of their disks.
    pub fn prompt(&self) -> Duration {
        let trip = 4 * self.world.net_us + self.world.disk_us.1 + 1000;
        Duration::from_secs(3) + Duration::from_micros(100 * trip)
    }
}
