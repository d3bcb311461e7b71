//! The order in which connections are served: start-time fair queueing (Goyal, Vin and Cheng,
//! *Start-time Fair Queuing*, SIGCOMM 1996, §2), with processor time as the cost, and with a
//! quantum, as in deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).
//!
//! Received bytes of a connection, completions of operations for its requests, deadlines, and
//! requests left over from its last turn are queued here. Each turn of a connection has a start
//! tag: the end of its last turn, or the present virtual time less some credit if that is later.
//! The connection with the least sum of start tag and cost of its last turn is next, and its start
//! tag becomes the virtual time; a turn ends at its start tag plus its cost, a quantum at least. A
//! turn that costs less than a quantum, received few bytes and left nothing to do is a small one,
//! and counts a quarter: clients that send one small request at a time are served one after the
//! other, whatever their cost, and before those with continuous requests, however many these are,
//! up to four requests for each turn of theirs. Completions are queued with the tag of the turn
//! that began their request: a request waits once, not for each of its operations, until it has
//! cost a quantum; then they are queued like new input. Completions of volumes, of other servers
//! and of sends, and requests of storelets, are not queued here. The time that the node spends
//! outside of turns of connections is divided among the requests under way, and charged to their
//! connections with the replies.
//! Requests of connections of [fronts](crate::messages) are queued in home, each connection with a
//! flow of its own like those of home. Replies are completions in the front.

mod inbox;
#[cfg(test)]
pub(crate) mod tests;

use crate::Node;
use crate::connection::{self, Connection};
use crate::message::Message;
use crate::role::{Client, HOME};
use base::op::{Event, Op};
use base::{Buf, Error, Instant};
use inbox::{Entry, Inbox};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;
use tree::{Reply, RequestId};

/// Cost after which the node ends its turn, so that new input of a connection with little usage is
/// served soon. Each queued connection adds to it, up to a number: serving many in one turn costs
/// less for each, while their input is in the processor's cache.
const SERVING_TIME: Duration = Duration::from_micros(120);
const SERVING_MORE: Duration = Duration::from_nanos(1500);
const SERVING_MANY: usize = 256;

/// Estimated cost of a reactor operation, which is performed after the turn.
const OPERATION_COST: Duration = Duration::from_micros(10);

/// Maximum of the mean cost of submitting an operation, for the length of turns: path operations
/// are often performed at once.
const SUBMISSION_MAX: Duration = Duration::from_micros(200);

/// Weight of the operations so far in the mean.
const OPERATIONS_KEPT: u32 = 7;

/// Response bytes read and sent per nanosecond: two copies, after the turn.
const BYTES_PER_NS: u64 = 2;

/// Minimum cost charged for a turn with the completions of its requests, ns, and cost charged for a
/// small one.
const QUANTUM: u64 = 100_000;
const SMALL: u64 = QUANTUM / 4;

/// Maximum number of received bytes of a small turn: a write of 4 KiB with its header.
const SMALL_BYTES: usize = 6 << 10;

/// Maximum cost charged for a turn: a longer one was interrupted by the host. Interruptions are not
/// permanent: the maximum doubles with each longer turn, up to 2⁷ times, until shorter ones have
/// cost the amount that was not charged.
const COST_MAX: Duration = Duration::from_millis(1);
const DOUBLINGS_MAX: u32 = 7;

/// Time after which a turn starts no further part of its messages.
const PARTS_TIME: Duration = Duration::from_micros(300);

/// Credit of a connection that has cost less than its share, ns of virtual time.
const CREDIT: u64 = 500_000;

/// Maximum time of the node that is charged later, with the replies to requests under way.
const UNPAID_MAX: Duration = Duration::from_millis(100);

/// Maximum number of completions delivered in one turn of a connection.
const DONE_MAX: usize = 16;

/// Capacity for completions that an idle connection keeps.
const DONE_KEPT: usize = 8;

