//! Report of a transfer.

use super::{Outcome, Trouble, frame, say_json};
use crate::progress;
use crate::size::{count, counted, show};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

/// Maximum number of errors listed one by one.
const ERRORS_SHOWN: usize = 100;

/// Results, for people and programs.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// Symbolic links.
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    /// Files that existed already, with the same size and modification time.
    pub(crate) skipped: u64,
    /// Files whose modification time the target refused.
    pub(crate) undated: u64,
    seconds: f64,
    interrupted: bool,
    errors: Vec<Failed>,
}

/// A failed file.
#[derive(Debug, Serialize)]
struct Failed {
    path: String,
    cause: String,
}

/// A report shared by several threads.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    report: Mutex<Report>,
    /// Error that ends the transfer early.
    fatal: Mutex<Option<Trouble>>,
}

impl Shared {
    pub(crate) fn count(&self, add: impl FnOnce(&mut Report)) {
        add(&mut self.report.lock().expect("nobody panics with it"));
    }

    /// Records the result of a file. A fatal error ends the transfer.
    pub(crate) fn note(&self, path: &Path, done: Outcome<()>) {
        let Err(trouble) = done else { return };
        if trouble.is_fatal() {
            self.fatal.lock().expect("nobody panics with it").get_or_insert(trouble);
            return;
        }
        let failed = Failed { path: path.display().to_string(), cause: trouble.to_string() };
        self.count(|report| report.errors.push(failed));
    }

    /// Returns whether the transfer has been ended by an error.
    pub(crate) fn is_over(&self) -> bool {
        self.fatal.lock().expect("nobody panics with it").is_some()
    }

    /// Prints the report; returns the exit code.
    ///
    /// # Errors
    /// The error that ended the transfer early.
    pub(crate) fn emit(self, verb: &str, elapsed: Duration, json: bool) -> Outcome<ExitCode> {
        let mut report = self.report.into_inner().expect("nobody panicked with it");
        let fatal = self.fatal.into_inner().expect("nobody panicked with it");
        report.seconds = elapsed.as_secs_f64();
        report.interrupted = fatal.as_ref().is_some_and(Trouble::is_cancelled);
        match json {
            true => say_json(&report)?,
            false => report.print(verb, elapsed)?,
        }
        match fatal {
            Some(trouble) => Err(trouble),
            None if report.errors.is_empty() => Ok(ExitCode::SUCCESS),
            None => Ok(ExitCode::from(1)),
        }
    }
}

impl Report {
    fn print(&self, verb: &str, elapsed: Duration) -> Outcome<()> {
        for Failed { cause, .. } in self.errors.iter().take(ERRORS_SHOWN) {
            err_line!("upcall: {cause}");
        }
        if self.errors.len() > ERRORS_SHOWN {
            err_line!("… and {} more; --json shows all", self.errors.len() - ERRORS_SHOWN);
        }
        let mut line = format!("{verb} {}", counted(self.files, "file", "files"));
        if self.directories > 0 {
            line += &format!(", {}", counted(self.directories, "directory", "directories"));
        }
        line += &format!(
            ", {} in {:.1} s ({})",
            show(self.bytes),
            self.seconds,
            progress::rate(self.bytes, elapsed)
        );
        for (number, what) in [
            (self.links, "links"),
            (self.skipped, "there already"),
            (self.undated, "without their modification times"),
            (self.errors.len() as u64, "failed"),
        ] {
            if number > 0 {
                line += &format!("; {} {what}", count(number));
            }
        }
        frame::emit(&(line + "\n"))
    }
}
