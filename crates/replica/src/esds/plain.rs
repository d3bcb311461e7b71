//! *ESDSAlg*: the plain algorithm (paper 001, figure 4.2), which tells everything each time and
//! computes each value from the beginning. A replica does not gossip to itself: that would tell it
//! nothing (paper 001, 4.3.1).

use super::knowledge::{Knowledge, Replicas};
use super::{Action, Id, Label, Message, Pace, Replica, Request, Rules};
use crate::data::DataType;
use crate::ioa::{Heard, IoAutomaton, Part, Said};
use std::collections::BTreeSet;

/// The replica automaton.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plain<D: DataType> {
    data: D,
    knowledge: Knowledge<D::Operator>,
    /// What is to be answered.
    pending: BTreeSet<Id>,
    /// To whom it is time to gossip.
    due: Replicas,
}

impl<D: DataType> Plain<D> {
    /// Replica `me` of so many, before all operations.
    pub fn new(data: D, me: usize, replicas: usize, rules: Rules) -> Plain<D> {
        let knowledge = Knowledge::new(me, replicas, rules);
        Plain { data, knowledge, pending: BTreeSet::new(), due: Replicas::default() }
    }

    /// The value of everything that is done here, in order.
    fn values(&self) -> impl Iterator<Item = (Id, D::Value)> {
        let order = self.knowledge.order().values();
        order.scan(self.data.initial(), |state, id| {
            Some((*id, self.data.apply(state, self.knowledge.operator(*id))))
        })
    }

    fn gossip_now(&mut self) {
        if self.knowledge.rules.pace != Pace::Never {
            self.due = self.knowledge.others();
        }
    }

    fn gossip_soon(&mut self) {
        if self.knowledge.rules.pace == Pace::AtOnce {
            self.due = self.knowledge.others();
        }
    }
}

impl<D: DataType> Replica<D> for Plain<D> {
    fn received(&self) -> BTreeSet<Id> {
        self.knowledge.received()
    }

    fn done(&self, i: usize) -> BTreeSet<Id> {
        self.knowledge.done(i)
    }

    fn solid(&self, i: usize) -> BTreeSet<Id> {
        self.knowledge.solid(i)
    }

    fn label(&self, id: Id) -> Option<Label> {
        self.knowledge.get(id)?.label
    }

    fn clock(&self) -> u64 {
        self.knowledge.clock
    }

    fn value(&self, id: Id) -> D::Value {
        let (_, value) = self.values().find(|(each, _)| *each == id).expect("it is done here");
        value
    }

    fn contradiction(&self) -> Option<&'static str> {
        self.knowledge.contradiction()
    }

    fn finals(&self) -> Vec<(Id, D::Value)> {
        let solid = self.knowledge.order().iter().rfind(|(_, id)| self.knowledge.is_solid(**id));
        let mut count = 0;
        if let Some((last, _)) = solid {
            count = self.knowledge.order().range(..=last).count();
        }
        self.values().take(count).collect()
    }
}

impl<D: DataType> IoAutomaton for Plain<D> {
    type Input = Heard<Message<D::Operator, D::Value>, Request<D::Operator>>;
    type Action = Action;
    type Output = Said<Message<D::Operator, D::Value>, (Id, D::Value)>;

    /// To answer, to do, and to gossip to each.
    fn tasks(&self) -> usize {
        2 + self.knowledge.replicas
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Action>) {
        match task {
            0 => actions.extend(self.knowledge.responses(&self.pending)),
            1 => actions.extend(self.knowledge.doable().map(Action::Do)),
            2.. => actions.extend(self.due.has(task - 2).then_some(Action::Gossip(task - 2))),
        }
    }

    fn transition(&mut self, action: Action) -> Option<Self::Output> {
        match action {
            Action::Do(id) => {
                self.knowledge.perform(id);
                self.gossip_soon();
                None
            }
            Action::Solidify(id) => {
                self.knowledge.solidify(id);
                None
            }
            Action::Respond(id, to) => {
                self.pending.remove(&id);
                Some(Said::To(vec![to], Message::Response(id, self.value(id))))
            }
            Action::Gossip(to) => {
                self.due.remove(to);
                let news = self.knowledge.all().map(|known| self.knowledge.news(known));
                Some(Said::To(vec![to], Message::Gossip(news.collect())))
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            Heard::From(_, Message::Request(descriptor)) => {
                self.pending.insert(descriptor.id);
                if self.knowledge.receive(&descriptor) {
                    self.gossip_soon();
                }
            }
            Heard::From(from, Message::Gossip(news)) => {
                let changes = news.iter().filter(|news| self.knowledge.merge(from, news)).count();
                if changes > 0 {
                    self.gossip_soon();
                }
            }
            Heard::Outside(Request::Tick) => self.gossip_now(),
            Heard::Lost(_) => self.gossip_soon(),
            // Of front ends.
            Heard::From(_, Message::Response(..)) | Heard::Outside(Request::Submit(_)) => {}
        }
    }
}

impl<D: DataType> Part for Plain<D> {
    type Message = Message<D::Operator, D::Value>;
    type Request = Request<D::Operator>;
    type Answer = (Id, D::Value);

    fn participants(&self, action: &Action) -> Vec<usize> {
        action.participants()
    }
}
