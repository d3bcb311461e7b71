//! Procedures on the contents of a file: READ, WRITE, COMMIT.

use super::call::{Context, Next, Procedure, optional};
use base::{Access, Buf, Error};
use tree::{Ask, Reply};
use wire::nfs::{self, After, Handle, READ_HEADER_SIZE, Results, Stable, Wcc};

/// READ.
#[derive(Debug)]
pub(super) struct Read {
    handle: Handle,
    offset: u64,
    count: u32,
    /// The data, while its attributes are awaited.
    data: Option<Vec<Buf>>,
}

impl Read {
    pub(super) fn new(handle: Handle, offset: u64, count: u32) -> Read {
        Read { handle, offset, count, data: None }
    }
}

impl Procedure for Read {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.handle), None]
    }

    fn access(&self) -> Option<Access> {
        Some(Access::READ)
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        let headroom = u32::try_from(READ_HEADER_SIZE).expect("headers are small");
        let count = self.count.min(context.export.limits.msize);
        Next::Ask(Ask::Read { open: context.open(), offset: self.offset, count, headroom })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        if let Some(data) = self.data.take() {
            let stat = optional(reply);
            let (attributes, is_outdated) =
                stat.as_ref().map_or((None, false), |stat| context.see(stat));
            if is_outdated {
                return Next::Reopen;
            }
            let count: usize = data.iter().map(|piece| piece.len()).sum();
            let count = u32::try_from(count).expect("reads are limited");
            let end = self.offset.saturating_add(count.into());
            let size = stat.as_ref().map(|stat| stat.size).filter(|size| *size > 0);
            // Nothing was read: at the time of the read this was the end.
            let at_end = count == 0 && self.count > 0;
            let eof = at_end || size.map_or(count == 0, |size| end >= size);
            nfs::put_read(attributes, count, eof, context.body);
            return Next::Data(data);
        }
        match reply {
            Ok(Reply::Data(data)) => self.data = Some(vec![data]),
            Ok(Reply::Pieces(pieces)) => self.data = Some(pieces),
            Ok(other) => unreachable!("{other:?} is no data"),
            Err(error) => return Next::Fail(error),
        }
        Next::Ask(Ask::Stat { node: context.node() })
    }

    fn failure(&self) -> After {
        After::Attributes(None)
    }
}

/// WRITE.
#[derive(Debug)]
pub(super) struct Write {
    handle: Handle,
    offset: u64,
    stable: Stable,
    state: Writing,
}

/// State of a WRITE.
#[derive(Debug)]
enum Writing {
    /// About to write this.
    Ready(Buf),
    /// Waiting for the number of bytes written.
    Write,
    /// Waiting for the durability of this many bytes.
    Sync(u32),
    /// Waiting for the attributes after it.
    After(u32),
}

impl Write {
    pub(super) fn new(handle: Handle, offset: u64, stable: Stable, data: Buf) -> Write {
        Write { handle, offset, stable, state: Writing::Ready(data) }
    }
}

/// Access of an open file for writing. Clients also write to files that they have created without
/// permission to write.
pub(super) const WRITE: Access =
    Access { read: false, write: true, append: false, truncate: false, sync: false };

impl Procedure for Write {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.handle), None]
    }

    fn access(&self) -> Option<Access> {
        Some(WRITE)
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        let state = std::mem::replace(&mut self.state, Writing::Write);
        let Writing::Ready(data) = state else { unreachable!("it begins once") };
        Next::Ask(Ask::Write { open: context.open(), offset: self.offset, data })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        let stat = Ask::Stat { node: context.node() };
        match (&self.state, reply) {
            (Writing::Write, Ok(Reply::Written(count))) => match self.stable {
                Stable::Unstable => {
                    self.state = Writing::After(count);
                    Next::Ask(stat)
                }
                Stable::DataSync | Stable::FileSync => {
                    self.state = Writing::Sync(count);
                    let data_only = self.stable == Stable::DataSync;
                    Next::Ask(Ask::Sync { open: context.open(), data_only })
                }
            },
            (Writing::Sync(count), Ok(_)) => {
                self.state = Writing::After(*count);
                Next::Ask(stat)
            }
            (Writing::After(count), reply) => {
                let (count, committed) = (*count, self.stable);
                let file = context.changed_file(optional(reply).as_ref());
                let verifier = context.export.nfs.verifier;
                Results::Write { file, count, committed, verifier }.put(context.body);
                Next::Reply
            }
            (Writing::Write | Writing::Sync(_), Err(error)) => Next::Fail(error),
            (state, Ok(other)) => unreachable!("{other:?} for {state:?}"),
            (Writing::Ready(_), Err(_)) => unreachable!("nothing was requested"),
        }
    }

    fn failure(&self) -> After {
        After::Changed(Wcc::NONE)
    }
}

/// COMMIT.
#[derive(Debug)]
pub(super) struct Commit {
    handle: Handle,
    /// Whether the contents are durable, and the attributes are awaited.
    is_durable: bool,
}

impl Commit {
    pub(super) fn new(handle: Handle) -> Commit {
        Commit { handle, is_durable: false }
    }
}

impl Procedure for Commit {
    fn handles(&self) -> [Option<Handle>; 2] {
        [Some(self.handle), None]
    }

    fn access(&self) -> Option<Access> {
        Some(WRITE)
    }

    fn takes_any_open(&self) -> bool {
        true
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        Next::Ask(Ask::Sync { open: context.open(), data_only: false })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        if self.is_durable {
            let file = context.changed_file(optional(reply).as_ref());
            let verifier = context.export.nfs.verifier;
            Results::Commit { file, verifier }.put(context.body);
            return Next::Reply;
        }
        match reply {
            Ok(_) => {
                self.is_durable = true;
                Next::Ask(Ask::Stat { node: context.node() })
            }
            Err(error) => Next::Fail(error),
        }
    }

    fn failure(&self) -> After {
        After::Changed(Wcc::NONE)
    }
}