/// Queue of connections that wait for their turns.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeSet<(Tag, Client)>,
    arrivals: u64,
    /// By node and slot.
    flows: Vec<Vec<Flow>>,
    /// Virtual time, ns, that before the last turn, and the end of the previous turn: the start of
    /// new connections.
    time: u64,
    before: u64,
    end: u64,
    /// Number of requests under way, connections with replies in this turn of the node, once for
    /// each, and time for all these that is not charged yet.
    under_way: usize,
    answered: Vec<Client>,
    unpaid: Duration,
    /// Mean cost of submitting an operation.
    submission: Duration,
}

/// Completion of a step of a connection's request.
#[derive(Debug)]
pub(crate) enum Completion {
    /// An operation of a tree.
    Operation(Event),
    /// Reply of another node.
    Reply(RequestId, Result<Reply, Error>),
}

/// Order of the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tag {
    /// Start tag, virtual time, plus the cost charged for the previous turn: among connections with
    /// the same start tags those that cost less are first.
    finish: u64,
    /// Whether the input was left over from the previous turn: at the same time, a connection that
    /// was idle is first.
    is_left: bool,
    /// Number in the order of arrival.
    arrival: u64,
    /// Start tag.
    start: u64,
}

/// Queued input of a connection, with its tags.
#[derive(Debug, Default)]
struct Flow {
    /// Tag, while queued.
    tag: Option<Tag>,
    /// Tag of the last turn that began requests, and its cost with that of later completions, ns.
    begun: Tag,
    cost: u64,
    /// Whether that turn was a small one, as far as is known.
    is_small: bool,
    /// Cost charged for it, ns of virtual time.
    charged: u64,
    /// Doublings of the maximum cost, and cost that was not charged, ns.
    doublings: u32,
    uncharged: u64,
    /// End of the last turn, virtual time.
    end: u64,
    /// Whether its last input ended within a request. Then the next one has no credit: clients that
    /// send their requests byte by byte are served after those that have some.
    is_partial: bool,
    /// Completions for its requests, in order.
    done: VecDeque<Completion>,
    /// End of its receive.
    received: Option<Result<Buf, Error>>,
    /// Whether a deadline has passed, or requests are left.
    ticks: bool,
    /// Messages of a connection of a front.
    inbox: Inbox,
    /// Whether that connection has closed in this turn.
    has_closed: bool,
    /// Whether the last turn left requests, for which a tick follows.
    is_left: bool,
}

impl Flow {
    fn is_empty(&self) -> bool {
        let Flow { done, received, ticks, inbox, .. } = self;
        done.is_empty() && received.is_none() && !ticks && inbox.is_empty()
    }

    /// Returns the cost charged for a turn, ns.
    fn charge(&mut self, cost: Duration) -> u64 {
        let most = COST_MAX * (1 << self.doublings);
        let charged = u64::try_from(cost.min(most).as_nanos()).expect("some ms").max(1);
        if cost > COST_MAX {
            let rest = u64::try_from(cost.saturating_sub(most).as_nanos()).unwrap_or(u64::MAX);
            self.uncharged = self.uncharged.saturating_add(rest);
            self.doublings = DOUBLINGS_MAX.min(self.doublings + 1);
        } else {
            self.uncharged = self.uncharged.saturating_sub(charged);
            if self.uncharged == 0 {
                self.doublings = 0;
            }
        }
        charged
    }

    /// Returns whether it is queued with completions of a turn that has cost no more than a
    /// quantum: those of a long response are queued like new input.
    fn goes_on(&self) -> bool {
        !self.done.is_empty() && self.cost <= QUANTUM
    }
}

impl Queue {
    /// Returns the number of queued connections.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether none is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether input is queued for a connection.
    pub(crate) fn has_input(&self, client: Client) -> bool {
        self.known(client).is_some_and(|flow| !flow.is_empty())
    }

    /// Returns whether a tick is queued for a connection.
    pub(crate) fn has_tick(&self, client: Client) -> bool {
        self.known(client).is_some_and(|flow| flow.ticks)
    }

    /// Adds the completion of a receive.
    pub(crate) fn receive(&mut self, client: Client, result: Result<Buf, Error>) {
        let before = self.flow(client).received.replace(result);
        assert!(before.is_none(), "a connection has one receive at a time");
        self.join(client, false);
    }

