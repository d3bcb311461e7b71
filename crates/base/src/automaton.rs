//! The two traits.

use crate::op::{Event, Op, Span};
use crate::{Instant, Time};
use std::time::Duration;

/// A state machine whose only interface to the world is its inputs and outputs.
///
/// Inputs are always accepted: `step` neither fails nor blocks. Requests of the machine to the
/// world go into `out`; their results return later as inputs.
pub trait Automaton {
    /// An event for this machine.
    type Input;
    /// A request or notification of this machine.
    type Output;

    /// Handles one input, to completion.
    fn step(&mut self, now: Instant, input: Self::Input, out: &mut Vec<Self::Output>);

    /// Returns the time of the next call if no input arrives earlier. A function of the state, so
    /// there is never a stale timer to cancel.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Panics if the state contradicts itself. Run after every step in tests and simulation.
    fn check(&self) {}
}

/// Performs operations; each one's completion comes back as an event.
pub trait Reactor {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Returns the wall-clock time, for people and protocols; never for measuring.
    fn wall(&self) -> Time;

    /// Returns the processor time used by this thread so far, for accounting.
    fn spent(&self) -> Duration;

    /// Starts an operation; its completion comes out of `wait`.
    fn submit(&mut self, op: Op);

    /// Waits for completions, at most until `deadline`. Appends at least one event unless the
    /// deadline passed; bounded per call, so that no source starves another.
    fn wait(&mut self, deadline: Option<Instant>, events: &mut Vec<Event>);

    /// Appends the times of the file operations completed since the last call. A reactor may omit
    /// some of them.
    fn spans(&mut self, _spans: &mut Vec<Span>) {}
}
