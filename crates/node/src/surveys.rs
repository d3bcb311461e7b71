//! Status of several nodes in `/.upcall/`: home requests a report from each of the others, and
//! waits for all.

use super::messages::{NodeMessage, post};
use super::report::Report;
use super::role::Role;
use super::status;
use super::{Node, SERVICE};
use crate::message::Message;
use base::Instant;
use base::op::Op;
use slab::Slab;
use std::collections::BTreeSet;
use tree::{Input as TreeInput, Topic};

/// A service file being rendered.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Ticket of the tree of service files.
    ticket: u64,
    topic: Topic,
    /// Nodes with outstanding reports.
    awaited: BTreeSet<usize>,
    report: Report,
}

impl Survey {
    /// Returns the nodes with outstanding reports.
    pub(crate) fn awaited(&self) -> &BTreeSet<usize> {
        &self.awaited
    }
}

/// All surveys. Bounded by the tree of service files.
pub(crate) type Surveys = Slab<Survey>;

impl Node {
    /// Starts to render a service file.
    pub(crate) fn survey(&mut self, now: Instant, ticket: u64, topic: Topic, ops: &mut Vec<Op>) {
        let (report, awaited) = match (&self.role, topic) {
            // It has no counters, and fronts have no namespace.
            (_, Topic::Names) => (Report::default(), BTreeSet::new()),
            (Role::Front(_) | Role::Replicas(..), _) => (Report::of(self), BTreeSet::new()),
            (Role::Home(fronts), _) => {
                let others = fronts.iter().copied().chain(self.replicas);
                (Report::of(self), others.collect())
            }
        };
        let key = self.surveys.vacant_key();
        for front in &awaited {
            post(*front, NodeMessage::Report(key), ops);
        }
        self.surveys.insert(Survey { ticket, topic, awaited, report });
        self.finish_survey(now, key);
    }

    /// Adds the report of a node.
    pub(crate) fn reported(&mut self, now: Instant, front: usize, key: usize, report: Report) {
        let survey = &mut self.surveys[key];
        let awaited = survey.awaited.remove(&front);
        assert!(awaited, "a node reports once, on request");
        survey.report.add(report);
        self.finish_survey(now, key);
    }

    /// Stops waiting for a front that has ended.
    pub(crate) fn survey_without(&mut self, now: Instant, front: usize) {
        let keys: Vec<usize> = self.surveys.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.surveys[key].awaited.remove(&front);
            self.finish_survey(now, key);
        }
    }

    fn finish_survey(&mut self, now: Instant, key: usize) {
        if self.surveys[key].awaited.is_empty() {
            let Survey { ticket, topic, report, .. } = self.surveys.remove(key);
            let text = status::render(self, &report, now, topic).into_bytes();
            let input = TreeInput::Rendered(ticket, text);
            self.messages.push_back(Message::Tree(SERVICE, input));
        }
    }
}
