//! Parts of a test run as separate processes, several at a time.
//!
//! Most suites keep one processor busy: an emulated kernel has one, and its server sleeps
//! meanwhile. The output of a part is collected and printed at its end, so outputs do not
//! interleave. Parts that measure run afterwards, one by one.
//!
//! The times of the last run are kept in `target/test-times.json`, for the next announcement.

use crate::report::Report;
use crate::sh;
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A part of a run.
pub struct Part {
    /// Title in the output.
    pub title: String,
    /// Its process.
    pub command: Command,
    /// Name of the directories and machines that it uses; parts with the same name do not run
    /// concurrently.
    pub uses: String,
    /// Whether it must run alone.
    pub alone: bool,
    /// Parses a line with counts of passed and failed cases. A part without such a line is one
    /// case, decided by its exit status.
    pub sum: fn(&str) -> Option<(u32, u32)>,
}

impl Part {
    /// Returns a part that is one case.
    pub fn single(title: &str, command: Command) -> Part {
        let (title, uses) = (title.to_owned(), title.to_owned());
        Part { title, command, uses, alone: false, sum: |_| None }
    }
}

/// Report of a lane.
enum Sent {
    Started(String),
    Ended(Done),
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
pub fn run(report: &mut Report, parts: Vec<Part>) {
    let path = sh::target().join("test-times.json");
    let mut times = Times::read(&path);
    run_all(report, parts, &mut times);
    times.write(&path);
}

fn run_all(report: &mut Report, parts: Vec<Part>, times: &mut Times) {
    let lanes = processors();
    println!("{}", times.announcement(&parts, lanes));
    let all = parts.len();
    let (alone, together): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.alone);
    let mut ended = 0;
    for (parts, lanes) in [(together, lanes), (alone, 1)] {
        several(parts, lanes, |done| {
            ended += 1;
            // The time of a part that failed is not that of the next run.
            if matches!(done.success, Ok(true)) {
                times.0.insert(done.title.clone(), done.seconds);
            }
            println!("\n== {} ({:.0} s), {ended} of {all}", done.title, done.seconds);
            enter(report, done);
        });
    }
}

/// Times of parts in earlier runs, seconds.
#[derive(Default)]
struct Times(BTreeMap<String, f64>);

impl Times {
    /// Reads the times; none if there was no run.
    fn read(path: &Path) -> Times {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Times(serde_json::from_str(&text).unwrap_or_default())
    }

    fn write(&self, path: &Path) {
        let text = serde_json::to_string_pretty(&self.0).expect("names and numbers");
        let partial = path.with_extension(std::process::id().to_string());
        // Without it the next run announces no time.
        let _ = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    }

    /// Announces the parts, with their time as far as they have run before.
    fn announcement(&self, parts: &[Part], lanes: usize) -> String {
        let known = |is_alone: bool| {
            let parts = parts.iter().filter(move |part| part.alone == is_alone);
            parts.filter_map(|part| self.0.get(&part.title).copied())
        };
        let lanes_used = f64::from(u32::try_from(lanes).unwrap_or(1));
        let longest = known(false).fold(0.0, f64::max);
        let together = longest.max(known(false).sum::<f64>() / lanes_used);
        let minutes = (together + known(true).sum::<f64>()) / 60.0;
        let new = parts.iter().filter(|part| !self.0.contains_key(&part.title)).count();
        let all = format!("parts: {}, {lanes} at a time", parts.len());
        match new {
            _ if new == parts.len() => all,
            0 => format!("{all}; the last run took about {minutes:.0} min"),
            new => format!("{all}; {new} are new, the others took about {minutes:.0} min"),
        }
    }
}

/// Returns the number of processors.
pub fn processors() -> usize {
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
fn several(parts: Vec<Part>, lanes: usize, mut enter: impl FnMut(Done)) {
    let queue = Queue { state: Mutex::new((parts, BTreeSet::new())), ended: Condvar::new() };
    let (results, each) = channel();
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            let (queue, results) = (&queue, results.clone());
            scope.spawn(move || lane(queue, &results));
        }
        drop(results);
        // Printed here, so that nothing is printed within the output of a part.
        each.into_iter().for_each(|sent| match sent {
            Sent::Started(title) => println!("-- {title}: started"),
            Sent::Ended(done) => enter(done),
        });
    });
}

/// Runs one part after the other until none is left.
fn lane(queue: &Queue, results: &Sender<Sent>) {
    while let Some(Part { title, mut command, uses, alone: _, sum }) = queue.next() {
        if results.send(Sent::Started(title.clone())).is_err() {
            return;
        }
        let start = Instant::now();
        let mut text = String::new();
        let success = output(&mut command, &mut text).with_context(|| title.clone());
        let seconds = start.elapsed().as_secs_f64();
        queue.end(&uses);
        let done = Done { title, text, seconds, sum, success };
        if results.send(Sent::Ended(done)).is_err() {
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
    let (mut passed, mut failed, mut skipped, mut counted) = (0_u32, 0, BTreeSet::new(), false);
    for line in done.text.lines() {
        if let Some(name) = skipped_test(line) {
            // A test may be skipped once for each reactor.
            if skipped.insert(name) {
                report.skipped(name);
            }
        } else if let Some(name) = line.strip_prefix("  skip  ") {
            report.skipped(name.split("   ").next().unwrap_or(name));
        } else if let Some((name, seconds)) = timed_case(line) {
            report.timed(name, seconds);
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

/// Returns the name and the seconds of a case of [`Report::line`].
fn timed_case(line: &str) -> Option<(&str, f64)> {
    let line = line.strip_prefix("  ok    ").or_else(|| line.strip_prefix("  FAIL  "))?;
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.parse().ok()?))
}

/// Returns the name of a test that reports itself as skipped, also after the harness's prefix.
fn skipped_test(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("skipped: ")?;
    let is_reported = before.is_empty() || before.starts_with("test ");
    rest.split_once(": ").map(|(name, _)| name).filter(|_| is_reported)
}

#[cfg(test)]
mod tests {
    use super::{Part, Times};
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
        super::run_all(&mut report, parts, &mut Times::default());
        // Success; failure; failure without a sum; 2 and 1 by a sum, of which one was skipped; not
        // started.
        assert_eq!(report.sum(), (2, 4));
    }

    #[test]
    fn times_of_cases_are_found() {
        let line = "  ok    volume-kernel/tree                             12.5 s  64 files";
        assert_eq!(super::timed_case(line), Some(("volume-kernel/tree", 12.5)));
        assert_eq!(super::timed_case("12 passed, 0 failed"), None);
    }

    #[test]
    fn the_announcement_has_the_times_of_the_last_run() {
        let times = Times([("a".to_owned(), 120.0), ("b".to_owned(), 60.0)].into());
        let a = Part { title: "a".into(), ..part("true") };
        let b = || Part { title: "b".into(), alone: true, ..part("true") };
        assert_eq!(times.announcement(&[part("true")], 2), "parts: 1, 2 at a time");
        let known = times.announcement(&[a, b()], 2);
        assert_eq!(known, "parts: 2, 2 at a time; the last run took about 3 min");
        let more = times.announcement(&[b(), part("true")], 2);
        assert_eq!(more, "parts: 2, 2 at a time; 1 are new, the others took about 1 min");
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
        super::run_all(&mut report, parts.collect(), &mut Times::default());
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
        super::run_all(&mut report, parts, &mut Times::default());
        std::fs::remove_dir_all(&dir).expect("it is there");
        assert_eq!(report.sum(), (3, 0));
    }
}
