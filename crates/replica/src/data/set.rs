//! A set, in order.

use super::{Bytes, DataType, Value};
use rpds::RedBlackTreeSetSync;
use std::ops::Bound;

/// Members in one answer, at most.
pub const MEMBERS_MAX: usize = 1000;

/// A set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Set;

/// What can be done to a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Puts one in.
    Add(Bytes),
    /// Takes one out.
    Remove(Bytes),
    /// Puts one in; answers whether it was not in.
    Insert(Bytes),
    /// Answers whether one is in.
    Contains(Bytes),
    /// Answers members, at most so many, from behind this one on.
    List(Option<Bytes>, usize),
    /// Answers how many are in.
    Size,
}

impl Operator {
    /// What it changes, and whether that is in afterwards.
    fn changes(&self) -> Option<(&Bytes, bool)> {
        match self {
            Operator::Add(member) | Operator::Insert(member) => Some((member, true)),
            Operator::Remove(member) => Some((member, false)),
            Operator::Contains(_) | Operator::List(..) | Operator::Size => None,
        }
    }

    /// Whether its value depends on whether this one is in.
    fn sees(&self, other: &Bytes) -> bool {
        match self {
            Operator::Add(_) | Operator::Remove(_) => false,
            Operator::Insert(member) | Operator::Contains(member) => member == other,
            Operator::List(after, _) => after.as_ref().is_none_or(|after| after < other),
            Operator::Size => true,
        }
    }
}

impl DataType for Set {
    type State = RedBlackTreeSetSync<Bytes>;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> Self::State {
        RedBlackTreeSetSync::new_sync()
    }

    fn apply(&self, state: &mut Self::State, operator: &Operator) -> Value {
        match operator {
            Operator::Add(member) => {
                state.insert_mut(member.clone());
                Value::Done
            }
            Operator::Remove(member) => {
                state.remove_mut(member);
                Value::Done
            }
            Operator::Insert(member) => {
                let is_new = !state.contains(member);
                state.insert_mut(member.clone());
                Value::Bool(is_new)
            }
            Operator::Contains(member) => Value::Bool(state.contains(member)),
            Operator::List(after, most) => {
                let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
                let members = state.range((from, Bound::Unbounded)).take((*most).min(MEMBERS_MAX));
                Value::List(members.cloned().collect())
            }
            Operator::Size => Value::Integer(state.size() as i128),
        }
    }

    fn commute(&self, a: &Operator, b: &Operator) -> bool {
        let both = a.changes().zip(b.changes());
        both.is_none_or(|((a, a_in), (b, b_in))| a != b || a_in == b_in)
    }

    fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
        b.changes().is_none_or(|(member, _)| !a.sees(member))
    }

    fn is_free(&self, operator: &Operator) -> bool {
        matches!(operator, Operator::Add(_) | Operator::Remove(_))
    }
}
