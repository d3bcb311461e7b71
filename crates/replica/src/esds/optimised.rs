//! *ESDSOptAlg*: the optimised algorithm (paper 001, figure 4.5, corrected).
//!
//! *Incremental gossip*: what changes is noted in one log, and each peer has a place in it up to
//! which it was told. *Memoized stable state*: everything up to the greatest solid operation is
//! final, so it is applied once, and its values are kept. *No gossip to oneself.*
//!
//! It needs channels that lose, repeat and reorder nothing.

use super::knowledge::{Knowledge, Replicas};
use super::{Action, Id, Label, Message, News, Pace, Replica, Request, Rules, Slip};
use crate::data::DataType;
use crate::ioa::{Heard, IoAutomaton, Part, Said};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// The replica automaton.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Optimised<D: DataType> {
    data: D,
    knowledge: Knowledge<D::Operator>,
    /// What is to be answered.
    pending: BTreeSet<Id>,
    /// To whom it is time to gossip.
    due: Replicas,
    log: Log,
    /// The label of the last operation in `stable`, which is final with all before it.
    frontier: Option<Label>,
    /// The state up to the frontier.
    stable: D::State,
    /// The values of operations up to the frontier.
    values: BTreeMap<Id, D::Value>,
}

/// What has changed, and what each peer was told of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Log {
    /// Operations of which something changed, oldest first. What everybody was told is dropped.
    changes: VecDeque<Id>,
    /// How many of them each replica was told.
    told: Vec<usize>,
}

impl Log {
    fn has_news_for(&self, peer: usize) -> bool {
        self.told[peer] < self.changes.len()
    }

    /// What a peer has not been told yet, each operation once.
    fn take(&mut self, peer: usize, me: usize) -> BTreeSet<Id> {
        let news = self.changes.range(self.told[peer]..).copied().collect();
        self.told[peer] = self.changes.len();
        let others = || (0..self.told.len()).filter(|other| *other != me);
        let everybody = others().map(|other| self.told[other]).min().unwrap_or(self.changes.len());
        self.changes.drain(..everybody);
        self.told.iter_mut().for_each(|told| *told = told.saturating_sub(everybody));
        news
    }
}

impl<D: DataType> Optimised<D> {
    /// Replica `me` of so many, before all operations.
    pub fn new(data: D, me: usize, replicas: usize, rules: Rules) -> Optimised<D> {
        Optimised {
            knowledge: Knowledge::new(me, replicas, rules),
            pending: BTreeSet::new(),
            due: Replicas::default(),
            log: Log { changes: VecDeque::new(), told: vec![0; replicas] },
            frontier: None,
            stable: data.initial(),
            values: BTreeMap::new(),
            data,
        }
    }

    fn gossip_now(&mut self) {
        if self.knowledge.rules.pace != Pace::Never {
            self.due = self.knowledge.others();
        }
    }

    fn has_changed(&mut self, id: Id) {
        if self.knowledge.replicas > 1 {
            self.log.changes.push_back(id);
        }
        if self.knowledge.rules.pace == Pace::AtOnce {
            self.due = self.knowledge.others();
        }
    }

    /// Moves the frontier behind an operation that has become solid, and applies what it passes.
    fn advance(&mut self, solid: Id) {
        let label = self.label(solid).expect("what is solid is done");
        if Some(label) <= self.frontier {
            return;
        }
        let behind = self.frontier.map_or(Bound::Unbounded, Bound::Excluded);
        for (_, id) in self.knowledge.order().range((behind, Bound::Included(label))) {
            let operator = self.knowledge.operator(*id);
            self.values.insert(*id, self.data.apply(&mut self.stable, operator));
        }
        self.frontier = Some(label);
    }

    fn tell(&mut self, to: usize) -> Vec<News<D::Operator>> {
        self.due.remove(to);
        let ids = if self.knowledge.rules.slips(Slip::OneDelta) {
            let ids = self.log.take(to, self.knowledge.me);
            self.log.told = vec![self.log.changes.len(); self.log.told.len()];
            ids
        } else {
            self.log.take(to, self.knowledge.me)
        };
        let known = ids.into_iter().filter_map(|id| self.knowledge.get(id));
        known.map(|known| self.knowledge.news(known)).collect()
    }

