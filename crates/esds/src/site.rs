//! Replica of the paper's algorithms. The common part is here; memoization and gossip contents are
//! the [`Method`] of the plain or the optimised one.

use super::knowledge::{Knowledge, Replicas};
use super::{Action, Id, Label, Message, News, Pace, Replica, Request, Rules, Slip};
use crate::ioa::{IoAutomaton, Part, PartInput, PartOutput};
use replica::data::DataType;
use std::collections::BTreeSet;

/// Memoization and gossip contents of a replica.
pub trait Method<D: DataType> {
    /// Creates the method before all operations.
    fn new(data: &D, replicas: usize) -> Self;
    /// Notes a change to this operation for gossip.
    fn note(&mut self, id: Id);
    /// Notes that this operation is stable.
    fn settle(&mut self, data: &D, knowledge: &Knowledge<D::Operator>, id: Id);
    /// Reports whether there is news for this replica.
    fn has_news_for(&self, peer: usize) -> bool;
    /// Returns the gossip to send to this replica now.
    fn gossip_for(
        &mut self,
        knowledge: &Knowledge<D::Operator>,
        peer: usize,
    ) -> Vec<News<D::Operator>>;
    /// Returns the value of a done operation in the current order.
    fn value(&self, data: &D, knowledge: &Knowledge<D::Operator>, id: Id) -> D::Value;
    /// Returns the final operations in order, with their values.
    fn finals(&self, data: &D, knowledge: &Knowledge<D::Operator>) -> Vec<(Id, D::Value)>;
    /// Returns a violated invariant, if any.
    fn contradiction(&self, knowledge: &Knowledge<D::Operator>) -> Option<&'static str>;
}

/// Replica automaton.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site<D: DataType, M> {
    data: D,
    knowledge: Knowledge<D::Operator>,
    method: M,
    /// Operations to answer.
    pending: BTreeSet<Id>,
    /// Replicas due for gossip.
    due: Replicas,
}

impl<D: DataType, M: Method<D>> Site<D, M> {
    /// Creates replica `me` of `replicas`, before all operations.
    pub fn new(data: D, me: usize, replicas: usize, rules: Rules) -> Site<D, M> {
        let (knowledge, method) = (Knowledge::new(me, replicas, rules), M::new(&data, replicas));
        Site { data, knowledge, method, pending: BTreeSet::new(), due: Replicas::default() }
    }

    fn has_changed(&mut self, id: Id) {
        self.method.note(id);
        if self.knowledge.rules.pace == Pace::AtOnce {
            self.due = self.knowledge.others();
        }
    }

    fn settle(&mut self, id: Id) {
        if self.knowledge.is_stable(id) {
            self.method.settle(&self.data, &self.knowledge, id);
        }
    }

    fn merge(&mut self, from: usize, news: &[News<D::Operator>]) {
        for each in news {
            if self.knowledge.merge(from, each) {
                self.has_changed(each.descriptor.id);
            }
        }
        // The order below a stable operation is known only after all labels are merged.
        news.iter().for_each(|each| self.settle(each.descriptor.id));
    }
}

impl<D: DataType, M: Method<D>> Replica<D> for Site<D, M> {
    fn received(&self) -> BTreeSet<Id> {
        self.knowledge.received()
    }

    fn done(&self, i: usize) -> BTreeSet<Id> {
        self.knowledge.done(i)
    }

    fn stable(&self, i: usize) -> BTreeSet<Id> {
        self.knowledge.stable(i)
    }

    fn label(&self, id: Id) -> Option<Label> {
        self.knowledge.get(id)?.label
    }

    fn clock(&self) -> u64 {
        self.knowledge.clock
    }

    fn finals(&self) -> Vec<(Id, D::Value)> {
        self.method.finals(&self.data, &self.knowledge)
    }

    fn contradiction(&self) -> Option<&'static str> {
        self.method.contradiction(&self.knowledge).or_else(|| self.knowledge.contradiction())
    }
}

impl<D: DataType, M: Method<D>> IoAutomaton for Site<D, M> {
    type Input = PartInput<Message<D::Operator, D::Value>, Request<D::Operator>>;
    type Action = Action;
    type Output = PartOutput<Message<D::Operator, D::Value>, (Id, D::Value)>;

    /// Tasks: answer, do, `stabilise` (the paper: `solidify`) as printed, and gossip to each
    /// replica.
    fn tasks(&self) -> usize {
        3 + self.knowledge.replicas
    }

    fn enabled(&self, task: usize, actions: &mut Vec<Action>) {
        match task {
            0 => actions.extend(self.knowledge.responses(&self.pending)),
            1 => actions.extend(self.knowledge.doable().map(Action::Do)),
            2 => {
                let printed = self.knowledge.rules.slips(Slip::SolidifiesForEver);
                let alone = printed && self.knowledge.replicas == 1;
                let first = self.knowledge.order().values().next().filter(|_| alone);
                actions.extend(first.map(|id| Action::Solidify(*id)));
            }
            3.. => {
                let to = task - 3;
                let reports = self.due.has(to) && self.method.has_news_for(to);
                actions.extend(reports.then_some(Action::Gossip(to)));
            }
        }
    }

    fn transition(&mut self, action: Action) -> Option<Self::Output> {
        match action {
            Action::Do(id) => {
                self.knowledge.perform(id);
                self.has_changed(id);
                self.settle(id);
                None
            }
            Action::Solidify(id) => {
                self.knowledge.stabilise(id);
                None
            }
            Action::Respond(id, to) => {
                assert!(self.pending.remove(&id), "a pending request has one reply");
                let value = self.method.value(&self.data, &self.knowledge, id);
                Some(PartOutput::To(vec![to], Message::Response(id, value)))
            }
            Action::Gossip(to) => {
                assert!(self.due.has(to), "it is notified when it is time");
                self.due.remove(to);
                let news = self.method.gossip_for(&self.knowledge, to);
                Some(PartOutput::To(vec![to], Message::Gossip(news)))
            }
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            PartInput::From(_, Message::Request(descriptor)) => {
                self.pending.insert(descriptor.id);
                if self.knowledge.receive(&descriptor) {
                    self.has_changed(descriptor.id);
                }
            }
            PartInput::From(from, Message::Gossip(news)) => self.merge(from, &news),
            PartInput::Outside(Request::Tick) => {
                if self.knowledge.rules.pace != Pace::Never {
                    self.due = self.knowledge.others();
                }
            }
            // Messages to front ends; and the paper's replicas do not stop.
            PartInput::From(_, Message::Response(..))
            | PartInput::Outside(Request::Submit(_))
            | PartInput::Lost(_) => {}
        }
    }
}

impl<D: DataType, M: Method<D>> Part for Site<D, M> {
    type Message = Message<D::Operator, D::Value>;
    type Request = Request<D::Operator>;
    type Answer = (Id, D::Value);

    fn participants(&self, action: &Action) -> Vec<usize> {
        action.participants()
    }
}
