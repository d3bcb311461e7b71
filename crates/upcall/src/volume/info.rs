//! `upcall volume info`: properties and contents of a volume; changes nothing.

use super::direct::Direct;
use super::file;
use super::served::{self, Served};
use crate::clock;
use crate::size::{self, count, show};
use base::Time;
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Layout, SnapshotId};

/// Options of `upcall volume info`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Info {
    /// Volume to show
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A snapshot in the output.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SnapshotFacts {
    pub(crate) name: String,
    pub(crate) date: String,
    pub(crate) epoch: u64,
}

impl SnapshotFacts {
    pub(crate) fn new((name, SnapshotId(epoch), date): (&[u8], SnapshotId, Time)) -> SnapshotFacts {
        let name = String::from_utf8_lossy(name).into_owned();
        SnapshotFacts { name, date: clock::iso(date), epoch }
    }
}

/// All properties.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    path: String,
    /// The process that uses the volume, if any; then all else is as of the newest checkpoint.
    served: Option<Served>,
    version: u32,
    id: String,
    created: String,
    epoch: u64,
    block_bytes: usize,
    bytes: u64,
    journal_bytes: u64,
    /// Unknown for a volume used by another process.
    journal_used_bytes: Option<u64>,
    segment_bytes: u64,
    space_bytes: u64,
    pub(crate) used_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    pub(crate) files: u64,
    pub(crate) recovered_transactions: usize,
    pub(crate) snapshots: Vec<SnapshotFacts>,
}

impl Facts {
    /// Returns the properties of an open volume.
    ///
    /// # Errors
    /// The next step for a damaged one.
    pub(crate) fn of(path: &Path, direct: &mut Direct) -> Result<Facts, String> {
        let full = direct.stat_fs();
        let full = full.map_err(|_| file::explain(path, store::Error::Damaged))?;
        let store = direct.store();
        let (superblock, space, counts) = (store.superblock(), store.space(), store.counts());
        let Layout { block, blocks, journal, segment, .. } = superblock.layout;
        let bytes = |blocks: u64| blocks * block as u64;
        let recovered = store.recovered();
        Ok(Facts {
            path: path.display().to_string(),
            served: None,
            version: superblock.version(),
            id: format!("{:016x}", superblock.volume),
            created: clock::iso(superblock.created),
            epoch: superblock.epoch,
            block_bytes: block,
            bytes: bytes(blocks),
            journal_bytes: bytes(journal),
            journal_used_bytes: Some(bytes(counts.journal.0)),
            segment_bytes: bytes(segment),
            space_bytes: bytes(space.blocks),
            used_bytes: bytes(space.blocks - space.blocks_free.min(space.blocks)),
            free_bytes: bytes(space.blocks_free),
            available_bytes: bytes(space.blocks_available),
            files: full.files - full.files_free.min(full.files),
            recovered_transactions: recovered,
            snapshots: store.snapshots().map(SnapshotFacts::new).collect(),
        })
    }

    /// Returns the line of a greeting.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            "{}, {} used, {}, {}, epoch {}",
            show(self.bytes),
            show(self.used_bytes),
            size::counted(self.files, "file", "files"),
            size::counted(self.snapshots.len() as u64, "snapshot", "snapshots"),
            self.epoch
        );
        if self.recovered_transactions > 0 {
            let number = self.recovered_transactions as u64;
            line +=
                &format!("; recovered {}", size::counted(number, "transaction", "transactions"));
        }
        line
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "volume     {}", self.path)?;
        if let Some(served) = &self.served {
            writeln!(f, "served     by {served}; this is the state of checkpoint {}", self.epoch)?;
        }
        writeln!(f, "format     version {}, id {}", self.version, self.id)?;
        writeln!(f, "created    {}", self.created)?;
        writeln!(
            f,
            "size       {}, blocks of {}",
            show(self.bytes),
            show(self.block_bytes as u64)
        )?;
        let (used, free) = (show(self.used_bytes), show(self.free_bytes));
        let (available, all) = (show(self.available_bytes), show(self.space_bytes));
        writeln!(f, "space      {used} used, {free} free, {available} for new data, of {all}")?;
        writeln!(f, "files      {}", count(self.files))?;
        let all = show(self.journal_bytes);
        match (self.journal_used_bytes, self.recovered_transactions as u64) {
            (None, _) => writeln!(f, "journal    {all}, in use")?,
            (Some(used), 0) => writeln!(f, "journal    {} used of {all}", show(used))?,
            (Some(used), n) => writeln!(
                f,
                "journal    {} used of {all}: {} to be applied again",
                show(used),
                size::counted(n, "transaction", "transactions")
            )?,
        }
        writeln!(f, "epoch      {}", self.epoch)?;
        writeln!(f, "snapshots  {}", self.snapshots.len())?;
        list(f, &self.snapshots, "           ")
    }
}

/// Writes snapshots, one a line.
pub(crate) fn list(f: &mut impl fmt::Write, all: &[SnapshotFacts], indent: &str) -> fmt::Result {
    let width = all.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    for SnapshotFacts { name, date, epoch } in all {
        writeln!(f, "{indent}{name:width$}  {date}  epoch {epoch}")?;
    }
    Ok(())
}

/// Prints the properties of a volume.
pub(crate) fn run(info: &Info) -> Result<ExitCode, String> {
    let facts = served::look(&info.file, |opened, served| {
        let facts = Facts::of(&info.file, &mut Direct::new(opened, true))?;
        let known = facts.journal_used_bytes.filter(|_| served.is_none());
        Ok(Facts { served: served.cloned(), journal_used_bytes: known, ..facts })
    })?;
    match info.json {
        true => out_line!("{}", crate::output::json(&facts)),
        false => crate::output::out(format_args!("{facts}")),
    }
    Ok(ExitCode::SUCCESS)
}
