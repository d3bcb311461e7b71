//! The eventually-serializable data service, with all its invariants.
//!
//! A [`Trial`] is a composition of replicas and a front end, with the planned requests of clients
//! and the history of answers. After each step the judge checks all replicas, messages and answers;
//! the names I1 … G5 are those of `docs/replica.md`.

mod judge;
pub mod random;

use crate::op_list::OpList;
use crate::{State, Verdict, Whole};
use esds::ioa::{Channelled, Combined, IoAutomaton, Move, Reserved, ReservedMessage, all_enabled};
use esds::{
    Act, Descriptor, FrontEnd, Id, Label, Message, Replica, ReplicaPart, Request, Rules, Station,
    Submission,
};
use std::collections::{BTreeMap, BTreeSet};

type Answer = (usize, (Id, Vec<Id>));

/// Composed service.
pub trait Service: IoAutomaton<Input = (usize, Request<Id>), Output = Answer> + State {
    /// Type of its replicas.
    type Replica: Replica<OpList>;

    /// Returns its replicas.
    fn replicas(&self) -> Vec<&Self::Replica>;

    /// Returns the labels in flight.
    fn labels_on_their_way(&self) -> Vec<(Id, Label)>;

    /// Reports whether a reduced trial performs this action immediately instead of at every
    /// possible time: the actions of the front end. Its clients could as well have sent or received
    /// at another time; but the predecessors of an operation have then arrived wherever they were
    /// sent.
    fn is_urgent(&self, action: &Self::Action) -> bool;

    /// Greatest number of messages in one channel.
    fn longest_channel(&self) -> usize;
}

impl<R> Service for Combined<Station<OpList, R>>
where
    R: ReplicaPart<OpList> + Replica<OpList> + State,
{
    type Replica = R;

    fn replicas(&self) -> Vec<&R> {
        self.parts().iter().filter_map(Station::replica).collect()
    }

    fn labels_on_their_way(&self) -> Vec<(Id, Label)> {
        Vec::new()
    }

    fn is_urgent(&self, (_, action): &Self::Action) -> bool {
        matches!(action, Act::FrontEnd(_))
    }

    fn longest_channel(&self) -> usize {
        0
    }
}

fn labels(message: &Message<Id, Vec<Id>>) -> Vec<(Id, Label)> {
    match message {
        Message::Gossip(news) => {
            news.iter().filter_map(|each| Some((each.descriptor.id, each.label?))).collect()
        }
        Message::Request(_) | Message::Response(..) => Vec::new(),
    }
}

impl<R> Service for Channelled<Station<OpList, R>>
where
    R: ReplicaPart<OpList> + Replica<OpList> + State,
{
    type Replica = R;

    fn replicas(&self) -> Vec<&R> {
        self.parts().iter().filter_map(Station::replica).collect()
    }

    fn labels_on_their_way(&self) -> Vec<(Id, Label)> {
        self.on_their_way().flat_map(labels).collect()
    }

    fn is_urgent(&self, action: &Self::Action) -> bool {
        let is_front_end = |at: usize| self.parts()[at].replica().is_none();
        match action {
            Move::Local(at, _) => is_front_end(*at),
            Move::Deliver { from, to, .. } => is_front_end(*from) || is_front_end(*to),
            Move::Duplicate { .. } | Move::Lose { .. } => false,
        }
    }

    fn longest_channel(&self) -> usize {
        self.longest()
    }
}

impl<R> Service for Channelled<Reserved<Station<OpList, R>>>
where
    R: ReplicaPart<OpList> + Replica<OpList> + State,
{
    type Replica = R;

    fn replicas(&self) -> Vec<&R> {
        self.parts().iter().filter_map(|part| part.part().replica()).collect()
    }

    fn labels_on_their_way(&self) -> Vec<(Id, Label)> {
        let joins = self.on_their_way().filter_map(|exchange| match exchange {
            ReservedMessage::Join { message, .. } => Some(labels(message)),
            ReservedMessage::Ask
            | ReservedMessage::Grant
            | ReservedMessage::Refuse
            | ReservedMessage::Release
            | ReservedMessage::Done
            | ReservedMessage::Over => None,
        });
        joins.flatten().collect()
    }

    /// None: here everything is negotiated.
    fn is_urgent(&self, _action: &Self::Action) -> bool {
        false
    }

    fn longest_channel(&self) -> usize {
        self.longest()
    }
}

/// Requests of clients, and their outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct History {
    requested: BTreeSet<Id>,
    /// Operations answered before each request.
    answered_before: BTreeMap<Id, BTreeSet<Id>>,
    answers: BTreeMap<Id, Vec<Id>>,
    /// Value of each operation when it first was final anywhere.
    finals: BTreeMap<Id, Vec<Id>>,
    /// First contradiction detected.
    wrong: Option<String>,
}

/// Service under observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trial<S> {
    service: S,
    /// Planned requests, in any order that respects predecessors.
    plan: Vec<Descriptor<Id>>,
    /// Whether only one of several equivalent times is explored.
    reduced: bool,
    history: History,
}

/// Maximum urgent actions after a step.
const URGENT_MAX: usize = 64;

/// Event of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<A> {
    /// A client submits the planned operation with this index.
    Submit(usize),
    /// Step of the service.
    Step(A),
}

impl<S: Service> Trial<S> {
    /// Creates a trial before all operations.
    pub fn new(service: S, plan: Vec<Descriptor<Id>>) -> Trial<S> {
        Trial { service, plan, reduced: false, history: History::default() }
    }

    /// Creates a trial for exhaustive checking, in which [urgent](Service::is_urgent) actions are
    /// performed immediately.
    pub fn reduced(service: S, plan: Vec<Descriptor<Id>>) -> Trial<S> {
        Trial { reduced: true, ..Trial::new(service, plan) }
    }

