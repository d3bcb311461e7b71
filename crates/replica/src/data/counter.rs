//! A counter.

use super::words::{Spoken, Word};
use super::{DataType, Value};
use serde::{Deserialize, Serialize};

/// Integer counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counter;

/// Operation on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Adds; returns the sum.
    Add(i64),
    /// Adds without returning the sum, so that the result is final immediately.
    AddBlind(i64),
    /// Returns the sum.
    Read,
}

impl DataType for Counter {
    /// Wide enough for the sum of all possible operations.
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

    fn is_read(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::Read)
    }
}

impl Spoken for Counter {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "add",
            arguments: "NUMBER",
            json: r#"{"add": 5}"#,
            help: "adds; returns the sum",
            make: |words| words.number().map(Operator::Add),
        },
        Word {
            name: "add-blind",
            arguments: "NUMBER",
            json: r#"{"add-blind": 5}"#,
            help: "adds, and returns nothing: final at once",
            make: |words| words.number().map(Operator::AddBlind),
        },
        Word {
            name: "read",
            arguments: "",
            json: r#""read""#,
            help: "returns the sum",
            make: |_| Ok(Operator::Read),
        },
    ];
}
