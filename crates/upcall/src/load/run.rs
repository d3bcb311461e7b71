//! One run, from its beginning to its reports.

use super::flags::Flags;
use super::limits;
use super::prepare::Prepared;
use super::printing;
use crate::clock;
use load::Filament;
use load::baseline::Scheme;
use load::core::Options;
use load::driver::Target;
use load::measure::{Measured, Plan, measure, measure_naive};
use load::replay::Feed;
use load::report::{Title, text};
use load::trace::Traced;
use reactor::Signals;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Work on a target.
pub(crate) struct Job {
    /// A short description.
    pub(crate) workload: String,
    /// Requested I/Os per second, if any.
    pub(crate) asked_rate: Option<f64>,
    pub(crate) filaments: Vec<Box<dyn Filament>>,
    /// Traces that are read during the run.
    pub(crate) feeds: Vec<Feed>,
    /// Period in which I/Os are scheduled.
    pub(crate) length: Duration,
    /// Warm-up: earlier I/Os do not count.
    pub(crate) warm_up: Duration,
    /// Whether I/Os have scheduled times (open loop); otherwise each follows a completion.
    pub(crate) open: bool,
    /// Expected number of I/Os.
    pub(crate) expected: u64,
}

/// Runs the job, and reports the result.
///
/// # Errors
/// The obstacle.
pub(crate) fn perform(flags: &Flags, prepared: Prepared, job: Job) -> Result<ExitCode, String> {
    account(flags, prepared, job, |target, filaments, plan| measure(target, filaments, plan))
}

/// Runs the job with a naive replayer; the job has no filaments.
///
/// # Errors
/// The obstacle.
pub(crate) fn perform_naive(
    flags: &Flags,
    prepared: Prepared,
    job: Job,
    ios: &[Traced],
    scheme: Scheme,
) -> Result<ExitCode, String> {
    account(flags, prepared, job, |target, _, plan| measure_naive(target, ios, scheme, plan))
}

fn account(
    flags: &Flags,
    prepared: Prepared,
    job: Job,
    measure: impl FnOnce(&dyn Target, Vec<Box<dyn Filament>>, Plan<'_>) -> io::Result<Measured>,
) -> Result<ExitCode, String> {
    // There may be thousands of connections.
    reactor::raise_open_files();
    let signals = Signals::new().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let Prepared { target, notes, .. } = prepared;
    let Job { workload, asked_rate, filaments, feeds, length, warm_up, open, expected } = job;
    err_line!("load: {workload} on {}", target.name());
    notes.iter().for_each(|note| err_line!("load: {note}"));
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options {
        workers: flags.workers,
        policy: flags.policy,
        late: flags.late,
        length,
        stop: stop.clone(),
        named: false,
    };
    let mut shown = Shown::new(flags.json);
    let plan = Plan {
        title: title(target.name(), workload, asked_rate),
        options,
        thresholds: limits::thresholds(open, &flags.limits),
        warm_up_ns: u64::try_from(warm_up.as_nanos()).unwrap_or(u64::MAX),
        witness: flags.witness.then_some(expected),
        records: records(flags)?,
        progress: &mut |statistics, now_ns| {
            let interrupted = signals.take() > 0;
            if interrupted && now_ns == 0 {
                // A server may delay connections for long.
                err_line!("load: interrupted before it began: no I/O was issued");
                std::process::exit(INTERRUPTED);
            }
            if interrupted {
                stop.store(true, Ordering::Relaxed);
            }
            shown.show(now_ns, || text::progress(statistics, now_ns));
        },
    };
    let measured = measure(&*target, filaments, plan);
    shown.clear();
    let mut measured = measured.map_err(|error| {
        let is_of_records = error.get_ref().is_some_and(|inner| inner.is::<Unwritten>());
        if is_of_records { error.to_string() } else { format!("{}: {error}", target.name()) }
    })?;
    measured.verdict.notes.extend(notes);
    if !open {
        measured.verdict.notes.push(CLOSED.to_string());
    }
    for feed in feeds {
        if let Some(trouble) = feed.trouble() {
            measured.verdict.valid = false;
            measured.verdict.notes.push(format!("the trace was not read to its end: {trouble}"));
        }
    }
    printing::all(flags, &measured)?;
    Ok(ExitCode::from(measured.verdict.exit_status()))
}

fn title(target: String, workload: String, asked_rate: Option<f64>) -> Title {
    let wall = clock::wall();
    let seconds = u64::try_from(wall.secs).unwrap_or(0);
    Title {
        target,
        workload,
        asked_rate,
        started: clock::iso(wall),
        started_unix_ns: seconds * 1_000_000_000 + u64::from(wall.nanos),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    }
}

fn records(flags: &Flags) -> Result<Option<Box<dyn Write>>, String> {
    let Some(path) = &flags.records else {
        return Ok(None);
    };
    let file = File::create(path).map_err(|error| unwritten(path, &error).to_string())?;
    let file = Records { file, path: path.clone() };
    Ok(Some(Box::new(BufWriter::with_capacity(1 << 20, file))))
}

/// Error of the file of records, which is named.
#[derive(Debug)]
struct Unwritten(String);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwritten {}

fn unwritten(path: &Path, error: &io::Error) -> io::Error {
    let text = format!("cannot write {}: {error}; name another file or disk", path.display());
    io::Error::new(error.kind(), Unwritten(text))
}

/// File of the records, whose errors name it.
struct Records {
    file: File,
    path: PathBuf,
}

impl Write for Records {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| unwritten(&self.path, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| unwritten(&self.path, &error))
    }
}

/// A note on the verdict of a closed loop.
const CLOSED: &str = "The loop is closed: each I/O follows the completion of another, so lateness \
                      and rate are not judged without --limit.";

/// Exit code after an interrupt, by the convention of shells.
const INTERRUPTED: i32 = 130;

/// A progress line each second.
struct Shown {
    wanted: bool,
    terminal: bool,
    next_ns: u64,
}

impl Shown {
    fn new(json: bool) -> Shown {
        let terminal = std::io::stderr().is_terminal();
        Shown { wanted: terminal && !json, terminal, next_ns: 1_000_000_000 }
    }

    fn show(&mut self, now_ns: u64, line: impl FnOnce() -> String) {
        if self.wanted && now_ns >= self.next_ns {
            self.next_ns = now_ns + 1_000_000_000;
            // A failure means that the terminal is gone.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line());
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
