//! Naive replayers used as baselines in the paper (*Buttress*, §2), built in for comparison with
//! the core in the same run, with the same records and statistics.
//!
//! ```text
//! SELECT, SLEEP   64 threads; each takes the next I/O of the trace, waits for its time in the
//!                 kernel (select(2) without files; nanosleep), issues it, and takes another
//! DED-CLOCK       one thread spins on the clock; it hands each due I/O to one of 8 waiting
//!                 threads, and wakes that thread
//! ```
//!
//! Each thread performs one I/O at a time with a blocking call. As in typical programs of this
//! kind, no thread requests finer timers or a higher priority. The trace is in memory, late I/Os
//! catch up, and I/Os are recorded in the order of completion.

#[cfg(test)]
mod tests;

use crate::core::{self, Batch, Calibration, Options, RunMetadata};
use crate::driver::{Driver, Target};
use crate::statistics::{LATE_NS, Machine};
use crate::trace::Traced;
use crate::{Cause, Io, Outcome, Record};
use reactor::precise::{self, Ticks};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads of SELECT and SLEEP, and below those of DED-CLOCK beside its clock.
const SLEEPERS: usize = 64;
const CLOCKED: usize = 8;

/// Maximum length of an uninterrupted wait, so that a run can be stopped.
const PIECE: Duration = Duration::from_millis(100);

/// Delay of the start after the last thread is ready.
const LEAD_TIME: Duration = Duration::from_millis(5);

/// Interval of checks for the end of the run.
const TICK: Duration = Duration::from_millis(5);

/// Records passed to the observer at a time.
const BATCH: usize = 4096;

/// Wait method of a naive replayer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Each thread waits in `select(2)`.
    Select,
    /// Each thread waits in `nanosleep(2)`.
    Sleep,
    /// A dedicated thread watches the clock and wakes the others.
    Clock,
}

impl Scheme {
    /// All schemes, in the paper's order.
    pub const ALL: [Scheme; 3] = [Scheme::Select, Scheme::Sleep, Scheme::Clock];

    /// Returns the paper's name of the scheme.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Select => "SELECT",
            Scheme::Sleep => "SLEEP",
            Scheme::Clock => "DED-CLOCK",
        }
    }

    fn threads(self) -> usize {
        match self {
            Scheme::Select | Scheme::Sleep => SLEEPERS,
            Scheme::Clock => CLOCKED,
        }
    }
}

/// Clock of a thread, compared with the kernel's every second.
struct Watch {
    ticks: Ticks,
    good_until_ns: u64,
}

impl Watch {
    fn new(ticks: &Ticks) -> Watch {
        Watch { ticks: ticks.clone(), good_until_ns: 0 }
    }

    fn now_ns(&mut self) -> u64 {
        let now_ns = self.ticks.now_ns();
        if now_ns < self.good_until_ns {
            return now_ns;
        }
        self.ticks.calibrate();
        self.good_until_ns = now_ns + 1_000_000_000;
        self.ticks.now_ns()
    }
}

/// State shared by the threads.
struct Shared<'a> {
    scheme: Scheme,
    ios: &'a [Traced],
    /// Start of the run, in ns on the clock.
    origin_ns: AtomicU64,
    /// Index of the next I/O; with DED-CLOCK, only the clock thread takes I/Os.
    next: AtomicUsize,
    /// I/Os issued by the clock thread; `None` after the last.
    due: Mutex<VecDeque<Option<usize>>>,
    woken: Condvar,
    stop: AtomicBool,
}

/// Replays I/Os at their times. Calls `observe` on this thread: every 5 ms without records, and
/// with all records at the end.
///
/// # Errors
/// If the target is unreachable, or threads cannot be started.
pub fn run(
    target: &dyn Target,
    ios: &[Traced],
    scheme: Scheme,
    options: &Options,
    observe: &mut dyn FnMut(&[Batch], u64),
) -> io::Result<RunMetadata> {
    let calibration = Calibration::measure();
    let shared = Shared {
        scheme,
        ios,
        origin_ns: AtomicU64::new(0),
        next: AtomicUsize::new(0),
        due: Mutex::default(),
        woken: Condvar::new(),
        stop: AtomicBool::new(false),
    };
    let (clock, origin_ns, records) = play(target, &shared, options, observe)?;
    let end_ns = clock.now_ns().saturating_sub(origin_ns);
    let left = ios.len() - records.len();
    hand_on(records, end_ns, observe);
    Ok(conclude(scheme, calibration, (clock, origin_ns), left as u64))
}

