//! Who is next: schedulers (paper 001, 3.4.2), and an automaton that is run by one.

use super::{IoAutomaton, all_enabled};
use base::rng::Rng;
use base::{Automaton, Instant};

/// Transitions at most in one step of a [`Process`] that was not told otherwise, so that inputs get
/// their turn.
const TRANSITIONS_MAX: usize = 64;

/// Chooses among the enabled actions of an automaton.
pub trait Scheduler<A: IoAutomaton> {
    /// The action to perform next; `None`: none is enabled.
    fn choose(&mut self, automaton: &A) -> Option<A::Action>;
}

/// Gives the tasks their turn one after the other.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl<A: IoAutomaton> Scheduler<A> for RoundRobin {
    fn choose(&mut self, automaton: &A) -> Option<A::Action> {
        let (tasks, mut actions) = (automaton.tasks(), Vec::new());
        for turn in 0..tasks {
            let task = (self.next + turn) % tasks;
            automaton.enabled(task, &mut actions);
            if !actions.is_empty() {
                self.next = task + 1;
                return Some(actions.swap_remove(0));
            }
        }
        None
    }
}

/// Chooses each enabled action with the same probability.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
}

impl Random {
    /// The same seed makes the same choices.
    pub fn seeded(seed: u64) -> Random {
        Random { rng: base::rng::seeded(seed) }
    }
}

impl<A: IoAutomaton> Scheduler<A> for Random {
    fn choose(&mut self, automaton: &A) -> Option<A::Action> {
        let mut actions = all_enabled(automaton);
        (!actions.is_empty()).then(|| actions.swap_remove(self.rng.usize(..actions.len())))
    }
}

/// What can happen to a process.
#[derive(Clone, Debug)]
pub enum Input<I> {
    /// An input action.
    Action(I),
    /// It is its turn again.
    Turn,
}

/// A scheduled I/O automaton: input actions come in, output actions come out, and what it does by
/// itself is done in between.
#[derive(Clone, Debug)]
pub struct Process<A, S> {
    automaton: A,
    scheduler: S,
    /// Transitions at most in one step.
    transitions_max: usize,
    /// Whether its last turn ended before its actions did.
    unfinished: bool,
}

impl<A: IoAutomaton, S: Scheduler<A>> Process<A, S> {
    /// An automaton in its initial state.
    pub fn new(automaton: A, scheduler: S) -> Process<A, S> {
        Process { automaton, scheduler, transitions_max: TRANSITIONS_MAX, unfinished: true }
    }

    /// The same with so many transitions at most in one step: for who looks at each.
    pub fn with_transitions_max(self, transitions_max: usize) -> Process<A, S> {
        assert!(transitions_max > 0, "a process does something in its turn");
        Process { transitions_max, ..self }
    }

    /// The automaton, to look at.
    pub fn automaton(&self) -> &A {
        &self.automaton
    }

    /// Its scheduler, to tell it what may be done now. It is to have a turn then.
    pub fn scheduler_mut(&mut self) -> &mut S {
        &mut self.scheduler
    }
}

impl<A: IoAutomaton, S: Scheduler<A>> Automaton for Process<A, S> {
    type Input = Input<A::Input>;
    type Output = A::Output;

    fn step(&mut self, _now: Instant, input: Self::Input, out: &mut Vec<A::Output>) {
        match input {
            Input::Action(input) => self.automaton.input(input),
            Input::Turn => {}
        }
        for _ in 0..self.transitions_max {
            let Some(action) = self.scheduler.choose(&self.automaton) else {
                self.unfinished = false;
                return;
            };
            out.extend(self.automaton.transition(action));
        }
        self.unfinished = true;
    }

    /// At once, if there is more to do.
    fn deadline(&self) -> Option<Instant> {
        self.unfinished.then_some(Instant(0))
    }
}
