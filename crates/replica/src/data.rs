//! What is replicated: serial data types, which know nothing of replicas.
//!
//! The service keeps replicas of any of them equal by applying the same operations in the same
//! order (paper 001, 4.2.1), so an operation must do the same to equal states everywhere, and can
//! never fail: what cannot be done is a value that says so.

pub mod counter;
pub mod log;
pub mod map;
pub mod register;
pub mod set;
pub mod text;

#[cfg(test)]
mod tests;

pub use counter::Counter;
pub use log::Log;
pub use map::Map;
pub use register::Register;
pub use set::Set;
pub use text::Text;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// Bytes of a client: a key, a value, a record.
pub type Bytes = Arc<[u8]>;

/// What the data types of this house answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// It is done, and there is nothing to say.
    Done,
    /// A number.
    Integer(i128),
    /// Yes or no.
    Bool(bool),
    /// Bytes.
    Bytes(Bytes),
    /// There is nothing there.
    Nothing,
    /// Several.
    List(Vec<Bytes>),
    /// Keys and their values.
    Entries(Vec<(Bytes, Bytes)>),
    /// It was not done.
    Wrong(Wrong),
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// What it makes would be larger than the type allows.
    TooLarge,
}

impl From<Option<Bytes>> for Value {
    fn from(bytes: Option<Bytes>) -> Value {
        bytes.map_or(Value::Nothing, Value::Bytes)
    }
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

    /// Whether the state after both does not depend on their order.
    fn commute(&self, a: &Self::Operator, b: &Self::Operator) -> bool;

    /// Whether the value of this operator depends on nothing that comes before it, so that it is
    /// final at once.
    fn is_free(&self, _operator: &Self::Operator) -> bool {
        false
    }

    /// Whether the value of `a` does not depend on whether `b` comes before it.
    fn oblivious(&self, a: &Self::Operator, b: &Self::Operator) -> bool;
}
