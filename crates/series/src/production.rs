//! Production replica in the same harness. It has no journal here: records count as written
//! immediately.

use crate::actor::{Actor, Order, ReplicaHolder, Requested, Turn, TurnOutcome};
use crate::counted::{Counted, Workload};
use crate::wire::{About, Spoken};
use base::{Automaton, Instant as Tick};
use replica::data::{DataType, Value};
use replica::service::{Config, Entry, Input, Message, Output, Replica, ReplicaId, Ticket, Vector};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Message between parts of this service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PartMessage<O> {
    /// Request from the front end to a replica.
    Request(u64, bool, O),
    /// Response of the replica.
    Response(u64, Value),
    /// Gossip between replicas.
    Gossip(Message<O>),
}

impl<O: Serialize + DeserializeOwned> Spoken for PartMessage<O> {
    fn about(&self) -> About {
        match self {
            PartMessage::Request(number, ..) => About::Request(*number),
            PartMessage::Response(number, _) => About::Response(*number),
            PartMessage::Gossip(message) => About::Gossip(message.entries.len() as u64),
        }
    }
}

/// Request timeout, longer than any run.
const TIMEOUT: Duration = Duration::from_secs(600);

type Done<D> = Arc<Entry<<D as DataType>::Operator>>;

/// Replica.
pub(crate) struct Site<D: Workload> {
    replica: Replica<Counted<D>>,
    me: usize,
    replicas: usize,
    counted: Counted<D>,
    began: Instant,
    /// Outputs to send.
    outcomes: VecDeque<TurnOutcome<PartMessage<D::Operator>>>,
    /// Operations done, in local order.
    done: Vec<Done<D>>,
}

fn identity(part: usize) -> ReplicaId {
    ReplicaId(u16::try_from(part).expect("there are not as many"))
}

impl<D: Workload> Site<D> {
    /// Creates replica `me` of `replicas`, connected to all others; gossip about non-strict
    /// operations is delayed by `gather`.
    pub(crate) fn new(me: usize, replicas: usize, gather: Duration) -> Site<D> {
        let counted: Counted<D> = Counted::default();
        let config = Config { gossip: gather, limits: replica::service::Limits::default() };
        let members: Vec<ReplicaId> = (0..replicas).map(identity).collect();
        let replica = Replica::new(counted.clone(), identity(me), &members, config);
        let (began, outcomes, done) = (Instant::now(), VecDeque::new(), Vec::new());
        let mut site = Site { replica, me, replicas, counted, began, outcomes, done };
        let others = members.iter().filter(|id| **id != identity(me));
        others.for_each(|id| site.step(Input::Connected(*id)));
        site
    }

    fn now(&self) -> Tick {
        Tick(0) + self.began.elapsed()
    }

    fn step(&mut self, input: Input<D::Operator>) {
        let (now, mut inputs) = (self.now(), VecDeque::from([input]));
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.replica.step(now, input, &mut out);
            for output in out {
                match output {
                    Output::Answer { ticket, value, .. } => {
                        let answer = PartMessage::Response(ticket.0, value);
                        self.outcomes.push_back(TurnOutcome::Sent(vec![self.replicas], answer));
                    }
                    Output::Send(peer, message) => {
                        let to = vec![usize::from(peer.0)];
                        self.outcomes
                            .push_back(TurnOutcome::Sent(to, PartMessage::Gossip(message)));
                    }
                    Output::Persist(number, record) => {
                        self.done.extend(record.entries);
                        inputs.push_back(Input::Persisted(number));
                    }
                    Output::Refuse(..)
                    | Output::Distrust(_)
                    | Output::Outdated(_)
                    | Output::Vote(..)
                    | Output::Removes(_)
                    | Output::Members(_)
                    | Output::Final(..) => {
                        panic!("replica {} is in trouble: {output:?}", self.me)
                    }
                }
            }
        }
    }
}

impl<D: Workload> Actor for Site<D> {
    type Message = PartMessage<D::Operator>;

    fn receive(&mut self, from: usize, message: Self::Message) {
        match message {
            PartMessage::Request(number, strict, operator) => {
                let (ticket, until) = (Ticket(number), self.now() + TIMEOUT);
                let after = Vector::new();
                self.step(Input::Request { ticket, after, strict, operator, until });
            }
            PartMessage::Gossip(message) => self.step(Input::Received(identity(from), message)),
            PartMessage::Response(..) => unreachable!("nobody answers a replica"),
        }
    }

    /// Outputs are determined when a message is processed, so no turn is needed to produce them.
    fn act(&mut self, turn: Turn) -> TurnOutcome<Self::Message> {
        if turn == Turn::Answer && self.outcomes.is_empty() {
            let now = self.now();
            if self.replica.deadline().is_some_and(|deadline| deadline <= now) {
                self.step(Input::Tick);
            }
        }
        match turn {
            Turn::Answer => self.outcomes.pop_front().unwrap_or(TurnOutcome::Nothing),
            Turn::Hear | Turn::Gossip => TurnOutcome::Nothing,
        }
    }

    fn applied(&self) -> u64 {
        self.counted.applied()
    }

    fn deadline(&self) -> Option<Instant> {
        self.replica.deadline().map(|deadline| self.began + deadline.since(Tick(0)))
    }
}

impl<D: Workload> ReplicaHolder for Site<D> {
    fn final_count(&self) -> usize {
        self.done.len() - self.replica.suffix().count()
    }

    /// Labels are permanent, so the eventual order is that of the labels.
    fn finals(&self) -> Vec<(u64, Value)> {
        let mut done = self.done.clone();
        done.sort_by_key(|entry| entry.label);
        let (data, mut values) = (D::default(), Vec::new());
        let mut state = data.initial();
        for entry in &done {
            let value = data.apply(&mut state, &entry.operator);
            values.push((D::number(&entry.operator), value));
        }
        assert!(state == *self.replica.stable(), "its state is not that of its order");
        values
    }
}

/// Front end, like that of the paper, but without an automaton of its own.
pub(crate) struct ClientFrontEnd<O> {
    replicas: usize,
    outcomes: VecDeque<TurnOutcome<PartMessage<O>>>,
}

impl<O> ClientFrontEnd<O> {
    /// Creates a front end for this many replicas.
    pub(crate) fn new(replicas: usize) -> ClientFrontEnd<O> {
        ClientFrontEnd { replicas, outcomes: VecDeque::new() }
    }
}

impl<O: Serialize + DeserializeOwned> Actor for ClientFrontEnd<O> {
    type Message = PartMessage<O>;

    fn receive(&mut self, _from: usize, message: PartMessage<O>) {
        match message {
            PartMessage::Response(number, value) => {
                self.outcomes.push_back(TurnOutcome::Answered(number, value))
            }
            PartMessage::Request(..) | PartMessage::Gossip(_) => {
                unreachable!("nobody asks a front end")
            }
        }
    }

    fn act(&mut self, turn: Turn) -> TurnOutcome<PartMessage<O>> {
        match turn {
            Turn::Answer => self.outcomes.pop_front().unwrap_or(TurnOutcome::Nothing),
            Turn::Hear | Turn::Gossip => TurnOutcome::Nothing,
        }
    }
}

impl<O: Serialize + DeserializeOwned> Requested<O> for ClientFrontEnd<O> {
    fn submit(&mut self, order: Order<O>) {
        let to = usize::try_from(order.number).unwrap_or_default() % self.replicas;
        let request = PartMessage::Request(order.number, order.strict, order.operator);
        self.outcomes.push_back(TurnOutcome::Sent(vec![to], request));
    }
}
