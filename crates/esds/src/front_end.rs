//! Front end: forwards its clients' operations to replicas, and returns the answers.

use super::{Descriptor, Id, Message, Request, Rules, Slip};
use crate::ioa::{IoAutomaton, Part, PartInput, PartOutput};
use replica::data::DataType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Replicas that receive an operation (paper 001, 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Submission {
    /// One replica, chosen by the operation's number, which balances the load.
    One,
    /// All replicas; the first answer counts.
    All,
}

impl Submission {
    /// Returns the destinations of an operation, last first.
    fn replicas(self, id: Id, replicas: usize) -> Vec<usize> {
        match self {
            Submission::One => vec![usize::try_from(id.0).unwrap_or_default() % replicas],
            Submission::All => (0..replicas).rev().collect(),
        }
    }
}

/// Action of a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `send`: forwards an operation to a replica.
    Send(Id, usize),
    /// `response`: answers its client.
    Respond(Id),
}

/// Pending operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wait<O, V> {
    descriptor: Arc<Descriptor<O>>,
    /// Replicas to which it has yet to be sent, last first.
    to_send: Vec<usize>,
    answer: Option<V>,
}

/// Front end automaton (paper 001, figure 4.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrontEnd<D: DataType> {
    replicas: usize,
    submission: Submission,
    rules: Rules,
    waits: BTreeMap<Id, Wait<D::Operator, D::Value>>,
}

impl<D: DataType> FrontEnd<D> {
    /// Creates a front end for this many replicas, which are the first parts of the composition.
    pub fn new(replicas: usize, submission: Submission, rules: Rules) -> FrontEnd<D> {
        FrontEnd { replicas, submission, rules, waits: BTreeMap::new() }
    }

    fn submit(&mut self, descriptor: Descriptor<D::Operator>) {
        let to_send = self.submission.replicas(descriptor.id, self.replicas);
        let wait = Wait { descriptor: Arc::new(descriptor), to_send, answer: None };
        self.waits.insert(wait.descriptor.id, wait);
    }

    /// Retransmits unanswered operations: the request or its answer may be lost.
    fn send_again(&mut self) {
        for (id, wait) in &mut self.waits {
            if wait.to_send.is_empty() && wait.answer.is_none() {
                wait.to_send = self.submission.replicas(*id, self.replicas);
            }
        }
    }
}

impl<D: DataType> IoAutomaton for FrontEnd<D> {
    type Input = PartInput<Message<D::Operator, D::Value>, Request<D::Operator>>;
    type Action = Action;
    type Output = PartOutput<Message<D::Operator, D::Value>, (Id, D::Value)>;

    /// One task answers, the other sends.
    fn tasks(&self) -> usize {
        2
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Action>) {
        for (id, wait) in &self.waits {
            actions.extend(match task {
                0 => wait.answer.as_ref().map(|_| Action::Respond(*id)),
                1.. => wait.to_send.last().map(|to| Action::Send(*id, *to)),
            });
        }
    }

    fn transition(&mut self, action: Action) -> Option<Self::Output> {
        match action {
            Action::Send(id, to) => {
                let wait = self.waits.get_mut(&id).expect("it was enabled");
                assert_eq!(wait.to_send.last(), Some(&to), "it was enabled");
                if !self.rules.slips(Slip::ResentForEver) {
                    wait.to_send.pop();
                }
                Some(PartOutput::To(vec![to], Message::Request(wait.descriptor.clone())))
            }
            Action::Respond(id) => {
                let answer = self.waits.remove(&id)?.answer.expect("it was enabled");
                Some(PartOutput::Outside((id, answer)))
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            PartInput::Outside(Request::Submit(descriptor)) => self.submit(descriptor),
            PartInput::From(_, Message::Response(id, value)) => {
                // Of several answers, the first counts.
                if let Some(wait) = self.waits.get_mut(&id) {
                    wait.answer.get_or_insert(value);
                }
            }
            PartInput::Outside(Request::Tick) => self.send_again(),
            // Messages to replicas; and the paper's replicas do not stop.
            PartInput::From(_, Message::Request(_) | Message::Gossip(_)) | PartInput::Lost(_) => {}
        }
    }
}

impl<D: DataType> Part for FrontEnd<D> {
    type Message = Message<D::Operator, D::Value>;
    type Request = Request<D::Operator>;
    type Answer = (Id, D::Value);

    fn participants(&self, action: &Action) -> Vec<usize> {
        match action {
            Action::Send(_, to) => vec![*to],
            Action::Respond(_) => Vec::new(),
        }
    }
}
