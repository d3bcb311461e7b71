//! *ESDSAlg*: the plain algorithm (paper 001, figure 4.2), which gossips all its knowledge each
//! time and recomputes each value from the initial state. A replica does not gossip to itself: it
//! would learn nothing (paper 001, 4.3.1).

use super::knowledge::Knowledge;
use super::site::{Method, Site};
use super::{Id, News};
use replica::data::DataType;

/// Replica of the plain algorithm.
pub type Plain<D> = Site<D, Everything>;

/// Gossips everything, and memoizes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Everything;

/// Computes the values of all done operations, in order.
fn values<D: DataType>(
    data: &D,
    knowledge: &Knowledge<D::Operator>,
) -> impl Iterator<Item = (Id, D::Value)> {
    knowledge
        .order()
        .values()
        .scan(data.initial(), |state, id| Some((*id, data.apply(state, knowledge.operator(*id)))))
}

impl<D: DataType> Method<D> for Everything {
    fn new(_data: &D, _replicas: usize) -> Everything {
        Everything
    }

    fn note(&mut self, _id: Id) {}

    fn settle(&mut self, _data: &D, _knowledge: &Knowledge<D::Operator>, _id: Id) {}

    /// Always true: previous gossip may have been lost.
    fn has_news_for(&self, _peer: usize) -> bool {
        true
    }

    fn gossip_for(
        &mut self,
        knowledge: &Knowledge<D::Operator>,
        _peer: usize,
    ) -> Vec<News<D::Operator>> {
        knowledge.all().map(|known| knowledge.news(known)).collect()
    }

    fn value(&self, data: &D, knowledge: &Knowledge<D::Operator>, id: Id) -> D::Value {
        let mut values = values(data, knowledge);
        let (_, value) = values.find(|(each, _)| *each == id).expect("it is done here");
        value
    }

    fn finals(&self, data: &D, knowledge: &Knowledge<D::Operator>) -> Vec<(Id, D::Value)> {
        let last = knowledge.order().values().rposition(|id| knowledge.is_stable(*id));
        values(data, knowledge).take(last.map_or(0, |last| last + 1)).collect()
    }

    fn contradiction(&self, _knowledge: &Knowledge<D::Operator>) -> Option<&'static str> {
        None
    }
}
