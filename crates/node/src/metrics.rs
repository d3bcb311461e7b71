//! The state of the nodes of a process in the Prometheus text format, version 0.0.4.

use super::report::Report;
use super::stages::Stages;
use super::{Node, Phase};
use base::Instant;
use base::histogram::Histogram;
use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;
use storelet::Storelets;
use tree::volume::Limited;

/// Exponents of the upper bounds of the buckets of a histogram: from 4 us to 17 s.
const BOUNDS: RangeInclusive<u32> = 12..=34;

/// A page of metric families.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string");
    }

    /// Writes a family with a value for each set of labels, in braces; without values, it is left
    /// out.
    fn rows<V: Display>(
        &mut self,
        name: &str,
        (kind, help): (&str, &str),
        rows: impl IntoIterator<Item = (String, V)>,
    ) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        self.head(name, kind, help);
        for (labels, value) in rows {
            writeln!(self.text, "{name}{labels} {value}").expect("a string");
        }
    }

    fn one(&mut self, name: &str, about: (&str, &str), value: impl Display) {
        self.rows(name, about, [(String::new(), value)]);
    }
}

/// Escapes a label value.
pub(crate) fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the page.
pub(crate) fn text(node: &Node, report: &Report, now: Instant) -> String {
    let mut page = Page::default();
    let uptime = now.0 as f64 / 1e9;
    page.one("upcall_uptime_seconds", ("gauge", "Time since the start."), uptime);
    let draining = u8::from(node.phase != Phase::Running);
    page.one("upcall_draining", ("gauge", "Whether the server is ending."), draining);
    let help = "Version of the server.";
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    page.rows("upcall_build_info", ("gauge", help), [(version, 1)]);
    connections(&mut page, report);
    let machine = |(kind, state)| format!("{{machine=\"{kind}\",state=\"{state}\"}}");
    let rows = report.machines.iter().map(|(of, count)| (machine(*of), *count));
    page.rows("upcall_machines", ("gauge", "Machines by kind and state."), rows);
    let label = |name: &str| format!("{{queue=\"{name}\"}}");
    let lengths = report.queues.iter().map(|(queue, length, _)| (label(queue), *length));
    page.rows("upcall_queue_length", ("gauge", "Length of each queue."), lengths);
    let limits = report.queues.iter().map(|(queue, _, limit)| (label(queue), *limit));
    page.rows("upcall_queue_limit", ("gauge", "Limit of each queue."), limits);
    if let Some(tally) = node.tally() {
        let help = "I/Os of files given to be written down.";
        page.one("upcall_recorded_total", ("counter", help), tally.taken);
        let help = "I/Os of files not written down, for want of room.";
        page.one("upcall_recording_lost_total", ("counter", help), tally.lost);
    }
    let help = "Requests kept by each file system or service of the host that does not respond.";
    page.rows("upcall_unresponsive_requests", ("gauge", help), node.unresponsive_rows());
    let server =
        |(name, up): &(String, bool)| (format!("{{server=\"{}\"}}", quoted(name)), u8::from(*up));
    let help = "Whether each mounted server is connected.";
    page.rows("upcall_mounted_server_up", ("gauge", help), report.servers.iter().map(server));
    volumes(&mut page, report);
    quotas(&mut page, report);
    replicas(&mut page, report);
    if let Some(totals) = node.trees.of_kind::<Storelets>().map(Storelets::totals).next() {
        storelets(&mut page, totals);
    }
    names(&mut page, node, report);
    stages(&mut page, &report.stages);
    page.text
}

