//! All parameters of a run, drawn from its seed before it begins.
//!
//! *Swarm*: each run enables a random subset of the faults and draws its own latencies and
//! limits, so that rare combinations are met and some runs are calm.

use base::rng::Rng;

/// Fault rates, each per 100,000 occasions.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A read fails with an I/O error.
    pub read_error: u32,
    /// A write fails with an I/O error, perhaps halfway.
    pub write_error: u32,
    /// A sync fails with an I/O error.
    pub sync_error: u32,
    /// The disk is full, perhaps halfway through a write.
    pub no_space: u32,
    /// A write is short.
    pub short_write: u32,
    /// A path operation fails before it has done anything.
    pub path_error: u32,
    /// A path operation fails though it has done its work.
    pub late_error: u32,
    /// The process has no file descriptor left.
    pub too_many_open: u32,
    /// An operation takes seconds.
    pub hang: u32,
    /// Accepting fails.
    pub accept_error: u32,
    /// The connection is reset while bytes are on their way.
    pub reset: u32,
    /// A client does not read for a while.
    pub stall: u32,
}

/// Parameters.
#[derive(Clone, Debug)]
pub struct Params {
    /// The seed.
    pub seed: u64,
    /// Latency of the disk: usual, and in one of eight cases, microseconds.
    pub disk_us: (u64, u64),
    /// Maximum latency of the network, microseconds.
    pub net_us: u64,
    /// Maximum duration of a turn of the node, microseconds.
    pub turn_us: u64,
    /// Maximum number of bytes of one receive.
    pub piece_max: usize,
    /// Maximum number of bytes in flight to a client that does not read.
    pub window: usize,
    /// Backlog of connections waiting to be accepted.
    pub backlog: usize,
    /// Fault rates.
    pub faults: Faults,
    /// Clients that speak 9P2000.L.
    pub linux: usize,
    /// Clients that speak 9P2000.
    pub plan9: usize,
    /// Clients that speak HTTP.
    pub http: usize,
    /// Clients that change one file over HTTP conditionally.
    pub racers: usize,
    /// Clients that list a directory while it changes.
    pub listers: usize,
    /// Clients that read streams of subtrees.
    pub subtrees: usize,
    /// Clients that edit one file together.
    pub editors: usize,
    /// Maximum number of bytes of one of their writes.
    pub edit_max: usize,
    /// One of this number of their bursts is followed by a disconnect; zero: never.
    pub edit_breaks: u32,
    /// Requests of each client.
    pub requests: u32,
    /// Maximum outstanding requests of each client.
    pub outstanding: usize,
    /// One of this number of requests is followed by a disconnect; zero: never.
    pub disconnect: u32,
    /// One of this number of messages is malformed; zero: never.
    pub malformed: u32,
    /// Maximum size of a 9P message, bytes.
    pub msize: u32,
    /// Maximum number of concurrent calls on a connection.
    pub calls: usize,
    /// Maximum outstanding bytes of a connection, and of all.
    pub bytes: (usize, usize),
    /// Maximum number of connections.
    pub connections: usize,
    /// Constant entries in the directory that changes.
    pub entries: usize,
    /// Whether files have holes beyond 4 GiB.
    pub huge: bool,
    /// Whether the host's file system lacks unnamed files.
    pub needs_names: bool,
    /// Whether a volume is served instead of a directory of the host.
    pub volume: bool,
    /// Clients that exceed quotas, their administrator, and power failures, on a volume.
    pub quotas: Option<Quotas>,
    /// Turn in which the node is asked to stop, while the clients are still busy.
    pub stop_after: Option<u64>,
}

/// Parameters of quotas.
#[derive(Clone, Debug)]
pub struct Quotas {
    /// Clients.
    pub clients: usize,
    /// Clients that upload over HTTP.
    pub uploaders: usize,
    /// Entries of each client.
    pub entries: usize,
    /// Requests of each.
    pub requests: u32,
    /// Maximum number of blocks of a limit.
    pub blocks_max: u64,
    /// Growths of the volume.
    pub growths: u32,
    /// Power failures, after which the server starts again.
    pub failures: u32,
}

/// Memory for all connections with which no request waits for memory, bytes.
const MEMORY_ENOUGH: usize = 8 << 20;

