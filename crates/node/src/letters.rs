//! Messages between the nodes of one process.
//!
//! One node, *home*, has the name space and all trees of files. *Fronts* have connections, each on
//! a thread and a reactor of its own, and send what their sessions ask home, where it is a request
//! like every other; the answer comes back the same way. So a file has one owner, and a front needs
//! no lock and no copy of anything but the name of the root.
//!
//! Replicas of services are trees that take much time for their work, so another node has them
//! ([`super::replicas`]). In home each has a stand-in ([`super::relay`]), which forwards what
//! happens to it.

use super::connection;
use super::log::News;
use super::relay;
use super::status::Report;
use super::{Node, Phase};
use crate::route::Message;
use base::op::{Op, Parcel, Unresponsive};
use base::{Error, Instant};
use front::CallId;
use std::collections::BTreeSet;
use storelet::{AskId, Crossing, worker};
use tree::{Input as TreeInput, NodeId, OpenId, Reply, Request, RequestId};

/// The number of the node that has the name space.
pub const HOME: usize = 0;

/// Where in a request's id the number of the node stands that asks.
const NODE_BITS: u32 = 56;

/// Who asks where the tree of storelets does: no node has this number.
const OWN: usize = 0xff;

/// Most nodes of a process.
pub const NODES_MAX: usize = 127;

/// What one node says to another.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A front asks; exactly one [`Letter::Reply`] follows.
    Ask(usize, RequestId, Request),
    /// A front does not want the reply any more.
    Cancel(usize, RequestId),
    /// A front gives a node back.
    Release(NodeId),
    /// A front gives an open file back.
    Close(OpenId),
    /// The same, and what was begun with it is not finished.
    Abandon(OpenId),
    /// Home answers a front, and says what it has spent on its behalf since the last answer, ns.
    Reply(RequestId, Result<Reply, Error>, u64),
    /// Home asks for what a front counts; one [`Letter::Reported`] follows, unless the front ends.
    Report(usize),
    /// A front tells it.
    Reported(usize, usize, Box<Report>),
    /// Home tells a front to end.
    Drain,
    /// A front has ended.
    Over(usize),
    /// Something happens to a replica: a request, a cancellation, an open file given back.
    Forward(u16, TreeInput),
    /// The server ends: for a replica.
    DrainTree(u16),
    /// A replica is to be closed.
    CloseTree(u16),
    /// The reply of a replica to a request that was forwarded.
    Replied(u16, RequestId, Result<Reply, Error>),
    /// A replica is closed; nothing more comes from it.
    Closed(u16),
    /// News for the operator.
    News(News),
    /// All file systems of the host that do not respond to a node.
    Unresponsive(usize, Vec<Unresponsive>),
}

/// What a node is among those of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has the name space; these fronts have not ended.
    Home(BTreeSet<usize>),
    /// It has connections only.
    Front(usize),
    /// It has the replicas of services, of which these are not closed.
    Replicas(usize, BTreeSet<u16>),
}

pub(crate) fn post(to: usize, letter: Letter, ops: &mut Vec<Op>) {
    ops.push(Op::Post { to, parcel: Parcel(Box::new(letter)) });
}

/// The id by which home knows a request of a front.
fn at_home(front: usize, id: RequestId) -> RequestId {
    assert!(id.0 >> NODE_BITS == 0, "the upper bits say which node asks");
    RequestId((front as u64) << NODE_BITS | id.0)
}

/// Which node asked, and by which id it knows the request.
fn asked_by(id: RequestId) -> (usize, RequestId) {
    ((id.0 >> NODE_BITS) as usize, RequestId(id.0 & ((1 << NODE_BITS) - 1)))
}

impl Node {
    /// Its number among the nodes of its process.
    pub(crate) fn number(&self) -> usize {
        match self.role {
            Role::Home(_) => HOME,
            Role::Front(number) | Role::Replicas(number, _) => number,
        }
    }

    /// The id by which home knows a request of its own tree of storelets.
    pub(crate) fn of_storelets(id: RequestId) -> RequestId {
        at_home(OWN, id)
    }

    /// Sends what a session of this front asks home.
    pub(crate) fn send_home(front: usize, input: names::Input, ops: &mut Vec<Op>) {
        let letter = match input {
            names::Input::Ask(id, request) => Letter::Ask(front, id, request),
            names::Input::Cancel(id) => Letter::Cancel(front, id),
            names::Input::Release(node) => Letter::Release(node),
            names::Input::Close(open) => Letter::Close(open),
            names::Input::Abandon(open) => Letter::Abandon(open),
            names::Input::Answered(..) | names::Input::Change(..) => {
                unreachable!("a front has no trees")
            }
        };
        post(HOME, letter, ops);
    }

