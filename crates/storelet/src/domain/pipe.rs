//! A running chain: the output of each storelet is the input of the next.
//!
//! A storelet that closes its input early ends those before it, as in a shell. One that traps or is
//! killed ends all others: those behind it would take a part for the whole. One that merely exits
//! with a code other than zero lets the others finish; its code becomes the chain's.

use super::Output;
use crate::report::Report;
use wasi::Reason;

/// A running chain; most have one storelet.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Names of the storelets, and their reports once they have ended.
    stages: Vec<(String, Option<Report>)>,
    /// Position of the storelet that failed first.
    failed: Option<usize>,
}

impl Pipe {
    /// Creates a running chain of storelets with these names.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Pipe {
        Pipe { stages: names.map(|name| (name, None)).collect(), failed: None }
    }

    /// Returns the number of running storelets.
    fn running(&self) -> usize {
        self.stages.iter().filter(|(_, end)| end.is_none()).count()
    }

    fn runs(&self, stage: usize) -> bool {
        self.stages.get(stage).is_some_and(|(_, end)| end.is_none())
    }

    /// Returns whether this is the last position of the chain.
    pub(super) fn is_last(&self, stage: usize) -> bool {
        stage + 1 == self.stages.len()
    }

    /// Feeds output to the next storelet.
    pub(super) fn pass_on(&self, stage: usize, bytes: Vec<u8>, out: &mut Vec<Output>) {
        // An ended storelet receives nothing, and its writer is killed soon.
        if self.runs(stage + 1) {
            out.push(Output::Feed(stage + 1, bytes));
        }
    }

    /// Kills all that still run.
    pub(super) fn kill(&self, reason: Reason, out: &mut Vec<Output>) {
        let all = (0..self.stages.len()).filter(|stage| self.runs(*stage));
        out.extend(all.map(|stage| Output::Kill(stage, reason)));
    }

    /// Records the end of a storelet. Returns the report of the chain when the last one has ended.
    pub(super) fn ended(
        &mut self,
        stage: usize,
        report: Report,
        out: &mut Vec<Output>,
    ) -> Option<Report> {
        let (exits, lost_reader) = (report.is_exit(), has_lost_reader(&report));
        self.stages[stage].1 = Some(report);
        if !exits && !lost_reader && self.failed.is_none() {
            self.failed = Some(stage);
            self.kill(Reason::Broken, out);
        } else if self.failed.is_none() {
            if self.runs(stage + 1) {
                out.push(Output::Feed(stage + 1, Vec::new()));
            }
            if stage > 0 && self.runs(stage - 1) {
                out.push(Output::Kill(stage - 1, Reason::ReaderClosed));
            }
        }
        (self.running() == 0).then(|| self.report())
    }

    /// Builds the report of the chain, with the sum of all usage.
    fn report(&self) -> Report {
        let ends = || self.stages.iter().filter_map(|(_, end)| end.as_ref());
        let complains = |end: &Report| end.is_exit() && end.exit != Some(0);
        let which = self.failed.or_else(|| ends().position(complains));
        let is_chain = self.stages.len() > 1;
        let (name, end) = &self.stages[which.unwrap_or(self.stages.len() - 1)];
        let end = end.as_ref().expect("all have ended");
        let used = ends().map(|end| end.used).reduce(|sum, used| sum.with(&used));
        Report {
            stage: which.filter(|_| is_chain).map(|_| name.clone()),
            time_ns: ends().map(|end| end.time_ns).max().unwrap_or_default(),
            used: used.unwrap_or_default(),
            ..end.clone()
        }
    }
}

/// Returns whether it was killed because its reader had ended.
fn has_lost_reader(report: &Report) -> bool {
    report.end == "killed" && report.reason == Some(Reason::ReaderClosed.to_string())
}