    /// Adds a message of a connection of a front; returns it if it need not wait. A release only
    /// waits for earlier requests, because the front already counts the handle as free.
    pub(crate) fn add(&mut self, client: Client, input: names::Input) -> Option<names::Input> {
        assert!(client.node != HOME, "connections of this node are at hand");
        let flow = self.flow(client);
        let is_request = matches!(input, names::Input::Ask(..));
        if !is_request && !flow.inbox.has_request() {
            return Some(input);
        }
        flow.inbox.push(Entry::Input(input));
        self.join(client, false);
        None
    }

    /// Records the close of a connection of a front.
    pub(crate) fn close(&mut self, client: Client) {
        let flow = self.flow(client);
        if flow.is_empty() {
            return self.forget(client);
        }
        flow.inbox.push(Entry::Closed);
        self.join(client, false);
    }

    /// Removes a queued request of a connection of a front, if it is there. Adds the releases that
    /// waited for it to `freed`.
    pub(crate) fn withdraw(
        &mut self,
        client: Client,
        id: RequestId,
        freed: &mut Vec<names::Input>,
    ) -> bool {
        let flow = self.flow(client);
        let is_withdrawn = flow.inbox.withdraw(id);
        if is_withdrawn && !flow.inbox.has_request() {
            freed.extend(flow.inbox.take_others());
        }
        self.rest(client);
        is_withdrawn
    }

    /// Removes a connection without input from the queue.
    fn rest(&mut self, client: Client) {
        let flow = self.flow(client);
        flow.inbox.shrink(DONE_KEPT);
        if flow.is_empty()
            && let Some(tag) = flow.tag.take()
        {
            self.waiting.remove(&(tag, client));
        }
    }

    /// Adds a completion for one of its requests.
    pub(crate) fn complete(&mut self, client: Client, completion: Completion) {
        let flow = self.flow(client);
        flow.done.push_back(completion);
        if flow.done.len() == 1
            && flow.goes_on()
            && let Some(tag) = flow.tag.take()
        {
            // The tag is that of new input.
            self.waiting.remove(&(tag, client));
        }
        self.join(client, false);
    }

    /// Adds a tick, for a deadline or for requests left over.
    pub(crate) fn tick(&mut self, client: Client) {
        let flow = self.flow(client);
        flow.ticks = true;
        let is_left = flow.is_left;
        self.join(client, is_left);
    }

    fn known(&self, Client { node, slot }: Client) -> Option<&Flow> {
        self.flows.get(node)?.get(slot)
    }

    fn flow(&mut self, Client { node, slot }: Client) -> &mut Flow {
        if self.flows.len() <= node {
            self.flows.resize_with(node + 1, Vec::new);
        }
        let flows = &mut self.flows[node];
        if flows.len() <= slot {
            flows.resize_with(slot + 1, Flow::default);
        }
        &mut flows[slot]
    }

    /// Queues a connection with input.
    fn join(&mut self, client: Client, is_left: bool) {
        let flow = &mut self.flows[client.node][client.slot];
        if flow.tag.is_some() {
            return;
        }
        // A new connection starts behind those that were served, though not behind the whole cost
        // of one of them: otherwise clients that reconnect for each request would always be first.
        let is_new = flow.end == 0;
        let start = match is_new {
            true => self.end.clamp(self.time, self.time.saturating_add(QUANTUM)),
            false if flow.is_partial => flow.end.max(self.time),
            false => flow.end.max(self.time.saturating_sub(CREDIT)),
        };
        self.arrivals += 1;
        let finish = start.saturating_add(flow.charged);
        let new = Tag { finish, is_left, arrival: self.arrivals, start };
        let tag = if flow.goes_on() { flow.begun } else { new };
        flow.tag = Some(tag);
        self.waiting.insert((tag, client));
    }

