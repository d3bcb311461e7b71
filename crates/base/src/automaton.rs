//! The two traits.

use crate::op::{Event, Op, Span};
use crate::{Instant, Time};
use std::time::Duration;

/// A state machine that talks to the world only through inputs and outputs.
///
/// Inputs are always accepted: `step` cannot fail and cannot wait. Everything the machine wants
/// from the world goes into `out` and comes back later as another input.
pub trait Automaton {
    /// What can happen to this machine.
    type Input;
    /// What this machine can ask for.
    type Output;

    /// Handles one input, to completion.
    fn step(&mut self, now: Instant, input: Self::Input, out: &mut Vec<Self::Output>);

    /// When to be called if nothing else happens. A function of the state, so there is never a
    /// stale timer to cancel.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Panics if the state contradicts itself. Run after every step in tests and simulation.
    fn check(&self) {}
}

/// Performs operations; each one's completion comes back as an event.
pub trait Reactor {
    /// The current time.
    fn now(&self) -> Instant;

    /// The date on the wall, for people and protocols; never for measuring.
    fn wall(&self) -> Time;

    /// Processor time that this thread has used so far; for charging who uses it.
    fn spent(&self) -> Duration;

    /// Starts an operation; its completion comes out of `wait`.
    fn submit(&mut self, op: Op);

    /// Waits for completions, at most until `deadline`. Appends at least one event unless the
    /// deadline passed; bounded per call, so that no source starves another.
    fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>);

    /// Appends how long the operations on files took that have completed since the last call. A
    /// reactor need not keep them all.
    fn spans(&mut self, _spans: &mut Vec<Span>) {}
}
