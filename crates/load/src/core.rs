//! Core: threads that call filaments and issue their I/Os at the requested times (paper, §4 and
//! §5).
//!
//! Each *worker* is in one of the states of the paper's Figure 3:
//!
//! ```text
//!                 ┌────────────── nothing is ready ─────────────┐
//!                 ▼                                             │
//!   spin ◀── no leader ───── check queue ── an I/O is due ──▶ execute I/O
//!   sleep ◀─ has a leader ───┘   ▲   │                          │
//!                                │   └─ a filament is due,      │ it has completed
//!                 nothing ready  │      an I/O has completed    │
//!                         queue events ◀── call filament ◀──────┘
//!                                └── ready I/Os and events ──────▶ execute I/O, call filament
//! ```
//!
//! One worker watches the clock: the *leader*. Before an operation that takes longer than a
//! wake-up, the leader hands over to another worker.
//!
//! See `docs/decisions/0016` for the differences from the paper and their reasons.

mod calibrate;
mod exchange;
mod lock;
mod policy;
mod queue;
mod shared;
mod supervisor;
mod watch;
mod worker;

use crate::driver::Target;
use crate::statistics::Machine;
use crate::{Filament, Record};
use reactor::precise::{self, Ticks};
use shared::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use supervisor::LossSupervisor;
use worker::{Found, Setup};

pub use calibrate::Calibration;
pub(crate) use calibrate::bare_spin;
pub use policy::{Choice, Policy};

/// Maximum workers.
pub const WORKERS_MAX: usize = 64;

/// Interval at which the observer collects completed I/Os.
const TICK: Duration = Duration::from_millis(5);

/// The same while workers connect.
const CONNECT_TICK: Duration = Duration::from_millis(50);

/// Delay of the start after the last worker is ready.
const LEAD_TIME: Duration = Duration::from_millis(5);

/// Maximum time for outstanding I/Os after the end of a run.
const GRACE: Duration = Duration::from_secs(30);

/// Policy for late I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// Issue immediately; later I/Os keep their times.
    #[default]
    CatchUp,
    /// Skip an I/O later than this, in ns; it counts as skipped.
    Skip(u64),
    /// Shift the remaining schedule by the lateness of an I/O later than this, in ns.
    Shift(u64),
    /// End the run at an I/O later than this, in ns.
    Stop(u64),
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of workers; 0 for the target's default.
    pub workers: usize,
    /// Wait policy.
    pub policy: Choice,
    /// Policy for late I/Os.
    pub late: Late,
    /// Duration of the schedule; outstanding I/Os are awaited after it.
    pub length: Duration,
    /// Ends the run early when set.
    pub stop: Arc<AtomicBool>,
    /// Whether the observer gets the names of I/Os, which identify them in the kernel's trace.
    pub named: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: 0,
            policy: Choice::Auto,
            late: Late::CatchUp,
            length: Duration::MAX,
            stop: Arc::default(),
            named: false,
        }
    }
}

/// Completed I/Os.
#[derive(Debug, Default)]
pub struct Batch {
    /// Records.
    pub records: Vec<Record>,
    /// Name of each I/O in the kernel's trace, if requested.
    pub names: Vec<u64>,
}

/// Metadata of a run beside its records.
#[derive(Debug)]
pub struct RunMetadata {
    /// Interference of the machine.
    pub machine: Machine,
    /// Measurements before the run.
    pub calibration: Calibration,
    /// Start of the run on `CLOCK_MONOTONIC`, in ns.
    pub origin_ns: u64,
    /// Clock of the run, to convert times of the kernel's trace.
    pub clock: Ticks,
    /// I/Os still outstanding when the run was aborted.
    pub abandoned: u64,
    /// Reason for an early end.
    pub stopped: Option<String>,
    /// Number of workers.
    pub workers: usize,
    /// Number of leader changes.
    pub hand_overs: u64,
}

