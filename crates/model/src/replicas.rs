//! Random runs of the production replicas in a faulty world: messages are lost, duplicated and
//! delayed, replicas are partitioned and crash, and unwritten journal records are lost.

mod changes;
mod clients;
mod linear;
mod world;

use crate::op_list::OpList;
use base::rng::Rng;
use replica::service::{Amount, Limits};
use std::collections::BTreeSet;
use std::time::Duration;

pub use world::run;

/// One in this many runs has few operations, all strict, and must be linearizable.
const LINEAR: u64 = 4;

/// Fault injected on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The journal reports records as written before they are.
    EarlyJournal,
    /// A replica claims operations that it does not have.
    FalseVector,
    /// An operation arrives with a smaller label than its own.
    OtherLabel,
    /// An operation arrives without its predecessors.
    NoDependencies,
    /// A snapshot omits the operations after its base.
    HalfSnapshot,
    /// A client loses its token, but expects to see what it has seen.
    LostToken,
    /// A crash loses the sealed change.
    ForgottenSeal,
    /// A new member starts from an empty snapshot.
    EmptyGift,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 8] = [
        Mistake::EarlyJournal,
        Mistake::FalseVector,
        Mistake::OtherLabel,
        Mistake::NoDependencies,
        Mistake::HalfSnapshot,
        Mistake::LostToken,
        Mistake::ForgottenSeal,
        Mistake::EmptyGift,
    ];
}

impl Mistake {
    /// Violations, one of which must detect it.
    pub fn breaks(self) -> &'static [&'static str] {
        match self {
            Mistake::EarlyJournal => &["G4", "G6", "I2", "I6"],
            Mistake::LostToken => &["G6", "I4"],
            Mistake::FalseVector => &["I2"],
            Mistake::OtherLabel => &["I4", "I6", "I7", "I8", "G1"],
            Mistake::NoDependencies => &["I4"],
            Mistake::HalfSnapshot => &["I2", "I6", "I8", "G4"],
            Mistake::ForgottenSeal => &["G1", "G4", "I2", "I6", "I7"],
            Mistake::EmptyGift => &["I2", "I4", "I6", "I7", "I8", "G4"],
        }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Random seed.
    pub seed: u64,
    /// Number of replicas.
    pub replicas: u16,
    /// Number of clients, each with one request outstanding.
    pub clients: usize,
    /// Total number of operations.
    pub operations: u64,
    /// Strict operations, in percent.
    pub strict: u32,
    /// Probability that a client changes its replica, in percent.
    pub wander: u32,
    /// Gossip interval.
    pub gossip: Duration,
    /// Maximum delay of a message.
    pub delay: Duration,
    /// Maximum delay of a journal write.
    pub journal: Duration,
    /// Lost messages, in percent.
    pub lost: u32,
    /// Duplicated messages, in percent.
    pub repeated: u32,
    /// Crashes: one in this many events; 0 for none.
    pub crashes: u32,
    /// Partitions, in the same form.
    pub cuts: u32,
    /// Snapshots, in the same form.
    pub snapshots: u32,
    /// Membership changes, in the same form.
    pub changes: u32,
    /// Replicas that may be lost, one after the other.
    pub doomed: BTreeSet<u16>,
    /// Whether these are silent at times, and may be removed by the others.
    pub silences: bool,
    /// Limits of the replicas.
    pub limits: Limits,
    /// Work units started in a step.
    pub work: u64,
    /// Injected fault.
    pub mistake: Option<Mistake>,
}

impl Params {
    /// Draws random parameters.
    pub fn draw(seed: u64, mistake: Option<Mistake>) -> Params {
        let mut rng = base::rng::seeded(seed);
        let often = |rng: &mut Rng| if rng.bool() { 0 } else { rng.u32(20..400) };
        let most = |rng: &mut Rng| Duration::from_micros(rng.u64(1..=20_000));
        let mut params = Params {
            seed,
            replicas: rng.u16(1..=5),
            clients: rng.usize(1..=6),
            operations: rng.u64(1..=60),
            strict: rng.u32(0..=100),
            wander: rng.u32(0..=100),
            gossip: most(&mut rng),
            delay: most(&mut rng),
            journal: most(&mut rng),
            lost: if rng.bool() { 0 } else { rng.u32(0..60) },
            repeated: if rng.bool() { 0 } else { rng.u32(0..60) },
            crashes: often(&mut rng),
            cuts: often(&mut rng),
            snapshots: often(&mut rng),
            changes: often(&mut rng),
            doomed: BTreeSet::new(),
            silences: false,
            limits: draw_limits(&mut rng),
            work: if rng.bool() { u64::MAX } else { rng.u64(1..=40) },
            mistake,
        };
        if rng.bool() {
            params.doomed = (0..rng.u16(1..=2)).map(|_| rng.u16(..params.replicas)).collect();
            params.changes = rng.u32(10..80);
        }
        params.silences = !params.doomed.is_empty() && !seed.is_multiple_of(3);
        if seed.is_multiple_of(LINEAR) {
            params.strict = 100;
            params.operations = params.operations.min(linear::OPERATIONS_MAX);
        }
        match mistake {
            Some(Mistake::EarlyJournal) => params.crashes = 20,
            Some(Mistake::HalfSnapshot) => (params.crashes, params.snapshots) = (20, 10),
            Some(Mistake::LostToken) => params.wander = 100,
            Some(Mistake::ForgottenSeal) => (params.crashes, params.changes) = (20, 20),
            Some(Mistake::EmptyGift) => params.changes = 20,
            Some(Mistake::FalseVector | Mistake::OtherLabel | Mistake::NoDependencies) | None => {}
        }
        params
    }
}

impl Params {
    /// Maximum time to an answer without faults: a predecessor arrives, is written and
    /// acknowledged, the operation is written, sent, written there, and acknowledged; and an
    /// overtaken message is retransmitted.
    fn timeout(&self) -> Option<Duration> {
        let troubles = self.lost + self.crashes + self.cuts + self.changes;
        let travels = self.gossip + 3 * self.delay + 2 * self.journal;
        let well = troubles == 0 && self.limits == Limits::default();
        well.then_some(travels + Duration::from_secs(2))
    }
}

/// Small limits in half of the runs, so that they are reached.
fn draw_limits(rng: &mut Rng) -> Limits {
    if rng.bool() {
        return Limits::default();
    }
    // An operation has about two hundred bytes.
    let mut few = |times| {
        let operations = times * rng.usize(1..=8);
        let bytes = if rng.bool() { usize::MAX } else { times * rng.usize(1..=2000) };
        Amount { operations, bytes }
    };
    let (window, message, early, kept, blocked) = (few(1), few(1), few(1), few(5), few(1));
    Limits { kept, window, message, early, blocked, pending_answers: few(1) }
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events.
    pub events: usize,
    /// Answered operations.
    pub answered: usize,
    /// Requests that were refused, or lost in a crash of the replica.
    pub unanswered: usize,
    /// Answers that differ from the eventual ones.
    pub inconsistent: usize,
    /// Crashes.
    pub crashes: usize,
    /// Memberships reached by replicas, after the first.
    pub epochs: usize,
    /// Changes started by replicas because of a silent member.
    pub removals: usize,
    /// Complete histories checked and found linearizable.
    pub linear: usize,
}

impl Report {
    /// Adds the result of another run.
    pub fn add(&mut self, other: Report) {
        self.events += other.events;
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.inconsistent += other.inconsistent;
        self.crashes += other.crashes;
        self.linear += other.linear;
        self.epochs += other.epochs;
        self.removals += other.removals;
    }
}

type Replica = replica::service::Replica<OpList>;
