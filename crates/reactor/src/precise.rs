//! Means of programs that act at a stated microsecond: a clock that costs a few nanoseconds,
//! control over the thread, and a ring with immediate submission.
//!
//! A [`World`](crate::World) serves many clients at low cost and decides itself when it enters the
//! kernel. A load generator must control that: it spins on the clock, and an operation that is late
//! by a microsecond is an error.

mod lane;
mod thread;
mod ticks;

pub use lane::{Finished, Lane, Waker};
pub use thread::{Priority, pin, processors, select, set_fine_timers, set_priority, sleep, unpin};
pub use ticks::Ticks;
