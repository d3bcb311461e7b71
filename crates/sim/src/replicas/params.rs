//! Parameters of a run of replicated services, drawn from its seed.

use super::canary::Mistake;
use base::rng::Rng;
use replica::data::Kind;

/// Types of data to draw from.
pub const KINDS: [Kind; 7] =
    [Kind::Log, Kind::Set, Kind::Map, Kind::Counter, Kind::Text, Kind::Register, Kind::Sheet];

/// Relative frequency of each kind of trouble; zero: never.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Power failure of a server.
    pub power: u32,
    /// Crash of a server whose disk keeps all writes.
    pub kill: u32,
    /// Partition of a server from some of the others, one way or both.
    pub cut: u32,
    /// Freeze of a server: messages to it are swallowed.
    pub freeze: u32,
    /// Reset of the others' connections to a server.
    pub reset: u32,
    /// Partition of all servers from each other for longer than a member may be silent; then the
    /// pairs reconnect one after the other.
    pub outage: u32,
}

impl Trouble {
    /// Returns the sum of all weights.
    pub fn sum(&self) -> u32 {
        self.power + self.kill + self.cut + self.freeze + self.reset + self.outage
    }
}

/// Parameters.
#[derive(Clone, Debug)]
pub struct Params {
    /// The seed.
    pub seed: u64,
    /// Type of the replicated data.
    pub kind: Kind,
    /// Servers, each with a replica.
    pub replicas: usize,
    /// Whether one more member joins during the run.
    pub joins: bool,
    /// Whether the last one of the first members leaves.
    pub leaves: bool,
    /// Silence after which a member is removed by all others, milliseconds; `None`: never.
    pub remove_after_ms: Option<u64>,
    /// Clients.
    pub op_clients: usize,
    /// Operations of each client.
    pub operations: u32,
    /// Strict operations, percent.
    pub strict: u32,
    /// Reads, percent.
    pub looks: u32,
    /// Clients without sessions, which never retransmit, percent.
    pub plain: u32,
    /// Probability that a client moves to another replica after its replies, percent.
    pub wander: u32,
    /// Maximum number of operations in a batch.
    pub batch: usize,
    /// Padding of an operation beyond its unique part, bytes.
    pub padding: usize,
    /// Timeout that a client gives to a replica, milliseconds.
    pub timeout_ms: u64,
    /// Maximum pause of a client between two batches, milliseconds.
    pub pace_ms: u64,
    /// Troubles.
    pub trouble: Trouble,
    /// Number of troubles.
    pub troubles: u32,
    /// Maximum pause between two troubles, milliseconds.
    pub pause_ms: u64,
    /// Maximum duration of a trouble, milliseconds.
    pub lasts_ms: u64,
    /// Maximum clock skew, seconds.
    pub skew_s: u64,
    /// Block size of the disks, bytes, and size of their journals.
    pub disk: (usize, u64),
    /// Maximum number of blocks in a server's cache.
    pub cache: usize,
    /// An attacker between replicas changes one of this number of writes from one to another; 0:
    /// never.
    pub forges: u32,
    /// Units of work that a replica begins in one turn.
    pub work: u64,
    /// Duration of a unit of work, nanoseconds: the replica's node is busy meanwhile, and home is
    /// not.
    pub unit_ns: u64,
    /// Maximum latency of a message between nodes of a server, microseconds.
    pub letters_us: u64,
    /// Parameters of the world.
    pub world: crate::params::Params,
    /// The planted error, if any.
    pub mistake: Option<Mistake>,
}