    /// Greatest number of messages in one channel.
    pub fn longest_channel(&self) -> usize {
        self.service.longest_channel()
    }

    fn planned(&self) -> impl Iterator<Item = usize> {
        (0..self.plan.len()).filter(|index| {
            let descriptor = &self.plan[*index];
            !self.history.requested.contains(&descriptor.id)
                && descriptor.prev.is_subset(&self.history.requested)
        })
    }

    fn submit(&mut self, index: usize) {
        let descriptor = self.plan[index].clone();
        let answered = self.history.answers.keys().copied().collect();
        self.history.requested.insert(descriptor.id);
        self.history.answered_before.insert(descriptor.id, answered);
        self.service.input((descriptor.sender, Request::Submit(descriptor)));
    }

    fn perform(&mut self, action: S::Action) {
        if let Some((_, (id, value))) = self.service.transition(action)
            && self.history.answers.insert(id, value).is_some()
        {
            self.history.wrong.get_or_insert(format!("G7: {id:?} was answered twice"));
        }
    }

    /// Performs urgent actions.
    fn hurry(&mut self) {
        for _ in 0..URGENT_MAX {
            let mut actions = all_enabled(&self.service).into_iter();
            let Some(urgent) = actions.find(|action| self.service.is_urgent(action)) else {
                return;
            };
            self.perform(urgent);
        }
    }

    /// Records final operations, and contradictions to earlier records.
    fn note_finals(&mut self) {
        for replica in self.service.replicas() {
            let finals = replica.finals();
            for (nth, (id, value)) in finals.iter().cloned().enumerate() {
                if value.iter().ne(finals[..=nth].iter().map(|(id, _)| id)) {
                    let wrong = format!("I8: {id:?} is {value:?} in another order");
                    self.history.wrong.get_or_insert(wrong);
                }
                let first = self.history.finals.entry(id).or_insert_with(|| value.clone());
                if *first != value {
                    let wrong = format!("I6: {id:?} was {first:?}, and became {value:?}");
                    self.history.wrong.get_or_insert(wrong);
                }
            }
        }
    }
}

impl<S: Service> IoAutomaton for Trial<S> {
    type Input = ();
    type Action = Event<S::Action>;
    type Output = ();

    fn tasks(&self) -> usize {
        1 + self.service.tasks()
    }

    /// Empty after a violation: the trial is over.
    fn enabled(&self, task: usize, events: &mut Vec<Self::Action>) {
        if self.history.wrong.is_some() {
            return;
        }
        match task {
            0 => events.extend(self.planned().map(Event::Submit)),
            1.. => {
                let mut actions = Vec::new();
                self.service.enabled(task - 1, &mut actions);
                events.extend(actions.into_iter().map(Event::Step));
            }
        }
    }

    fn transition(&mut self, event: Self::Action) -> Option<()> {
        match event {
            Event::Submit(index) => self.submit(index),
            Event::Step(action) => self.perform(action),
        }
        if self.reduced {
            self.hurry();
        }
        self.note_finals();
        if self.history.wrong.is_none() {
            self.history.wrong = self.judge();
        }
        None
    }

    fn input(&mut self, _input: ()) {}
}

/// Returns the parts of a service: `replicas` replicas created by `make`, and one front end.
pub fn stations<R>(
    replicas: usize,
    submission: Submission,
    rules: Rules,
    make: impl Fn(usize) -> R,
) -> Vec<Station<OpList, R>> {
    let front_end = Station::FrontEnd(FrontEnd::new(replicas, submission, rules));
    (0..replicas).map(|me| Station::Replica(make(me))).chain([front_end]).collect()
}

/// Returns a plan of `count` operations. The bits of `strict` select the strict ones; each pair of
/// `needs` has an operation and its predecessor.
pub fn plan(replicas: usize, count: u64, strict: u64, needs: &[(u64, u64)]) -> Vec<Descriptor<Id>> {
    let descriptor = |n: u64| Descriptor {
        id: Id(n),
        sender: replicas,
        prev: needs.iter().filter(|(x, _)| *x == n).map(|(_, p)| Id(*p)).collect(),
        strict: strict >> n & 1 == 1,
        operator: Id(n),
    };
    (0..count).map(descriptor).collect()
}

/// Checks all states of a trial, or about `states_max`, with at most one message in each channel.
pub fn check<S: Service>(trial: Trial<S>, states_max: usize) -> Verdict {
    check_within(trial, states_max, |trial| trial.longest_channel() <= 1)
}

/// Checks the states within a boundary.
pub fn check_within<S: Service>(
    trial: Trial<S>,
    states_max: usize,
    within: fn(&Trial<S>) -> bool,
) -> Verdict {
    let wrong = |trial: &Trial<S>| {
        let over = all_enabled(trial).is_empty();
        let wrong = trial.wrong().map(str::to_owned);
        wrong.or_else(|| trial.end_is_wrong().filter(|_| over))
    };
    whole(trial, wrong, within).check(states_max)
}

/// Checks safety only, for services without retransmission.
pub fn check_safety<S: Service>(
    trial: Trial<S>,
    states_max: usize,
    within: fn(&Trial<S>) -> bool,
) -> Verdict {
    let wrong = |trial: &Trial<S>| trial.wrong().map(str::to_owned);
    whole(trial, wrong, within).check(states_max)
}

/// Returns a trial as a model, which must be able to show both anomalies.
fn whole<S: Service>(
    initial: Trial<S>,
    wrong: fn(&Trial<S>) -> Option<String>,
    within: fn(&Trial<S>) -> bool,
) -> Whole<Trial<S>> {
    let sometimes = [Trial::has_inconsistent_answer, Trial::has_late_answer_before];
    Whole { initial, wrong, sometimes, within }
}
