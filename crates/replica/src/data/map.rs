//! Map from keys to values, ordered by key.

use super::words::{Spoken, Word};
use super::{Bytes, DataType, Value, within_answer};
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// Maximum entries in one result.
pub const ENTRIES_MAX: u32 = 1000;

fn entries_max() -> u32 {
    ENTRIES_MAX
}

/// Ordered map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Map;

/// Operation on a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Sets the value of a key.
    Put(Bytes, Bytes),
    /// Removes a key.
    Remove(Bytes),
    /// Removes a key; returns its value.
    Take(Bytes),
    /// Sets the value of a key if the current value equals `expected`; returns whether it did. An
    /// absent key matches `None`.
    CompareAndPut {
        /// Key to update.
        key: Bytes,
        /// Value required beforehand.
        expected: Option<Bytes>,
        /// Value to store.
        new: Bytes,
    },
    /// Returns the value of a key.
    Get(Bytes),
    /// Returns keys and values in key order, as many as [`super::ANSWER_MAX`] allows.
    List {
        /// Exclusive lower bound; the first key by default.
        #[serde(default)]
        after: Option<Bytes>,
        /// Maximum number of entries, capped at [`ENTRIES_MAX`].
        #[serde(default = "entries_max")]
        most: u32,
    },
    /// Returns the number of keys.
    Size,
}

impl Operator {
    /// Returns the key that this operator updates.
    fn changes(&self) -> Option<&Bytes> {
        match self {
            Operator::Put(key, _)
            | Operator::Remove(key)
            | Operator::Take(key)
            | Operator::CompareAndPut { key, .. } => Some(key),
            Operator::Get(_) | Operator::List { .. } | Operator::Size => None,
        }
    }

    /// Reports whether the result depends on the value of this key.
    fn sees(&self, other: &Bytes) -> bool {
        match self {
            Operator::Put(..) | Operator::Remove(_) => false,
            Operator::Take(key) | Operator::Get(key) | Operator::CompareAndPut { key, .. } => {
                key == other
            }
            Operator::List { after, .. } => after.as_ref().is_none_or(|after| after < other),
            Operator::Size => true,
        }
    }
}

impl DataType for Map {
    type State = RedBlackTreeMapSync<Bytes, Bytes>;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> Self::State {
        RedBlackTreeMapSync::new_sync()
    }

    fn apply(&self, state: &mut Self::State, operator: &Operator) -> Value {
        match operator {
            Operator::Put(key, value) => {
                state.insert_mut(key.clone(), value.clone());
                Value::Done
            }
            Operator::Remove(key) => {
                state.remove_mut(key);
                Value::Done
            }
            Operator::Take(key) => {
                let taken = state.get(key).cloned();
                state.remove_mut(key);
                taken.into()
            }
            Operator::CompareAndPut { key, expected, new } => {
                let fits = state.get(key) == expected.as_ref();
                if fits {
                    state.insert_mut(key.clone(), new.clone());
                }
                Value::Bool(fits)
            }
            Operator::Get(key) => state.get(key).cloned().into(),
            Operator::List { after, most } => {
                let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
                let entries = state.range((from, Bound::Unbounded));
                let entries = entries.map(|(key, value)| (key.clone(), value.clone()));
                let entries = entries.take((*most).min(ENTRIES_MAX) as usize);
                Value::Entries(within_answer(entries, |(key, value)| key.len() + value.len()))
            }
            Operator::Size => Value::Integer(state.size() as i128),
        }
    }

    fn value_size(&self, value: &Value) -> usize {
        value.size()
    }

    fn commute(&self, a: &Operator, b: &Operator) -> bool {
        a.changes().zip(b.changes()).is_none_or(|(a, b)| a != b)
    }

    fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
        b.changes().is_none_or(|key| !a.sees(key))
    }

    fn is_free(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::Put(..) | Operator::Remove(_))
    }

    fn is_read(&self, operator: &Operator) -> bool {
        operator.changes().is_none()
    }
}

impl Spoken for Map {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "put",
            arguments: "KEY VALUE",
            json: r#"{"put": ["key", "value"]}"#,
            help: "sets the value of a key",
            make: |words| Ok(Operator::Put(words.bytes()?, words.bytes()?)),
        },
        Word {
            name: "remove",
            arguments: "KEY",
            json: r#"{"remove": "key"}"#,
            help: "removes a key",
            make: |words| words.bytes().map(Operator::Remove),
        },
        Word {
            name: "take",
            arguments: "KEY",
            json: r#"{"take": "key"}"#,
            help: "removes a key; returns its value",
            make: |words| words.bytes().map(Operator::Take),
        },
        Word {
            name: "compare-and-put",
            arguments: "KEY EXPECTED NEW",
            json: r#"{"compare-and-put": {"key": "key", "expected": "a", "new": "b"}}"#,
            help: "sets the value of a key if it is the expected one; returns whether it was",
            make: |words| {
                let (key, expected, new) = (words.bytes()?, Some(words.bytes()?), words.bytes()?);
                Ok(Operator::CompareAndPut { key, expected, new })
            },
        },
        Word {
            name: "put-new",
            arguments: "KEY VALUE",
            json: r#"{"compare-and-put": {"key": "key", "expected": null, "new": "b"}}"#,
            help: "sets the value of a key that has none; returns whether it had none",
            make: |words| {
                let (key, expected, new) = (words.bytes()?, None, words.bytes()?);
                Ok(Operator::CompareAndPut { key, expected, new })
            },
        },
        Word {
            name: "get",
            arguments: "KEY",
            json: r#"{"get": "key"}"#,
            help: "returns the value of a key",
            make: |words| words.bytes().map(Operator::Get),
        },
        Word {
            name: "list",
            arguments: "[MOST [AFTER]]",
            json: r#"{"list": {"most": 10, "after": "key"}}"#,
            help: "returns keys and values, in order; both limits are optional",
            make: |words| {
                let most = words.number_or(ENTRIES_MAX)?;
                Ok(Operator::List { after: words.maybe_bytes(), most })
            },
        },
        Word {
            name: "size",
            arguments: "",
            json: r#""size""#,
            help: "returns the number of keys",
            make: |_| Ok(Operator::Size),
        },
    ];
}
