//! Storelets in a node: messages between the tree of storelets, the workers that run them, and the
//! compiler.
//!
//! A worker is a node without ports: it sends file requests to home as a front does, on behalf of
//! its storelets. Home reports its time spent on them with each reply.

use super::messages::{self, NodeMessage};
use super::role::{HOME, Role};
use super::{Config, Export, Node};
use crate::message::Message;
use base::op::{Done, Envelope, Op, OpId};
use base::{Automaton as _, Error, Instant};
use storelet::{AskId, Crossing, Ran, Slice, ToHome, Worker, worker};
use tree::{Input as TreeInput, Reply, RequestId};

/// Number of the tree of storelets, if there is one.
pub(crate) const STORELETS: u16 = super::SERVICE + 1;

impl Node {
    /// Creates a node that runs storelets, for the server whose [`Node::export`] this is.
    ///
    /// # Panics
    /// If there are more nodes than [`super::NODES_MAX`].
    pub fn worker(number: usize, config: Config, export: Export) -> Node {
        let config = Config { ports: Vec::new(), ..config };
        let worker = Worker::new(export.root, export.wall);
        let mut node = Node::front(number, config, export);
        node.worker = Some(Box::new(worker));
        node
    }

    /// Returns whether that node runs storelets.
    pub(crate) fn is_worker(&self, node: usize) -> bool {
        self.config.storelets.as_ref().is_some_and(|it| it.workers.contains(&node))
    }

    /// Handles a message of another thread.
    pub(crate) fn cross(&mut self, now: Instant, crossing: Crossing, ops: &mut Vec<Op>) {
        if let Crossing::Worker(reported) = crossing {
            return self.step_worker(now, worker::Input::Message(reported), ops);
        }
        let crossing = match crossing {
            Crossing::Ask(id, request) => {
                let input = names::Input::Ask(Node::of_storelets(RequestId(id)), request);
                return self.messages.push_back(Message::Names(input));
            }
            Crossing::Cancel(id) => {
                let input = names::Input::Cancel(Node::of_storelets(RequestId(id)));
                return self.messages.push_back(Message::Names(input));
            }
            Crossing::Close(open) => {
                return self.messages.push_back(Message::Names(names::Input::Close(open)));
            }
            Crossing::Home(ToHome::Ended(id, report)) => {
                for prefetch in [false, true] {
                    self.bill.close(RequestId(AskId { domain: id, prefetch }.number()));
                }
                Crossing::Home(ToHome::Ended(id, report))
            }
            crossing @ (Crossing::Home(_)
            | Crossing::Worker(_)
            | Crossing::Compiled(_)
            | Crossing::Kept(_)
            | Crossing::Answered(..)) => crossing,
        };
        let done = Done::Envelope(Envelope(Box::new(crossing)));
        self.messages.push_back(Message::Tree(STORELETS, TreeInput::Done(OpId::UNREQUESTED, done)));
    }

    /// Delivers a reply to the tree of storelets.
    pub(crate) fn answer_storelets(&mut self, id: RequestId, reply: Result<Reply, Error>) {
        let done = Done::Envelope(Crossing::Answered(id.0, reply).envelope());
        self.messages.push_back(Message::Tree(STORELETS, TreeInput::Done(OpId::UNREQUESTED, done)));
    }

    /// Steps the worker, if this is one.
    pub(crate) fn step_worker(&mut self, now: Instant, input: worker::Input, ops: &mut Vec<Op>) {
        if let Some(worker) = &mut self.worker {
            let mut out = Vec::new();
            worker.step(now, input, &mut out);
            self.deliver_worker(out, ops);
        }
    }

    fn deliver_worker(&self, out: Vec<worker::Output>, ops: &mut Vec<Op>) {
        use worker::Output;
        let Role::Front(number) = self.role else { unreachable!("only fronts run storelets") };
        for output in out {
            let input = match output {
                Output::Ask(id, request) => names::Input::Ask(RequestId(id.number()), request),
                Output::Cancel(id) => names::Input::Cancel(RequestId(id.number())),
                Output::Release(node) => names::Input::Release(node),
                Output::Close(open) => names::Input::Close(open),
                Output::Tell(reported) => {
                    ops.push(Op::Post { to: HOME, envelope: Crossing::Home(reported).envelope() });
                    continue;
                }
            };
            messages::post(HOME, NodeMessage::Names(number, input), ops);
        }
    }

    /// Takes the storelet that is scheduled to run here. It must be returned before the next turn.
    pub fn take_slice(&mut self, now: Instant, ops: &mut Vec<Op>) -> Option<Slice> {
        let mut out = Vec::new();
        let slice = self.worker.as_mut()?.take_slice(now, &mut out);
        self.deliver_worker(out, ops);
        slice
    }

    /// Charges the time that this worker's thread has spent since the last call, ns, to the
    /// storelets that it was for; returns the part that appears in their reports.
    pub fn charge(&mut self, now: Instant, spent_ns: u64) -> u64 {
        self.worker.as_mut().map_or(0, |worker| worker.charge(now, spent_ns))
    }

    /// Returns a storelet after its slice, with its processor time, ns.
    pub fn ran(&mut self, now: Instant, ran: Ran, cpu_ns: u64, ops: &mut Vec<Op>) {
        let mut out = Vec::new();
        if let Some(worker) = &mut self.worker {
            worker.ran(now, ran, cpu_ns, &mut out);
        }
        self.deliver_worker(out, ops);
    }
}
