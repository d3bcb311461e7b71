//! Results of test cases: one line for each case as it ends, and a total at the end.

use crate::sh;
use anyhow::Result;
use std::process::ExitCode;
use std::time::Instant;

/// Converts the result of a command, which is whether everything passed, to an exit status.
pub fn exit(result: Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Number of the slowest cases that are listed at the end.
const SLOWEST: usize = 8;

/// Total of all cases of a command.
#[derive(Default)]
pub struct Report {
    passed: u32,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Cases with their times in seconds.
    times: Vec<(String, f64)>,
    /// Whether cases with a long form use it.
    pub long: bool,
    /// Whether pages with results are rewritten.
    pub record: bool,
}

impl Report {
    /// Runs one case and prints its line. The text of a success is a figure to display.
    pub fn case(&mut self, name: &str, case: impl FnOnce() -> Result<String>) -> bool {
        let start = Instant::now();
        let outcome = case().map_err(|error| format!("{error:#}"));
        let seconds = start.elapsed().as_secs_f64();
        self.line(name, outcome, seconds)
    }

    /// Prints the line of a completed case.
    pub fn line(&mut self, name: &str, outcome: Result<String, String>, seconds: f64) -> bool {
        self.timed(name, seconds);
        match outcome {
            Ok(note) => {
                println!("  ok    {name:<44} {seconds:6.1} s  {note}");
                self.passed += 1;
                true
            }
            Err(why) => {
                println!("  FAIL  {name:<44} {seconds:6.1} s  {}", sh::tail(&why, 1500));
                self.failed.push(name.to_owned());
                false
            }
        }
    }

    /// Adds the time of a case.
    pub fn timed(&mut self, name: &str, seconds: f64) {
        self.times.push((name.to_owned(), seconds));
    }

    /// Adds cases run and counted by another program.
    pub fn counted(&mut self, suite: &str, passed: u32, failed: u32) {
        self.passed += passed;
        self.failed.extend((0..failed).map(|_| suite.to_owned()));
    }

    /// Prints a case that cannot run here; it counts neither as passed nor as failed.
    pub fn skip(&mut self, name: &str, why: &str) {
        println!("  skip  {name:<44}           {why}");
        self.skipped.push(name.to_owned());
    }

    /// Adds a case that another program skipped and reported.
    pub fn skipped(&mut self, name: &str) {
        self.skipped.push(name.to_owned());
    }

    /// Runs a whole stage: prints its title, and counts its own error as a failed case.
    pub fn stage(&mut self, name: &str, stage: impl FnOnce(&mut Report) -> Result<()>) {
        println!("\n== {name}");
        if let Err(error) = stage(self) {
            self.line(name, Err(format!("{error:#}")), 0.0);
        }
    }

    /// Returns whether a case of this name has failed.
    pub fn has_failed(&self, name: &str) -> bool {
        self.failed.iter().any(|failed| failed == name)
    }

    /// Returns the numbers of passed and failed cases so far.
    #[cfg(test)]
    pub fn sum(&self) -> (usize, usize) {
        (self.passed as usize, self.failed.len())
    }

    /// Returns the slowest cases, if there are many.
    fn slowest(&self) -> Option<String> {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by(|a, b| b.1.total_cmp(&a.1));
        let slowest = times.iter().take(SLOWEST).map(|(name, time)| format!("{name} {time:.0} s"));
        (times.len() > SLOWEST).then(|| slowest.collect::<Vec<_>>().join(", "))
    }

    /// Prints the slowest and the skipped cases, the failures and the total; returns whether
    /// nothing failed.
    pub fn finish(self) -> bool {
        if let Some(slowest) = self.slowest() {
            println!("\nslowest: {slowest}");
        }
        if !self.skipped.is_empty() {
            println!("\n{} not run here: {}", self.skipped.len(), self.skipped.join(", "));
        }
        let mut names = self.failed.clone();
        names.dedup();
        if !names.is_empty() {
            println!("\nfailed: {}", names.join(", "));
        }
        println!("\n{} passed, {} failed", self.passed, self.failed.len());
        self.failed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn the_slowest_of_many_cases_are_listed() {
        let mut report = Report::default();
        (1..=8).for_each(|number| report.timed(&format!("case-{number}"), f64::from(number)));
        assert_eq!(report.slowest(), None);
        report.timed("last", 4.4);
        let slowest = report.slowest().expect("nine cases");
        assert!(slowest.starts_with("case-8 8 s, case-7 7 s"), "{slowest}");
        assert!(slowest.ends_with("last 4 s, case-4 4 s, case-3 3 s, case-2 2 s"), "{slowest}");
    }
}
