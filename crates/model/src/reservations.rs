//! Reservations, under every order of messages, of withdrawals and of process failures.

use crate::reach::{Found, reach};
use crate::{Verdict, Whole};
use esds::ioa::{
    Channelled, Discipline, IoAutomaton, Move, Part, PartInput, PartOutput, Reserved, all_enabled,
};
use std::collections::BTreeMap;

/// Action of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Performs an action with others.
    Call(Vec<usize>),
    /// Gives up an intention: a regular action.
    Forget,
}

/// Part that performs some actions with others, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    calls: Vec<Vec<usize>>,
    /// Whether it may give up an intention.
    fickle: bool,
    /// Number of actions performed with each participant.
    performed: BTreeMap<usize, u8>,
    /// Number of actions in which it took part, by initiator.
    received: BTreeMap<usize, u8>,
}

impl Caller {
    /// Creates a caller of these participants, last first.
    pub fn new(calls: &[&[usize]], fickle: bool) -> Caller {
        let calls = calls.iter().map(|others| others.to_vec()).collect();
        Caller { calls, fickle, performed: BTreeMap::new(), received: BTreeMap::new() }
    }
}

impl IoAutomaton for Caller {
    type Input = PartInput<(), ()>;
    type Action = Action;
    type Output = PartOutput<(), ()>;

    fn tasks(&self) -> usize {
        2
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Action>) {
        match task {
            0 => actions.extend(self.calls.last().cloned().map(Action::Call)),
            1.. => {
                actions.extend((self.fickle && !self.calls.is_empty()).then_some(Action::Forget))
            }
        }
    }

    fn transition(&mut self, action: Action) -> Option<PartOutput<(), ()>> {
        self.calls.pop();
        match action {
            Action::Call(others) => {
                others.iter().for_each(|other| *self.performed.entry(*other).or_default() += 1);
                Some(PartOutput::To(others, ()))
            }
            Action::Forget => None,
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            PartInput::From(from, ()) => *self.received.entry(from).or_default() += 1,
            PartInput::Outside(()) | PartInput::Lost(_) => {}
        }
    }
}

impl Part for Caller {
    type Message = ();
    type Request = ();
    type Answer = ();

    fn participants(&self, action: &Action) -> Vec<usize> {
        match action {
            Action::Call(others) => others.clone(),
            Action::Forget => Vec::new(),
        }
    }
}

/// Callers, some of which may stop and restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Callers {
    callers: Channelled<Reserved<Caller>>,
    crashes: usize,
    /// Whether any has stopped: then some may have performed parts that others have not.
    crashed: bool,
}

/// Event of the composition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Step of the composition.
    Step(Move<<Reserved<Caller> as IoAutomaton>::Action>),
    /// A caller stops; it loses its agreements with others, but not its intentions.
    Crash(usize),
}

impl Callers {
    /// Creates idle callers; `crashes` is the number of failures.
    pub fn new(callers: &[Caller], crashes: usize) -> Callers {
        let callers = callers.iter().cloned().map(Reserved::new).collect();
        let callers = Channelled::new(callers, Discipline::default());
        Callers { callers, crashes, crashed: false }
    }

    /// Creates callers with the algorithm as printed in the paper, without release.
    pub fn as_printed(callers: &[Caller]) -> Callers {
        let callers = callers.iter().cloned().map(Reserved::as_printed).collect();
        let callers = Channelled::new(callers, Discipline::default());
        Callers { callers, crashes: 0, crashed: false }
    }

    /// Reports whether every caller has performed or given up its intentions, and is free.
    fn is_done(&self) -> bool {
        let mut all = self.callers.parts().iter();
        all.all(|caller| caller.part().calls.is_empty() && caller.status().may_ask())
            && self.callers.on_their_way().next().is_none()
    }
}

impl IoAutomaton for Callers {
    type Input = ();
    type Action = Event;
    type Output = ();

    fn tasks(&self) -> usize {
        1
    }

    fn enabled(&self, _task: usize, events: &mut Vec<Event>) {
        events.extend(all_enabled(&self.callers).into_iter().map(Event::Step));
        if self.crashes > 0 {
            events.extend((0..self.callers.parts().len()).map(Event::Crash));
        }
    }

    fn transition(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Step(action) => drop(self.callers.transition(action)),
            Event::Crash(at) => {
                (self.crashes, self.crashed) = (self.crashes - 1, true);
                let anew = Reserved::new(self.callers.parts()[at].part().clone());
                self.callers.replace(at, anew);
            }
        }
        None
    }

    fn input(&mut self, _input: ()) {}
}

/// Checks the paper's invariant 3.3.1, that no process which can act has performed a part of an
/// action that another has yet to perform, and that every intention can still be performed.
pub fn check(all_callers: Callers, states_max: usize) -> (Verdict, Found<Callers>) {
    let found = reach(&all_callers, Callers::is_done, states_max);
    let whole =
        Whole { initial: all_callers, wrong, sometimes: [Callers::is_done; 2], within: |_| true };
    (whole.check(states_max), found)
}

fn wrong(all_callers: &Callers) -> Option<String> {
    let callers = all_callers.callers.parts();
    for (at, caller) in callers.iter().enumerate() {
        for other in caller.status().granted() {
            if callers[*other].status().reserved_by() != Some(at) {
                return Some(format!("{at} holds the reservation of {other}, which is not its"));
            }
        }
    }
    half_performed(all_callers).filter(|_| !all_callers.crashed)
}

/// Returns two processes that can act, one of which has not yet performed the other's action.
fn half_performed(all_callers: &Callers) -> Option<String> {
    let callers = all_callers.callers.parts();
    let acting = || (0..callers.len()).filter(|at| callers[*at].status().may_act());
    let count = |counts: &BTreeMap<usize, u8>, of: usize| counts.get(&of).copied().unwrap_or(0);
    for caller in 0..callers.len() {
        let performed = |other| count(&callers[caller].part().performed, other);
        let received = |other: usize| count(&callers[other].part().received, caller);
        let mut others = acting().filter(|other| *other != caller);
        if callers[caller].status().may_act() {
            if let Some(other) = others.find(|other| performed(*other) != received(*other)) {
                return Some(format!(
                    "{caller} and {other} do not agree on what they did together"
                ));
            }
        } else if let Some(first) = others.next() {
            // If an action has several participants, all its actions have the same ones.
            let mut several = others.filter(|other| performed(*other) == performed(first));
            if let Some(other) = several.find(|other| received(*other) != received(first)) {
                return Some(format!("{first} and {other} do not agree on what {caller} did"));
            }
        }
    }
    None
}
