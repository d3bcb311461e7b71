//! What passed and what failed: one line for each case as it happens, one line at the end.

use crate::sh;
use anyhow::Result;
use std::time::Instant;

/// The sum over everything a command checked.
#[derive(Default)]
pub(crate) struct Report {
    passed: u32,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Whether those cases that can go on for longer do so.
    pub(crate) long: bool,
    /// Whether pages that hold results are written anew.
    pub(crate) record: bool,
}

impl Report {
    /// Runs one case and writes its line. The text of a success is a figure worth seeing.
    pub(crate) fn case(&mut self, name: &str, case: impl FnOnce() -> Result<String>) -> bool {
        let start = Instant::now();
        let outcome = case().map_err(|error| format!("{error:#}"));
        let seconds = start.elapsed().as_secs_f64();
        self.line(name, outcome, seconds)
    }

    /// Writes the line of a case that has already run.
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

    /// Cases that another program ran and counted.
    pub(crate) fn counted(&mut self, suite: &str, passed: u32, failed: u32) {
        self.passed += passed;
        self.failed.extend((0..failed).map(|_| suite.to_owned()));
    }

    /// Something that cannot run here; said, and counted on neither side.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("  skip  {name:<44}           {why}");
        self.skipped.push(name.to_owned());
    }

    /// Something that another program could not run, and has said so.
    pub(crate) fn skipped(&mut self, name: &str) {
        self.skipped.push(name.to_owned());
    }

    /// A whole stage: a title, and its own error as a failed case if it could not finish.
    pub(crate) fn stage(&mut self, name: &str, stage: impl FnOnce(&mut Report) -> Result<()>) {
        println!("\n== {name}");
        if let Err(error) = stage(self) {
            self.line(name, Err(format!("{error:#}")), 0.0);
        }
    }

    /// Whether a case of this name has failed.
    pub(crate) fn has_failed(&self, name: &str) -> bool {
        self.failed.iter().any(|failed| failed == name)
    }

    /// How many passed and failed until now.
    #[cfg(test)]
    pub(crate) fn sum(&self) -> (usize, usize) {
        (self.passed as usize, self.failed.len())
    }

    /// Writes what failed and the sum; true if nothing failed.
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