/// Runs filaments against a target until they are idle or the time is over.
///
/// Calls `observe` on this thread about every 5 ms with the I/Os completed since, and the time
/// since the start in ns (0 before it). The workers do not wait for it.
///
/// # Errors
/// If the target is unreachable, or threads cannot be started.
pub fn run(
    target: &dyn Target,
    filaments: Vec<Box<dyn Filament>>,
    options: &Options,
    observe: &mut dyn FnMut(&[Batch], u64),
) -> io::Result<RunMetadata> {
    let calibration = Calibration::measure();
    let processors = precise::processors();
    let workers = match options.workers {
        0 if processors.len() < 2 && target.workers() < 3 => 1,
        0 => target.workers(),
        workers => workers.min(WORKERS_MAX),
    };
    let shared = Shared::new(filaments, options, workers, &calibration);
    let overseer = LossSupervisor::new(options.policy, &shared, &calibration);
    std::thread::scope(|scope| {
        let (ready_sender, ready) = channel();
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        for id in 0..workers {
            let (start, wait) = channel();
            let cpu = processors[id % processors.len()];
            let ready_sender = ready_sender.clone();
            let processors = processors.len();
            let setup = Setup { id, cpu, processors, shared: &shared, target, ready_sender, wait };
            let builder = std::thread::Builder::new().name(format!("load-{id}"));
            threads.push(builder.spawn_scoped(scope, move || setup.run())?);
            starts.push(start);
        }
        drop(ready_sender);
        // A failed worker ends all: without the start signal the waiting ones stop.
        let mut clock = begin(&ready, starts, observe)?;
        shared.origin_ns.store(clock.1, Ordering::Release);
        follow(&shared, options, &clock, overseer, observe);
        let mut found = Vec::new();
        for thread in threads {
            let ended = thread.join().map_err(|_| io::Error::other("a worker has panicked"))?;
            found.extend(ended);
        }
        let end = clock.0.now_ns().saturating_sub(clock.1);
        shared.exchange.drain(end, observe);
        clock.0.calibrate();
        Ok(conclude(&shared, found, calibration, clock))
    })
}

/// Waits until all workers are connected, then sends them the start time.
fn begin(
    ready: &Receiver<io::Result<()>>,
    starts: Vec<Sender<u64>>,
    observe: &mut dyn FnMut(&[Batch], u64),
) -> io::Result<(Ticks, u64)> {
    let mut missing = starts.len();
    while missing > 0 {
        match ready.recv_timeout(CONNECT_TICK) {
            Ok(made) => made.map(|()| missing -= 1)?,
            Err(RecvTimeoutError::Timeout) => observe(&[], 0),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("a worker has panicked"));
            }
        }
    }
    let clock = Ticks::start();
    let origin_ns = clock.now_ns() + LEAD_TIME.as_nanos() as u64;
    for start in starts {
        // A missing worker has panicked, which its join reports.
        let _ = start.send(origin_ns);
    }
    Ok((clock, origin_ns))
}

/// Passes completed I/Os to the observer and supervises the run until all workers are done.
fn follow(
    shared: &Shared,
    options: &Options,
    (clock, origin_ns): &(Ticks, u64),
    mut overseer: LossSupervisor,
    observe: &mut dyn FnMut(&[Batch], u64),
) {
    while !shared.is_over() {
        precise::sleep(TICK);
        let now = clock.now_ns().saturating_sub(*origin_ns);
        shared.exchange.drain(now, observe);
        if options.stop.load(Ordering::Relaxed) {
            // In schedule time, which may be shifted.
            shared.stop(now.saturating_sub(shared.shift_ns()), "interrupted");
        }
        overseer.look(now, shared);
        let last = shared.end_ns().saturating_add(shared.shift_ns());
        if now > last.saturating_add(GRACE.as_nanos() as u64) {
            shared.finish();
        }
    }
}

fn conclude(
    shared: &Shared,
    found: Vec<Found>,
    calibration: Calibration,
    (clock, origin_ns): (Ticks, u64),
) -> RunMetadata {
    let mut machine = Machine {
        spin_before: Some(calibration.spin),
        spin_after: Some(calibrate::bare_spin()),
        policies: shared.policies(),
        realtime: calibration.realtime,
        clock: if clock.counts() { "time stamp counter" } else { "CLOCK_MONOTONIC" }.to_string(),
        processors: precise::processors().len() as u32,
        ..Machine::default()
    };
    let workers = found.len();
    for found in found {
        machine.watched_ns += found.watch.watched_ns;
        machine.recalibrations += found.recalibrations;
        machine.gap_count += found.watch.count;
        machine.stolen_ns += found.watch.stolen_ns;
        machine.gaps.extend(found.watch.gaps);
    }
    machine.gaps.sort_by_key(|gap| gap.start_ns);
    RunMetadata {
        machine,
        calibration,
        origin_ns,
        clock,
        abandoned: shared.left(),
        stopped: shared.stopped(),
        workers,
        hand_overs: shared.hand_overs.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests;