    /// Gives an answer to whoever asked, here or in another node.
    pub(crate) fn answer(&mut self, id: RequestId, reply: Result<Reply, Error>, ops: &mut Vec<Op>) {
        match asked_by(id) {
            (HOME, id) => self.answer_here(id, reply),
            (OWN, id) => self.answer_storelets(id, reply),
            (front, id) => {
                let works = self.is_worker(front);
                let served_ns = if works { self.bill.settle(front, id) } else { 0 };
                post(front, Letter::Reply(id, reply, served_ns), ops);
            }
        }
    }

    /// An answer has come from home.
    fn answered(
        &mut self,
        now: Instant,
        id: RequestId,
        reply: Result<Reply, Error>,
        served_ns: u64,
        ops: &mut Vec<Op>,
    ) {
        if self.worker.is_some() {
            let input = worker::Input::Answered(AskId::of(id.0), reply, served_ns);
            return self.step_worker(now, input, ops);
        }
        self.answer_here(id, reply);
    }

    /// Returns the slot of the connection that made a request, if it is of this node.
    pub(crate) fn slot_of(id: RequestId) -> Option<usize> {
        let (node, id) = asked_by(id);
        (node == HOME).then_some(id.asker() as usize)
    }

    fn answer_here(&mut self, id: RequestId, reply: Result<Reply, Error>) {
        let (slot, call) = (id.asker() as usize, CallId(id.0 as u32));
        let input = connection::Input::Answered(call, reply);
        self.messages.push_back(Message::Connection(slot, input));
    }

    /// Takes what another node has sent.
    pub(crate) fn receive(&mut self, now: Instant, parcel: Parcel, ops: &mut Vec<Op>) {
        let letter = match parcel.0.downcast::<Letter>() {
            Ok(letter) => letter,
            Err(other) => {
                let crossing = other.downcast::<Crossing>().expect("nodes send letters");
                return self.cross(now, *crossing, ops);
            }
        };
        let input = match *letter {
            Letter::Ask(front, id, request) => {
                if self.is_worker(front) {
                    self.bill.asked(front, id);
                }
                names::Input::Ask(at_home(front, id), request)
            }
            Letter::Cancel(front, id) => {
                // A storelet does not want its answer any more because it has ended.
                if self.is_worker(front) {
                    self.bill.leave(front, id);
                }
                names::Input::Cancel(at_home(front, id))
            }
            Letter::Release(node) => names::Input::Release(node),
            Letter::Close(open) => names::Input::Close(open),
            Letter::Abandon(open) => names::Input::Abandon(open),
            Letter::Reply(id, reply, served_ns) => {
                return self.answered(now, id, reply, served_ns, ops);
            }
            Letter::Report(key) => return self.report(key, ops),
            Letter::Reported(front, key, report) => {
                return self.reported(now, front, key, *report);
            }
            Letter::Drain => return self.stop(now, ops),
            Letter::Over(front) => {
                if let Role::Home(fronts) = &mut self.role {
                    fronts.remove(&front);
                }
                return self.survey_without(now, front);
            }
            Letter::Forward(tree, input) => return self.forwarded(tree, input),
            Letter::DrainTree(tree) => return self.drain_tree(now, tree, ops),
            Letter::CloseTree(tree) => return self.close_tree(now, tree, ops),
            Letter::Replied(tree, id, reply) => {
                return self.step_relay(now, tree, relay::Input::Replied(id, reply), ops);
            }
            Letter::Closed(tree) => {
                return self.step_relay(now, tree, relay::Input::Finished, ops);
            }
            // What happens to others while this server ends is not news.
            Letter::News(_) if !matches!(self.phase, Phase::Joining | Phase::Running) => return,
            Letter::News(news) => return self.add_news(news),
            Letter::Unresponsive(node, all) => return self.report_unresponsive(now, node, all),
        };
        self.messages.push_back(Message::Names(input));
    }

    /// Tells home what this node counts.
    fn report(&self, key: usize, ops: &mut Vec<Op>) {
        post(HOME, Letter::Reported(self.number(), key, Box::new(Report::of(self))), ops);
    }

    /// Tells the fronts to end.
    pub(crate) fn stop_fronts(&self, ops: &mut Vec<Op>) {
        if let Role::Home(fronts) = &self.role {
            fronts.iter().for_each(|front| post(*front, Letter::Drain, ops));
        }
    }

    /// Whether no other node can ask for anything any more.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(&self.role, Role::Home(fronts) if !fronts.is_empty())
    }

    /// Whether this node has the name space.
    pub(crate) fn is_home(&self) -> bool {
        matches!(self.role, Role::Home(_))
    }

    /// Says that this front has ended, if it has.
    pub(crate) fn take_leave(&self, before: Phase, ops: &mut Vec<Op>) {
        match self.role {
            Role::Front(front) if before != Phase::Over && self.is_over() => {
                post(HOME, Letter::Over(front), ops);
            }
            Role::Front(_) | Role::Home(_) | Role::Replicas(..) => {}
        }
    }
}
