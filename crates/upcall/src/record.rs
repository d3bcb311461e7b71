//! `upcall serve --record FILE`: a thread of its own writes the node's recording. The node never
//! waits for it: batches that the disk does not accept in time are dropped and counted, and after a
//! write error the recording ends while the server continues.

use crate::log;
use base::{Instant, Time};
use load::trace::recording::{HEADER, SLOT, Writer, whole_len};
use load::trace::{Traced, Write as _};
use load::{Io, Kind};
use node::{Act, Kept, Recorded, Tally};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Maximum number of queued batches: 15 MB, a second of the fastest server.
const BATCHES: usize = 256;

/// Timeout for the last of them at the end of the server.
const END_TIME: Duration = Duration::from_secs(10);

/// Number of name slots after which all files are named anew: it bounds the memory of the writer
/// and of readers of the recording.
const NAMES_MAX: usize = 1 << 18;

/// The file, ready for appends.
#[derive(Debug)]
pub(crate) struct Sheet {
    path: PathBuf,
    file: File,
    /// Length of its complete part, bytes.
    len: u64,
    writer: Writer,
}

/// The writer thread.
#[derive(Debug)]
pub(crate) struct Recording {
    path: PathBuf,
    batches: SyncSender<Vec<Recorded>>,
    ended: Receiver<Ended>,
}

/// Result of a recording.
#[derive(Debug)]
struct Ended {
    /// I/Os written.
    written: u64,
    failed: Option<io::Error>,
}

impl Sheet {
    /// Creates the file, or opens a recording to append to it. It is locked against other writers,
    /// and other users may not read the names of files.
    pub(crate) fn open(path: &Path) -> Result<Sheet, String> {
        let failed = |error: io::Error| format!("cannot record into {}: {error}", path.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        let strange = || {
            let path = path.display();
            format!("{path} is no recording: name one to go on with, or a new file")
        };
        if !meta.is_file() {
            return Err(strange());
        }
        // From here on no other process changes it.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            format!("another process records into {}; choose another file", path.display())
        })?;
        let mut head = Vec::with_capacity(SLOT);
        (&file).take(SLOT as u64).read_to_end(&mut head).map_err(failed)?;
        if !HEADER.starts_with(&head) {
            return Err(strange());
        }
        let is_new = head.len() < SLOT;
        let len = if is_new { 0 } else { whole_len(file.metadata().map_err(failed)?.len()) };
        file.set_len(len).map_err(failed)?;
        file.seek(SeekFrom::Start(len)).map_err(failed)?;
        let writer = if is_new { Writer::new() } else { Writer::append() };
        Ok(Sheet { path: path.to_path_buf(), file, len, writer })
    }

    /// Writes all batches; times are since `wall`.
    fn fill(mut self, wall: Time, batches: Receiver<Vec<Recorded>>) -> Ended {
        let mut written = 0;
        let failed = self.write_all(wall, &batches, &mut written).err();
        if failed.is_some() {
            // The next writer would truncate it as well.
            let _ = self.file.set_len(self.len);
        }
        Ended { written, failed }
    }

    fn write_all(
        &mut self,
        wall: Time,
        batches: &Receiver<Vec<Recorded>>,
        written: &mut u64,
    ) -> io::Result<()> {
        let wall_ns = unix_ns(wall);
        let (mut out, mut names) = (Vec::new(), 0);
        self.writer.start(wall_ns, &mut out);
        self.put(&mut out)?;
        for batch in batches {
            for recorded in &batch {
                let before = out.len();
                self.writer.write(&traced(recorded), &recorded.path, &mut out);
                names += (out.len() - before) / SLOT - 1;
                if names > NAMES_MAX {
                    names = 0;
                    self.writer.start(wall_ns, &mut out);
                }
            }
            self.put(&mut out)?;
            *written += batch.len() as u64;
        }
        self.file.sync_data()
    }

    fn put(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.file.write_all(out)?;
        self.len += out.len() as u64;
        out.clear();
        Ok(())
    }
}

impl Recording {
    /// Begins to write a recording by a clock that was zero at `wall`.
    pub(crate) fn begin(sheet: Sheet, wall: Time) -> Result<Recording, String> {
        let (batches, taken) = sync_channel(BATCHES);
        let (informed, ended) = sync_channel(1);
        let path = sheet.path.clone();
        let shown = path.display().to_string();
        let write = move || {
            let end = sheet.fill(wall, taken);
            if let Some(why) = &end.failed {
                let text = format!("recording into {shown} has ended: {why}; the server continues");
                log::error("record", text);
            }
            let _ = informed.send(end);
        };
        let thread = std::thread::Builder::new().name("record".to_string()).spawn(write);
        thread.map_err(|error| format!("no thread: {error}"))?;
        Ok(Recording { path, batches, ended })
    }

    /// Queues a batch, if there is room.
    pub(crate) fn keep(&self, batch: Vec<Recorded>) -> Kept {
        match self.batches.try_send(batch) {
            Ok(()) => Kept::Taken,
            Err(TrySendError::Full(_)) => Kept::Lost,
            Err(TrySendError::Disconnected(_)) => Kept::Ended,
        }
    }

    /// Waits until all queued batches are written, but not for a hanging disk; returns a summary.
    pub(crate) fn end(self, tally: Tally) -> String {
        let Recording { path, batches, ended } = self;
        drop(batches);
        let path = path.display();
        let lost = match tally.lost {
            0 => String::new(),
            lost => format!(", {lost} left out: they came faster than they could be written"),
        };
        match ended.recv_timeout(END_TIME) {
            Ok(Ended { written, failed: None }) => {
                format!("upcall: recorded {written} I/Os into {path}{lost}\n")
            }
            Ok(Ended { written, failed: Some(why) }) => {
                format!("upcall: recorded {written} I/Os into {path}, then: {why}{lost}\n")
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                format!("upcall: the end of the recording is missing in {path}{lost}\n")
            }
        }
    }
}

fn traced(recorded: &Recorded) -> Traced {
    let Recorded { at, until, act, file, offset, len, stream, .. } = *recorded;
    let kind = match act {
        Act::Read => Kind::Read,
        Act::Write => Kind::Write,
        Act::Sync => Kind::Sync,
        Act::Trim => Kind::Trim,
        Act::Create => Kind::Create,
        Act::Remove => Kind::Remove,
    };
    let (Instant(at_ns), Instant(until_ns)) = (at, until);
    let took_ns = Some(until_ns.saturating_sub(at_ns));
    Traced { at_ns, took_ns, io: Io { kind, file, offset, len }, stream }
}

fn unix_ns(wall: Time) -> u64 {
    let secs = u64::try_from(wall.secs).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(u64::from(wall.nanos))
}

#[cfg(test)]
mod tests;
