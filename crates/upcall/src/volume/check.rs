//! `upcall volume check`: reads everything and reports damage by the names of files.
//!
//! Nothing is repaired. The journal is applied first, as when opening the volume; that can be
//! disabled. For a volume in use the newest checkpoint is checked, and again if the next one came
//! before all of it was read.

mod prefetch;

use super::file::{self, FileDisk, How};
use super::served::{self, Newest, Served};
use crate::progress::{self, Progress};
use crate::size::{counted, show};
use clap::Args;
use prefetch::Prefetch;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use store::check::{self, Checked, Content, Finding, Verified, Watcher};
use store::drive::Disk as _;
use store::{Config, Error, Superblock, Table};
use tree::volume::verify::{CONTENTS, RECORDS, Verifier};

/// Tables below this number are the store's own.
const OWN_TABLES: u32 = 256;

/// Maximum number of passes over a volume in use, each overtaken by a checkpoint.
const PASSES_MAX: u32 = 32;

/// Options of `upcall volume check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Check {
    /// Volume to check
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Check only metadata, not the contents of files
    #[arg(long)]
    quick: bool,

    /// Write nothing: changes still in the journal are not applied, and not checked
    #[arg(long)]
    read_only: bool,
}

/// Final report.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    /// The process that uses the volume, if any; then a checkpoint was checked without the journal.
    served: Option<Served>,
    /// Epoch of the checkpoint that was checked.
    epoch: u64,
    clean: bool,
    /// Whether everything was checked: no transaction was left in the journal, and nothing was
    /// replaced before it was read.
    is_whole: bool,
    findings: Vec<FoundDamage>,
    lost_bytes: u64,
    /// Actions before the check, and their failures.
    notes: Vec<String>,
    pages: u64,
    data_blocks: u64,
    entries: u64,
    snapshots: u64,
    bytes: u64,
    seconds: f64,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct FoundDamage {
    /// Path of the file concerned; otherwise `volume`.
    path: String,
    what: String,
}

/// Verifies the file tree, and shows progress. For a replica only the store's own records are
/// verified.
struct CheckProgress<'a> {
    is_replica: bool,
    verifier: Verifier,
    progress: &'a mut Progress,
    block: u64,
    quick: bool,
    /// The checkpoint being checked, if another process uses the volume.
    newest: Option<&'a mut Newest>,
}

impl Watcher for CheckProgress<'_> {
    fn entry(&mut self, table: Table, key: &[u8], value: Content<'_>) {
        self.is_replica |= services::is_mark(table, key);
        // The store verifies its own tables.
        if table.0 >= OWN_TABLES && !self.is_replica {
            self.verifier.entry(table, key, value);
        }
    }

    fn wants(&self, table: Table) -> bool {
        self.verifier.wants(table)
    }

    fn reads_data(&self) -> bool {
        !self.quick
    }

    fn progress(&mut self, done: u64, all: u64) {
        let (block, quick) = (self.block, self.quick);
        self.progress.show(|elapsed| {
            let left = progress::left(done, all, elapsed);
            let part = done * 100 / all.max(1);
            match quick {
                true => format!("checking: {part} %{left}"),
                false => {
                    let rate = progress::rate(done * block, elapsed);
                    let (done, all) = (show(done * block), show(all * block));
                    format!("checking: {part} %, {done} of {all}, {rate}{left}")
                }
            }
        });
    }

    fn is_current(&mut self) -> bool {
        self.newest.as_mut().is_none_or(|newest| newest.is_current())
    }
}

/// Checks a volume.
pub(crate) fn run(check: &Check) -> Result<ExitCode, String> {
    let path = &check.file;
    let how = if check.read_only { How::READ } else { How::WRITE };
    let (file, served) = served::open_file(path, &how)?;
    let report = match served {
        Some(served) => examine_served(check, served)?,
        None => {
            let (superblock, _) = file::superblock(path, &file)?;
            let mut disk = FileDisk::new(file, superblock.layout.block);
            let recovered = match check.read_only {
                true => Recovered::Nothing,
                false => recover(&mut disk, &superblock, &how),
            };
            examine(check, &mut disk, recovered)?
        }
    };
    match check.json {
        true => out_line!("{}", crate::output::json(&report)),
        false => report.print(check),
    }
    Ok(ExitCode::from(u8::from(!report.clean)))
}