    /// Begins the turn of the next connection.
    fn begin(&mut self) -> Option<Client> {
        let (tag, client) = self.waiting.pop_first()?;
        self.before = self.time;
        self.time = self.time.max(tag.start);
        let flow = self.flow(client);
        assert_eq!(flow.tag.take(), Some(tag), "a connection waits once");
        if !flow.goes_on() {
            let bytes = flow.received.as_ref().and_then(|result| result.as_ref().ok());
            let bytes = bytes.map_or(0, |bytes| bytes.len()) + flow.inbox.bytes();
            let is_little = bytes <= SMALL_BYTES;
            flow.is_small = flow.done.is_empty() && is_little;
            (flow.begun, flow.cost) = (tag, 0);
        }
        Some(client)
    }

    /// Ends a turn with its cost; `is_left`: whether requests are left over. The connection is
    /// queued again if input is left.
    fn end(&mut self, client: Client, cost: Duration, is_left: bool) {
        let flow = &mut self.flows[client.node][client.slot];
        let cost = flow.charge(cost);
        flow.cost = flow.cost.saturating_add(cost);
        flow.is_left = is_left || !flow.is_empty();
        flow.is_small &= flow.cost <= QUANTUM && !flow.is_left;
        flow.charged = if flow.is_small { SMALL } else { flow.cost.max(QUANTUM) };
        let end = flow.end;
        flow.end = flow.end.max(flow.begun.start.saturating_add(flow.charged));
        let charged = flow.charged.min(flow.end - end);
        self.end = flow.end;
        // At least as if all that wait had been served at once, each with its part (Bennett and
        // Zhang, *Hierarchical Packet Fair Queueing Algorithms*, SIGCOMM 1996, §4): otherwise
        // virtual time would stand still while connections with credit arrive, and those with less
        // would wait for all of them.
        let part = charged / (self.waiting.len() as u64 + 1);
        self.time = self.time.max(self.before.saturating_add(part));
        if mem::take(&mut flow.has_closed) {
            // The next connection in the slot owes nothing.
            assert!(flow.done.is_empty(), "completions come before messages");
            *flow = Flow { inbox: mem::take(&mut flow.inbox), ..Flow::default() };
        }
        if !flow.is_empty() {
            return self.join(client, true);
        }
        if flow.done.capacity() > DONE_KEPT {
            flow.done = VecDeque::new();
        }
        flow.inbox.shrink(DONE_KEPT);
    }

    /// Records the time in which operations were submitted.
    pub(crate) fn note_submitted(&mut self, operations: usize, time: Duration) {
        let Some(operations) = u32::try_from(operations).ok().filter(|count| *count > 0) else {
            return;
        };
        let each = (time / operations).min(SUBMISSION_MAX);
        self.submission = (self.submission * OPERATIONS_KEPT + each) / (OPERATIONS_KEPT + 1);
    }

    /// Returns the mean cost of submitting an operation that exceeds the estimate. It makes turns
    /// shorter, and is charged to nobody: it may be that of other connections' operations.
    fn excess(&self) -> Duration {
        self.submission.saturating_sub(OPERATION_COST)
    }

    /// Records a request of a connection.
    pub(crate) fn note_request(&mut self) {
        self.under_way += 1;
    }

    /// Records the reply to a request.
    pub(crate) fn note_reply(&mut self, client: Client) {
        self.under_way = self.under_way.checked_sub(1).expect("a reply follows a request");
        self.answered.push(client);
    }

    /// Returns whether there are requests under way, or were in this turn of the node.
    fn has_requests(&self) -> bool {
        self.under_way > 0 || !self.answered.is_empty()
    }

    /// Divides time that the node has not spent on turns of connections among the requests under
    /// way: those with replies in this turn of the node pay now.
    fn share(&mut self, cost: Duration) {
        self.unpaid = (self.unpaid + cost).min(UNPAID_MAX);
        let answered = mem::take(&mut self.answered);
        let parts = u32::try_from(self.under_way + answered.len()).unwrap_or(u32::MAX);
        let part = (self.unpaid / parts.max(1)).min(COST_MAX);
        for client in &answered {
            self.unpaid = self.unpaid.saturating_sub(part);
            self.delay(*client, part);
        }
        self.answered = answered;
        self.answered.clear();
    }

