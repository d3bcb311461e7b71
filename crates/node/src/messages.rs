//! Messages between the nodes of one process.
//!
//! One node, *home*, has the namespace and all trees of files. *Fronts* have connections, each on
//! a thread and a reactor of its own, and send their sessions' requests to home, where they are
//! requests like all others; replies return the same way. So a file has one owner, and a front
//! needs no locks and no copy of anything but the id of the root.
//!
//! Replicas of services are trees with long computations, so another node has them
//! ([`super::replicas`]). In home each has a stand-in ([`super::relay`]), which forwards its
//! inputs.

use super::connection;
use super::fairness::Completion;
use super::log::LogMessage;
use super::relay;
use super::report::Report;
use super::role::{Client, HOME, Role};
use super::{Node, Phase};
use crate::message::Message;
use base::op::{ClientKey, Envelope, Op, Unresponsive};
use base::{Caller, Error, Instant};
use front::{CallId, webdav};
use storelet::{AskId, Crossing, worker};
use tree::{Input as TreeInput, Reply, RequestId};

/// Bit offset of the requesting node's number in a request id.
const NODE_BITS: u32 = 56;

/// Number in request ids of the tree of storelets; not a node's number.
const OWN: usize = 0xff;

/// Number in request ids of streams of the tree of service files.
const STREAMS: usize = 0xfe;

/// Maximum number of messages processed in a turn. A busy node sends many at once, and clients of
/// this one must not wait for all of them.
const MESSAGES_AT_ONCE: usize = 8;

/// Number of releases of nodes for connections of fronts in a turn, and the part of those that wait
/// if that is more: a client may release thousands at once, others must not wait for all of them,
/// and what is released should not stay for long.
const RELEASES_AT_ONCE: usize = 64;
const RELEASES_PART: usize = 16;

/// Maximum number of nodes in a process.
pub const NODES_MAX: usize = 127;

/// A message between a front and home about a connection of the front; it waits for the
/// connection's turn.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// The connection was accepted from this client.
    Opened(Client, ClientKey),
    /// Request of the connection, cancellation of one, or release of a node or an open file.
    /// Exactly one [`ClientMessage::Reply`] follows each request.
    Names(Client, names::Input),
    /// Request of the connection, for this user, to the locks of WebDAV; it waits for no turn.
    Locks(Client, Caller, webdav::Request),
    /// Reply of the locks to a connection.
    LocksReply(Client, webdav::Reply),
    /// The connection has closed, and all its handles were released.
    Closed(Client),
    /// Reply of home.
    Reply(RequestId, Result<Reply, Error>),
}

/// A message about anything else.
#[derive(Debug)]
pub(crate) enum NodeMessage {
    /// Request of a storelet of the worker with this number, cancellation of one, or release of a
    /// handle. Exactly one [`NodeMessage::Reply`] follows each request.
    Names(usize, names::Input),
    /// Reply of home to a storelet, and the cost of it since the last reply, ns.
    Reply(RequestId, Result<Reply, Error>, u64),
    /// Home requests the counters of a node; one [`NodeMessage::Reported`] follows, unless the node
    /// ends.
    Report(usize),
    /// Counters of a node.
    Reported(usize, usize, Box<Report>),
    /// Home shuts a front down.
    Drain,
    /// A front has ended.
    Over(usize),
    /// Input of a replica: a request, a cancellation, or the release of an open file.
    Forward(u16, TreeInput),
    /// Shutdown of the server, for a replica.
    DrainTree(u16),
    /// Close a replica.
    CloseTree(u16),
    /// Reply of a replica to a forwarded request.
    Replied(u16, RequestId, Result<Reply, Error>),
    /// A replica is closed, and sends nothing more.
    Closed(u16),
    /// Message for the operator.
    LogMessage(LogMessage),
    /// All file systems of the host that do not respond to a node.
    Unresponsive(usize, Vec<Unresponsive>),
}

pub(crate) fn post(to: usize, node_message: NodeMessage, ops: &mut Vec<Op>) {
    ops.push(Op::Post { to, envelope: Envelope(Box::new(node_message)) });
}

pub(crate) fn post_client(to: usize, node_message: ClientMessage, ops: &mut Vec<Op>) {
    ops.push(Op::Post { to, envelope: Envelope(Box::new(node_message)) });
}