fn connections(page: &mut Page, report: &Report) {
    let help = "Connections accepted.";
    page.one("upcall_accepted_total", ("counter", help), report.stages.accepted);
    let help = "Connections ended to give memory or a place to others.";
    page.one("upcall_connections_ended_total", ("counter", help), report.ended);
    let label = |name: &str| format!("{{protocol=\"{name}\"}}");
    let bytes = report.traffic.by_protocol();
    let received = bytes.map(|(name, received, _)| (label(name), received));
    page.rows("upcall_received_bytes_total", ("counter", "Bytes received from clients."), received);
    let sent = bytes.map(|(name, _, sent)| (label(name), sent));
    page.rows("upcall_sent_bytes_total", ("counter", "Bytes sent to clients."), sent);
    let replies = report.traffic.replies();
    let replies = replies.map(|(kind, count)| (format!("{{type=\"{kind}\"}}"), count));
    let help = "9P replies by type; Lerror and Error are errors.";
    page.rows("upcall_9p_replies_total", ("counter", help), replies);
    let calls = report.traffic.calls().map(|(name, is_done, count)| {
        let result = if is_done { "ok" } else { "error" };
        (format!("{{procedure=\"{name}\",result=\"{result}\"}}"), count)
    });
    let help = "NFS calls by procedure and result.";
    page.rows("upcall_nfs_calls_total", ("counter", help), calls);
    let responses = report.traffic.responses().map(|(method, status, count)| {
        (format!("{{method=\"{method}\",code=\"{status}\"}}"), count)
    });
    let help = "HTTP requests by method and status; 499: the client left before the response.";
    page.rows("upcall_http_requests_total", ("counter", help), responses);
    let help = "Bytes of the contents of HTTP responses.";
    let contents = report.traffic.contents();
    page.one("upcall_http_response_content_bytes_total", ("counter", help), contents);
}

fn volumes(page: &mut Page, report: &Report) {
    let label = |tree: usize| format!("{{tree=\"{tree}\"}}");
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(Volume) -> u64| {
        let rows = report.volumes.iter();
        let rows = rows.map(|(tree, space, counts)| (label(*tree), value((space, counts))));
        page.rows(name, (kind, help), rows);
    };
    family("upcall_volume_size_bytes", "gauge", "Room for files of each volume.", &|(space, _)| {
        space.blocks * space.block as u64
    });
    family("upcall_volume_free_bytes", "gauge", "Room that is free.", &|(space, _)| {
        space.blocks_available * space.block as u64
    });
    family("upcall_volume_cache_blocks", "gauge", "Blocks in memory.", &|(_, counts)| {
        counts.cache.0 as u64
    });
    let help = "Blocks that the disk does not have yet.";
    family("upcall_volume_dirty_blocks", "gauge", help, &|(_, counts)| counts.dirty.0 as u64);
    let help = "Blocks of the journal that are in use.";
    family("upcall_volume_journal_blocks", "gauge", help, &|(_, counts)| counts.journal.0);
    let help = "Checkpoints written since the volume was created.";
    family("upcall_volume_checkpoints_total", "counter", help, &|(_, counts)| counts.checkpoints);
    let help = "Failures of the disk since the volume was opened.";
    family("upcall_storage_failures_total", "counter", help, &|(_, counts)| counts.failures);
}

fn quotas(page: &mut Page, report: &Report) {
    let label = |tree: usize, of: &Limited| match of.uid {
        Some(uid) => format!("{{tree=\"{tree}\",owner=\"{uid}\"}}"),
        None => format!("{{tree=\"{tree}\",directory=\"{}\"}}", of.directory),
    };
    let mut family = |name: &str, help: &str, value: &dyn Fn(&Limited) -> u64| {
        let rows = report.quotas.iter().map(|(tree, of)| (label(*tree, of), value(of)));
        // An unlimited quota has no limit metric.
        page.rows(name, ("gauge", help), rows.filter(|(_, value)| *value != u64::MAX));
    };
    let help = "Space in use by an owner or a directory with a quota.";
    family("upcall_quota_used_bytes", help, &|of| of.used.bytes);
    family("upcall_quota_limit_bytes", "Maximum space of a quota.", &|of| of.most.bytes);
    let help = "Files of an owner or a directory with a quota.";
    family("upcall_quota_used_files", help, &|of| of.used.inodes);
    family("upcall_quota_limit_files", "Maximum number of files of a quota.", &|of| of.most.inodes);
    let help = "Whether the limits of a quota hold: all files that were there are counted.";
    family("upcall_quota_enforced", help, &|of| u64::from(of.is_enforced));
}

type Volume<'a> = (&'a store::Space, &'a store::Counts);

