//! A log that is only appended to.

use super::{Bytes, DataType, Value};
use rpds::VectorSync;

/// Records in one answer, at most.
pub const RECORDS_MAX: usize = 1000;

/// A log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log;

/// What can be done to a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Appends a record; answers its number, from 0 on.
    Append(Bytes),
    /// Appends a record.
    AppendBlind(Bytes),
    /// Answers records from this number on, at most so many.
    Read(u64, usize),
    /// Answers how many records there are.
    Size,
}

impl Operator {
    fn appends(&self) -> bool {
        matches!(self, Operator::Append(_) | Operator::AppendBlind(_))
    }
}

impl DataType for Log {
    type State = VectorSync<Bytes>;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> Self::State {
        VectorSync::new_sync()
    }

    fn apply(&self, state: &mut Self::State, operator: &Operator) -> Value {
        match operator {
            Operator::Append(record) => {
                state.push_back_mut(record.clone());
                Value::Integer(state.len() as i128 - 1)
            }
            Operator::AppendBlind(record) => {
                state.push_back_mut(record.clone());
                Value::Done
            }
            Operator::Read(from, most) => {
                let from = usize::try_from(*from).unwrap_or(usize::MAX).min(state.len());
                let to = from.saturating_add((*most).min(RECORDS_MAX)).min(state.len());
                Value::List((from..to).filter_map(|at| state.get(at).cloned()).collect())
            }
            Operator::Size => Value::Integer(state.len() as i128),
        }
    }

    fn commute(&self, a: &Operator, b: &Operator) -> bool {
        !a.appends() || !b.appends()
    }

    fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
        matches!(a, Operator::AppendBlind(_)) || !b.appends()
    }

    fn is_free(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::AppendBlind(_))
    }
}
