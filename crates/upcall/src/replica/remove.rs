//! `upcall replica remove`: fewer replicas of a service.
#![allow(clippy::disallowed_methods, reason = "a command waits in real time")]

use super::key;
use super::report::Report;
use super::talk::place;
use crate::remote::frame::{self, Frame};
use crate::remote::{At, Outcome, Trouble};
use clap::Args;
use client::OpenOptions;
use replica::service::{ReplicaId, Wish};
use services::{CHALLENGE, Letter, Settings};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How long the server may say nothing, seconds.
const PATIENCE: f64 = 30.0;

/// How often is looked whether all have agreed.
const LOOK: Duration = Duration::from_millis(50);

/// Which are to go.
#[derive(Args, Clone, Debug)]
pub(crate) struct Remove {
    /// The key of the service, which 'upcall replica init' has made
    #[arg(value_name = "KEY")]
    key: PathBuf,

    /// The numbers of the replicas
    #[arg(value_name = "ID", required = true)]
    ids: Vec<u16>,

    #[command(flatten)]
    at: At,

    /// They will never be heard again: go on without what only they have. Without this they must
    /// run, and leave when the others have all that they have
    #[arg(long)]
    lost: bool,

    /// Even if half of the replicas or more are lost. Make sure that they do not go on by
    /// themselves: what each side does then will never come together
    #[arg(long, requires = "lost")]
    force: bool,

    /// How long to wait until all others have agreed, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    wait: f64,
}

/// Asks for it, and waits until it is so.
pub(crate) fn run(remove: &Remove) -> Result<ExitCode, String> {
    let key = key::read(&remove.key)?;
    let server = place(&remove.at, &key.service, PATIENCE);
    Ok(frame::run(&server, false, |frame| {
        let ids: BTreeSet<ReplicaId> = remove.ids.iter().copied().map(ReplicaId).collect();
        let before = Report::read(frame)?;
        if ids.contains(&before.replica) {
            let text =
                format!("this is replica {}: ask one that stays, with --at", before.replica.0);
            return Err(Trouble::Host(text));
        }
        let wish = match remove.lost {
            true => Wish { lost: ids.clone(), forced: remove.force, ..Wish::default() },
            false => Wish { remove: ids.clone(), ..Wish::default() },
        };
        ask(frame, &key, before.replica, wish)?;
        frame.if_interrupted("the change goes on: see the status of the replicas".to_string());
        wait(frame, remove.wait, &ids)
    }))
}

/// Proves to know the secret, and says what is wished.
fn ask(frame: &Frame, key: &Settings, to: ReplicaId, wish: Wish) -> Outcome<()> {
    let options = OpenOptions::new().read(true).write(true);
    let peer = frame.client.open_with(Path::new("/peer"), options)?;
    let mut challenge = [0; CHALLENGE];
    let count = peer.read_at(&mut challenge, 0)?;
    peer.write_at(&services::proof(key, to, &challenge[..count]), 0)?;
    let letter = Letter::Wish(wish).frame();
    let mut written = 0;
    while written < letter.len() {
        written += peer.write_at(&letter[written..], written as u64)?;
    }
    let mut answer = vec![0; 4096];
    let count = peer.read_at(&mut answer, 0)?;
    match count {
        0 => Ok(()),
        count => Err(Trouble::Host(String::from_utf8_lossy(&answer[..count]).into_owned())),
    }
}

/// Waits until all who stay are in a membership without these.
fn wait(frame: &Frame, seconds: f64, gone: &BTreeSet<ReplicaId>) -> Outcome<ExitCode> {
    let (begun, most) = (Instant::now(), Duration::try_from_secs_f64(seconds).unwrap_or_default());
    loop {
        let report = Report::read(frame)?;
        let is_so = !report.members.iter().any(|member| gone.contains(&member.replica));
        if is_so && report.settled {
            let names = services::list(report.members.iter().map(|member| member.replica));
            let epoch = report.epoch;
            frame::say(&format!("epoch {epoch}: the members are replicas {names}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if begun.elapsed() > most {
            let waits = report.change.map(|change| change.waits_for).unwrap_or_default();
            let whom = match (waits.is_empty(), is_so) {
                (false, _) => format!("replica {} has not agreed", services::list(waits)),
                (true, false) => "what those who go have done has not arrived".to_string(),
                (true, true) => "not all who stay have said that they know it".to_string(),
            };
            return Err(Trouble::Host(format!(
                "the change is under way, but {whom}: see whether they run and can be reached; \
                 one that will not, say it with --lost"
            )));
        }
        thread::sleep(LOOK);
    }
}
