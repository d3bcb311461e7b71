//! Work for a thread that may wait.

use crate::blocks::Passage;
use crate::clock::Clock;
use crate::host::Host;
use crate::identity::Depth;
use crate::memory::Memory;
use crate::path::{Performed, Task};
use crate::pool::lanes::{Lane, Queued};
use crate::{descriptor, errno, path};
use base::op::{Done, File, NOBODY, OpId, Span};
use base::{Buf, Caller, Error, Instant};
use rustix::io::Errno;

/// One piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Several system calls on paths.
    Path(Task),
    /// Read into `buf` until `count` bytes are there, or the file ends.
    Read {
        /// From an open file.
        file: File,
        /// Where the contents of `buf` begin in the file.
        offset: u64,
        /// How many bytes it shall have.
        count: usize,
        /// What was read so far.
        buf: Buf,
    },
    /// Write once.
    Write {
        /// As whom.
        caller: Caller,
        /// To an open file.
        file: File,
        /// Where.
        offset: u64,
        /// What.
        data: Buf,
    },
    /// Move blocks from or to a volume.
    Blocks {
        /// Which.
        file: File,
        /// The blocks, and how far they have come.
        passage: Passage,
    },
    /// Make durable.
    Sync {
        /// What.
        file: File,
        /// Without the dates.
        data_only: bool,
    },
    /// Close what may have to be freed.
    Close {
        /// What.
        file: File,
    },
}

/// Work with the name it completes under; `None` if nobody waits for it.
#[derive(Debug)]
pub(crate) struct Job {
    /// Of which operation.
    pub(crate) id: Option<OpId>,
    /// What.
    pub(crate) work: Work,
    /// File systems and services that it may hang on, and may enter.
    pub(crate) lanes: Vec<Lane>,
    /// Whether it keeps its thread for long if it is local.
    pub(crate) is_long: bool,
    /// When it was asked for.
    pub(crate) submitted: Instant,
}

/// How work ended, with a buffer whose memory can be used again.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Of which operation, and how.
    pub(crate) event: Option<(OpId, Done)>,
    /// Not needed any more.
    pub(crate) used: Option<Buf>,
    /// How long it took.
    pub(crate) span: Span,
    /// Files that it has opened on file systems that may hang.
    pub(crate) opened: Vec<(File, Lane)>,
}

/// Result of a job on a thread.
#[derive(Debug)]
pub(crate) enum Ran {
    /// It has ended.
    Ended(Finished),
    /// It has done nothing and has to be queued again: it leads to a file system that was not among
    /// its lanes and is now, or it is long.
    Again(Job),
}

impl Queued for Job {
    fn id(&self) -> Option<OpId> {
        self.id
    }

    fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    fn asker(&self) -> u32 {
        match &self.work {
            Work::Path(task) => task.asker,
            Work::Read { .. }
            | Work::Write { .. }
            | Work::Blocks { .. }
            | Work::Sync { .. }
            | Work::Close { .. } => NOBODY,
        }
    }

    fn is_long(&self) -> bool {
        self.is_long
    }
}

impl Job {
    /// Does the work.
    pub(crate) fn run(self, host: &Host, clock: &Clock, memory: &mut Memory) -> Ran {
        let Job { id, work, mut lanes, is_long, submitted } = self;
        let started = clock.now();
        let (done, used) = match work {
            Work::Path(task) => match path::perform(host, memory, (&lanes, is_long), &task) {
                Performed::Done(result) => (Some(Done::Path(result)), None),
                Performed::Elsewhere(lane) => {
                    lanes.push(lane);
                    let work = Work::Path(task);
                    return Ran::Again(Job { id, work, lanes, is_long, submitted });
                }
                Performed::Lengthy => {
                    let (work, is_long) = (Work::Path(task), true);
                    return Ran::Again(Job { id, work, lanes, is_long, submitted });
                }
            },
            work @ (Work::Read { .. }
            | Work::Write { .. }
            | Work::Blocks { .. }
            | Work::Sync { .. }
            | Work::Close { .. }) => work.run(host),
        };
        // What has no lane has stayed on its own file system.
        let opened = match &done {
            Some(Done::Path(Ok(done))) if !lanes.is_empty() => host.lanes_of(done),
            _ => Vec::new(),
        };
        let span = Span { submitted, started, finished: clock.now() };
        Ran::Ended(Finished { event: id.zip(done), used, span, opened })
    }

