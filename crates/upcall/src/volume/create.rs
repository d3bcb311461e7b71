//! `upcall volume create`: an empty volume, created completely or not at all.
//!
//! The journal is zeroed, the maps are written, then the empty file tree is committed and the store
//! closed, which writes the first superblock last of all. A file is created under a temporary name
//! and renamed when everything is durable.

use super::file::{self, FileDisk, How};
use crate::clock;
use crate::output::quoted;
use crate::progress::Progress;
use crate::size;
use base::{Block, Instant};
use clap::Args;
use reactor::VolumeFile;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::drive::{self, Disk as _};
use store::{Config, Durability, Geometry, HEAD_BYTES, Output, Store, Ticket};

/// Maximum default size of a volume, bytes.
const SIZE_DEFAULT_MAX: u64 = 16 << 30;
/// Alignment of a default size, bytes.
const SIZE_UNIT: u64 = 1 << 20;
/// Part of a device that must be zero for it to count as empty, bytes. File systems and partition
/// tables begin earlier.
const LOOKED_AT: u64 = 1 << 20;

/// Options of `upcall volume create`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Create {
    /// New file, or a block device
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Size of the volume, like 8G or 512M [default: 16G, or half of the free space if that is
    /// less; for a device all of it]
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,

    /// Size of a block: 512, 1024, 2048 or 4096
    #[arg(long, value_parser = size::parse, value_name = "BYTES", default_value = "4096")]
    block: u64,

    /// Size of the journal, like 64M [default: a 128th of the size, from 4M to 128M]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    journal: Option<u64>,

    /// Maximum number of files of all kinds [default: as many as fit]
    #[arg(long, value_name = "N", value_parser = crate::units::count)]
    inodes_max: Option<u64>,

    /// Maximum bytes of file contents, like 4G [default: as many as fit]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    bytes_max: Option<u64>,

    /// Allocate storage when it is needed, not now
    #[arg(long)]
    sparse: bool,

    /// Owner of the root directory [default: the current user]
    #[arg(long, value_parser = owner, value_name = "UID:GID")]
    owner: Option<(u32, u32)>,

    /// Use a block device even if it contains data, which is lost
    #[arg(long)]
    force: bool,

    /// Replica settings, if the volume contains no file tree
    #[arg(skip)]
    replica: Option<services::Settings>,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once(':');
    let parsed = parts.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    parsed.ok_or_else(|| "write two numbers, like 1000:1000".to_string())
}

impl Create {
    /// Returns the options of a volume that `upcall serve` creates. Clients of root's volumes act
    /// as nobody, so such a volume belongs to nobody, as they could not use it otherwise.
    pub(crate) fn usual(file: &Path) -> Create {
        Create {
            file: file.to_path_buf(),
            size: None,
            block: 4096,
            journal: None,
            inodes_max: None,
            bytes_max: None,
            sparse: true,
            owner: (own().0 == 0).then_some((NOBODY, NOBODY)),
            force: false,
            replica: None,
        }
    }

    /// Returns the options of a replica's volume.
    pub(crate) fn of_replica(
        file: &Path,
        size: Option<u64>,
        settings: services::Settings,
    ) -> Create {
        Create { size, replica: Some(settings), ..Create::usual(file) }
    }

    /// Creates the volume; returns its size, bytes, and a further message.
    pub(crate) fn make(&self) -> Result<(u64, Option<String>), String> {
        let kind = std::fs::symlink_metadata(&self.file).map(|_| ());
        let device =
            std::fs::metadata(&self.file).is_ok_and(|meta| meta.file_type().is_block_device());
        match (device, kind) {
            (true, _) => self.make_on_device(),
            (false, Ok(())) => Err(format!(
                "{} exists: choose another name, or remove it first",
                self.file.display()
            )),
            (false, Err(_)) => self.make_file(),
        }
    }

