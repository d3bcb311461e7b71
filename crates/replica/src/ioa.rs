//! I/O automata in precondition-effect style, how they are scheduled, and how they are composed.
//!
//! A locally controlled action has a precondition and an effect: [`IoAutomaton::enabled`] tells
//! every transition whose precondition holds, with its local variables chosen,
//! [`IoAutomaton::transition`] is the effect (paper 001, 3.3.1 and 3.3.2). Input actions are always
//! enabled. A [`Scheduler`] chooses among what is enabled, and a [`Process`] is a scheduled
//! automaton in the house's own form, a [`base::Automaton`].
//!
//! A [`Part`] also says who else takes part in an action. Parts are composed in three ways, and
//! each composition is an I/O automaton again:
//!
//! | composition | what one part says to others | paper |
//! |---|---|---|
//! | [`Combined`] | is heard in the same step | 2.1: the source composition |
//! | [`Channelled`] | is on its way for a while | 3.3.6: channels, and 6.2: bad ones |
//! | [`Channelled`], [`Reserved`] | is on its way, but nobody can tell | 3.3.4, 3.3.5: the target |

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
pub use reserved::{Deed, Reserved, Talk};
pub use schedule::{Input, Process, Random, RoundRobin, Scheduler};

/// A state machine whose transitions are actions (paper 001, 2.1).
pub trait IoAutomaton {
    /// An input action: not under the automaton's control.
    type Input;
    /// A locally controlled action, its local variables chosen.
    type Action: Clone + Debug + Eq + Send + Sync;
    /// What an output action is seen as outside.
    type Output;

    /// How many tasks there are: classes of locally controlled actions, each of which is to get its
    /// turn again and again.
    fn tasks(&self) -> usize;

    /// Appends the enabled actions of one task, in an order in which none is passed over for ever
    /// if always the first is taken.
    fn enabled(&self, task: usize, actions: &mut Vec<Self::Action>);

    /// The effect of an action that is enabled.
    fn transition(&mut self, action: Self::Action) -> Option<Self::Output>;

    /// The effect of an input action.
    fn input(&mut self, input: Self::Input);
}

/// What a part hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard<M, I> {
    /// Another part said it.
    From(usize, M),
    /// It came from outside of the composition.
    Outside(I),
    /// A part has stopped and begun anew; nothing that it said before comes any more.
    Lost(usize),
}

/// What a part says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<M, O> {
    /// To other parts, all at once: an input/output combination (definition 2.3.1).
    To(Vec<usize>, M),
    /// To whoever is outside of the composition.
    Outside(O),
}

/// What a part hears, by its own types.
pub type HeardBy<P> = Heard<<P as Part>::Message, <P as Part>::Request>;

/// What a part says, by its own types.
pub type SaidBy<P> = Said<<P as Part>::Message, <P as Part>::Answer>;

/// An I/O automaton that is a part of a composition, known there by its index.
pub trait Part: IoAutomaton<Input = HeardBy<Self>, Output = SaidBy<Self>> {
    /// What parts say to each other.
    type Message: Clone + Debug + Eq + Hash;
    /// What is said to a part from outside.
    type Request: Clone + Debug + Eq + Hash;
    /// What a part says to whoever is outside.
    type Answer;

    /// Who hears what this action says, ascending, without this part itself. Nobody: a *regular*
    /// action (definition 2.3.1).
    fn participants(&self, action: &Self::Action) -> Vec<usize>;
}

/// Every enabled action of every task.
pub fn all_enabled<A: IoAutomaton>(automaton: &A) -> Vec<A::Action> {
    let mut actions = Vec::new();
    (0..automaton.tasks()).for_each(|task| automaton.enabled(task, &mut actions));
    actions
}
