//! Random runs of the paper's algorithms: beyond the size of exhaustive checks, with the same judge
//! after each step.

use super::{Event, Service, Trial, stations};
use crate::op_list::OpList;
use base::rng::Rng;
use esds::ioa::{
    Channelled, Combined, Discipline, IoAutomaton, Random, Reserved, Scheduler, all_enabled,
};
use esds::{Descriptor, Hops, Id, Optimised, Pace, Plain, Request, Rules, Slip, Submission};

/// Number of steps after which a run counts as nonterminating.
const STEPS_MAX: usize = 20_000;

/// Number of messages in a channel after which a run counts as nonterminating.
const MESSAGES_MAX: usize = 100;

/// Algorithm of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// *ESDSAlg*, with channels.
    Plain,
    /// *SimpleESDSAlg*: the same, with reservations.
    Simple,
    /// The same, with every message delivered in its own step.
    Atomic,
    /// *ESDSOptAlg*, with channels.
    Optimised,
}

/// Fault injected on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Error in the algorithm.
    Slip(Slip),
    /// Channels of the optimised algorithm reorder.
    Reordered,
    /// Channels of the optimised algorithm lose messages.
    Lossy,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 10] = [
        Mistake::Slip(Slip::OneDelta),
        Mistake::Slip(Slip::LabelsAssigned),
        Mistake::Slip(Slip::ClockNotRaised),
        Mistake::Slip(Slip::LabelsShared),
        Mistake::Slip(Slip::AppliedTwice),
        Mistake::Slip(Slip::SolidifiesForEver),
        Mistake::Slip(Slip::ResentForEver),
        Mistake::Slip(Slip::StrictWhenDone),
        Mistake::Reordered,
        Mistake::Lossy,
    ];
}

impl Mistake {
    /// Violations, one of which must detect it.
    pub fn breaks(self) -> &'static [&'static str] {
        match self {
            Mistake::Slip(Slip::OneDelta) => &["I4", "I5", "I6", "G1", "G4"],
            Mistake::Slip(Slip::LabelsAssigned) => &["I4", "I5", "I6", "I8"],
            Mistake::Slip(Slip::ClockNotRaised | Slip::LabelsShared) => &["I7"],
            Mistake::Slip(Slip::AppliedTwice) => &["G1", "G2"],
            Mistake::Slip(Slip::SolidifiesForEver | Slip::ResentForEver) => &["G4"],
            Mistake::Slip(Slip::StrictWhenDone) => &["G1", "G3"],
            Mistake::Reordered | Mistake::Lossy => &["I4", "I5", "I6", "G1", "G2", "G4"],
        }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Random seed.
    pub seed: u64,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Number of replicas.
    pub replicas: usize,
    /// Planned requests of clients.
    pub plan: Vec<Descriptor<Id>>,
    /// Think time of clients: the probability that a request is delayed by one more step, in
    /// percent.
    pub thought: u32,
    /// Steps between ticks, where gossip is timed.
    pub ticks: usize,
    /// Replicas that receive each operation.
    pub submission: Submission,
    /// Rules of the replicas.
    pub rules: Rules,
    /// Faults of the channels.
    pub discipline: Discipline,
}

impl Params {
    /// Draws random parameters.
    pub fn draw(seed: u64, mistake: Option<Mistake>) -> Params {
        let mut rng = base::rng::seeded(seed);
        let algorithms =
            [Algorithm::Plain, Algorithm::Simple, Algorithm::Atomic, Algorithm::Optimised];
        let mut algorithm = algorithms[rng.usize(..algorithms.len())];
        let replicas = rng.usize(1..=5);
        let hops = if rng.bool() { Hops::Two } else { Hops::Three };
        let mut discipline = Discipline::default();
        if algorithm == Algorithm::Plain && rng.bool() {
            // Gossip with complete contents tolerates duplication, reordering and loss.
            discipline = Discipline { reorders: rng.bool(), loses: rng.bool(), duplicates: true };
        }
        let slip = match mistake {
            Some(Mistake::Slip(slip)) => Some(slip),
            Some(Mistake::Reordered) => {
                discipline = Discipline { reorders: true, ..Discipline::default() };
                algorithm = Algorithm::Optimised;
                None
            }
            Some(Mistake::Lossy) => {
                discipline = Discipline { loses: true, ..Discipline::default() };
                algorithm = Algorithm::Optimised;
                None
            }
            None => None,
        };
        if matches!(slip, Some(Slip::OneDelta | Slip::AppliedTwice | Slip::SolidifiesForEver)) {
            (algorithm, discipline) = (Algorithm::Optimised, Discipline::default());
        }
        let pace = if discipline.loses || rng.bool() { Pace::Ticks } else { Pace::AtOnce };
        let submission = if rng.bool() { Submission::One } else { Submission::All };
        let (plan, thought) = (draw_plan(&mut rng, replicas), rng.u32(0..100));
        let ticks = rng.usize(50..500);
        let rules = Rules { pace, hops, slip };
        Params { seed, algorithm, replicas, plan, thought, ticks, submission, rules, discipline }
    }
}

