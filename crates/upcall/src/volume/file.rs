//! Opening of a volume's file with straight-line code, and the next steps after a failure.

use crate::clock::Clock;
use crate::output::quoted;
use crate::progress::{self, Progress};
use crate::size;
use base::{Block, Instant};
use reactor::{VolumeFile, error_of};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use store::drive::{self, Disk};
use store::{Config, Error, HEAD_BYTES, Layout, Missing, Output, Store, Superblock, Ticket};

#[cfg(test)]
mod tests;

/// Unit of reading the head before the block size is known, bytes.
const HEAD_UNIT: usize = 4096;

/// Default memory for a volume's cached blocks, MiB.
pub(crate) const CACHE_MIB: usize = 256;

/// A volume's file as a disk.
#[derive(Debug)]
pub(crate) struct FileDisk {
    pub(crate) file: VolumeFile,
    /// Size of a block, bytes.
    block: usize,
    /// Bytes read so far.
    pub(crate) read: u64,
    /// Blocks that are read as zeros: the journal of a volume that another process writes to.
    hidden: Range<u64>,
}

impl FileDisk {
    pub(crate) fn new(file: VolumeFile, block: usize) -> FileDisk {
        FileDisk { file, block, read: 0, hidden: 0..0 }
    }

    /// Returns the disk with an empty journal: the volume at its newest checkpoint.
    pub(crate) fn without_journal(file: VolumeFile, layout: &Layout) -> FileDisk {
        let hidden = layout.journal_at..layout.journal_at + layout.journal;
        FileDisk { hidden, ..FileDisk::new(file, layout.block) }
    }
}

impl Disk for FileDisk {
    fn head(&mut self) -> Result<Vec<u8>, base::Error> {
        head(&self.file).map_err(error_of)
    }

    fn read(&mut self, at: u64, count: u32) -> Result<Vec<Block>, base::Error> {
        if self.hidden.contains(&at) {
            return Ok(vec![Block::zeroed(self.block); count as usize]);
        }
        self.read += u64::from(count) * self.block as u64;
        let offset = at * self.block as u64;
        self.file.read_blocks(offset, count as usize, self.block).map_err(error_of)
    }

    fn write(&mut self, at: u64, blocks: &[Block], durable: bool) -> Result<(), base::Error> {
        self.file.write_blocks(at * self.block as u64, blocks, durable).map_err(error_of)
    }

    fn flush(&mut self) -> Result<(), base::Error> {
        self.file.sync().map_err(error_of)
    }
}

/// Reads the head of a volume.
pub(crate) fn head(file: &VolumeFile) -> io::Result<Vec<u8>> {
    let blocks = file.read_blocks(0, HEAD_BYTES / HEAD_UNIT, HEAD_UNIT)?;
    Ok(blocks.iter().flat_map(|block| block.iter().copied()).collect())
}

/// Options of opening a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) writable: bool,
    /// Whether to open it although the disk has lost acknowledged transactions.
    pub(crate) accept_loss: bool,
    /// Memory for cached blocks, bytes.
    pub(crate) memory: usize,
    /// Next step if a server uses it.
    pub(crate) if_served: &'a str,
}

impl How<'static> {
    /// Options for writing.
    pub(crate) const WRITE: How<'static> = How {
        writable: true,
        accept_loss: false,
        memory: CACHE_MIB << 20,
        if_served: "look at /.upcall/ in the served tree, or end the server first",
    };
    /// Options for reading only.
    pub(crate) const READ: How<'static> = How { writable: false, ..How::WRITE };
}

/// An open volume.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) disk: FileDisk,
    pub(crate) store: Store,
}

/// Opens and locks a volume's file.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn open_file(path: &Path, how: &How<'_>) -> Result<VolumeFile, String> {
    VolumeFile::open_patiently(path, how.writable).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => format!(
            "{} is in use by another process: if it is being served, {}",
            path.display(),
            how.if_served
        ),
        _ => not_opened(path, &error),
    })
}

/// Returns the reason why a file was not opened, and the next step.
pub(crate) fn not_opened(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            let quoted = quoted(path);
            format!("{shown} does not exist; create it with 'upcall volume create {quoted}'")
        }
        io::ErrorKind::InvalidInput => {
            format!("{shown} is neither a file nor a block device: name a volume")
        }
        io::ErrorKind::PermissionDenied => {
            format!("cannot open {shown}: {error}; ask its owner, or act as root")
        }
        _ => format!("cannot open {shown}: {error}; look at the path and the disk"),
    }
}

