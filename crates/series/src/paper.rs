//! Algorithms of the paper as processes: [`Plainly`] composed by channels, [`Negotiating`] by
//! reservations.

use crate::actor::{Actor, Order, ReplicaHolder, Requested, Turn, TurnOutcome};
use crate::counted::{Counted, Workload};
use crate::wire::Spoken;
use base::rng::Rng;
use base::{Automaton, Instant as Tick};
use esds::ioa::{
    self, IoAutomaton, PartInput, PartOutput, Process, Reserved, ReservedMessage, Scheduler,
};
use esds::{
    Descriptor, FrontEnd, Id, Message, Pace, Replica, ReplicaPart, Request, Rules, Station,
    Submission,
};
use replica::data::{DataType, Value};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Tasks of a replica other than gossip: answer, do, solidify.
const REPLICA_TASKS: usize = 3;

/// Scheduler controlled by the harness. Actions other than gossip run as soon as they are enabled,
/// answers first; gossip goes to the peers in turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: Turn,
    /// Task after the last one chosen: for gossip, the peer after the last one.
    next: usize,
    /// Whether the current rest has ended.
    rested: bool,
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Scheduler<Station<Counted<D>, R>> for Turns {
    fn choose(
        &mut self,
        station: &Station<Counted<D>, R>,
    ) -> Option<<Station<Counted<D>, R> as IoAutomaton>::Action> {
        let tasks = station.tasks();
        let others = station.replica().map_or(tasks, |_| REPLICA_TASKS);
        let mut actions = Vec::new();
        match self.turn {
            Turn::Hear => return None,
            Turn::Answer => {
                (0..others).find(|task| {
                    station.enabled(*task, &mut actions);
                    !actions.is_empty()
                })?;
            }
            Turn::Gossip => {
                let peers = tasks - others;
                let from = self.next;
                self.next = (0..peers).map(|turn| (from + turn) % peers).find(|peer| {
                    station.enabled(others + peer, &mut actions);
                    !actions.is_empty()
                })? + 1;
            }
        }
        Some(actions.swap_remove(0))
    }
}

/// Chooses all tasks in turn; gossip is an action like others, because it has to be negotiated.
impl<D: Workload, R: ReplicaPart<Counted<D>>> Scheduler<Reserved<Station<Counted<D>, R>>>
    for Turns
{
    fn choose(
        &mut self,
        part: &Reserved<Station<Counted<D>, R>>,
    ) -> Option<<Reserved<Station<Counted<D>, R>> as IoAutomaton>::Action> {
        if self.turn != Turn::Answer {
            return None;
        }
        let (tasks, from) = (part.tasks(), self.next);
        for task in (0..tasks).map(|turn| (from + turn) % tasks) {
            let mut outcomes = Vec::new();
            part.enabled(task, &mut outcomes);
            outcomes.retain(|outcome| self.rested || *outcome != ioa::ReservedAction::Rest);
            if !outcomes.is_empty() {
                self.next = task + 1;
                return Some(outcomes.swap_remove(0));
            }
        }
        None
    }
}

/// Returns the rules of a replica in the series.
pub(crate) fn rules(gossip: bool) -> Rules {
    Rules { pace: if gossip { Pace::AtOnce } else { Pace::Never }, ..Rules::PAPER }
}

/// Creates a front end for this many replicas.
pub(crate) fn front_end<D: Workload, R>(replicas: usize, rules: Rules) -> Station<Counted<D>, R> {
    Station::FrontEnd(FrontEnd::new(replicas, Submission::One, rules))
}

/// Performs one transition of a process.
fn step<A, S, M>(process: &mut Process<A, S>) -> TurnOutcome<M>
where
    A: IoAutomaton<Output = PartOutput<M, (Id, Value)>>,
    S: Scheduler<A>,
{
    let mut out = Vec::new();
    process.step(Tick(0), ioa::Input::Turn, &mut out);
    match out.pop() {
        Some(PartOutput::To(others, message)) => TurnOutcome::Sent(others, message),
        Some(PartOutput::Outside((id, value))) => TurnOutcome::Answered(id.0, value),
        // A turn that ended at its limit has performed an action.
        None if process.deadline().is_some() => TurnOutcome::Silent,
        None => TurnOutcome::Nothing,
    }
}

fn submission<D: Workload>(me: usize, order: Order<D::Operator>) -> Request<D::Operator> {
    let Order { number, strict, operator } = order;
    let prev = BTreeSet::new();
    Request::Submit(Descriptor { id: Id(number), sender: me, prev, strict, operator })
}

fn finals<D: Workload>(replica: &impl Replica<Counted<D>>) -> Vec<(u64, Value)> {
    replica.finals().into_iter().map(|(id, value)| (id.0, value)).collect()
}

/// Message between parts of the paper's services.
type PartMessage<D> = Message<<D as DataType>::Operator, Value>;

/// Input of a part with messages `M`.
type PartIn<D, M> = PartInput<M, Request<<D as DataType>::Operator>>;