    fn make_on_device(&self) -> Result<(u64, Option<String>), String> {
        let shown = self.file.display();
        let file = file::open_file(&self.file, &How::WRITE)?;
        let all = file.size().map_err(|error| format!("cannot measure {shown}: {error}"))?;
        let bytes = self.size.unwrap_or(all);
        if bytes > all {
            return Err(format!("{shown} has {}: choose a smaller --size", size::show(all)));
        }
        if !self.force && !is_empty(&file, all).map_err(|error| format!("{shown}: {error}"))? {
            return Err(format!(
                "{shown} is not empty, and its contents would be lost; choose another device, or \
                 add --force"
            ));
        }
        self.fill(file, bytes)?;
        Ok((bytes, None))
    }

    fn make_file(&self) -> Result<(u64, Option<String>), String> {
        let shown = self.file.display();
        let bytes = match self.size {
            Some(bytes) => bytes,
            None => default_size(&self.file)?,
        };
        self.geometry(bytes)?;
        let temporary = beside(&self.file);
        let made = self.make_temporary(&temporary, bytes).and_then(|word| {
            // A link does not replace a file created by another process meanwhile.
            std::fs::hard_link(&temporary, &self.file)
                .or_else(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => Err(error),
                    _no_links_here => std::fs::rename(&temporary, &self.file),
                })
                .and_then(|()| directory(&self.file)?.sync_all())
                .map_err(|error| format!("cannot make {shown}: {error}; choose another name"))?;
            Ok(word)
        });
        // Renamed away, or obsolete; if it cannot be removed, it stays.
        let _ = std::fs::remove_file(&temporary);
        made.map(|word| (bytes, word))
    }

    fn make_temporary(&self, path: &Path, bytes: u64) -> Result<Option<String>, String> {
        let shown = self.file.display();
        let refuse = |error: io::Error| {
            let advice = match error.kind() {
                io::ErrorKind::StorageFull => {
                    "there is not so much room: choose a smaller --size, or --sparse"
                }
                io::ErrorKind::FileTooLarge => "choose a smaller --size",
                _ => "look at the path and the disk",
            };
            format!("cannot make {shown}: {error}; {advice}")
        };
        let file = VolumeFile::create(path).map_err(refuse)?;
        let plain = File::options().write(true).open(path).map_err(refuse)?;
        plain.set_len(bytes).map_err(refuse)?;
        if !self.sparse {
            file.allocate(bytes).map_err(refuse)?;
        }
        let taken = plain.metadata().map_err(refuse)?.blocks() * 512;
        self.fill(file, bytes)?;
        let word = "this file system promises no room ahead: the file grows as it is filled";
        Ok((!self.sparse && taken < bytes).then(|| word.to_string()))
    }

    fn geometry(&self, bytes: u64) -> Result<Geometry, String> {
        let usual = Geometry::for_bytes(bytes);
        let block = self.block.max(1);
        let journal = self.journal.unwrap_or(usual.journal * 4096) / block;
        let blocks = bytes / block;
        let block = usize::try_from(block).unwrap_or(usize::MAX);
        if ![512, 1024, 2048, 4096].contains(&block) {
            return Err(format!("--block {block}: use 512, 1024, 2048 or 4096"));
        }
        let segment = Geometry::segment_for(block, blocks);
        let geometry = Geometry { block, blocks, journal, segment };
        geometry.layout().map(|_| geometry).map_err(|_| match self.journal {
            Some(journal) => format!(
                "a journal of {} does not suit a volume of {}: choose another --journal, from 64K \
                 to less than the volume",
                size::show(journal),
                size::show(bytes)
            ),
            None => {
                format!("{} are too few for a volume; use --size 8M or more", size::show(bytes))
            }
        })
    }

    /// Formats the volume in an open file. The superblock is written last.
    fn fill(&self, file: VolumeFile, bytes: u64) -> Result<(), String> {
        let geometry = self.geometry(bytes)?;
        let refuse = |error| file::explain(&self.file, error);
        let number = || clock::random().map_err(|error| format!("no random number: {error}"));
        let (volume, date) = (number()?, clock::wall());
        let mut writes = store::format(&geometry, volume, date).map_err(refuse)?;
        let superblock = writes.pop().expect("the last one makes it a volume");
        let mut disk = FileDisk::new(file, geometry.block);
        let (mut progress, all) = (Progress::start(), writes.len());
        for (index, (at, blocks)) in writes.iter().enumerate() {
            disk.write(*at, blocks, false).map_err(|error| refuse(store::Error::of_disk(error)))?;
            progress.show(|_| format!("formatting: {} %", index * 100 / all));
        }
        disk.flush().map_err(|error| refuse(store::Error::of_disk(error)))?;
        let contents = match &self.replica {
            Some(settings) => services::format(settings),
            None => self.files(date, number()?),
        };
        commit(&mut disk, &head_with(superblock, geometry.block), &contents).map_err(refuse)
    }

    /// Returns an empty tree of files.
    fn files(&self, date: base::Time, seed: u64) -> Vec<store::Change> {
        let (uid, gid) = self.owner.unwrap_or_else(own);
        tree::volume::format(&tree::volume::Format {
            uid,
            gid,
            mode: 0o755,
            date,
            seed,
            inodes_max: self.inodes_max.unwrap_or(u64::MAX),
            bytes_max: self.bytes_max.unwrap_or(u64::MAX),
        })
    }
}

