//! File systems of the host that do not respond: reported by the reactor, told to the operator.

use super::Node;
use base::Instant;
use base::op::Unresponsive;
use std::mem;

impl Node {
    /// File systems stopped responding, or respond again: these are all that do not.
    pub(crate) fn note_unresponsive(&mut self, now: Instant, all: Vec<Unresponsive>) {
        let before = mem::replace(&mut self.unresponsive, all);
        for line in changes(now, &before, &self.unresponsive) {
            self.add_news(line);
        }
    }

    /// Requests in progress and waiting, by a label with the name of each of these file systems.
    pub(crate) fn unresponsive_rows(&self) -> Vec<(String, f64)> {
        let row = |one: &Unresponsive| {
            let name = one.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            (format!("{{name=\"{name}\"}}"), (one.running + one.waiting) as f64)
        };
        self.unresponsive.iter().map(row).collect()
    }
}

/// A line for each file system that responds again, and for each that has stopped.
fn changes(now: Instant, before: &[Unresponsive], after: &[Unresponsive]) -> Vec<String> {
    let is_in = |all: &[Unresponsive], one: &Unresponsive| all.iter().any(|o| o.name == one.name);
    let again = before.iter().filter(|one| !is_in(after, one));
    let again = again.map(|one| format!("{} responds again", one.name));
    let stopped = after.iter().filter(|one| !is_in(before, one)).map(|one| {
        let Unresponsive { name, since, running, waiting } = one;
        let seconds = now.since(*since).as_secs();
        format!(
            "{name} has not responded for {seconds} s: {running} requests in progress, {waiting} \
             waiting; check its server, or unmount it with umount -f -l"
        )
    });
    again.chain(stopped).collect()
}

#[cfg(test)]
mod tests;
