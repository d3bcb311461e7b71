//! A counter.

use super::{DataType, Value};

/// A number that is added to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counter;

/// What can be done to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Adds; answers the sum.
    Add(i64),
    /// Adds, and answers nothing: then the answer is final at once.
    AddBlind(i64),
    /// Answers the sum.
    Read,
}

impl DataType for Counter {
    /// Wide enough for as many additions as there can be operations.
    type State = i128;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> i128 {
        0
    }

    fn apply(&self, state: &mut i128, operator: &Operator) -> Value {
        match operator {
            Operator::Add(n) => {
                *state = state.wrapping_add(i128::from(*n));
                Value::Integer(*state)
            }
            Operator::AddBlind(n) => {
                *state = state.wrapping_add(i128::from(*n));
                Value::Done
            }
            Operator::Read => Value::Integer(*state),
        }
    }

    fn commute(&self, _a: &Operator, _b: &Operator) -> bool {
        true
    }

    fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
        matches!(a, Operator::AddBlind(_)) || matches!(b, Operator::Read)
    }

    fn is_free(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::AddBlind(_))
    }
}