/// User id of nobody.
const NOBODY: u32 = 65_534;

/// Returns the user and group of this process.
fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Returns the head of a volume with this superblock, which is not yet written.
fn head_with((at, blocks): (u64, Vec<Block>), block: usize) -> Vec<u8> {
    let (mut head, place) = (vec![0; HEAD_BYTES], at as usize * block);
    for (bytes, block) in head[place..].chunks_mut(block).zip(&blocks) {
        bytes.copy_from_slice(block);
    }
    head
}

/// Commits the first transaction, and closes the store, which writes the first superblock.
fn commit(disk: &mut FileDisk, head: &[u8], changes: &[store::Change]) -> Result<(), store::Error> {
    let layout = store::Superblock::newest(head)?.layout;
    let mut store = file::open_store(disk, head, Config::for_memory(1 << 20, &layout))?;
    let (now, mut outputs) = (Instant(1), Vec::new());
    store.commit(now, Ticket(0), changes, Durability::Soon, &mut outputs).map_err(|refusal| {
        match refusal {
            store::Refusal::Failed(error) => error,
            store::Refusal::Missing(missing) => unreachable!("{missing:?} in an empty volume"),
        }
    })?;
    perform(&mut store, disk, outputs);
    file::close_store(&mut store, disk)
}

/// Performs the operations of a store.
fn perform(store: &mut Store, disk: &mut FileDisk, mut outputs: Vec<Output>) {
    while let Some(output) = outputs.pop() {
        if let Output::Io(io) = output {
            let (id, done) = drive::perform(disk, &io);
            store.done(Instant(1), id, done, &mut outputs);
        }
    }
}

fn is_empty(file: &VolumeFile, all: u64) -> io::Result<bool> {
    let count = (LOOKED_AT.min(all) / 4096) as usize;
    let mut blocks = Vec::new();
    for at in (0..count).step_by(base::op::BLOCKS_MAX) {
        let some = (count - at).min(base::op::BLOCKS_MAX);
        blocks.extend(file.read_blocks(at as u64 * 4096, some, 4096)?);
    }
    Ok(blocks.iter().all(|block| block.iter().all(|byte| *byte == 0)))
}

/// Opens the directory of a file.
pub(crate) fn directory(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
}

/// Returns an unused name beside a file.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

/// Returns the default size of a volume: 16 GiB, or half of the free space.
fn default_size(path: &Path) -> Result<u64, String> {
    let refuse = |error: &dyn std::fmt::Display| {
        format!("cannot make {}: {error}; choose another directory", path.display())
    };
    let directory = directory(path).map_err(|error| refuse(&error))?;
    let full = rustix::fs::fstatvfs(&directory).map_err(|error| refuse(&error))?;
    let free = full.f_bavail.saturating_mul(full.f_frsize);
    Ok((free / 2).min(SIZE_DEFAULT_MAX) / SIZE_UNIT * SIZE_UNIT)
}

/// Creates a volume and reports it.
pub(crate) fn run(create: &Create) -> Result<ExitCode, String> {
    let (bytes, word) = create.make()?;
    out_line!("created {}, {}", create.file.display(), size::show(bytes));
    if let Some(word) = word {
        out_line!("{word}");
    }
    out_line!("serve it: upcall serve {}", quoted(&create.file));
    Ok(ExitCode::SUCCESS)
}
