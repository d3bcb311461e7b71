//! The front end: passes the operations of its clients to replicas, and the answers back.

use super::{Descriptor, Id, Message, Request, Rules, Slip};
use crate::data::DataType;
use crate::ioa::{Heard, IoAutomaton, Part, Said};
use std::collections::BTreeMap;
use std::sync::Arc;

/// To how many replicas an operation goes (paper 001, 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Submission {
    /// To one: by the number of the operation, so that all get equally many.
    One,
    /// To all; the first answer counts.
    All,
}

impl Submission {
    /// Where an operation goes, the last first.
    fn replicas(self, id: Id, replicas: usize) -> Vec<usize> {
        match self {
            Submission::One => vec![usize::try_from(id.0).unwrap_or_default() % replicas],
            Submission::All => (0..replicas).rev().collect(),
        }
    }
}

/// What a front end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `send`: it passes an operation to a replica.
    Send(Id, usize),
    /// `response`: it answers its client.
    Respond(Id),
}

/// A submitted operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wait<O, V> {
    descriptor: Arc<Descriptor<O>>,
    /// Replicas to which it is still to be sent, the last first.
    to_send: Vec<usize>,
    answer: Option<V>,
}

/// The front end automaton (paper 001, figure 4.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrontEnd<D: DataType> {
    replicas: usize,
    submission: Submission,
    rules: Rules,
    waits: BTreeMap<Id, Wait<D::Operator, D::Value>>,
}

impl<D: DataType> FrontEnd<D> {
    /// A front end of this many replicas, which are the first parts of the composition.
    pub fn new(replicas: usize, submission: Submission, rules: Rules) -> FrontEnd<D> {
        FrontEnd { replicas, submission, rules, waits: BTreeMap::new() }
    }

    fn submit(&mut self, descriptor: Descriptor<D::Operator>) {
        let to_send = self.submission.replicas(descriptor.id, self.replicas);
        let wait = Wait { descriptor: Arc::new(descriptor), to_send, answer: None };
        self.waits.insert(wait.descriptor.id, wait);
    }

    /// Who has not answered may not have heard.
    fn send_again(&mut self) {
        for (id, wait) in &mut self.waits {
            if wait.to_send.is_empty() && wait.answer.is_none() {
                wait.to_send = self.submission.replicas(*id, self.replicas);
            }
        }
    }
}

impl<D: DataType> IoAutomaton for FrontEnd<D> {
    type Input = Heard<Message<D::Operator, D::Value>, Request<D::Operator>>;
    type Action = Action;
    type Output = Said<Message<D::Operator, D::Value>, (Id, D::Value)>;

    /// To answer, and to send.
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
                Some(Said::To(vec![to], Message::Request(wait.descriptor.clone())))
            }
            Action::Respond(id) => {
                let answer = self.waits.remove(&id)?.answer.expect("it was enabled");
                Some(Said::Outside((id, answer)))
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            Heard::Outside(Request::Submit(descriptor)) => self.submit(descriptor),
            Heard::From(_, Message::Response(id, value)) => {
                // Of several answers the first counts.
                if let Some(wait) = self.waits.get_mut(&id) {
                    wait.answer.get_or_insert(value);
                }
            }
            Heard::Outside(Request::Tick) => self.send_again(),
            // Of replicas; and a replica of the paper does not stop.
            Heard::From(_, Message::Request(_) | Message::Gossip(_)) | Heard::Lost(_) => {}
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