/// Result of applying the journal.
enum Recovered {
    /// The journal was empty.
    Nothing,
    /// The journal was applied; with a description.
    Applied(String),
    /// The journal could not be applied; with the reason.
    Failed(String),
}

/// Applies the journal, if it is not empty.
fn recover(disk: &mut FileDisk, superblock: &Superblock, how: &How<'_>) -> Recovered {
    let config = Config::for_memory(how.memory, &superblock.layout);
    let opened = disk.head().map_err(Error::of_disk);
    let opened = opened.and_then(|head| file::open_store(disk, &head, config));
    let recovered = opened.and_then(|mut store| match store.recovered() as u64 {
        0 => Ok(0),
        some => file::close_store(&mut store, disk).map(|()| some),
    });
    match recovered {
        Ok(0) => Recovered::Nothing,
        Ok(some) => Recovered::Applied(format!(
            "it was not closed: recovered {} first",
            counted(some, "transaction", "transactions")
        )),
        Err(error) => Recovered::Failed(format!("the journal cannot be applied: {error}")),
    }
}

/// Result of one pass over a volume.
struct Pass {
    checked: Checked,
    findings: Vec<FoundDamage>,
}

/// Checks a volume that no other process uses.
fn examine(check: &Check, disk: &mut FileDisk, recovered: Recovered) -> Result<Report, String> {
    let (superblock, head) = file::superblock(&check.file, &disk.file)?;
    let (mut notes, failed) = match recovered {
        Recovered::Nothing => (Vec::new(), None),
        Recovered::Applied(note) => (vec![note], None),
        Recovered::Failed(what) => (Vec::new(), Some(what)),
    };
    let mut progress = Progress::start();
    let mut pass = pass(check, disk, (&superblock, &head), None, &mut progress)?;
    if pass.checked.journaled > 0 {
        notes.push(format!(
            "{} in the journal {} not applied and not checked",
            counted(pass.checked.journaled, "transaction", "transactions"),
            if pass.checked.journaled == 1 { "was" } else { "were" }
        ));
    }
    pass.findings.splice(0..0, failed.map(|what| FoundDamage { path: "volume".to_string(), what }));
    Ok(Report::new(check, &superblock, None, pass, notes, &progress))
}

/// Checks the newest checkpoint of a volume in use by another process, until one was read
/// completely before it was replaced.
fn examine_served(check: &Check, served: Served) -> Result<Report, String> {
    let (mut progress, mut verified) = (Progress::start(), Verified::default());
    let mut passes = 0;
    loop {
        passes += 1;
        let mut newest = served.newest()?;
        let mut disk = newest.disk()?;
        let (superblock, head) = (newest.superblock.clone(), newest.head.clone());
        let in_use = Some((&mut newest, &mut verified));
        let found = pass(check, &mut disk, (&superblock, &head), in_use, &mut progress)?;
        let outdated = found.checked.outdated;
        if outdated > 0 && passes < PASSES_MAX {
            continue;
        }
        let mut notes = vec![format!(
            "served by {served}: checkpoint {} was checked; later transactions in the journal \
             were not",
            superblock.epoch
        )];
        if outdated > 0 {
            notes.push(format!(
                "{} replaced before they were read, in the last of {}: they and dependent blocks \
                 were not checked; check again under less write load",
                counted(outdated, "block was", "blocks were"),
                counted(u64::from(passes), "pass", "passes")
            ));
        }
        return Ok(Report::new(check, &superblock, Some(served), found, notes, &progress));
    }
}

