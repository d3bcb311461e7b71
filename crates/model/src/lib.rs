//! Exhaustive checking: all reachable states of a composition, not only those found by seeds.
//!
//! The checked automata are the production ones. Invariants are checked by stateright, an
//! independent model checker; that a good state remains reachable ([`reach`]) is a property of
//! paths, which stateright does not check.

pub mod exhaustive;
pub mod op_list;
pub mod reach;
pub mod replicas;
pub mod reservations;
pub mod ring;
pub mod service;

pub use reach::Found;

use esds::ioa::{IoAutomaton, all_enabled};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;

/// State that can be compared and printed.
pub trait State: Clone + Debug + Eq + Hash + Send + Sync + 'static {}

impl<S: Clone + Debug + Eq + Hash + Send + Sync + 'static> State for S {}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Distinct states checked.
    pub states: usize,
    /// Whether these are all states.
    pub complete: bool,
    /// Violated property, with the path to it.
    pub violation: Option<String>,
    /// Whether each of the two notable states was reached.
    pub reached: [bool; 2],
}

/// Composition as a model.
pub struct Whole<C> {
    /// Initial state.
    pub initial: C,
    /// Returns the violation in a state, if any.
    pub wrong: fn(&C) -> Option<String>,
    /// Two predicates that some states must satisfy; otherwise the model shows nothing.
    pub sometimes: [fn(&C) -> bool; 2],
    /// Boundary: states outside are not explored.
    pub within: fn(&C) -> bool,
}

impl<C> Whole<C>
where
    C: IoAutomaton + State,
{
    /// Checks all states, or about `states_max`.
    pub fn check(self, states_max: usize) -> Verdict {
        let wrong = self.wrong;
        let builder = self.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
        let checker = builder.target_state_count(states_max).spawn_dfs().join();
        let violation = checker.discovery(SOUND).map(|path| {
            let what = wrong(path.last_state()).expect("that is why it was discovered");
            format!("{what}\nafter {:#?}", path.into_actions())
        });
        Verdict {
            states: checker.unique_state_count(),
            complete: violation.is_none() && checker.state_count() < states_max,
            violation,
            reached: REACHED.map(|name| checker.discovery(name).is_some()),
        }
    }
}

const SOUND: &str = "sound";
const REACHED: [&str; 2] = ["reached", "reached, too"];

impl<C> Model for Whole<C>
where
    C: IoAutomaton + State,
{
    type State = C;
    type Action = C::Action;

    fn init_states(&self) -> Vec<C> {
        vec![self.initial.clone()]
    }

    fn actions(&self, state: &C, actions: &mut Vec<C::Action>) {
        actions.extend(all_enabled(state));
    }

    fn next_state(&self, state: &C, action: C::Action) -> Option<C> {
        let mut next = state.clone();
        next.transition(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SOUND, |model: &Self, state| (model.wrong)(state).is_none()),
            Property::sometimes(REACHED[0], |model: &Self, state| (model.sometimes[0])(state)),
            Property::sometimes(REACHED[1], |model: &Self, state| (model.sometimes[1])(state)),
        ]
    }

    fn within_boundary(&self, state: &C) -> bool {
        (self.within)(state)
    }
}
