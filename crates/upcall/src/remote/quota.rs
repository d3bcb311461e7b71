//! `upcall quota`: quotas of directories and users of a volume.
//!
//! Quotas are extended attributes of the directory, or for users of the volume's root, as
//! `tree/src/volume/quota.rs` describes; so `setfattr` on a mount sets them as well.

use super::frame::{self, Frame};
use super::{Outcome, Server, Trouble, say_json};
use crate::size::{self, count, show};
use crate::units;
use clap::Args;
use client::{Client, Error};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Attribute of a directory's quota; those of users end with `.user.` and the uid.
const OF_DIRECTORY: &str = "trusted.upcall.quota";
/// Attribute of the root of a volume with all its quotas.
const ALL: &str = "trusted.upcall.quotas";

/// Options of `upcall quota`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Quota {
    #[command(flatten)]
    server: Server,

    /// Directory; with --owner or --list, the root of the volume
    #[arg(value_name = "PATH", default_value = "/")]
    path: PathBuf,

    /// Quota of the user with this number, for all files of the volume owned by the user
    #[arg(long, value_name = "UID", value_parser = clap::value_parser!(u32).range(..0xffff_ffff))]
    owner: Option<u32>,

    /// Maximum space for file contents, like 10G, or none
    #[arg(long, value_name = "SIZE", value_parser = limit_of_size)]
    size: Option<u64>,

    /// Maximum number of files and directories, or none
    #[arg(long, value_name = "NUMBER", value_parser = limit_of_files)]
    files: Option<u64>,

    /// Remove the quota
    #[arg(long, conflicts_with_all = ["size", "files"])]
    remove: bool,

    /// List all quotas of the volume
    #[arg(long, conflicts_with_all = ["size", "files", "remove", "owner"])]
    list: bool,

    /// Print the result as JSON: sizes in bytes, null for no limit
    #[arg(long)]
    json: bool,
}

fn limit_of_size(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(NONE) } else { size::parse(text) }
}

fn limit_of_files(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(NONE);
    }
    units::count(text).map_err(|_| "write a number like 100000 or 100k, or none".to_string())
}

/// A quota in the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Shown {
    /// Path of the directory, or its inode in a list of all.
    directory: Option<String>,
    owner: Option<u32>,
    size_max: Option<u64>,
    size_used: u64,
    files_max: Option<u64>,
    files_used: u64,
    /// Whether existing files are counted: until then the limits are not enforced. Unknown if the
    /// file system stores any attribute.
    counted: Option<bool>,
}

impl Shown {
    /// Parses the value of an attribute, or a line of the list.
    fn parse(text: &str) -> Option<Shown> {
        let mut shown = Shown {
            directory: None,
            owner: None,
            size_max: None,
            size_used: 0,
            files_max: None,
            files_used: 0,
            counted: None,
        };
        for word in text.split_ascii_whitespace() {
            let (name, value) = word.split_once('=')?;
            let limit = |value: &str| match value {
                "none" => Some(None),
                number => number.parse().ok().map(Some),
            };
            match name {
                "user" => shown.owner = Some(value.parse().ok()?),
                "inode" => shown.directory = Some(format!("inode {}", value.parse::<u64>().ok()?)),
                "max_bytes" => shown.size_max = limit(value)?,
                "max_inodes" => shown.files_max = limit(value)?,
                "used_bytes" => shown.size_used = value.parse().ok()?,
                "used_inodes" => shown.files_used = value.parse().ok()?,
                "state" => shown.counted = Some(value == "enforced"),
                // From a newer server.
                _other => {}
            }
        }
        Some(shown)
    }

    /// Returns the cells of its row.
    fn row(&self) -> [String; 5] {
        let limit = |limit: Option<u64>, show: fn(u64) -> String| match limit {
            Some(most) => show(most),
            None => "none".to_string(),
        };
        let of = match (&self.directory, self.owner) {
            (_, Some(uid)) => format!("user {uid}"),
            (Some(directory), None) => directory.escape_debug().to_string(),
            (None, None) => String::new(),
        };
        let counting = if self.counted == Some(true) { "" } else { ", counting files" };
        [
            show(self.size_used),
            limit(self.size_max, show),
            count(self.files_used),
            limit(self.files_max, count),
            of + counting,
        ]
    }
}

