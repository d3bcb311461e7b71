//! The order in which connections are served: start-time fair queueing (Goyal, Vin and Cheng,
//! *Start-time Fair Queuing*, SIGCOMM 1996, §2), with processor time as the cost, and with a
//! quantum, as in deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).
//!
//! Bytes that came for a connection, completions of operations for its requests, deadlines, and
//! requests left over from its last turn wait here. Each turn of a connection has a start tag: the
//! end of its last turn, or the present virtual time less some credit if that is later. The least
//! sum of a start tag and the cost of the connection's last turn is next, and its start tag is the
//! virtual time from then on; a turn ends at its start tag plus what it has cost, a quantum at
//! least. A turn that costs less than a quantum, took few bytes and left nothing to do is a small
//! one, and counts a quarter: clients that send one small request at a time are served one after
//! the other, whatever theirs cost, and before those that always have something to do, however many
//! these are, up to four requests for each turn of theirs. Completions wait with the tag of the
//! turn that began their request: a request waits once, not for each of its operations, until it
//! has cost a quantum; then they wait like new input.
//! Completions of volumes, of other servers and of sends, and what other nodes send, do not wait
//! here.

use crate::Node;
use crate::connection::{self, Connection};
use crate::route::Message;
use base::op::{Event, Op};
use base::{Buf, Error, Instant};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

/// Cost after which the node ends its turn, so that newly arrived input of a connection that has
/// cost little soon comes first. Each waiting connection adds to it: serving many in one turn costs
/// less for each, while their input is in the processor's cache.
const SERVING_TIME: Duration = Duration::from_micros(60);
const SERVING_MORE: Duration = Duration::from_nanos(1500);

/// Estimated cost of a reactor operation, which is performed after the turn.
const OPERATION_COST: Duration = Duration::from_micros(10);

/// Bytes of answers that are read and sent in a nanosecond: two copies, after the turn.
const BYTES_PER_NS: u64 = 2;

/// Minimum cost charged for a turn with the completions of its requests, ns, and cost charged for a
/// small one.
const QUANTUM: u64 = 100_000;
const SMALL: u64 = QUANTUM / 4;

/// Maximum number of received bytes of a small turn: a write of 4 KiB with its header.
const SMALL_BYTES: usize = 6 << 10;

/// Maximum cost charged for a turn: a longer one was interrupted by the host. Nobody is interrupted
/// always: the maximum doubles with each longer turn, up to 2⁷ times, until shorter ones have cost
/// what was not charged.
const COST_MAX: Duration = Duration::from_millis(1);
const DOUBLINGS_MAX: u32 = 7;

/// Time after which a turn begins no further part of its messages.
const PARTS_TIME: Duration = Duration::from_micros(300);

/// Credit of a connection that has cost less than its share, ns of virtual time.
const CREDIT: u64 = 500_000;

/// Maximum number of completions delivered in one turn of a connection.
const DONE_MAX: usize = 16;

/// Capacity for completions that an idle connection keeps.
const DONE_KEPT: usize = 8;

/// Connections that wait for their turns.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeSet<(Tag, usize)>,
    arrivals: u64,
    /// By slot.
    flows: Vec<Flow>,
    /// Virtual time, ns, and the end of the turn before: where new connections begin.
    time: u64,
    end: u64,
}

/// Order of the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tag {
    /// Start tag, virtual time, plus the cost charged for the turn before: among connections with
    /// the same start tags those that cost less are first.
    finish: u64,
    /// Whether the input was left over from the turn before: at the same time, a connection that
    /// had nothing to do is first.
    is_left: bool,
    /// Number in the order of arrival.
    arrival: u64,
    /// Start tag.
    start: u64,
}

