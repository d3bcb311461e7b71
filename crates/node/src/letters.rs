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
use super::fairness::{Client, Completion};
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
use tree::{Input as TreeInput, Reply, RequestId};

/// The number of the node that has the name space.
pub const HOME: usize = 0;

/// Where in a request's id the number of the node stands that asks.
const NODE_BITS: u32 = 56;

/// Who asks where the tree of storelets does: no node has this number.
const OWN: usize = 0xff;

/// Most letters read in a turn. A node that has worked for a while sends many at once, and clients
/// of this one are not to wait for all of them.
const LETTERS_AT_ONCE: usize = 8;

/// Most nodes of a process.
pub const NODES_MAX: usize = 127;

/// What fronts and home say to each other about a connection of a front. It is heard when it is
/// the connection's turn.
#[derive(Debug)]
pub(crate) enum Said {
    /// The connection asks, cancels, or gives back a node or an open file. Exactly one
    /// [`Said::Reply`] follows for each request.
    Names(Client, names::Input),
    /// The connection has ended; all that it held was given back.
    Left(Client),
    /// Home answers.
    Reply(RequestId, Result<Reply, Error>),
}

/// What one node says to another about anything else.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A storelet of the worker with this number asks, cancels, or gives something back. Exactly
    /// one [`Letter::Reply`] follows for each request.
    Names(usize, names::Input),
    /// Home answers a storelet, and says what it has spent on its behalf since the last answer, ns.
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

