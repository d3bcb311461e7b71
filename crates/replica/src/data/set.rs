//! Ordered set.

use super::words::{Spoken, Word};
use super::{Bytes, DataType, Value, within_answer};
use rpds::RedBlackTreeSetSync;
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// Maximum members in one result.
pub const MEMBERS_MAX: u32 = 1000;

fn members_max() -> u32 {
    MEMBERS_MAX
}

/// Ordered set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Set;

/// Operation on a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Adds a member.
    Add(Bytes),
    /// Removes a member.
    Remove(Bytes),
    /// Adds a member; returns whether it was absent.
    Insert(Bytes),
    /// Returns whether a member is present.
    Contains(Bytes),
    /// Returns members in order, as many as [`super::ANSWER_MAX`] allows.
    List {
        /// Exclusive lower bound; the first member by default.
        #[serde(default)]
        after: Option<Bytes>,
        /// Maximum number of members, capped at [`MEMBERS_MAX`].
        #[serde(default = "members_max")]
        most: u32,
    },
    /// Returns the number of members.
    Size,
}

impl Operator {
    /// Returns the affected member, and whether it is present afterwards.
    fn changes(&self) -> Option<(&Bytes, bool)> {
        match self {
            Operator::Add(member) | Operator::Insert(member) => Some((member, true)),
            Operator::Remove(member) => Some((member, false)),
            Operator::Contains(_) | Operator::List { .. } | Operator::Size => None,
        }
    }

    /// Reports whether the result depends on the presence of this member.
    fn sees(&self, other: &Bytes) -> bool {
        match self {
            Operator::Add(_) | Operator::Remove(_) => false,
            Operator::Insert(member) | Operator::Contains(member) => member == other,
            Operator::List { after, .. } => after.as_ref().is_none_or(|after| after < other),
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
            Operator::List { after, most } => {
                let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
                let members = state.range((from, Bound::Unbounded)).cloned();
                let members = members.take((*most).min(MEMBERS_MAX) as usize);
                Value::List(within_answer(members, |member| member.len()))
            }
            Operator::Size => Value::Integer(state.size() as i128),
        }
    }

    fn value_size(&self, value: &Value) -> usize {
        value.size()
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

    fn is_read(&self, operator: &Operator) -> bool {
        operator.changes().is_none()
    }
}

impl Spoken for Set {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "add",
            arguments: "MEMBER",
            json: r#"{"add": "member"}"#,
            help: "adds a member",
            make: |words| words.bytes().map(Operator::Add),
        },
        Word {
            name: "remove",
            arguments: "MEMBER",
            json: r#"{"remove": "member"}"#,
            help: "removes a member",
            make: |words| words.bytes().map(Operator::Remove),
        },
        Word {
            name: "insert",
            arguments: "MEMBER",
            json: r#"{"insert": "member"}"#,
            help: "adds a member; returns whether it was absent",
            make: |words| words.bytes().map(Operator::Insert),
        },
        Word {
            name: "contains",
            arguments: "MEMBER",
            json: r#"{"contains": "member"}"#,
            help: "returns whether it is a member",
            make: |words| words.bytes().map(Operator::Contains),
        },
        Word {
            name: "list",
            arguments: "[MOST [AFTER]]",
            json: r#"{"list": {"most": 10, "after": "member"}}"#,
            help: "returns members, in order; both limits are optional",
            make: |words| {
                let most = words.number_or(MEMBERS_MAX)?;
                Ok(Operator::List { after: words.maybe_bytes(), most })
            },
        },
        Word {
            name: "size",
            arguments: "",
            json: r#""size""#,
            help: "returns the number of members",
            make: |_| Ok(Operator::Size),
        },
    ];
}
