//! Whether a history of nothing but strict operations is linearizable, as judged by stateright's
//! tester: G1 and G3 together say so (the paper's corollary), and here is somebody else who looks.

use crate::trail::Trail;
use replica::data::DataType as _;
use replica::esds::Id;
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

/// More operations are not looked at: the search tries every order.
pub(super) const OPERATIONS_MAX: u64 = 12;

/// Nor histories with more operations that nobody knows the end of: each of them may be anywhere.
const UNKNOWN_MAX: usize = 2;

/// What clients did and heard, in the order in which it happened.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<Moment>);

#[derive(Clone, Debug)]
enum Moment {
    Asked(Id),
    Answered(Id, Vec<Id>),
}

/// The trail of one who does everything alone.
#[derive(Clone, Debug, Default)]
struct Alone(Vec<Id>);

impl SequentialSpec for Alone {
    type Op = Id;
    type Ret = Vec<Id>;

    fn invoke(&mut self, id: &Id) -> Vec<Id> {
        Trail.apply(&mut self.0, id)
    }
}

impl History {
    pub(super) fn ask(&mut self, id: Id) {
        self.0.push(Moment::Asked(id));
    }

    pub(super) fn answer(&mut self, id: Id, value: &[Id]) {
        self.0.push(Moment::Answered(id, value.to_vec()));
    }

    /// Whether the tester comes to an end with it.
    pub(super) fn is_small(&self) -> bool {
        let asked = |moment: &&Moment| matches!(moment, Moment::Asked(_));
        let asked = self.0.iter().filter(asked).count();
        2 * asked - self.0.len() <= UNKNOWN_MAX
    }

    /// Looks at it. Each operation is a thread of its own: who got no answer may go on.
    pub(super) fn judge(&self) -> Result<(), String> {
        let mut tester = LinearizabilityTester::new(Alone::default());
        for moment in &self.0 {
            match moment {
                Moment::Asked(id) => drop(tester.on_invoke(id.0, *id)?),
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

    /// What the tester says of answers to operations that came one after the other.
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
    fn who_got_no_answer_may_be_seen_or_not() {
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
