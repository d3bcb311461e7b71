//! The order in which connections are served: start-time fair queueing (Goyal, Vin and Cheng,
//! *Start-time Fair Queuing*, SIGCOMM 1996, §2), with processor time as the cost.
//!
//! Bytes that came for a connection, and requests left over from its last turn, wait here. Each
//! turn of a connection has a start tag: the end of its last turn, or the present virtual time if
//! that is later. The least tag is next, and is the virtual time from then on; a turn ends at its
//! tag plus what it has cost. So a connection that costs less than its share is served before all
//! that always have something to do, however many these are.

use crate::route::Message;
use crate::{Node, connection};
use base::op::{Event, Op};
use base::{Buf, Error, Instant};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

/// Cost after which the node goes on to what else there is: a connection that comes meanwhile, and
/// has cost less than those that wait, waits no longer than this. It is more for each connection
/// that waits, because what came for many is served for less while it is in the processor's cache.
const SERVING_TIME: Duration = Duration::from_micros(60);
const SERVING_MORE: Duration = Duration::from_nanos(1500);

/// Cost of an operation of the reactor, about: it is performed after the turn.
const OPERATION_COST: Duration = Duration::from_micros(10);

/// Least cost of a turn.
const COST_MIN: Duration = Duration::from_micros(1);

/// Connections that wait for their turns.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Start tags with slots.
    waiting: BTreeSet<(u64, usize)>,
    /// By slot.
    flows: Vec<Flow>,
    /// Virtual time, ns.
    time: u64,
}

/// What a connection waits with.
#[derive(Debug, Default)]
struct Flow {
    /// Start tag, if it waits.
    start: Option<u64>,
    /// End of the last turn, virtual time.
    end: u64,
    input: Input,
}

/// What came for a connection since its last turn.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Completions of operations for its requests: the first, and others in order.
    done: Option<Event>,
    more: Vec<Event>,
    /// The end of its receive.
    pub(crate) received: Option<Result<Buf, Error>>,
    /// Whether a deadline has passed, or requests are left.
    pub(crate) ticks: bool,
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

    /// Whether a connection is going to be told that a deadline has passed.
    pub(crate) fn is_told(&self, slot: usize) -> bool {
        self.flows.get(slot).is_some_and(|flow| flow.input.ticks)
    }

    /// Adds the end of a receive.
    pub(crate) fn receive(&mut self, slot: usize, result: Result<Buf, Error>) {
        let before = self.join(slot).received.replace(result);
        assert!(before.is_none(), "a connection has one receive at a time");
    }

    /// Adds the completion of an operation for one of its requests.
    pub(crate) fn complete(&mut self, slot: usize, event: Event) {
        let input = self.join(slot);
        match &input.done {
            Some(_) => input.more.push(event),
            None => input.done = Some(event),
        }
    }

    /// Adds that a deadline has passed, or that requests are left.
    pub(crate) fn tick(&mut self, slot: usize) {
        self.join(slot).ticks = true;
    }

    fn join(&mut self, slot: usize) -> &mut Input {
        if self.flows.len() <= slot {
            self.flows.resize_with(slot + 1, Flow::default);
        }
        let flow = &mut self.flows[slot];
        if flow.start.is_none() {
            let start = flow.end.max(self.time);
            flow.start = Some(start);
            self.waiting.insert((start, slot));
        }
        &mut flow.input
    }

    /// Begins the turn of the next connection.
    pub(crate) fn next(&mut self) -> Option<(usize, Input)> {
        let (start, slot) = self.waiting.pop_first()?;
        assert!(start >= self.time, "no turn begins in the past");
        self.time = start;
        let flow = &mut self.flows[slot];
        assert_eq!(flow.start.take(), Some(start), "a connection waits once");
        flow.end = start;
        Some((slot, mem::take(&mut flow.input)))
    }

    /// A connection's last turn has cost so much.
    pub(crate) fn charge(&mut self, slot: usize, cost: Duration) {
        let cost = u64::try_from(cost.max(COST_MIN).as_nanos()).unwrap_or(u64::MAX);
        let flow = &mut self.flows[slot];
        flow.end = flow.end.saturating_add(cost);
    }

    /// A connection is gone: the next one in its slot owes nothing.
    pub(crate) fn forget(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let flow = mem::take(flow);
        let is_empty = flow.input.received.is_none() && flow.input.done.is_none();
        assert!(is_empty, "what was under way for it has come back");
        if let Some(start) = flow.start {
            self.waiting.remove(&(start, slot));
        }
    }

    pub(crate) fn check(&self) {
        let flows = self.flows.iter().enumerate();
        let waiting = flows.filter_map(|(slot, flow)| Some((flow.start?, slot)));
        assert_eq!(self.waiting, waiting.collect(), "those that wait have tags");
        for flow in &self.flows {
            let Input { done, more, received, ticks } = &flow.input;
            assert!(done.is_some() || more.is_empty(), "the first is not among the others");
            let has_some = done.is_some() || received.is_some() || *ticks;
            assert_eq!(flow.start.is_some(), has_some, "a connection waits with something");
            assert!(flow.start.is_none_or(|start| start >= flow.end), "one turn at a time");
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
            let Some((slot, input)) = self.queue.next() else { break };
            // Each completion leads to a response, which is sent at the end of the node's turn.
            let responses = input.more.len() + usize::from(input.done.is_some());
            let before = ops.len();
            for event in input.done.into_iter().chain(input.more) {
                self.complete(event);
                self.route(now, ops);
            }
            // A deadline that has passed nevertheless is seen in the next turn.
            let tick = input.ticks.then_some(connection::Input::Tick);
            let input = input.received.map(connection::Input::Received).or(tick);
            self.messages.extend(input.map(|input| Message::Connection(slot, input)));
            self.route(now, ops);
            let operations = ops.len() - before + responses;
            let ended = clock();
            let cost =
                ended.since(begun) + OPERATION_COST * u32::try_from(operations).unwrap_or(u32::MAX);
            self.queue.charge(slot, cost);
            (begun, spent) = (ended, spent + cost);
        }
    }
}

