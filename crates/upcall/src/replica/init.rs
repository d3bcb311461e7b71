//! `upcall replica init`: the replicas of a new service.

use super::key;
use crate::clock;
use crate::size;
use crate::units;
use crate::volume::create::Create;
use clap::Args;
use replica::data::Kind;
use replica::service::{MEMBERS_MAX, ReplicaId};
use services::settings::{REMOVE_AFTER_MIN, check_name, version};
use services::{ADMINISTRATOR, Secret, Settings};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Options of `upcall replica init`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Init {
    /// Name of the service, available to clients at /services/NAME
    #[arg(value_name = "NAME")]
    service: String,

    /// Type of the replicated data
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    kind: Kind,

    /// 9P addresses of the servers of the replicas, one for each replica, like
    /// 192.0.2.1:5640,192.0.2.2:5640,192.0.2.3:5640
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', required = true)]
    members: Vec<String>,

    /// Directory for the new files NAME.key, NAME.1.replica, NAME.2.replica, …
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Remove a member, by agreement of all others, after this time without a message from it, like
    /// 30s: hung process, server down or network partition. Operations known only to it are then
    /// lost, and it accepts no more. Requires three members or more; only one is removed at a time.
    /// Cannot be set for an existing service, and all servers must run this version of upcall
    #[arg(long, value_name = "TIME", value_parser = remove_after)]
    remove_after: Option<Duration>,

    /// Maximum size of each file, like 8G or 512M; about a hundredth is allocated at once, and more
    /// as it is filled [default: 16G, or half of the free space if that is less]
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
}

fn remove_after(text: &str) -> Result<Duration, String> {
    let (time, least) = (units::time(text)?, REMOVE_AFTER_MIN.as_secs());
    match time >= REMOVE_AFTER_MIN {
        true => Ok(time),
        false => Err(format!("a restarting server is silent as well; use {least}s or more")),
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    let known = Kind::ALL.iter().map(Kind::name).collect::<Vec<_>>().join(", ");
    Kind::named(text).ok_or_else(|| format!("use one of: {known}"))
}

/// Creates the files and prints how to use them.
pub(crate) fn run(init: &Init) -> Result<ExitCode, String> {
    check_name(&init.service)?;
    if init.members.len() > MEMBERS_MAX {
        return Err(format!("a service has at most {MEMBERS_MAX} replicas: leave some out"));
    }
    for (place, address) in init.members.iter().enumerate() {
        super::kept::addresses(address)?;
        if address.ends_with(":0") {
            return Err(format!("{address} has no port; add one"));
        }
        if init.members[..place].contains(address) {
            return Err(format!("{address} is given twice; each replica needs its own server"));
        }
    }
    let members = (1..).map(ReplicaId).zip(init.members.iter().cloned());
    let members: BTreeMap<ReplicaId, String> = members.collect();
    let random = |error: io::Error| format!("no random number: {error}");
    let secret = Secret(clock::random_bytes().map_err(random)?);
    let id = u32::from_le_bytes(clock::random_bytes().map_err(random)?);
    let settings = |me| Settings {
        version: version(init.remove_after),
        id,
        service: init.service.clone(),
        kind: init.kind,
        me,
        members: members.clone(),
        joins: false,
        remove_after: init.remove_after,
        secret: secret.clone(),
    };
    let key = init.dir.join(format!("{}.key", init.service));
    let mut made = Vec::new();
    let files = make(init, &key, &members, settings, &mut made).inspect_err(|_| {
        // They are unused: removing them makes room for another attempt.
        made.iter().for_each(|path| drop(std::fs::remove_file(path)));
    })?;
    for (file, address) in files.iter().zip(members.values()) {
        crate::output::out(format_args!("{}", super::created(file, address, "")));
    }
    out_line!("created {}; with it, replicas are added and removed", key.display());
    out_line!("each file has the secret by which the replicas know each other: keep them private");
    out_line!("a replica lives in one place: never start one from a copy of its file");
    if init.remove_after.is_some() && members.len() < 3 {
        out_line!("of fewer than three members none is removed: --remove-after does nothing yet");
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the key and the files of the replicas; `made` receives the created ones, even after a
/// failure.
fn make(
    init: &Init,
    key: &Path,
    members: &BTreeMap<ReplicaId, String>,
    settings: impl Fn(ReplicaId) -> Settings,
    made: &mut Vec<PathBuf>,
) -> Result<Vec<PathBuf>, String> {
    key::write(key, &settings(ADMINISTRATOR))?;
    made.push(key.to_path_buf());
    let mut files = Vec::new();
    for me in members.keys() {
        let file = init.dir.join(format!("{}.{}.replica", init.service, me.0));
        // A block device existed before, and stays.
        let is_new = std::fs::symlink_metadata(&file).is_err();
        Create::of_replica(&file, init.size, settings(*me)).make()?;
        made.extend(is_new.then(|| file.clone()));
        files.push(file);
    }
    Ok(files)
}
