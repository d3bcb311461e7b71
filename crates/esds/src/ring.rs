//! Leader election in a ring: a small, well-known algorithm, which shows that the framework is
//! independent of replication.
//!
//! Le Lann, Chang and Roberts (see Lynch, *Distributed Algorithms*, 3.3): each member forwards
//! identifiers greater than its own; the member that receives its own identifier is the leader.

use crate::ioa::{IoAutomaton, Part, PartInput, PartOutput};
use std::collections::VecDeque;

/// Action of a ring member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Forwards an identifier.
    Pass,
    /// Announces that it is the leader.
    Lead,
}

/// Election progress of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    /// Waiting for its own identifier.
    Unknown,
    /// Received its own identifier; the announcement is pending.
    Chosen,
    /// Announced.
    Reported,
}

/// Ring member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    identifier: u64,
    next: usize,
    to_pass: VecDeque<u64>,
    status: Status,
}

impl Member {
    /// Creates members with these distinct identifiers, in ring order.
    pub fn ring(identifiers: &[u64]) -> Vec<Member> {
        let member = |(at, identifier): (usize, &u64)| Member {
            identifier: *identifier,
            next: (at + 1) % identifiers.len(),
            to_pass: VecDeque::from([*identifier]),
            status: Status::Unknown,
        };
        identifiers.iter().enumerate().map(member).collect()
    }

    /// Returns the identifier by which members are compared.
    pub fn identifier(&self) -> u64 {
        self.identifier
    }

    /// Reports whether it has announced itself as leader.
    pub fn leads(&self) -> bool {
        self.status == Status::Reported
    }
}

impl IoAutomaton for Member {
    type Input = PartInput<u64, ()>;
    type Action = Action;
    type Output = PartOutput<u64, u64>;

    fn tasks(&self) -> usize {
        2
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Action>) {
        match task {
            0 => actions.extend((!self.to_pass.is_empty()).then_some(Action::Pass)),
            1.. => actions.extend((self.status == Status::Chosen).then_some(Action::Lead)),
        }
    }

    fn transition(&mut self, action: Action) -> Option<PartOutput<u64, u64>> {
        match action {
            Action::Pass => {
                let identifier = self.to_pass.pop_front().expect("it was enabled");
                Some(PartOutput::To(vec![self.next], identifier))
            }
            Action::Lead => {
                assert_eq!(self.status, Status::Chosen, "it was enabled");
                self.status = Status::Reported;
                Some(PartOutput::Outside(self.identifier))
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            PartInput::From(_, identifier) if identifier > self.identifier => {
                self.to_pass.push_back(identifier);
            }
            PartInput::From(_, identifier) if identifier == self.identifier => {
                self.status = Status::Chosen;
            }
            // Smaller identifiers are dropped; no member stops, and there is no external input.
            PartInput::From(..) | PartInput::Outside(()) | PartInput::Lost(_) => {}
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
