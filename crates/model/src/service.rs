//! The eventually-serializable data service, and everything that must hold of it.
//!
//! A [`Trial`] is a composition of replicas and a front end, what clients will ask, and what they
//! have heard. After each step the judge looks at all replicas, all messages and all answers; the
//! names I1 … G5 are those of `docs/replica.md`.

mod judge;
pub mod random;

use crate::trail::Trail;
use crate::{State, Verdict, Whole};
use replica::esds::{
    Act, Descriptor, FrontEnd, Id, Label, Message, Replica, ReplicaPart, Request, Rules, Station,
    Submission,
};
use replica::ioa::{Channelled, Combined, IoAutomaton, Move, Reserved, Talk, all_enabled};
use std::collections::{BTreeMap, BTreeSet};

type Answer = (usize, (Id, Vec<Id>));

/// A service, however its parts are composed.
pub trait Service: IoAutomaton<Input = (usize, Request<Id>), Output = Answer> + State {
    /// What its replicas are.
    type Replica: Replica<Trail>;

    /// Its replicas.
    fn replicas(&self) -> Vec<&Self::Replica>;

    /// The labels that are on their way.
    fn labels_on_their_way(&self) -> Vec<(Id, Label)>;

    /// Whether an action is one of which only one moment is looked at in a reduced trial: those of
    /// the front end. Its clients could as well have asked, or heard, at another time; but what an
    /// operation needs has then arrived where that was sent.
    fn is_urgent(&self, action: &Self::Action) -> bool;

    /// The most messages that wait in one channel.
    fn longest_channel(&self) -> usize;
}

impl<R> Service for Combined<Station<Trail, R>>
where
    R: ReplicaPart<Trail> + Replica<Trail> + State,
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

impl<R> Service for Channelled<Station<Trail, R>>
where
    R: ReplicaPart<Trail> + Replica<Trail> + State,
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

impl<R> Service for Channelled<Reserved<Station<Trail, R>>>
where
    R: ReplicaPart<Trail> + Replica<Trail> + State,
{
    type Replica = R;

    fn replicas(&self) -> Vec<&R> {
        self.parts().iter().filter_map(|part| part.part().replica()).collect()
    }

    fn labels_on_their_way(&self) -> Vec<(Id, Label)> {
        let joins = self.on_their_way().filter_map(|talk| match talk {
            Talk::Join { message, .. } => Some(labels(message)),
            Talk::Ask | Talk::Grant | Talk::Refuse | Talk::Release | Talk::Done | Talk::Over => {
                None
            }
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

/// What clients ask, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct History {
    requested: BTreeSet<Id>,
    /// What had been answered when each was requested.
    answered_before: BTreeMap<Id, BTreeSet<Id>>,
    answers: BTreeMap<Id, Vec<Id>>,
    /// What each operation's value was when it first was final anywhere.
    finals: BTreeMap<Id, Vec<Id>>,
    /// The first contradiction that was seen when something happened.
    wrong: Option<String>,
}

/// A service under observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trial<S> {
    service: S,
    /// What clients will ask, in any order that respects what each needs.
    plan: Vec<Descriptor<Id>>,
    /// Whether of equal moments only one is looked at.
    reduced: bool,
    history: History,
}

/// Urgent actions that follow one step, at most.
const URGENT_MAX: usize = 64;

/// Something that happens in a trial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<A> {
    /// A client submits the planned operation of this index.
    Submit(usize),
    /// A step of the service.
    Step(A),
}

impl<S: Service> Trial<S> {
    /// A service before all operations, and what it will be asked.
    pub fn new(service: S, plan: Vec<Descriptor<Id>>) -> Trial<S> {
        Trial { service, plan, reduced: false, history: History::default() }
    }

    /// The same, for looking at all its states: what is [urgent](Service::is_urgent) happens at
    /// once.
    pub fn reduced(service: S, plan: Vec<Descriptor<Id>>) -> Trial<S> {
        Trial { reduced: true, ..Trial::new(service, plan) }
    }

    /// The most messages that wait in one channel.
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

    /// Performs what is urgent.
    fn hurry(&mut self) {
        for _ in 0..URGENT_MAX {
            let mut actions = all_enabled(&self.service).into_iter();
            let Some(urgent) = actions.find(|action| self.service.is_urgent(action)) else {
                return;
            };
            self.perform(urgent);
        }
    }

    /// Notes what has become final, and whether it contradicts what was.
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

    /// Nothing, once anything is wrong: the trial is over.
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

/// The parts of a service: so many replicas, made by `make`, and one front end.
pub fn stations<R>(
    replicas: usize,
    submission: Submission,
    rules: Rules,
    make: impl Fn(usize) -> R,
) -> Vec<Station<Trail, R>> {
    let front_end = Station::FrontEnd(FrontEnd::new(replicas, submission, rules));
    (0..replicas).map(|me| Station::Replica(make(me))).chain([front_end]).collect()
}

/// A plan of so many operations: the bits of `strict` say which are, each of `needs` that the first
/// needs the second.
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

/// Looks at every state of a trial, or at about `states_max`, with at most one message in each
/// channel.
pub fn check<S: Service>(trial: Trial<S>, states_max: usize) -> Verdict {
    check_within(trial, states_max, |trial| trial.longest_channel() <= 1)
}

/// The same, of the states within a boundary.
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

/// The same, where what is lost is not told again: whether it ends well is not asked.
pub fn check_safety<S: Service>(
    trial: Trial<S>,
    states_max: usize,
    within: fn(&Trial<S>) -> bool,
) -> Verdict {
    let wrong = |trial: &Trial<S>| trial.wrong().map(str::to_owned);
    whole(trial, wrong, within).check(states_max)
}

/// A trial as a model, which must be able to show both anomalies.
fn whole<S: Service>(
    initial: Trial<S>,
    wrong: fn(&Trial<S>) -> Option<String>,
    within: fn(&Trial<S>) -> bool,
) -> Whole<Trial<S>> {
    let sometimes = [Trial::has_inconsistent_answer, Trial::has_late_answer_before];
    Whole { initial, wrong, sometimes, within }
}