    fn merge(&mut self, from: usize, news: &[News<D::Operator>]) {
        for each in news {
            let id = each.descriptor.id;
            if self.knowledge.merge(from, each) {
                self.has_changed(id);
            }
        }
        // Only when all of them have their labels is the order below a solid one known.
        for each in news {
            if self.knowledge.is_solid(each.descriptor.id) {
                self.advance(each.descriptor.id);
            }
        }
    }
}

impl<D: DataType> Replica<D> for Optimised<D> {
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

    fn contradiction(&self) -> Option<&'static str> {
        let order = self.knowledge.order().iter();
        let mut finals = order.take_while(|(label, _)| Some(**label) <= self.frontier);
        if finals.any(|(_, id)| !self.values.contains_key(id)) {
            return Some("I8: an operation came before what is final");
        }
        self.knowledge.contradiction()
    }

    fn finals(&self) -> Vec<(Id, D::Value)> {
        let order = self.knowledge.order().iter();
        let stable = order.take_while(|(label, _)| Some(**label) <= self.frontier);
        stable.filter_map(|(_, id)| Some((*id, self.values.get(id)?.clone()))).collect()
    }

    fn value(&self, id: Id) -> D::Value {
        let twice = self.knowledge.rules.slips(Slip::AppliedTwice);
        let kept = self.values.get(&id).filter(|_| !twice || self.knowledge.is_solid(id));
        if let Some(value) = kept {
            return value.clone();
        }
        let mut state = self.stable.clone();
        let behind = self.frontier.filter(|_| !twice).map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.knowledge.order().range((behind, Bound::Unbounded)).map(|(_, each)| *each);
        for each in rest.filter(|each| !twice || !self.knowledge.is_solid(*each)) {
            let value = self.data.apply(&mut state, self.knowledge.operator(each));
            if each == id {
                return value;
            }
        }
        panic!("{id:?} is not done here");
    }
}

impl<D: DataType> IoAutomaton for Optimised<D> {
    type Input = Heard<Message<D::Operator, D::Value>, Request<D::Operator>>;
    type Action = Action;
    type Output = Said<Message<D::Operator, D::Value>, (Id, D::Value)>;

    /// To answer, to do, `solidify` as it is printed, and to gossip to each.
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
                let tells = self.due.has(to) && self.log.has_news_for(to);
                actions.extend(tells.then_some(Action::Gossip(to)));
            }
        }
    }

    fn transition(&mut self, action: Action) -> Option<Self::Output> {
        match action {
            Action::Do(id) => {
                self.knowledge.perform(id);
                self.has_changed(id);
                if self.knowledge.is_solid(id) {
                    self.advance(id);
                }
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
            Action::Gossip(to) => Some(Said::To(vec![to], Message::Gossip(self.tell(to)))),
        }
    }

    fn input(&mut self, input: Self::Input) {
        match input {
            Heard::From(_, Message::Request(descriptor)) => {
                self.pending.insert(descriptor.id);
                if self.knowledge.receive(&descriptor) {
                    self.has_changed(descriptor.id);
                }
            }
            Heard::From(from, Message::Gossip(news)) => self.merge(from, &news),
            Heard::Outside(Request::Tick) => self.gossip_now(),
            // Of front ends; and a replica of the paper does not stop.
            Heard::From(_, Message::Response(..))
            | Heard::Outside(Request::Submit(_))
            | Heard::Lost(_) => {}
        }
    }
}

impl<D: DataType> Part for Optimised<D> {
    type Message = Message<D::Operator, D::Value>;
    type Request = Request<D::Operator>;
    type Answer = (Id, D::Value);

    fn participants(&self, action: &Action) -> Vec<usize> {
        action.participants()
    }
}
