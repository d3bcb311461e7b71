//! A map of keys to values, in the order of keys.

use super::{Bytes, DataType, Value};
use rpds::RedBlackTreeMapSync;
use std::ops::Bound;

/// Entries in one answer, at most.
pub const ENTRIES_MAX: usize = 1000;

/// A map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Map;

/// What can be done to a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Sets the value of a key.
    Put(Bytes, Bytes),
    /// Takes a key away.
    Remove(Bytes),
    /// Takes a key away; answers its value.
    Take(Bytes),
    /// Sets the value of a key if it is the expected one; answers whether it was. Nothing is
    /// expected of a key that is not there.
    CompareAndPut {
        /// Which key.
        key: Bytes,
        /// What is to be there.
        expected: Option<Bytes>,
        /// What is to be there then.
        new: Bytes,
    },
    /// Answers the value of a key.
    Get(Bytes),
    /// Answers keys and values, at most so many, from behind this key on.
    List(Option<Bytes>, usize),
    /// Answers how many keys there are.
    Size,
}

impl Operator {
    /// The key that it changes.
    fn changes(&self) -> Option<&Bytes> {
        match self {
            Operator::Put(key, _)
            | Operator::Remove(key)
            | Operator::Take(key)
            | Operator::CompareAndPut { key, .. } => Some(key),
            Operator::Get(_) | Operator::List(..) | Operator::Size => None,
        }
    }

    /// Whether its value depends on what this key has.
    fn sees(&self, other: &Bytes) -> bool {
        match self {
            Operator::Put(..) | Operator::Remove(_) => false,
            Operator::Take(key) | Operator::Get(key) | Operator::CompareAndPut { key, .. } => {
                key == other
            }
            Operator::List(after, _) => after.as_ref().is_none_or(|after| after < other),
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
            Operator::List(after, most) => {
                let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
                let entries = state.range((from, Bound::Unbounded)).take((*most).min(ENTRIES_MAX));
                Value::Entries(entries.map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Operator::Size => Value::Integer(state.size() as i128),
        }
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
}
