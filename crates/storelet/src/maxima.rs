//! Maximum resources of one storelet, independent of its order.
//!
//! Limits missing in an order have their defaults, or the maximum if that is less. An order that
//! exceeds a maximum is refused. Installed storelets were checked at installation; if the maxima
//! have become smaller since, their limits are cut.

use wasi::Budget;

const SECOND: u64 = 1_000_000_000;

/// Maximum resources that a server grants to one storelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maxima {
    /// Wall-clock time from start to end, ns.
    pub time_ns: u64,
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Linear memory, bytes.
    pub memory: u64,
}

impl Maxima {
    /// No maxima.
    pub const NONE: Maxima = Maxima { time_ns: u64::MAX, cpu_ns: u64::MAX, memory: u64::MAX };

    /// Returns the budget, cut to the maxima.
    pub fn within(&self, budget: Budget) -> Budget {
        Budget {
            time_ns: budget.time_ns.min(self.time_ns),
            cpu_ns: budget.cpu_ns.min(self.cpu_ns),
            memory: budget.memory.min(self.memory),
            ..budget
        }
    }

    /// Checks the budget of an order.
    ///
    /// # Errors
    /// If it exceeds a maximum: of which resource, the maximum, and the server flag that raises it.
    pub(crate) fn check(&self, budget: &Budget) -> Result<(), String> {
        let Budget { time_ns, cpu_ns, memory, .. } = *budget;
        let of = |what: &str, most: String, flag: &str| {
            Err(format!(
                "{what} exceeds this server's maximum of {most}; reduce it, or start the server \
                 with a larger --storelet-{flag}-max"
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
