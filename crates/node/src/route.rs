//! Routing of messages between automata.
//!
//! Ids contain the return path: the upper sixteen bits of an operation's id are the kind of the
//! automaton that submitted it (trees come first, by number), the others identify the automaton; a
//! request's id contains the connection and its call.

use super::admission;
use super::changes;
use super::connection::{self, Connection, address_of};
use super::fairness::Completion;
use super::log::{Level, LogMessage};
use super::message::Message;
use super::messages::{self, ClientMessage, NodeMessage};
use super::mounted_tree::Tree;
use super::role::{Client, HOME, Role};
use super::{CLOSE_TIME, CUT_TIME, Clients, DRAIN_TIME, Node, Phase, Port, listener, places};
use base::op::{ClientKey, Done, Event, Op, OpId, Peer, Socket};
use base::{Automaton, Caller, Instant};
use front::{CallId, Identity, Session};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use storelet::{Storelets, worker};
use tree::host::Host;
use tree::remote::Remote;
use tree::{AsClient, Input as TreeInput, Output as TreeOutput, RequestId};

/// Kind in the ids of a listener's operations.
const LISTENER: u16 = 0xfff0;
/// Kind in the ids of a connection's operations.
const CONNECTION: u16 = 0xfff1;

/// Kind in the ids of operations that open a mount source.
pub(crate) const OPENING: u16 = 0xfff2;

impl Node {
    /// Processes the events of one turn and empties `events`. The clock measures the cost of the
    /// turn; for everything else the time is `now`.
    pub fn turn(
        &mut self,
        now: Instant,
        clock: &dyn Fn() -> Instant,
        events: &mut Vec<Event>,
        ops: &mut Vec<Op>,
    ) {
        let before = self.phase;
        for event in events.drain(..) {
            self.event(now, event, ops);
            self.route(now, ops);
        }
        self.release_some(now, ops);
        self.read_mail(now, ops);
        self.tick(now, ops);
        self.feed(now, ops);
        let before_serving = ops.len();
        let served = self.serve(now, clock, ops);
        let operations_served = ops.len() - before_serving;
        self.change(now, ops);
        self.settle(now, ops);
        self.charge_rest(now, clock, served, ops.len() - operations_served);
        self.make_places(now, ops);
        self.make_handles(now, ops);
        self.leave(now, ops);
        self.admission.end_turn(now);
        self.listen_all(now, ops);
        self.end(now, ops);
        self.take_leave(before, ops);
    }

    /// Routes the completion of a tree's operation.
    pub(crate) fn complete(&mut self, Event { id, done }: Event) {
        let (tree, _) = of(id);
        self.messages.push_back(Message::Tree(tree, TreeInput::Done(id, done)));
    }

    /// Lets trees start the work gathered in this turn.
    fn settle(&mut self, now: Instant, ops: &mut Vec<Op>) {
        self.begin_streams();
        while let Some(tree) = self.trees.pop_busy() {
            let mut out = mem::take(&mut self.scratch.trees);
            self.trees[tree].tick(now, &mut out);
            self.trees.set_alarm(tree);
            self.gather_log_messages(tree, ops);
            self.deliver_trees(now, tree, &mut out, ops);
            self.scratch.trees = out;
            self.route(now, ops);
            // Before the tree may be removed: its growth may have ended in this turn.
            self.change(now, ops);
            if self.trees.is_leaving(tree) {
                self.see_off(now, tree, ops);
            }
        }
    }

    /// Collects messages for the operator. Events of other servers during the shutdown are not
    /// reported.
    fn gather_log_messages(&mut self, tree: u16, ops: &mut Vec<Op>) {
        while let Some(message) = self.trees[tree].next_log_message() {
            let ends = !matches!(self.phase, Phase::Joining | Phase::Running);
            match &self.role {
                Role::Home(_) if ends && self.trees[tree].volume().is_none() => {}
                Role::Home(_) | Role::Front(_) => self.add_log_message(message),
                // Home knows whether the server is shutting down.
                Role::Replicas(..) => messages::post(HOME, NodeMessage::LogMessage(message), ops),
            }
        }
    }