/// Queued input of a connection, with its tags.
#[derive(Debug, Default)]
struct Flow {
    /// Tag, if it waits.
    tag: Option<Tag>,
    /// Tag of the last turn that began something, and its cost with that of the completions since,
    /// ns.
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
    /// Completions of operations for its requests, in order.
    done: VecDeque<Event>,
    /// End of its receive.
    received: Option<Result<Buf, Error>>,
    /// Whether a deadline has passed, or requests are left.
    ticks: bool,
    /// Whether the last turn left requests, for which a tick follows.
    is_left: bool,
}

impl Flow {
    fn is_empty(&self) -> bool {
        self.done.is_empty() && self.received.is_none() && !self.ticks
    }

    /// Cost charged for a turn, ns.
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

    /// Whether it waits with completions of a turn that has cost no more than a quantum: those of a
    /// long answer wait like new input.
    fn goes_on(&self) -> bool {
        !self.done.is_empty() && self.cost <= QUANTUM
    }
}

impl Queue {
    /// Connections that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether input is queued for a connection.
    pub(crate) fn has_input(&self, slot: usize) -> bool {
        self.flows.get(slot).is_some_and(|flow| !flow.is_empty())
    }

    /// Whether a tick is queued for a connection.
    pub(crate) fn has_tick(&self, slot: usize) -> bool {
        self.flows.get(slot).is_some_and(|flow| flow.ticks)
    }

    /// Adds the end of a receive.
    pub(crate) fn receive(&mut self, slot: usize, result: Result<Buf, Error>) {
        let before = self.flow(slot).received.replace(result);
        assert!(before.is_none(), "a connection has one receive at a time");
        self.join(slot, false);
    }

    /// Adds the completion of an operation for one of its requests.
    pub(crate) fn complete(&mut self, slot: usize, event: Event) {
        let flow = self.flow(slot);
        flow.done.push_back(event);
        if flow.done.len() == 1
            && flow.goes_on()
            && let Some(tag) = flow.tag.take()
        {
            // It is that of new input.
            self.waiting.remove(&(tag, slot));
        }
        self.join(slot, false);
    }

    /// Adds that a deadline has passed, or that requests are left.
    pub(crate) fn tick(&mut self, slot: usize) {
        let flow = self.flow(slot);
        flow.ticks = true;
        let is_left = flow.is_left;
        self.join(slot, is_left);
    }

    fn flow(&mut self, slot: usize) -> &mut Flow {
        if self.flows.len() <= slot {
            self.flows.resize_with(slot + 1, Flow::default);
        }
        &mut self.flows[slot]
    }

    /// Lets a connection with input wait for its turn.
    fn join(&mut self, slot: usize, is_left: bool) {
        let flow = &mut self.flows[slot];
        if flow.tag.is_some() {
            return;
        }
        // A new connection comes behind those that were served, though not behind all that one of
        // them has cost: otherwise clients that connect for each request would always be first.
        let is_new = flow.end == 0;
        let start = match is_new {
            true => self.end.clamp(self.time, self.time.saturating_add(QUANTUM)),
            false => flow.end.max(self.time.saturating_sub(CREDIT)),
        };
        self.arrivals += 1;
        let finish = start.saturating_add(flow.charged);
        let new = Tag { finish, is_left, arrival: self.arrivals, start };
        let tag = if flow.goes_on() { flow.begun } else { new };
        flow.tag = Some(tag);
        self.waiting.insert((tag, slot));
    }

    /// Begins the turn of the next connection.
    fn begin(&mut self) -> Option<usize> {
        let (tag, slot) = self.waiting.pop_first()?;
        self.time = self.time.max(tag.start);
        let flow = &mut self.flows[slot];
        assert_eq!(flow.tag.take(), Some(tag), "a connection waits once");
        if !flow.goes_on() {
            let bytes = flow.received.as_ref().and_then(|result| result.as_ref().ok());
            let is_little = bytes.is_none_or(|bytes| bytes.len() <= SMALL_BYTES);
            flow.is_small = flow.done.is_empty() && is_little;
            (flow.begun, flow.cost) = (tag, 0);
        }
        Some(slot)
    }

