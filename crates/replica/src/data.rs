//! Serial data types to be replicated. They do not depend on the replication algorithm.
//!
//! The service keeps replicas equal by applying the same operations in the same order (paper 001,
//! 4.2.1). An operation must therefore be deterministic and infallible: a failure is reported as an
//! ordinary result value.

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
pub use pieces::{Pieces, Position};
pub use register::Register;
pub use set::Set;
pub use sheet::Sheet;
pub use text::Text;
pub use value::{Value, Wrong};

use crate::work::{self, Meter};
use std::fmt::Debug;
use std::hash::Hash;

/// Maximum bytes of client data in a result with several elements; a single larger element is still
/// returned. Clients page by passing the last element that they received.
pub const ANSWER_MAX: usize = 1 << 20;

/// Returns the longest prefix that fits [`ANSWER_MAX`], but at least one element.
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
    /// Replicated state. Cloning should be cheap, however large the state is.
    type State: Clone + Debug + Eq + Hash;
    /// Update or query.
    type Operator: Clone + Debug + Eq + Hash;
    /// Result of an operation.
    type Value: Clone + Debug + Eq + Hash;

    /// Returns the initial state.
    fn initial(&self) -> Self::State;

    /// Applies one operation. Deterministic: equal states and operators give equal results on every
    /// machine.
    fn apply(&self, state: &mut Self::State, operator: &Self::Operator) -> Self::Value;

    /// Like [`DataType::apply`], but charges the work to `meter`: at most [`work::PIECE_MAX`]
    /// units.
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

    /// Applies one operation, discards its result and charges the work to `meter`.
    fn change(&self, state: &mut Self::State, operator: &Self::Operator, meter: &mut Meter) {
        drop(self.apply_metered(state, operator, meter));
    }

    /// Reports whether the final state is independent of the order of `a` and `b`.
    fn commute(&self, a: &Self::Operator, b: &Self::Operator) -> bool;

    /// Reports whether the operator's result is independent of the state, and therefore final
    /// immediately.
    fn is_free(&self, _operator: &Self::Operator) -> bool {
        false
    }

    /// Reports whether the result of `a` is independent of `b` being applied before it.
    fn oblivious(&self, a: &Self::Operator, b: &Self::Operator) -> bool;

    /// Approximate heap size of an operator, in bytes.
    fn size(&self, _operator: &Self::Operator) -> usize {
        0
    }

    /// Approximate heap size of a result, in bytes.
    fn value_size(&self, _value: &Self::Value) -> usize {
        0
    }

    /// Reports whether the operator leaves every state unchanged.
    fn is_read(&self, _operator: &Self::Operator) -> bool {
        false
    }
}