    fn event(&mut self, now: Instant, event: Event, ops: &mut Vec<Op>) {
        let (kind, index) = of(event.id);
        match (kind, event.done) {
            (_, Done::Stop) => self.stop(now, ops),
            (_, Done::Envelope(envelope)) => self.receive(now, envelope, ops),
            (_, Done::Closing { client, begins }) => self.note_closing(client, begins),
            (_, Done::Unresponsive(all)) => self.note_unresponsive(now, all, ops),
            (tree, done) if self.trees.contains(tree) => {
                let host = self.trees[tree].downcast_ref::<Host>();
                let request = host.map(|host| host.request_of(event.id));
                let event = Event { id: event.id, done };
                match request.and_then(|id| self.client_of(id)) {
                    Some(client) => {
                        self.bill.defer();
                        self.queue.complete(client, Completion::Operation(event));
                    }
                    None => self.complete(event),
                }
            }
            (LISTENER, Done::Accepted(Ok(accepted))) => {
                self.listen(now, index, listener::Input::Accepted, ops);
                for (socket, peer) in accepted {
                    self.admit(index, socket, peer, ops);
                }
            }
            (LISTENER, Done::Accepted(Err(error))) => {
                self.listen(now, index, listener::Input::Failed(error), ops);
            }
            (CONNECTION, Done::Received(result)) => {
                self.bill.defer();
                let bytes = result.as_ref().map_or(0, |buf| buf.len());
                let connection = &mut self.connections[index];
                connection.arrive(now, bytes);
                self.traffic.receive(connection.session().protocol(), bytes);
                self.queue.receive(Client::of_slot(index), result);
            }
            (CONNECTION, Done::Sent(result)) => {
                let connection = &self.connections[index];
                let bytes = result.map_or(0, |()| connection.sending());
                self.traffic.send(connection.session().protocol(), bytes);
                let input = connection::Input::Sent(result);
                self.messages.push_back(Message::Connection(index, input));
            }
            (OPENING, Done::Path(result)) => {
                let number = u32::try_from(index).expect("it was made of one");
                self.messages.push_back(Message::Changes(changes::Input::Opened(number, result)));
            }
            // Every operation completes with its own kind of result.
            (kind, done) => unreachable!("{done:?} for {kind:#x}"),
        }
    }

    /// Routes messages until none is left.
    pub(crate) fn route(&mut self, now: Instant, ops: &mut Vec<Op>) {
        while let Some(message) = self.messages.pop_front() {
            match message {
                Message::Connection(slot, input) => self.step_connection(now, slot, input, ops),
                Message::Names(input) => self.step_names(now, input, ops),
                Message::Tree(tree, input) => self.step_tree(now, tree, input, ops),
                Message::Changes(input) => self.step_changes(now, input, ops),
            }
        }
    }