    /// Ends the work before it began.
    pub(crate) fn cancel(self) -> Finished {
        self.fail(Error::Cancelled)
    }

    /// Ends the work before it changed anything.
    pub(crate) fn fail(self, error: Error) -> Finished {
        let (done, used) = match self.work {
            Work::Path(_) => (Done::Path(Err(error)), None),
            Work::Read { buf, .. } => (Done::Read(Err(error)), Some(buf)),
            Work::Write { data, .. } => (Done::Written(Err(error)), Some(data)),
            Work::Blocks { passage, .. } => (passage.end(Err(error)), None),
            Work::Sync { .. } => (Done::Synced(Err(error)), None),
            // Nobody can name it, so nobody can cancel it; at the end of the reactor it is done.
            Work::Close { file } => {
                descriptor::close(file.0);
                (Done::Synced(Err(error)), None)
            }
        };
        let (submitted, started, finished) = (self.submitted, self.submitted, self.submitted);
        let span = Span { submitted, started, finished };
        Finished { event: self.id.map(|id| (id, done)), used, span, opened: Vec::new() }
    }
}

impl Work {
    /// Does everything but path operations.
    fn run(self, host: &Host) -> (Option<Done>, Option<Buf>) {
        match self {
            Work::Path(_) => unreachable!("performed by the job, which knows its lanes"),
            Work::Read { file, offset, count, mut buf } => {
                let result = host.own.be_server();
                match result.and_then(|()| read(file, offset, count, &mut buf)) {
                    Ok(()) => (Some(Done::Read(Ok(buf))), None),
                    Err(error) => (Some(Done::Read(Err(error))), Some(buf)),
                }
            }
            Work::Write { caller, file, offset, data } => {
                let result = host.own.assume(&caller, None, Depth::Changing);
                let result = result.and_then(|()| write(file, offset, &data));
                (Some(Done::Written(result)), Some(data))
            }
            Work::Blocks { file, mut passage } => {
                let result = host.own.be_server().and_then(|()| descriptor::file(file));
                let result = result.and_then(|fd| passage.run(fd).map_err(errno::translate));
                (Some(passage.end(result)), None)
            }
            Work::Sync { file, data_only } => {
                let result = host.own.be_server();
                (Some(Done::Synced(result.and_then(|()| sync(file, data_only)))), None)
            }
            Work::Close { file } => {
                descriptor::close(file.0);
                (None, None)
            }
        }
    }
}

fn read(file: File, offset: u64, count: usize, buf: &mut Buf) -> Result<(), Error> {
    assert!(buf.len() <= count, "no more was read than was asked for");
    let fd = descriptor::file(file)?;
    while buf.len() < count {
        let at = offset.saturating_add(buf.len() as u64);
        let want = count - buf.len();
        match rustix::io::pread(fd, &mut buf.spare()[..want], at) {
            Ok(0) => break,
            Ok(n) => buf.grow(n),
            Err(Errno::INTR) => {}
            // What was read before is as good as a short read.
            Err(_) if !buf.is_empty() => break,
            Err(errno) => return Err(errno::translate(errno)),
        }
    }
    Ok(())
}

fn write(file: File, offset: u64, data: &[u8]) -> Result<u32, Error> {
    let fd = descriptor::file(file)?;
    loop {
        match rustix::io::pwrite(fd, data, offset) {
            Ok(n) => return Ok(u32::try_from(n).unwrap_or(u32::MAX)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno::translate(errno)),
        }
    }
}

fn sync(file: File, data_only: bool) -> Result<(), Error> {
    let fd = descriptor::file(file)?;
    let result = if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
    result.map_err(errno::translate)
}