/// Shows, sets or removes a quota.
pub(crate) fn run(quota: &Quota) -> ExitCode {
    frame::run(&quota.server, false, |frame| {
        let shown = match quota.list {
            true => all(&frame.client, &quota.path)?,
            false => one(frame, quota)?.into_iter().collect(),
        };
        match quota.json {
            true => say_json(&shown)?,
            false if shown.is_empty() => {}
            false => frame::emit(&table(&shown))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn all(client: &Client, path: &Path) -> Outcome<Vec<Shown>> {
    let mut all = Vec::new();
    for part in 0.. {
        let name = if part == 0 { ALL.to_string() } else { format!("{ALL}.{part}") };
        let text = client.attribute(path, &name);
        let text = text.map_err(|error| explain(error, path, Action::List))?;
        if text.is_empty() {
            break;
        }
        for line in String::from_utf8_lossy(&text).lines() {
            all.push(Shown::parse(line).ok_or_else(|| unreadable(path))?);
        }
    }
    Ok(all)
}

/// Changes one quota if requested; returns the quota, unless it was removed.
fn one(frame: &Frame, quota: &Quota) -> Outcome<Option<Shown>> {
    let (client, path) = (&frame.client, &quota.path);
    if quota.remove {
        let removed = client.remove_attribute(path, &quota.attribute());
        removed.map_err(|error| explain(error, path, Action::Remove))?;
        return Ok(None);
    }
    let before = quota.read(client)?;
    if quota.size.is_none() && quota.files.is_none() {
        return before.map(Some).ok_or_else(|| {
            Trouble::Host(format!(
                "{} has no quota that this user may see; in a volume, set one with --size or \
                 --files, or attach as root: '--as 0', by the unix socket of the server",
                match quota.owner {
                    Some(uid) => format!("user {uid}"),
                    None => path.display().to_string(),
                }
            ))
        });
    }
    let kept = |known: fn(&Shown) -> Option<u64>| before.as_ref().and_then(known).unwrap_or(NONE);
    let size = quota.size.unwrap_or_else(|| kept(|it| it.size_max));
    let files = quota.files.unwrap_or_else(|| kept(|it| it.files_max));
    let value = format!("max_bytes={} max_inodes={}", limit(size), limit(files));
    let set = client.set_attribute(path, &quota.attribute(), value.as_bytes());
    set.map_err(|error| explain(error, path, Action::Set))?;
    let after = quota.read(client)?.ok_or_else(|| unreadable(path))?;
    if after.counted.is_some() {
        return Ok(Some(after));
    }
    // The file system stores any attribute; this one has no effect there.
    if before.is_none() {
        let removed = client.remove_attribute(path, &quota.attribute());
        removed.map_err(|error| explain(error, path, Action::Remove))?;
    }
    let path = path.display();
    Err(Trouble::Host(format!("cannot set the quota of {path}: {NOT_A_VOLUME}")))
}

impl Quota {
    /// Returns the name of the attribute.
    fn attribute(&self) -> String {
        match self.owner {
            Some(uid) => format!("{OF_DIRECTORY}.user.{uid}"),
            None => OF_DIRECTORY.to_string(),
        }
    }

    /// Returns the quota, if there is one visible to this user.
    fn read(&self, client: &Client) -> Outcome<Option<Shown>> {
        match client.attribute(&self.path, &self.attribute()) {
            Ok(text) => {
                let shown = Shown::parse(&String::from_utf8_lossy(&text));
                Ok(Some(self.named(shown.ok_or_else(|| unreadable(&self.path))?)))
            }
            Err(error) if error.is_no_attribute() => Ok(None),
            Err(error) => Err(explain(error, &self.path, Action::Show)),
        }
    }

    /// Adds the directory or owner.
    fn named(&self, shown: Shown) -> Shown {
        match self.owner {
            Some(_) => Shown { owner: self.owner, ..shown },
            None => {
                let directory = Some(self.path.to_string_lossy().into_owned());
                Shown { directory, ..shown }
            }
        }
    }
}

/// Value of no limit.
const NONE: u64 = u64::MAX;

const NOT_A_VOLUME: &str = "it is not on a volume of Upcall; only these have quotas";

fn limit(limit: u64) -> String {
    if limit == NONE { "none".to_string() } else { limit.to_string() }
}

fn unreadable(path: &Path) -> Trouble {
    let path = path.display();
    Trouble::Host(format!(
        "cannot understand the quota of {path}: is the server newer than this program?"
    ))
}

/// The refused request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Show,
    List,
    Set,
    Remove,
}

fn explain(error: Error, path: &Path, doing: Action) -> Trouble {
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    const EROFS: u32 = 30;
    const ENOTDIR: u32 = 20;
    const EOPNOTSUPP: u32 = 95;
    let shown = path.display();
    let advice = match (error.errno(), doing) {
        _ if error.is_fatal() || matches!(error, Error::Unsupported { .. }) => return error.into(),
        (ENOSPC, Action::Set) => "a volume has at most 4,096 quotas",
        (EROFS, _) => "nothing can be changed there",
        (EINVAL, Action::Set) => {
            "a directory above has a quota already, or it is not the root of the volume, which \
             the quotas of users want"
        }
        (ENOTDIR, Action::Set) => "name a directory",
        (EOPNOTSUPP, _) => NOT_A_VOLUME,
        _ if error.is_no_attribute() && doing == Action::List => {
            "attach as root ('--as 0', by the unix socket of the server), and name the root of a \
             volume"
        }
        _ if error.is_no_attribute() => "no quota is set; --list shows all",
        _ if error.is_not_permitted() => {
            "attach as root: '--as 0', by the unix socket of the server"
        }
        _other => return error.into(),
    };
    let doing = match doing {
        Action::Show => "show the quota of",
        Action::List => "list the quotas of",
        Action::Set => "set the quota of",
        Action::Remove => "remove the quota of",
    };
    Trouble::Host(format!("cannot {doing} {shown}: {advice}"))
}

/// Returns rows below a header.
fn table(all: &[Shown]) -> String {
    frame::table(["used", "limit", "files", "limit", "of"], all.iter().map(Shown::row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_units() {
        assert_eq!((limit_of_files("1k"), limit_of_files("none")), (Ok(1000), Ok(NONE)));
        assert!(limit_of_files("-1").unwrap_err().contains("100k"));
    }

    #[test]
    fn quotas_are_rows() {
        let reply = "max_bytes=10737418240 max_inodes=none used_bytes=4096 used_inodes=1200 \
                     state=enforced";
        let one = Shown::parse(reply).expect("it is one");
        let two = Shown::parse(
            "user=7 max_bytes=none max_inodes=5 used_bytes=0 used_inodes=0 state=counting future=1",
        );
        let one = Shown { directory: Some("/a".to_string()), ..one };
        assert_eq!(
            table(&[one, two.expect("it is one")]),
            "   used   limit  files  limit  of\n\
             \x20 4 KiB  10 GiB  1,200   none  /a\n\
             0 bytes    none      0      5  user 7, counting files\n"
        );
        for text in ["max_bytes", "max_bytes=x", "user=-1"] {
            assert_eq!(Shown::parse(text), None, "{text}");
        }
    }
}
