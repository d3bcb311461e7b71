//! Before a run: the target is opened, or made, and nothing is destroyed that nobody gave away.

use super::flags::{Engine, Flags};
use super::place::Place;
use crate::progress::{self, Progress};
use crate::size;
use load::driver::{
    Blocking, Directory, Greeted, Http, NineP, Null, Opened, Ring, Store, Target, Url,
};
use rustix::fs::{CWD, OFlags};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is written at once while something is made, bytes. Small volumes take no more.
const PIECE: usize = 256 << 10;

/// A target that has no end offers so many bytes.
const ENDLESS: u64 = 1 << 40;

/// What a workload wants of its target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    /// Whether it writes, trims, makes or removes anything.
    pub(crate) changes: bool,
    /// Its largest I/O, bytes.
    pub(crate) io_max: u32,
    /// How many files it uses.
    pub(crate) files: u32,
    /// How many of them, from the first on, are as large as the target is made.
    pub(crate) plain: u32,
    /// Those of them that have a size of their own, by number; bytes.
    pub(crate) sizes: Vec<(u32, u32)>,
    /// Whether it makes and removes files itself.
    pub(crate) comes_and_goes: bool,
}

impl Wants {
    /// Why a target that is one file, or several of one size, is not enough.
    fn expect_one_size(&self) -> Result<(), String> {
        match self.sizes.is_empty() && !self.comes_and_goes {
            true => Ok(()),
            false => Err("this workload has files that come and go, or of many sizes: its target \
                          is dir:PATH, or http://HOST/PATH/{}"
                .to_string()),
        }
    }
}

/// A target that is ready.
pub(crate) struct Prepared {
    pub(crate) target: Box<dyn Target>,
    /// How large each of its files is, bytes.
    pub(crate) span: u64,
    /// What whoever reads the result should know of it.
    pub(crate) notes: Vec<String>,
}

/// Opens a target, or makes it.
///
/// # Errors
/// What is in the way, and what to do.
pub(crate) fn prepare(flags: &Flags, wants: &Wants) -> Result<Prepared, String> {
    let place = flags.target()?;
    if !matches!(place, Place::Null | Place::Directory(_) | Place::Http(_)) {
        wants.expect_one_size()?;
    }
    match place {
        Place::Null => {
            let span = flags.file_size;
            Ok(Prepared { target: Box::new(Null), span, notes: Vec::new() })
        }
        Place::File(path) => file(flags, path, wants),
        Place::Directory(path) => directory(flags, path, wants),
        Place::Volume(path) => volume(flags, path, wants),
        Place::NineP(server, path) => {
            let connections = flags.connections as usize;
            let target = NineP {
                server: server.clone(),
                path: path.clone(),
                files: wants.files,
                connections,
                writes: wants.changes,
            };
            ninep(flags, target)
        }
        Place::Http(url) => http(flags, url, wants),
    }
}

/// One path is not several files.
fn several(what: &str) -> String {
    format!("this load uses several files: write {{}} into the path {what}, for their numbers")
}

/// Refuses to change what exists.
fn refuse(what: &str) -> String {
    format!(
        "{what} exists, and this load writes to it: its contents would be lost. \
         Give --destroy if that is meant, or another target"
    )
}

// Files and devices.

fn file(flags: &Flags, path: &Path, wants: &Wants) -> Result<Prepared, String> {
    if wants.files > 1 && !path.to_string_lossy().contains("{}") {
        return Err(several(&path.display().to_string()));
    }
    let paths: Vec<PathBuf> = (0..wants.files.max(1)).map(|file| numbered(path, file)).collect();
    let (mut files, mut span, mut notes) = (Vec::new(), u64::MAX, Vec::new());
    for path in &paths {
        let (file, size) = one_file(flags, path, wants, &mut notes)?;
        span = span.min(size);
        files.push(file);
    }
    notes.dedup();
    let engine = match flags.engine {
        Some(chosen) => chosen,
        None => engine(flags, &files, wants),
    };
    if engine == Engine::Uring && files.iter().any(|file| !reads_without_waiting(file)) {
        notes.push("the kernel starts a thread for each I/O: this file system waits".to_string());
    }
    // Through the page cache nobody waits for the device's queue.
    let aside_from = files.first().filter(|file| flags.direct || is_device(file));
    let aside_from = aside_from.and_then(queue_of);
    let name = flags.target()?.to_string();
    let opened = Opened { files, name, io_max: wants.io_max as usize, aside_from };
    let target: Box<dyn Target> = match engine {
        Engine::Uring => Box::new(Ring(opened)),
        Engine::Threads => Box::new(Blocking(opened)),
    };
    Ok(Prepared { target, span, notes })
}