/// Starts the threads, waits for their end, and returns their records.
fn play(
    target: &dyn Target,
    shared: &Shared<'_>,
    options: &Options,
    observe: &mut dyn FnMut(&[Batch], u64),
) -> io::Result<(Ticks, u64, Vec<Record>)> {
    std::thread::scope(|scope| {
        let clock = Ticks::start();
        let (ready_sender, ready) = channel();
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        for id in 0..shared.scheme.threads() {
            let (start, wait) = channel();
            let (watch, ready_sender) = (Watch::new(&clock), ready_sender.clone());
            let builder = std::thread::Builder::new().name(format!("naive-{id}"));
            let work = move || shared.work(target, watch, &ready_sender, &wait);
            threads.push(builder.spawn_scoped(scope, work)?);
            starts.push(start);
        }
        drop(ready_sender);
        let origin_ns = shared.begin(&clock, &ready, starts)?;
        if shared.scheme == Scheme::Clock {
            let watch = Watch::new(&clock);
            let builder = std::thread::Builder::new().name("naive-clock".to_string());
            builder.spawn_scoped(scope, move || shared.watch(watch))?;
        }
        while threads.iter().any(|thread| !thread.is_finished()) {
            precise::sleep(TICK);
            observe(&[], clock.now_ns().saturating_sub(origin_ns));
            shared.stop.fetch_or(options.stop.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut records = Vec::with_capacity(shared.ios.len());
        for thread in threads {
            let ended = thread.join().map_err(|_| io::Error::other("a thread has panicked"))?;
            records.extend(ended);
        }
        Ok((clock, origin_ns, records))
    })
}

/// Passes all records to the observer, by completion.
fn hand_on(mut records: Vec<Record>, end_ns: u64, observe: &mut dyn FnMut(&[Batch], u64)) {
    records.sort_by_key(|record| (record.completed_ns, record.scheduled_ns));
    for records in records.chunks(BATCH) {
        let batch = Batch { records: records.to_vec(), names: Vec::new() };
        observe(&[batch], end_ns);
    }
}

fn conclude(
    scheme: Scheme,
    calibration: Calibration,
    (clock, origin_ns): (Ticks, u64),
    left: u64,
) -> RunMetadata {
    let machine = Machine {
        spin_before: Some(calibration.spin),
        spin_after: Some(core::bare_spin()),
        policies: vec![(0, format!("{} at ordinary priority", scheme.name()))],
        realtime: calibration.realtime,
        clock: if clock.counts() { "time stamp counter" } else { "CLOCK_MONOTONIC" }.to_string(),
        processors: precise::processors().len() as u32,
        ..Machine::default()
    };
    RunMetadata {
        machine,
        calibration,
        origin_ns,
        clock,
        abandoned: 0,
        stopped: (left > 0).then(|| format!("interrupted, {left} I/Os were not issued")),
        workers: scheme.threads(),
        hand_overs: 0,
    }
}

impl Shared<'_> {
    /// Waits for all threads, then sends them the start time.
    fn begin(
        &self,
        clock: &Ticks,
        ready: &Receiver<io::Result<()>>,
        starts: Vec<Sender<()>>,
    ) -> io::Result<u64> {
        for _ in &starts {
            ready.recv().map_err(|_| io::Error::other("a thread has panicked"))??;
        }
        let origin_ns = clock.now_ns() + LEAD_TIME.as_nanos() as u64;
        self.origin_ns.store(origin_ns, Ordering::Release);
        for start in starts {
            // A missing thread has panicked, which its join reports.
            let _ = start.send(());
        }
        Ok(origin_ns)
    }

    /// Runs one thread to the end of the trace.
    fn work(
        &self,
        target: &dyn Target,
        mut watch: Watch,
        ready_sender: &Sender<io::Result<()>>,
        wait: &Receiver<()>,
    ) -> Vec<Record> {
        let mut driver = match target.driver(0, self.scheme.threads()) {
            Ok(driver) => driver,
            Err(error) => {
                let _ = ready_sender.send(Err(error));
                return Vec::new();
            }
        };
        let mut records = Vec::with_capacity(2 * self.ios.len() / self.scheme.threads() + 16);
        let _ = ready_sender.send(Ok(()));
        if wait.recv().is_err() {
            return records;
        }
        while let Some(index) = self.take(&mut watch) {
            records.push(self.issue(&mut watch, &mut *driver, index));
        }
        records
    }

    /// Returns the next I/O for this thread at its time.
    fn take(&self, watch: &mut Watch) -> Option<usize> {
        if self.scheme == Scheme::Clock {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            while due.is_empty() {
                due = self.woken.wait(due).unwrap_or_else(PoisonError::into_inner);
            }
            return due.pop_front().flatten();
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let due_ns = self.due_ns(self.ios.get(index)?);
        loop {
            let left = Duration::from_nanos(due_ns.saturating_sub(watch.now_ns()));
            if self.stop.load(Ordering::Relaxed) {
                return None;
            } else if left.is_zero() {
                return Some(index);
            } else if self.scheme == Scheme::Select {
                precise::select(left.min(PIECE));
            } else {
                precise::sleep(left.min(PIECE));
            }
        }
    }

    /// Runs the clock thread: spins until each I/O is due, and hands it to a waiting thread.
    fn watch(&self, mut watch: Watch) {
        for (index, io) in self.ios.iter().enumerate() {
            let due_ns = self.due_ns(io);
            while watch.now_ns() < due_ns && !self.stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.hand(Some(index));
        }
        (0..self.scheme.threads()).for_each(|_| self.hand(None));
    }

    fn hand(&self, index: Option<usize>) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).push_back(index);
        self.woken.notify_one();
    }

    fn due_ns(&self, io: &Traced) -> u64 {
        self.origin_ns.load(Ordering::Acquire) + io.at_ns
    }

    /// Issues an I/O and waits for its completion.
    fn issue(&self, watch: &mut Watch, driver: &mut dyn Driver, index: usize) -> Record {
        let Traced { at_ns, io, .. } = self.ios[index];
        let origin_ns = self.origin_ns.load(Ordering::Acquire);
        let issued_ns = watch.now_ns().saturating_sub(origin_ns);
        let outcome = perform(driver, index as u64, &io);
        let completed_ns = watch.now_ns().saturating_sub(origin_ns);
        let late = issued_ns.saturating_sub(at_ns) > LATE_NS;
        Record {
            scheduled_ns: at_ns,
            issued_ns,
            completed_ns,
            io,
            outcome,
            cause: if late { Cause::Generator } else { Cause::None },
            ..Record::default()
        }
    }
}

/// Performs one I/O.
fn perform(driver: &mut dyn Driver, name: u64, io: &Io) -> Outcome {
    let mut ended = Vec::new();
    driver.issue(name, io);
    driver.flush();
    loop {
        driver.poll(&mut ended);
        if let Some((_, outcome)) = ended.pop() {
            return outcome;
        }
        driver.wait(PIECE);
    }
}
