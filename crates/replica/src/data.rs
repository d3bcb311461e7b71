//! What is replicated: serial data types, which know nothing of replicas.
//!
//! The service keeps replicas of any of them equal by applying the same operations in the same
//! order (paper 001, 4.2.1), so an operation must do the same to equal states everywhere, and can
//! never fail: what cannot be done is a value that says so.

mod bytes;
pub mod counter;
pub mod kind;
pub mod log;
pub mod map;
pub mod once;
mod pieces;
pub mod register;
pub mod set;
pub mod sheet;
pub mod text;
mod value;
mod words;

#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use counter::Counter;
pub use kind::Kind;
pub use log::Log;
pub use map::Map;
pub use once::Once;
pub use pieces::{Pieces, Place};
pub use register::Register;
pub use set::Set;
pub use sheet::Sheet;
pub use text::Text;
pub use value::{Value, Wrong};

use crate::work::{self, Meter};
use std::fmt::Debug;
use std::hash::Hash;

/// How many bytes of a client an answer of several holds, at most, if it is not a single one that
/// is larger. Who wants more asks for what is behind the last one.
pub const ANSWER_MAX: usize = 1 << 20;

/// The first ones, as many as [`ANSWER_MAX`] allows.
fn within_answer<T>(all: impl Iterator<Item = T>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut room = ANSWER_MAX;
    let fits = |one: &T| {
        let first = room == ANSWER_MAX;
        let rest = room.checked_sub(size(one));
        room = rest.unwrap_or(0);
        first || rest.is_some()
    };
    all.take_while(fits).collect()
}

/// A serial data type.
pub trait DataType: Clone + Debug {
    /// What is replicated. A copy should cost little, however large it is.
    type State: Clone + Debug + Eq + Hash;
    /// What can be done to it, or asked of it.
    type Operator: Clone + Debug + Eq + Hash;
    /// What that answers.
    type Value: Clone + Debug + Eq + Hash;

    /// The state before all operations.
    fn initial(&self) -> Self::State;

    /// Performs one operation. The same state and operator give the same on every machine.
    fn apply(&self, state: &mut Self::State, operator: &Self::Operator) -> Self::Value;

    /// Performs one operation as [`DataType::apply`] does, and counts the work of that: no more
    /// than [`work::PIECE_MAX`].
    fn apply_metered(
        &self,
        state: &mut Self::State,
        operator: &Self::Operator,
        meter: &mut Meter,
    ) -> Self::Value {
        let value = self.apply(state, operator);
        meter.spend(1 + work::of_bytes(self.value_size(&value)));
        value
    }

    /// Performs one operation whose value nobody wants, and counts the work of that.
    fn change(&self, state: &mut Self::State, operator: &Self::Operator, meter: &mut Meter) {
        drop(self.apply_metered(state, operator, meter));
    }

    /// Whether the state after both does not depend on their order.
    fn commute(&self, a: &Self::Operator, b: &Self::Operator) -> bool;

    /// Whether the value of this operator depends on nothing that comes before it, so that it is
    /// final at once.
    fn is_free(&self, _operator: &Self::Operator) -> bool {
        false
    }

    /// Whether the value of `a` does not depend on whether `b` comes before it.
    fn oblivious(&self, a: &Self::Operator, b: &Self::Operator) -> bool;

    /// How many bytes it takes beside itself, about.
    fn size(&self, _operator: &Self::Operator) -> usize {
        0
    }

    /// How many bytes an answer takes beside itself, about.
    fn value_size(&self, _value: &Self::Value) -> usize {
        0
    }

    /// Whether it changes nothing in any state.
    fn is_read(&self, _operator: &Self::Operator) -> bool {
        false
    }
}