fn draw_plan(rng: &mut Rng, replicas: usize) -> Vec<Descriptor<Id>> {
    let (count, strict) = (rng.u64(1..=16), rng.u32(0..=100));
    let mut plan = Vec::new();
    for n in 0..count {
        let needs = if n == 0 { 0 } else { rng.u64(0..=2) };
        let descriptor = Descriptor {
            id: Id(n),
            sender: replicas,
            prev: (0..needs).map(|_| Id(rng.u64(0..n))).collect(),
            strict: rng.u32(..100) < strict,
            operator: Id(n),
        };
        plan.push(descriptor);
    }
    plan
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps.
    pub steps: usize,
    /// Whether an answer differed from the eventual one.
    pub inconsistent: bool,
    /// Whether a strict operation preceded one answered earlier.
    pub late: bool,
}

/// Performs a run. Returns the violation, if any.
pub fn run(params: &Params) -> Result<Report, String> {
    let (replicas, rules, discipline) = (params.replicas, params.rules, params.discipline);
    let plain = || {
        stations(replicas, params.submission, rules, |me| Plain::new(OpList, me, replicas, rules))
    };
    match params.algorithm {
        Algorithm::Plain => play(Channelled::new(plain(), discipline), params),
        Algorithm::Simple => {
            let parts = plain().into_iter().map(Reserved::new).collect();
            play(Channelled::new(parts, discipline), params)
        }
        Algorithm::Atomic => play(Combined::new(plain()), params),
        Algorithm::Optimised => {
            let make = |me| Optimised::new(OpList, me, replicas, rules);
            let parts = stations(replicas, params.submission, rules, make);
            play(Channelled::new(parts, discipline), params)
        }
    }
}

fn play<S: Service>(service: S, params: &Params) -> Result<Report, String> {
    let mut trial = Trial::new(service, params.plan.clone());
    let (mut scheduler, mut report) = (Random::seeded(params.seed ^ 0x5c4e), Report::default());
    let mut rng = base::rng::seeded(params.seed ^ 0x7419);
    loop {
        let ticks = params.rules.pace == Pace::Ticks && rng.usize(..params.ticks) == 0;
        if ticks && !trial.is_settled() {
            trial.tick(rng.usize(..=params.replicas));
        }
        let mut choice = scheduler.choose(&trial);
        // Clients think between two requests, some longer than others.
        while matches!(choice, Some(Event::Submit(_)))
            && !all_enabled(&trial.service).is_empty()
            && rng.u32(..100) < params.thought
        {
            choice = scheduler.choose(&trial);
        }
        match choice {
            Some(event) => drop(trial.transition(event)),
            // Lost or delayed gossip is repeated until all replicas know everything.
            None if params.rules.pace == Pace::Ticks && !trial.is_settled() => {
                (0..=params.replicas).for_each(|at| trial.tick(at));
            }
            None => break,
        }
        report.steps += 1;
        if let Some(wrong) = trial.wrong() {
            return Err(format!("{wrong} (step {})", report.steps));
        }
        if report.steps > STEPS_MAX || trial.service.longest_channel() > MESSAGES_MAX {
            return Err("G4: it never ends".into());
        }
    }
    report.inconsistent = trial.has_inconsistent_answer();
    report.late = trial.has_late_answer_before();
    trial.end_is_wrong().map_or(Ok(report), Err)
}

impl<S: Service> Trial<S> {
    /// Triggers the retransmission timer of a part.
    fn tick(&mut self, at: usize) {
        self.service.input((at, Request::Tick));
    }
}