/// Which engine is best. A ring is, unless the kernel would start a thread for each I/O: those are
/// slower than threads that are there, and write to a file one after the other.
fn engine(flags: &Flags, files: &[File], wants: &Wants) -> Engine {
    let cached_writes = wants.changes && !flags.direct && !files.iter().any(is_device);
    let waits = || files.iter().any(|file| !reads_without_waiting(file));
    if cached_writes || waits() { Engine::Threads } else { Engine::Uring }
}

/// Whether it is no plain file.
fn is_device(file: &File) -> bool {
    file.metadata().is_ok_and(|there| !there.is_file())
}

fn numbered(path: &Path, file: u32) -> PathBuf {
    match path.to_str() {
        Some(text) => load::driver::server::numbered(text, file).into(),
        None => path.to_path_buf(),
    }
}

fn one_file(
    flags: &Flags,
    path: &Path,
    wants: &Wants,
    notes: &mut Vec<String>,
) -> Result<(File, u64), String> {
    let failed = |error: &io::Error| explain(path, error);
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_file(path, flags.file_size)?;
        }
        Err(error) => return Err(failed(&error)),
        Ok(there) => {
            let kind = there.file_type();
            if kind.is_dir() {
                return Err(format!(
                    "{} is a directory: name a file in it, which is made if it does not exist",
                    path.display()
                ));
            }
            if wants.changes && !flags.destroy {
                return Err(refuse(&path.display().to_string()));
            }
            if is_sparse(&there) {
                notes.push(format!(
                    "parts of {} were never written: reading them costs next to nothing",
                    path.display()
                ));
            }
        }
    }
    let there = std::fs::metadata(path).map_err(|error| failed(&error))?;
    let device = there.file_type().is_block_device();
    let mut custom = OFlags::empty();
    custom.set(OFlags::DIRECT, flags.direct);
    // The kernel refuses a device that is mounted, or that somebody else has for himself.
    custom.set(OFlags::EXCL, device && wants.changes);
    let mut options = OpenOptions::new();
    options.read(true).write(wants.changes).custom_flags(custom.bits().cast_signed());
    let file = options.open(path).map_err(|error| failed(&error))?;
    let size = size_of(&file, &there).map_err(|error| failed(&error))?;
    if size < u64::from(wants.io_max) {
        return Err(format!(
            "{} has {}: too few for one I/O of {}",
            path.display(),
            size::show(size),
            size::show(wants.io_max.into())
        ));
    }
    Ok((file, size))
}

fn explain(path: &Path, error: &io::Error) -> String {
    let step = match error.raw_os_error() {
        Some(libc_errno::EBUSY) => ": it is mounted, or in use; nothing was written",
        Some(libc_errno::EINVAL) => ": this file system has no direct I/O; leave --direct away",
        _ => "",
    };
    format!("{}: {error}{step}", path.display())
}

/// The numbers of two errors.
mod libc_errno {
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EINVAL: i32 = 22;
}

fn is_sparse(there: &Metadata) -> bool {
    there.is_file() && there.blocks().saturating_mul(512) < there.len()
}

fn size_of(file: &File, there: &Metadata) -> io::Result<u64> {
    if there.file_type().is_char_device() {
        return Ok(ENDLESS);
    }
    use std::io::{Seek, SeekFrom};
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::End(0))
}

