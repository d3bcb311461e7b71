//! What a program needs that acts at a stated microsecond: a clock that costs a few nanoseconds,
//! control over its thread, and a ring whose operations are handed over at once.
//!
//! A [`World`](crate::World) serves many clients at small cost and decides itself when it enters
//! the kernel. A load generator must decide that: it spins on the clock, and an operation that is
//! late by a microsecond is an error. These are its means.

mod lane;
mod thread;
mod ticks;

pub use lane::{Finished, Lane, Waker};
pub use thread::{Priority, pin, processors, select, set_fine_timers, set_priority, sleep, unpin};
pub use ticks::Ticks;
