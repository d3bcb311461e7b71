//! Reservations, in every order in which messages can travel, wishes can pass, and processes can
//! stop.

use crate::reach::{Found, reach};
use crate::{Verdict, Whole};
use replica::ioa::{
    Channelled, Discipline, Heard, IoAutomaton, Move, Part, Reserved, Said, all_enabled,
};
use std::collections::BTreeMap;

/// What a caller does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It performs an action with others.
    Call(Vec<usize>),
    /// It does not want to any more: a regular action.
    Forget,
}

/// A part that wants to perform some actions with others, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    calls: Vec<Vec<usize>>,
    /// Whether it may change its mind.
    fickle: bool,
    /// With whom it has performed how many.
    performed: BTreeMap<usize, u8>,
    /// With whom, who began it.
    heard: BTreeMap<usize, u8>,
}

impl Caller {
    /// It calls these, the last first.
    pub fn new(calls: &[&[usize]], fickle: bool) -> Caller {
        let calls = calls.iter().map(|others| others.to_vec()).collect();
        Caller { calls, fickle, performed: BTreeMap::new(), heard: BTreeMap::new() }
    }
}

impl IoAutomaton for Caller {
    type Input = Heard<(), ()>;
    type Action = Action;
    type Output = Said<(), ()>;

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

    fn transition(&mut self, action: Action) -> Option<Said<(), ()>> {
        self.calls.pop();
        match action {
            Action::Call(others) => {
                others.iter().for_each(|other| *self.performed.entry(*other).or_default() += 1);
                Some(Said::To(others, ()))
            }
            Action::Forget => None,
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            Heard::From(from, ()) => *self.heard.entry(from).or_default() += 1,
            Heard::Outside(()) | Heard::Lost(_) => {}
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

/// Callers, some of which may stop and begin anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Town {
    callers: Channelled<Reserved<Caller>>,
    crashes: usize,
    /// Whether any has stopped: then some may have performed what others have not.
    crashed: bool,
}

/// Something that happens in a town.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A step of the composition.
    Step(Move<<Reserved<Caller> as IoAutomaton>::Action>),
    /// A caller stops; what it agreed on with others is forgotten, what it wants is not.
    Crash(usize),
}

impl Town {
    /// Callers who are free; `crashes` times one of them stops.
    pub fn new(callers: &[Caller], crashes: usize) -> Town {
        let callers = callers.iter().cloned().map(Reserved::new).collect();
        let callers = Channelled::new(callers, Discipline::default());
        Town { callers, crashes, crashed: false }
    }

    /// The same by the letter of the paper, without release.
    pub fn as_printed(callers: &[Caller]) -> Town {
        let callers = callers.iter().cloned().map(Reserved::as_printed).collect();
        let callers = Channelled::new(callers, Discipline::default());
        Town { callers, crashes: 0, crashed: false }
    }

    /// Everybody has performed, or forgotten, what it wanted, and is free.
    fn is_done(&self) -> bool {
        let mut all = self.callers.parts().iter();
        all.all(|caller| caller.part().calls.is_empty() && caller.status().may_ask())
            && self.callers.on_their_way().next().is_none()
    }
}

impl IoAutomaton for Town {
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

/// Checks the paper's invariant 3.3.1, that nobody who can act has performed a part of an action
/// that another has yet to perform, and that everybody can always still get what it wants.
pub fn check(town: Town, states_max: usize) -> (Verdict, Found<Town>) {
    let found = reach(&town, Town::is_done, states_max);
    let whole = Whole { initial: town, wrong, sometimes: [Town::is_done; 2], within: |_| true };
    (whole.check(states_max), found)
}

fn wrong(town: &Town) -> Option<String> {
    let callers = town.callers.parts();
    for (at, caller) in callers.iter().enumerate() {
        for other in caller.status().granted() {
            if callers[*other].status().reserved_by() != Some(at) {
                return Some(format!("{at} holds the reservation of {other}, which is not its"));
            }
        }
    }
    half_performed(town).filter(|_| !town.crashed)
}

/// Two that can act, of which one has performed its part of an action, and the other has not.
fn half_performed(town: &Town) -> Option<String> {
    let callers = town.callers.parts();
    let acting = || (0..callers.len()).filter(|at| callers[*at].status().may_act());
    let count = |counts: &BTreeMap<usize, u8>, of: usize| counts.get(&of).copied().unwrap_or(0);
    for caller in 0..callers.len() {
        let performed = |other| count(&callers[caller].part().performed, other);
        let heard = |other: usize| count(&callers[other].part().heard, caller);
        let mut others = acting().filter(|other| *other != caller);
        if callers[caller].status().may_act() {
            if let Some(other) = others.find(|other| performed(*other) != heard(*other)) {
                return Some(format!(
                    "{caller} and {other} do not agree on what they did together"
                ));
            }
        } else if let Some(first) = others.next() {
            // All of its calls are with the same others, if they are with several.
            let mut several = others.filter(|other| performed(*other) == performed(first));
            if let Some(other) = several.find(|other| heard(*other) != heard(first)) {
                return Some(format!("{first} and {other} do not agree on what {caller} did"));
            }
        }
    }
    None
}
