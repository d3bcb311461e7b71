//! Interference of the machine with the generator, as measured by the core.

/// Interval in which a thread that watches the clock did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Start, in ns since the start of the run.
    pub start_ns: u64,
    /// Length, in ns.
    pub len_ns: u64,
}

/// Loss of a bare loop that only reads the clock on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spin {
    /// Duration of the loop, in ns.
    pub watched_ns: u64,
    /// Time in gaps longer than 10 µs, in ns.
    pub lost_ns: u64,
    /// Longest gap, in ns.
    pub gap_ns_max: u64,
}

impl Spin {
    /// Share of the time that was lost.
    pub fn share(&self) -> f64 {
        self.lost_ns as f64 / self.watched_ns.max(1) as f64
    }
}

/// Measurements of the machine during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Gaps while the generator watched the clock. The core may record only the longest ones;
    /// `stolen_ns` includes all.
    pub gaps: Vec<Gap>,
    /// Number of gaps, recorded or not.
    pub gap_count: u64,
    /// Total time in gaps, in ns.
    pub stolen_ns: u64,
    /// Time for which the clock was watched, including gaps, in ns.
    pub watched_ns: u64,
    /// Loss of a bare loop just before the run.
    pub spin_before: Option<Spin>,
    /// Loss of a bare loop just after it.
    pub spin_after: Option<Spin>,
    /// Wait policies with their start times in ns since the start: the initial one, then the
    /// changes.
    pub policies: Vec<(u64, String)>,
    /// Whether the kernel permits real-time priority.
    pub realtime: bool,
    /// Clock used.
    pub clock: String,
    /// Number of clock recalibrations.
    pub recalibrations: u64,
    /// Number of permitted processors.
    pub processors: u32,
}

impl Machine {
    /// Adds a gap.
    pub fn steal(&mut self, gap: Gap) {
        self.gap_count += 1;
        self.stolen_ns = self.stolen_ns.saturating_add(gap.len_ns);
        self.gaps.push(gap);
    }

    /// Share of the watched time that was stolen.
    pub fn stolen_share(&self) -> f64 {
        self.stolen_ns as f64 / self.watched_ns.max(1) as f64
    }

    /// Longest gap in ns; 0 without gaps.
    pub fn gap_ns_max(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.len_ns).max().unwrap_or(0)
    }
}
