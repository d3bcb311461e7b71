//! Append-only log.

use super::words::{Spoken, Word};
use super::{Bytes, DataType, Value, within_answer};
use rpds::VectorSync;
use serde::{Deserialize, Serialize};

/// Maximum records in one result.
pub const RECORDS_MAX: u32 = 1000;

fn records_max() -> u32 {
    RECORDS_MAX
}

/// Append-only log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log;

/// Operation on a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Appends a record; returns its number, counted from 0.
    Append(Bytes),
    /// Appends a record.
    AppendBlind(Bytes),
    /// Returns records, as many as [`super::ANSWER_MAX`] allows.
    Read {
        /// First record number; 0 by default.
        #[serde(default)]
        from: u64,
        /// Maximum number of records, capped at [`RECORDS_MAX`].
        #[serde(default = "records_max")]
        most: u32,
    },
    /// Returns the number of records.
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
            Operator::Read { from, most } => {
                let from = usize::try_from(*from).unwrap_or(usize::MAX).min(state.len());
                let records = (from..state.len()).filter_map(|at| state.get(at).cloned());
                let records = records.take((*most).min(RECORDS_MAX) as usize);
                Value::List(within_answer(records, |record| record.len()))
            }
            Operator::Size => Value::Integer(state.len() as i128),
        }
    }

    fn value_size(&self, value: &Value) -> usize {
        value.size()
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

    fn is_read(&self, operator: &Operator) -> bool {
        !operator.appends()
    }
}

impl Spoken for Log {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "append",
            arguments: "RECORD",
            json: r#"{"append": "record"}"#,
            help: "appends a record; returns its number, from 0 on",
            make: |words| words.bytes().map(Operator::Append),
        },
        Word {
            name: "append-blind",
            arguments: "RECORD",
            json: r#"{"append-blind": "record"}"#,
            help: "appends a record, and returns nothing: final at once",
            make: |words| words.bytes().map(Operator::AppendBlind),
        },
        Word {
            name: "read",
            arguments: "[FROM [MOST]]",
            json: r#"{"read": {"from": 0, "most": 10}}"#,
            help: "returns records, at most 1,000; both limits are optional",
            make: |words| {
                Ok(Operator::Read {
                    from: words.number_or(0)?,
                    most: words.number_or(RECORDS_MAX)?,
                })
            },
        },
        Word {
            name: "size",
            arguments: "",
            json: r#""size""#,
            help: "returns the number of records",
            make: |_| Ok(Operator::Size),
        },
    ];
}
