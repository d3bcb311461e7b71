//! The core: threads that call filaments and issue their I/Os at the time that was asked for
//! (paper, §4 and §5).
//!
//! Each *worker* is in one of the states of the paper's Figure 3:
//!
//! ```text
//!                 ┌────────────── nothing is ready ─────────────┐
//!                 ▼                                             │
//!   spin ◀── nobody spins ── check queue ── an I/O is due ──▶ execute I/O
//!   sleep ◀─ somebody does ──┘   ▲   │                          │
//!                                │   └─ a filament is due,      │ it has ended
//!                 nothing ready  │      an I/O has ended        │
//!                         queue events ◀── call filament ◀──────┘
//!                                └── what is ready is carried on ▶ execute I/O, call filament
//! ```
//!
//! One worker watches the clock: it *leads*. Whoever leads and is about to do something that takes
//! longer than it takes to wake another one hands the lead over first.
//!
//! What differs from the paper, and why, is in `docs/decisions/0016`.

mod calibrate;
mod depot;
mod policy;
mod queue;
mod shared;
mod watch;
mod worker;

use crate::driver::Target;
use crate::statistics::Machine;
use crate::{Filament, Record};
use policy::Overseer;
use reactor::precise::{self, Ticks};
use shared::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use worker::{Found, Setup};

pub use calibrate::Calibration;
pub(crate) use calibrate::bare_spin;
pub use policy::{Choice, Policy};

/// Most workers.
pub const WORKERS_MAX: usize = 64;

/// How often the observer looks for what has ended.
const TICK: Duration = Duration::from_millis(5);

/// The same, while workers connect.
const CONNECT_TICK: Duration = Duration::from_millis(50);

/// How long after the last worker is ready the run begins.
const LEAD_TIME: Duration = Duration::from_millis(5);

/// How long what was issued may take behind the end of a run.
const GRACE: Duration = Duration::from_secs(30);

/// What happens to an I/O whose time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// It is issued at once. What comes behind it keeps its time.
    #[default]
    CatchUp,
    /// If it is later than this, ns, it is not issued, and counts as skipped.
    Skip(u64),
    /// If it is later than this, ns, all that follows is moved by as much.
    Shift(u64),
    /// If it is later than this, ns, the run ends.
    Stop(u64),
}

/// How a run is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads; 0: as many as are good for the target.
    pub workers: usize,
    /// How to wait.
    pub policy: Choice,
    /// What happens to late I/Os.
    pub late: Late,
    /// For how long I/Os are scheduled; what was issued by then is waited for.
    pub length: Duration,
    /// Ends the run early when it becomes true.
    pub stop: Arc<AtomicBool>,
    /// Gives the names of I/Os to the observer, by which the kernel's trace knows them.
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

/// I/Os that have ended, for whoever keeps statistics.
#[derive(Debug, Default)]
pub struct Batch {
    /// The I/Os.
    pub records: Vec<Record>,
    /// By what name the kernel knows each of them, if that was asked for.
    pub names: Vec<u64>,
}

/// What the core found out besides the records.
#[derive(Debug)]
pub struct Conduct {
    /// What the machine did to it.
    pub machine: Machine,
    /// What was measured before the run.
    pub calibration: Calibration,
    /// When the run began, on `CLOCK_MONOTONIC`, ns.
    pub origin_ns: u64,
    /// The clock that was used: reads the kernel's trace.
    pub clock: Ticks,
    /// I/Os that had not ended when the run was given up.
    pub abandoned: u64,
    /// Why the run ended early, if it did.
    pub stopped: Option<String>,
    /// How many threads issued I/Os.
    pub workers: usize,
    /// The lead was handed over so often.
    pub hand_overs: u64,
}

/// Runs filaments against a target until they have nothing left to do, or the time is over.
///
/// `observe` is called on this thread about every 5 ms, with what has ended since and the time
/// since the start, ns, which is 0 before it; the workers do not wait for it.
///
/// # Errors
/// If the target cannot be reached, or threads cannot be started.
pub fn run(
    target: &dyn Target,
    filaments: Vec<Box<dyn Filament>>,
    options: &Options,
    observe: &mut dyn FnMut(&[Batch], u64),
) -> io::Result<Conduct> {
    let calibration = Calibration::measure();
    let processors = precise::processors();
    let workers = match options.workers {
        0 if processors.len() < 2 && target.workers() < 3 => 1,
        0 => target.workers(),
        workers => workers.min(WORKERS_MAX),
    };
    let shared = Shared::new(filaments, options, workers, &calibration);
    let overseer = Overseer::new(options.policy, &shared, &calibration);
    std::thread::scope(|scope| {
        let (told, ready) = channel();
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        for id in 0..workers {
            let (start, wait) = channel();
            let cpu = processors[id % processors.len()];
            let told = told.clone();
            let processors = processors.len();
            let setup = Setup { id, cpu, processors, shared: &shared, target, told, wait };
            let builder = std::thread::Builder::new().name(format!("load-{id}"));
            threads.push(builder.spawn_scoped(scope, move || setup.run())?);
            starts.push(start);
        }
        drop(told);
        // Whoever fails ends all: those that wait find nobody who could tell them to start.
        let mut clock = begin(&ready, starts, observe)?;
        shared.origin_ns.store(clock.1, Ordering::Release);
        follow(&shared, options, &clock, overseer, observe);
        let mut found = Vec::new();
        for thread in threads {
            let ended = thread.join().map_err(|_| io::Error::other("a worker has panicked"))?;
            found.extend(ended);
        }
        let end = clock.0.now_ns().saturating_sub(clock.1);
        shared.depot.drain(end, observe);
        clock.0.calibrate();
        Ok(conclude(&shared, found, calibration, clock))
    })
}

/// Waits for all workers, which may have to connect, and tells them when the run begins.
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
        // A worker that is gone has panicked, which its end will tell.
        let _ = start.send(origin_ns);
    }
    Ok((clock, origin_ns))
}

/// Hands on what ends, and watches over the whole, until all workers are done.
fn follow(
    shared: &Shared,
    options: &Options,
    (clock, origin_ns): &(Ticks, u64),
    mut overseer: Overseer,
    observe: &mut dyn FnMut(&[Batch], u64),
) {
    while !shared.is_over() {
        precise::sleep(TICK);
        let now = clock.now_ns().saturating_sub(*origin_ns);
        shared.depot.drain(now, observe);
        if options.stop.load(Ordering::Relaxed) {
            // By the schedule, which may have been moved.
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
) -> Conduct {
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
    Conduct {
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
