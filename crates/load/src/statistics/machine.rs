//! What the machine did to the generator: facts that its core measures.

/// A time during which the clock was watched and did not answer: the machine had the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// When it began, ns since the start of the run.
    pub start_ns: u64,
    /// How long it was, ns.
    pub len_ns: u64,
}

/// What a bare loop that only reads the clock loses on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spin {
    /// How long it ran, ns.
    pub watched_ns: u64,
    /// Time in gaps longer than 10 µs, ns.
    pub lost_ns: u64,
    /// The largest gap, ns.
    pub gap_ns_max: u64,
}

impl Spin {
    /// The share of its time that it lost.
    pub fn share(&self) -> f64 {
        self.lost_ns as f64 / self.watched_ns.max(1) as f64
    }
}

/// Facts about the machine in the time of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// When the machine took the processor away while the generator watched the clock. The core
    /// may keep the longest ones only; `stolen_ns` has all.
    pub gaps: Vec<Gap>,
    /// How many gaps there were, kept or not.
    pub gap_count: u64,
    /// Time in all gaps, ns.
    pub stolen_ns: u64,
    /// How long the clock was watched, gaps included, ns.
    pub watched_ns: u64,
    /// What a bare loop lost just before the run.
    pub spin_before: Option<Spin>,
    /// What a bare loop lost just after it.
    pub spin_after: Option<Spin>,
    /// How the generator waited, from when on (ns since the start): the first is the policy that
    /// the run began with, the others are its changes.
    pub policies: Vec<(u64, String)>,
    /// Whether the kernel allows real-time priority.
    pub realtime: bool,
    /// Which clock it watched.
    pub clock: String,
    /// How often that clock was calibrated anew.
    pub recalibrations: u64,
    /// Processors it may run on.
    pub processors: u32,
}

impl Machine {
    /// Notes a gap.
    pub fn steal(&mut self, gap: Gap) {
        self.gap_count += 1;
        self.stolen_ns = self.stolen_ns.saturating_add(gap.len_ns);
        self.gaps.push(gap);
    }

    /// The share of the watched time that the machine took away.
    pub fn stolen_share(&self) -> f64 {
        self.stolen_ns as f64 / self.watched_ns.max(1) as f64
    }

    /// The longest gap, ns; 0 of none.
    pub fn gap_ns_max(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.len_ns).max().unwrap_or(0)
    }
}
