//! The order in which connections are served: start-time fair queueing (Goyal, Vin and Cheng,
//! *Start-time Fair Queuing*, SIGCOMM 1996, §2), with processor time as the cost.
//!
//! Bytes that came for a connection, completions of operations for its requests, deadlines, and
//! requests left over from its last turn wait here. Each turn of a connection has a start tag: the
//! end of its last turn, or the present virtual time less some credit if that is later. The least
//! tag is next, and is the virtual time from then on; a turn ends at its tag plus what it has cost.
//! So a connection that costs less than its share is served before all that always have something
//! to do, however many these are. Completions of volumes, of other servers and of sends, and what
//! other nodes send, do not wait here.

use crate::route::Message;
use crate::{Node, connection};
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

/// Minimum cost charged for a turn.
const COST_MIN: Duration = Duration::from_micros(1);

/// Maximum cost charged for a turn: one that took longer was interrupted by the host.
const COST_MAX: Duration = Duration::from_millis(5);

/// Credit of a connection that has cost less than its share, ns of virtual time. It breaks ties:
/// connections whose turns cost the same wait with the same tag.
const CREDIT: u64 = 500_000;

/// Maximum number of completions delivered in one turn of a connection.
const DONE_MAX: usize = 16;

/// Capacity for completions that an idle connection keeps.
const DONE_KEPT: usize = 8;

/// Connections that wait for their turns.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Start tags with slots.
    waiting: BTreeSet<(u64, usize)>,
    /// By slot.
    flows: Vec<Flow>,
    /// Virtual time, ns, and the end of the turn before: where new connections begin.
    time: u64,
    end: u64,
}

/// Queued input of a connection, with its tags.
#[derive(Debug, Default)]
struct Flow {
    /// Start tag, if it waits.
    start: Option<u64>,
    /// End of the last turn, virtual time.
    end: u64,
    /// Completions of operations for its requests, in order.
    done: VecDeque<Event>,
    /// End of its receive.
    received: Option<Result<Buf, Error>>,
    /// Whether a deadline has passed, or requests are left.
    ticks: bool,
}

impl Flow {
    fn is_empty(&self) -> bool {
        self.done.is_empty() && self.received.is_none() && !self.ticks
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
        let before = self.join(slot).received.replace(result);
        assert!(before.is_none(), "a connection has one receive at a time");
    }

    /// Adds the completion of an operation for one of its requests.
    pub(crate) fn complete(&mut self, slot: usize, event: Event) {
        self.join(slot).done.push_back(event);
    }

    /// Adds that a deadline has passed, or that requests are left.
    pub(crate) fn tick(&mut self, slot: usize) {
        self.join(slot).ticks = true;
    }

    fn join(&mut self, slot: usize) -> &mut Flow {
        if self.flows.len() <= slot {
            self.flows.resize_with(slot + 1, Flow::default);
        }
        let flow = &mut self.flows[slot];
        if flow.start.is_none() {
            // A new connection comes behind those that were served: otherwise clients that connect
            // for each request would always be first.
            let is_new = flow.end == 0;
            let least = self.time.saturating_sub(CREDIT);
            let start = if is_new { self.end.max(self.time) } else { flow.end.max(least) };
            flow.start = Some(start);
            self.waiting.insert((start, slot));
        }
        flow
    }

    /// Begins the turn of the next connection.
    fn begin(&mut self) -> Option<usize> {
        let (start, slot) = self.waiting.pop_first()?;
        self.time = self.time.max(start);
        let flow = &mut self.flows[slot];
        assert_eq!(flow.start.take(), Some(start), "a connection waits once");
        flow.end = start;
        Some(slot)
    }

    /// Ends a turn that has cost so much; the connection waits again if something is left.
    fn end(&mut self, slot: usize, cost: Duration) {
        let cost = u64::try_from(cost.clamp(COST_MIN, COST_MAX).as_nanos()).expect("ms");
        let flow = &mut self.flows[slot];
        flow.end = flow.end.saturating_add(cost);
        self.end = flow.end;
        if !flow.is_empty() {
            self.join(slot);
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
        if let Some(start) = flow.start {
            self.waiting.remove(&(start, slot));
        }
    }

    pub(crate) fn check(&self) {
        let flows = self.flows.iter().enumerate();
        let waiting = flows.filter_map(|(slot, flow)| Some((flow.start?, slot)));
        assert_eq!(self.waiting, waiting.collect(), "those that wait have tags");
        for flow in &self.flows {
            let waits = flow.start.is_some();
            assert_eq!(waits, !flow.is_empty(), "a connection waits with something");
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
            let Some(slot) = self.queue.begin() else { break };
            let before = ops.len();
            let inputs = self.serve_one(now, slot, ops);
            self.bill.add(inputs);
            // Most inputs lead to a response, which is sent at the end of the node's turn.
            let operations = u32::try_from(ops.len() - before + inputs).unwrap_or(u32::MAX);
            let ended = clock();
            let cost = ended.since(begun) + OPERATION_COST * operations;
            self.queue.end(slot, cost);
            (begun, spent) = (ended, spent + cost);
        }
    }

    /// Delivers the input of a connection, completions first; returns the number of inputs.
    fn serve_one(&mut self, now: Instant, slot: usize, ops: &mut Vec<Op>) -> usize {
        let mut inputs = 0;
        while let Some(event) = self.queue.flows[slot].done.pop_front() {
            self.complete(event);
            self.route(now, ops);
            inputs += 1;
            if inputs == DONE_MAX {
                return inputs;
            }
        }
        let flow = &mut self.queue.flows[slot];
        let received = flow.received.take().map(connection::Input::Received);
        let tick = mem::take(&mut flow.ticks).then_some(connection::Input::Tick);
        for input in received.into_iter().chain(tick) {
            self.messages.push_back(Message::Connection(slot, input));
            self.route(now, ops);
            inputs += 1;
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

    fn clear(queue: &mut Queue, slot: usize) {
        let flow = &mut queue.flows[slot];
        (flow.received, flow.ticks) = (None, false);
        flow.done.clear();
    }

    fn served(queue: &mut Queue, cost: u64) -> usize {
        let slot = queue.begin().expect("one waits");
        clear(queue, slot);
        queue.end(slot, Duration::from_micros(cost));
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
        // A new one waits for those that were there before it.
        queue.receive(100, Ok(Buf::default()));
        let round = (0..200).take_while(|_| {
            let slot = served(&mut queue, 20);
            if slot != 100 {
                queue.tick(slot);
            }
            slot != 100
        });
        assert!(round.count() <= 150);
        // From then on it is next whenever it has something.
        for _ in 0..20 {
            for _ in 0..130 {
                let slot = served(&mut queue, 20);
                queue.tick(slot);
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
            let slot = queue.begin().expect("all wait");
            clear(&mut queue, slot);
            let cost = [3, 10, 50][slot];
            queue.end(slot, Duration::from_micros(cost));
            spent[slot] += cost;
            queue.tick(slot);
        }
        let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
        assert!(most - least <= 2 * 50, "{spent:?}");
    }

    #[test]
    fn a_turn_that_was_interrupted_costs_no_more_than_the_most() {
        let mut queue = Queue::default();
        queue.tick(0);
        queue.tick(1);
        served(&mut queue, 10_000_000);
        queue.tick(0);
        let turns = (0..1000).take_while(|_| {
            let slot = served(&mut queue, 100);
            queue.tick(slot);
            slot == 1
        });
        assert_eq!(turns.count(), 50, "5 ms behind");
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