/// Reads everything reachable from a superblock, once.
fn pass(
    check: &Check,
    disk: &mut FileDisk,
    (superblock, head): (&Superblock, &[u8]),
    in_use: Option<(&mut Newest, &mut Verified)>,
    progress: &mut Progress,
) -> Result<Pass, String> {
    let block = superblock.layout.block;
    let (newest, verified) = in_use.unzip();
    let (is_replica, verifier, quick) = (false, Verifier::new(block), check.quick);
    let block = block as u64;
    let mut looker = CheckProgress { is_replica, verifier, progress, block, quick, newest };
    let mut prefetch = Prefetch::new(disk, superblock.layout.blocks);
    let mut read = |at, count| prefetch.read(at, count);
    let checked = match verified {
        None => check::check(&mut read, head, &mut looker),
        Some(verified) => check::check_in_use(&mut read, head, &mut looker, verified),
    };
    let checked = checked.map_err(|error| file::explain(&check.file, error))?;
    looker.progress.clear();
    let mut findings = inform(&checked, &looker, block);
    // Unread parts cannot contradict the rest.
    if !looker.is_replica && checked.outdated == 0 {
        let of_files = looker.verifier.finish().into_iter();
        findings.extend(of_files.map(|found| FoundDamage { path: found.path, what: found.what }));
    }
    Ok(Pass { checked, findings })
}

/// Returns the store's findings by the names of files.
fn inform(checked: &Checked, looker: &CheckProgress<'_>, block: u64) -> Vec<FoundDamage> {
    let verifier = &looker.verifier;
    let volume = |what: String| FoundDamage { path: "volume".to_string(), what };
    let mut printed = Vec::new();
    let mut rest = &checked.findings[..];
    while let Some((finding, more)) = rest.split_first() {
        rest = more;
        printed.push(match finding {
            Finding::Data(at, ..) if looker.is_replica => {
                volume(format!("the replica's data at block {at} is damaged"))
            }
            Finding::Page(at, ..) if looker.is_replica => {
                volume(format!("the page at block {at} is damaged, with data of the replica"))
            }
            Finding::Data(_, CONTENTS, key, index) => {
                let (ino, first) = place(key, *index);
                let run = more.iter().zip(first + 1..).take_while(|(next, expected)| {
                    matches!(next, Finding::Data(_, CONTENTS, key, index)
                        if place(key, *index) == (ino, *expected))
                });
                let last = first + run.count() as u64;
                rest = &more[(last - first) as usize..];
                let bytes = (first * block, (last + 1).saturating_mul(block) - 1);
                let blocks = match last - first {
                    0 => format!("block {first} (bytes {}-{}) is", bytes.0, bytes.1),
                    _ => format!("blocks {first}-{last} (bytes {}-{}) are", bytes.0, bytes.1),
                };
                FoundDamage { path: verifier.path_of(ino), what: format!("{blocks} damaged") }
            }
            Finding::Data(at, table, key, _) => {
                let path = verifier.path_of_key(*table, key);
                let what = format!("{} at block {at} are damaged", table_name(*table));
                FoundDamage { path: path.unwrap_or_else(|| "volume".to_string()), what }
            }
            Finding::Page(at, from, to) => volume(page(*at, from, to.as_deref(), verifier)),
            Finding::Superblock(index) => {
                volume(format!("superblock {index} is damaged; the newest valid one counts"))
            }
            Finding::Map(None) => volume("the index of the map of space is damaged".to_string()),
            Finding::Map(Some(segment)) => {
                volume(format!("the map of space of segment {segment} is damaged"))
            }
            Finding::Journal(sequence) => volume(format!(
                "the disk has lost acknowledged transactions: the journal ends at batch \
                 {sequence} and continues behind it"
            )),
            Finding::Twice(at) => volume(format!("block {at} is used twice")),
            Finding::DeadInUse(epoch, number, first) => volume(format!(
                "{}, first {first}, {} in use and in the dead list of the snapshot of epoch \
                 {epoch}: do not drop snapshots, copy the files into a new volume",
                counted(*number, "block", "blocks"),
                if *number == 1 { "is" } else { "are" }
            )),
            Finding::NotInMap(at) => {
                volume(format!("block {at} is in use, but free in the space map"))
            }
            Finding::Unused(number, first) => volume(format!(
                "{}, first {first}, {} allocated and unused",
                counted(*number, "block", "blocks"),
                if *number == 1 { "is" } else { "are" }
            )),
            Finding::Snapshot(name) => {
                let name = String::from_utf8_lossy(name);
                volume(format!("the record of snapshot {name} makes no sense"))
            }
        });
    }
    printed
}

