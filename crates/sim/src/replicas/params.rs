//! What a run of replicated services is made of, drawn from its seed.

use super::canary::Mistake;
use base::rng::Rng;
use replica::data::Kind;

/// The types of data that are drawn.
pub const KINDS: [Kind; 7] =
    [Kind::Log, Kind::Set, Kind::Map, Kind::Counter, Kind::Text, Kind::Register, Kind::Sheet];

/// How often each kind of trouble is chosen; zero: never.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// The power of a server fails.
    pub power: u32,
    /// A server dies, and its disk keeps what it was given.
    pub kill: u32,
    /// A server is cut off from some of the others, one way or both.
    pub cut: u32,
    /// A server stands still: what is sent to it is swallowed.
    pub freeze: u32,
    /// The connections of others to a server are reset.
    pub reset: u32,
    /// All servers are cut off from each other for longer than a member may be silent; then one
    /// pair after the other is connected again.
    pub outage: u32,
}

impl Trouble {
    /// The sum of all.
    pub fn sum(&self) -> u32 {
        self.power + self.kill + self.cut + self.freeze + self.reset + self.outage
    }
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Params {
    /// From this.
    pub seed: u64,
    /// What is replicated.
    pub kind: Kind,
    /// Servers, each with a replica.
    pub replicas: usize,
    /// Whether one more becomes a member when they have begun.
    pub joins: bool,
    /// Whether the last one of the first members is to leave.
    pub leaves: bool,
    /// Time for which a member must be silent to be removed by all others, milliseconds; never, if
    /// none.
    pub remove_after_ms: Option<u64>,
    /// Clients.
    pub askers: usize,
    /// How many operations each of them asks for.
    pub operations: u32,
    /// How many of them are strict, percent.
    pub strict: u32,
    /// How many only look, percent.
    pub looks: u32,
    /// How many clients have no sessions of their own, and send nothing again, percent.
    pub plain: u32,
    /// How often a client goes to another replica when it has its answers, percent.
    pub wander: u32,
    /// How many operations are asked for at once, at most.
    pub batch: usize,
    /// How long an operation is beside what tells it from others, bytes.
    pub padding: usize,
    /// How long a client lets a replica try, milliseconds.
    pub timeout_ms: u64,
    /// Pause of a client between two questions at most, milliseconds.
    pub pace_ms: u64,
    /// What goes wrong.
    pub trouble: Trouble,
    /// How many times in all.
    pub troubles: u32,
    /// Pause between two troubles at most, milliseconds.
    pub pause_ms: u64,
    /// How long one lasts at most, milliseconds.
    pub lasts_ms: u64,
    /// By how much clocks differ at most, seconds.
    pub skew_s: u64,
    /// Blocks of the disks, bytes, and of their journals.
    pub disk: (usize, u64),
    /// Most blocks that a server has in memory.
    pub cache: usize,
    /// Somebody between replicas changes what one of them writes to another, one in so many times;
    /// 0 is never.
    pub forges: u32,
    /// Units of work that a replica begins in one turn.
    pub work: u64,
    /// Time that a unit of work takes, nanoseconds: the node that has the replica is busy for so
    /// long, and home is not.
    pub unit_ns: u64,
    /// Time that a letter between nodes of a server takes at most, microseconds.
    pub letters_us: u64,
    /// What the world is like.
    pub world: crate::params::Params,
    /// A mistake that is planted.
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
            askers: rng.usize(1..=5),
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

    /// Members that stand still, or are cut off, for long are removed. Then nobody joins or leaves.
    pub(super) fn let_remove(&mut self) {
        (self.joins, self.leaves, self.replicas) = (false, false, self.replicas.max(3));
        (self.remove_after_ms, self.lasts_ms, self.pause_ms) = (Some(10_000), 40_000, 10_000);
        let trouble = &mut self.trouble;
        (trouble.freeze, trouble.cut) = (trouble.freeze.max(10), trouble.cut.max(5));
        trouble.outage = 5;
    }

    /// All that are members at any time.
    pub(super) fn members(&self) -> usize {
        self.replicas + usize::from(self.joins)
    }

    /// The one that is to leave.
    pub(super) fn leaver(&self) -> Option<usize> {
        self.leaves.then(|| self.replicas - 1)
    }

    /// Operations are so large that journals are written anew. A slower disk, or slower work, would
    /// not keep up with what is sent again and again.
    fn swell(&mut self) {
        (self.padding, self.operations, self.looks) = (60_000, 60, 10);
        (self.askers, self.disk.0, self.cache) = (self.askers.max(4), 4096, 3000);
        self.unit_ns = self.unit_ns.min(300);
        let world = &mut self.world;
        (world.piece_max, world.window, world.disk_us) = (1 << 20, 1 << 18, (20, 200));
    }

    /// A light run for tests: fewer operations.
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
