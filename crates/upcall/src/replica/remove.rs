//! `upcall replica remove`: removes replicas from a service.
#![allow(clippy::disallowed_methods, reason = "a command waits in real time")]

use super::op_session::place;
use super::report::{Change, Report};
use super::{gate, key};
use crate::remote::frame::{self, Frame};
use crate::remote::{At, Outcome, Trouble};
use crate::units;
use clap::Args;
use replica::service::{ChangeRequest, ReplicaId};
use services::{Answer, PeerMessage, Reader, Settings, VERDICT};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of the server, seconds.
const TIMEOUT: f64 = 30.0;

/// Polling interval of the members' agreement.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `upcall replica remove`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Remove {
    /// Key file of the service, created by 'upcall replica init'
    #[arg(value_name = "KEY")]
    key: PathBuf,

    /// Numbers of the replicas
    #[arg(value_name = "ID", required = true)]
    ids: Vec<u16>,

    #[command(flatten)]
    at: At,

    /// Treat these replicas as lost for good: continue without the operations known only to them.
    /// Without --lost they must be running, and leave when the others have all their operations
    #[arg(long)]
    lost: bool,

    /// Allow the loss of half of the replicas or more. Make sure that the lost ones do not continue
    /// on their own: the operations of the two sides can never be merged
    #[arg(long, requires = "lost")]
    force: bool,

    /// Maximum time to wait for the agreement of all others: 5s, 500ms, 2m, or seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::time)]
    wait: Duration,
}

/// Requests the removal, and waits until it is effective.
pub(crate) fn run(remove: &Remove) -> Result<ExitCode, String> {
    let key = key::read(&remove.key)?;
    let server = place(&remove.at, &key.service, TIMEOUT);
    Ok(frame::run(&server, false, |frame| {
        let ids: BTreeSet<ReplicaId> = remove.ids.iter().copied().map(ReplicaId).collect();
        let before = Report::read(frame)?;
        if ids.contains(&before.replica) {
            let text =
                format!("this is replica {}: ask one that stays, with --at", before.replica.0);
            return Err(Trouble::Host(text));
        }
        let change_request = match remove.lost {
            true => ChangeRequest {
                lost: ids.clone(),
                forced: remove.force,
                ..ChangeRequest::default()
            },
            false => ChangeRequest { remove: ids.clone(), ..ChangeRequest::default() },
        };
        ask(frame, &key, before.replica, &change_request)?;
        frame.if_interrupted("the change continues; check the status of the replicas".to_string());
        wait(frame, remove.wait, &ids, || ask(frame, &key, before.replica, &change_request))
    }))
}

/// Proves knowledge of the secret, and sends the request.
fn ask(
    frame: &Frame,
    key: &Settings,
    to: ReplicaId,
    change_request: &ChangeRequest,
) -> Outcome<()> {
    let (peer, mut seals) = gate::enter(frame, key, to)?;
    let peer_message =
        seals.ours.frame(&PeerMessage::ChangeRequest(change_request.clone()).bytes());
    let mut written = 0;
    while written < peer_message.len() {
        written += peer.write_at(&peer_message[written..], written as u64)?;
    }
    let (mut reader, mut read) = (Reader::new(seals.theirs), 0);
    loop {
        let part = gate::read(&peer, VERDICT + read, 4096)?;
        read += part.len();
        let answer = match reader.take(&part) {
            Ok(None) if !part.is_empty() => continue,
            Ok(whole) => whole.and_then(|bytes| Answer::read(&bytes).ok()),
            Err(_) => None,
        };
        return match answer {
            Some(Answer::Yes) => Ok(()),
            Some(Answer::No(why)) => Err(Trouble::Host(why)),
            Some(Answer::Begin(_)) | None => {
                let text = "invalid answer: does it have another version of upcall, or are its \
                            messages altered?";
                Err(Trouble::Host(text.to_string()))
            }
        };
    }
}

/// Waits until all remaining members have a membership without these. Another change that all
/// agreed to first may have cancelled this one: then the request is repeated.
fn wait(
    frame: &Frame,
    most: Duration,
    gone: &BTreeSet<ReplicaId>,
    again: impl Fn() -> Outcome<()>,
) -> Outcome<ExitCode> {
    let begun = Instant::now();
    loop {
        let report = Report::read(frame)?;
        let is_so = !report.members.iter().any(|member| gone.contains(&member.replica));
        if is_so && report.settled {
            let names = services::list(report.members.iter().map(|member| member.replica));
            let epoch = report.epoch;
            frame::emit(&format!("epoch {epoch}: the members are replicas {names}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let clash = report.change.as_ref().and_then(|change| change.clash.clone());
        if let Some(clash) = clash.filter(|_| !is_so) {
            return Err(Trouble::Host(clash));
        }
        if begun.elapsed() > most {
            return Err(Trouble::Host(late(report.change, is_so)));
        }
        if !is_so && report.change.is_none() {
            again()?;
        }
        thread::sleep(LOOK);
    }
}

/// Returns the reason of a delay.
fn late(change: Option<Change>, is_so: bool) -> String {
    let waits = change.map(|change| change.waits_for).unwrap_or_default();
    let whom = match (waits.is_empty(), is_so) {
        (false, _) => format!("replica {} has not agreed", services::list(waits)),
        (true, false) => "operations of the removed members have not arrived".to_string(),
        (true, true) => "not all remaining members have acknowledged it".to_string(),
    };
    format!(
        "the change is pending, but {whom}; check whether they run and are reachable, and pass \
         one that is gone with --lost"
    )
}
