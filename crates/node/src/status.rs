//! The state of the nodes of a process as text: the files under `/.upcall/`.
//!
//! Home requests a [`Report`] from each front, and adds them to its own.

use super::mounted_tree::{Counts, Tree};
use super::report::Report;
use super::role::Role;
use super::stages::Stages;
use super::{Node, SERVICE, metrics};
use base::Instant;
use services::Hosted;
use std::fmt::Write as _;
use tree::Topic;
use tree::remote::Remote;
use tree::service::Service;

impl Report {
    /// Creates the report of a node.
    pub(crate) fn of(node: &Node) -> Report {
        let ended = node.admission.ended();
        let (stages, traffic) = (node.stages.clone(), node.traffic.clone());
        let mut report = Report { stages, traffic, ended, ..Report::default() };
        report.count_machines(node);
        report.count_queues(node);
        report
    }

    fn count_machines(&mut self, node: &Node) {
        for listener in &node.listeners {
            self.count("listener", listener.state_name(), 1);
        }
        for (_, connection) in &node.connections {
            let (kind, state) = connection.session().state_name();
            self.count(kind, state, 1);
            for call in connection.session().awaits() {
                self.count("call", call, 1);
            }
        }
        for state in node.worker.iter().flat_map(|worker| worker.states()) {
            self.count("storelet", state, 1);
        }
        self.replicas.extend(node.trees.of_kind().map(Hosted::counts));
        if !node.is_home() {
            return;
        }
        let server = |remote: &Remote| (remote.name(), remote.is_connected());
        self.servers.extend(node.trees.of_kind().map(server));
        for (number, tree) in node.trees.iter().map(Tree::counts).enumerate() {
            for (state, n) in tree.pending {
                self.count("pending", state, n);
            }
            for (state, n) in tree.domains {
                self.count("domain", state, n);
            }
            if let Some(link) = tree.link {
                self.count("link", link, 1);
            }
            if let Some((space, store, (reaper, _))) = tree.volume {
                self.count("reaper", reaper, 1);
                store.machines.iter().for_each(|(kind, state)| self.count(kind, state, 1));
                self.volumes.push((number, space, store));
            }
            if let Some((counting, quotas)) = tree.quotas {
                self.count("counting", counting, 1);
                self.quotas.extend(quotas.into_iter().map(|quota| (number, quota)));
            }
        }
        self.count("changes", node.changes.name(), 1);
        node.recorder.iter().for_each(|it| self.count("recorder", it.state_name(), 1));
        node.names.tasks().for_each(|(kind, state)| self.count(kind, state, 1));
    }

    fn count_queues(&mut self, node: &Node) {
        // A worker has neither connections nor their queues.
        if node.worker.is_some() {
            return;
        }
        if let Role::Replicas(..) = node.role {
            let held = node.trees.iter().filter_map(|tree| tree.counts().held);
            return held.for_each(|(held, most)| self.add_queue(("services", held, most)));
        }
        self.queues.extend([
            ("connections", node.connections.len(), node.config.connections_max),
            ("bytes", node.admission.used(), node.config.bytes_max),
            ("starved", node.admission.waiting(), node.config.connections_max),
        ]);
        if !node.is_home() {
            return;
        }
        let counts: Vec<Counts> = node.trees.iter().map(Tree::counts).collect();
        let sum = |count: &dyn Fn(&Counts) -> usize| counts.iter().map(count).sum::<usize>();
        let handles_max = node.trees.handles_max(node.files_shared());
        let (places, unions) = node.names.counts();
        let service = node.trees[SERVICE].downcast_ref::<Service>();
        let (watches, watch_bytes) = service.map_or((0, 0), Service::watches);
        let (subtrees, subtree_bytes) = service.map_or((0, 0), Service::subtrees);
        self.queues.extend([
            ("handles", sum(&|tree| tree.nodes + tree.opens) + node.closing, handles_max),
            ("places", places, handles_max),
            ("unions", unions, handles_max),
            ("locks", sum(&|tree| tree.locks.0), tree::locks::RANGES_MAX * counts.len()),
            ("watches", watches, tree::service::WATCHES_MAX),
            ("watch_bytes", watch_bytes, tree::service::WATCH_BYTES_MAX),
            ("subtrees", subtrees, tree::service::SUBTREES_MAX),
            ("subtree_bytes", subtree_bytes, tree::service::SUBTREE_BYTES_MAX),
            ("lock_waits", sum(&|tree| tree.locks.1), tree::locks::WAITING_MAX * counts.len()),
        ]);
        for (given, most) in counts.iter().filter_map(|tree| tree.memory) {
            self.add_queue(("storelet_memory", given as usize, most as usize));
        }
        for (_, store, _) in counts.into_iter().filter_map(|tree| tree.volume) {
            let (journal, journal_max) = store.journal;
            self.add_queue(("cache", store.cache.0, store.cache.1));
            self.add_queue(("dirty", store.dirty.0, store.dirty.1));
            self.add_queue(("journal", journal as usize, journal_max as usize));
        }
    }
}

/// Returns the contents of a service file.
pub(crate) fn render(node: &Node, report: &Report, now: Instant, topic: Topic) -> String {
    match topic {
        Topic::Machines => machines_text(report),
        Topic::Queues => queues_text(report),
        Topic::Stages => stages_text(&report.stages),
        Topic::Metrics => metrics::text(node, report, now),
        Topic::Names => node.names_text(),
    }
}

fn machines_text(report: &Report) -> String {
    let mut text = String::from("machine     state       count\n");
    for ((kind, state), count) in &report.machines {
        writeln!(text, "{kind:<11} {state:<11} {count}").expect("a string");
    }
    text
}

fn queues_text(report: &Report) -> String {
    let mut text = String::from("queue         length      limit\n");
    for (name, length, limit) in &report.queues {
        writeln!(text, "{name:<13} {length:<11} {limit}").expect("a string");
    }
    text
}

fn stages_text(stages: &Stages) -> String {
    let mut text = String::from("stage      count      mean us    p50 us     p99 us     max us\n");
    for (name, histogram) in stages.all() {
        let count = histogram.count();
        let us = |span: std::time::Duration| span.as_nanos() as f64 / 1000.0;
        let mean = us(histogram.sum()) / count.max(1) as f64;
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| us(histogram.quantile(q)));
        writeln!(text, "{name:<10} {count:<10} {mean:<10.1} {p50:<10.1} {p99:<10.1} {max:.1}")
            .expect("a string");
    }
    text
}