/// Returns the file and block of contents of a key with an index.
fn place(key: &[u8], index: u64) -> (u64, u64) {
    let number = |at: usize| {
        let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_be_bytes)
    };
    (number(0), number(8).saturating_add(index))
}

/// Describes the loss of a damaged page.
fn page(at: u64, from: &[u8], to: Option<&[u8]>, verifier: &Verifier) -> String {
    let place = |key: &[u8]| {
        let (table, rest) = key.split_first_chunk::<4>()?;
        let table = Table(u32::from_be_bytes(*table));
        let path = verifier.path_of_key(table, rest);
        Some(match path {
            Some(path) => format!("{} of {path}", table_name(table)),
            None => table_name(table).to_string(),
        })
    };
    let from = place(from).unwrap_or_else(|| "the beginning".to_string());
    let to = to.and_then(place).unwrap_or_else(|| "the end".to_string());
    format!("the page at block {at} is damaged; entries from {from} to before {to} are lost")
}

/// Describes the contents of a table.
fn table_name(table: Table) -> &'static str {
    let [settings, inodes, entries, attrs, orphans, quotas] = RECORDS;
    match table {
        _ if table == settings => "the volume's settings",
        _ if table == inodes => "owner, mode and dates",
        _ if table == entries => "the names in it",
        _ if table == attrs => "the extended attributes",
        _ if table == orphans => "what waits to be freed",
        _ if table == quotas => "the quotas",
        CONTENTS => "the contents",
        Table(_) => "the store's own records",
    }
}

impl Report {
    fn new(
        check: &Check,
        superblock: &Superblock,
        served: Option<Served>,
        Pass { checked, findings }: Pass,
        mut notes: Vec<String>,
        progress: &Progress,
    ) -> Report {
        if check.quick {
            notes.push("contents of files were not read (--quick)".to_string());
        }
        let block = superblock.layout.block as u64;
        let damaged = checked.findings.iter().filter(|found| matches!(found, Finding::Data(..)));
        Report {
            path: check.file.display().to_string(),
            epoch: superblock.epoch,
            clean: findings.is_empty(),
            is_whole: checked.journaled == 0 && checked.outdated == 0 && served.is_none(),
            served,
            findings,
            lost_bytes: damaged.count() as u64 * block,
            notes,
            pages: checked.pages,
            data_blocks: checked.data,
            entries: checked.entries,
            snapshots: checked.snapshots,
            bytes: (checked.pages + if check.quick { 0 } else { checked.data }) * block,
            seconds: progress.elapsed().as_secs_f64(),
        }
    }

    fn print(&self, check: &Check) {
        for note in &self.notes {
            out_line!("{}: {note}", self.path);
        }
        for FoundDamage { path, what } in &self.findings {
            out_line!("{path}: {what}");
        }
        let elapsed = std::time::Duration::from_secs_f64(self.seconds);
        out_line!(
            "checked {} in {:.1} s ({}): {}, {}, {}, {}",
            show(self.bytes),
            self.seconds,
            progress::rate(self.bytes, elapsed),
            counted(self.pages, "page", "pages"),
            counted(self.data_blocks, "block of data", "blocks of data"),
            counted(self.entries, "record", "records"),
            counted(self.snapshots, "snapshot", "snapshots"),
        );
        match (self.findings.len() as u64, self.lost_bytes) {
            (0, _) if check.quick || !self.is_whole => {
                out_line!("no problems found in the blocks that were read");
            }
            (0, _) => out_line!("nothing is wrong"),
            (some, 0) => out_line!("{}", counted(some, "finding", "findings")),
            (some, lost) => out_line!(
                "{}; {} of contents lost; restore these files from elsewhere",
                counted(some, "finding", "findings"),
                show(lost)
            ),
        }
    }
}
