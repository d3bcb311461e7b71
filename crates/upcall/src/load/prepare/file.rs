//! Files and devices.

use super::{Prepared, Wants, fill, random, refuse, require_create, several};
use crate::load::flags::{Engine, Flags};
use load::driver::{Blocking, Opened, Ring, Target};
use rustix::fs::{CWD, OFlags};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Size of a target without an end, bytes.
const ENDLESS: u64 = 1 << 40;

pub(super) fn file(flags: &Flags, path: &Path, wants: &Wants) -> Result<Prepared, String> {
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
    // I/O through the page cache does not block on the device's queue.
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

/// Returns the best engine. That is a ring, unless the kernel would start a thread for each I/O:
/// those are slower than existing threads, and serialise writes to a file.
fn engine(flags: &Flags, files: &[File], wants: &Wants) -> Engine {
    let cached_writes = wants.changes && !flags.direct && !files.iter().any(is_device);
    let waits = || files.iter().any(|file| !reads_without_waiting(file));
    if cached_writes || waits() { Engine::Threads } else { Engine::Uring }
}

/// Returns whether it is not a plain file.
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
            if path.starts_with("/dev") {
                return Err(nowhere(path));
            }
            let what = path.display().to_string();
            require_create(flags, wants, &what, &random(flags.file_size))?;
            make_file(path, flags.file_size)?;
        }
        Err(error) => return Err(failed(&error)),
        Ok(there) => {
            let kind = there.file_type();
            if kind.is_dir() {
                return Err(format!("{} is a directory: name a file in it", path.display()));
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
    // The kernel refuses a device that is mounted or opened exclusively.
    custom.set(OFlags::EXCL, device && wants.changes);
    let mut options = OpenOptions::new();
    options.read(true).write(wants.changes).custom_flags(custom.bits().cast_signed());
    let file = options.open(path).map_err(|error| failed(&error))?;
    if wants.changes {
        lock(&file, path)?;
    }
    let size = size_of(&file, &there).map_err(|error| failed(&error))?;
    Ok((file, size))
}

/// Locks a file to be overwritten, for as long as it is open: a server locks its volumes.
fn lock(file: &File, path: &Path) -> Result<(), String> {
    use rustix::fs::FlockOperation::NonBlockingLockShared;
    match rustix::fs::flock(file, NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(format!(
            "{} is in use by another process, and this load would overwrite it: if it is being \
             served, end the server first, or choose another target",
            path.display()
        )),
        // Not all file systems have locks.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn nowhere(path: &Path) -> String {
    format!("{} does not exist, and files cannot be created there", path.display())
}

fn explain(path: &Path, error: &io::Error) -> String {
    let step = match error.raw_os_error() {
        Some(libc_errno::EBUSY) => ": it is mounted, or in use; nothing was written",
        Some(libc_errno::EINVAL) => ": this file system has no direct I/O; leave --direct away",
        _ => "",
    };
    format!("{}: {error}{step}", path.display())
}

/// Numbers of two errors.
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

/// Creates a file of random bytes: unwritten blocks are not read from the disk. It is complete or
/// does not exist; an interrupted one has another name.
fn make_file(path: &Path, bytes: u64) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
    let mut part = path.as_os_str().to_os_string();
    part.push(format!(".upcall-{}", std::process::id()));
    let mut file = File::create_new(&part).map_err(failed)?;
    let made = fill(path, bytes, |_, piece| file.write_all(piece));
    let made = made.and_then(|()| file.sync_all());
    // A file created there meanwhile is not replaced.
    let made = made.and_then(|()| {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(CWD, &part, CWD, path, flags)?)
    });
    made.map_err(|error| {
        // If it cannot be removed it stays, under its temporary name.
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

/// Returns whether the kernel supports non-blocking reads of this file; otherwise a ring hands each
/// read to a thread, and that of a real-time worker would never run.
fn reads_without_waiting(file: &File) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut byte = vec![0; 4096];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let read = preadv2(file, &mut slices, 0, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::OPNOTSUPP))
}

/// Returns the number of I/Os that the device of a file accepts before it blocks, less a few.
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