pub(crate) fn say(to: usize, said: Said, ops: &mut Vec<Op>) {
    ops.push(Op::Post { to, parcel: Parcel(Box::new(said)) });
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

/// Whether it is a request.
fn is_ask(input: &names::Input) -> bool {
    matches!(input, names::Input::Ask(..))
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

    /// Gives an answer to whoever asked, here or in another node.
    pub(crate) fn answer(&mut self, id: RequestId, reply: Result<Reply, Error>, ops: &mut Vec<Op>) {
        match asked_by(id) {
            (HOME, id) => self.answer_here(id, reply),
            (OWN, id) => self.answer_storelets(id, reply),
            (front, id) => {
                if !self.is_worker(front) {
                    return say(front, Said::Reply(id, reply), ops);
                }
                let served_ns = self.bill.settle(front, id);
                post(front, Letter::Reply(id, reply, served_ns), ops);
            }
        }
    }

    /// An answer to a storelet has come from home.
    fn answered(
        &mut self,
        now: Instant,
        id: RequestId,
        reply: Result<Reply, Error>,
        served_ns: u64,
        ops: &mut Vec<Op>,
    ) {
        let input = worker::Input::Answered(AskId::of(id.0), reply, served_ns);
        self.step_worker(now, input, ops);
    }

    /// Returns who made a request, if it waits for its turns.
    pub(crate) fn client_of(&self, id: RequestId) -> Option<Client> {
        let (node, id) = asked_by(id);
        let is_queued = node != OWN && !self.is_worker(node);
        is_queued.then_some(Client { node, slot: id.asker() as usize })
    }

    pub(crate) fn answer_here(&mut self, id: RequestId, reply: Result<Reply, Error>) {
        let (slot, call) = (id.asker() as usize, CallId(id.0 as u32));
        let input = connection::Input::Answered(call, reply);
        self.messages.push_back(Message::Connection(slot, input));
    }

    /// Takes what another node has sent: what is of a connection waits for its turn, the rest in
    /// the order in which it came. A request that waits and is cancelled is not begun.
    pub(crate) fn receive(&mut self, parcel: Parcel, ops: &mut Vec<Op>) {
        let said = match parcel.0.downcast::<Said>() {
            Ok(said) => *said,
            Err(other) => {
                self.bill.defer();
                return self.mail.push_back(Parcel(other));
            }
        };
        match said {
            Said::Names(client, names::Input::Cancel(id)) if self.queue.withdraw(client, id) => {
                return say(client.node, Said::Reply(id, Err(Error::Cancelled)), ops);
            }
            // The front counts what is given back as free already.
            Said::Names(client, input) if !is_ask(&input) && !self.queue.has_asked(client) => {
                return self.obey(client.node, input);
            }
            Said::Names(client, input) => self.queue.ask(client, Some(input)),
            Said::Left(client) => self.queue.ask(client, None),
            Said::Reply(id, reply) => {
                let client = Client::of_slot(id.asker() as usize);
                self.queue.complete(client, Completion::Reply(id, reply));
            }
        }
        self.bill.defer();
    }

    /// Reads some of what other nodes have sent and is not for a connection.
    pub(crate) fn read_mail(&mut self, now: Instant, ops: &mut Vec<Op>) {
        for _ in 0..LETTERS_AT_ONCE {
            let Some(parcel) = self.mail.pop_front() else { return };
            self.bill.add(1);
            match parcel.0.downcast::<Letter>() {
                Ok(letter) => self.read(now, *letter, ops),
                Err(other) => {
                    let crossing = other.downcast::<Crossing>().expect("nodes send letters");
                    self.cross(now, *crossing, ops);
                }
            }
            self.route(now, ops);
        }
    }

    fn read(&mut self, now: Instant, letter: Letter, ops: &mut Vec<Op>) {
        match letter {
            Letter::Names(worker, input) => self.obey_storelet(worker, input),
            Letter::Reply(id, reply, served_ns) => self.answered(now, id, reply, served_ns, ops),
            Letter::Report(key) => self.report(key, ops),
            Letter::Reported(front, key, report) => self.reported(now, front, key, *report),
            Letter::Drain => self.stop(now, ops),
            Letter::Over(front) => {
                // Whatever its clients gave back is given back before trees are closed.
                for input in self.queue.forget_node(front) {
                    self.obey(front, input);
                }
                if let Role::Home(fronts) = &mut self.role {
                    fronts.remove(&front);
                }
                self.survey_without(now, front);
            }
            Letter::Forward(tree, input) => self.forwarded(tree, input),
            Letter::DrainTree(tree) => self.drain_tree(now, tree, ops),
            Letter::CloseTree(tree) => self.close_tree(now, tree, ops),
            Letter::Replied(tree, id, reply) => {
                self.step_relay(now, tree, relay::Input::Replied(id, reply), ops);
            }
            Letter::Closed(tree) => self.step_relay(now, tree, relay::Input::Finished, ops),
            // What happens to others while this server ends is not news.
            Letter::News(_) if !matches!(self.phase, Phase::Joining | Phase::Running) => {}
            Letter::News(news) => self.add_news(news),
            Letter::Unresponsive(node, all) => self.report_unresponsive(now, node, all),
        }
    }

    /// Lets the name space hear what a storelet says.
    fn obey_storelet(&mut self, worker: usize, input: names::Input) {
        match &input {
            names::Input::Ask(id, _) => self.bill.asked(worker, *id),
            // It does not want its answer any more because it has ended.
            names::Input::Cancel(id) => self.bill.leave(worker, *id),
            names::Input::Release(_) | names::Input::Close(_) | names::Input::Abandon(_) => {}
            names::Input::Answered(..) | names::Input::Change(..) => {
                unreachable!("no other node has trees")
            }
        }
        self.obey(worker, input);
    }

    /// Lets the name space hear what a client of another node says.
    pub(crate) fn obey(&mut self, node: usize, input: names::Input) {
        let input = match input {
            names::Input::Ask(id, request) => names::Input::Ask(at_home(node, id), request),
            names::Input::Cancel(id) => names::Input::Cancel(at_home(node, id)),
            input @ (names::Input::Release(_)
            | names::Input::Close(_)
            | names::Input::Abandon(_)) => input,
            names::Input::Answered(..) | names::Input::Change(..) => {
                unreachable!("no other node has trees")
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Served};
    use base::op::{Done, Event, OpId};
    use base::{Automaton as _, Caller};
    use tree::{Ask, Request};

    const FRONT: usize = 1;

    fn home() -> Node {
        let served = Served::Skeleton { paths: Vec::new() };
        let mut home = Node::new(Config::of_tests(), served, Vec::new());
        home.set_fronts(FRONT..=FRONT, &mut Vec::new());
        turn(&mut home, Vec::new());
        home
    }

    fn said(said: Said) -> Event {
        Event { id: OpId::UNASKED, done: Done::Parcel(Parcel(Box::new(said))) }
    }

    fn names(slot: usize, input: names::Input) -> Event {
        said(Said::Names(Client { node: FRONT, slot }, input))
    }

    fn stat(home: &Node, slot: usize, call: u32) -> Event {
        let ask = Ask::Stat { node: home.export().root };
        let id = RequestId::new(u32::try_from(slot).unwrap(), call);
        names(slot, names::Input::Ask(id, Request { caller: Caller::Server, ask }))
    }

    /// A turn, by a clock that shows 20 us more each time; returns the slots that are answered.
    fn turn(home: &mut Node, mut events: Vec<Event>) -> Vec<u32> {
        let (mut ops, now) = (Vec::new(), Instant(1));
        home.turn(now, &crate::ticking(now), &mut events, &mut ops);
        home.check();
        let answered = ops.into_iter().filter_map(|op| {
            let Op::Post { to: FRONT, parcel } = op else { return None };
            let Said::Reply(id, reply) = *parcel.0.downcast().unwrap() else { return None };
            reply.unwrap();
            Some(id.asker())
        });
        answered.collect()
    }

    #[test]
    fn connections_of_fronts_are_served_in_turn() {
        let mut home = home();
        let mut events: Vec<Event> = (0..400).map(|call| stat(&home, 0, call)).collect();
        events.extend((0..400).map(|call| stat(&home, 1, call)));
        events.push(stat(&home, 2, 0));
        let mut answered = turn(&mut home, events);
        assert!(answered.len() < 801, "a turn of home is limited: {}", answered.len());
        // What comes later waits for a turn of each of the others, not for all that they said.
        let late = stat(&home, 3, 0);
        answered.extend(turn(&mut home, vec![late]));
        while home.deadline() == Some(Instant(0)) {
            answered.extend(turn(&mut home, Vec::new()));
        }
        assert_eq!(answered.len(), 802, "each request is answered once");
        for slot in [2, 3] {
            let before = answered.iter().position(|it| *it == slot).unwrap();
            assert!(before <= 500, "connection {slot} waited for {before} requests of others");
        }
    }

    #[test]
    fn what_a_connection_says_keeps_its_order() {
        let mut home = home();
        let root = home.export().root;
        let walk = |call| {
            let ask = Ask::Walk { from: root, names: Vec::new() };
            let request = Request { caller: Caller::Server, ask };
            names(0, names::Input::Ask(RequestId::new(0, call), request))
        };
        let held = |home: &Node| home.held().last().unwrap().0;
        // Each reference is given back right after it was taken; the root is never without one.
        let before = held(&home);
        let release = || names(0, names::Input::Release(root));
        let events = (0..300).flat_map(|call| [walk(call), release()]).collect();
        turn(&mut home, events);
        let left = said(Said::Left(Client { node: FRONT, slot: 0 }));
        let next = stat(&home, 0, 1000);
        let mut answered = turn(&mut home, vec![left, next]);
        while home.deadline() == Some(Instant(0)) {
            answered.extend(turn(&mut home, Vec::new()));
        }
        assert_eq!(answered.last(), Some(&0), "the next one in its slot is served");
        assert_eq!(held(&home), before);
    }

    #[test]
    fn a_request_that_is_cancelled_before_its_turn_is_not_begun() {
        let mut home = home();
        let root = home.export().root;
        let request = |ask| Request { caller: Caller::Server, ask };
        let before = home.held();
        let id = |call| RequestId::new(0, call);
        let walk = |call| {
            let walk = request(Ask::Walk { from: root, names: Vec::new() });
            names(0, names::Input::Ask(id(call), walk))
        };
        let mut events: Vec<Event> = (0..300).map(walk).collect();
        events.extend((0..300).map(|call| names(0, names::Input::Cancel(id(call)))));
        let (mut ops, now) = (Vec::new(), Instant(1));
        home.turn(now, &crate::ticking(now), &mut events, &mut ops);
        home.check();
        let cancelled = ops.into_iter().filter_map(|op| {
            let Op::Post { to: FRONT, parcel } = op else { return None };
            let Said::Reply(id, reply) = *parcel.0.downcast().unwrap() else { return None };
            assert_eq!(reply.unwrap_err(), Error::Cancelled);
            Some(id)
        });
        assert_eq!(cancelled.collect::<BTreeSet<_>>(), (0..300).map(id).collect());
        assert!(home.deadline() != Some(Instant(0)) && home.held() == before, "nothing is left");
    }

    #[test]
    fn what_a_front_said_last_is_done_before_trees_are_closed() {
        let mut home = home();
        let root = home.export().root;
        let request = |ask| Request { caller: Caller::Server, ask };
        let walk = Ask::Walk { from: root, names: Vec::new() };
        let before = home.held();
        turn(&mut home, vec![names(0, names::Input::Ask(RequestId::new(0, 0), request(walk)))]);
        let mut events: Vec<Event> = (1..300).map(|call| stat(&home, 0, call)).collect();
        events.push(names(0, names::Input::Release(root)));
        let over = Parcel(Box::new(Letter::Over(FRONT)));
        events.push(Event { id: OpId::UNASKED, done: Done::Parcel(over) });
        turn(&mut home, events);
        assert!(home.is_last() && home.held() == before, "the reference is given back");
    }
}