/// Returns home's id of a request of another node.
fn at_home(front: usize, id: RequestId) -> RequestId {
    assert!(id.0 >> NODE_BITS == 0, "the upper bits say which node asks");
    RequestId((front as u64) << NODE_BITS | id.0)
}

/// Returns the requesting node, and its own id of the request.
fn asked_by(id: RequestId) -> (usize, RequestId) {
    ((id.0 >> NODE_BITS) as usize, RequestId(id.0 & ((1 << NODE_BITS) - 1)))
}

impl Node {
    /// Returns the node's number in its process.
    pub(crate) fn number(&self) -> usize {
        match self.role {
            Role::Home(_) => HOME,
            Role::Front(number) | Role::Replicas(number, _) => number,
        }
    }

    /// Returns home's id of a request of its own tree of storelets.
    pub(crate) fn of_storelets(id: RequestId) -> RequestId {
        at_home(OWN, id)
    }

    /// Returns home's id of the request of a stream.
    pub(crate) fn of_stream(number: u64) -> RequestId {
        at_home(STREAMS, RequestId(number))
    }

    /// Delivers a reply to the requester, here or in another node.
    pub(crate) fn answer(&mut self, id: RequestId, reply: Result<Reply, Error>, ops: &mut Vec<Op>) {
        if let Some(client) = self.client_of(id) {
            self.queue.note_reply(client);
        }
        match asked_by(id) {
            (HOME, id) => self.answer_here(id, reply),
            (OWN, id) => self.answer_storelets(id, reply),
            (STREAMS, id) => self.answer_stream(id, reply),
            (front, id) => {
                if !self.is_worker(front) {
                    return post_client(front, ClientMessage::Reply(id, reply), ops);
                }
                let served_ns = self.bill.settle(front, id);
                post(front, NodeMessage::Reply(id, reply, served_ns), ops);
            }
        }
    }

    /// Handles a reply of home to a storelet.
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

    /// Returns the connection that made a request, if one did.
    pub(crate) fn client_of(&self, id: RequestId) -> Option<Client> {
        let (node, id) = asked_by(id);
        let has_turns = node <= NODES_MAX && !self.is_worker(node);
        has_turns.then_some(Client { node, slot: id.requester() as usize })
    }

    pub(crate) fn answer_here(&mut self, id: RequestId, reply: Result<Reply, Error>) {
        let (slot, call) = (id.requester() as usize, CallId(id.0 as u32));
        let input = connection::Input::Answered(call, reply);
        self.messages.push_back(Message::Connection(slot, input));
    }

    /// Receives a message of another node: those of a connection wait for its turn, the rest are
    /// processed in order of arrival. A queued request that is cancelled is not started.
    pub(crate) fn receive(&mut self, now: Instant, envelope: Envelope, ops: &mut Vec<Op>) {
        let node_message = match envelope.0.downcast::<ClientMessage>() {
            Ok(node_message) => *node_message,
            Err(other) => {
                self.bill.defer();
                return self.mail.push_back(Envelope(other));
            }
        };
        match node_message {
            ClientMessage::Names(client, names::Input::Cancel(id)) => {
                let mut freed = Vec::new();
                match self.queue.withdraw(client, id, &mut freed) {
                    true => {
                        let reply = ClientMessage::Reply(id, Err(Error::Cancelled));
                        post_client(client.node, reply, ops);
                    }
                    false => self.forward(client.node, names::Input::Cancel(id)),
                }
                freed.into_iter().for_each(|input| self.forward(client.node, input));
            }
            ClientMessage::Names(client, input) => match self.queue.add(client, input) {
                Some(names::Input::Release(id)) => self.releases.push_back((client.node, id)),
                // Whoever learns that a file was closed may lock what it had locked.
                Some(input) => self.forward(client.node, input),
                None => self.bill.defer(),
            },
            ClientMessage::Locks(client, caller, request) => {
                let key = self.front_clients.get(&client).copied().unwrap_or(ClientKey::NOBODY);
                if let Some(reply) = self.dav_locks.handle(now, (key, &caller), request) {
                    post_client(client.node, ClientMessage::LocksReply(client, reply), ops);
                }
            }
            ClientMessage::LocksReply(client, reply) => {
                let input = connection::Input::Locks(reply);
                self.messages.push_back(Message::Connection(client.slot, input));
            }
            ClientMessage::Opened(client, key) => _ = self.front_clients.insert(client, key),
            ClientMessage::Closed(client) => {
                self.front_clients.remove(&client);
                self.queue.close(client);
            }
            ClientMessage::Reply(id, reply) => {
                self.bill.defer();
                let client = Client::of_slot(id.requester() as usize);
                self.queue.complete(client, Completion::Reply(id, reply));
            }
        }
    }

