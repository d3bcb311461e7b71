//! Unresponsive file systems of the host: detected by the reactor, reported to the operator.

use super::log::{Level, LogMessage};
use super::messages::{NodeMessage, post};
use super::role::HOME;
use super::{Node, Phase, metrics};
use base::Instant;
use base::op::{Op, Unresponsive};
use std::collections::BTreeMap;

/// Unresponsive file systems, by the number of the node that waits for them.
pub(crate) type ByNode = BTreeMap<usize, Vec<Unresponsive>>;

impl Node {
    /// Updates the set of unresponsive file systems of this node. Home reports changes.
    pub(crate) fn note_unresponsive(
        &mut self,
        now: Instant,
        all: Vec<Unresponsive>,
        ops: &mut Vec<Op>,
    ) {
        match self.number() {
            HOME => self.report_unresponsive(now, HOME, all),
            node => post(HOME, NodeMessage::Unresponsive(node, all), ops),
        }
    }

    /// Updates the set of a node of this process. Changes during a shutdown are not reported.
    pub(crate) fn report_unresponsive(
        &mut self,
        now: Instant,
        node: usize,
        all: Vec<Unresponsive>,
    ) {
        let before = merge(&self.unresponsive);
        self.unresponsive.insert(node, all);
        if matches!(self.phase, Phase::Joining | Phase::Running) {
            let lines = changes(now, &before, &merge(&self.unresponsive));
            for (level, text) in lines {
                self.add_log_message(LogMessage { level, target: "host", text });
            }
        }
    }

    /// Returns the requests in progress and waiting, by a label with the name of each file system.
    pub(crate) fn unresponsive_rows(&self) -> Vec<(String, usize)> {
        let row = |one: &Unresponsive| {
            let name = metrics::quoted(&one.name);
            (format!("{{name=\"{name}\"}}"), one.running + one.waiting)
        };
        merge(&self.unresponsive).iter().map(row).collect()
    }
}

/// Returns each file system once, with the requests of all nodes.
fn merge(by_node: &ByNode) -> Vec<Unresponsive> {
    let mut merged: Vec<Unresponsive> = Vec::new();
    for one in by_node.values().flatten() {
        match merged.iter_mut().find(|it| it.name == one.name) {
            Some(it) => {
                it.since = it.since.min(one.since);
                it.running += one.running;
                it.waiting += one.waiting;
            }
            None => merged.push(one.clone()),
        }
    }
    merged
}

/// Returns a line for each file system that responds again, and for each that has stopped.
fn changes(now: Instant, before: &[Unresponsive], after: &[Unresponsive]) -> Vec<(Level, String)> {
    let is_in = |all: &[Unresponsive], one: &Unresponsive| all.iter().any(|o| o.name == one.name);
    let again = before.iter().filter(|one| !is_in(after, one));
    let again = again.map(|one| (Level::Info, format!("{} responds again", one.name)));
    let stopped = after.iter().filter(|one| !is_in(before, one)).map(|one| {
        let Unresponsive { name, since, running, waiting } = one;
        let seconds = now.since(*since).as_secs();
        let text = format!(
            "{name} has not responded for {seconds} s: {running} requests in progress, {waiting} \
             waiting; check its server, or unmount it with umount -f -l"
        );
        (Level::Warn, text)
    });
    again.chain(stopped).collect()
}

#[cfg(test)]
mod tests;
