//! Dependencies between I/Os, inferred from their issue and completion times.
//!
//! An application that reads, computes and writes issues the write because the read is complete.
//! Traces do not record this, but an I/O may depend on any I/O completed before its issue. As in
//! HFPlayer (*On the Accuracy and Scalability of Intensive I/O Workload Replay*, FAST 2017), the
//! *candidates* for parents of a record are those completed more than `distance_ns` before its
//! issue and at most `window_ns` ago (the last completed one always is a candidate). Candidates
//! that are ancestors of other candidates are implied and dropped. The remaining ones, at most the
//! maximum number in flight plus one, are the parents.
//!
//! ```text
//!   a ├──────┤            a is an ancestor of c, and so no parent of d;
//!   b ├────────────┤      b and c are d's parents;
//!   c          ├──────┤   d's think time is the time between c's completion
//!   d                    ·──·├────      and its issue
//! ```
//!
//! HFPlayer searches a graph two edges deep; this is exact, because "complete before the issue of"
//! is an *interval order*: a candidate is an ancestor of another exactly if it completed before the
//! latest issue of all candidates. So a walk backwards from the last completion, which tracks the
//! latest issue seen and stops at the first candidate completed before it, finds the parents and
//! visits nothing else. On HFPlayer's sample of TPC-H (780 I/Os), the edges equal those written by
//! a transcription of `depAnalyser.cc` (the program itself was not run): 999, 1166 and 1174 with
//! windows of 1, 10 and 100 ms. Of these, 91, 7 and 0 point to the last parent written, which
//! HFPlayer repeats for a record without one.
//!
//! Memory: the records completed within the window, and those in flight, at most
//! [`Dependence::tracked`]; the earliest completed are dropped first.

use super::adapt::Ratio;
use super::{Error, Traced};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Records examined for one with a duration.
const AHEAD: usize = 1024;

/// Rules of the inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependence {
    /// Maximum time from a completion to a dependent issue, in ns (HFPlayer's `-w`).
    pub window_ns: u64,
    /// Minimum time from a completion to a dependent issue, in ns (HFPlayer's `-m`).
    pub distance_ns: u64,
    /// Maximum records tracked.
    pub tracked: usize,
}

impl Default for Dependence {
    fn default() -> Dependence {
        Dependence { window_ns: 100_000_000, distance_ns: 0, tracked: 65_536 }
    }
}

/// Record with its dependencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depended {
    /// Record.
    pub traced: Traced,
    /// Numbers of the records that it depends on (the first record of the trace is 0), latest
    /// completion first.
    pub parents: Vec<u64>,
    /// Think time from the completion of the first parent to the issue in ns; without parents, from
    /// the start of the trace.
    pub think_ns: u64,
}

impl Depended {
    /// Scales its times.
    #[must_use]
    pub fn scaled(self, time: Ratio) -> Depended {
        let at_ns = time.of(self.traced.at_ns);
        let traced = Traced { at_ns, ..self.traced };
        Depended { traced, think_ns: time.of(self.think_ns), ..self }
    }
}

/// Iterator over records with their parents.
#[derive(Debug)]
pub struct Dependencies<I> {
    inner: I,
    rule: Dependence,
    /// First records, buffered until one with a duration is found.
    ahead: VecDeque<Traced>,
    begun: bool,
    ended: bool,
    number: u64,
    /// Issue times of the tracked records, by completion time and number.
    issued: BTreeMap<(u64, u64), u64>,
    flying: BinaryHeap<Reverse<u64>>,
    flying_max: usize,
}

impl Dependence {
    /// Infers the parents of records in issue order.
    pub fn of<I>(self, inner: I) -> Dependencies<I>
    where
        I: Iterator<Item = Result<Traced, Error>>,
    {
        Dependencies {
            inner,
            rule: self,
            ahead: VecDeque::new(),
            begun: false,
            ended: false,
            number: 0,
            issued: BTreeMap::new(),
            flying: BinaryHeap::new(),
            flying_max: 0,
        }
    }
}

impl<I: Iterator<Item = Result<Traced, Error>>> Dependencies<I> {
    fn begin(&mut self) -> Result<(), Error> {
        while self.ahead.len() < AHEAD {
            let Some(record) = self.inner.next().transpose()? else { break };
            self.ahead.push_back(record);
            if record.took_ns.is_some() {
                return Ok(());
            }
        }
        if self.ahead.is_empty() {
            return Ok(());
        }
        let what = "the trace has no completion times, so dependencies are unknown. Replay it by \
                    its times (open), or replay it once by its times with a recording and infer \
                    from that; of a blktrace, complete (C) events are needed";
        Err(Error::Lacking { what: what.to_string() })
    }

    fn advance(&mut self) -> Result<Option<Depended>, Error> {
        if !self.begun {
            self.begun = true;
            self.begin()?;
        }
        let record = match self.ahead.pop_front() {
            Some(record) => Some(record),
            None => self.inner.next().transpose()?,
        };
        Ok(record.map(|record| self.depended(record)))
    }

    fn depended(&mut self, traced: Traced) -> Depended {
        let at_ns = traced.at_ns;
        while self.flying.peek().is_some_and(|Reverse(done_ns)| *done_ns < at_ns) {
            self.flying.pop();
        }
        self.flying_max = self.flying_max.max(self.flying.len());
        self.forget(at_ns);
        let (parents, think_ns) = self.parents(at_ns);
        if let Some(done_ns) = traced.completed_ns() {
            self.issued.insert((done_ns, self.number), at_ns);
            self.flying.push(Reverse(done_ns));
        }
        self.number += 1;
        Depended { traced, parents, think_ns }
    }

    /// Returns the parents of a record issued now, and its think time.
    fn parents(&self, at_ns: u64) -> (Vec<u64>, u64) {
        let Some(until_ns) = at_ns.checked_sub(self.rule.distance_ns) else {
            return (Vec::new(), at_ns);
        };
        let mut parents = Vec::new();
        let mut think_ns = at_ns;
        let mut latest_issue_ns = 0;
        for ((done_ns, number), issued_ns) in self.issued.range(..(until_ns, 0)).rev() {
            let counts_ns = done_ns.saturating_add(self.rule.distance_ns);
            let is_old = done_ns.saturating_add(self.rule.window_ns) < at_ns;
            let is_ancestor = counts_ns < latest_issue_ns;
            let are_enough = parents.len() > self.flying_max;
            if !parents.is_empty() && (is_old || is_ancestor || are_enough) {
                break;
            }
            if parents.is_empty() {
                think_ns = at_ns - done_ns;
            }
            parents.push(*number);
            latest_issue_ns = latest_issue_ns.max(*issued_ns);
        }
        (parents, think_ns)
    }

    /// Drops records too old to be parents, except the last completed one.
    fn forget(&mut self, at_ns: u64) {
        let horizon_ns = at_ns.saturating_sub(self.rule.window_ns.max(self.rule.distance_ns));
        while let Some((first, _)) = self.issued.first_key_value() {
            let is_old = first.0 < horizon_ns;
            let mut next = self.issued.keys().skip(1);
            let is_last = next.next().is_none_or(|next| next.0 >= horizon_ns);
            if (!is_old || is_last) && self.issued.len() <= self.rule.tracked {
                break;
            }
            self.issued.pop_first();
        }
        while self.flying.len() > self.rule.tracked {
            self.flying.pop();
        }
    }
}

impl<I: Iterator<Item = Result<Traced, Error>>> Iterator for Dependencies<I> {
    type Item = Result<Depended, Error>;

    fn next(&mut self) -> Option<Result<Depended, Error>> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
