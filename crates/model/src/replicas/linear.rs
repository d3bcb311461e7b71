//! Linearizability of strict-only histories, according to stateright's tester. It follows from G1
//! and G3 (the paper's corollary); this is an independent check.

use crate::op_list::OpList;
use esds::Id;
use replica::data::DataType as _;
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

/// Maximum operations of a checked history: the search tries every order.
pub(super) const OPERATIONS_MAX: u64 = 12;

/// Maximum unanswered operations of a checked history: each may be at any later position.
const UNKNOWN_MAX: usize = 2;

/// Requests and answers of clients, in real-time order.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<Moment>);

#[derive(Clone, Debug)]
enum Moment {
    Requested(Id),
    Answered(Id, Vec<Id>),
}

/// Sequential specification of the list.
#[derive(Clone, Debug, Default)]
struct Alone(Vec<Id>);

impl SequentialSpec for Alone {
    type Op = Id;
    type Ret = Vec<Id>;

    fn invoke(&mut self, id: &Id) -> Vec<Id> {
        OpList.apply(&mut self.0, id)
    }
}

impl History {
    pub(super) fn ask(&mut self, id: Id) {
        self.0.push(Moment::Requested(id));
    }

    pub(super) fn answer(&mut self, id: Id, value: &[Id]) {
        self.0.push(Moment::Answered(id, value.to_vec()));
    }

    /// Reports whether the search is feasible.
    pub(super) fn is_small(&self) -> bool {
        let requested = |moment: &&Moment| matches!(moment, Moment::Requested(_));
        let requested = self.0.iter().filter(requested).count();
        2 * requested - self.0.len() <= UNKNOWN_MAX
    }

    /// Checks the history. Each operation is a thread of its own, because a client may continue
    /// without an answer.
    pub(super) fn judge(&self) -> Result<(), String> {
        let mut tester = LinearizabilityTester::new(Alone::default());
        for moment in &self.0 {
            match moment {
                Moment::Requested(id) => drop(tester.on_invoke(id.0, *id)?),
                Moment::Answered(id, value) => drop(tester.on_return(id.0, value.clone())?),
            }
        }
        match tester.is_consistent() {
            true => Ok(()),
            false => Err(format!("G1, G3: not linearizable: {:?}", self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tester's verdict on the answers to consecutive operations.
    fn judge(answers: &[&[u64]]) -> Result<(), String> {
        let mut history = History::default();
        for (number, value) in (1..).zip(answers) {
            let value: Vec<Id> = value.iter().copied().map(Id).collect();
            history.ask(Id(number));
            history.answer(Id(number), &value);
        }
        history.judge()
    }

    #[test]
    fn the_tester_finds_what_is_not_linearizable() {
        assert_eq!(judge(&[&[1], &[1, 2], &[1, 2, 3]]), Ok(()));
        assert!(judge(&[&[1], &[2]]).is_err(), "the first one is lost");
        assert!(judge(&[&[1], &[2, 1]]).is_err(), "the second came before the first");
        assert!(judge(&[&[2, 1], &[2]]).is_err(), "the first saw what was not asked yet");
    }

    #[test]
    fn an_unanswered_operation_may_or_may_not_be_visible() {
        let mut history = History::default();
        history.ask(Id(1));
        history.ask(Id(2));
        history.answer(Id(2), &[Id(1), Id(2)]);
        assert_eq!(history.judge(), Ok(()));
        let mut history = History::default();
        history.ask(Id(1));
        history.ask(Id(2));
        history.answer(Id(2), &[Id(2)]);
        assert_eq!(history.judge(), Ok(()));
    }
}
