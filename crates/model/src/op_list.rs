//! Data type whose values reveal the order: each operation returns all operations before it.

use esds::Id;
use replica::data::DataType;

/// Append-only list of operations. The value of an operation is the list up to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpList;

impl DataType for OpList {
    type State = Vec<Id>;
    type Operator = Id;
    type Value = Vec<Id>;

    fn initial(&self) -> Vec<Id> {
        Vec::new()
    }

    fn apply(&self, state: &mut Vec<Id>, operator: &Id) -> Vec<Id> {
        state.push(*operator);
        state.clone()
    }

    fn value_size(&self, value: &Vec<Id>) -> usize {
        size_of_val(&value[..])
    }

    fn commute(&self, a: &Id, b: &Id) -> bool {
        a == b
    }

    fn oblivious(&self, a: &Id, b: &Id) -> bool {
        a == b
    }
}
