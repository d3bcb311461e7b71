//! Election of a leader in a ring: a small, well-known algorithm, to show that the framework knows
//! nothing of replicas.
//!
//! Le Lann, Chang and Roberts (see Lynch, *Distributed Algorithms*, 3.3): everybody passes on the
//! identifiers that are greater than its own; whose own comes back is the leader.

use crate::ioa::{Heard, IoAutomaton, Part, Said};
use std::collections::VecDeque;

/// What a member of the ring does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It passes an identifier on.
    Pass,
    /// It says that it is the leader.
    Lead,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    /// It waits for its identifier to come back.
    Unknown,
    /// It did, and is still to be told.
    Chosen,
    /// It was told.
    Reported,
}

/// A member of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    identifier: u64,
    next: usize,
    to_pass: VecDeque<u64>,
    status: Status,
}

impl Member {
    /// Members with these identifiers, in the order of the ring. No two are equal.
    pub fn ring(identifiers: &[u64]) -> Vec<Member> {
        let member = |(at, identifier): (usize, &u64)| Member {
            identifier: *identifier,
            next: (at + 1) % identifiers.len(),
            to_pass: VecDeque::from([*identifier]),
            status: Status::Unknown,
        };
        identifiers.iter().enumerate().map(member).collect()
    }

    /// What it is called, and compared by.
    pub fn identifier(&self) -> u64 {
        self.identifier
    }

    /// Whether it has said that it is the leader.
    pub fn leads(&self) -> bool {
        self.status == Status::Reported
    }
}

impl IoAutomaton for Member {
    type Input = Heard<u64, ()>;
    type Action = Action;
    type Output = Said<u64, u64>;

    fn tasks(&self) -> usize {
        2
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Action>) {
        match task {
            0 => actions.extend((!self.to_pass.is_empty()).then_some(Action::Pass)),
            1.. => actions.extend((self.status == Status::Chosen).then_some(Action::Lead)),
        }
    }

    fn transition(&mut self, action: Action) -> Option<Said<u64, u64>> {
        match action {
            Action::Pass => {
                let identifier = self.to_pass.pop_front().expect("it was enabled");
                Some(Said::To(vec![self.next], identifier))
            }
            Action::Lead => {
                assert_eq!(self.status, Status::Chosen, "it was enabled");
                self.status = Status::Reported;
                Some(Said::Outside(self.identifier))
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            Heard::From(_, identifier) if identifier > self.identifier => {
                self.to_pass.push_back(identifier);
            }
            Heard::From(_, identifier) if identifier == self.identifier => {
                self.status = Status::Chosen;
            }
            // A smaller one goes no further; nobody stops, and nothing comes from outside.
            Heard::From(..) | Heard::Outside(()) | Heard::Lost(_) => {}
        }
    }
}

impl Part for Member {
    type Message = u64;
    type Request = ();
    type Answer = u64;

    fn participants(&self, action: &Action) -> Vec<usize> {
        match action {
            Action::Pass => vec![self.next],
            Action::Lead => Vec::new(),
        }
    }
}