/// Number of connections that is never reached.
const PLACES_ENOUGH: usize = 100;

impl Params {
    /// Draws the parameters of a run.
    pub fn draw(seed: u64) -> Params {
        let mut rng = base::rng::seeded(seed);
        let small = rng.bool();
        let pick = |rng: &mut Rng, from: &[u64]| from[rng.usize(..from.len())];
        let msize = match small {
            true => 4096,
            false => pick(&mut rng, &[8192, 65_536, 1 << 20]) as u32,
        };
        let mut edits = base::rng::seeded(seed ^ 0xed17);
        let disk = pick(&mut rng, &[0, 20, 200, 5000]);
        let limit =
            |rng: &mut Rng, tight: usize| if small { tight } else { rng.usize(8..40) << 20 };
        let mut params = Params {
            seed,
            disk_us: (disk, disk * pick(&mut rng, &[1, 10, 50])),
            net_us: pick(&mut rng, &[1, 50, 1000, 50_000]),
            turn_us: pick(&mut rng, &[1, 10, 100]),
            piece_max: pick(&mut rng, &[1, 7, 100, 5000, 1 << 20, 1 << 20]) as usize,
            window: pick(&mut rng, &[300, 9000, 1 << 18]) as usize,
            backlog: pick(&mut rng, &[1, 4, 64]) as usize,
            faults: Faults::draw(&mut rng),
            linux: rng.usize(1..5),
            plan9: rng.usize(0..3),
            http: rng.usize(0..4),
            racers: base::rng::seeded(seed ^ 0x7ace).usize(0..5),
            listers: rng.usize(0..3),
            subtrees: base::rng::seeded(seed ^ 0x5b7e).usize(0..3),
            editors: edits.usize(0..4),
            edit_max: pick(&mut edits, &[700, 120_000]) as usize,
            edit_breaks: pick(&mut edits, &[0, 10]) as u32,
            requests: rng.u32(40..400),
            outstanding: pick(&mut rng, &[1, 3, 10, 40]) as usize,
            disconnect: pick(&mut rng, &[0, 0, 50, 400]) as u32,
            malformed: pick(&mut rng, &[0, 0, 60]) as u32,
            msize,
            calls: if small { rng.usize(1..5) } else { 1024 },
            bytes: (limit(&mut rng, 6000), limit(&mut rng, 20_000)),
            connections: if small { rng.usize(1..6) } else { 1000 },
            entries: pick(&mut rng, &[0, 3, 60, 60, 2500]) as usize,
            huge: rng.bool(),
            stop_after: (rng.u8(..) < 40).then(|| rng.u64(5..2000)),
            needs_names: edits.bool(),
            volume: rng.u8(0..3) == 0,
            quotas: None,
        };
        if params.connections == 1 && params.window == 300 {
            // Each waits for its connection until all others are done, at 6 KB a second or less.
            params.requests = params.requests.min(80);
        }
        // A temporary file stays if its removal fails, or its creation reports a failure.
        let Faults { path_error, late_error, too_many_open, .. } = params.faults;
        params.needs_names &= path_error + late_error + too_many_open == 0;
        if params.volume {
            params.serve_volume(&mut edits);
        }
        params
    }

    /// Adapts the parameters to a volume. It is visible only through the server, so every result
    /// must be known, except those of editors.
    fn serve_volume(&mut self, edits: &mut Rng) {
        if self.editors > 1 && edits.bool() {
            self.leave_to_editors();
        }
        let Faults { reset, stall, hang, .. } = self.faults;
        self.faults = match self.linux {
            0 => Faults { reset, stall, hang, ..Faults::default() },
            _ => Faults::default(),
        };
        (self.listers, self.disconnect, self.malformed) = (0, 0, 0);
        self.stop_after = None;
        self.quotas = Quotas::draw(self.seed, self.requests);
        if self.quotas.as_ref().is_some_and(|quotas| quotas.failures > 0) {
            self.leave_to_quota_clients();
        }
        // Nor may a client be disconnected in favour of others.
        self.have_enough();
    }