    /// Adds to the cost of a connection's last turn.
    fn delay(&mut self, client: Client, cost: Duration) {
        let cost = u64::try_from(cost.as_nanos()).expect("a millisecond at most");
        let flow = self.flow(client);
        if flow.end == 0 {
            // Its connection has closed, and the next one in the slot owes nothing.
            return;
        }
        flow.end = flow.end.saturating_add(cost);
        // Completions of that turn keep its tag.
        if !flow.goes_on()
            && let Some(old) = flow.tag.take()
        {
            let (start, finish) = (old.start + cost, old.finish + cost);
            let new = Tag { start, finish, ..old };
            flow.tag = Some(new);
            self.waiting.remove(&(old, client));
            self.waiting.insert((new, client));
        }
    }

    /// Clears the slot of a closed connection.
    pub(crate) fn forget(&mut self, client: Client) {
        if self.known(client).is_none() {
            return;
        }
        let flow = mem::take(self.flow(client));
        let is_empty = flow.received.is_none() && flow.done.is_empty() && flow.inbox.is_empty();
        assert!(is_empty, "no operation of it is in flight");
        if let Some(tag) = flow.tag {
            self.waiting.remove(&(tag, client));
        }
    }

    /// Removes the messages of connections of a front that has ended; returns the releases.
    pub(crate) fn forget_node(&mut self, node: usize) -> Vec<names::Input> {
        let mut freed = Vec::new();
        for slot in 0..self.flows.get(node).map_or(0, Vec::len) {
            let client = Client { node, slot };
            freed.extend(mem::take(&mut self.flow(client).inbox).take_others());
            self.rest(client);
        }
        freed
    }

    pub(crate) fn check(&self) {
        let nodes = self.flows.iter().enumerate();
        let flows = nodes.flat_map(|(node, flows)| {
            let flows = flows.iter().enumerate();
            flows.map(move |(slot, flow)| (Client { node, slot }, flow))
        });
        let waiting = flows.filter_map(|(client, flow)| Some((flow.tag?, client)));
        assert_eq!(self.waiting, waiting.collect(), "those that wait have tags");
        for flow in self.flows.iter().flatten() {
            flow.inbox.check();
            assert!(!flow.has_closed, "that is known for a turn");
            let waits = flow.tag.is_some();
            assert_eq!(waits, !flow.is_empty(), "a connection waits with something");
            assert!(flow.begun.start <= flow.end, "a turn does not end before it begins");
            let least = if flow.goes_on() { flow.begun.start } else { flow.end };
            assert!(flow.tag.is_none_or(|tag| tag.start >= least), "one turn at a time");
        }
    }
}

