//! Common frame of client commands: the connection, a thread that handles Ctrl-C and shows
//! progress, and the exit code.
#![allow(clippy::disallowed_methods, reason = "a command waits in real time")]

use super::{Outcome, Server, Trouble};
use crate::output::printable;
use crate::progress::{self, Progress};
use crate::size::{count, show};
use client::Client;
use reactor::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Exit code after an interrupt, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// Polling interval of signals.
const LOOK: Duration = Duration::from_millis(50);

/// Time after Ctrl-C in which the work of a command ends, unless it waits for a file of this host.
const STUCK: Duration = Duration::from_secs(5);

/// Timeout of the server during the cleanup after Ctrl-C.
const TIDY: Duration = Duration::from_secs(5);

/// Progress of a command.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bytes: AtomicU64,
    /// Total number of bytes; zero: unknown.
    pub(crate) bytes_all: AtomicU64,
    /// Bytes of files that existed already.
    pub(crate) bytes_skipped: AtomicU64,
    pub(crate) files: AtomicU64,
    /// Number of files known so far; zero: a single file.
    pub(crate) files_all: AtomicU64,
    /// Whether all files are known.
    pub(crate) listed: AtomicBool,
}

impl Counts {
    pub(crate) fn add(&self, counter: &AtomicU64, number: usize) {
        counter.fetch_add(number as u64, Ordering::Relaxed);
    }

    fn line(&self, elapsed: Duration) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (bytes, bytes_all) = (get(&self.bytes), get(&self.bytes_all));
        let (files, files_all) = (get(&self.files), get(&self.files_all));
        let rate = progress::rate(bytes, elapsed);
        if files_all == 0 {
            let left = progress::left(bytes, bytes_all, elapsed);
            return format!("{} of {}, {rate}{left}", show(bytes), show(bytes_all.max(bytes)));
        }
        // A small file takes as long as one of 16 KiB more without this overhead.
        let weight = |files: u64, bytes: u64| bytes.saturating_add(files.saturating_mul(16 << 10));
        let left = match (self.listed.load(Ordering::Relaxed), bytes_all) {
            (false, _) => " so far".to_string(),
            (true, 0) => progress::left(files, files_all, elapsed),
            (true, _) => {
                let passed = weight(files, bytes + get(&self.bytes_skipped));
                progress::left(passed, weight(files_all, bytes_all), elapsed)
            }
        };
        format!("{} of {} files, {}, {rate}{left}", count(files), count(files_all), show(bytes))
    }
}

/// A running command.
pub(crate) struct Frame {
    pub(crate) client: Client,
    pub(crate) counts: Counts,
    /// Names on the server to remove at the end.
    leftovers: Mutex<Vec<std::path::PathBuf>>,
    /// Message about the state of the work after an interrupt.
    when_interrupted: Mutex<String>,
    /// Whether Ctrl-C was pressed: every request ends as cancelled.
    interrupted: AtomicBool,
    signals: Signals,
    started: crate::clock::Clock,
}

impl Frame {
    /// Records a name to remove at the end.
    pub(crate) fn leave(&self, path: std::path::PathBuf) {
        self.leftovers.lock().expect("nobody panics with it").push(path);
    }

    /// Sets the message for an interrupt from now on.
    pub(crate) fn if_interrupted(&self, text: String) {
        *self.when_interrupted.lock().expect("nobody panics with it") = text;
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.now().since(base::Instant(1))
    }

    /// Removes recorded names; returns those that could not be removed.
    fn tidy(&self) -> Vec<std::path::PathBuf> {
        let mut left = std::mem::take(&mut *self.leftovers.lock().expect("nobody panics with it"));
        if !left.is_empty() {
            self.client.resume(TIDY);
            left.retain(|path| {
                let gone = self.client.remove(path);
                gone.is_err_and(|error| !error.is_not_found())
            });
        }
        left
    }

    /// Interrupts the command if a signal has arrived: its requests end as cancelled.
    pub(crate) fn notice_signals(&self) {
        if self.signals.take() > 0 {
            self.client.cancel();
            self.interrupted.store(true, Ordering::SeqCst);
        }
    }

    /// Ends the process if the command is interrupted and does not end, because it waits for a file
    /// of this host, which no signal interrupts: a FIFO without a partner, or a dead mount.
    fn end_if_stuck(&self, since: &mut Option<Duration>) {
        if !self.interrupted.load(Ordering::SeqCst) {
            return;
        }
        let now = self.elapsed();
        match *since {
            None => {
                *since = Some(now);
                // The next one ends the process.
                reactor::let_signals_through();
            }
            Some(then) if now < then + STUCK => {}
            Some(_) => {
                for path in self.tidy() {
                    err_line!("upcall: {} is left on the server; remove it", path.display());
                }
                err_line!("upcall: interrupted while waiting for a file of this host");
                std::process::exit(INTERRUPTED.into());
            }
        }
    }

    fn watch(&self, over: &AtomicBool, is_tidying: &AtomicBool, shown: bool) {
        let (mut progress, mut since) = (Progress::start(), None);
        while !over.load(Ordering::SeqCst) {
            self.notice_signals();
            if !is_tidying.load(Ordering::SeqCst) {
                self.end_if_stuck(&mut since);
            }
            if shown {
                progress.show(|elapsed| self.counts.line(elapsed));
            }
            thread::park_timeout(LOOK);
        }
    }
}

/// Ends the watcher of a command when dropped, also by a panic: the command waits for it.
struct End<'a> {
    over: &'a AtomicBool,
    watcher: thread::Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.watcher.unpark();
    }
}

