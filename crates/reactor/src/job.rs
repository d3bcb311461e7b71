//! Jobs for threads that may block.

use crate::blocks::BlockTransfer;
use crate::clock::Clock;
use crate::host::Host;
use crate::identity::IdentityPart;
use crate::memory::Memory;
use crate::path::{Performed, Task};
use crate::pool::lanes::{Lane, Queued};
use crate::{descriptor, errno, path};
use base::op::{ClientKey, Done, File, OpId, Span};
use base::{Buf, Caller, Error, Instant};
use rustix::io::Errno;

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Perform a path operation.
    Path(Task),
    /// Read into `buf` until it has `count` bytes, or the file ends.
    Read {
        /// An open file.
        file: File,
        /// Offset of the first byte of `buf` in the file.
        offset: u64,
        /// Total number of bytes wanted.
        count: usize,
        /// Bytes read so far.
        buf: Buf,
    },
    /// Write once.
    Write {
        /// Identity of the writer.
        caller: Caller,
        /// An open file.
        file: File,
        /// Offset, bytes.
        offset: u64,
        /// The data.
        data: Buf,
    },
    /// Transfer blocks from or to a volume.
    Blocks {
        /// The volume's file or device.
        file: File,
        /// The transfer.
        block_transfer: BlockTransfer,
    },
    /// Make completed writes durable.
    Sync {
        /// An open file.
        file: File,
        /// Whether only the contents become durable, not the timestamps.
        data_only: bool,
    },
    /// Close a file whose storage may be freed by it.
    Close {
        /// The file.
        file: File,
        /// The client whose file it was.
        client: ClientKey,
    },
}

/// Work with its operation; `None` if nobody waits for it.
#[derive(Debug)]
pub(crate) struct Job {
    /// The operation.
    pub(crate) id: Option<OpId>,
    /// The work.
    pub(crate) work: Work,
    /// File systems and services that it may block on, and may enter.
    pub(crate) lanes: Vec<Lane>,
    /// Whether it occupies its thread for long if it is local.
    pub(crate) is_long: bool,
    /// Time of its submission.
    pub(crate) submitted: Instant,
}

/// Result of work, with a buffer whose memory can be reused.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The operation and its result.
    pub(crate) event: Option<(OpId, Done)>,
    /// A buffer that is no longer needed.
    pub(crate) used: Option<Buf>,
    /// Times of the work.
    pub(crate) span: Span,
    /// Files that it has opened on file systems that may block.
    pub(crate) opened: Vec<(File, Lane)>,
}

/// Result of a job on a thread.
#[derive(Debug)]
pub(crate) enum JobOutcome {
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

    fn client(&self) -> ClientKey {
        match &self.work {
            Work::Path(task) => ClientKey::of_requester(task.requester),
            Work::Close { client, .. } => *client,
            Work::Read { .. } | Work::Write { .. } | Work::Blocks { .. } | Work::Sync { .. } => {
                ClientKey::NOBODY
            }
        }
    }

    fn is_long(&self) -> bool {
        self.is_long
    }
}

impl Job {
    /// Performs the work.
    pub(crate) fn run(self, host: &Host, clock: &Clock, memory: &mut Memory) -> JobOutcome {
        let Job { id, work, mut lanes, is_long, submitted } = self;
        let started = clock.now();
        let (done, used) = match work {
            Work::Path(task) => match path::perform(host, memory, (&lanes, is_long), &task) {
                Performed::Done(result) => (Some(Done::Path(result)), None),
                Performed::Elsewhere(lane) => {
                    lanes.push(lane);
                    let work = Work::Path(task);
                    return JobOutcome::Again(Job { id, work, lanes, is_long, submitted });
                }
                Performed::Lengthy => {
                    let (work, is_long) = (Work::Path(task), true);
                    return JobOutcome::Again(Job { id, work, lanes, is_long, submitted });
                }
            },
            work @ (Work::Read { .. }
            | Work::Write { .. }
            | Work::Blocks { .. }
            | Work::Sync { .. }
            | Work::Close { .. }) => work.run(host),
        };
        // A job without lanes has stayed on its own file system.
        let opened = match &done {
            Some(Done::Path(Ok(done))) if !lanes.is_empty() => path::lanes_of(host, done),
            _ => Vec::new(),
        };
        let span = Span { submitted, started, finished: clock.now() };
        let event = done.map(|done| (id.unwrap_or(OpId::UNREQUESTED), done));
        JobOutcome::Ended(Finished { event, used, span, opened })
    }

    /// Cancels the work before its start.
    pub(crate) fn cancel(self) -> Finished {
        self.fail(Error::Cancelled)
    }

    /// Fails the work before it has changed anything.
    pub(crate) fn fail(self, error: Error) -> Finished {
        let (done, used) = match self.work {
            Work::Path(_) => (Done::Path(Err(error)), None),
            Work::Read { buf, .. } => (Done::Read(Err(error)), Some(buf)),
            Work::Write { data, .. } => (Done::Written(Err(error)), Some(data)),
            Work::Blocks { block_transfer, .. } => (block_transfer.end(Err(error)), None),
            Work::Sync { .. } => (Done::Synced(Err(error)), None),
            // It has no id, so it cannot be cancelled; at the end of the reactor it is performed.
            Work::Close { file, client } => {
                descriptor::close(file.0);
                (Done::Closing { client, begins: false }, None)
            }
        };
        let (submitted, started, finished) = (self.submitted, self.submitted, self.submitted);
        let span = Span { submitted, started, finished };
        Finished { event: self.id.map(|id| (id, done)), used, span, opened: Vec::new() }
    }
}

impl Work {
    /// Performs work other than path operations.
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
                let result = host.own.assume(&caller, None, IdentityPart::Changing);
                let result = result.and_then(|()| write(file, offset, &data));
                (Some(Done::Written(result)), Some(data))
            }
            Work::Blocks { file, mut block_transfer } => {
                let result = host.own.be_server().and_then(|()| descriptor::file(file));
                let result = result.and_then(|fd| block_transfer.run(fd).map_err(errno::translate));
                (Some(block_transfer.end(result)), None)
            }
            Work::Sync { file, data_only } => {
                let result = host.own.be_server();
                (Some(Done::Synced(result.and_then(|()| sync(file, data_only)))), None)
            }
            Work::Close { file, client } => {
                descriptor::close(file.0);
                (Some(Done::Closing { client, begins: false }), None)
            }
        }
    }
}

fn read(file: File, offset: u64, count: usize, buf: &mut Buf) -> Result<(), Error> {
    assert!(buf.len() <= count, "no more was read than was requested");
    let fd = descriptor::file(file)?;
    while buf.len() < count {
        let at = offset.saturating_add(buf.len() as u64);
        let want = count - buf.len();
        match rustix::io::pread(fd, &mut buf.spare()[..want], at) {
            Ok(0) => break,
            Ok(n) => buf.grow(n),
            Err(Errno::INTR) => {}
            // Bytes read before an error are returned as a short read.
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
