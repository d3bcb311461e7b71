//! A chain that runs: what one of its storelets says is the input of the next.
//!
//! One that reads no further ends those before it, as in a shell. One that fails by a mistake or is
//! ended takes all others with it: what follows would take a part for the whole. One that merely
//! exits with another code than zero lets the others finish; the code is that of the chain then.

use super::Output;
use crate::budget::Reason;
use crate::report::Report;

/// A chain that runs; most are of one storelet.
#[derive(Debug)]
pub(super) struct Pipe {
    /// What its storelets are called, and how they have ended.
    stages: Vec<(String, Option<Report>)>,
    /// The one that failed first.
    failed: Option<usize>,
}

impl Pipe {
    /// A chain of storelets that are called like this.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Pipe {
        Pipe { stages: names.map(|name| (name, None)).collect(), failed: None }
    }

    /// How many of its storelets run.
    fn running(&self) -> usize {
        self.stages.iter().filter(|(_, end)| end.is_none()).count()
    }

    fn runs(&self, stage: usize) -> bool {
        self.stages.get(stage).is_some_and(|(_, end)| end.is_none())
    }

    /// Whether it is the last of the chain.
    pub(super) fn is_last(&self, stage: usize) -> bool {
        stage + 1 == self.stages.len()
    }

    /// One says something to the next.
    pub(super) fn pass_on(&self, stage: usize, bytes: Vec<u8>, out: &mut Vec<Output>) {
        // Who has ended takes nothing, and who speaks to it is ended soon.
        if self.runs(stage + 1) {
            out.push(Output::Feed(stage + 1, bytes));
        }
    }

    /// Ends all that run.
    pub(super) fn kill(&self, reason: Reason, out: &mut Vec<Output>) {
        let all = (0..self.stages.len()).filter(|stage| self.runs(*stage));
        out.extend(all.map(|stage| Output::Kill(stage, reason)));
    }

    /// One has ended. How the chain has, if that was the last that ran.
    pub(super) fn ended(
        &mut self,
        stage: usize,
        report: Report,
        out: &mut Vec<Output>,
    ) -> Option<Report> {
        let (exits, unheard) = (report.is_exit(), is_unheard(&report));
        self.stages[stage].1 = Some(report);
        if !exits && !unheard && self.failed.is_none() {
            self.failed = Some(stage);
            self.kill(Reason::Broken, out);
        } else if self.failed.is_none() {
            if self.runs(stage + 1) {
                out.push(Output::Feed(stage + 1, Vec::new()));
            }
            if stage > 0 && self.runs(stage - 1) {
                out.push(Output::Kill(stage - 1, Reason::Unheard));
            }
        }
        (self.running() == 0).then(|| self.report())
    }

    /// How it has ended, with what all have used.
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

/// Whether it was ended because nobody listened to it.
fn is_unheard(report: &Report) -> bool {
    report.end == "killed" && report.reason == Some(Reason::Unheard.to_string())
}