    /// Leaves only editors, whose writes may be too large for the journal.
    fn leave_to_editors(&mut self) {
        (self.linux, self.plan9, self.http, self.racers) = (0, 0, 0, 0);
        self.subtrees = 0;
        (self.msize, self.bytes.0, self.edit_max) = (1 << 20, MEMORY_ENOUGH, 120_000);
        (self.piece_max, self.window) = (1 << 20, 1 << 18);
        (self.calls, self.requests) = (self.calls.max(8), self.requests.min(200));
    }

    /// Leaves only clients that know what is durable.
    fn leave_to_quota_clients(&mut self) {
        (self.linux, self.plan9, self.http, self.racers) = (0, 0, 0, 0);
        (self.subtrees, self.editors) = (0, 0);
    }

    /// Returns whether all space of a volume can be used in reasonable time, without other clients
    /// that need some.
    pub(crate) fn fills(&self) -> bool {
        let is_fast = self.piece_max >= 5000 && self.window >= 9000 && self.msize >= 65_536;
        is_fast && self.quotas.as_ref().is_some_and(|quotas| quotas.failures > 0)
    }

    /// Provides enough memory and connections for all clients.
    fn have_enough(&mut self) {
        self.bytes.1 = self.bytes.1.max(MEMORY_ENOUGH);
        self.connections = self.connections.max(PLACES_ENOUGH);
    }

    /// Returns whether slow or idle clients may be disconnected in favour of others.
    pub fn may_cut(&self) -> bool {
        self.bytes.1 < MEMORY_ENOUGH || self.connections < PLACES_ENOUGH
    }

    /// Returns the maximum size, bytes, of an editor's write that passes the network in reasonable
    /// time.
    pub fn payload_max(&self) -> usize {
        self.edit_max.min(self.piece_max.max(20) * 300).min(self.window * 20)
    }

    /// Returns the same run of a volume with clients of quotas only, for tests.
    pub(crate) fn with_quotas(mut self, failures: u32) -> Params {
        (self.volume, self.listers) = (true, 0);
        self.leave_to_quota_clients();
        (self.piece_max, self.window, self.edit_max) = (1 << 20, 1 << 18, 120_000);
        self.msize = 1 << 20;
        self.bytes.0 = MEMORY_ENOUGH;
        let (clients, uploaders, entries, requests, blocks_max) = (2, 1, 3, 150, 25);
        let growths = 2;
        self.quotas =
            Some(Quotas { clients, uploaders, entries, requests, blocks_max, growths, failures });
        self
    }

    /// Returns a light run for tests: fewer requests.
    pub fn light(seed: u64) -> Params {
        let mut params = Params::draw(seed);
        params.requests = params.requests.min(60);
        params.entries = params.entries.min(60);
        if let Some(quotas) = &mut params.quotas {
            quotas.requests = quotas.requests.min(60);
        }
        params
    }

    /// Returns a calm run: no faults and no disconnects, so that every result is known.
    pub fn calm(seed: u64) -> Params {
        let mut params = Params::light(seed);
        params.faults = Faults::default();
        (params.disconnect, params.malformed, params.stop_after) = (0, 0, None);
        params.edit_breaks = 0;
        params.have_enough();
        params
    }
}

impl Quotas {
    /// Draws the parameters of quotas of half of the runs.
    fn draw(seed: u64, requests: u32) -> Option<Quotas> {
        let mut rng = base::rng::seeded(seed ^ 0x9007a);
        rng.bool().then(|| Quotas {
            clients: rng.usize(1..4),
            entries: rng.usize(1..5),
            requests,
            blocks_max: [6, 25, 150][rng.usize(..3)],
            growths: rng.u32(..3),
            failures: if rng.bool() { rng.u32(1..5) } else { 0 },
            uploaders: rng.usize(0..3),
        })
    }
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        if rng.u8(..4) == 0 {
            return Faults::default();
        }
        let mut chance = |most: u32| if rng.bool() { rng.u32(1..=most) } else { 0 };
        Faults {
            read_error: chance(5000),
            write_error: chance(5000),
            sync_error: chance(20_000),
            no_space: chance(4000),
            short_write: chance(10_000),
            path_error: chance(3000),
            late_error: chance(3000),
            too_many_open: chance(2000),
            hang: chance(1000),
            accept_error: chance(50_000),
            reset: chance(300),
            stall: chance(300),
        }
    }
}