impl Params {
    /// Draws the parameters of a run.
    pub fn draw(seed: u64) -> Params {
        let mut rng = base::rng::seeded(seed ^ 0x5e71_1ca5);
        let pick = |rng: &mut Rng, from: &[u64]| from[rng.usize(..from.len())];
        let mut weight = |most: u32| if rng.bool() { rng.u32(1..=most) } else { 0 };
        let mut trouble = Trouble {
            power: weight(10),
            kill: weight(5),
            cut: weight(10),
            freeze: weight(5),
            reset: weight(5),
            outage: 0,
        };
        if rng.u8(..8) == 0 {
            trouble = Trouble::default();
        }
        let world = draw_world(&mut rng, seed);
        let pause_ms = pick(&mut rng, &[200, 2000, 10_000]);
        let bulky = rng.u8(..16) == 0;
        let mut params = Params {
            seed,
            kind: KINDS[rng.usize(..KINDS.len())],
            replicas: rng.usize(2..=4),
            joins: seed.is_multiple_of(3),
            leaves: seed % 4 == 1,
            remove_after_ms: None,
            op_clients: rng.usize(1..=5),
            operations: rng.u32(10..60),
            strict: pick(&mut rng, &[0, 10, 50, 100]) as u32,
            looks: pick(&mut rng, &[10, 40]) as u32,
            plain: pick(&mut rng, &[0, 30, 100]) as u32,
            wander: pick(&mut rng, &[0, 20, 100]) as u32,
            batch: rng.usize(1..=5),
            padding: 0,
            timeout_ms: pick(&mut rng, &[300, 2000, 10_000]),
            pace_ms: pause_ms / pick(&mut rng, &[2, 10, 100]),
            trouble,
            troubles: rng.u32(3..20),
            pause_ms,
            lasts_ms: pick(&mut rng, &[500, 5000, 40_000]),
            skew_s: pick(&mut rng, &[0, 3600]),
            disk: (pick(&mut rng, &[512, 4096]) as usize, rng.u64(100..700)),
            cache: pick(&mut rng, &[64, 300, 3000]) as usize,
            forges: if seed % 4 == 2 { rng.u32(5..50) } else { 0 },
            work: pick(&mut rng, &[20, 1000, 1 << 16]),
            unit_ns: pick(&mut rng, &[0, 300, 20_000]),
            letters_us: pick(&mut rng, &[5, 100, 3000]),
            world,
            mistake: None,
        };
        let takes_much = matches!(params.kind, Kind::Log | Kind::Set | Kind::Map | Kind::Counter);
        if bulky && takes_much {
            params.swell();
        }
        if seed % 6 == 4 {
            params.let_remove();
        }
        params
    }

    /// Enables the removal of members that are frozen or partitioned for long. No member joins or
    /// leaves then.
    pub(super) fn let_remove(&mut self) {
        (self.joins, self.leaves, self.replicas) = (false, false, self.replicas.max(3));
        (self.remove_after_ms, self.lasts_ms, self.pause_ms) = (Some(10_000), 40_000, 10_000);
        let trouble = &mut self.trouble;
        (trouble.freeze, trouble.cut) = (trouble.freeze.max(10), trouble.cut.max(5));
        trouble.outage = 5;
    }

    /// Returns the number of all servers that are members at any time.
    pub(super) fn members(&self) -> usize {
        self.replicas + usize::from(self.joins)
    }

    /// Returns the number of the leaving member.
    pub(super) fn leaver(&self) -> Option<usize> {
        self.leaves.then(|| self.replicas - 1)
    }

    /// Makes operations so large that journals are rewritten. A slower disk, or slower work, could
    /// not keep up with retransmissions.
    fn swell(&mut self) {
        (self.op_clients, self.disk.0, self.cache) = (self.op_clients.max(4), 4096, 3000);
        // All of them fit into the 16 MiB that a file of the service shows.
        (self.padding, self.operations, self.looks) = (60_000, 240 / self.op_clients as u32, 10);
        self.unit_ns = self.unit_ns.min(300);
        let world = &mut self.world;
        (world.piece_max, world.window, world.disk_us) = (1 << 20, 1 << 18, (20, 200));
    }

    /// Returns a light run for tests: fewer operations.
    pub fn light(seed: u64) -> Params {
        let mut params = Params::draw(seed);
        params.operations = params.operations.min(20);
        params.padding = 0;
        params
    }
}

fn draw_world(rng: &mut Rng, seed: u64) -> crate::params::Params {
    let mut world = crate::params::Params::calm(seed);
    let pick = |rng: &mut Rng, from: &[u64]| from[rng.usize(..from.len())];
    let disk = pick(rng, &[0, 20, 200, 2000]);
    world.disk_us = (disk, disk * pick(rng, &[1, 10, 100]));
    world.net_us = pick(rng, &[50, 2000, 30_000]);
    world.turn_us = pick(rng, &[1, 10]);
    world.piece_max = pick(rng, &[100, 5000, 1 << 20]) as usize;
    world.window = pick(rng, &[9000, 1 << 18]) as usize;
    (world.backlog, world.connections, world.volume) = (64, 1000, false);
    (world.calls, world.bytes) = (1024, (64 << 20, 256 << 20));
    world.msize = pick(rng, &[1 << 17, 1 << 20]) as u32;
    if rng.u8(..3) == 0 {
        world.faults.write_error = rng.u32(1..1500);
        world.faults.sync_error = rng.u32(1..3000);
        world.faults.read_error = rng.u32(1..1500);
    }
    world.faults.reset = if rng.bool() { 0 } else { rng.u32(1..300) };
    world
}
