//! Status of a replica and its peers, for people and for programs.

use crate::files::{STABLE, STATUS, STATUS_JSON, VALUE};
use crate::hosted::{FULL, Hosted};
use crate::members::{aim, explain_clash, list};
use crate::op_session::show_vector;
use crate::peer_link::{PeerLink, SILENT};
use crate::show::show;
use replica::data::Kind;
use replica::service::ReplicaId;
use serde::Serialize;
use std::fmt::Write as _;

/// Status of a replica.
#[derive(Debug, Serialize)]
struct Status<'a> {
    service: &'a str,
    kind: Kind,
    replica: ReplicaId,
    /// Epoch number of its membership.
    epoch: u64,
    /// Whether all members have confirmed that epoch, and no change is in progress.
    settled: bool,
    /// Change of members in progress.
    change: Option<PendingChange>,
    /// Removal timeout of a silent member in seconds; `None` disables removal.
    remove_after: Option<f64>,
    /// Smallest number not used by any replica so far.
    next_replica: u16,
    /// Operations done here, by origin.
    done: String,
    /// Operations durable in the journal.
    kept: String,
    /// Number of operations done here and not final.
    unfinal: usize,
    /// Number of operations retained for peers that lack them.
    held: usize,
    /// Bytes of records, and of the last snapshot.
    journal: (usize, usize),
    /// Reason why nothing more can be stored.
    failed: Option<String>,
    members: Vec<Member<'a>>,
}

/// Change of members in progress.
#[derive(Debug, Serialize)]
struct PendingChange {
    /// Description for people.
    #[serde(skip)]
    aim: String,
    members: Vec<ReplicaId>,
    lost: Vec<ReplicaId>,
    /// Members not known to have agreed.
    waits_for: Vec<ReplicaId>,
    /// Conflict with a change requested from another replica.
    clash: Option<String>,
}

/// Member of the service.
#[derive(Debug, Serialize)]
struct Member<'a> {
    replica: ReplicaId,
    address: &'a str,
    /// State of the link to it; `None` for this replica itself.
    link: Option<&'static str>,
    /// Operations that it has acknowledged.
    has: String,
    /// Number of operations retained here that it has not acknowledged.
    lacks: u64,
}

/// Counts of a replica, for metrics.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Name of the service.
    pub service: String,
    /// Number of the replica.
    pub replica: u16,
    /// Operations done here and not final.
    pub unfinal: usize,
    /// Operations retained for members that lack them.
    pub kept: usize,
    /// Other members.
    pub members: Vec<MemberCounts>,
}

/// Counts of another member.
#[derive(Clone, Debug)]
pub struct MemberCounts {
    /// Number of the replica.
    pub replica: u16,
    /// Operations that it has not acknowledged.
    pub lacks: u64,
    /// Whether it is connected, and replies.
    pub is_connected: bool,
}

impl Hosted {
    /// Takes the next message about a peer connection, and whether it is good news.
    pub fn next_connection_report(&mut self) -> Option<(bool, String)> {
        let service = &self.settings.service;
        self.links.iter_mut().find_map(|(id, link)| {
            let (is_good, news) = link.next_report()?;
            let text = format!("{service}: replica {} ({}): {news}", id.0, link.remote.name());
            Some((is_good, text))
        })
    }

    /// Returns the counts for metrics.
    pub fn counts(&self) -> Counts {
        let status = self.status();
        let others = status.members.iter().filter_map(|member| {
            let is_connected = self.links.get(&member.replica)?.is_well();
            let (replica, lacks) = (member.replica.0, member.lacks);
            Some(MemberCounts { replica, lacks, is_connected })
        });
        Counts {
            service: status.service.to_string(),
            replica: status.replica.0,
            unfinal: status.unfinal,
            kept: status.held,
            members: others.collect(),
        }
    }

    /// Returns the contents of a read-only file, if the remaining work of the turn allows it.
    pub(crate) fn text(&mut self, file: usize) -> Option<Vec<u8>> {
        Some(match file {
            VALUE => {
                self.replica.set_allowance(self.meter.left());
                let is_applied = self.replica.refresh();
                self.meter.spend(self.replica.spent());
                if !is_applied {
                    return None;
                }
                show(self.replica.current().inner(), &mut self.meter)
            }
            STABLE => show(self.replica.stable().inner(), &mut self.meter),
            STATUS => self.status().show().into_bytes(),
            STATUS_JSON => {
                let status = serde_json::to_string_pretty(&self.status());
                format!("{}\n", status.expect("words and numbers are JSON")).into_bytes()
            }
            other => unreachable!("{other} is no text"),
        })
    }

