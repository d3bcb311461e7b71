//! Part of a service: a replica or a front end.

use super::{FrontEnd, Id, Message, Request, front_end};
use crate::ioa::{IoAutomaton, Part, PartInput, PartOutput};
use replica::data::DataType;

/// Front end or replica `R`; replicas are the first parts of a composition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Station<D: DataType, R> {
    /// Front end.
    FrontEnd(FrontEnd<D>),
    /// Replica.
    Replica(R),
}

/// Action of a part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act<A> {
    /// Action of a front end.
    FrontEnd(front_end::Action),
    /// Action of a replica.
    Replica(A),
}

impl<D: DataType, R> Station<D, R> {
    /// Returns the replica, if it is one.
    pub fn replica(&self) -> Option<&R> {
        match self {
            Station::Replica(replica) => Some(replica),
            Station::FrontEnd(_) => None,
        }
    }
}

/// Common bounds of the replica automata of a service.
pub trait ReplicaPart<D: DataType>:
    Part<
        Message = Message<D::Operator, D::Value>,
        Request = Request<D::Operator>,
        Answer = (Id, D::Value),
    >
{
}

impl<D, R> ReplicaPart<D> for R
where
    D: DataType,
    R: Part<
            Message = Message<D::Operator, D::Value>,
            Request = Request<D::Operator>,
            Answer = (Id, D::Value),
        >,
{
}

impl<D: DataType, R: ReplicaPart<D>> IoAutomaton for Station<D, R> {
    type Input = PartInput<Message<D::Operator, D::Value>, Request<D::Operator>>;
    type Action = Act<R::Action>;
    type Output = PartOutput<Message<D::Operator, D::Value>, (Id, D::Value)>;

    fn tasks(&self) -> usize {
        match self {
            Station::FrontEnd(front_end) => front_end.tasks(),
            Station::Replica(replica) => replica.tasks(),
        }
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Self::Action>) {
        match self {
            Station::FrontEnd(front_end) => {
                let mut own = Vec::new();
                front_end.enabled(task, &mut own);
                actions.extend(own.into_iter().map(Act::FrontEnd));
            }
            Station::Replica(replica) => {
                let mut own = Vec::new();
                replica.enabled(task, &mut own);
                actions.extend(own.into_iter().map(Act::Replica));
            }
        }
    }

    fn transition(&mut self, action: Self::Action) -> Option<Self::Output> {
        match (self, action) {
            (Station::FrontEnd(front_end), Act::FrontEnd(action)) => front_end.transition(action),
            (Station::Replica(replica), Act::Replica(action)) => replica.transition(action),
            (Station::FrontEnd(_), Act::Replica(_)) | (Station::Replica(_), Act::FrontEnd(_)) => {
                unreachable!("an action of another")
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match self {
            Station::FrontEnd(front_end) => front_end.input(input),
            Station::Replica(replica) => replica.input(input),
        }
    }
}

impl<D: DataType, R: ReplicaPart<D>> Part for Station<D, R> {
    type Message = Message<D::Operator, D::Value>;
    type Request = Request<D::Operator>;
    type Answer = (Id, D::Value);

    fn participants(&self, action: &Self::Action) -> Vec<usize> {
        match (self, action) {
            (Station::FrontEnd(front_end), Act::FrontEnd(action)) => front_end.participants(action),
            (Station::Replica(replica), Act::Replica(action)) => replica.participants(action),
            (Station::FrontEnd(_), Act::Replica(_)) | (Station::Replica(_), Act::FrontEnd(_)) => {
                Vec::new()
            }
        }
    }
}