/// Returns the newest superblock of a volume, and its head.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn superblock(path: &Path, file: &VolumeFile) -> Result<(Superblock, Vec<u8>), String> {
    // A file that is too short is not a volume either.
    let head = head(file).unwrap_or_default();
    Ok((newest(path, file, &head)?, head))
}

/// Returns the newest superblock in the head of a volume.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn newest(path: &Path, file: &VolumeFile, head: &[u8]) -> Result<Superblock, String> {
    let superblock = Superblock::newest(head).map_err(|error| explain(path, error))?;
    if !superblock.fits(file.size().unwrap_or(0)) {
        return Err(format!(
            "{} is shorter than the volume in it: its end is missing; restore it from a copy",
            path.display()
        ));
    }
    Ok(superblock)
}

/// Opens a volume, recovering it if it was not closed.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn open(path: &Path, how: &How<'_>) -> Result<Opened, String> {
    open_locked(path, open_file(path, how)?, how)
}

/// Opens the volume in a locked file, recovering it if it was not closed.
///
/// # Errors
/// The cause, and the next step.
pub(crate) fn open_locked(path: &Path, file: VolumeFile, how: &How<'_>) -> Result<Opened, String> {
    let (superblock, head) = superblock(path, &file)?;
    let layout = superblock.layout;
    let mut disk = FileDisk::new(file, layout.block);
    let usual = Config::for_memory(how.memory, &layout);
    let config = Config { read_only: !how.writable, accept_loss: how.accept_loss, ..usual };
    match open_store(&mut disk, &head, config) {
        Ok(store) => Ok(Opened { disk, store }),
        Err(Error::Damaged) if !how.accept_loss && is_lossy(&mut disk, &head, config) => {
            Err(lost(path))
        }
        Err(error) => Err(explain(path, error)),
    }
}

/// Opens the store with the given head, and performs its operations.
///
/// # Errors
/// Those of [`Store::open`], or of recovery.
pub(crate) fn open_store(disk: &mut FileDisk, head: &[u8], config: Config) -> Result<Store, Error> {
    let (clock, mut progress, before) = (Clock::start(), Progress::start(), disk.read);
    let (mut printed, mut to_do, mut opened) = (Vec::new(), VecDeque::new(), None);
    let mut store = Store::open(head, config, clock.now(), &mut printed)?;
    loop {
        for output in printed.drain(..) {
            match output {
                Output::Io(io) => to_do.push_back(io),
                Output::Opened(result) => opened = Some(result),
                other @ (Output::Fetched(..)
                | Output::Committed(..)
                | Output::Placed(..)
                | Output::Closed(..)) => unreachable!("{other:?} was not asked for"),
            }
        }
        let Some(io) = to_do.pop_front() else { break };
        let (id, done) = drive::perform(disk, &io);
        store.done(clock.now(), id, done, &mut printed);
        let read = disk.read - before;
        progress.show(|elapsed| {
            format!("opening: {} read, {}", size::show(read), progress::rate(read, elapsed))
        });
    }
    opened.expect("recovery comes to its end")?;
    Ok(store)
}

/// Time of commands that do not measure any.
pub(crate) const START: Instant = Instant(1);

/// Performs a store's operations until a request is committed, and then until no operation is
/// outstanding; returns the result of the request.
///
/// # Errors
/// Those of the request.
pub(crate) fn committed(
    store: &mut Store,
    disk: &mut impl Disk,
    ticket: Ticket,
    printed: Vec<Output>,
) -> Result<(), Error> {
    answered(store, disk, printed, |output| {
        let Output::Committed(found, result) = output else { return None };
        (*found == ticket).then_some(*result)
    })
}

/// Changes a store's snapshots, and closes the volume.
///
/// # Errors
/// Those of the change, or `DiskFailed`.
pub(crate) fn change_snapshots(
    opened: Opened,
    change: impl FnOnce(&mut Store, Ticket, &mut Vec<Output>),
) -> Result<FileDisk, Error> {
    let Opened { mut disk, mut store } = opened;
    let (ticket, mut printed) = (Ticket(1), Vec::new());
    change(&mut store, ticket, &mut printed);
    let changed = committed(&mut store, &mut disk, ticket, printed);
    let closed = close_store(&mut store, &mut disk);
    changed.and(closed).map(|()| disk)
}

