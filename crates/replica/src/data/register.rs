//! Register: a single value that writes replace.

use super::words::{Spoken, Word};
use super::{Bytes, DataType, Value};
use serde::{Deserialize, Serialize};

/// Single-value register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register;

/// Operation on a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Replaces the value.
    Put(Bytes),
    /// Replaces the value; returns the previous one.
    Swap(Bytes),
    /// Replaces the value if it equals `expected`; returns whether it did. A register that was
    /// never written matches `None`.
    CompareAndPut {
        /// Value required beforehand.
        expected: Option<Bytes>,
        /// Value to store.
        new: Bytes,
    },
    /// Returns the value.
    Read,
}

impl DataType for Register {
    type State = Option<Bytes>;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> Option<Bytes> {
        None
    }

    fn apply(&self, state: &mut Option<Bytes>, operator: &Operator) -> Value {
        match operator {
            Operator::Put(new) => {
                *state = Some(new.clone());
                Value::Done
            }
            Operator::Swap(new) => state.replace(new.clone()).into(),
            Operator::CompareAndPut { expected, new } => {
                let fits = state == expected;
                if fits {
                    *state = Some(new.clone());
                }
                Value::Bool(fits)
            }
            Operator::Read => state.clone().into(),
        }
    }

    fn value_size(&self, value: &Value) -> usize {
        value.size()
    }

    fn commute(&self, a: &Operator, b: &Operator) -> bool {
        let same = matches!((a, b), (Operator::Put(a), Operator::Put(b)) if a == b);
        same || matches!(a, Operator::Read) || matches!(b, Operator::Read)
    }

    fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
        matches!(a, Operator::Put(_)) || matches!(b, Operator::Read)
    }

    fn is_free(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::Put(_))
    }

    fn is_read(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::Read)
    }
}

impl Spoken for Register {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "put",
            arguments: "VALUE",
            json: r#"{"put": "value"}"#,
            help: "replaces the value",
            make: |words| words.bytes().map(Operator::Put),
        },
        Word {
            name: "swap",
            arguments: "VALUE",
            json: r#"{"swap": "value"}"#,
            help: "replaces the value; returns the previous value",
            make: |words| words.bytes().map(Operator::Swap),
        },
        Word {
            name: "compare-and-put",
            arguments: "EXPECTED NEW",
            json: r#"{"compare-and-put": {"expected": "a", "new": "b"}}"#,
            help: "replaces the value if it is the expected one; returns whether it was",
            make: |words| {
                let (expected, new) = (Some(words.bytes()?), words.bytes()?);
                Ok(Operator::CompareAndPut { expected, new })
            },
        },
        Word {
            name: "put-new",
            arguments: "VALUE",
            json: r#"{"compare-and-put": {"expected": null, "new": "b"}}"#,
            help: "sets the value if there is none; returns whether there was none",
            make: |words| Ok(Operator::CompareAndPut { expected: None, new: words.bytes()? }),
        },
        Word {
            name: "read",
            arguments: "",
            json: r#""read""#,
            help: "returns the value",
            make: |_| Ok(Operator::Read),
        },
    ];
}