impl Node {
    /// Serves connections in the order of their tags, for a limited time, which is returned.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        clock: &dyn Fn() -> Instant,
        ops: &mut Vec<Op>,
    ) -> Duration {
        if self.queue.is_empty() {
            return Duration::ZERO;
        }
        self.admission.begin_turn(self.queue.len());
        let first = clock();
        let (mut begun, mut spent) = (first, Duration::ZERO);
        let waiting = u32::try_from(self.queue.len().min(SERVING_MANY)).expect("few");
        let excess = self.queue.excess();
        let enough = SERVING_TIME + SERVING_MORE * waiting;
        while spent < enough {
            let Some(client) = self.queue.begin() else { break };
            let (before, unsent) = (ops.len(), self.unsent(client));
            let parts_until = begun + PARTS_TIME;
            let inputs = self.serve_one(now, client, &|| clock() < parts_until, ops);
            // Most inputs lead to responses, which are sent together at the end of the node's turn.
            // Messages to other nodes are charged there.
            let posted = ops[before..].iter().filter(|op| matches!(op, Op::Post { .. })).count();
            let operations = ops.len() - before - posted + inputs.min(1);
            let operations = u32::try_from(operations).unwrap_or(u32::MAX);
            let sent_bytes = self.unsent(client).saturating_sub(unsent) as u64;
            let ended = clock();
            let moved = Duration::from_nanos(sent_bytes / BYTES_PER_NS);
            let cost = ended.since(begun) + OPERATION_COST * operations + moved;
            let is_left = self.own(client).is_some_and(Connection::has_requests_left);
            self.queue.end(client, cost, is_left);
            (begun, spent) = (ended, spent + cost + excess * operations);
        }
        begun.since(first)
    }

    /// Charges the time of a turn without that of `serve`, and operations submitted outside of it.
    /// Without requests under way it is nobody's.
    pub(crate) fn charge_rest(
        &mut self,
        now: Instant,
        clock: &dyn Fn() -> Instant,
        served: Duration,
        operations: usize,
    ) {
        if self.queue.has_requests() {
            let operations = u32::try_from(operations).unwrap_or(u32::MAX);
            let rest = clock().since(now).saturating_sub(served);
            self.queue.share(rest + OPERATION_COST * operations);
        }
    }

    /// Returns the connection of a client, if it is on this node.
    fn own(&self, Client { node, slot }: Client) -> Option<&Connection> {
        self.connections.get(slot).filter(|_| node == HOME)
    }

    /// Returns the number of queued and unsent bytes of a client.
    fn unsent(&self, client: Client) -> usize {
        self.own(client).map_or(0, |it| it.session().unsent())
    }

    /// Delivers completions of a connection, or else its new input; returns the number of inputs,
    /// where all messages received together count as one. Starts a few messages at a time, while
    /// `may_go_on`.
    fn serve_one(
        &mut self,
        now: Instant,
        client: Client,
        may_go_on: &dyn Fn() -> bool,
        ops: &mut Vec<Op>,
    ) -> usize {
        let mut inputs = 0;
        while let Some(completion) = self.queue.flow(client).done.pop_front() {
            match completion {
                Completion::Operation(event) => self.complete(event),
                Completion::Reply(id, reply) => self.answer_here(id, reply),
            }
            self.route(now, ops);
            inputs += 1;
            if inputs == DONE_MAX {
                break;
            }
        }
        if inputs > 0 {
            self.bill.add(inputs);
            return inputs;
        }
        if client.node != HOME {
            return self.serve_front(now, client, may_go_on, ops);
        }
        let slot = client.slot;
        let flow = self.queue.flow(client);
        let received = flow.received.take().map(connection::Input::Received);
        let has_received = received.is_some();
        let tick = mem::take(&mut flow.ticks).then_some(connection::Input::Tick);
        for input in received.into_iter().chain(tick) {
            self.messages.push_back(Message::Connection(slot, input));
            self.route(now, ops);
            inputs += 1;
        }
        if has_received {
            let is_partial = self.own(client).is_some_and(|it| it.session().owes_bytes());
            self.queue.flow(client).is_partial = is_partial;
        }
        for _ in 1..self.admission.parts() {
            let is_left = self.own(client).is_some_and(Connection::has_requests_left);
            if !is_left || !may_go_on() {
                break;
            }
            self.messages.push_back(Message::Connection(slot, connection::Input::Tick));
            self.route(now, ops);
        }
        self.bill.add(inputs);
        inputs
    }

    /// Delivers messages of a connection of a front, as many as of a local one.
    fn serve_front(
        &mut self,
        now: Instant,
        client: Client,
        may_go_on: &dyn Fn() -> bool,
        ops: &mut Vec<Op>,
    ) -> usize {
        for part in 0..self.admission.parts() {
            if part > 0 && !may_go_on() {
                break;
            }
            for _ in 0..self.admission.messages() {
                let flow = self.queue.flow(client);
                match flow.inbox.pop() {
                    Some(Entry::Input(input)) => self.forward(client.node, input),
                    Some(Entry::Closed) => {
                        flow.has_closed = true;
                        return 1;
                    }
                    None => return 1,
                }
                self.bill.add(1);
                self.route(now, ops);
            }
        }
        1
    }
}

/// Returns a simulated clock for [`Node::turn`](crate::Node::turn) that advances by 20 us each time
/// it is read, so that turns reach their limit.
pub fn ticking(now: Instant) -> impl Fn() -> Instant {
    let passed = Cell::new(Duration::ZERO);
    move || {
        passed.set(passed.get() + Duration::from_micros(20));
        now + passed.get()
    }
}