/// Fetches the pages that a plan requires.
///
/// # Errors
/// `DiskFailed` or `Damaged`.
pub(crate) fn fetched(
    store: &mut Store,
    disk: &mut impl Disk,
    missing: Missing,
) -> Result<(), Error> {
    let (ticket, mut printed) = (Ticket(1), Vec::new());
    store.fetch(START, ticket, missing, &mut printed);
    answered(store, disk, printed, |output| {
        let Output::Fetched(found, result) = output else { return None };
        (*found == ticket).then_some(*result)
    })
}

/// Performs a store's operations until the expected output, and then until no operation is
/// outstanding: an unperformed one would prevent closing the store.
fn answered(
    store: &mut Store,
    disk: &mut impl Disk,
    mut printed: Vec<Output>,
    is_answer: impl Fn(&Output) -> Option<Result<(), Error>>,
) -> Result<(), Error> {
    let (mut to_do, mut answer) = (VecDeque::new(), None);
    loop {
        to_do.extend(printed.drain(..));
        let Some(output) = to_do.pop_front() else {
            match answer {
                Some(result) => return result,
                None => store.tick(START, &mut printed),
            }
            continue;
        };
        answer = answer.or(is_answer(&output));
        if let Output::Io(io) = output {
            let (id, done) = drive::perform(disk, &io);
            store.done(START, id, done, &mut printed);
        }
    }
}

/// Closes a store, and performs its operations.
///
/// # Errors
/// `DiskFailed` or `DiskFull`: the state of the disk is unknown.
pub(crate) fn close_store(store: &mut Store, disk: &mut impl Disk) -> Result<(), Error> {
    let (clock, mut printed, mut more) = (Clock::start(), VecDeque::new(), Vec::new());
    store.close(clock.now(), Ticket(0), &mut more);
    loop {
        printed.extend(more.drain(..));
        match printed.pop_front() {
            Some(Output::Io(io)) => {
                let (id, done) = drive::perform(disk, &io);
                store.done(clock.now(), id, done, &mut more);
            }
            Some(Output::Closed(_, result)) => return result,
            // Nothing waits for those any more.
            Some(Output::Opened(_) | Output::Fetched(..)) => {}
            Some(Output::Committed(..) | Output::Placed(..)) => {}
            None => store.tick(clock.now(), &mut more),
        }
    }
}

/// Returns whether a volume could be opened if lost transactions were accepted.
fn is_lossy(disk: &mut FileDisk, head: &[u8], config: Config) -> bool {
    let config = Config { read_only: true, accept_loss: true, ..config };
    open_store(disk, head, config).is_ok()
}

fn lost(path: &Path) -> String {
    format!(
        "{}: the disk has lost transactions that were acknowledged as durable; 'upcall serve {} \
         --accept-loss' serves the remaining state",
        path.display(),
        quoted(path)
    )
}

/// Returns the description of a volume's error, and the next step.
pub(crate) fn explain(path: &Path, error: Error) -> String {
    let shown = path.display();
    match error {
        Error::NotAVolume => format!(
            "{shown} is not a volume, or one of another version: name a volume, or make one with \
             'upcall volume create'"
        ),
        Error::Damaged => {
            format!("{shown} is damaged; 'upcall volume check {}' lists lost files", quoted(path))
        }
        Error::DiskFailed => format!("{shown}: the disk failed; look at the disk, then try again"),
        Error::DiskFull => format!("{shown}: {error}, then try again"),
        Error::NoSpace => {
            format!("{shown} is full: delete something, or drop a snapshot")
        }
        Error::NotFound => {
            let quoted = quoted(path);
            format!("{shown}: {error}; 'upcall volume snapshot {quoted} list' shows all")
        }
        Error::Exists => format!("{shown}: {error}; use another name, or drop that one first"),
        Error::TooLarge | Error::ReadOnly | Error::WouldDeadlock | Error::TooShort => {
            format!("{shown}: {error}")
        }
    }
}