/// Connects and runs `work`, which also reports interrupts. A first Ctrl-C cancels outstanding
/// requests, a second one ends the process.
pub(crate) fn run(
    server: &Server,
    shown: bool,
    work: impl FnOnce(&Frame) -> Outcome<ExitCode>,
) -> ExitCode {
    let started = crate::clock::Clock::start();
    let client = match server.connect() {
        Ok(client) => client,
        Err(error) => {
            let unfound = server.unfound.clone().filter(|_| error.is_not_found());
            return complain(&unfound.map_or_else(|| error.into(), Trouble::Host));
        }
    };
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return complain(&Trouble::Host(format!("cannot hold signals: {error}"))),
    };
    let (counts, leftovers) = (Counts::default(), Mutex::default());
    let interrupted = AtomicBool::new(false);
    let when_interrupted = Mutex::new("nothing half-done is left under its name".to_string());
    let frame =
        Frame { client, counts, leftovers, when_interrupted, interrupted, signals, started };
    let (over, is_tidying) = (AtomicBool::new(false), AtomicBool::new(false));
    let shown = shown && io::stderr().is_terminal();
    let (done, left) = thread::scope(|scope| {
        let watcher = scope.spawn(|| frame.watch(&over, &is_tidying, shown));
        let _end = End { over: &over, watcher: watcher.thread().clone() };
        let done = work(&frame);
        is_tidying.store(true, Ordering::SeqCst);
        (done, frame.tidy())
    });
    for path in left {
        err_line!("upcall: {} is left on the server; remove it", path.display());
    }
    if frame.interrupted.load(Ordering::SeqCst) {
        if done.is_err() {
            let so = frame.when_interrupted.lock().expect("nobody panicked with it");
            err_line!("upcall: interrupted; {so}");
        }
        return ExitCode::from(INTERRUPTED);
    }
    done.unwrap_or_else(|trouble| complain(&trouble))
}

/// Standard input, which ends at Ctrl-C: the next request returns the reason.
pub(crate) struct Input<'a>(pub(crate) &'a Frame);

impl io::Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        while !self.0.interrupted.load(Ordering::SeqCst) {
            let ready = &mut [PollFd::new(&stdin, PollFlags::IN)];
            match poll(ready, Some(&look)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Any other problem is reported by the read.
                Ok(_) | Err(_) => {
                    let count = rustix::io::read(&stdin, buf)?;
                    if count == 0 {
                        // The program that writes it may have ended with the same Ctrl-C.
                        self.0.notice_signals();
                    }
                    return Ok(count);
                }
            }
        }
        Ok(0)
    }
}

/// Prints the reason of the end; returns the exit code.
fn complain(trouble: &Trouble) -> ExitCode {
    if let Trouble::ReaderClosed = trouble {
        return ExitCode::SUCCESS;
    }
    note(trouble);
    ExitCode::from(1)
}

/// Prints an error.
pub(crate) fn note(trouble: &Trouble) {
    err_line!("upcall: {trouble}");
}

/// Returns rows below a header; all columns except the last are right-aligned.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_string)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let line = |row: &[String; N]| {
        let cells = (0..N - 1).map(|at| format!("{:>1$}  ", row[at], width(at)));
        cells.collect::<String>() + &row[N - 1] + "\n"
    };
    rows.iter().map(line).collect()
}

/// Writes text to standard output; to a terminal without characters that control it.
pub(crate) fn emit(text: &str) -> Outcome<()> {
    match io::stdout().is_terminal() {
        true => say_bytes(printable(text).as_bytes()),
        false => say_bytes(text.as_bytes()),
    }
}

/// Writes bytes to standard output.
pub(crate) fn say_bytes(bytes: &[u8]) -> Outcome<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| not_written(&error))
}

/// Returns the error of a write to standard output.
pub(crate) fn not_written(error: &io::Error) -> Trouble {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Trouble::ReaderClosed;
    }
    Trouble::Host(format!(
        "cannot write to standard output: {error}; write to another file or disk"
    ))
}

/// Runs `work` for each path and continues after failures: returns a failure code if any failed.
pub(crate) fn each(
    paths: &[std::path::PathBuf],
    mut work: impl FnMut(&std::path::Path) -> Outcome<()>,
) -> Outcome<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        match work(path) {
            Ok(()) => {}
            Err(trouble) if trouble.is_fatal() => return Err(trouble),
            Err(trouble) => {
                note(&trouble);
                code = ExitCode::from(1);
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_estimated_by_bytes_if_they_are_known() {
        let counts = Counts::default();
        counts.files_all.store(4, Ordering::Relaxed);
        counts.files.store(1, Ordering::Relaxed);
        counts.bytes.store(1 << 20, Ordering::Relaxed);
        let line = |counts: &Counts| counts.line(Duration::from_secs(10));
        assert_eq!(line(&counts), "1 of 4 files, 1 MiB, 102 KiB/s so far");
        counts.listed.store(true, Ordering::Relaxed);
        assert_eq!(line(&counts), "1 of 4 files, 1 MiB, 102 KiB/s, 31 s left");
        counts.bytes_all.store(11 << 20, Ordering::Relaxed);
        assert_eq!(line(&counts), "1 of 4 files, 1 MiB, 102 KiB/s, 1 min 39 s left");
        counts.bytes_skipped.store(5 << 20, Ordering::Relaxed);
        assert_eq!(line(&counts), "1 of 4 files, 1 MiB, 102 KiB/s, 9 s left");
    }
}
