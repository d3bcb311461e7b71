//! The node's own state as text: the files under `/.upcall/`.

use super::branch::{Branch, Counts};
use super::{Node, Phase};
use base::Instant;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tree::Topic;

/// Counts by machine and state.
type Machines = BTreeMap<(&'static str, &'static str), usize>;

/// The contents of a service file.
pub(crate) fn render(node: &Node, now: Instant, topic: Topic) -> String {
    match topic {
        Topic::Machines => machines_text(node),
        Topic::Queues => queues_text(node),
        Topic::Stages => stages_text(node),
        Topic::Metrics => metrics_text(node, now),
        Topic::Names => node.names_text(),
    }
}

fn machines(node: &Node) -> Machines {
    let mut counts = Machines::new();
    let mut add = |kind, state, n| *counts.entry((kind, state)).or_insert(0) += n;
    for listener in &node.listeners {
        add("listener", listener.state_name(), 1);
    }
    for (_, connection) in &node.connections {
        let (kind, state) = connection.session().state_name();
        add(kind, state, 1);
        for call in connection.session().awaits() {
            add("call", call, 1);
        }
    }
    for tree in node.trees.iter().map(Branch::counts) {
        for (errand, n) in tree.errands {
            add("errand", errand, n);
        }
        if let Some(link) = tree.link {
            add("link", link, 1);
        }
        if let Some((store, (reaper, _))) = tree.volume {
            add("reaper", reaper, 1);
            store.machines.into_iter().for_each(|(kind, state)| add(kind, state, 1));
        }
    }
    add("changes", node.changes.name(), 1);
    node.names.tasks().for_each(|(kind, state)| add(kind, state, 1));
    counts
}

fn machines_text(node: &Node) -> String {
    let mut text = String::from("machine     state       count\n");
    for ((kind, state), count) in machines(node) {
        writeln!(text, "{kind:<11} {state:<11} {count}").expect("a string");
    }
    text
}

/// Every queue: its name, its length, its limit.
fn queues(node: &Node) -> Vec<(&'static str, usize, usize)> {
    let counts: Vec<Counts> = node.trees.iter().map(Branch::counts).collect();
    let sum = |count: &dyn Fn(&Counts) -> usize| counts.iter().map(count).sum::<usize>();
    let handles_max = node.trees.handles_max(node.files_shared());
    let (places, unions) = node.names.counts();
    let mut queues = vec![
        ("connections", node.connections.len(), node.config.connections_max),
        ("bytes", node.bytes, node.config.bytes_max),
        ("starved", node.starved.len(), node.config.connections_max),
        ("handles", sum(&|tree| tree.nodes + tree.opens), handles_max),
        ("places", places, handles_max),
        ("unions", unions, handles_max),
        ("locks", sum(&|tree| tree.locks.0), tree::locks::RANGES_MAX * counts.len()),
        ("lock_waits", sum(&|tree| tree.locks.1), tree::locks::WAITING_MAX * counts.len()),
    ];
    for (store, _) in counts.into_iter().filter_map(|tree| tree.volume) {
        queues.push(("cache", store.cache.0, store.cache.1));
        queues.push(("dirty", store.dirty.0, store.dirty.1));
        queues.push(("journal", store.journal.0 as usize, store.journal.1 as usize));
    }
    queues
}

fn queues_text(node: &Node) -> String {
    let mut text = String::from("queue         length      limit\n");
    for (name, length, limit) in queues(node) {
        writeln!(text, "{name:<13} {length:<11} {limit}").expect("a string");
    }
    text
}

fn stages_text(node: &Node) -> String {
    let mut text = String::from("stage      count      mean us    p50 us     p99 us     max us\n");
    for (name, histogram) in node.stages.all() {
        let count = histogram.count();
        let us = |span: std::time::Duration| span.as_nanos() as f64 / 1000.0;
        let mean = us(histogram.sum()) / count.max(1) as f64;
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| us(histogram.quantile(q)));
        writeln!(text, "{name:<10} {count:<10} {mean:<10.1} {p50:<10.1} {p99:<10.1} {max:.1}")
            .expect("a string");
    }
    text
}

/// The Prometheus text format, version 0.0.4.
fn metrics_text(node: &Node, now: Instant) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string");
        for (suffix, value) in rows {
            writeln!(text, "{name}{suffix} {value}").expect("a string");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    family("upcall_uptime_seconds", "gauge", "Time since the start.", &one(now.0 as f64 / 1e9));
    let accepted = node.stages.accepted as f64;
    family("upcall_accepted_total", "counter", "Connections accepted.", &one(accepted));
    let draining = f64::from(u8::from(node.phase != Phase::Running));
    family("upcall_draining", "gauge", "Whether the server is ending.", &one(draining));
    let rows: Vec<_> = machines(node)
        .into_iter()
        .map(|((kind, state), n)| (format!("{{machine=\"{kind}\",state=\"{state}\"}}"), n as f64))
        .collect();
    family("upcall_machines", "gauge", "Machines by kind and state.", &rows);
    let label = |name: &str| format!("{{queue=\"{name}\"}}");
    let lengths: Vec<_> = queues(node).iter().map(|(q, n, _)| (label(q), *n as f64)).collect();
    family("upcall_queue_length", "gauge", "Length of each queue.", &lengths);
    let limits: Vec<_> = queues(node).iter().map(|(q, _, n)| (label(q), *n as f64)).collect();
    family("upcall_queue_limit", "gauge", "Limit of each queue.", &limits);
    stage_metrics(node, &mut text);
    text
}

fn stage_metrics(node: &Node, text: &mut String) {
    let name = "upcall_stage_seconds";
    writeln!(text, "# HELP {name} How long each stage of a request takes.").expect("a string");
    writeln!(text, "# TYPE {name} histogram").expect("a string");
    for (stage, histogram) in node.stages.all() {
        let mut below = 0;
        for (edge, count) in histogram.edges() {
            below += count;
            let edge = edge.as_secs_f64();
            writeln!(text, "{name}_bucket{{stage=\"{stage}\",le=\"{edge}\"}} {below}")
                .expect("a string");
        }
        let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
        writeln!(text, "{name}_bucket{{stage=\"{stage}\",le=\"+Inf\"}} {count}").expect("a string");
        writeln!(text, "{name}_sum{{stage=\"{stage}\"}} {sum}").expect("a string");
        writeln!(text, "{name}_count{{stage=\"{stage}\"}} {count}").expect("a string");
    }
}
