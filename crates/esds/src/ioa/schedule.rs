//! Schedulers (paper 001, 3.4.2), and an automaton driven by one.

use super::{IoAutomaton, all_enabled};
use base::rng::Rng;
use base::{Automaton, Instant};

/// Default limit on transitions in one step of a [`Process`], so that inputs are not starved.
const TRANSITIONS_MAX: usize = 64;

/// Policy that chooses among the enabled actions of an automaton.
pub trait Scheduler<A: IoAutomaton> {
    /// Returns the action to perform next, or `None` if none is enabled.
    fn choose(&mut self, automaton: &A) -> Option<A::Action>;
}

/// Round-robin policy over the tasks.
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

/// Uniformly random choice among the enabled actions.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
}

impl Random {
    /// Creates a scheduler; equal seeds make equal choices.
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

/// Input of a process.
#[derive(Clone, Debug)]
pub enum Input<I> {
    /// Input action.
    Action(I),
    /// Another turn.
    Turn,
}

/// Scheduled I/O automaton: input actions come in, output actions go out, and locally controlled
/// actions run in between.
#[derive(Clone, Debug)]
pub struct Process<A, S> {
    automaton: A,
    scheduler: S,
    /// Maximum transitions in one step.
    transitions_max: usize,
    /// Whether the last turn ended with actions still enabled.
    unfinished: bool,
}

impl<A: IoAutomaton, S: Scheduler<A>> Process<A, S> {
    /// Wraps an automaton in its initial state.
    pub fn new(automaton: A, scheduler: S) -> Process<A, S> {
        Process { automaton, scheduler, transitions_max: TRANSITIONS_MAX, unfinished: true }
    }

    /// Sets the maximum number of transitions in one step: for callers that inspect each.
    pub fn with_transitions_max(self, transitions_max: usize) -> Process<A, S> {
        assert!(transitions_max > 0, "a process does something in its turn");
        Process { transitions_max, ..self }
    }

    /// Returns the automaton.
    pub fn automaton(&self) -> &A {
        &self.automaton
    }

    /// Returns its scheduler for reconfiguration. The caller must give the process a turn
    /// afterwards.
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

    /// Immediately, if more actions are enabled.
    fn deadline(&self) -> Option<Instant> {
        self.unfinished.then_some(Instant(0))
    }
}
