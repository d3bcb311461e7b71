//! Opening a volume's file with straight-line code, and what to do where that fails.

use crate::clock::Clock;
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

/// How the beginning is read before the size of a block is known, bytes.
const HEAD_UNIT: usize = 4096;

/// Memory for a volume's blocks unless something else is said, MiB.
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

    /// The same with an empty journal: the volume as its newest checkpoint has it.
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

/// The beginning of a volume.
pub(crate) fn head(file: &VolumeFile) -> io::Result<Vec<u8>> {
    let blocks = file.read_blocks(0, HEAD_BYTES / HEAD_UNIT, HEAD_UNIT)?;
    Ok(blocks.iter().flat_map(|block| block.iter().copied()).collect())
}

/// How a volume is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) writable: bool,
    /// Although the disk has lost acknowledged transactions.
    pub(crate) accept_loss: bool,
    /// Memory for its blocks, bytes.
    pub(crate) memory: usize,
    /// What to do if a server has it.
    pub(crate) if_served: &'a str,
}

impl How<'static> {
    /// To be written.
    pub(crate) const WRITE: How<'static> = How {
        writable: true,
        accept_loss: false,
        memory: CACHE_MIB << 20,
        if_served: "look at /.upcall/ in the served tree, or end the server first",
    };
    /// To be read only.
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
/// The cause, and what to do.
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