    /// Ends a turn that has cost so much, and has left requests or not; the connection waits again
    /// if input is left.
    fn end(&mut self, slot: usize, cost: Duration, is_left: bool) {
        let flow = &mut self.flows[slot];
        let cost = flow.charge(cost);
        flow.cost = flow.cost.saturating_add(cost);
        flow.is_left = is_left || !flow.is_empty();
        flow.is_small &= flow.cost <= QUANTUM && !flow.is_left;
        flow.charged = if flow.is_small { SMALL } else { flow.cost.max(QUANTUM) };
        flow.end = flow.end.max(flow.begun.start.saturating_add(flow.charged));
        self.end = flow.end;
        if !flow.is_empty() {
            self.join(slot, true);
        } else if flow.done.capacity() > DONE_KEPT {
            flow.done = VecDeque::new();
        }
    }

    /// Clears the slot of a closed connection.
    pub(crate) fn forget(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let flow = mem::take(flow);
        let is_empty = flow.received.is_none() && flow.done.is_empty();
        assert!(is_empty, "what was under way for it has come back");
        if let Some(tag) = flow.tag {
            self.waiting.remove(&(tag, slot));
        }
    }

    pub(crate) fn check(&self) {
        let flows = self.flows.iter().enumerate();
        let waiting = flows.filter_map(|(slot, flow)| Some((flow.tag?, slot)));
        assert_eq!(self.waiting, waiting.collect(), "those that wait have tags");
        for flow in &self.flows {
            let waits = flow.tag.is_some();
            assert_eq!(waits, !flow.is_empty(), "a connection waits with something");
            assert!(flow.begun.start <= flow.end, "a turn does not end before it begins");
            let least = if flow.goes_on() { flow.begun.start } else { flow.end };
            assert!(flow.tag.is_none_or(|tag| tag.start >= least), "one turn at a time");
        }
    }
}

impl Node {
    /// Serves connections in the order of their tags, for a limited time.
    pub(crate) fn serve(&mut self, now: Instant, clock: &dyn Fn() -> Instant, ops: &mut Vec<Op>) {
        if self.queue.is_empty() {
            return;
        }
        self.admission.begin_turn(self.queue.len());
        let (mut begun, mut spent) = (clock(), Duration::ZERO);
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let enough = SERVING_TIME + SERVING_MORE * waiting;
        while spent < enough {
            let Some(slot) = self.queue.begin() else { break };
            let (before, unsent) = (ops.len(), self.unsent(slot));
            let parts_until = begun + PARTS_TIME;
            let inputs = self.serve_one(now, slot, &|| clock() < parts_until, ops);
            self.bill.add(inputs);
            // Most inputs lead to a response, which is sent at the end of the node's turn.
            let operations = u32::try_from(ops.len() - before + inputs).unwrap_or(u32::MAX);
            let said = self.unsent(slot).saturating_sub(unsent) as u64;
            let ended = clock();
            let moved = Duration::from_nanos(said / BYTES_PER_NS);
            let cost = ended.since(begun) + OPERATION_COST * operations + moved;
            let is_left = self.connections.get(slot).is_some_and(Connection::has_requests_left);
            self.queue.end(slot, cost, is_left);
            (begun, spent) = (ended, spent + cost);
        }
    }

    /// Bytes said to a client and not yet sent.
    fn unsent(&self, slot: usize) -> usize {
        self.connections.get(slot).map_or(0, |it| it.session().unsent())
    }

