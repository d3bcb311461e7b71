//! The event loop of a worker: turns of its node, slices of storelets, and their costs.
//!
//! All processor time of the thread is charged: a slice to the storelet that ran, everything else
//! (turns, messages, system calls between two slices) to the storelets that it was for. So a
//! storelet that yields in a loop pays for its own rescheduling.

use super::Node;
use base::op::Op;
use base::{Automaton as _, Instant, Reactor};
use std::time::Duration;

/// Maximum charge for a wait of the thread: about the kernel's cost of sleeping and waking up.
/// Polling of the reactor before it sleeps is the server's own choice.
const WAIT_MAX: Duration = Duration::from_micros(20);

/// Runs the event loop of a worker ([`Node::worker`]). Each slice of a storelet is announced.
pub fn work(node: &mut Node, reactor: &mut impl Reactor, announce: &mut dyn FnMut()) {
    let (mut events, mut ops, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    let mut meter = Meter { spent: reactor.spent(), carried: Duration::ZERO };
    let mut slept = true;
    while !node.is_over() {
        let now = reactor.now();
        reactor.spans(&mut spans);
        spans.drain(..).for_each(|span| node.stages.record_span(now, span));
        if !slept && !events.is_empty() {
            // The aftermath of the last slice is not charged for the present events.
            meter.charge(node, reactor, now);
        }
        node.turn(now, &|| reactor.now(), &mut events, &mut ops);
        run_slice(node, reactor, &mut meter, announce, &mut ops);
        ops.drain(..).for_each(|op| reactor.submit(op));
        if node.is_over() {
            break;
        }
        let due = node.deadline();
        let now = reactor.now();
        slept = due.is_none_or(|due| due > now);
        if slept {
            meter.charge(node, reactor, now);
        }
        reactor.wait(due, &mut events);
        if slept {
            meter.carry(reactor);
        }
    }
}

/// Runs the scheduled storelet for a slice, if there is one.
fn run_slice(
    node: &mut Node,
    reactor: &mut impl Reactor,
    meter: &mut Meter,
    announce: &mut dyn FnMut(),
    ops: &mut Vec<Op>,
) {
    let begun = reactor.now();
    meter.charge(node, reactor, begun);
    if let Some(slice) = node.take_slice(begun, ops) {
        announce();
        let ran = slice.run();
        let cpu = meter.take(reactor);
        node.ran(reactor.now(), ran, nanos(cpu), ops);
    }
}

/// Processor time of a thread, up to the last charge.
struct Meter {
    spent: Duration,
    /// Time of a wait, charged together with the events that ended it.
    carried: Duration,
}

impl Meter {
    /// Takes the time spent since the last call.
    fn take(&mut self, reactor: &impl Reactor) -> Duration {
        let spent = reactor.spent();
        spent.saturating_sub(std::mem::replace(&mut self.spent, spent))
    }

    /// Carries the time of a wait, as far as it is charged, to the next charge.
    fn carry(&mut self, reactor: &impl Reactor) {
        self.carried = self.take(reactor).min(WAIT_MAX);
    }

    /// Charges the time spent since the last call.
    fn charge(&mut self, node: &mut Node, reactor: &impl Reactor, now: Instant) {
        let spent = self.take(reactor) + std::mem::take(&mut self.carried);
        node.charge(now, nanos(spent));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