fn replicas(page: &mut Page, report: &Report) {
    let label = |of: &services::Counts| {
        format!("{{service=\"{}\",replica=\"{}\"}}", quoted(&of.service), of.replica)
    };
    let mut family = |name: &str, help: &str, value: &dyn Fn(&services::Counts) -> u64| {
        let rows = report.replicas.iter().map(|of| (label(of), value(of)));
        page.rows(name, ("gauge", help), rows);
    };
    let help = "Operations that are done here and not final.";
    family("upcall_replica_unfinal_operations", help, &|of| of.unfinal as u64);
    let help = "Operations kept for members that lack them.";
    family("upcall_replica_kept_operations", help, &|of| of.kept as u64);
    let help = "Members of the service, this replica included.";
    family("upcall_replica_members", help, &|of| of.members.len() as u64 + 1);
    let rows = report.replicas.iter().flat_map(|of| of.members.iter().map(move |one| (of, one)));
    let rows: Vec<_> = rows
        .map(|(of, one)| {
            let (service, replica) = (quoted(&of.service), of.replica);
            let labels = format!(
                "{{service=\"{service}\",replica=\"{replica}\",member=\"{}\"}}",
                one.replica
            );
            (labels, one)
        })
        .collect();
    let help = "Operations that another member has not acknowledged.";
    let lacks = rows.iter().map(|(labels, one)| (labels.clone(), one.lacks));
    page.rows("upcall_replica_member_lacks_operations", ("gauge", help), lacks);
    let help = "Whether each other member is connected.";
    let up = rows.iter().map(|(labels, one)| (labels.clone(), u8::from(one.is_connected)));
    page.rows("upcall_replica_member_up", ("gauge", help), up);
}

fn storelets(page: &mut Page, totals: &storelet::Totals) {
    let storelet::Totals { ended, used, waited_ns, compile_ns } = totals;
    let ended = ended.iter().map(|(end, count)| (format!("{{end=\"{end}\"}}"), *count));
    let help = "Storelets, or chains of them, that have ended, by how.";
    page.rows("upcall_storelets_ended_total", ("counter", help), ended);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let label = |name: &str| format!("{{kind=\"{name}\"}}");
    let times = [("own", used.cpu_ns), ("server", used.served_ns), ("compile", *compile_ns)];
    let times = times.map(|(name, ns)| (label(name), seconds(ns)));
    let help = "Processor time of storelets that have ended: their own, the server's for them, and \
                that of compiling.";
    page.rows("upcall_storelet_cpu_seconds_total", ("counter", help), times);
    let help = "How long they waited for compilation and memory.";
    page.one("upcall_storelet_waited_seconds_total", ("counter", help), seconds(*waited_ns));
    let help = "Requests of theirs to the file system.";
    page.one("upcall_storelet_requests_total", ("counter", help), used.operations);
    let bytes = [
        ("read", used.read),
        ("written", used.written),
        ("input", used.input),
        ("output", used.output),
    ];
    let help = "Bytes read from files, written to files, of input and of output.";
    let bytes = bytes.map(|(name, count)| (label(name), count));
    page.rows("upcall_storelet_bytes_total", ("counter", help), bytes);
}

fn names(page: &mut Page, node: &Node, report: &Report) {
    let (points, unions) = node.names.points();
    let help = "Directories that have others in their place.";
    page.one("upcall_names_points", ("gauge", help), points);
    let help = "Those of them that are unions.";
    page.one("upcall_names_unions", ("gauge", help), unions);
    let commands = report.traffic.commands().map(|(is_done, count)| {
        (format!("{{result=\"{}\"}}", if is_done { "done" } else { "failed" }), count)
    });
    let help = "Writes to /.upcall/names by whether all their lines were carried out.";
    page.rows("upcall_names_commands_total", ("counter", help), commands);
}

fn stages(page: &mut Page, stages: &Stages) {
    let name = "upcall_stage_seconds";
    page.head(name, "histogram", "How long each stage of a request takes.");
    for (stage, histogram) in stages.all() {
        for (bound, count) in buckets(histogram) {
            let bound = bound.as_secs_f64();
            writeln!(page.text, "{name}_bucket{{stage=\"{stage}\",le=\"{bound}\"}} {count}")
                .expect("a string");
        }
        let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
        writeln!(
            page.text,
            "{name}_bucket{{stage=\"{stage}\",le=\"+Inf\"}} {count}\n\
             {name}_sum{{stage=\"{stage}\"}} {sum}\n{name}_count{{stage=\"{stage}\"}} {count}"
        )
        .expect("a string");
    }
}

/// Returns each bound with the cumulative count up to it.
fn buckets(histogram: &Histogram) -> impl Iterator<Item = (Duration, u64)> {
    let mut edges = histogram.edges().peekable();
    let mut below = 0;
    BOUNDS.map(|exponent| Duration::from_nanos(1 << exponent)).map(move |bound| {
        while let Some((_, count)) = edges.next_if(|(edge, _)| *edge <= bound) {
            below += count;
        }
        (bound, below)
    })
}