    /// Passes a request of a connection to the locks of WebDAV, here or in home.
    pub(crate) fn ask_locks(
        &mut self,
        now: Instant,
        slot: usize,
        caller: Caller,
        request: webdav::Request,
        ops: &mut Vec<Op>,
    ) {
        if !self.is_home() {
            let client = Client { node: self.number(), slot };
            return post_client(HOME, ClientMessage::Locks(client, caller, request), ops);
        }
        let key = self.connections[slot].client();
        if let Some(reply) = self.dav_locks.handle(now, (key, &caller), request) {
            let input = connection::Input::Locks(reply);
            self.messages.push_back(Message::Connection(slot, input));
        }
    }

    /// Processes messages of other nodes that are not of a connection, a few in a turn.
    pub(crate) fn read_mail(&mut self, now: Instant, ops: &mut Vec<Op>) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(envelope) = self.mail.pop_front() else { return };
            self.bill.add(1);
            match envelope.0.downcast::<NodeMessage>() {
                Ok(node_message) => self.read(now, *node_message, ops),
                Err(other) => {
                    let crossing = other.downcast::<Crossing>().expect("nodes send node messages");
                    self.cross(now, *crossing, ops);
                }
            }
            self.route(now, ops);
        }
    }

    /// Releases nodes for connections of fronts, some in a turn.
    pub(crate) fn release_some(&mut self, now: Instant, ops: &mut Vec<Op>) {
        let count = RELEASES_AT_ONCE.max(self.releases.len() / RELEASES_PART);
        self.release(now, count, ops);
    }

    fn release(&mut self, now: Instant, count: usize, ops: &mut Vec<Op>) {
        for _ in 0..count {
            let Some((front, id)) = self.releases.pop_front() else { return };
            self.forward(front, names::Input::Release(id));
            self.route(now, ops);
        }
    }

    fn read(&mut self, now: Instant, node_message: NodeMessage, ops: &mut Vec<Op>) {
        match node_message {
            NodeMessage::Names(worker, input) => self.forward_storelet(worker, input),
            NodeMessage::Reply(id, reply, served_ns) => {
                self.answered(now, id, reply, served_ns, ops)
            }
            NodeMessage::Report(key) => self.report(key, ops),
            NodeMessage::Reported(front, key, report) => self.reported(now, front, key, *report),
            NodeMessage::Drain => self.stop(now, ops),
            NodeMessage::Over(front) => {
                // Releases of its clients precede the closing of trees.
                self.release(now, usize::MAX, ops);
                for input in self.queue.forget_node(front) {
                    self.forward(front, input);
                }
                if let Role::Home(fronts) = &mut self.role {
                    fronts.remove(&front);
                }
                self.survey_without(now, front);
            }
            NodeMessage::Forward(tree, input) => self.forwarded(tree, input),
            NodeMessage::DrainTree(tree) => self.drain_tree(now, tree, ops),
            NodeMessage::CloseTree(tree) => self.close_tree(now, tree, ops),
            NodeMessage::Replied(tree, id, reply) => {
                self.step_relay(now, tree, relay::Input::Replied(id, reply), ops);
            }
            NodeMessage::Closed(tree) => self.step_relay(now, tree, relay::Input::Finished, ops),
            // Events during the shutdown are not reported.
            NodeMessage::LogMessage(_)
                if !matches!(self.phase, Phase::Joining | Phase::Running) => {}
            NodeMessage::LogMessage(message) => self.add_log_message(message),
            NodeMessage::Unresponsive(node, all) => self.report_unresponsive(now, node, all),
        }
    }

    /// Forwards a message of a storelet to the namespace.
    fn forward_storelet(&mut self, worker: usize, input: names::Input) {
        match &input {
            names::Input::Ask(id, _) => self.bill.requested(worker, *id),
            // A storelet only cancels when it has ended.
            names::Input::Cancel(id) => self.bill.leave(worker, *id),
            names::Input::Release(_) | names::Input::Close(_) | names::Input::Abandon(_) => {}
            names::Input::Answered(..) | names::Input::Change(..) => {
                unreachable!("no other node has trees")
            }
        }
        self.forward(worker, input);
    }

    /// Forwards a message of another node to the namespace.
    pub(crate) fn forward(&mut self, node: usize, input: names::Input) {
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

    /// Sends the counters of this node to home.
    fn report(&self, key: usize, ops: &mut Vec<Op>) {
        post(HOME, NodeMessage::Reported(self.number(), key, Box::new(Report::of(self))), ops);
    }

    /// Shuts the fronts down.
    pub(crate) fn stop_fronts(&self, ops: &mut Vec<Op>) {
        if let Role::Home(fronts) = &self.role {
            fronts.iter().for_each(|front| post(*front, NodeMessage::Drain, ops));
        }
    }

    /// Returns whether no other node can send requests any more.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(&self.role, Role::Home(fronts) if !fronts.is_empty())
    }

    /// Whether this node has the namespace.
    pub(crate) fn is_home(&self) -> bool {
        matches!(self.role, Role::Home(_))
    }

    /// Notifies home of the end of this front, when it has ended.
    pub(crate) fn take_leave(&self, before: Phase, ops: &mut Vec<Op>) {
        match self.role {
            Role::Front(front) if before != Phase::Over && self.is_over() => {
                post(HOME, NodeMessage::Over(front), ops);
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
    use base::{Access, Automaton as _, Caller};
    use std::collections::BTreeSet;
    use tree::{Ask, OpenId, Request};

    const FRONT: usize = 1;

    fn home() -> Node {
        let served = Served::Skeleton { paths: Vec::new() };
        let mut home = Node::new(Config::of_tests(), served, Vec::new());
        home.set_fronts(FRONT..=FRONT, &mut Vec::new());
        turn(&mut home, Vec::new());
        home
    }

    fn of_client(node_message: ClientMessage) -> Event {
        Event { id: OpId::UNREQUESTED, done: Done::Envelope(Envelope(Box::new(node_message))) }
    }

    fn names(slot: usize, input: names::Input) -> Event {
        of_client(ClientMessage::Names(Client { node: FRONT, slot }, input))
    }

    fn stat(home: &Node, slot: usize, call: u32) -> Event {
        let ask = Ask::Stat { node: home.export().root };
        let id = RequestId::new(u32::try_from(slot).unwrap(), call);
        names(slot, names::Input::Ask(id, Request { caller: Caller::Server, ask }))
    }

    /// Runs a turn by a clock that advances by 20 us per reading; returns the replies.
    fn turn(home: &mut Node, mut events: Vec<Event>) -> Vec<(RequestId, Result<Reply, Error>)> {
        let (mut ops, now) = (Vec::new(), Instant(1));
        home.turn(now, &crate::ticking(now), &mut events, &mut ops);
        home.check();
        let replies = ops.into_iter().filter_map(|op| {
            let Op::Post { to: FRONT, envelope } = op else { return None };
            let node_message = *envelope.0.downcast().unwrap();
            let ClientMessage::Reply(id, reply) = node_message else { return None };
            Some((id, reply))
        });
        replies.collect()
    }

    /// Runs turns until nothing is queued; returns the replies.
    fn turns(home: &mut Node, events: Vec<Event>) -> Vec<(RequestId, Result<Reply, Error>)> {
        let mut replies = turn(home, events);
        while home.deadline() == Some(Instant(0)) {
            replies.extend(turn(home, Vec::new()));
        }
        replies
    }

    /// Opens the root, as the only open file.
    fn open(home: &mut Node) -> OpenId {
        let ask = Ask::Open { node: home.export().root, access: Access::READ };
        let request = Request { caller: Caller::Server, ask };
        let replies = turns(home, vec![names(0, names::Input::Ask(RequestId::new(0, 0), request))]);
        let [(_, Ok(Reply::Opened(open, ..)))] = replies[..] else { panic!("{replies:?}") };
        assert_eq!(opens(home), 1);
        open
    }

    fn opens(home: &Node) -> usize {
        home.held().iter().map(|(_, opens)| opens).sum()
    }

    #[test]
    fn connections_of_fronts_are_served_in_turn() {
        let mut home = home();
        let mut events: Vec<Event> = (0..400).map(|call| stat(&home, 0, call)).collect();
        events.extend((0..400).map(|call| stat(&home, 1, call)));
        events.push(stat(&home, 2, 0));
        let mut replies = turn(&mut home, events);
        assert!(replies.len() < 801, "a turn of home is limited: {}", replies.len());
        // A later request waits for one turn of each other connection, not for all of their
        // requests.
        let late = stat(&home, 3, 0);
        replies.extend(turns(&mut home, vec![late]));
        let ids: BTreeSet<RequestId> = replies.iter().map(|(id, _)| *id).collect();
        assert!(replies.len() == 802 && ids.len() == 802, "each request has one reply");
        for slot in [2, 3] {
            let before = replies.iter().position(|(id, _)| id.requester() == slot).unwrap();
            assert!(before <= 500, "connection {slot} waited for {before} requests of others");
        }
        // Requests of one connection are started in order.
        let of_first = replies.iter().map(|(id, _)| *id).filter(|id| id.requester() == 0);
        assert!(of_first.is_sorted());
    }

    #[test]
    fn releases_wait_for_the_requests_before_them() {
        let mut home = home();
        let open = open(&mut home);
        let mut events: Vec<Event> = (1..300).map(|call| stat(&home, 0, call)).collect();
        events.push(names(0, names::Input::Close(open)));
        events.push(of_client(ClientMessage::Closed(Client { node: FRONT, slot: 0 })));
        let mut replies = turn(&mut home, events);
        assert_eq!(opens(&home), 1, "requests before it wait");
        let next = stat(&home, 0, 1000);
        replies.extend(turns(&mut home, vec![next]));
        assert_eq!(opens(&home), 0);
        let last = replies.last().map(|(id, _)| *id);
        assert_eq!(last, Some(RequestId::new(0, 1000)), "the next one in its slot is served");
    }

    #[test]
    fn nodes_are_released_some_in_a_turn_and_files_at_once() {
        let mut home = home();
        let file = open(&mut home);
        let count = 1000;
        let walk = |call| {
            let ask = Ask::Walk { from: home.export().root, names: Vec::new() };
            let request = Request { caller: Caller::Server, ask };
            names(0, names::Input::Ask(RequestId::new(0, call), request))
        };
        let walks: Vec<Event> = (1..=count).map(walk).collect();
        let releases = turns(&mut home, walks).into_iter().map(|(_, reply)| match reply {
            Ok(Reply::Walked(_, Some(node))) => names(0, names::Input::Release(node)),
            other => panic!("{other:?}"),
        });
        let mut events: Vec<Event> = releases.collect();
        assert_eq!(events.len() as u32, count);
        events.push(names(0, names::Input::Close(file)));
        turn(&mut home, events);
        assert_eq!(home.releases.len(), count as usize - RELEASES_AT_ONCE);
        assert_eq!(opens(&home), 0, "a later request finds the file closed");
        turns(&mut home, Vec::new());
        assert!(home.releases.is_empty());
    }

    #[test]
    fn a_request_that_is_cancelled_before_its_turn_is_not_begun() {
        let mut home = home();
        let root = home.export().root;
        let request = |ask| Request { caller: Caller::Server, ask };
        let id = |call| RequestId::new(0, call);
        let walk = |call| {
            let walk = request(Ask::Walk { from: root, names: Vec::new() });
            names(0, names::Input::Ask(id(call), walk))
        };
        let mut events: Vec<Event> = (0..300).map(walk).collect();
        events.extend((0..300).map(|call| names(0, names::Input::Cancel(id(call)))));
        let replies = turn(&mut home, events);
        assert!(replies.iter().all(|(_, reply)| matches!(reply, Err(Error::Cancelled))));
        let ids = replies.iter().map(|(id, _)| *id);
        assert_eq!(ids.collect::<BTreeSet<_>>(), (0..300).map(id).collect());
        assert!(home.deadline() != Some(Instant(0)), "nothing is left");
    }

    #[test]
    fn a_front_that_has_ended_begins_nothing_and_gives_back_all() {
        let mut home = home();
        let open = open(&mut home);
        let mut events: Vec<Event> = (1..300).map(|call| stat(&home, 0, call)).collect();
        events.push(names(0, names::Input::Close(open)));
        let over = Envelope(Box::new(NodeMessage::Over(FRONT)));
        events.push(Event { id: OpId::UNREQUESTED, done: Done::Envelope(over) });
        let replies = turns(&mut home, events);
        assert!(replies.is_empty() && home.is_last() && opens(&home) == 0);
    }
}