    fn step_names(&mut self, now: Instant, input: names::Input, ops: &mut Vec<Op>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.see(now, &input);
        }
        if let names::Input::Answered(id, reply) = &input {
            self.note_reply(*id, reply);
        }
        if let names::Input::Ask(id, _) = &input
            && self.client_of(*id).is_some()
        {
            self.queue.note_request();
        }
        let mut out = mem::take(&mut self.scratch.names);
        self.names.step(now, input, &mut out);
        for output in out.drain(..) {
            let message = match output {
                names::Output::Tell(tree, mut input) => {
                    self.note_request(tree, &input);
                    if let (true, TreeInput::Ask(_, request)) =
                        (self.config.write_through, &mut input)
                    {
                        request.ask.write_through();
                    }
                    Message::Tree(tree, input)
                }
                names::Output::Changed(_, result) => {
                    self.lose_changes();
                    Message::Changes(changes::Input::Changed(result))
                }
                names::Output::Left(tree) => {
                    self.trees.leave(tree);
                    continue;
                }
                names::Output::Reply(id, reply) => {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.answered(id, &reply);
                    }
                    self.answer(id, reply, ops);
                    continue;
                }
            };
            self.messages.push_back(message);
        }
        self.scratch.names = out;
    }

    fn step_tree(&mut self, now: Instant, tree: u16, input: TreeInput, ops: &mut Vec<Op>) {
        let mut out = mem::take(&mut self.scratch.trees);
        let client = match &input {
            TreeInput::Ask(id, _) => self.client_key(*id),
            TreeInput::Cancel(_)
            | TreeInput::Release(_)
            | TreeInput::Close(_)
            | TreeInput::Abandon(_)
            | TreeInput::Done(..)
            | TreeInput::Rendered(..)
            | TreeInput::Commanded(..)
            | TreeInput::Answered(..) => ClientKey::NOBODY,
        };
        self.trees.step(tree, now, client, input, &mut out);
        self.deliver_trees(now, tree, &mut out, ops);
        self.scratch.trees = out;
    }

    /// Performs the outputs of a tree.
    pub(crate) fn deliver_trees(
        &mut self,
        now: Instant,
        tree: u16,
        out: &mut Vec<TreeOutput>,
        ops: &mut Vec<Op>,
    ) {
        for output in out.drain(..) {
            match output {
                TreeOutput::Do(op) => ops.push(op),
                TreeOutput::Reply(id, reply) => match self.role {
                    Role::Replicas(..) => self.reply_home(tree, id, reply, ops),
                    Role::Home(_) | Role::Front(_) => {
                        let input = names::Input::Answered(id, reply);
                        self.messages.push_back(Message::Names(input));
                    }
                },
                TreeOutput::Command { ticket, line, text } => {
                    let input = changes::Input::Command(ticket, line, text);
                    self.messages.push_back(Message::Changes(input));
                }
                TreeOutput::CancelCommand(ticket) => {
                    self.messages.push_back(Message::Changes(changes::Input::Cancel(ticket)));
                }
                TreeOutput::Render(ticket, topic) => self.survey(now, ticket, topic, ops),
                TreeOutput::AsClient(output) => {
                    let input = match output {
                        AsClient::Ask(number, request) => {
                            names::Input::Ask(Node::of_stream(number), request)
                        }
                        AsClient::Release(node) => names::Input::Release(node),
                        AsClient::Close(open) => names::Input::Close(open),
                    };
                    self.messages.push_back(Message::Names(input));
                }
            }
        }
    }

    fn step_connection(
        &mut self,
        now: Instant,
        slot: usize,
        input: connection::Input,
        ops: &mut Vec<Op>,
    ) {
        let mut out = mem::take(&mut self.scratch.connections);
        let connection = &mut self.connections[slot];
        let (before, handles) = (connection.bytes(), connection.handles());
        let client = connection.client();
        connection.set_room(self.admission.room(slot, client));
        connection.step(now, input, &mut out);
        self.admission.count(slot, before, connection.bytes());
        self.admission.count_handles(client, handles, connection.handles());
        if !mem::replace(&mut connection.is_marked, true) {
            self.busy.push(slot);
        }
        self.deliver(now, slot, &mut out, ops);
        self.scratch.connections = out;
    }

    fn deliver(
        &mut self,
        now: Instant,
        slot: usize,
        out: &mut Vec<connection::Output>,
        ops: &mut Vec<Op>,
    ) {
        use connection::Output;
        for output in out.drain(..) {
            let input = match output {
                Output::Do(op) => {
                    ops.push(op);
                    continue;
                }
                Output::Staged(stage, span) => {
                    self.stages.record(stage, span);
                    continue;
                }
                Output::Replied(kind) => {
                    self.traffic.reply(kind);
                    continue;
                }
                Output::Called(name, is_done) => {
                    self.traffic.call(name, is_done);
                    continue;
                }
                Output::Claim(call, key) => {
                    let claim = self.replays.claim(self.connections[slot].origin(), key);
                    let input = connection::Input::Claimed(call, claim);
                    self.messages.push_back(Message::Connection(slot, input));
                    continue;
                }
                Output::Settle(key, reply) => {
                    self.replays.settle(self.connections[slot].origin(), key, reply);
                    continue;
                }
                Output::Locks(caller, request) => {
                    self.ask_locks(now, slot, caller, request, ops);
                    continue;
                }
                Output::Account(account) => {
                    self.traffic.respond(&account);
                    self.log_access(slot, account);
                    continue;
                }
                Output::Ask(call, request) => names::Input::Ask(request_id(slot, call), request),
                Output::Cancel(call) => names::Input::Cancel(request_id(slot, call)),
                Output::Release(node) => names::Input::Release(node),
                Output::Close(open) => names::Input::Close(open),
                Output::Abandon(open) => names::Input::Abandon(open),
            };
            match self.role {
                Role::Front(node) => {
                    let node_message = ClientMessage::Names(Client { node, slot }, input);
                    messages::post_client(HOME, node_message, ops);
                }
                Role::Home(_) | Role::Replicas(..) => {
                    self.messages.push_back(Message::Names(input));
                }
            }
        }
    }

    /// Admits a new connection, or rejects it during a shutdown.
    fn admit(&mut self, index: usize, socket: Socket, peer: Peer, ops: &mut Vec<Op>) {
        if self.phase != Phase::Running {
            return ops.push(Op::CloseSocket { socket });
        }
        let port = &self.config.ports[index];
        let mut session = self.session(port, &peer);
        session.set_number((self.number() as u64) << 56 | self.stages.accepted);
        let slot = self.connections.vacant_key();
        let id = op_id(CONNECTION, slot);
        let connection = Connection::new(id, socket, peer, session);
        self.places.add(connection.origin());
        if let Role::Front(node) = self.role {
            let client = Client { node, slot };
            let node_message = ClientMessage::Opened(client, connection.client());
            messages::post_client(HOME, node_message, ops);
        }
        self.connections.insert(connection);
        self.messages.push_back(Message::Connection(slot, connection::Input::Begin));
        self.stages.accepted += 1;
    }

    fn session(&self, port: &Port, peer: &Peer) -> Session {
        let is_verified = port.is_verified();
        let identity = match (&port.clients, peer) {
            (Clients::All(identity), _) => identity.clone(),
            (Clients::Spokesmen(uids), Peer::Local(user)) if uids.contains(&user.uid) => {
                Identity::Claimed(Some(Caller::User(Arc::new(user.clone()))))
            }
            (Clients::Themselves | Clients::Spokesmen(_), Peer::Local(user)) => {
                Identity::Fixed(Caller::User(Arc::new(user.clone())))
            }
            (clients @ (Clients::Themselves | Clients::Spokesmen(_)), Peer::Network(_)) => {
                unreachable!("the kernel says nothing about the network: {clients:?}")
            }
        };
        let mut session = Session::new(port.protocol, self.export.clone(), identity, port.local);
        if is_verified && !self.config.read_only {
            session.allow_admin();
        }
        let is_allowed = match peer {
            Peer::Network(_) => address_of(peer).is_some_and(|it| self.export.nfs.allows(it)),
            Peer::Local(_) => true,
        };
        if !is_allowed {
            session.refuse();
        }
        session
    }

    fn listen(&mut self, now: Instant, index: usize, input: listener::Input, ops: &mut Vec<Op>) {
        let mut out = Vec::new();
        self.listeners[index].step(now, input, &mut out);
        match self.listeners[index].is_waiting() {
            true => self.waiting.insert(index),
            false => self.waiting.remove(&index),
        };
        let id = op_id(LISTENER, index);
        ops.extend(out.into_iter().map(|output| match output {
            listener::Output::Accept(listener, max) => Op::Accept { id, listener, max },
            listener::Output::Cancel => Op::Cancel { id },
            listener::Output::Close(listener) => Op::CloseListener { listener },
        }));
    }

    /// Announces room to the listeners that wait for it; at the end of a turn, because a connection
    /// that ends makes room.
    fn listen_all(&mut self, now: Instant, ops: &mut Vec<Op>) {
        if self.phase == Phase::Joining {
            return;
        }
        if self.phase != Phase::Running {
            for index in 0..self.listeners.len() {
                self.listen(now, index, listener::Input::Close, ops);
            }
            return;
        }
        let waiting: Vec<usize> = self.waiting.iter().copied().collect();
        for index in waiting {
            // Local clients can connect when others cannot.
            let is_local = self.config.ports[index].is_verified();
            let kept = if is_local { admission::LOCAL_PLACES } else { 0 };
            let max = self.config.connections_max + kept;
            let input = match max.saturating_sub(self.connections.len()) {
                0 => listener::Input::Full,
                room => listener::Input::Room(room),
            };
            self.listen(now, index, input, ops);
        }
    }

    /// Advances all automata to the current time.
    fn tick(&mut self, now: Instant, ops: &mut Vec<Op>) {
        while let Some(&(at, slot)) = self.alarms.first().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, slot));
            let alarm = self.connections[slot].alarm.take();
            assert_eq!(alarm, Some(at), "a connection knows its alarm");
            self.queue.tick(Client::of_slot(slot));
        }
        self.phase = match self.phase {
            Phase::Draining(until) if until <= now => {
                self.notify_all(&|| connection::Input::Abort);
                // Requests to a hanging server are not waited for.
                self.close_trees(now, ops, &|tree| tree.is::<Remote>());
                Phase::Cutting(now + if self.is_last() { CUT_TIME } else { 2 * CUT_TIME })
            }
            Phase::Cutting(until) if until <= now => {
                self.close_trees(now, ops, &|_| true);
                Phase::Closing(now + CLOSE_TIME)
            }
            Phase::Closing(until) if until <= now => Phase::Over,
            phase @ (Phase::Joining
            | Phase::Running
            | Phase::Draining(_)
            | Phase::Cutting(_)
            | Phase::Closing(_)
            | Phase::Over) => phase,
        };
        if self.changes.deadline().is_some_and(|at| at <= now) {
            self.step_changes(now, changes::Input::Late, ops);
        }
        if self.worker.as_ref().is_some_and(|it| it.deadline().is_some_and(|at| at <= now)) {
            self.step_worker(now, worker::Input::Tick, ops);
        }
        self.trees.wake(now);
        self.trees.share_files(self.files_shared().saturating_sub(self.closing));
        self.admission.set_handles_max(self.handles_share());
        self.route(now, ops);
    }

    /// Ticks connections that waited for memory, and closes some that keep it from others.
    fn feed(&mut self, now: Instant, ops: &mut Vec<Op>) {
        for slot in self.admission.feed() {
            self.queue.tick(Client::of_slot(slot));
        }
        if self.admission.is_time(now) {
            let overdue = self.connections.iter().filter(|(_, it)| it.is_overdue(now));
            let owing = overdue.map(|(slot, connection)| (connection.bytes(), slot)).collect();
            let chosen = self.admission.choose(owing);
            self.cut(now, chosen, ops);
        }
    }

    /// Aborts connections for others.
    fn cut(&mut self, now: Instant, slots: Vec<usize>, ops: &mut Vec<Op>) {
        for slot in slots {
            self.messages.push_back(Message::Connection(slot, connection::Input::Abort));
        }
        self.route(now, ops);
    }

    /// Closes connections of the client with most nodes and open files, if the only free ones are
    /// those reserved for other clients or for requests in progress, until an eighth is free: the
    /// largest first, among those that have received nothing for a while, then among the others.
    /// The former with few, and slow ones with no more than each may always have, come last.
    fn make_handles(&mut self, now: Instant, ops: &mut Vec<Op>) {
        if !self.is_running() || !self.admission.is_time_for_handles(now) {
            return;
        }
        let share = self.handles_share();
        let (mut held, mut coming_free) = (BTreeMap::new(), self.admission.closing());
        for (_, connection) in &self.connections {
            match connection.is_ending() {
                true => coming_free += connection.handles(),
                false => *held.entry(*connection.origin()).or_insert(0) += connection.handles(),
            }
        }
        let crowd = places::crowd(&held, share);
        let lives = self.connections.iter().filter(|(_, it)| !it.is_ending());
        let of_crowd = lives.filter(|(_, it)| Some(it.origin()) == crowd.as_ref());
        let is_busy = |slot: usize, it: &Connection| {
            self.queue.has_input(Client::of_slot(slot))
                || it.quiet_since().is_none_or(|since| since + admission::IDLE_TIME > now)
        };
        let candidates = of_crowd.map(|(slot, it)| places::Candidate {
            slot,
            held: it.handles(),
            is_busy: is_busy(slot, it),
            is_slow: it.is_overdue(now),
        });
        let chosen = places::choose(candidates, (share / 8).saturating_sub(coming_free));
        if chosen.is_empty() && coming_free == 0 {
            self.admission.for_handles.put_off(now);
        }
        self.give_way(now, chosen, ops);
    }

    /// Closes connections for newcomers.
    pub(crate) fn give_way(&mut self, now: Instant, slots: Vec<usize>, ops: &mut Vec<Op>) {
        assert!(slots.iter().all(|slot| self.connections.contains(*slot)), "they are there");
        self.admission.note_ended(slots.len());
        self.cut(now, slots, ops);
    }

    /// Lets every connection that has changed submit its operations.
    fn leave(&mut self, now: Instant, ops: &mut Vec<Op>) {
        for slot in mem::take(&mut self.busy) {
            let connection = &mut self.connections[slot];
            connection.is_marked = false;
            let room = self.admission.room(slot, connection.client());
            let before = connection.bytes();
            let under_way = connection.sending();
            let lacks_room = connection.leave(now, room, ops);
            self.admission.count(slot, before, connection.bytes());
            self.admission.note_send(now, slot, connection.sending() - under_way);
            self.admission.set_waiting(slot, lacks_room, connection.bytes());
            self.alarm(slot);
            if self.connections[slot].is_over() {
                self.forget(slot, ops);
            }
        }
    }

    /// Sets the alarm of a connection to no later than its deadline.
    fn alarm(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let Some(at) = connection.deadline() else { return };
        if self.queue.has_tick(Client::of_slot(slot)) {
            return;
        }
        if connection.alarm.is_none_or(|alarm| at < alarm) {
            if let Some(old) = connection.alarm.replace(at) {
                let known = self.alarms.remove(&(old, slot));
                assert!(known, "a connection has one alarm");
            }
            self.alarms.insert((at, slot));
        }
    }

    fn forget(&mut self, slot: usize, ops: &mut Vec<Op>) {
        let connection = self.connections.remove(slot);
        if let Some(at) = connection.alarm {
            self.alarms.remove(&(at, slot));
        }
        self.places.remove(connection.origin());
        self.queue.forget(Client::of_slot(slot));
        if let Role::Front(node) = self.role {
            messages::post_client(HOME, ClientMessage::Closed(Client { node, slot }), ops);
        }
        self.admission.set_waiting(slot, false, 0);
        self.admission.count(slot, connection.bytes(), 0);
        self.admission.count_handles(connection.client(), connection.handles(), 0);
        ops.push(Op::CloseSocket { socket: connection.socket() });
    }

    /// The first call begins the shutdown, the second ends the node at once.
    pub(crate) fn stop(&mut self, now: Instant, ops: &mut Vec<Op>) {
        self.phase = match self.phase {
            Phase::Joining | Phase::Running => Phase::Draining(now + DRAIN_TIME),
            Phase::Draining(_) | Phase::Cutting(_) | Phase::Closing(_) | Phase::Over => Phase::Over,
        };
        self.stop_fronts(ops);
        self.step_worker(now, worker::Input::Drain, ops);
        // An idle worker ends soon: none may be assigned another storelet.
        self.close_trees(now, ops, &|tree| tree.is::<Storelets>());
        self.messages.push_back(Message::Changes(changes::Input::Drain));
        self.notify_all(&|| connection::Input::Drain);
        self.drain_trees(now, ops);
        self.route(now, ops);
        self.log_draining();
    }

    /// Logs the connections that delay the end of this node.
    fn log_draining(&mut self) {
        if !matches!(self.phase, Phase::Draining(_)) {
            return;
        }
        let busy = self.connections.iter().filter(|(_, it)| !it.session().is_over());
        let count = busy.count();
        if count > 0 {
            let limit = DRAIN_TIME.as_secs();
            let connections = if count == 1 { "connection" } else { "connections" };
            let text = format!(
                "ending: waiting for requests of {count} {connections}, at most {limit} s; another \
                 signal ends it at once"
            );
            self.add_log_message(LogMessage { level: Level::Info, target: "server", text });
        }
    }

    fn notify_all(&mut self, input: &dyn Fn() -> connection::Input) {
        let slots = self.connections.iter().map(|(slot, _)| Message::Connection(slot, input()));
        self.messages.extend(slots);
    }

    /// Closes the trees when all connections have ended, and then ends the node.
    fn end(&mut self, now: Instant, ops: &mut Vec<Op>) {
        let closed = self.listeners.iter().all(super::Listener::is_closed);
        let idle = self.worker.as_ref().is_none_or(|worker| worker.is_idle());
        let alone =
            closed && idle && self.connections.is_empty() && self.is_last() && !self.has_streams();
        self.phase = match self.phase {
            Phase::Draining(_) | Phase::Cutting(_) if alone => {
                self.close_trees(now, ops, &|_| true);
                Phase::Closing(now + CLOSE_TIME)
            }
            phase @ (Phase::Joining
            | Phase::Running
            | Phase::Draining(_)
            | Phase::Cutting(_)
            | Phase::Closing(_)
            | Phase::Over) => phase,
        };
        self.end_replicas(ops);
        if matches!(self.phase, Phase::Closing(_)) && self.trees.iter().all(Tree::is_closed) {
            self.phase = Phase::Over;
        }
    }
}

/// Returns the id of an operation of the `index`th automaton of a kind.
fn op_id(kind: u16, index: usize) -> OpId {
    assert!(index < 1 << 48, "the upper bits say what it is");
    OpId(u64::from(kind) << 48 | index as u64)
}

/// Returns the kind and the index of the automaton that submitted an operation; a tree has ids of
/// its own.
fn of(id: OpId) -> (u16, usize) {
    ((id.0 >> 48) as u16, (id.0 & ((1 << 48) - 1)) as usize)
}

fn request_id(slot: usize, call: CallId) -> RequestId {
    RequestId::new(u32::try_from(slot).expect("fewer connections"), call.0)
}
