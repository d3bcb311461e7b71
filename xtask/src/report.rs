//! Results of test cases: one line for each case as it ends, and a total at the end.

use crate::sh;
use anyhow::Result;
use std::time::Instant;

/// Total of all cases of a command.
#[derive(Default)]
pub(crate) struct Report {
    passed: u32,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Whether cases with a long form use it.
    pub(crate) long: bool,
    /// Whether pages with results are rewritten.
    pub(crate) record: bool,
}

impl Report {
    /// Runs one case and prints its line. The text of a success is a figure to display.
    pub(crate) fn case(&mut self, name: &str, case: impl FnOnce() -> Result<String>) -> bool {
        let start = Instant::now();
        let outcome = case().map_err(|error| format!("{error:#}"));
        let seconds = start.elapsed().as_secs_f64();
        self.line(name, outcome, seconds)
    }

    /// Prints the line of a completed case.
    pub(crate) fn line(
        &mut self,
        name: &str,
        outcome: Result<String, String>,
        seconds: f64,
    ) -> bool {
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

    /// Adds cases run and counted by another program.
    pub(crate) fn counted(&mut self, suite: &str, passed: u32, failed: u32) {
        self.passed += passed;
        self.failed.extend((0..failed).map(|_| suite.to_owned()));
    }

    /// Prints a case that cannot run here; it counts neither as passed nor as failed.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("  skip  {name:<44}           {why}");
        self.skipped.push(name.to_owned());
    }

    /// Adds a case that another program skipped and reported.
    pub(crate) fn skipped(&mut self, name: &str) {
        self.skipped.push(name.to_owned());
    }

    /// Runs a whole stage: prints its title, and counts its own error as a failed case.
    pub(crate) fn stage(&mut self, name: &str, stage: impl FnOnce(&mut Report) -> Result<()>) {
        println!("\n== {name}");
        if let Err(error) = stage(self) {
            self.line(name, Err(format!("{error:#}")), 0.0);
        }
    }

    /// Returns whether a case of this name has failed.
    pub(crate) fn has_failed(&self, name: &str) -> bool {
        self.failed.iter().any(|failed| failed == name)
    }

    /// Returns the numbers of passed and failed cases so far.
    #[cfg(test)]
    pub(crate) fn sum(&self) -> (usize, usize) {
        (self.passed as usize, self.failed.len())
    }

    /// Prints the failures and the total; returns whether nothing failed.
    pub(crate) fn finish(self) -> bool {
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