/// Makes a file of random bytes: what was never written is not read from the disk. It is there as
/// a whole or not at all; what an interrupt leaves has another name.
fn make_file(path: &Path, bytes: u64) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
    if path.starts_with("/dev") {
        return Err(format!("{} does not exist, and files are not made there", path.display()));
    }
    let mut part = path.as_os_str().to_os_string();
    part.push(format!(".upcall-{}", std::process::id()));
    let mut file = File::create_new(&part).map_err(failed)?;
    let made = fill(path, bytes, |_, piece| file.write_all(piece));
    let made = made.and_then(|()| file.sync_all());
    // Nothing that came there meanwhile is replaced.
    let made = made.and_then(|()| {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(CWD, &part, CWD, path, flags)?)
    });
    made.map_err(|error| {
        // If it cannot be removed it stays; nobody takes it for the whole.
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

/// Says random bytes, piece by piece, and shows how far it is.
fn fill(
    what: &(impl AsRef<Path> + ?Sized),
    bytes: u64,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let what = what.as_ref().display();
    eprintln!("making {what}: {} of random bytes", size::show(bytes));
    let mut shown = Progress::start();
    let mut piece = vec![0; PIECE];
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(PIECE as u64) as usize;
        random.fill(&mut piece[..count]);
        write(done, &piece[..count])?;
        done += count as u64;
        shown.show(|elapsed| {
            format!(
                "{} of {}, {}",
                size::show(done),
                size::show(bytes),
                progress::rate(done, elapsed)
            )
        });
    }
    Ok(())
}

/// Whether the kernel can read this file without waiting; where it cannot, a ring hands each read
/// to a thread, and that of a real-time worker would never run.
fn reads_without_waiting(file: &File) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut byte = vec![0; 4096];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let read = preadv2(file, &mut slices, 0, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::OPNOTSUPP))
}

/// How many I/Os the device behind a file takes before it makes others wait, less a few.
fn queue_of(file: &File) -> Option<usize> {
    let there = file.metadata().ok()?;
    let device = if there.file_type().is_block_device() { there.rdev() } else { there.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has the queue of its disk.
    let queues = [block.join("queue/nr_requests"), block.join("../queue/nr_requests")];
    let text = queues.iter().find_map(|queue| std::fs::read_to_string(queue).ok())?;
    let depth: usize = text.trim().parse().ok()?;
    Some((depth * 3 / 4).max(1))
}

// Directories.

/// A directory of numbered files. What is not there is made; what is made by the workload is not.
fn directory(flags: &Flags, path: &Path, wants: &Wants) -> Result<Prepared, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let fresh = !path.exists();
    if !fresh && wants.changes && !flags.destroy {
        return Err(refuse(&path.display().to_string()));
    }
    let target = Directory { path: path.to_path_buf(), io_max: wants.io_max as usize };
    target.make(wants.files).map_err(failed)?;
    let size = u32::try_from(flags.file_size).unwrap_or(u32::MAX);
    let plain = (0..wants.plain).map(|number| (number, size));
    let missing = |(number, _): &(u32, u32)| !target.file(*number).exists();
    let missing: Vec<_> = wants.sizes.iter().copied().chain(plain).filter(missing).collect();
    let total = missing.iter().map(|(_, size)| u64::from(*size)).sum();
    let mut left = missing.into_iter();
    let mut file: Option<(File, u32)> = None;
    fill(path, total, |_, mut piece| {
        while !piece.is_empty() {
            let (out, rest) = match &mut file {
                Some((out, rest)) if *rest > 0 => (out, rest),
                _ => {
                    let Some((number, size)) = left.next() else { return Ok(()) };
                    let (out, rest) = file.insert((File::create(target.file(number))?, size));
                    (out, rest)
                }
            };
            let count = piece.len().min(*rest as usize);
            out.write_all(&piece[..count])?;
            *rest -= count as u32;
            piece = &piece[count..];
        }
        Ok(())
    })
    .map_err(failed)?;
    Ok(Prepared { target: Box::new(target), span: flags.file_size, notes: Vec::new() })
}

// Volumes.

