//! The most that one storelet is given, whatever its order says.
//!
//! Fields missing in an order have the default, or the maximum if that is less. An order that says
//! more is refused. What is installed was checked then; if the maxima have become smaller since,
//! it has as much as they are.

use crate::budget::Budget;
use crate::order::Order;

const SECOND: u64 = 1_000_000_000;

/// The most that a server gives to one storelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maxima {
    /// From its start to its end, ns.
    pub time_ns: u64,
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Linear memory, bytes.
    pub memory: u64,
}

impl Maxima {
    /// No maxima.
    pub const NONE: Maxima = Maxima { time_ns: u64::MAX, cpu_ns: u64::MAX, memory: u64::MAX };

    /// Returns as much of a budget as is within the maxima.
    pub fn within(&self, budget: Budget) -> Budget {
        Budget {
            time_ns: budget.time_ns.min(self.time_ns),
            cpu_ns: budget.cpu_ns.min(self.cpu_ns),
            memory: budget.memory.min(self.memory),
            ..budget
        }
    }

    /// Checks what an order says.
    ///
    /// # Errors
    /// If that is more than the server gives: of what, how much there is, and which flag of the
    /// server says so.
    pub(crate) fn check(&self, order: &Order) -> Result<(), String> {
        let Budget { time_ns, cpu_ns, memory, .. } = order.budget;
        let of = |what: &str, most: String, flag: &str| {
            Err(format!(
                "it may have no more {what} than this server gives: {most}; say less, or start \
                 the server with a larger --storelet-{flag}-max"
            ))
        };
        let seconds = |ns: u64| format!("{}s", ns / SECOND);
        if time_ns > self.time_ns {
            return of("time", seconds(self.time_ns), "time");
        }
        if cpu_ns > self.cpu_ns {
            return of("processor time", seconds(self.cpu_ns), "cpu");
        }
        if memory > self.memory {
            return of("memory", format!("{}M", self.memory >> 20), "memory");
        }
        Ok(())
    }
}
