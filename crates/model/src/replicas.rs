//! Random runs of the replicas that people use, in a world where messages are lost, repeated and
//! late, replicas are cut off from each other and crash, and what is not in a journal is gone.

mod changes;
mod clients;
mod linear;
mod world;

use crate::trail::Trail;
use base::rng::Rng;
use replica::service::{Amount, Limits};
use std::collections::BTreeSet;
use std::time::Duration;

pub use world::run;

/// One in so many runs is of few operations, all of them strict, and must be linearizable.
const LINEAR: u64 = 4;

/// What is wrong with a world on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The journal says that records are written before they are.
    EarlyJournal,
    /// A replica says that it has what it has not.
    FalseVector,
    /// An operation arrives with a smaller label than it was given.
    OtherLabel,
    /// An operation arrives without what it must come behind.
    NoDependencies,
    /// A snapshot forgets what follows its base.
    HalfSnapshot,
    /// A client forgets its token, and wants to see what it has seen.
    LostToken,
    /// A replica that crashes forgets the change that it has sealed.
    ForgottenSeal,
    /// A new member begins with nothing.
    EmptyGift,
}

impl Mistake {
    /// Every mistake.
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
    /// What it must be found by: one of these.
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

/// Everything that a run is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Where the run begins.
    pub seed: u64,
    /// So many replicas.
    pub replicas: u16,
    /// So many clients, each of which asks one thing after the other.
    pub clients: usize,
    /// So many operations in all.
    pub operations: u64,
    /// How many of them are strict, percent.
    pub strict: u32,
    /// How often a client goes to another replica, percent.
    pub wander: u32,
    /// How long operations gather.
    pub gossip: Duration,
    /// How long a message takes, at most.
    pub delay: Duration,
    /// How long the journal takes, at most.
    pub journal: Duration,
    /// Messages that are lost, percent.
    pub lost: u32,
    /// Messages that arrive twice, percent.
    pub repeated: u32,
    /// Crashes, cuts and snapshots, one in so many events; 0 is never.
    pub crashes: u32,
    /// The same.
    pub cuts: u32,
    /// The same.
    pub snapshots: u32,
    /// Members are added, removed, and lost; the same.
    pub changes: u32,
    /// Those that are lost, if any are, one after the other.
    pub doomed: BTreeSet<u16>,
    /// Whether others do not hear these at times, and may remove them.
    pub silences: bool,
    /// How much there may be of what could be too much.
    pub limits: Limits,
    /// Units of work that a step may begin.
    pub work: u64,
    /// What is wrong on purpose.
    pub mistake: Option<Mistake>,
}

impl Params {
    /// Draws them.
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
    /// How long an answer may take, if there is no trouble: what must come before it travels, it is
    /// written, travels, is written there, and that travels back; and a message that was overtaken
    /// is told again.
    fn patience(&self) -> Option<Duration> {
        let troubles = self.lost + self.crashes + self.cuts + self.changes;
        let travels = self.gossip + 3 * self.delay + 2 * self.journal;
        let well = troubles == 0 && self.limits == Limits::default();
        well.then_some(travels + Duration::from_secs(2))
    }
}

/// Small ones, half of the time, so that they are reached.
fn draw_limits(rng: &mut Rng) -> Limits {
    if rng.bool() {
        return Limits::default();
    }
    // An operation takes some two hundred bytes.
    let mut few = |times| {
        let operations = times * rng.usize(1..=8);
        let bytes = if rng.bool() { usize::MAX } else { times * rng.usize(1..=2000) };
        Amount { operations, bytes }
    };
    let (window, message, early, kept, blocked) = (few(1), few(1), few(1), few(5), few(1));
    Limits { kept, window, message, early, blocked, unsaid: few(1) }
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that it took.
    pub events: usize,
    /// Operations that were answered.
    pub answered: usize,
    /// Requests that were refused, or whose replica crashed.
    pub unanswered: usize,
    /// Answers that were not the eventual ones.
    pub inconsistent: usize,
    /// Crashes.
    pub crashes: usize,
    /// Memberships that replicas have reached, behind the first.
    pub epochs: usize,
    /// Changes that replicas began, because a member was silent.
    pub removals: usize,
    /// Histories that were looked at as a whole and are linearizable.
    pub linear: usize,
}

impl Report {
    /// What several runs have shown.
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

type Replica = replica::service::Replica<Trail>;
