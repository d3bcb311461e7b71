//! I/O automata in precondition-effect style, their scheduling and their composition.
//!
//! A locally controlled action has a precondition and an effect. [`IoAutomaton::enabled`]
//! enumerates the transitions whose preconditions hold, with their local variables chosen;
//! [`IoAutomaton::transition`] is the effect (paper 001, 3.3.1 and 3.3.2). Input actions are always
//! enabled. A [`Scheduler`] chooses among the enabled actions, and a [`Process`] wraps a scheduled
//! automaton as a [`base::Automaton`].
//!
//! A [`Part`] also names the other participants of an action. Parts are composed in three ways, and
//! each composition is an I/O automaton again:
//!
//! | composition | delivery of a message to other parts | paper |
//! |---|---|---|
//! | [`Combined`] | in the same step | 2.1: the source composition |
//! | [`Channelled`] | after a delay | 3.3.6: channels, and 6.2: unreliable ones |
//! | [`Channelled`], [`Reserved`] | after a delay that is unobservable | 3.3.4, 3.3.5: the target |

mod channels;
mod combined;
pub mod reservation;
mod reserved;
mod schedule;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::hash::Hash;

pub use channels::{Channelled, Discipline, Move};
pub use combined::Combined;
pub use reserved::{Reserved, ReservedAction, ReservedMessage};
pub use schedule::{Input, Process, Random, RoundRobin, Scheduler};

/// State machine whose transitions are actions (paper 001, 2.1).
pub trait IoAutomaton {
    /// Input action: not under the automaton's control.
    type Input;
    /// Locally controlled action with its local variables chosen.
    type Action: Clone + Debug + Eq + Send + Sync;
    /// Externally visible part of an output action.
    type Output;

    /// Number of tasks: classes of locally controlled actions, each of which is scheduled again and
    /// again (fairness).
    fn tasks(&self) -> usize;

    /// Appends the enabled actions of one task, in an order that starves none if the first is
    /// always taken.
    fn enabled(&self, task: usize, actions: &mut Vec<Self::Action>);

    /// Performs an enabled action.
    fn transition(&mut self, action: Self::Action) -> Option<Self::Output>;

    /// Performs an input action.
    fn input(&mut self, input: Self::Input);
}

/// Input of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartInput<M, I> {
    /// Message from another part.
    From(usize, M),
    /// Request from outside the composition.
    Outside(I),
    /// A part has stopped and restarted; no earlier message of it arrives any more.
    Lost(usize),
}

/// Output of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartOutput<M, O> {
    /// To other parts, atomically: an input/output combination (definition 2.3.1).
    To(Vec<usize>, M),
    /// To the environment of the composition.
    Outside(O),
}

/// Input of a part in terms of its own types.
pub type InputOf<P> = PartInput<<P as Part>::Message, <P as Part>::Request>;

/// Output of a part in terms of its own types.
pub type OutputOf<P> = PartOutput<<P as Part>::Message, <P as Part>::Answer>;

/// I/O automaton that is a part of a composition, identified there by its index.
pub trait Part: IoAutomaton<Input = InputOf<Self>, Output = OutputOf<Self>> {
    /// Message between parts.
    type Message: Clone + Debug + Eq + Hash;
    /// Request from outside.
    type Request: Clone + Debug + Eq + Hash;
    /// Output to the outside.
    type Answer;

    /// Returns the receivers of this action's message, ascending, without this part itself. An
    /// action without receivers is *regular* (definition 2.3.1).
    fn participants(&self, action: &Self::Action) -> Vec<usize>;
}

/// Returns every enabled action of every task.
pub fn all_enabled<A: IoAutomaton>(automaton: &A) -> Vec<A::Action> {
    let mut actions = Vec::new();
    (0..automaton.tasks()).for_each(|task| automaton.enabled(task, &mut actions));
    actions
}