    /// Delivers completions of a connection, or else its new input; returns the number of inputs.
    /// Of many messages it begins a few at a time, while `may_go_on`.
    fn serve_one(
        &mut self,
        now: Instant,
        slot: usize,
        may_go_on: &dyn Fn() -> bool,
        ops: &mut Vec<Op>,
    ) -> usize {
        let mut inputs = 0;
        while let Some(event) = self.queue.flows[slot].done.pop_front() {
            self.complete(event);
            self.route(now, ops);
            inputs += 1;
            if inputs == DONE_MAX {
                break;
            }
        }
        if inputs > 0 {
            return inputs;
        }
        let flow = &mut self.queue.flows[slot];
        let received = flow.received.take().map(connection::Input::Received);
        let tick = mem::take(&mut flow.ticks).then_some(connection::Input::Tick);
        for input in received.into_iter().chain(tick) {
            self.messages.push_back(Message::Connection(slot, input));
            self.route(now, ops);
            inputs += 1;
        }
        for _ in 1..self.admission.parts() {
            let is_left = self.connections.get(slot).is_some_and(Connection::has_requests_left);
            if !is_left || !may_go_on() {
                break;
            }
            self.messages.push_back(Message::Connection(slot, connection::Input::Tick));
            self.route(now, ops);
        }
        inputs
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clients, Config, Identity, Port, Protocol, Served};
    use base::op::{Done, Listener, OpId, Peer, Socket};
    use base::{Automaton as _, Caller};
    use wire::ninep::{NO_TAG, Tmessage};

    fn clear(queue: &mut Queue, slot: usize) {
        let flow = &mut queue.flows[slot];
        (flow.received, flow.ticks) = (None, false);
        flow.done.clear();
    }

    /// Serves all that a connection has to do.
    fn served(queue: &mut Queue, cost: u64) -> usize {
        let slot = queue.begin().expect("one waits");
        clear(queue, slot);
        queue.end(slot, Duration::from_micros(cost), false);
        queue.check();
        slot
    }

    /// Serves a connection that has requests left, as the node does: a tick follows.
    fn served_in_part(queue: &mut Queue, cost: u64) -> usize {
        let slot = queue.begin().expect("one waits");
        clear(queue, slot);
        queue.end(slot, Duration::from_micros(cost), true);
        queue.tick(slot);
        queue.check();
        slot
    }

    #[test]
    fn a_connection_that_cost_little_is_served_before_those_that_always_wait() {
        let mut queue = Queue::default();
        (0..100).for_each(|slot| queue.tick(slot));
        for _ in 0..250 {
            served_in_part(&mut queue, 20);
        }
        // A new one waits for those that were there before it.
        queue.receive(100, Ok(Buf::default()));
        let mut round = 0;
        while queue.waiting.first().is_some_and(|(_, slot)| *slot != 100) {
            served_in_part(&mut queue, 20);
            round += 1;
        }
        assert!(round <= 150);
        assert_eq!(served(&mut queue, 5), 100);
        // From then on it is next whenever it has something.
        for _ in 0..20 {
            for _ in 0..130 {
                served_in_part(&mut queue, 20);
            }
            queue.receive(100, Ok(Buf::default()));
            assert_eq!(served(&mut queue, 5), 100);
        }
    }

    #[test]
    fn time_is_shared_whatever_a_turn_costs() {
        let mut queue = Queue::default();
        let mut spent = [0; 3];
        (0..3).for_each(|slot| queue.tick(slot));
        for _ in 0..10_000 {
            let cost = |slot| [100, 300, 1000][slot];
            let slot = queue.waiting.first().expect("all wait").1;
            spent[slot] += cost(slot);
            served_in_part(&mut queue, cost(slot));
        }
        let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
        assert!(most - least <= 2 * 1000, "{spent:?}");
    }

    #[test]
    fn of_those_that_were_idle_the_one_that_costs_less_is_first() {
        let mut queue = Queue::default();
        (0..100).for_each(|slot| queue.tick(slot));
        (0..99).for_each(|_| _ = served(&mut queue, 300));
        assert_eq!(served(&mut queue, 20), 99);
        queue.tick(100);
        (0..20).for_each(|_| _ = served_in_part(&mut queue, 1000));
        (0..100).for_each(|slot| queue.tick(slot));
        assert_eq!(served(&mut queue, 20), 99, "before those that came before it");
    }

