//! Data types of the series, which count the applications of operators.

use crate::spec::Data;
use replica::data::{Counter, DataType, Text, Value, counter, text};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Data type with a workload.
pub(crate) trait Workload:
    DataType<Value = Value, Operator: Serialize + DeserializeOwned + Send + Sync>
    + Default
    + Send
    + Sync
    + 'static
{
    /// Returns the operation with this number; all are distinct.
    fn operator(data: Data, number: u64) -> Self::Operator;

    /// Returns the number of an operation.
    fn number(operator: &Self::Operator) -> u64;
}

impl Workload for Counter {
    fn operator(data: Data, number: u64) -> counter::Operator {
        let amount = i64::try_from(number + 1).expect("there are not as many");
        match data {
            Data::Add => counter::Operator::Add(amount),
            Data::Blind => counter::Operator::AddBlind(amount),
            Data::Append => unreachable!("a counter has no end to append to"),
        }
    }

    fn number(operator: &counter::Operator) -> u64 {
        match operator {
            counter::Operator::Add(amount) | counter::Operator::AddBlind(amount) => {
                u64::try_from(amount - 1).expect("it was made above")
            }
            counter::Operator::Read => unreachable!("nobody reads"),
        }
    }
}

impl Workload for Text {
    fn operator(_data: Data, number: u64) -> text::Operator {
        text::Operator::Append(format!("{number};").into_bytes().into())
    }

    fn number(operator: &text::Operator) -> u64 {
        let text::Operator::Append(piece) = operator else { unreachable!("nobody reads") };
        let digits = piece.iter().filter(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }
}

/// Data type that counts the applications of its operators.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted<D> {
    data: D,
    applied: Arc<AtomicU64>,
}

impl<D> Counted<D> {
    /// Number of applications.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }
}

impl<D: DataType> DataType for Counted<D> {
    type State = D::State;
    type Operator = D::Operator;
    type Value = D::Value;

    fn initial(&self) -> D::State {
        self.data.initial()
    }

    fn apply(&self, state: &mut D::State, operator: &D::Operator) -> D::Value {
        self.applied.fetch_add(1, Ordering::Relaxed);
        self.data.apply(state, operator)
    }

    fn commute(&self, a: &D::Operator, b: &D::Operator) -> bool {
        self.data.commute(a, b)
    }

    fn is_free(&self, operator: &D::Operator) -> bool {
        self.data.is_free(operator)
    }

    fn oblivious(&self, a: &D::Operator, b: &D::Operator) -> bool {
        self.data.oblivious(a, b)
    }
}