/// A clock for [`Node::turn`](crate::Node::turn) where computing takes no time: each look takes
/// 20 us, so that turns end at a limit here too.
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

    fn served(queue: &mut Queue, cost: u64) -> usize {
        let (slot, _) = queue.next().expect("one waits");
        queue.charge(slot, Duration::from_micros(cost));
        queue.check();
        slot
    }

    #[test]
    fn a_connection_that_cost_little_is_served_before_those_that_always_wait() {
        let mut queue = Queue::default();
        (0..100).for_each(|slot| queue.tick(slot));
        for _ in 0..250 {
            let slot = served(&mut queue, 20);
            queue.tick(slot);
        }
        queue.receive(100, Ok(Buf::default()));
        let ahead = (0..100).take_while(|_| {
            let slot = served(&mut queue, 20);
            queue.tick(slot);
            slot != 100
        });
        // Those that wait with the same tag, as all have cost the same, may be ahead.
        assert!(ahead.count() <= 50);
        // After that its tag is 20 us behind those that were served before it.
        queue.receive(100, Ok(Buf::default()));
        let next = (0..200).position(|_| served(&mut queue, 20) == 100);
        assert!(next.is_some_and(|next| next <= 100));
    }

    #[test]
    fn time_is_shared_whatever_a_turn_costs() {
        let mut queue = Queue::default();
        let mut spent = [0; 3];
        (0..3).for_each(|slot| queue.tick(slot));
        for _ in 0..10_000 {
            let (slot, _) = queue.next().expect("all wait");
            let cost = [3, 10, 50][slot];
            queue.charge(slot, Duration::from_micros(cost));
            spent[slot] += cost;
            queue.tick(slot);
        }
        let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
        assert!(most - least <= 2 * 50, "{spent:?}");
    }

    #[test]
    fn a_connection_that_is_gone_leaves_nothing_behind() {
        let mut queue = Queue::default();
        queue.tick(0);
        assert!(queue.is_told(0) && queue.len() == 1);
        served(&mut queue, 1000);
        queue.tick(0);
        queue.forget(0);
        queue.check();
        assert!(queue.is_empty() && !queue.is_told(0));
        queue.tick(0);
        queue.tick(1);
        assert_eq!(served(&mut queue, 1), 0, "the next one in its slot owes nothing");
    }
}