    #[test]
    fn turns_below_a_quantum_are_served_one_after_the_other() {
        let mut queue = Queue::default();
        (0..50).for_each(|slot| queue.tick(slot));
        for turn in 0..500 {
            let cost = if turn % 50 == 7 { 90 } else { 10 };
            assert_eq!(served(&mut queue, cost), turn % 50, "in the order of their arrival");
            queue.tick(turn % 50);
        }
    }

    #[test]
    fn a_request_waits_once_for_all_its_operations() {
        let mut queue = Queue::default();
        (0..100).for_each(|slot| queue.tick(slot));
        assert_eq!(served(&mut queue, 20), 0);
        for _ in 0..4 {
            queue.complete(0, Event { id: OpId(0), done: Done::Synced(Ok(())) });
            assert_eq!(served(&mut queue, 20), 0, "the completion of its operation");
        }
        // Together they have cost as much as a turn of the others.
        queue.receive(0, Ok(Buf::default()));
        let order: Vec<usize> = (0..100).map(|_| served(&mut queue, 20)).collect();
        assert_eq!(order, (1..100).chain([0]).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_answer_does_not_come_before_other_requests() {
        let mut queue = Queue::default();
        (0..2).for_each(|slot| queue.tick(slot));
        (0..2).for_each(|_| _ = served(&mut queue, 20));
        let mut turns = [0; 2];
        for _ in 0..200 {
            queue.complete(0, Event { id: OpId(0), done: Done::Synced(Ok(())) });
            queue.tick(1);
            turns[served(&mut queue, 50)] += 1;
        }
        assert!(turns[1] >= 100, "{turns:?}: a small request has at least as many turns");
    }

    #[test]
    fn a_turn_that_was_interrupted_costs_no_more_than_the_most() {
        let mut queue = Queue::default();
        queue.tick(0);
        queue.tick(1);
        assert_eq!(served_in_part(&mut queue, 10_000_000), 0);
        let turns = (0..1000).take_while(|_| served_in_part(&mut queue, 100) == 1);
        assert_eq!(turns.count(), 19, "1 ms behind, and as much for the turn that it may take");
    }

    #[test]
    fn turns_that_always_take_long_cost_what_they_take() {
        // Also if other turns are between them.
        for others in [1, 2, 10] {
            let mut queue = Queue::default();
            let (mut spent, mut turns) = ([0; 2], [0; 2]);
            (0..2).for_each(|slot| queue.tick(slot));
            for _ in 0..20_000 {
                let slot = queue.waiting.first().expect("both wait").1;
                turns[slot] += 1;
                let is_long = slot == 1 && turns[1] % others == 0;
                let cost = if is_long { 40_000 } else { 100 };
                spent[slot] += cost;
                served_in_part(&mut queue, cost);
            }
            let [short, long] = spent;
            assert!(long < short + 1_000_000, "{spent:?}");
        }
    }

    #[test]
    fn an_interruption_is_forgiven() {
        let mut flow = Flow::default();
        let charge = |flow: &mut Flow, us| flow.charge(Duration::from_micros(us));
        assert_eq!(charge(&mut flow, 20_000), 1_000_000);
        assert_eq!(charge(&mut flow, 20_000), 2_000_000);
        for _ in 0..370 {
            assert_eq!(charge(&mut flow, 100), 100_000);
        }
        assert_eq!(charge(&mut flow, 20_000), 1_000_000, "the 37 ms were spent since");
    }

    #[test]
    fn clients_that_connect_for_each_request_are_not_always_first() {
        let mut queue = Queue::default();
        (0..2).for_each(|slot| queue.tick(slot));
        let mut kept = 0;
        for _ in 0..100 {
            let slot = served(&mut queue, 100);
            if slot == 0 {
                kept += 1;
            } else {
                queue.forget(slot);
            }
            queue.tick(slot);
        }
        assert!((45..=55).contains(&kept), "{kept} of 100 turns");
    }

    /// A node with two connections of 9P; what it does is lost.
    fn node_with_connections() -> Node {
        let port = Port {
            listener: Listener(1),
            protocol: Protocol::NineP,
            local: true,
            clients: Clients::All(Identity::Fixed(Caller::Server)),
        };
        let config = Config { ports: vec![port], ..Config::of_tests() };
        let mut node = Node::new(config, Served::Skeleton { paths: Vec::new() }, Vec::new());
        let ops = turn(&mut node, Vec::new());
        let accept = ops.iter().find_map(|op| {
            let Op::Accept { id, .. } = op else { return None };
            Some(*id)
        });
        let peers = (1..=2).map(|at| (Socket(at), Peer::Network(format!("127.0.0.1:{at}"))));
        let done = Done::Accepted(Ok(peers.collect()));
        turn(&mut node, vec![Event { id: accept.expect("it listens"), done }]);
        node
    }

    fn turn(node: &mut Node, events: Vec<Event>) -> Vec<Op> {
        turn_by(node, Duration::from_micros(1), events)
    }

    /// A turn by a clock that advances so much each time it is read.
    fn turn_by(node: &mut Node, step: Duration, mut events: Vec<Event>) -> Vec<Op> {
        let (mut ops, passed) = (Vec::new(), Cell::new(Duration::ZERO));
        let clock = || {
            passed.set(passed.get() + step);
            Instant(1) + passed.get()
        };
        node.turn(Instant(1), &clock, &mut events, &mut ops);
        node.check();
        ops
    }

    #[test]
    fn a_connection_whose_requests_are_left_is_charged_a_quantum() {
        let mut node = node_with_connections();
        let version = Tmessage::Version { msize: 8192, version: b"9P2000.L" };
        let clunks = |count| (0..count).map(|tag| (tag, Tmessage::Clunk { fid: 9 }));
        for (slot, count) in [(0, 150), (1, 1)] {
            let mut bytes = Vec::new();
            version.encode(NO_TAG, &mut bytes);
            clunks(count).for_each(|(tag, clunk)| clunk.encode(tag, &mut bytes));
            assert!(bytes.len() <= SMALL_BYTES, "few bytes");
            node.queue.receive(slot, Ok(Buf::from(bytes)));
        }
        turn(&mut node, Vec::new());
        let charged: Vec<u64> = node.queue.flows.iter().map(|flow| flow.charged).collect();
        assert!(node.connections[0].has_requests_left(), "more than a turn of it");
        assert_eq!(charged, [QUANTUM, SMALL]);
    }

    #[test]
    fn a_turn_whose_messages_take_long_begins_few_of_them() {
        let left = |count: u16, step: Duration| {
            let mut node = node_with_connections();
            let mut bytes = Vec::new();
            Tmessage::Version { msize: 8192, version: b"9P2000" }.encode(NO_TAG, &mut bytes);
            (0..count).for_each(|tag| Tmessage::Clunk { fid: 9 }.encode(tag, &mut bytes));
            node.queue.receive(0, Ok(Buf::from(bytes)));
            turn_by(&mut node, step, Vec::new());
            node.connections[0].has_requests_left()
        };
        let slow = Duration::from_millis(2);
        assert!(left(8, slow) && !left(7, slow));
        assert!(!left(126, Duration::from_micros(1)) && left(130, Duration::from_micros(1)));
    }

    #[test]
    fn a_connection_that_is_gone_leaves_nothing_behind() {
        let mut queue = Queue::default();
        queue.tick(0);
        assert!(queue.has_tick(0) && queue.len() == 1);
        served(&mut queue, 1000);
        queue.tick(0);
        queue.forget(0);
        queue.check();
        assert!(queue.is_empty() && !queue.has_tick(0));
        queue.tick(0);
        queue.tick(1);
        assert_eq!(served(&mut queue, 1), 0, "the next one in its slot owes nothing");
    }
}
