//! Parts of a test run as separate processes, several at a time.
//!
//! Most suites keep one processor busy: an emulated kernel has one, and its server sleeps
//! meanwhile. The output of a part is collected and printed at its end, so outputs do not
//! interleave. Parts that measure run afterwards, one by one.

use crate::report::Report;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A part of a run.
pub(crate) struct Part {
    pub(crate) title: String,
    pub(crate) command: Command,
    /// Name of the directories and machines that it uses; parts with the same name do not run
    /// concurrently.
    pub(crate) uses: String,
    /// Whether it must run alone.
    pub(crate) alone: bool,
    /// Parses a line with counts of passed and failed cases. A part without such a line is one
    /// case, decided by its exit status.
    pub(crate) sum: fn(&str) -> Option<(u32, u32)>,
}

/// A part that has ended.
struct Done {
    title: String,
    text: String,
    seconds: f64,
    sum: fn(&str) -> Option<(u32, u32)>,
    /// Whether it exited successfully; an error if it could not start.
    success: Result<bool>,
}

/// Runs all parts and reports their results as they complete.
pub(crate) fn run(report: &mut Report, parts: Vec<Part>) {
    let lanes = processors();
    let (alone, together): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.alone);
    several(report, together, lanes);
    several(report, alone, 1);
}

/// Returns the number of processors.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Parts not yet started, and the names in use.
struct Queue {
    state: Mutex<(Vec<Part>, BTreeSet<String>)>,
    ended: Condvar,
}

impl Queue {
    /// Waits for and returns the first part whose name is not in use.
    fn next(&self) -> Option<Part> {
        let mut state = self.lock();
        loop {
            let (parts, used) = &mut *state;
            if let Some(at) = parts.iter().position(|part| !used.contains(&part.uses)) {
                used.insert(parts[at].uses.clone());
                return Some(parts.remove(at));
            }
            if parts.is_empty() {
                return None;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, uses: &str) {
        self.lock().1.remove(uses);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Part>, BTreeSet<String>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs parts, `lanes` at a time, in order except for conflicting names.
fn several(report: &mut Report, parts: Vec<Part>, lanes: usize) {
    let queue = Queue { state: Mutex::new((parts, BTreeSet::new())), ended: Condvar::new() };
    let (results, each) = channel();
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            let (queue, results) = (&queue, results.clone());
            scope.spawn(move || lane(queue, &results));
        }
        drop(results);
        for done in each {
            enter(report, done);
        }
    });
}

/// Runs one part after the other until none is left.
fn lane(queue: &Queue, results: &Sender<Done>) {
    while let Some(Part { title, mut command, uses, alone: _, sum }) = queue.next() {
        println!("-- {title}: started");
        let start = Instant::now();
        let mut text = String::new();
        let success = output(&mut command, &mut text).with_context(|| title.clone());
        let seconds = start.elapsed().as_secs_f64();
        queue.end(&uses);
        if results.send(Done { title, text, seconds, sum, success }).is_err() {
            return;
        }
    }
}

/// Runs a command to its end and appends its output, including standard error. Returns whether it
/// succeeded.
fn output(command: &mut Command, text: &mut String) -> Result<bool> {
    let (mut reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // Drops the command's copy of the pipe's write end, which would prevent the end of file.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    text.push_str(&String::from_utf8_lossy(&bytes));
    Ok(child.wait()?.success())
}

/// Prints the output of a part and counts its cases.
fn enter(report: &mut Report, done: Done) {
    println!("\n== {} ({:.0} s)", done.title, done.seconds);
    let (mut passed, mut failed, mut skipped, mut counted) = (0_u32, 0, BTreeSet::new(), false);
    for line in done.text.lines() {
        if let Some(name) = skipped_test(line) {
            // A test may be skipped once for each reactor.
            if skipped.insert(name) {
                report.skipped(name);
            }
        } else if let Some(name) = line.strip_prefix("  skip  ") {
            report.skipped(name.split("   ").next().unwrap_or(name));
        } else if let Some((good, bad)) = (done.sum)(line) {
            (passed, failed, counted) = (passed + good, failed + bad, true);
        }
        println!("{line}");
    }
    // The test harness counts skipped tests as passed.
    let skipped = u32::try_from(skipped.len()).expect("a few tests");
    report.counted(&done.title, passed.saturating_sub(skipped), failed);
    match done.success {
        Ok(true) if counted => {}
        Ok(false) if failed > 0 => {}
        Ok(true) => drop(report.line(&done.title, Ok(String::new()), done.seconds)),
        Ok(false) => drop(report.line(&done.title, Err("it failed".into()), done.seconds)),
        Err(error) => drop(report.line(&done.title, Err(format!("{error:#}")), done.seconds)),
    }
}

/// Returns the name of a test that reports itself as skipped, also after the harness's prefix.
fn skipped_test(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("skipped: ")?;
    let is_reported = before.is_empty() || before.starts_with("test ");
    rest.split_once(": ").map(|(name, _)| name).filter(|_| is_reported)
}

#[cfg(test)]
mod tests {
    use super::{Part, run};
    use crate::report::Report;
    use crate::sh;

    fn part(script: &str) -> Part {
        let sum = |line: &str| line.strip_prefix("sum ").map(|_| (2, 1));
        let command = sh::cmd("sh", &["-c", script]);
        let uses = script.to_owned();
        Part { title: script.to_owned(), command, uses, alone: false, sum }
    }

    #[test]
    fn parts_are_counted_by_their_sums_or_their_exit_status() {
        let mut report = Report::default();
        let missing = Part { command: sh::cmd("/no/such/program", &[""; 0]), ..part("missing") };
        let parts = vec![
            part("true"),
            part("false"),
            part("echo sum >&2; exit 1"),
            part("for each in 1 2; do echo skipped: test: why; done; echo sum 1"),
            missing,
        ];
        run(&mut report, parts);
        // Success; failure; failure without a sum; 2 and 1 by a sum, of which one was skipped; not
        // started.
        assert_eq!(report.sum(), (2, 4));
    }

    #[test]
    fn tests_that_are_skipped_are_found_behind_their_names() {
        let one = "skipped: files::it (a.rs:1:2): only root";
        assert_eq!(super::skipped_test(one), Some("files::it (a.rs:1:2)"));
        let behind = format!("test files::it ... {one}");
        assert_eq!(super::skipped_test(&behind), Some("files::it (a.rs:1:2)"));
        assert_eq!(super::skipped_test("2 were skipped: why: no"), None);
    }

    #[test]
    fn parts_that_use_the_same_do_not_run_together() {
        let dir = std::env::temp_dir().join(format!("lanes-same-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a new directory");
        let script = format!("cd {} && mkdir used && sleep 0.1 && rmdir used", dir.display());
        let parts = (0..4).map(|_| Part { uses: "used".to_owned(), ..part(&script) });
        let mut report = Report::default();
        run(&mut report, parts.collect());
        assert_eq!(report.sum(), (4, 0));
        std::fs::remove_dir(&dir).expect("it is empty");
    }

    #[test]
    fn one_that_is_to_run_alone_runs_after_the_others() {
        let dir = std::env::temp_dir().join(format!("lanes-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a new directory");
        let place = dir.display();
        let first =
            Part { alone: true, ..part(&format!("test -e {place}/1 && test -e {place}/2")) };
        let parts =
            vec![first, part(&format!("touch {place}/1")), part(&format!("touch {place}/2"))];
        let mut report = Report::default();
        run(&mut report, parts);
        std::fs::remove_dir_all(&dir).expect("it is there");
        assert_eq!(report.sum(), (3, 0));
    }
}