/// Part composed by channels.
pub(crate) struct Plainly<D: Workload, R: ReplicaPart<Counted<D>>> {
    process: Process<Station<Counted<D>, R>, Turns>,
    me: usize,
    counted: Counted<D>,
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Plainly<D, R> {
    /// Creates part `me`; `counted` counts the applications of its replica.
    pub(crate) fn new(station: Station<Counted<D>, R>, me: usize, counted: Counted<D>) -> Self {
        let process = Process::new(station, Turns::default()).with_transitions_max(1);
        Plainly { process, me, counted }
    }

    fn input(&mut self, input: PartIn<D, PartMessage<D>>) {
        self.process.scheduler_mut().turn = Turn::Hear;
        self.process.step(Tick(0), ioa::Input::Action(input), &mut Vec::new());
    }
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Actor for Plainly<D, R>
where
    PartMessage<D>: Spoken,
{
    type Message = PartMessage<D>;

    fn receive(&mut self, from: usize, message: Self::Message) {
        self.input(PartInput::From(from, message));
    }

    fn act(&mut self, turn: Turn) -> TurnOutcome<Self::Message> {
        self.process.scheduler_mut().turn = turn;
        step(&mut self.process)
    }

    fn applied(&self) -> u64 {
        self.counted.applied()
    }
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Requested<D::Operator> for Plainly<D, R> {
    fn submit(&mut self, order: Order<D::Operator>) {
        self.input(PartInput::Outside(submission::<D>(self.me, order)));
    }
}

impl<D, R> ReplicaHolder for Plainly<D, R>
where
    D: Workload,
    R: ReplicaPart<Counted<D>> + Replica<Counted<D>>,
{
    fn final_count(&self) -> usize {
        self.finals().len()
    }

    fn finals(&self) -> Vec<(u64, Value)> {
        self.process.automaton().replica().map_or_else(Vec::new, finals)
    }
}

/// Part composed by reservations. After a refusal it rests for a random time with a doubling mean
/// (paper 001, 3.4.3).
pub(crate) struct Negotiating<D: Workload, R: ReplicaPart<Counted<D>>> {
    process: Process<Reserved<Station<Counted<D>, R>>, Turns>,
    me: usize,
    counted: Counted<D>,
    rng: Rng,
    /// Mean of the shortest rest.
    rest: Duration,
    /// End of the current rest.
    until: Option<Instant>,
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Negotiating<D, R> {
    /// Creates part `me`; `counted` counts the applications of its replica.
    pub(crate) fn new(
        station: Station<Counted<D>, R>,
        me: usize,
        counted: Counted<D>,
        rest: Duration,
        seed: u64,
    ) -> Self {
        let process = Process::new(Reserved::new(station), Turns::default());
        let rng = base::rng::seeded(seed);
        Negotiating {
            process: process.with_transitions_max(1),
            me,
            counted,
            rng,
            rest,
            until: None,
        }
    }

    fn input(&mut self, input: PartIn<D, ReservedMessage<PartMessage<D>>>) {
        self.process.scheduler_mut().turn = Turn::Hear;
        self.process.step(Tick(0), ioa::Input::Action(input), &mut Vec::new());
        self.keep_time();
    }

    /// Draws the duration of a rest that has just begun.
    fn keep_time(&mut self) {
        let drawn = match (self.process.automaton().rest(), self.until) {
            (None, _) => None,
            (Some(_), Some(until)) => Some(until),
            (Some(doublings), None) => {
                let mean = self.rest * (1 << doublings);
                Some(Instant::now() + mean.mul_f64(0.5 + self.rng.f64()))
            }
        };
        self.until = drawn;
    }
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Actor for Negotiating<D, R>
where
    ReservedMessage<PartMessage<D>>: Spoken,
{
    type Message = ReservedMessage<PartMessage<D>>;

    fn receive(&mut self, from: usize, message: Self::Message) {
        self.input(PartInput::From(from, message));
    }

    fn act(&mut self, turn: Turn) -> TurnOutcome<Self::Message> {
        let rested = self.until.is_some_and(|until| until <= Instant::now());
        let scheduler = self.process.scheduler_mut();
        (scheduler.turn, scheduler.rested) = (turn, rested);
        let outcome = step(&mut self.process);
        self.keep_time();
        outcome
    }

    fn applied(&self) -> u64 {
        self.counted.applied()
    }

    fn deadline(&self) -> Option<Instant> {
        self.until
    }
}

impl<D: Workload, R: ReplicaPart<Counted<D>>> Requested<D::Operator> for Negotiating<D, R> {
    fn submit(&mut self, order: Order<D::Operator>) {
        self.input(PartInput::Outside(submission::<D>(self.me, order)));
    }
}

impl<D, R> ReplicaHolder for Negotiating<D, R>
where
    D: Workload,
    R: ReplicaPart<Counted<D>> + Replica<Counted<D>>,
{
    fn final_count(&self) -> usize {
        self.finals().len()
    }

    fn finals(&self) -> Vec<(u64, Value)> {
        self.process.automaton().part().replica().map_or_else(Vec::new, finals)
    }
}