fn volume(flags: &Flags, path: &Path, wants: &Wants) -> Result<Prepared, String> {
    let failed = |error: embed::Error| format!("{error}; {}", error.next_step());
    let fresh = !path.exists();
    if fresh {
        // The store needs room for what replaces what is there.
        let bytes = flags.file_size.checked_mul(2 * u64::from(wants.files.max(1)));
        let bytes = bytes.and_then(|bytes| bytes.checked_add(256 << 20));
        let bytes = bytes.ok_or("a volume cannot be so large; choose a smaller --file-size")?;
        eprintln!("making the volume {}: {}", path.display(), size::show(bytes));
        drop(embed::Volume::create(path, bytes).map_err(failed)?);
    } else if !flags.destroy && wants.changes {
        return Err(refuse(&path.display().to_string()));
    }
    // The volume's threads leave signals to whoever makes the run.
    reactor::hold_signals();
    let store = Store::open(path, flags.durable);
    reactor::let_signals_through();
    let store = store.map_err(failed)?;
    let mut notes = Vec::new();
    for number in 0..wants.files.max(1) {
        if store.is_filled(number, flags.file_size).map_err(failed)? {
            continue;
        }
        if !fresh && !flags.destroy {
            notes.push(
                "the volume holds none of the bytes that are read: what was never written costs \
                 next to nothing to read; --destroy fills it"
                    .to_string(),
            );
            break;
        }
        let filled = fill(path, flags.file_size, |offset, piece| {
            store.put(number, offset, piece.to_vec()).map_err(io::Error::other)
        });
        filled.map_err(|error| format!("cannot fill {}: {error}", path.display()))?;
    }
    Ok(Prepared { target: Box::new(store), span: flags.file_size, notes })
}

// Servers.

fn ninep(flags: &Flags, target: NineP) -> Result<Prepared, String> {
    let text = |error: io::Error| error.to_string();
    if target.files > 1 && !target.path.contains("{}") {
        return Err(several(&target.path));
    }
    let mut greeted = Greeted::greet(&target.server).map_err(text)?;
    let mut span = u64::MAX;
    let mut notes = Vec::new();
    for file in 0..target.files.max(1) {
        let path = load::driver::server::numbered(&target.path, file);
        let there = greeted.open_one(&path, file, false).is_ok();
        if there && target.writes && !flags.destroy {
            return Err(refuse(&path));
        }
        if !there {
            greeted.open_one(&path, file, true).map_err(text)?;
            let filled =
                fill(&path, flags.file_size, |offset, piece| greeted.fill(file, offset, piece));
            filled.map_err(|error| format!("cannot fill {path}: {error}"))?;
        }
        match greeted.size(file).map_err(text)? {
            Some(size) => span = span.min(size),
            None => notes.push("the server does not say how large the file is".to_string()),
        }
    }
    if span == u64::MAX {
        span = flags.file_size;
    }
    Ok(Prepared { target: Box::new(target), span, notes })
}

fn http(flags: &Flags, url: &Url, wants: &Wants) -> Result<Prepared, String> {
    let text = |error: io::Error| error.to_string();
    let mut span = u64::MAX;
    if wants.files > 1 && !url.path.contains("{}") {
        return Err(several(&format!("http://{}{}", url.host, url.path)));
    }
    if wants.comes_and_goes && !flags.destroy {
        for file in 0..wants.files {
            if url.size(file).map_err(text)?.is_some() {
                return Err(refuse(&load::driver::server::numbered(&url.path, file)));
            }
        }
    }
    let sized = wants.sizes.iter().map(|(number, _)| *number);
    for file in (0..wants.plain).chain(sized) {
        let size = url.size(file).map_err(text)?;
        if size.is_some() && wants.changes && !flags.destroy {
            return Err(refuse(&load::driver::server::numbered(&url.path, file)));
        }
        let own = wants.sizes.iter().find(|(number, _)| *number == file);
        let wanted = own.map_or(flags.file_size, |(_, size)| u64::from(*size));
        if size.is_none() {
            let path = load::driver::server::numbered(&url.path, file);
            let mut put = url.put(file, wanted).map_err(text)?;
            let filled = fill(&path, wanted, |_, piece| put.write(piece));
            filled.and_then(|()| put.end()).map_err(text)?;
        }
        span = span.min(size.unwrap_or(wanted));
    }
    let (url, connections) = (url.clone(), flags.connections as usize);
    let target = Http { url, connections, io_max: wants.io_max as usize };
    Ok(Prepared { target: Box::new(target), span, notes: Vec::new() })
}
