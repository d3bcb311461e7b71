//! What is replicated: serial data types, which know nothing of replicas.
//!
//! The service keeps replicas of any of them equal by applying the same operations in the same
//! order (paper 001, 4.2.1), so an operation must do the same to equal states everywhere, and can
//! never fail: what cannot be done is a value that says so.

use std::fmt::Debug;
use std::hash::Hash;

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