/// Why a file was not opened, and what to do.
pub(crate) fn not_opened(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no {shown}: make it with 'upcall volume create {shown}'")
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

/// The newest superblock of a volume, and the bytes that it is in.
///
/// # Errors
/// The cause, and what to do.
pub(crate) fn superblock(path: &Path, file: &VolumeFile) -> Result<(Superblock, Vec<u8>), String> {
    // What is too short is no volume either.
    let head = head(file).unwrap_or_default();
    Ok((newest(path, file, &head)?, head))
}

/// The newest superblock in the beginning of a volume.
///
/// # Errors
/// The cause, and what to do.
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

/// Opens a volume: recovers it if it was not closed.
///
/// # Errors
/// The cause, and what to do.
pub(crate) fn open(path: &Path, how: &How<'_>) -> Result<Opened, String> {
    open_locked(path, open_file(path, how)?, how)
}

/// Opens the volume in a file that is locked: recovers it if it was not closed.
///
/// # Errors
/// The cause, and what to do.
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

/// Opens the store that begins with `head`, and does what that takes.
///
/// # Errors
/// As [`Store::open`], or what recovery found.
pub(crate) fn open_store(disk: &mut FileDisk, head: &[u8], config: Config) -> Result<Store, Error> {
    let (clock, mut progress, before) = (Clock::start(), Progress::start(), disk.read);
    let (mut said, mut to_do, mut opened) = (Vec::new(), VecDeque::new(), None);
    let mut store = Store::open(head, config, clock.now(), &mut said)?;
    loop {
        for output in said.drain(..) {
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
        store.done(clock.now(), id, done, &mut said);
        let read = disk.read - before;
        progress.show(|elapsed| {
            format!("opening: {} read, {}", size::show(read), progress::rate(read, elapsed))
        });
    }
    opened.expect("recovery comes to its end")?;
    Ok(store)
}

/// The time of commands that take none.
pub(crate) const START: Instant = Instant(1);

/// Performs what a store asks for until a request is committed, and then until no operation is
/// outstanding; the result of the request.
///
/// # Errors
/// As the request's.
pub(crate) fn committed(
    store: &mut Store,
    disk: &mut impl Disk,
    ticket: Ticket,
    said: Vec<Output>,
) -> Result<(), Error> {
    answered(store, disk, said, |output| {
        let Output::Committed(found, result) = output else { return None };
        (*found == ticket).then_some(*result)
    })
}

/// Asks a store for a change of its snapshots, and closes the volume.
///
/// # Errors
/// As the change's, or `DiskFailed`.
pub(crate) fn change_snapshots(
    opened: Opened,
    change: impl FnOnce(&mut Store, Ticket, &mut Vec<Output>),
) -> Result<FileDisk, Error> {
    let Opened { mut disk, mut store } = opened;
    let (ticket, mut said) = (Ticket(1), Vec::new());
    change(&mut store, ticket, &mut said);
    let changed = committed(&mut store, &mut disk, ticket, said);
    let closed = close_store(&mut store, &mut disk);
    changed.and(closed).map(|()| disk)
}

/// Reads what a plan needs into memory.
///
/// # Errors
/// `DiskFailed` or `Damaged`.
pub(crate) fn fetched(
    store: &mut Store,
    disk: &mut impl Disk,
    missing: Missing,
) -> Result<(), Error> {
    let (ticket, mut said) = (Ticket(1), Vec::new());
    store.fetch(START, ticket, missing, &mut said);
    answered(store, disk, said, |output| {
        let Output::Fetched(found, result) = output else { return None };
        (*found == ticket).then_some(*result)
    })
}

/// Performs what a store asks for until it has said this, and then until no operation is
/// outstanding: one that is never performed would keep the store from being closed.
fn answered(
    store: &mut Store,
    disk: &mut impl Disk,
    mut said: Vec<Output>,
    is_answer: impl Fn(&Output) -> Option<Result<(), Error>>,
) -> Result<(), Error> {
    let (mut to_do, mut answer) = (VecDeque::new(), None);
    loop {
        to_do.extend(said.drain(..));
        let Some(output) = to_do.pop_front() else {
            match answer {
                Some(result) => return result,
                None => store.tick(START, &mut said),
            }
            continue;
        };
        answer = answer.or(is_answer(&output));
        if let Output::Io(io) = output {
            let (id, done) = drive::perform(disk, &io);
            store.done(START, id, done, &mut said);
        }
    }
}

/// Closes a store, and does what that takes.
///
/// # Errors
/// `DiskFailed` or `DiskFull`: nobody knows what is on the disk.
pub(crate) fn close_store(store: &mut Store, disk: &mut impl Disk) -> Result<(), Error> {
    let (clock, mut said, mut more) = (Clock::start(), VecDeque::new(), Vec::new());
    store.close(clock.now(), Ticket(0), &mut more);
    loop {
        said.extend(more.drain(..));
        match said.pop_front() {
            Some(Output::Io(io)) => {
                let (id, done) = drive::perform(disk, &io);
                store.done(clock.now(), id, done, &mut more);
            }
            Some(Output::Closed(_, result)) => return result,
            // Nobody waits for those any more.
            Some(Output::Opened(_) | Output::Fetched(..)) => {}
            Some(Output::Committed(..) | Output::Placed(..)) => {}
            None => store.tick(clock.now(), &mut more),
        }
    }
}

/// Whether a volume could be opened if lost transactions did not matter.
fn is_lossy(disk: &mut FileDisk, head: &[u8], config: Config) -> bool {
    let config = Config { read_only: true, accept_loss: true, ..config };
    open_store(disk, head, config).is_ok()
}

fn lost(path: &Path) -> String {
    format!(
        "{}: the disk has lost transactions that were acknowledged as durable; what is there can \
         be used with 'upcall serve {} --accept-loss'",
        path.display(),
        path.display()
    )
}

/// What is the matter with a volume, and what to do.
pub(crate) fn explain(path: &Path, error: Error) -> String {
    let shown = path.display();
    match error {
        Error::NotAVolume => format!(
            "{shown} is not a volume, or one of another version: name a volume, or make one with \
             'upcall volume create'"
        ),
        Error::Damaged => {
            format!("{shown} is damaged: 'upcall volume check {shown}' says what is lost")
        }
        Error::DiskFailed => format!("{shown}: the disk failed; look at the disk, then try again"),
        Error::DiskFull => format!("{shown}: {error}, then try again"),
        Error::NoSpace => {
            format!("{shown} is full: delete something, or drop a snapshot")
        }
        Error::NotFound => {
            format!("{shown}: {error}; 'upcall volume snapshot {shown} list' shows all")
        }
        Error::Exists => format!("{shown}: {error}; use another name, or drop that one first"),
        Error::TooLarge | Error::ReadOnly | Error::WouldDeadlock | Error::TooShort => {
            format!("{shown}: {error}")
        }
    }
}