    fn status(&self) -> Status<'_> {
        let has = self.replica.has();
        let broken = self.journal.failed().map(|error| error.to_string());
        let outdated = self.replica.is_outdated().then(|| "an older copy of itself".to_string());
        let full = self.journal.is_full().then(|| FULL.to_string());
        let outside = match (&self.joining, self.replica.is_removed()) {
            (Some(_), _) => {
                let reported = self.links.values().filter_map(|link| link.complaint.clone());
                let reported: Vec<String> = ["not a member yet: join requested".to_string()]
                    .into_iter()
                    .chain(reported)
                    .collect();
                Some(reported.join("; "))
            }
            (None, true) => Some("no member any more".to_string()),
            (None, false) => None,
        };
        let member_state = self.replica.member_state();
        // A removed replica does not learn the outcome of the change.
        let change = member_state.change.as_ref().filter(|_| !self.replica.is_removed());
        let change = change.map(|change| PendingChange {
            aim: aim(change),
            members: change.members.keys().copied().collect(),
            lost: change.lost.iter().copied().collect(),
            waits_for: self.replica.unsealed(),
            clash: self.replica.clash().map(explain_clash),
        });
        let coming = member_state.change.iter().flat_map(|change| change.members.keys().copied());
        let next = self.origins().into_iter().chain(coming).map(|id| id.0).max().unwrap_or(0);
        let members = self.replica.membership().members.iter().map(|(id, address)| {
            let knows = self.replica.knows_of(*id).unwrap_or(has);
            let lacks = has.iter().map(|(of, number)| number.saturating_sub(knows.get(of))).sum();
            let link = self.links.get(id).map(PeerLink::state_name);
            Member { replica: *id, address, link, has: show_vector(knows, " "), lacks }
        });
        Status {
            service: &self.settings.service,
            kind: self.settings.kind,
            replica: self.settings.me,
            epoch: self.replica.membership().epoch.number,
            settled: self.replica.is_settled(),
            change,
            remove_after: self.settings.remove_after.map(|most| most.as_secs_f64()),
            next_replica: next.saturating_add(1),
            done: show_vector(self.replica.done(), " "),
            kept: show_vector(has, " "),
            unfinal: self.replica.suffix().count(),
            held: self.replica.kept(),
            journal: self.journal.sizes(),
            failed: broken.or(outdated).or(full).or(outside),
            members: members.collect(),
        }
    }
}

impl Status<'_> {
    fn show(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, rest: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{name:<9}{rest}");
        };
        line("service", &format_args!("{}, a {}", self.service, self.kind));
        let count = self.members.len();
        line("replica", &format_args!("{}, one of {count}, epoch {}", self.replica.0, self.epoch));
        if let Some(PendingChange { aim, waits_for, clash, .. }) = &self.change {
            let waits = match waits_for.is_empty() {
                true => "nobody".to_string(),
                false => list(waits_for.iter().copied()),
            };
            line("change", &format_args!("to {aim}; not agreed yet: {waits}"));
            if let Some(clash) = clash {
                line("clash", clash);
            }
        }
        if let Some(seconds) = self.remove_after {
            line("removal", &format_args!("of a member that is silent for {seconds} s"));
        }
        line("done", &self.done);
        line("kept", &self.kept);
        line("unfinal", &format_args!("{} operations", self.unfinal));
        line("held", &format_args!("{} operations", self.held));
        let (records, snapshot) = self.journal;
        line("journal", &format_args!("{records} bytes behind a snapshot of {snapshot} bytes"));
        if let Some(failed) = &self.failed {
            line("failed", failed);
        }
        for member in &self.members {
            let id = member.replica.0;
            let Member { address, has, lacks, .. } = member;
            let text = match member.link {
                None => format!("{id}  {address}  this one"),
                Some(link @ ("idle" | "writing")) => {
                    format!("{id}  {address}  {link}, has {has}, lacks {lacks}")
                }
                Some("silent") => {
                    let seconds = SILENT.as_secs();
                    format!("{id}  {address}  silent: no reply for {seconds} s, lacks {lacks}")
                }
                Some(link) => format!("{id}  {address}  {link}: not connected, lacks {lacks}"),
            };
            line("member", &text);
        }
        text
    }
}
